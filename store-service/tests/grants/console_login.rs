//! The way into the console: after the login comes the page that was asked for, and no other site's.

use crate::console::{form, send};
use crate::desk::Office;
use fencepost_rig::client::Call;

const KEY: &str = "/console/entries/test:01010101010101010101010101010101";

/// Where an answer leads.
fn leads(answer: &fencepost_rig::client::Answer) -> Option<String> {
    (answer.status == 303).then(|| answer.header("location").unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_login_comes_the_page_that_was_asked_for() {
    let office = Office::sqlite().await;
    let settle = format!("{KEY}/settle");
    for (call, asked) in [
        (
            Call::get("/console/entries?state=unknown&prefix=a%26b"),
            "/console/entries?state=unknown&prefix=a%26b",
        ),
        (Call::get(KEY), KEY),
        // An order that came too late: its page is shown, and nothing is sent again.
        (form(&settle, "reason=r"), KEY),
    ] {
        let to = leads(&send(&office, call).await).unwrap();
        assert!(to.starts_with("/console/login?to="), "{to}");
        let page = send(&office, Call::get(&to)).await.text();
        let field = asked.replace('&', "&amp;");
        assert!(page.contains(&format!("name=\"to\" value=\"{field}\"")), "{page}");
        let query = to.split_once('?').unwrap().1;
        // A wrong token loses nothing.
        let wrong = send(&office, form("/console/login", &format!("token=wrong&{query}"))).await;
        assert!(wrong.status == 401 && wrong.text().contains(&field));
        let begun = send(&office, form("/console/login", &format!("token=operator&{query}"))).await;
        assert_eq!(leads(&begun).as_deref(), Some(asked));
        // Somebody who is logged in goes there at once.
        let cookie = begun.header("set-cookie").unwrap().split(';').next().unwrap();
        let again = send(&office, Call::get(&to).header("cookie", cookie)).await;
        assert_eq!(leads(&again).as_deref(), Some(asked));
    }
    assert_eq!(leads(&send(&office, Call::get("/console")).await).as_deref(), Some("/console/login"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_login_leads_to_no_other_site() {
    let office = Office::sqlite().await;
    for to in [
        "https%3A%2F%2Fevil.example%2Fconsole",
        "%2F%2Fevil.example%2Fconsole",
        "%2F%5Cevil.example",
        "%2Fconsole%2F%2Fevil.example",
        "%2Fconsole.evil.example",
        "%2Fconsole%2F..%2Fv1%2Fentries",
        "%2Fconsole%2Fx%0D%0Aset-cookie%3Aa%3Db",
        "javascript%3Aalert(1)",
        "%FF",
        "%2Fconsole%2Flogout",
    ] {
        let page = send(&office, Call::get(&format!("/console/login?to={to}"))).await;
        assert!(page.status == 200 && !page.text().contains("name=\"to\""), "{to}: {}", page.text());
        let begun = send(&office, form("/console/login", &format!("token=operator&to={to}"))).await;
        // What can't be read is no form at all.
        let expected = if to == "%FF" { None } else { Some("/console") };
        assert_eq!(leads(&begun).as_deref(), expected, "{to}");
    }
}

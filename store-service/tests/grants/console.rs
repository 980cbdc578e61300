//! The console: in a real browser without scripts, and what it refuses.

use crate::desk::{Office, said};
use crate::http::serve;
use fencepost_protocol::claims::{ClaimRequest, CompleteRequest, OnLost, UnknownCause, UnknownRequest};
use fencepost_protocol::{ClaimToken, FRAME_MEDIA_TYPE, Fingerprint, Scheme, ScopeDigest, StoreKey, encode};
use fencepost_rig::browser::Browser;
use fencepost_rig::client::{Answer, Call};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

pub fn key(number: u8) -> StoreKey {
    StoreKey::new("test", &[number; 16]).unwrap()
}

pub fn token(number: u8) -> ClaimToken {
    ClaimToken::from_bytes([number; 16])
}

pub fn claim(number: u8, by: u8) -> ClaimRequest {
    ClaimRequest {
        v: 1,
        key: key(number),
        token: token(by),
        scheme: Scheme::parse("1-test").unwrap(),
        fingerprint: Fingerprint::from_bytes([number; 32]),
        scope: ScopeDigest::from_bytes([7; 16]),
        claim_ttl_ms: 30_000,
        max_run_ms: 60_000,
        on_lost: OnLost::Hold,
        unknown_ttl_ms: 86_400_000,
        wait_ms: 0,
        knows_quota: true,
    }
}

pub async fn frame(office: &Office, path: &str, head: &impl Serialize, payload: &[u8]) -> Value {
    let call =
        Call::post(path).header("content-type", FRAME_MEDIA_TYPE).body(encode(head, &[payload]).unwrap());
    let answer = office.call("filter", call).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    fencepost_protocol::decode::<Value>(&answer.body).unwrap().0
}

/// A key whose request was answered, of the scope that is all sevens.
pub async fn answered(office: &Office, number: u8, body: &[u8]) {
    let claimed = frame(office, "/v1/claims", &claim(number, 1), b"").await;
    let fence = serde_json::from_value(claimed["fence"].clone()).unwrap();
    let asked = claim(number, 1);
    let headers =
        fencepost_protocol::answer::encode_headers(&[(b"content-type".to_vec(), b"text/html".to_vec())]);
    let complete = CompleteRequest {
        v: 1,
        key: asked.key,
        token: asked.token,
        fence,
        scheme: asked.scheme,
        fingerprint: asked.fingerprint,
        scope: asked.scope,
        status: 201,
        headers_len: headers.len().try_into().unwrap(),
        body_len: body.len().try_into().unwrap(),
        ttl_ms: 86_400_000,
    };
    frame(office, "/v1/complete", &complete, &[&headers, body].concat()).await;
}

fn picture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("console").join(format!("{name}.png"))
}

/// Logging in, looking, deciding, logging out: with forms and links alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_works_in_a_browser_without_scripts() {
    const SECRET: &[u8] = b"<h1 id=forged>alice's balance</h1><script>document.title='run'</script>";
    let office = Office::sqlite().await;
    let unknown = UnknownRequest { v: 1, key: key(1), token: token(1), cause: UnknownCause::Timeout };
    frame(&office, "/v1/claims", &claim(1, 1), b"").await;
    frame(&office, "/v1/unknown", &unknown, b"").await;
    answered(&office, 2, SECRET).await;
    frame(&office, "/v1/claims", &claim(2, 2), b"").await;
    let other = ClaimRequest { fingerprint: Fingerprint::from_bytes([9; 32]), ..claim(2, 3) };
    frame(&office, "/v1/claims", &other, b"").await;
    frame(&office, "/v1/claims", &claim(3, 1), b"").await;
    let operation = office.admitted().await;
    assert_eq!(office.record(&operation, "admitted", "needs_reconciliation").await.status, 200);
    let open = office.admitted().await;
    let hold = json!({"reason": "restored <i>last night</i>", "prefix": "old", "keys_for_ms": 3_600_000});
    assert_eq!(office.call("operator", Call::post("/v1/operator/holds").json(&hold)).await.status, 200);

    let browser = Browser::start(1280, 1000).await.unwrap();
    let at = |path: &str| format!("http://{}{path}", office.served.service.addr());
    browser.open(&at("/console")).await.unwrap();
    browser.arrives(&at("/console/login")).await.unwrap();
    browser.fill("input[name=token]", "wrong").await.unwrap();
    browser.click("button").await.unwrap();
    browser.says(".alert", "not known").await.unwrap();
    browser.picture(&picture("1-login")).await.unwrap();
    browser.fill("input[name=token]", "operator").await.unwrap();
    browser.click("button").await.unwrap();
    browser.arrives(&at("/console")).await.unwrap();
    let cookies = browser.cookies().await.unwrap();
    let cookie = &cookies.as_array().unwrap()[0];
    assert_eq!((&cookie["httpOnly"], &cookie["sameSite"]), (&json!(true), &json!("Strict")));
    assert!(!cookie.to_string().contains("operator"), "the token is not in the cookie: {cookie}");

    let overview = browser.source().await.unwrap();
    for shown in [key(1).as_str(), key(3).as_str(), operation.as_str(), open.as_str(), "replayed", "mismatch"]
    {
        assert!(overview.contains(shown), "{shown} is not on the overview");
    }
    assert_eq!(browser.count("main i").await.unwrap(), 0, "a reason is text");
    browser.picture(&picture("2-overview")).await.unwrap();

    // A key whose outcome is unknown, settled with an answer.
    browser.follow(key(1).as_str()).await.unwrap();
    browser.picture(&picture("3-unknown-key")).await.unwrap();
    let settle = "form[action$=settle]:has(input[value=answer])";
    let field = |name: &str| format!("{settle} [name={name}]");
    browser.fill(&field("status"), "201").await.unwrap();
    browser.fill(&field("body"), "{\"paid\": true}").await.unwrap();
    browser.fill(&field("reason"), "the bank <b>has</b> it").await.unwrap();
    browser.click(&format!("{settle} button")).await.unwrap();
    browser.says("dl .state", "completed").await.unwrap();
    browser.says(".timeline", "the bank <b>has</b> it").await.unwrap();
    assert_eq!(browser.count(".timeline b").await.unwrap(), 0);
    let replayed = frame(&office, "/v1/claims", &claim(1, 5), b"").await;
    assert_eq!((&replayed["outcome"], &replayed["status"]), (&json!("completed"), &json!(201)));

    // A stored answer is hidden until somebody says why; that is written down.
    browser.open(&at(&format!("/console/entries/{}", key(2)))).await.unwrap();
    assert!(!browser.source().await.unwrap().contains("balance"));
    browser.fill("form[action$=answer] [name=reason]", "case 4711").await.unwrap();
    browser.click("form[action$=answer] button").await.unwrap();
    browser.says("pre", "<h1 id=forged>alice's balance</h1>").await.unwrap();
    assert_eq!(browser.count("#forged").await.unwrap(), 0, "the answer is text");
    browser.says(".timeline", "case 4711").await.unwrap();
    browser.picture(&picture("4-answer")).await.unwrap();

    // What has changed since the page was made is not touched.
    browser.open(&at(&format!("/console/entries/{}", key(3)))).await.unwrap();
    let unknown = UnknownRequest { v: 1, key: key(3), token: token(1), cause: UnknownCause::Reset };
    frame(&office, "/v1/unknown", &unknown, b"").await;
    browser.fill("form[action$=release] [name=reason]", "too late").await.unwrap();
    browser.click("form[action$=release] button").await.unwrap();
    browser.says(".alert", "version_changed").await.unwrap();
    browser.picture(&picture("5-refused")).await.unwrap();
    browser.follow("Look at the key again").await.unwrap();
    browser.arrives(&at(&format!("/console/entries/{}", key(3)))).await.unwrap();
    browser.fill("form[action$=release] [name=reason]", "looked again").await.unwrap();
    browser.click("form[action$=release] button").await.unwrap();
    browser.says("dl .state", "released").await.unwrap();

    // An operation that waits for a person; recovery is to look again first, and gives up again.
    let again = "form:has(input[value=look_again])";
    browser.open(&at(&format!("/console/operations/{operation}"))).await.unwrap();
    browser.fill(&format!("{again} [name=reason]"), "the provider was away").await.unwrap();
    browser.click(&format!("{again} button")).await.unwrap();
    browser.says("dl .state", "unknown").await.unwrap();
    browser.says(".timeline", "the provider was away").await.unwrap();
    assert_eq!(browser.count(again).await.unwrap(), 0, "it waits for nobody now");
    assert_eq!(office.record(&operation, "unknown", "needs_reconciliation").await.status, 200);
    browser.open(&at("/console/operations?status=needs_reconciliation")).await.unwrap();
    assert_eq!(browser.count("tbody tr").await.unwrap(), 1);
    browser.picture(&picture("6-operations")).await.unwrap();
    browser.follow(operation.as_str()).await.unwrap();
    browser.picture(&picture("7-operation")).await.unwrap();
    let settle = "form:has(input[value=succeeded])";
    browser.fill(&format!("{settle} [name=reference]"), "cr_77").await.unwrap();
    browser.fill(&format!("{settle} [name=reason]"), "seen at the provider").await.unwrap();
    browser.click(&format!("{settle} button")).await.unwrap();
    browser.says("dl .state", "succeeded").await.unwrap();
    browser.says(".timeline", "seen at the provider").await.unwrap();
    let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
    assert_eq!((&shown["status"], &shown["reference"]), (&json!("succeeded"), &json!("cr_77")));

    browser.follow("Audit").await.unwrap();
    browser.says("tbody tr:first-child", "seen at the provider").await.unwrap();
    assert_eq!(browser.count("main tbody i, main tbody b").await.unwrap(), 0, "a reason is text");
    let lines = browser.count("tbody tr").await.unwrap();
    browser.picture(&picture("9-audit")).await.unwrap();
    browser.fill("[name=subject]", key(3).as_str()).await.unwrap();
    browser.click(".filters button").await.unwrap();
    browser.says("tbody", "looked again").await.unwrap();
    let found = browser.count("tbody tr").await.unwrap();
    assert!(found == 1 && lines > found, "{found} of {lines}");

    browser.follow("Recent").await.unwrap();
    assert!(browser.source().await.unwrap().contains("mismatch"));
    browser.picture(&picture("9-recent")).await.unwrap();
    browser.open(&at("/console/entries")).await.unwrap();
    browser.picture(&picture("10-keys")).await.unwrap();
    browser.open(&at(&format!("/console/operations/{operation}"))).await.unwrap();
    browser.picture(&picture("11-settled-operation")).await.unwrap();
    browser.resize(600, 1400).await.unwrap();
    for (name, path) in [
        ("overview", "/console".to_owned()),
        ("keys", "/console/entries".to_owned()),
        ("key", format!("/console/entries/{}", key(1))),
        ("operations", "/console/operations?status=any".to_owned()),
        ("operation", format!("/console/operations/{open}")),
        ("recent", "/console/recent".to_owned()),
    ] {
        browser.open(&at(&path)).await.unwrap();
        browser.picture(&picture(&format!("600-{name}"))).await.unwrap();
        if browser.count("table").await.unwrap() > 0 {
            let (table, room) =
                (browser.width("table").await.unwrap(), browser.width(".scroll").await.unwrap());
            assert!(table <= room, "{name}: of {table} pixels {room} are seen");
        }
    }
    browser.resize(420, 900).await.unwrap();
    browser.open(&at("/console")).await.unwrap();
    browser.picture(&picture("8-narrow")).await.unwrap();
    browser.click("form[action$=logout] button").await.unwrap();
    browser.arrives(&at("/console/login")).await.unwrap();
    browser.open(&at("/console/operations?status=any")).await.unwrap();
    browser.arrives(&at("/console/login?to=%2Fconsole%2Foperations%3Fstatus%3Dany")).await.unwrap();
    browser.fill("input[name=token]", "operator").await.unwrap();
    browser.click("button").await.unwrap();
    browser.arrives(&at("/console/operations?status=any")).await.unwrap();
}

pub async fn send(office: &Office, call: Call) -> Answer {
    call.send(office.served.service.addr()).await.unwrap()
}

pub fn form(path: &str, body: &str) -> Call {
    Call::post(path).header("content-type", "application/x-www-form-urlencoded").body(body.to_owned())
}

/// A session's cookie and what its forms carry.
pub async fn log_in(office: &Office) -> (String, String) {
    let host = office.served.service.addr().to_string();
    let begun = send(
        office,
        form("/console/login", "token=operator")
            .header("origin", format!("http://{host}"))
            .header("host", &host),
    )
    .await;
    assert_eq!(begun.status, 303, "{}", begun.text());
    let cookie = begun.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = send(office, Call::get("/console").header("cookie", &cookie)).await;
    assert_eq!(page.status, 200);
    let text = page.text();
    let csrf = text.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    (cookie, csrf)
}

/// A page of another site can't make an operator's browser decide anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_need_a_form_of_the_session_itself() {
    let office = Office::sqlite().await;
    let operation = office.admitted().await;
    assert_eq!(office.record(&operation, "admitted", "needs_reconciliation").await.status, 200);
    let (cookie, csrf) = log_in(&office).await;
    let (_, other) = log_in(&office).await;
    let version = office.json("operator", &["operations", "show", operation.as_str()]).await;
    let version = version["version"].as_str().unwrap().to_owned();
    let path = format!("/console/operations/{operation}/settle");
    let fields = format!("version={version}&outcome=succeeded&reason=r");
    let order = |csrf: &str| form(&path, &format!("{fields}&csrf={csrf}"));
    for (call, status) in [
        (order(&csrf), 303),
        (order("").header("cookie", &cookie), 403),
        (order(&other).header("cookie", &cookie), 403),
        (order(&csrf).header("cookie", &cookie).header("sec-fetch-site", "cross-site"), 403),
        (order(&csrf).header("cookie", &cookie).header("origin", "http://evil.example"), 403),
        (Call::get(&path).header("cookie", &cookie), 405),
        (Call::post(&path).header("cookie", &cookie).json(&json!({"csrf": csrf})), 415),
    ] {
        assert_eq!(send(&office, call).await.status, status);
    }
    let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
    assert_eq!(shown["status"], "needs_reconciliation", "none of them did anything");
    assert_eq!(send(&office, order(&csrf).header("cookie", &cookie)).await.status, 303);
    let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
    assert_eq!(shown["status"], "succeeded");
}

/// Only operators log in, and pages say what browsers have to forbid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_is_for_operators_and_loads_nothing_from_elsewhere() {
    let office = Office::sqlite().await;
    for token in ["filter", "admit", "revoke", "nobody", ""] {
        let refused = send(&office, form("/console/login", &format!("token={token}"))).await;
        assert!(matches!(refused.status, 401 | 403), "{token}");
        assert!(refused.header("set-cookie").is_none());
    }
    let (cookie, _) = log_in(&office).await;
    for path in ["/console", "/console/login", "/console/style.css", "/console/entries?scope=x"] {
        let page = send(&office, Call::get(path).header("cookie", &cookie)).await;
        if page.status == 303 {
            continue;
        }
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert_eq!(page.header("cache-control"), Some("no-store"));
        let text = page.text();
        assert!(
            !text.contains("<script") && !text.contains("http://") && !text.contains("https://"),
            "{path}"
        );
    }
    let forged = cookie.replacen('.', "0.", 1);
    let page = send(&office, Call::get("/console").header("cookie", forged)).await;
    assert_eq!((page.status, page.header("location")), (303, Some("/console/login")));
}

/// Without tokens everybody on this machine is an operator, but no page that a name leads here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_the_console_answers_to_this_machine_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("s.sqlite").display());
    let served = serve(&store, None, false).await;
    let to = served.service.addr();
    let foreign = Call::get("/console/login").header("host", "evil.example:7070").send(to).await.unwrap();
    assert_eq!(foreign.status, 403);
    let login = Call::get("/console/login").header("host", to.to_string()).send(to).await.unwrap();
    assert!(login.status == 200 && login.text().contains("asks for no tokens"));
    let begun = form("/console/login", "").header("host", to.to_string()).send(to).await.unwrap();
    assert_eq!(begun.status, 303);
    let cookie = begun.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = Call::get("/console").header("cookie", cookie).header("host", to.to_string());
    assert_eq!(page.send(to).await.unwrap().status, 200);
}

/// A page whose name was made to lead here gives no orders by the interface either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_no_order_comes_from_a_page_of_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("s.sqlite").display());
    let served = serve(&store, None, false).await;
    let to = served.service.addr();
    let entry = format!("/v1/entries/{}", key(1));
    for path in ["/v1/entries", &entry, "/v1/operator/holds", "/v1/operator/operations", "/v1/recovery/keys"]
    {
        let foreign = Call::get(path).header("host", "evil.example:7070").send(to).await.unwrap();
        assert_eq!((foreign.status, &foreign.json()["code"]), (403, &json!("host")), "{path}");
        let cross = Call::get(path).header("host", to.to_string()).header("sec-fetch-site", "cross-site");
        assert_eq!(cross.send(to).await.unwrap().json()["code"], "csrf", "{path}");
    }
    let order = || Call::post("/v1/operator/holds").json(&json!({"reason": "r", "keys_for_ms": 1000}));
    let foreign = order().header("host", "evil.example").send(to).await.unwrap();
    assert_eq!(foreign.status, 403);
    let list = Call::get("/v1/operator/holds").header("host", to.to_string()).send(to).await.unwrap();
    assert_eq!((list.status, &list.json()["holds"]), (200, &json!([])), "nothing was done");
    assert_eq!(order().header("host", to.to_string()).send(to).await.unwrap().status, 200);
    // Calls of proxies have whatever name the proxy gives them.
    let asked = Call::post("/v1/claims").header("host", "store").header("content-type", FRAME_MEDIA_TYPE);
    let claim = asked.body(encode(&claim(1, 1), &[]).unwrap()).send(to).await.unwrap();
    assert_eq!(claim.status, 200, "{}", claim.text());
}

/// Whoever tries tokens keeps nobody out who has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_tokens_keep_nobody_out_who_has_the_right_one() {
    let office = Office::sqlite().await;
    let mut told = Vec::new();
    for _ in 0..35 {
        told.push(send(&office, form("/console/login", "token=nobody")).await.status);
    }
    assert_eq!((told.first(), told.last()), (Some(&401), Some(&429)));
    log_in(&office).await;
}

/// A session that was logged out is over, for whoever has a copy of its cookie too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logged_out_session_opens_nothing_any_more() {
    let office = Office::sqlite().await;
    let (cookie, csrf) = log_in(&office).await;
    let (other, _) = log_in(&office).await;
    let out = form("/console/logout", &format!("csrf={csrf}")).header("cookie", &cookie);
    let out = send(&office, out).await;
    assert_eq!((out.status, out.header("cache-control")), (303, Some("no-store")));
    assert_eq!(send(&office, Call::get("/console").header("cookie", &cookie)).await.status, 303);
    assert_eq!(send(&office, Call::get("/console").header("cookie", &other)).await.status, 200);
}

/// What was typed for an order that is refused is on the page that says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_order_gives_back_what_was_typed() {
    let office = Office::sqlite().await;
    frame(&office, "/v1/claims", &claim(1, 1), b"").await;
    let (cookie, csrf) = log_in(&office).await;
    let fields = "with=answer&status=200&version=1.1&body=%3Cpaid%3E&reason=seen+at+the+bank";
    let order = form(&format!("/console/entries/{}/settle", key(1)), &format!("{fields}&csrf={csrf}"));
    let refused = send(&office, order.header("cookie", &cookie)).await;
    let text = refused.text();
    assert!(
        refused.status == 409
            && text.contains("seen at the bank")
            && text.contains("&lt;paid&gt;")
            && text.contains(&format!("href=\"/console/entries/{}\"", key(1))),
        "{text}"
    );
    // 1000 characters are 1000, whatever they take in bytes.
    let version = office.json("operator", &["entries", "show", key(1).as_str()]).await["version"].clone();
    let long = "%C3%BC".repeat(1000);
    let fields = format!("version={}&force=yes&reason={long}&csrf={csrf}", version.as_str().unwrap());
    let order = form(&format!("/console/entries/{}/release", key(1)), &fields).header("cookie", &cookie);
    assert_eq!(send(&office, order).await.status, 303);
}

/// What recovery could not settle is on the first page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_recovery_gave_up_are_on_the_first_page() {
    let office = Office::postgres().await;
    let unknown = UnknownRequest { v: 1, key: key(1), token: token(1), cause: UnknownCause::Timeout };
    frame(&office, "/v1/claims", &claim(1, 1), b"").await;
    frame(&office, "/v1/unknown", &unknown, b"").await;
    let client = crate::support::connect(office.url.as_ref().unwrap()).await;
    client
        .batch_execute(
            "INSERT INTO fencepost.held_keys (key, version_fence, version_updated_at, turn, attempts, next_at, result,
                                              for_person, marked_at, taken_by)
             SELECT key, fence, updated_at, 1, 8, now(), 'absent', 'the provider <b>knows</b> nothing', now(), 'i1'
             FROM fencepost.entries",
        )
        .await
        .unwrap();
    let (cookie, _) = log_in(&office).await;
    let page = send(&office, Call::get("/console").header("cookie", &cookie)).await.text();
    assert!(page.contains("Keys that recovery has given to a person"), "{page}");
    assert!(page.contains("the provider &lt;b&gt;knows&lt;/b&gt; nothing"), "{page}");
    let listed = office.run("operator", &["entries", "for-person"]).await;
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains(key(1).as_str()) && text.contains("knows</b> nothing"), "{text}");
    let listed = office.json("operator", &["entries", "for-person"]).await;
    assert_eq!((&listed["keys"][0]["attempts"], &listed["next"]), (&json!(8), &json!(null)));
}

/// From the command line and from the page of the key: once, for the version that was seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_has_recovery_look_again_for_a_key() {
    let office = Office::postgres().await;
    let unknown = UnknownRequest { v: 1, key: key(1), token: token(1), cause: UnknownCause::Timeout };
    frame(&office, "/v1/claims", &claim(1, 1), b"").await;
    frame(&office, "/v1/unknown", &unknown, b"").await;
    let client = crate::support::connect(office.url.as_ref().unwrap()).await;
    let mark =
        "INSERT INTO fencepost.held_keys (key, version_fence, version_updated_at, turn, attempts, next_at,
                                                 result, for_person, marked_at, taken_by)
                SELECT key, fence, updated_at, 1, 8, now() + interval '1 day', 'absent', 'why', now(), 'i1'
                FROM fencepost.entries
                ON CONFLICT (key) DO UPDATE SET for_person = 'why', marked_at = now()";
    let waiting = "SELECT count(*) FROM fencepost.held_keys
                   WHERE for_person IS NULL AND attempts = 0 AND next_at <= now()";
    let name = key(1).to_string();
    let shown = office.json("operator", &["entries", "show", &name]).await;
    let version = shown["version"].as_str().unwrap().to_owned();
    let by = [&name[..], "--reason", "it is back", "--yes", "--version"];
    let again = async |version: &str| {
        said(&office.run("operator", &[&["entries", "look-again"], &by[..], &[version]].concat()).await)
    };
    let (code, text) = again(&version).await;
    assert!(code == 1 && text.contains("already_so"), "{text}");
    client.batch_execute(mark).await.unwrap();
    let (code, text) = again("1.1").await;
    assert!(code == 1 && text.contains("version_changed"), "{text}");
    let (code, text) = again(&version).await;
    assert!(code == 0 && text.contains("Sent back to recovery"), "{text}");
    assert_eq!(crate::support::count(&client, waiting).await, 1);

    client.batch_execute(mark).await.unwrap();
    let (cookie, csrf) = log_in(&office).await;
    let page = format!("/console/entries/{name}");
    let text = send(&office, Call::get(&page).header("cookie", &cookie)).await.text();
    assert!(text.contains("/look-again"), "{text}");
    let order = |csrf: &str| {
        form(&format!("{page}/look-again"), &format!("version={version}&reason=back+again&csrf={csrf}"))
            .header("cookie", &cookie)
    };
    assert_eq!(send(&office, order("x")).await.status, 403);
    assert_eq!(crate::support::count(&client, waiting).await, 0);
    assert_eq!(send(&office, order(&csrf)).await.status, 303);
    assert_eq!(crate::support::count(&client, waiting).await, 1);
    let text = send(&office, Call::get(&page).header("cookie", &cookie)).await.text();
    assert!(text.contains("back again") && text.contains("look again"), "{text}");
    assert_eq!(send(&office, order(&csrf)).await.status, 409, "once");
    let refused =
        office.call("filter", Call::post(&format!("/v1/entries/{name}/look-again")).json(&json!({}))).await;
    assert_eq!(refused.status, 403);
}

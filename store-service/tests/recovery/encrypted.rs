//! Providers behind TLS.

use crate::bed::{Bed, Over};
use fencepost_protocol::grants::OperationStatus::{Admitted, Succeeded};
use fencepost_rig::authority::{Authority, dns, uri};
use fencepost_rig::tls_front::TlsFront;
use fencepost_store::recovery::operation::Ended;
use fencepost_store::store::StoreKind;
use serde_json::{Value, json};

/// Nothing is asked of a server that is not the named one of a known authority, and nothing without
/// the certificate that the provider wants to see; what it does not hear is silence, and settles
/// nothing.
pub async fn a_provider_behind_tls_is_asked_only_where_both_know_each_other(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let authority = Authority::new();
    let issued = authority.issue(vec![dns("localhost")]);
    let front = TlsFront::start(&issued, Some(&authority), bed.provider.addr).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca", &authority.pem());
    write("other", &Authority::new().pem());
    let own = authority.issue(vec![uri("spiffe://test/store")]);
    write("cert", &own.cert_pem);
    write("key", &own.key_pem);
    let settings = |host: &str, tls: &Value| {
        let plain = format!("http://{}/", bed.provider.addr);
        let encrypted = format!("https://{host}:{}/", front.addr().port());
        let text = bed.settings(true, json!({})).to_string().replace(&plain, &encrypted);
        let mut settings: Value = serde_json::from_str(&text).unwrap();
        settings["providers"]["billing"]["tls"] = tls.clone();
        settings
    };
    let path = |name: &str| folder.path().join(name);
    let whole = json!({"ca_file": path("ca"), "cert_file": path("cert"), "key_file": path("key")});
    let mut other = whole.clone();
    other["ca_file"] = json!(path("other"));
    let id = bed.stalled().await;
    bed.provider.create_now(id.as_str()).unwrap();
    for (host, tls) in
        [("localhost", &other), ("127.0.0.1", &whole), ("localhost", &json!({"ca_file": path("ca")}))]
    {
        let round = bed.recoverer("one", &settings(host, tls)).run_once().await.unwrap();
        assert_eq!(round.operations[&Ended::Postponed], 1, "{host} {tls}");
        assert_eq!((front.served(), bed.provider.lookups().len()), (0, 0), "{host} {tls}");
        assert_eq!(bed.status(&id).await, Admitted);
        bed.pass(Over::Lease).await;
    }
    let round = bed.recoverer("one", &settings("localhost", &whole)).run_once().await.unwrap();
    assert_eq!(round.operations[&Ended::Succeeded], 1);
    assert_eq!((bed.status(&id).await, bed.provider.forged()), (Succeeded, 0));
    assert!(front.served() > 0);
}

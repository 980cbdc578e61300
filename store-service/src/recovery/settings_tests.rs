use super::*;

const GOOD: &str = r#"
every: 5s
give_up: {attempts: 8, age: 24h}
providers:
  billing:
    sign: {key_id: k1, key_file: recovery.key}
    operations:
      issuers: [https://approvals.example]
      lookup: {url: "http://127.0.0.1:9100/credits/{operation_id}?account={detail.account}", timeout: 5s}
      submit: {url: "http://127.0.0.1:9100/credits"}
      contract: {lookup: true, atomic_concurrent_keys: true, same_parameters: true, key_retention: 24h}
    keys:
      prefixes: [prod]
      lookup: {url: "http://localhost:9100/keys/{key}?fence={fence}"}
    concurrency: 2
"#;

fn parse(text: &str) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("recovery.key"), "0b".repeat(32)).unwrap();
    std::fs::write(folder.path().join("short.key"), "0b").unwrap();
    Settings::parse(text, folder.path(), &ExecutionTimings::default())
}

#[test]
fn a_good_file_is_read() {
    let settings = parse(GOOD).unwrap();
    assert_eq!((settings.batch, settings.every), (64, Duration::from_secs(5)));
    let provider = settings.of_issuer("https://approvals.example").unwrap();
    assert_eq!((provider.name.as_str(), provider.concurrency), ("billing", 2));
    let at = provider.operations.as_ref().unwrap();
    assert_eq!(at.contract.key_kept_ms, 23 * 3_600_000);
    assert!(at.contract.allows_resubmission(0));
    assert_eq!(at.submit.as_ref().unwrap().method, Method::POST);
    assert!(settings.of_issuer("https://other.example").is_none());
}

#[test]
fn what_can_not_be_right_is_refused_with_its_path_and_both_values() {
    let mut wrong = Vec::new();
    for (from, to, says) in [
        ("every: 5s", "every: 61s", "every: found 61s, and timings.recovery_delay = 1m"),
        ("every: 5s", "every: 0s", "every: found 0"),
        ("every: 5s", "evry: 5s", "evry"),
        ("every: 5s", "batch: 0", "batch: found 0"),
        ("attempts: 8", "attempts: 0", "give_up.attempts"),
        ("age: 24h", "age: 149s", "recovery_step: found 150s, and give_up.age = 149s"),
        ("every: 5s", "backoff: {first: 20s, max: 10s}", "backoff.first: found 20s, and backoff.max = 10s"),
        ("every: 5s", "backoff: {max: 25h}", "give_up.age = 1d"),
        ("timeout: 5s", "timeout: 21s", "found 31s, and timings.recovery_step = 30s"),
        ("timeout: 5s", "timeout: 0s", "providers.billing.operations.lookup.timeout"),
        ("timeout: 5s", "timeout: 5", "providers.billing.operations.lookup.timeout"),
        ("key_retention: 24h", "key_retention: 22h", "timings.submission_window: found 22h"),
        (", key_retention: 24h", "", "contract.key_retention: missing"),
        ("atomic_concurrent_keys: true", "atomic_concurrent_keys: false", "submit: found with a contract"),
        ("same_parameters: true", "same_parameters: false", "submit: found with a contract"),
        ("{lookup: true", "{lookup: false", "contract.lookup: found false"),
        ("/credits\"}", "/credits\", key_prefix: prod}", "submit.downstream_keys: missing"),
        ("/credits\"}", "/credits\", downstream_keys: [{provider: p}]}", "submit.key_prefix: missing"),
        ("timeout: 5s", "key_prefix: prod", "key_prefix"),
        ("{lookup: true, ", "{", "providers.billing.operations.contract"),
        ("127.0.0.1:9100/credits/", "billing.example/credits/", "allow_plaintext_network"),
        ("127.0.0.1:9100/credits/", "127.0.0.1.example/credits/", "allow_plaintext_network"),
        ("concurrency: 2", "tls: {}", "providers.billing.tls: found it, and no url with https"),
        ("credits/{operation_id}", "credits/{operation}", "providers.billing.operations.lookup.url"),
        ("credits/{operation_id}", "credits/x", "names no {operation_id}"),
        ("?fence={fence}", "", "{key} and {fence}"),
        ("[prod]", "[]", "keys.prefixes: found none"),
        ("[prod]", "[prod, prod]", "keys.prefixes: found \"prod\" twice"),
        ("[prod]", "[Prod]", "keys.prefixes"),
        ("[https://approvals.example]", "[]", "operations.issuers"),
        ("[https://approvals.example]", "[\"\"]", "operations.issuers: found an empty one"),
        ("127.0.0.1:9100/credits/", "127.0.0.1:91000/credits/", "65535"),
        ("recovery.key", "nowhere.key", "sign.key_file"),
        ("recovery.key", "short.key", "64 or more hex digits"),
        ("concurrency: 2", "concurrency: 65", "concurrency: found 65"),
        ("concurrency: 2", "breaker: {failures: 0}", "breaker"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let error = parse(&text).err().unwrap_or_default();
        if !error.contains(says) {
            wrong.push(format!("{from} -> {to}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parse("providers: {}").err().unwrap().contains("providers: found none"));
    assert!(parse("[").is_err());
}

#[test]
fn an_issuer_that_the_service_does_not_know_is_refused() {
    let settings = parse(GOOD).unwrap();
    assert!(settings.check_issuers(|issuer| issuer == "https://approvals.example").is_ok());
    let error = settings.check_issuers(|issuer| issuer == "https://other.example").unwrap_err();
    assert!(error.contains("providers.billing.operations.issuers"), "{error}");
    assert!(error.contains("https://approvals.example") && error.contains("--issuers"), "{error}");
}

#[test]
fn a_provider_elsewhere_is_asked_over_https_with_the_files_that_are_named() {
    let encrypted = GOOD.replace("http://127.0.0.1:9100", "https://billing.example");
    let folder = tempfile::tempdir().unwrap();
    let authority = fencepost_rig::authority::Authority::new();
    let own = authority.issue(vec![]);
    for (name, text) in [("ca", &authority.pem()), ("cert", &own.cert_pem), ("key", &own.key_pem)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::write(folder.path().join("recovery.key"), "0b".repeat(32)).unwrap();
    let parse = |tls: &str| {
        let text = encrypted.replace("    concurrency: 2", &format!("    tls: {tls}"));
        Settings::parse(&text, folder.path(), &ExecutionTimings::default())
    };
    let settings = parse("{ca_file: ca, cert_file: cert, key_file: key}").unwrap();
    let provider = settings.of_issuer("https://approvals.example").unwrap();
    let at = provider.operations.as_ref().unwrap().lookup.as_ref().unwrap();
    assert_eq!(format!("{:?}", at.dial), "https://billing.example:443");
    for (tls, says) in [
        ("{ca_file: nowhere}", "tls.ca_file"),
        ("{ca_file: key}", "tls.ca_file"),
        ("{ca_file: ca, cert_file: cert}", "both or none"),
        ("{ca_file: ca, cert_file: key, key_file: key}", "tls.cert_file"),
        ("{ca_file: ca, ca: ca}", "unknown field"),
    ] {
        let error = parse(tls).err().unwrap();
        assert!(error.contains("providers.billing") && error.contains(says), "{tls}: {error}");
    }
}

#[test]
fn a_provider_elsewhere_is_allowed_only_in_so_many_words() {
    let elsewhere = GOOD.replace("127.0.0.1:9100", "billing.internal:80");
    assert!(parse(&elsewhere).is_err());
    let said = elsewhere.replace("    concurrency: 2", "    allow_plaintext_network: true");
    assert!(parse(&said).is_ok());
}

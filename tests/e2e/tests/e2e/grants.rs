//! A route that admits one-time grants: two proxies, two instances of the service, one PostgreSQL.

use fencepost_rig::client::{Answer, Call};
use fencepost_rig::envoy::{Envoy, Setup, loopback};
use fencepost_rig::grants::{self, CREDITS, credit};
use fencepost_rig::postgres::Postgres;
use fencepost_rig::scratch::Scratch;
use fencepost_rig::service::{Options, Service};
use fencepost_rig::token;
use fencepost_rig::upstream::{Behaviour, Gate, Upstream};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const FIRST: &str = "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f";
const SECOND: &str = "0190a7f0-0000-4000-8000-000000000002";
const THIRD: &str = "0190a7f0-0000-4000-8000-000000000003";

/// One database and one upstream, with any number of proxies and instances before them.
struct World {
    upstream: Upstream,
    url: String,
    issuers: (Scratch, String),
}

/// A proxy with an instance of its own.
struct Side {
    envoy: Envoy,
    service: Service,
}

impl World {
    async fn new() -> Self {
        let url = Postgres::shared().await.create_database().await;
        let upstream = Upstream::start().await.unwrap();
        Self { upstream, url, issuers: grants::issuers(&Value::Null).unwrap() }
    }

    fn setup(&self, policy: &Value, service: &Service) -> Setup {
        let setup = Setup::new(self.upstream.addr()).guarded(grants::configuration(policy), service.addr());
        setup.route(grants::route()).change(loopback::add)
    }

    async fn service(&self) -> Service {
        Service::start(Options::on(&self.url).arguments(&["--issuers", &self.issuers.1])).await.unwrap()
    }

    async fn side(&self, change: impl FnOnce(Setup) -> Setup) -> Side {
        let service = self.service().await;
        let envoy = Envoy::start(&change(self.setup(&grants::policy(), &service))).await.unwrap();
        Side { envoy, service }
    }
}

impl Side {
    async fn send(&self, call: &Call) -> Answer {
        call.send(self.envoy.proxy()).await.unwrap()
    }

    /// A call on its way.
    fn start(&self, call: Call) -> tokio::task::JoinHandle<Answer> {
        let proxy = self.envoy.proxy();
        tokio::spawn(async move { call.send(proxy).await.unwrap() })
    }

    async fn counted(&self, outcome: &str) -> u64 {
        self.envoy.stat(&format!("wasmcustom.fencepost.{outcome}")).await.unwrap()
    }
}

/// Alice credits an amount, written as it is.
fn call(token: &str, operation: &str, amount: &str) -> Call {
    call_of("alice", token, operation, amount)
}

fn call_of(user: &str, token: &str, operation: &str, amount: &str) -> Call {
    Call::post(CREDITS)
        .user(user)
        .header("x-grant", token)
        .header("x-operation-id", operation)
        .header("content-type", "application/json")
        .body(format!(r#"{{"amount":{amount},"currency":"USD"}}"#))
}

fn told(answer: &Answer) -> (u16, String) {
    let status = answer.json()["status"].as_str().unwrap_or_default().to_owned();
    let code = answer.problem_code();
    (answer.status, if code.is_empty() { status } else { code })
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn a_grant_is_admitted_once_behind_two_proxies_and_its_retry_gets_the_first_answer() {
    let world = World::new().await;
    let (here, there) = (world.side(|setup| setup).await, world.side(|setup| setup).await);
    let token = credit("g-1", "250.00", 600);
    let first = here.send(&call(&token, FIRST, "250.00").header("x-fencepost-operation-id", "mine")).await;
    assert_eq!((first.status, first.json(), first.is_replay()), (201, json!({"n": 1}), false));
    let seen = world.upstream.seen();
    let header = |name: &str| seen[0].header(name).map(str::to_owned);
    assert_eq!(header("x-fencepost-operation-id").as_deref(), Some(FIRST));
    assert_eq!((header("x-fencepost-fence").as_deref(), header("x-grant")), (Some("1"), None));
    assert_eq!(header("x-stripe-idempotency-key").map(|key| key.len()), Some(64));
    assert_eq!(seen[0].body, br#"{"amount":250.00,"currency":"USD"}"#);
    for side in [&there, &here] {
        let other = side.send(&call(&token, SECOND, "250.00")).await;
        assert_eq!(told(&other), refusal(403, "grant_not_available"));
        assert_eq!(other.header("content-type"), Some("application/problem+json"));
        let retry = side.send(&call(&token, FIRST, "250.00")).await;
        assert_eq!((retry.status, retry.json(), retry.is_replay()), (201, json!({"n": 1}), true));
        // Changed in anything, it is another request, and gets nobody's answer.
        let changed = side.send(&call(&token, FIRST, "250")).await;
        assert_eq!(told(&changed), refusal(403, "grant_not_available"));
        let keyed = side.send(&call(&token, FIRST, "250.00").key("k")).await;
        assert_eq!(told(&keyed), refusal(403, "grant_not_available"));
        let bob = side.send(&call_of("bob", &token, FIRST, "250.00")).await;
        assert_eq!(told(&bob), refusal(403, "grant_not_covered"));
    }
    assert_eq!(world.upstream.executions(), 1);
    assert_eq!((here.counted("grant_succeeded").await, there.counted("replayed").await), (1, 1));
    let log = here.envoy.wait_access_log(6).await.unwrap();
    assert_eq!((&log[0]["result"], &log[1]["result"]), (&json!("grant_succeeded"), &json!("grant_refused")));
}

#[tokio::test]
async fn of_many_requests_of_one_operation_one_runs_and_the_others_are_told_where_to_ask() {
    let world = World::new().await;
    let (here, there) = (world.side(|setup| setup).await, world.side(|setup| setup).await);
    let token = credit("g-1", "250.00", 600);
    let gate = Gate::new();
    world.upstream.script(CREDITS, Behaviour::gated(&gate));
    let calls = [&here, &there].into_iter().cycle().take(8);
    let mut calls: Vec<_> = calls.map(|side| side.start(call(&token, FIRST, "250.00"))).collect();
    gate.wait_arrived(1).await.unwrap();
    let mut pending = Vec::new();
    // Every call has a bound of its own, so this has one.
    while calls.iter().filter(|call| !call.is_finished()).count() > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (told_at_once, mut calls): (Vec<_>, Vec<_>) = calls.drain(..).partition(|call| call.is_finished());
    for call in told_at_once {
        pending.push(call.await.unwrap());
    }
    for answer in &pending {
        assert_eq!(told(answer), refusal(202, "admitted"));
        assert_eq!(answer.json()["operation_id"], FIRST);
        let address = format!("https://api.example/operations/{FIRST}");
        assert_eq!(
            (answer.header("location"), answer.header("retry-after")),
            (Some(address.as_str()), Some("1"))
        );
    }
    gate.open();
    let first = calls.remove(0).await.unwrap();
    assert_eq!((first.status, first.is_replay(), pending.len()), (201, false, 7));
    assert!(there.send(&call(&token, FIRST, "250.00")).await.is_replay());
    assert_eq!(world.upstream.executions(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_finds_the_answer_of_its_grant_later() {
    let world = World::new().await;
    let here = world.side(|setup| setup).await;
    let token = credit("g-1", "250.00", 600);
    let gate = Gate::new();
    world.upstream.script_next(CREDITS, Behaviour::gated(&gate));
    let client = here.start(call(&token, FIRST, "250.00"));
    gate.wait_arrived(1).await.unwrap();
    client.abort();
    here.envoy.wait_stat("http.ingress.downstream_rq_active", |n| n == 0).await.unwrap();
    gate.open();
    here.envoy.wait_stat("wasmcustom.fencepost.grant_succeeded", |n| n == 1).await.unwrap();
    let retry = here.send(&call(&token, FIRST, "250.00")).await;
    assert_eq!((retry.status, retry.is_replay(), world.upstream.executions()), (201, true, 1));
}

#[tokio::test]
async fn an_outcome_is_recorded_as_the_policy_reads_it_and_what_is_unclear_is_unknown() {
    let world = World::new().await;
    let mut policy = grants::policy();
    policy["max_run"] = json!("1s");
    let service = world.service().await;
    let envoy = Envoy::start(&world.setup(&policy, &service)).await.unwrap();
    let here = Side { envoy, service };
    for (n, status, retried) in [(4, 422, refusal(422, "")), (5, 500, refusal(202, "unknown"))] {
        let (token, operation) =
            (credit(&format!("g-{n}"), "1", 600), FIRST.replace("7398f", &format!("7398{n}")));
        world.upstream.script_next(CREDITS, Behaviour::status(status));
        let first = here.send(&call(&token, &operation, "1")).await;
        assert_eq!(first.status, status);
        let retry = here.send(&call(&token, &operation, "1")).await;
        assert_eq!(told(&retry), retried);
        assert_eq!(retry.is_replay(), status == 422);
    }
    // The upstream's time is over: it may have run.
    let (token, gate) = (credit("g-1", "1", 600), Gate::new());
    world.upstream.script_next(CREDITS, Behaviour::gated(&gate));
    let lost = here.send(&call(&token, FIRST, "1")).await;
    assert_eq!(told(&lost), refusal(504, "upstream_lost"));
    assert_eq!(told(&here.send(&call(&token, FIRST, "1")).await), refusal(202, "unknown"));
    gate.open();
    assert_eq!(world.upstream.executions(), 3);
    // Nobody is there: it has certainly not run, and the grant stays spent.
    world.upstream.close().await;
    let token = credit("g-2", "1", 600);
    assert_eq!(told(&here.send(&call(&token, SECOND, "1")).await), refusal(503, "grant_not_submitted"));
    assert_eq!(told(&here.send(&call(&token, SECOND, "1")).await), refusal(409, "operation_failed"));
    assert_eq!(told(&here.send(&call(&token, THIRD, "1")).await), refusal(403, "grant_not_available"));
}

#[tokio::test]
async fn a_service_that_is_lost_after_the_admission_runs_nothing() {
    let world = World::new().await;
    // Calls on operations get lost behind a listener that admissions pass.
    let cut = world.side(|setup| setup.change(without_operations)).await;
    let token = credit("g-1", "250.00", 600);
    // That nothing ran can't be recorded either, so recovery may yet run it: it is not said.
    let refused = cut.send(&call(&token, FIRST, "250.00")).await;
    assert_eq!(told(&refused), refusal(503, "store_unavailable"));
    let retry = cut.send(&call(&token, FIRST, "250.00")).await;
    assert_eq!(told(&retry), refusal(202, "admitted"));
    // And with the whole service gone nothing is admitted either.
    cut.service.kill().await.unwrap();
    let down = cut.send(&call(&credit("g-2", "1", 600), SECOND, "1")).await;
    assert_eq!((told(&down), down.header("retry-after")), (refusal(503, "store_unavailable"), Some("2")));
    assert_eq!(world.upstream.executions(), 0);
}

/// Leads the filter's calls through a listener of the same Envoy that answers those on operations with
/// 503, as a proxy does whose peer is gone.
fn without_operations(bootstrap: &mut Value) {
    const NAME: &str = "store_cut";
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").unwrap().as_array_mut().unwrap();
    let store = clusters.iter_mut().find(|cluster| cluster["name"] == "fencepost_store").unwrap();
    let mut real = store.clone();
    real["name"] = json!("store_real");
    store["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] =
        json!({"envoy_internal_address": {"server_listener_name": NAME}});
    clusters.push(real);
    let routes = json!([
        {"match": {"prefix": "/v1/operations/"}, "direct_response": {"status": 503}},
        {"match": {"prefix": "/"}, "route": {"cluster": "store_real"}},
    ]);
    let listeners = bootstrap.pointer_mut("/static_resources/listeners").unwrap().as_array_mut().unwrap();
    listeners.push(json!({
        "name": NAME, "internal_listener": {},
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": NAME, "codec_type": "AUTO",
            "route_config": {"virtual_hosts": [{"name": NAME, "domains": ["*"], "routes": routes}]},
            "http_filters": [{"name": "router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
        }}]}],
    }));
}

#[tokio::test]
async fn amounts_are_compared_to_the_last_digit() {
    let world = World::new().await;
    let here = world.side(|setup| setup).await;
    let by_value = credit("g-1", "250.00", 600);
    assert_eq!(here.send(&call(&by_value, FIRST, "250")).await.status, 201);
    let large = credit("g-2", "9007199254740993.10", 600);
    for other in ["9007199254740993.11", "9007199254740992.10", "9007199254740993", "9.0071992547409932e15"] {
        let refused = here.send(&call(&large, SECOND, other)).await;
        assert_eq!(told(&refused), refusal(403, "grant_not_covered"), "{other}");
    }
    let exact = here.send(&call(&large, SECOND, "9007199254740993.10")).await;
    assert_eq!((exact.status, world.upstream.executions()), (201, 2), "a refusal has spent nothing");
}

#[tokio::test]
async fn an_expired_grant_opens_nothing_and_its_operation_is_still_told_by_the_service() {
    let world = World::new().await;
    let here = world.side(|setup| setup).await;
    let (used, unused) = (credit("g-1", "1", 4), credit("g-2", "1", 4));
    let expired_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(4 + 1 + 1);
    assert_eq!(here.send(&call(&used, FIRST, "1")).await.status, 201);
    while SystemTime::now().duration_since(UNIX_EPOCH).unwrap() < expired_at {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let late = here.send(&call(&unused, SECOND, "1")).await;
    assert_eq!(told(&late), refusal(403, "grant_expired"));
    // Never through the expired grant, which has become nobody's; but whoever is authorised may ask.
    let retry = here.send(&call(&used, FIRST, "1")).await;
    assert_eq!((told(&retry), world.upstream.executions()), (refusal(403, "grant_expired"), 1));
    let status = Call::get(&format!("/v1/operations/{FIRST}"))
        .header("x-fencepost-caller-namespace", token::ISSUER)
        .header("x-fencepost-caller", "alice");
    assert_eq!(told(&status.send(here.service.addr()).await.unwrap()), refusal(200, "succeeded"));
}

#[tokio::test]
async fn safe_methods_spend_nothing_and_what_is_missing_is_said() {
    let world = World::new().await;
    let here = world.side(|setup| setup).await;
    let token = credit("g-1", "250.00", 600);
    world.upstream.script(CREDITS, Behaviour::status(200));
    let read = Call::get(CREDITS).user("alice").header("x-grant", &token).header("x-operation-id", FIRST);
    assert_eq!(here.send(&read).await.status, 200);
    let bare = |path: &str| {
        Call::post(path)
            .user("alice")
            .header("content-type", "application/json")
            .body(r#"{"amount":1,"currency":"USD"}"#)
    };
    let with = |name: &str, value: &str| bare(CREDITS).header(name, value);
    for (call, expected) in [
        (bare(CREDITS), refusal(400, "grant_missing")),
        (with("x-grant", &token), refusal(400, "operation_id_invalid")),
        (with("x-grant", &token).header("x-operation-id", "1"), refusal(400, "operation_id_invalid")),
        (with("x-grant", "no.token.this").header("x-operation-id", FIRST), refusal(403, "grant_not_valid")),
        (
            with("x-grant", &token).header("x-operation-id", FIRST).body("{}"),
            refusal(400, "grant_detail_missing"),
        ),
        (
            bare("/accounts/A-1/credits").header("x-grant", &token).header("x-operation-id", FIRST),
            refusal(403, "grant_not_covered"),
        ),
        (
            bare("/accounts").header("x-grant", &token).header("x-operation-id", FIRST),
            refusal(400, "grant_detail_missing"),
        ),
    ] {
        assert_eq!(told(&here.send(&call).await), expected);
    }
    assert_eq!(world.upstream.executions(), 1, "the read alone");
    assert_eq!(here.send(&call(&token, FIRST, "250.00")).await.status, 200, "and the grant is there yet");
}

#[tokio::test]
async fn a_route_that_could_spend_a_grant_twice_is_no_configuration() {
    let world = World::new().await;
    let service = world.service().await;
    for (field, value, path) in [
        ("mode", json!("observe"), "policies.credit.mode"),
        ("execution", json!("inline"), "policies.credit.execution"),
        ("retries", json!("allow"), "policies.credit.retries"),
    ] {
        let mut policy = grants::policy();
        policy[field] = value;
        let error = Envoy::start(&world.setup(&policy, &service)).await.err().unwrap();
        assert!(format!("{error:?}").contains(path), "{error:?}");
    }
}

//! The service is killed at every boundary of recovery: around each statement, and around each thing
//! that the provider does. Then another one goes on, and the provider's books are compared with the
//! records: at most one effect for each operation, no success without an effect, none open for ever.

use crate::bed::settings;
use crate::gating::{At, Gating};
use crate::processes::{Files, lapse, record};
use crate::provider::Provider;
use crate::support::*;
use fencepost_protocol::grants::OperationId;
use fencepost_rig::postgres::Postgres;
use fencepost_rig::service::Service;
use fencepost_rig::upstream::Gate;

/// What the original handler had done before it died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    /// Nothing reached the provider.
    Nothing,
    /// The effect exists, its record does not.
    Effect,
    /// The provider refuses it.
    Refusal,
}

struct Scene {
    url: String,
    through: String,
    gating: Gating,
    provider: Provider,
    files: Files,
    client: tokio_postgres::Client,
    id: OperationId,
    before: Before,
}

impl Scene {
    async fn new(before: Before, atomic: bool) -> Self {
        let (url, provider) = (database().await, Provider::start().await);
        let port = Postgres::shared().await.port();
        let gating = Gating::before(([127, 0, 0, 1], port).into()).await;
        let through = url.replace(&format!(":{port}/"), &format!(":{}/", gating.addr.port()));
        let files = Files::new(&settings(provider.addr, atomic));
        let admitting = files.serve_without(&url).await;
        let id = files.admit(admitting.addr()).await;
        admitting.kill().await.unwrap();
        match before {
            Before::Nothing => {}
            Before::Effect => drop(provider.create_now(id.as_str()).unwrap()),
            Before::Refusal => provider.refuse(&id),
        }
        let client = connect(&url).await;
        lapse(&client).await;
        Self { url, through, gating, provider, files, client, id, before }
    }

    /// Recovery runs up to the gate and dies there; another one goes on. The status in between.
    async fn killed_at(&self, gate: &Gate, what: &str) -> String {
        let victim: Service = self.files.serve(&self.through).await;
        if let Err(error) = gate.wait_arrived(1).await {
            panic!("{what}: {error}\n{}", victim.log_tail());
        }
        victim.kill().await.unwrap();
        let between = record(&self.client, &self.id).await.0;
        // What the provider was doing, it goes on doing.
        for gate in [&self.provider.looking, &self.provider.before_effect, &self.provider.after_effect] {
            gate.open();
        }
        let next = self.files.serve(&self.url).await;
        until(what, async || {
            // The victim's lease, or its rest, is over.
            lapse(&self.client).await;
            !["admitted", "unknown"].contains(&&*record(&self.client, &self.id).await.0)
        })
        .await;
        next.stop().await.unwrap();
        self.check(what).await;
        // What the victim had sent arrives now, long after; then the server has dealt with all of it.
        gate.open();
        let others = "SELECT count(*) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        until(what, async || count(&self.client, others).await == 0).await;
        self.check(&format!("{what}, and its statement arrives late")).await;
        between
    }

    async fn check(&self, what: &str) {
        let (status, _, reference) = record(&self.client, &self.id).await;
        let effects = self.provider.effects(&self.id);
        assert!(effects <= 1, "{what}: {effects} effects");
        let expected = match self.before {
            Before::Nothing | Before::Effect => ("succeeded", 1),
            Before::Refusal => ("failed", 0),
        };
        assert_eq!((&*status, effects), expected, "{what}");
        if status == "succeeded" {
            assert_eq!(reference.as_deref(), Some("cr_1"), "{what}");
        }
        assert_eq!(self.provider.forged(), 0, "{what}");
        let ends = "SELECT count(*) FROM fencepost.operation_events WHERE step = 'record'";
        assert_eq!(count(&self.client, ends).await, 1, "{what}: one end, and it is in the history");
    }
}

async fn killed_around(statement: &'static str, turn: usize, before: Before) {
    for at in [At::Before, At::After] {
        let scene = Scene::new(before, true).await;
        let gate = scene.gating.hold(statement, at, turn);
        let between = scene.killed_at(&gate, &format!("killed {at:?} {statement} {turn}, {before:?}")).await;
        let recorded = statement == "recovery_record" && at == At::After;
        assert_eq!(between != "admitted", recorded, "{at:?} {statement}: the gate stands elsewhere");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recoverer_killed_around_the_take_over_leaves_the_operation_to_the_next() {
    killed_around("recovery_take_over", 1, Before::Effect).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recoverer_killed_around_the_renewal_for_its_look_up_leaves_it_to_the_next() {
    killed_around("recovery_step", 1, Before::Nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recoverer_killed_around_the_renewal_for_sending_leaves_it_to_the_next() {
    killed_around("recovery_step", 2, Before::Nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recoverer_killed_around_its_last_check_leaves_it_to_the_next() {
    killed_around("operation_may_submit", 1, Before::Nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recoverer_killed_around_the_record_leaves_one_end() {
    killed_around("recovery_record", 1, Before::Nothing).await;
    killed_around("recovery_record", 1, Before::Refusal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recoverer_killed_around_its_rest_leaves_it_to_the_next() {
    for at in [At::Before, At::After] {
        let scene = Scene::new(Before::Effect, true).await;
        scene.provider.say(Some((503, "")));
        let gate = scene.gating.hold("recovery_postpone", at, 1);
        let provider = scene.provider.clone();
        let back = {
            let gate = gate.clone();
            tokio::spawn(async move {
                gate.wait_arrived(1).await.unwrap();
                provider.say(None);
            })
        };
        scene.killed_at(&gate, &format!("killed {at:?} recovery_postpone")).await;
        back.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recoverer_killed_while_the_provider_works_makes_no_second_effect() {
    for before in [Before::Effect, Before::Nothing] {
        let scene = Scene::new(before, true).await;
        scene.provider.looking.shut();
        let gate = scene.provider.looking.clone();
        scene.killed_at(&gate, &format!("killed in the look-up, {before:?}")).await;
    }
    for effect in ["before", "after"] {
        let scene = Scene::new(Before::Nothing, true).await;
        let gate = match effect {
            "before" => scene.provider.before_effect.clone(),
            _ => scene.provider.after_effect.clone(),
        };
        gate.shut();
        scene.killed_at(&gate, &format!("killed {effect} the effect")).await;
    }
}

/// The same for held keys: whoever dies anywhere, the key is completed once or stays held.
async fn key_recoverer_killed(at: At, statement: &'static str, answered: bool) {
    let scene = Scene::new(Before::Effect, true).await;
    let key = format!("test:{}", "ab".repeat(16));
    let sql = format!(
        "INSERT INTO fencepost.entries (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, until,
             cause, created_at, updated_at)
         VALUES ('{key}', 'unknown', decode(repeat('ab', 16), 'hex'), 7, '1-a', decode(repeat('ab', 32), 'hex'),
             decode(repeat('ab', 16), 'hex'), '{{}}', now() + interval '1 hour', 'timeout', now(), now())"
    );
    scene.client.batch_execute(&sql).await.unwrap();
    if answered {
        scene.provider.answer_key(
            &key,
            serde_json::json!({"outcome": "succeeded", "answer": {"status": 201, "body": "x"}}),
        );
    }
    if statement == "held_mark" {
        // It ran, and its answer is not given: for a person at once.
        scene.provider.answer_key(&key, serde_json::json!({"outcome": "succeeded"}));
    }
    let gate = scene.gating.hold(statement, at, 1);
    let what = format!("killed {at:?} {statement}");
    scene.killed_at(&gate, &what).await;
    let next = scene.files.serve(&scene.url).await;
    let ended = if answered {
        "SELECT count(*) FROM fencepost.entries WHERE state = 'completed'"
    } else {
        "SELECT count(*) FROM fencepost.held_keys WHERE for_person IS NOT NULL"
    };
    until(&what, async || {
        let rest = "UPDATE fencepost.held_keys SET next_at = now() - interval '1 second'";
        scene.client.batch_execute(rest).await.unwrap();
        count(&scene.client, ended).await == 1
    })
    .await;
    next.stop().await.unwrap();
    let state = if answered { "completed" } else { "unknown" };
    let kept = format!("SELECT count(*) FROM fencepost.entries WHERE key = '{key}' AND state = '{state}'");
    assert_eq!(count(&scene.client, &kept).await, 1, "{what}");
    let audited = count(&scene.client, "SELECT count(*) FROM fencepost.entry_audit").await;
    assert_eq!(audited, i64::from(answered), "{what}: completed once, and audited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recoverer_of_keys_killed_anywhere_completes_once_and_releases_never() {
    key_recoverer_killed(At::After, "held_take", true).await;
    key_recoverer_killed(At::Before, "entry_settle", true).await;
    key_recoverer_killed(At::After, "entry_settle", true).await;
    key_recoverer_killed(At::After, "held_postpone", false).await;
    key_recoverer_killed(At::Before, "held_mark", false).await;
}

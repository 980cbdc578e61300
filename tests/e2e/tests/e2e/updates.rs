//! Mistakes in the filter's configuration: found before the first request, and an update that has
//! one leaves the configuration in force.

use crate::support::{configuration, pay};
use fencepost_rig::client::Call;
use fencepost_rig::envoy::{Envoy, Route, Setup, connection_manager};
use fencepost_rig::scratch::Scratch;
use fencepost_rig::stack::Stack;
use serde_json::{Value, json};
use std::path::Path;

#[tokio::test]
async fn envoy_does_not_start_with_a_mistake_and_says_which() {
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut document = configuration(json!({}));
        change(&mut document);
        document
    };
    for (document, text) in [
        (
            broken(&|all| all["policies"]["pay"]["respone_ttl"] = "1h".into()),
            "policies.pay.respone_ttl: found an unknown field, expected one of",
        ),
        (
            broken(&|all| all["policies"]["pay"]["wait"] = "0s".into()),
            "policies.pay.wait: found \"0s\", expected a duration above zero with a unit",
        ),
        (
            broken(&|all| drop(all["policies"]["pay"].as_object_mut().unwrap().remove("scope"))),
            "policies.pay.scope: found nothing, expected whose keys they are",
        ),
        (
            broken(&|all| all["store"]["token"] = "hunter2".into()),
            "store.token: found a field that looks like a secret, expected no secret here",
        ),
        (json!(""), "configuration: found \"\", expected a JSON object"),
        (json!({}), "store: found nothing, expected a value: the field is required"),
    ] {
        let nowhere = "127.0.0.1:9".parse().unwrap();
        let setup = Setup::new(nowhere).guarded(document, nowhere);
        let error = format!("{:#}", Envoy::start(&setup).await.err().expect(text));
        assert!(error.contains(&format!("configuration refused: {text}")), "{text}\n{error}");
        assert!(!error.contains("hunter2"));
    }
}

/// Which of these tests' configurations is in force, told by the longest key that it takes.
async fn longest_key(stack: &Stack) -> usize {
    for length in [8, 16, 32, 64] {
        let answer = stack.send(&pay(&"k".repeat(length + 1))).await.unwrap();
        if answer.problem_code() == "key_too_long" {
            return length;
        }
    }
    panic!("no configuration of these tests is in force");
}

fn of_length(length: usize) -> Value {
    configuration(json!({"key": {"max_length": length}}))
}

async fn wait_for_length(stack: &Stack, length: usize) {
    for _ in 0..200 {
        if longest_key(stack).await == length {
            return;
        }
    }
    panic!("the configuration with {length} never came into force");
}

#[tokio::test]
async fn a_bad_update_of_the_listener_keeps_the_old_configuration_and_a_good_one_heals() {
    let stack = Stack::builder(of_length(8)).route(Route::guarded("/pay", "pay")).envoy(|mut setup| {
        setup.dynamic_listeners = true;
        setup
    });
    let stack = stack.start().await.unwrap();
    let update = |document: Value| {
        let change = |listeners: &mut Value| {
            let filters = "/0/filter_chains/0/filters/0/typed_config/http_filters";
            let filters = listeners.pointer_mut(filters).unwrap().as_array_mut().unwrap();
            let ours = filters.iter_mut().find(|filter| filter["name"] == "envoy.filters.http.wasm").unwrap();
            let text = ours.pointer_mut("/typed_config/config/configuration/value").unwrap();
            *text = document.to_string().into();
        };
        stack.envoy.update_listeners(change).unwrap();
    };
    stack.send(&pay("kept")).await.unwrap();
    let mut bad = of_length(16);
    bad["policies"]["pay"]["wait"] = "-1s".into();
    update(bad);
    stack.envoy.wait_log("configuration refused: policies.pay.wait: found \"-1s\"").await.unwrap();
    stack.envoy.wait_stat("listener_manager.lds.update_rejected", |n| n == 1).await.unwrap();
    assert_eq!(longest_key(&stack).await, 8, "the old one is in force");
    assert!(stack.send(&pay("kept")).await.unwrap().is_replay());
    update(of_length(32));
    wait_for_length(&stack, 32).await;
    assert!(stack.send(&pay("kept")).await.unwrap().is_replay());
}

/// Writes the filter's extension configuration where Envoy watches for it: by renaming, because
/// only that is noticed.
fn write_extension(folder: &Path, config: &Value) {
    let resource = json!({
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "fencepost",
        "typed_config": config,
    });
    let draft = folder.join("draft.json");
    std::fs::write(&draft, json!({"resources": [resource]}).to_string()).unwrap();
    std::fs::rename(draft, folder.join("extension.json")).unwrap();
}

#[tokio::test]
async fn a_bad_extension_configuration_keeps_the_old_one_and_a_good_one_heals() {
    let files = Scratch::new("ecds").unwrap();
    let folder = files.path().to_owned();
    let builder = Stack::builder(of_length(8)).route(Route::guarded("/pay", "pay")).envoy(move |setup| {
        setup.change(move |bootstrap| {
            let filters = connection_manager(bootstrap).unwrap()["http_filters"].as_array_mut().unwrap();
            let ours = filters.iter_mut().find(|filter| filter["name"] == "envoy.filters.http.wasm").unwrap();
            let config = ours["typed_config"].take();
            write_extension(&folder, &config);
            *ours = json!({"name": "fencepost", "config_discovery": {
                "type_urls": [config["@type"]],
                "config_source": {
                    "resource_api_version": "V3",
                    "path_config_source": {"path": folder.join("extension.json")},
                },
            }});
            std::fs::write(folder.join("config"), config.to_string()).unwrap();
        })
    });
    let stack = builder.start().await.unwrap();
    let update = |document: Value| {
        let config = std::fs::read(files.path().join("config")).unwrap();
        let mut config: Value = serde_json::from_slice(&config).unwrap();
        *config.pointer_mut("/config/configuration/value").unwrap() = document.to_string().into();
        write_extension(files.path(), &config);
    };
    stack.send(&pay("kept")).await.unwrap();
    let mut bad = of_length(16);
    bad["policies"]["pay"]["wiat"] = "1s".into();
    update(bad);
    stack.envoy.wait_log("configuration refused: policies.pay.wiat: found an unknown field").await.unwrap();
    assert_eq!(longest_key(&stack).await, 8, "the old one is in force");
    let keyless = Call::post("/pay").user("alice").json(&json!({"amount": 1}));
    assert_eq!(stack.send(&keyless).await.unwrap().status, 400, "and it guards");
    update(of_length(32));
    wait_for_length(&stack, 32).await;
    assert!(stack.send(&pay("kept")).await.unwrap().is_replay());
}

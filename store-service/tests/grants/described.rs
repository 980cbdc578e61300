//! What operators are told about operations has the fields of the description, all of them and no others.

use crate::desk::Office;
use fencepost_rig::client::{Answer, Call};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The objects that operators are told, closed here for the test: clients have to bear fields that come later.
const TOLD: [&str; 3] = ["OperationView", "OperationEvent", "OperationsReply"];

/// The description, in which these objects have no field that is not described.
async fn description(office: &Office) -> Value {
    let answer = Call::get("/openapi.json").send(office.served.service.addr()).await.unwrap();
    let mut document = answer.json();
    for name in TOLD {
        document["components"]["schemas"][name]["additionalProperties"] = json!(false);
    }
    document
}

/// The described body of a call's 200.
fn body_of(document: &Value, path: &str, method: &str) -> Validator {
    let schema =
        &document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"];
    assert!(schema["$ref"].is_string(), "{method} {path} names no schema");
    let alone = json!({"$ref": schema["$ref"], "components": document["components"]});
    jsonschema::options().should_validate_formats(true).build(&alone).unwrap()
}

/// The body, if it is as described.
fn fits(schema: &Validator, answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    let wrong: Vec<String> =
        schema.iter_errors(&body).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:?} in {body}");
    body
}

/// The names in an object.
fn names(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

async fn operators_are_told_operations_as_described(office: &Office) {
    let document = description(office).await;
    let (listed, one) = ("/v1/operator/operations", "/v1/operator/operations/{id}");
    let ordered = "/v1/operator/operations/{id}/settle";
    let list = body_of(&document, listed, "get");
    let (show, settle) = (body_of(&document, one, "get"), body_of(&document, ordered, "post"));

    // One that has just begun, and one that its owner gave to a person.
    let begun = office.admitted().await;
    let waiting = office.admitted().await;
    assert_eq!(office.record(&waiting, "admitted", "needs_reconciliation").await.status, 200);
    let all = fits(&list, &office.call("operator", Call::get(listed)).await);
    assert_eq!(all["operations"].as_array().unwrap().len(), 2);
    assert_eq!(all["next"], json!(null));
    let page = fits(&list, &office.call("operator", Call::get(&format!("{listed}?limit=1"))).await);
    assert_eq!(page["next"], page["operations"][0]["operation_id"]);
    let path = |id: &str| one.replace("{id}", id);
    fits(&show, &office.call("operator", Call::get(&path(begun.as_str()))).await);
    let before = fits(&show, &office.call("operator", Call::get(&path(waiting.as_str()))).await);
    assert_eq!(before["cause"], "owner");

    // Its end by a person: the reference and a line of the history.
    let order = json!({
        "version": before["version"], "reason": "the bank has it", "outcome": "succeeded", "reference": "cr_9",
    });
    let call = Call::post(&ordered.replace("{id}", waiting.as_str())).json(&order);
    let after = fits(&settle, &office.call("operator", call).await);
    assert_eq!(after["history"].as_array().unwrap().len(), 1);

    // Nothing is described that nobody is ever told.
    let described = |name: &str| names(&document["components"]["schemas"][name]["properties"]);
    let told: BTreeSet<String> = &names(&before) | &names(&after);
    assert_eq!(told, described("OperationView"));
    assert_eq!(names(&after["history"][0]), described("OperationEvent"));
    assert_eq!(names(&all), described("OperationsReply"));
    // Required is what the shortest reply has: one without an outcome, from a list.
    let required = |name: &str| -> BTreeSet<String> {
        let list = document["components"]["schemas"][name]["required"].as_array().unwrap();
        list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let shortest = all["operations"].as_array().unwrap().iter().map(names).min_by_key(BTreeSet::len).unwrap();
    assert_eq!(shortest, required("OperationView"));
    assert_eq!(required("OperationEvent"), described("OperationEvent"));
    assert_eq!(required("OperationsReply"), described("OperationsReply"));
}

#[tokio::test]
async fn operators_are_told_operations_as_described__postgres() {
    operators_are_told_operations_as_described(&Office::postgres().await).await;
}

#[tokio::test]
async fn operators_are_told_operations_as_described__sqlite() {
    operators_are_told_operations_as_described(&Office::sqlite().await).await;
}

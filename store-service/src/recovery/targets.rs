//! The keys that the application's providers know an operation's requests by.
//!
//! A route that admits grants gives the application keys made of the operation's id
//! (`downstream_keys` of its policy). Whoever sends again has to send the same ones: a provider takes
//! another key for another request, and does it twice. So the settings here are the policy's own,
//! read by the filter's own rules, and the keys are made by the filter's own function.

use fencepost_filter_core::downstream::{DownstreamKey, operation_key};
use fencepost_filter_core::policy::Config;
use serde_json::{Value, json};

/// Where the key goes if the settings name none: the operation's id.
pub const USUAL_HEADER: &str = "idempotency-key";

/// Which keys are sent with an operation's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// The operation's id, as [`USUAL_HEADER`].
    OperationId,
    /// Those of the route.
    Route {
        /// The filter's `key_prefix`.
        prefix: String,
        /// The policy's `downstream_keys`.
        keys: Vec<DownstreamKey>,
    },
}

impl Targets {
    /// Reads `key_prefix` and `downstream_keys` as the filter does; says what can't be right.
    pub fn read(prefix: Option<String>, keys: Option<Value>) -> Result<Self, String> {
        let (prefix, keys) = match (prefix, keys) {
            (None, None) => return Ok(Self::OperationId),
            (Some(prefix), Some(keys)) => (prefix, keys),
            (None, Some(_)) => return Err("key_prefix: missing; expected the filter's".into()),
            (Some(_), None) => return Err("downstream_keys: missing; expected the policy's".into()),
        };
        let policy = json!({"namespace": "recovery", "scope": ["host"], "downstream_keys": keys});
        let text = json!({
            "store": {"decide_cluster": "none", "claim_cluster": "none"},
            "key_prefix": prefix,
            "policies": {"recovery": policy},
        });
        let config = Config::parse(text.to_string().as_bytes())
            .map_err(|error| error.to_string().replacen("policies.recovery.", "", 1))?;
        let keys = config.policy("recovery").map(|policy| policy.downstream_keys.clone());
        let keys = keys.filter(|keys| !keys.is_empty());
        let keys = keys.ok_or("downstream_keys: found none; expected the policy's, or neither setting")?;
        // Those have a meaning of their own in this request.
        let taken = |key: &&DownstreamKey| ["accept", "content-type"].contains(&key.header.as_str());
        match keys.iter().find(taken) {
            Some(key) => Err(format!("downstream_keys: found the header {:?}; expected another", key.header)),
            None => Ok(Self::Route { prefix, keys }),
        }
    }

    /// Headers with the keys of an operation.
    pub fn headers(&self, operation: &str) -> Vec<(String, String)> {
        match self {
            Self::OperationId => vec![(USUAL_HEADER.to_owned(), operation.to_owned())],
            Self::Route { prefix, keys } => {
                let header =
                    |key: &DownstreamKey| (key.header.clone(), operation_key(prefix, operation, key));
                keys.iter().map(header).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATION: &str = "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f";

    #[test]
    fn recovery_sends_the_keys_that_the_route_gave_to_the_application() {
        let policy = json!([
            {"provider": "stripe", "operation": "charge", "header": "X-Stripe-Key"},
            {"provider": "square", "operation": "charge", "header": "x-square-key"},
            {"provider": "own", "operation": "refund", "header": "idempotency-key", "length": 40},
        ]);
        let targets = Targets::read(Some("prod".into()), Some(policy)).unwrap();
        // Fixed: a key that changed from one release to the next would be a second effect.
        let expected = [
            ("x-stripe-key", "dcc1df08c7947852f20af9882105cf8fb3213680b776b6977f7f0111ffd9f0ca"),
            ("x-square-key", "ced6025e-0643-924c-14be-6b37f3a59fd8"),
            ("idempotency-key", "7ae0954d61867acd566b9b1b775c8fc82985a7f0"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(targets.headers(OPERATION), expected);
        let plain = Targets::read(None, None).unwrap();
        assert_eq!(plain.headers(OPERATION), [("idempotency-key".to_owned(), OPERATION.to_owned())]);
    }

    #[test]
    fn keys_that_no_route_could_have_sent_are_refused() {
        let key = json!([{"provider": "stripe", "operation": "charge", "header": "x-key"}]);
        for (prefix, keys, says) in [
            (None, Some(key.clone()), "key_prefix: missing"),
            (Some("prod"), None, "downstream_keys: missing"),
            (Some("Prod"), Some(key), "key_prefix: found"),
            (Some("prod"), Some(json!([])), "downstream_keys: found none"),
            (Some("prod"), Some(json!([{"provider": "p", "operation": "o", "header": "accept"}])), "accept"),
            (Some("prod"), Some(json!([{"provider": "p", "operation": "o"}])), "downstream_keys[0].header"),
        ] {
            let error = Targets::read(prefix.map(str::to_owned), keys).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}

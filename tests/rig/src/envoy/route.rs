//! A route of the rig's Envoy.

use super::bootstrap::UPSTREAM;
use serde_json::{Map, Value, json};

/// A route by path prefix.
#[derive(Debug, Clone)]
pub struct Route {
    prefix: String,
    cluster: String,
    policy: Map<String, Value>,
    action: Map<String, Value>,
    extra: Map<String, Value>,
}

impl Route {
    /// An unmarked route to the upstream.
    pub fn to(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            cluster: UPSTREAM.to_owned(),
            policy: Map::new(),
            action: Map::new(),
            extra: Map::new(),
        }
    }

    /// A route under a policy.
    pub fn guarded(prefix: &str, policy: &str) -> Self {
        Self::to(prefix).metadata("policy", policy)
    }

    /// The beginning of the paths it is for.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Sets a field of the filter's metadata on this route: `policy` or an override.
    pub fn metadata(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.policy.insert(field.to_owned(), value.into());
        self
    }

    /// Leads to another cluster.
    pub fn cluster(mut self, cluster: &str) -> Self {
        cluster.clone_into(&mut self.cluster);
        self
    }

    /// Sets Envoy's timeout, such as `5s`.
    pub fn timeout(self, timeout: &str) -> Self {
        self.action("timeout", timeout)
    }

    /// Sets Envoy's retry policy.
    pub fn retry_policy(self, policy: Value) -> Self {
        self.action("retry_policy", policy)
    }

    /// Sets a field of the route's action.
    pub fn action(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.action.insert(field.to_owned(), value.into());
        self
    }

    /// Sets a field of the route; `direct_response` or `redirect` replaces the action.
    pub fn extra(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(field.to_owned(), value.into());
        self
    }

    pub(super) fn to_json(&self) -> Value {
        let mut route = Map::new();
        route.insert("match".into(), json!({"prefix": self.prefix}));
        if !self.policy.is_empty() {
            route.insert("metadata".into(), json!({"filter_metadata": {"fencepost": self.policy}}));
        }
        if !self.extra.contains_key("direct_response") && !self.extra.contains_key("redirect") {
            let mut action = self.action.clone();
            action.insert("cluster".into(), self.cluster.clone().into());
            route.insert("route".into(), Value::Object(action));
        }
        route.extend(self.extra.clone());
        Value::Object(route)
    }
}

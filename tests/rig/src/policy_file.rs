//! A file with the filter's configuration, as YAML or JSON.
//!
//! It is checked by the filter's own code before anything starts, so that an error names the field
//! instead of a proxy that does not come up.

use anyhow::{Context, Result, anyhow};
use fencepost_filter_core::policy::{Config, Execution};
use serde_json::Value;
use std::path::Path;

/// A configuration that was checked.
#[derive(Debug, Clone)]
pub struct PolicyFile {
    /// For the filter.
    pub configuration: Value,
    /// Names of its policies.
    pub policies: Vec<String>,
    /// Clusters that must lead to the service.
    pub store_clusters: Vec<String>,
    /// Policies that send their requests by calls of the filter, and to which cluster.
    pub detached: Vec<(String, String)>,
}

/// Reads and checks a file.
pub fn read(path: &Path) -> Result<PolicyFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    parse(&text).with_context(|| format!("the policy file {} is refused", path.display()))
}

/// Checks a text. JSON is a kind of YAML.
pub fn parse(text: &str) -> Result<PolicyFile> {
    let configuration: Value = serde_saphyr::from_str(text).map_err(|error| anyhow!("not YAML: {error}"))?;
    let config = Config::parse(configuration.to_string().as_bytes())?;
    let mut store_clusters = vec![config.store.decide_cluster, config.store.claim_cluster];
    store_clusters.dedup();
    let detached = config.policies.values().filter_map(|policy| match &policy.execution {
        Execution::Detached { cluster, .. } => Some((policy.name.clone(), cluster.clone())),
        Execution::Inline => None,
    });
    let detached = detached.collect();
    let policies = config.policies.into_keys().collect();
    Ok(PolicyFile { configuration, policies, store_clusters, detached })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_policy_is_right() {
        let file = read(&crate::tools::repository().join("envoy/policies/demo.yaml")).unwrap();
        assert_eq!(file.policies, ["demo"]);
        assert_eq!(file.store_clusters, ["fencepost_store", "fencepost_store_waiting"]);
    }

    #[test]
    fn an_error_names_its_field() {
        let text =
            std::fs::read_to_string(crate::tools::repository().join("envoy/policies/demo.yaml")).unwrap();
        let error = parse(&text.replace("wait: 5s", "wait: 5")).unwrap_err();
        assert!(format!("{error:#}").contains("policies.demo.wait"), "{error:#}");
        assert!(parse("a: [").is_err());
    }

    #[test]
    fn json_is_read_as_well_and_a_double_member_is_refused() {
        let text =
            r#"{"store": {"decide_cluster": "a", "claim_cluster": "b"}, "key_prefix": "p", "policies": {}}"#;
        assert_eq!(parse(text).unwrap().store_clusters, ["a", "b"]);
        assert!(parse(&text.replace(r#""key_prefix""#, r#""key_prefix": "x", "key_prefix""#)).is_err());
    }
}

//! The rules of a policy's fingerprint, and the name of the scheme that they make.

use crate::digest::PartsDigest;
use fencepost_protocol::Scheme;

/// What of the body is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRule {
    /// JSON by meaning, anything else by bytes.
    Json,
    /// Always by bytes.
    Bytes,
    /// Nothing; the body is not buffered.
    None,
}

/// What happens to a JSON object with two members of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateMembers {
    /// The body is compared by bytes: a proxy does not know which one the upstream takes.
    Raw,
    /// The last one counts.
    Last,
    /// The request is refused.
    Reject,
}

/// What of the query is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryRule {
    /// All of it, as written.
    All,
    /// All parameters, sorted by name; the order among equal names stays.
    Sorted,
    /// Nothing.
    None,
    /// These parameters, in the order of the request.
    Names(Vec<String>),
}

/// A path by its template: only the template and the chosen variables are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate {
    /// Such as `/v1/accounts/{id}/payments`.
    pub template: String,
    /// Names of the variables that count, sorted.
    pub variables: Vec<String>,
}

/// The rules, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintOptions {
    /// Body.
    pub body: BodyRule,
    /// Only these properties of a JSON body: names at the top without regard to case, or JSON
    /// pointers (RFC 6901) that start with `/`. Empty: the whole body.
    pub properties: Vec<String>,
    /// Duplicate members of JSON objects.
    pub duplicate_members: DuplicateMembers,
    /// Query.
    pub query: QueryRule,
    /// Path, unless it is compared as it is.
    pub path: Option<PathTemplate>,
    /// Lower-case names of request headers.
    pub headers: Vec<String>,
    /// Lower-case host names that tell requests apart; a host that is not listed counts as none.
    pub hosts: Vec<String>,
}

impl Default for FingerprintOptions {
    fn default() -> Self {
        Self {
            body: BodyRule::Json,
            properties: Vec::new(),
            duplicate_members: DuplicateMembers::Raw,
            query: QueryRule::All,
            path: None,
            headers: Vec::new(),
            hosts: Vec::new(),
        }
    }
}

/// Version of the rules in this crate. A change that gives one request another fingerprint needs
/// the next number.
const RULES_VERSION: u8 = 1;

/// Rules with the name of their scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintPolicy {
    options: FingerprintOptions,
    scheme: Scheme,
}

impl FingerprintPolicy {
    /// Compiles options. Lists are sorted, so that their order in the configuration means nothing.
    pub fn compile(mut options: FingerprintOptions) -> Result<Self, fencepost_protocol::IdError> {
        let mut lists = vec![&mut options.properties, &mut options.headers, &mut options.hosts];
        if let QueryRule::Names(names) = &mut options.query {
            lists.push(names);
        }
        if let Some(path) = &mut options.path {
            lists.push(&mut path.variables);
        }
        for list in lists {
            list.sort();
            list.dedup();
        }
        let scheme = Scheme::parse(&format!("{RULES_VERSION}-{}", digest(&options)))?;
        Ok(Self { options, scheme })
    }

    /// The rules.
    pub fn options(&self) -> &FingerprintOptions {
        &self.options
    }

    /// Name of the scheme: version and digest of the options.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Whether the body must be buffered.
    pub fn needs_body(&self) -> bool {
        self.options.body != BodyRule::None
    }
}

fn digest(options: &FingerprintOptions) -> String {
    let mut digest = PartsDigest::new("fencepost fingerprint options");
    let body: &[u8] = match options.body {
        BodyRule::Json => b"json",
        BodyRule::Bytes => b"bytes",
        BodyRule::None => b"none",
    };
    let duplicates: &[u8] = match options.duplicate_members {
        DuplicateMembers::Raw => b"raw",
        DuplicateMembers::Last => b"last",
        DuplicateMembers::Reject => b"reject",
    };
    digest.part(1, body).part(2, duplicates);
    match &options.query {
        QueryRule::All => digest.part(3, b"all"),
        QueryRule::Sorted => digest.part(3, b"sorted"),
        QueryRule::None => digest.part(3, b"none"),
        QueryRule::Names(names) => {
            digest.part(3, b"names");
            list(&mut digest, 4, names)
        }
    };
    if let Some(path) = &options.path {
        digest.part(5, path.template.as_bytes());
        list(&mut digest, 6, &path.variables);
    }
    list(&mut digest, 7, &options.properties);
    list(&mut digest, 8, &options.headers);
    list(&mut digest, 9, &options.hosts);
    hex::encode(digest.finish()).chars().take(8).collect()
}

fn list<'a>(digest: &'a mut PartsDigest, tag: u8, items: &[String]) -> &'a mut PartsDigest {
    for item in items {
        digest.part(tag, item.as_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(change: impl FnOnce(&mut FingerprintOptions)) -> String {
        let mut options = FingerprintOptions::default();
        change(&mut options);
        FingerprintPolicy::compile(options).unwrap().scheme().as_str().to_owned()
    }

    #[test]
    fn the_default_scheme_is_stable_across_releases() {
        assert_eq!(scheme(|_| {}), "1-42fa47c6");
    }

    #[test]
    fn every_option_makes_another_scheme() {
        let all = [
            scheme(|_| {}),
            scheme(|o| o.body = BodyRule::Bytes),
            scheme(|o| o.body = BodyRule::None),
            scheme(|o| o.duplicate_members = DuplicateMembers::Last),
            scheme(|o| o.duplicate_members = DuplicateMembers::Reject),
            scheme(|o| o.query = QueryRule::Sorted),
            scheme(|o| o.query = QueryRule::None),
            scheme(|o| o.query = QueryRule::Names(vec!["a".into()])),
            scheme(|o| o.query = QueryRule::Names(vec![])),
            scheme(|o| o.properties = vec!["a".into()]),
            scheme(|o| o.headers = vec!["a".into()]),
            scheme(|o| o.hosts = vec!["a".into()]),
            scheme(|o| o.path = Some(PathTemplate { template: "/{a}".into(), variables: vec![] })),
            scheme(|o| o.path = Some(PathTemplate { template: "/{a}".into(), variables: vec!["a".into()] })),
        ];
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
    }

    #[test]
    fn order_of_a_list_means_nothing() {
        let one = scheme(|o| o.headers = vec!["a".into(), "b".into()]);
        assert_eq!(one, scheme(|o| o.headers = vec!["b".into(), "a".into(), "b".into()]));
    }
}

//! Which requests a route's `match` takes, against those of another.

use super::place::Place;
use serde_json::Value;

/// How many of another match's requests a match takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cover {
    Whole,
    Part,
    None,
    /// An expression, say: not told from here.
    Unknown,
}

/// Fields that say which paths; all others are further conditions.
const PATHS: [&str; 6] =
    ["prefix", "path", "path_separated_prefix", "safe_regex", "path_match_policy", "connect_matcher"];

enum Path<'a> {
    Prefix(&'a str),
    Exact(&'a str),
    Separated(&'a str),
    Other,
}

fn path<'a>(of: &Place<'a>) -> Path<'a> {
    let text = |name: &str| of.get(name).text();
    match (text("prefix"), text("path"), text("path_separated_prefix")) {
        (Some(prefix), ..) => Path::Prefix(prefix),
        (_, Some(path), _) => Path::Exact(path),
        (.., Some(prefix)) => Path::Separated(prefix),
        _ => Path::Other,
    }
}

/// A path that a match takes; none where that can't be said.
pub(super) fn example<'a>(of: &Place<'a>) -> Option<&'a str> {
    match path(of) {
        Path::Prefix(text) | Path::Exact(text) | Path::Separated(text) => Some(text),
        Path::Other => None,
    }
}

/// How much of what `other` takes `of` takes too.
pub(super) fn cover(of: &Place<'_>, other: &Place<'_>) -> Cover {
    match cover_paths(of, other) {
        Cover::Whole if !conditions_hold(of, other) => Cover::Part,
        cover => cover,
    }
}

/// The same without conditions on headers, queries and the like.
pub(super) fn cover_paths(of: &Place<'_>, other: &Place<'_>) -> Cover {
    let folded = of.get("case_sensitive").is("false");
    let fold = |text: &str| if folded { text.to_ascii_lowercase() } else { text.to_owned() };
    let below = |path: &str, prefix: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let part = |is: bool| if is { Cover::Part } else { Cover::None };
    let whole_or = |is: bool, other: Cover| if is { Cover::Whole } else { other };
    match (path(of), path(other)) {
        (Path::Prefix("/" | ""), _) => Cover::Whole,
        (Path::Prefix(a), Path::Exact(b)) => whole_or(fold(b).starts_with(&fold(a)), Cover::None),
        (Path::Prefix(a), Path::Prefix(b) | Path::Separated(b)) => {
            whole_or(fold(b).starts_with(&fold(a)), part(fold(a).starts_with(&fold(b))))
        }
        (Path::Exact(a), Path::Exact(b)) => whole_or(fold(a) == fold(b), Cover::None),
        (Path::Exact(a), Path::Prefix(b) | Path::Separated(b)) => part(fold(a).starts_with(&fold(b))),
        (Path::Separated(a), Path::Exact(b) | Path::Separated(b)) => {
            whole_or(below(&fold(b), &fold(a)), part(below(&fold(a), &fold(b))))
        }
        (Path::Separated(a), Path::Prefix(b)) => {
            let (a, b) = (fold(a), fold(b));
            whole_or(b.starts_with(&format!("{a}/")), part(b.starts_with(&a) || a.starts_with(&b)))
        }
        (Path::Other, _) | (_, Path::Other) => {
            let pattern = of.at("safe_regex.regex").text();
            let everything = matches!(pattern, Some(".*" | "/.*" | "^/.*$" | "^.*$"));
            let same = |name: &str| {
                of.get(name).exists() && of.get(name).node.to_json() == other.get(name).node.to_json()
            };
            whole_or(everything || PATHS.iter().any(|name| same(name)), Cover::Unknown)
        }
    }
}

/// Whether every further condition of `of` is one of `other` as well.
fn conditions_hold(of: &Place<'_>, other: &Place<'_>) -> bool {
    let mut conditions = of
        .members()
        .filter(|(name, _)| !PATHS.contains(name) && !["case_sensitive", "caseSensitive"].contains(name));
    conditions.all(|(name, condition)| match (condition.node.to_json(), other.get(name).node.to_json()) {
        (Value::Array(conditions), Value::Array(others)) => {
            conditions.iter().all(|condition| others.contains(condition))
        }
        (condition, other) => condition == other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tree;

    #[test]
    fn a_match_takes_all_some_or_none_of_anothers_requests() {
        use Cover::{None, Part, Unknown, Whole};
        for (of, other, expected) in [
            ("{prefix: /}", "{safe_regex: {regex: x}}", Whole),
            ("{prefix: /a}", "{prefix: /ab}", Whole),
            ("{prefix: /ab}", "{prefix: /a}", Part),
            ("{prefix: /b}", "{path: /a}", None),
            ("{path: /a}", "{path: /a}", Whole),
            ("{path: /a/b}", "{prefix: /a}", Part),
            ("{path_separated_prefix: /a}", "{prefix: /a}", Part),
            ("{path_separated_prefix: /a}", "{path: /ab}", None),
            ("{path_separated_prefix: /a}", "{path: /a/b}", Whole),
            ("{path_separated_prefix: /a}", "{prefix: /a/b}", Whole),
            ("{prefix: /A, case_sensitive: false}", "{path: /ab}", Whole),
            ("{safe_regex: {regex: /.*}}", "{prefix: /a}", Whole),
            ("{safe_regex: {regex: /a+}}", "{safe_regex: {regex: /a+}}", Whole),
            ("{safe_regex: {regex: /a+}}", "{prefix: /a}", Unknown),
            ("{prefix: /, headers: [{name: a}]}", "{prefix: /}", Part),
            ("{prefix: /, headers: [{name: a}]}", "{prefix: /, headers: [{name: b}, {name: a}]}", Whole),
            ("{prefix: /, grpc: {}}", "{prefix: /a}", Part),
        ] {
            let parse = |text: &str| tree::parse(text, 1).unwrap().remove(0);
            let (a, b) = (parse(of), parse(other));
            assert_eq!(cover(&Place::new("f", &a), &Place::new("f", &b)), expected, "{of} {other}");
        }
    }
}

//! Which requests a `match` takes, against those of another.
//!
//! A match is read once. [`Table`] finds those of many that may take a request of another's without
//! comparing each: paths that share a request begin with one another.

use super::patches::snake_case;
use super::place::Place;
use serde_json::Value;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

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

/// Patterns that take every path.
const EVERYTHING: [&str; 4] = [".*", "/.*", "^/.*$", "^.*$"];

/// A path, in small letters.
#[derive(Debug, PartialEq, Eq)]
enum Path {
    Prefix(String),
    Exact(String),
    Separated(String),
    /// An expression or the like, as it is written.
    Other(String),
}

/// What a match asks of a header or query parameter.
#[derive(Debug, PartialEq, Eq)]
enum Test {
    Is(String),
    IsNot(String),
    Present,
    Absent,
    /// An expression, say.
    Unknown,
}

/// A match, read.
#[derive(Debug)]
pub(super) struct Match<'a> {
    place: Place<'a>,
    path: Path,
    /// As it is written.
    text: &'a str,
    ignores_case: bool,
    /// Conditions on headers, queries and the like.
    conditions: BTreeMap<String, Value>,
    /// What of these is told apart, by name; that of a query parameter begins with `?`.
    tests: Vec<(String, Test)>,
}

/// A path that a match takes; none where that can't be said.
pub(super) fn example<'a>(of: &Place<'a>) -> Option<&'a str> {
    let names = ["prefix", "path", "path_separated_prefix"];
    names.into_iter().find_map(|name| of.get(name).text())
}

impl<'a> Match<'a> {
    pub(super) fn new(place: Place<'a>) -> Self {
        let lower = |name: &str| place.get(name).text().map(str::to_ascii_lowercase);
        let pattern = place.at("safe_regex.regex").text();
        let path = match (lower("prefix"), lower("path"), lower("path_separated_prefix")) {
            _ if pattern.is_some_and(|pattern| EVERYTHING.contains(&pattern)) => Path::Prefix(String::new()),
            (Some(prefix), ..) => Path::Prefix(if prefix == "/" { String::new() } else { prefix }),
            (_, Some(path), _) => Path::Exact(path),
            (.., Some(prefix)) => Path::Separated(prefix),
            _ => {
                let written = PATHS.iter().map(|name| place.get(name).node.to_json().to_string());
                Path::Other(written.collect::<Vec<_>>().join(" "))
            }
        };
        let members = place.members().map(|(name, value)| (snake_case(name), value));
        let members = members
            .filter(|(name, _)| !PATHS.contains(&name.as_str()) && name != "case_sensitive")
            .map(|(name, value)| (name, value.node.to_json()));
        let headers = place.get("headers").items().map(|header| test(&header, ""));
        let queries = place.get("query_parameters").items().map(|query| test(&query, "?"));
        Self {
            place,
            path,
            text: example(&place).unwrap_or_default(),
            ignores_case: place.get("case_sensitive").is("false"),
            conditions: members.collect(),
            tests: headers.chain(queries).collect(),
        }
    }

    pub(super) fn place(&self) -> Place<'a> {
        self.place
    }

    /// Whether it takes every path.
    pub(super) fn takes_every_path(&self) -> bool {
        self.path == Path::Prefix(String::new())
    }

    /// The last segment of its path.
    pub(super) fn last_segment(&self) -> Option<&str> {
        match &self.path {
            Path::Prefix(path) | Path::Exact(path) | Path::Separated(path) => {
                path.trim_end_matches('/').rsplit('/').next()
            }
            Path::Other(_) => None,
        }
    }

    /// Whether a request with this method may be among its own.
    pub(super) fn takes_method(&self, method: &str) -> bool {
        self.tests.iter().filter(|(name, _)| name == ":method").all(|(_, test)| match test {
            Test::Is(text) => text == method,
            Test::IsNot(text) => text != method,
            Test::Absent => false,
            Test::Present | Test::Unknown => true,
        })
    }

    /// Whether it asks for something of this name: a header, or a field of the match.
    pub(super) fn asks_for(&self, name: &str) -> bool {
        self.conditions.contains_key(name) || self.tests.iter().any(|(tested, _)| tested == name)
    }

    /// How much of what `other` takes it takes too.
    pub(super) fn cover(&self, other: &Self) -> Cover {
        match self.cover_paths(other) {
            Cover::None => Cover::None,
            _ if self.contradicts(other) => Cover::None,
            Cover::Whole if !self.conditions_hold(other) => Cover::Part,
            cover => cover,
        }
    }

    /// The same without conditions on headers, queries and the like.
    fn cover_paths(&self, other: &Self) -> Cover {
        let whole_or = |is: bool, other: Cover| if is { Cover::Whole } else { other };
        if self.takes_every_path() {
            return Cover::Whole;
        }
        let below = |path: &str, prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let part = |is: bool| if is { Cover::Part } else { Cover::None };
        let cover = match (&self.path, &other.path) {
            (Path::Prefix(a), Path::Exact(b)) => whole_or(b.starts_with(a), Cover::None),
            (Path::Prefix(a), Path::Prefix(b) | Path::Separated(b)) => {
                whole_or(b.starts_with(a), part(a.starts_with(b)))
            }
            (Path::Exact(a), Path::Exact(b)) => whole_or(a == b, Cover::None),
            (Path::Exact(a), Path::Prefix(b)) => part(a.starts_with(b)),
            (Path::Exact(a), Path::Separated(b)) => part(below(a, b)),
            (Path::Separated(a), Path::Exact(b)) => whole_or(below(b, a), Cover::None),
            (Path::Separated(a), Path::Separated(b)) => whole_or(below(b, a), part(below(a, b))),
            (Path::Separated(a), Path::Prefix(b)) => {
                whole_or(b.starts_with(&format!("{a}/")), part(b.starts_with(a) || a.starts_with(b)))
            }
            (Path::Other(a), Path::Other(b)) => whole_or(a == b, Cover::Unknown),
            (Path::Other(_), _) | (_, Path::Other(_)) => Cover::Unknown,
        };
        self.cover_letters(other, cover)
    }

    /// Paths were compared in small letters: what that makes of the result.
    fn cover_letters(&self, other: &Self, cover: Cover) -> Cover {
        if self.ignores_case || !matches!(cover, Cover::Whole | Cover::Part) {
            return cover;
        }
        if other.ignores_case {
            // It takes one spelling of several.
            let letters = self.text.bytes().any(|byte| byte.is_ascii_alphabetic());
            return if letters { Cover::Part } else { cover };
        }
        let shared = self.text.len().min(other.text.len());
        if self.text.as_bytes().get(..shared) == other.text.as_bytes().get(..shared) {
            cover
        } else {
            Cover::None
        }
    }

    /// Whether every further condition is one of `other` as well.
    fn conditions_hold(&self, other: &Self) -> bool {
        self.conditions.iter().all(|(name, condition)| match (condition, other.conditions.get(name)) {
            (Value::Array(conditions), Some(Value::Array(others))) => {
                conditions.iter().all(|condition| others.contains(condition))
            }
            (condition, other) => other == Some(condition),
        })
    }

    /// Whether no request can fulfil the tests of both.
    fn contradicts(&self, other: &Self) -> bool {
        let pairs = self.tests.iter().flat_map(|one| other.tests.iter().map(move |two| (one, two)));
        pairs.filter(|((one, _), (two, _))| one == two).any(|((_, one), (_, two))| match (one, two) {
            (Test::Is(one), Test::Is(two)) => one != two,
            (Test::Is(one), Test::IsNot(two)) | (Test::IsNot(one), Test::Is(two)) => one == two,
            (Test::Absent, Test::Is(_) | Test::Present) | (Test::Is(_) | Test::Present, Test::Absent) => true,
            _ => false,
        })
    }
}

/// What a match of a header or query parameter asks for.
fn test(of: &Place<'_>, kind: &str) -> (String, Test) {
    let name = format!("{kind}{}", of.get("name").text().unwrap_or_default().to_ascii_lowercase());
    let exact = [of.at("string_match.exact"), of.get("exact_match")].into_iter().find_map(|at| at.text());
    let inverted = of.get("invert_match").is_true();
    let bare = of.members().all(|(name, _)| matches!(name, "name" | "invert_match" | "invertMatch"));
    let present = of.get("present_match");
    let test = match exact {
        Some(text) if !of.at("string_match.ignore_case").is_true() => {
            if inverted {
                Test::IsNot(text.to_owned())
            } else {
                Test::Is(text.to_owned())
            }
        }
        None if bare || present.exists() => {
            if (bare || present.is_true()) != inverted {
                Test::Present
            } else {
                Test::Absent
            }
        }
        _ => Test::Unknown,
    };
    (name, test)
}

/// Matches in their order, found by their paths.
#[derive(Debug)]
pub(super) struct Table<'a> {
    matches: Vec<Match<'a>>,
    /// Those with a path that begins so.
    by_path: BTreeMap<String, Vec<usize>>,
    /// Those with an expression, as it is written.
    by_pattern: HashMap<String, Vec<usize>>,
    /// How often two matches were compared.
    compared: Cell<usize>,
}

impl<'a> Table<'a> {
    pub(super) fn new(matches: impl IntoIterator<Item = Match<'a>>) -> Self {
        let matches: Vec<_> = matches.into_iter().collect();
        let (mut by_path, mut by_pattern) = (BTreeMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (index, of) in matches.iter().enumerate() {
            match &of.path {
                Path::Prefix(path) | Path::Exact(path) | Path::Separated(path) => {
                    by_path.entry(path.clone()).or_default().push(index);
                }
                Path::Other(pattern) => by_pattern.entry(pattern.clone()).or_default().push(index),
            }
        }
        Self { matches, by_path, by_pattern, compared: Cell::new(0) }
    }

    pub(super) fn get(&self, index: usize) -> Option<&Match<'a>> {
        self.matches.get(index)
    }

    /// Those that take requests of `other`, in their order, with how many: all but [`Cover::None`].
    /// Of those that can't be told, only with `unknown`.
    pub(super) fn covering(&self, other: &Match<'_>, unknown: bool) -> impl Iterator<Item = (usize, Cover)> {
        self.near(other, unknown).into_iter().filter_map(move |index| {
            self.compared.set(self.compared.get() + 1);
            let cover = self.matches.get(index)?.cover(other);
            (cover != Cover::None && (unknown || cover != Cover::Unknown)).then_some((index, cover))
        })
    }

    /// The first that takes all paths of `other`, whatever else it asks for.
    pub(super) fn first_by_path(&self, other: &Match<'_>) -> Option<usize> {
        let mut near = self.near(other, false).into_iter();
        near.find(|index| self.matches.get(*index).is_some_and(|of| of.cover_paths(other) == Cover::Whole))
    }

    /// Those whose paths may be among those of `other`, in their order.
    fn near(&self, other: &Match<'_>, unknown: bool) -> Vec<usize> {
        let mut found: Vec<usize> = match &other.path {
            Path::Other(_) if unknown => (0..self.matches.len()).collect(),
            Path::Other(pattern) => {
                let every = self.by_path.get("").into_iter().chain(self.by_pattern.get(pattern));
                every.flatten().copied().collect()
            }
            Path::Prefix(path) | Path::Exact(path) | Path::Separated(path) => {
                let shorter = path.char_indices().filter_map(|(at, _)| self.by_path.get(path.get(..at)?));
                let longer = self.by_path.range(path.clone()..);
                let longer = longer.take_while(|(one, _)| one.starts_with(path)).map(|(_, found)| found);
                let patterns = self.by_pattern.values().filter(|_| unknown);
                shorter.chain(longer).chain(patterns).flatten().copied().collect()
            }
        };
        found.sort_unstable();
        found
    }

    #[cfg(test)]
    pub(super) fn compared(&self) -> usize {
        self.compared.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tree;
    use proptest::prelude::*;

    const METHOD: &str = "{prefix: /, headers: [{name: ':method', string_match: {exact: GET}}]}";
    const NO_METHOD: &str = "{prefix: /, headers: [{name: ':method', exact_match: GET, invert_match: true}]}";

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
            ("{path: /ab}", "{path_separated_prefix: /a}", None),
            ("{path_separated_prefix: /a}", "{prefix: /a}", Part),
            ("{path_separated_prefix: /a}", "{path: /ab}", None),
            ("{path_separated_prefix: /a/b}", "{path: /a}", None),
            ("{path_separated_prefix: /a}", "{path: /a/b}", Whole),
            ("{path_separated_prefix: /a}", "{prefix: /a/b}", Whole),
            ("{prefix: /A, case_sensitive: false}", "{path: /ab}", Whole),
            ("{prefix: /A}", "{path: /ab}", None),
            ("{path: /ab}", "{prefix: /A}", None),
            ("{prefix: /a}", "{path: /AB, caseSensitive: false}", Part),
            ("{safe_regex: {regex: /.*}}", "{prefix: /a}", Whole),
            ("{safe_regex: {regex: /a+}}", "{safe_regex: {regex: /a+}}", Whole),
            ("{safe_regex: {regex: /a+}}", "{prefix: /a}", Unknown),
            ("{prefix: /a}", "{safe_regex: {regex: /a+}}", Unknown),
            ("{prefix: /, headers: [{name: a}]}", "{prefix: /}", Part),
            ("{prefix: /, headers: [{name: a}]}", "{prefix: /, headers: [{name: b}, {name: a}]}", Whole),
            (
                "{prefix: /, queryParameters: [{name: a}]}",
                "{prefix: /, query_parameters: [{name: a}]}",
                Whole,
            ),
            ("{prefix: /, grpc: {}}", "{prefix: /a}", Part),
            (METHOD, NO_METHOD, None),
            (METHOD, METHOD, Whole),
            (METHOD, "{prefix: /, headers: [{name: ':method', exact_match: POST}]}", None),
            (NO_METHOD, "{prefix: /, headers: [{name: ':method', exact_match: POST}]}", Part),
            (
                "{prefix: /, headers: [{name: A, present_match: false}]}",
                "{prefix: /, headers: [{name: a}]}",
                None,
            ),
            (
                "{prefix: /, headers: [{name: a, string_match: {exact: b, ignore_case: true}}]}",
                "{prefix: /, headers: [{name: a, string_match: {exact: B}}]}",
                Part,
            ),
        ] {
            let parse = |text: &str| tree::parse(text, 1).unwrap().remove(0);
            let (a, b) = (parse(of), parse(other));
            let read = |node| Match::new(Place::new("f", node));
            assert_eq!(read(&a).cover(&read(&b)), expected, "{of} {other}");
        }
    }

    proptest! {
        #[test]
        fn a_table_finds_what_comparing_each_finds(
            paths in proptest::collection::vec(("prefix|path|path_separated_prefix|safe_regex", "/[aAb/]{0,4}", any::<bool>()), 1..20),
            unknown in any::<bool>(),
        ) {
            let texts = paths.iter().map(|(kind, path, exact)| match kind.as_str() {
                "safe_regex" => format!("{{safe_regex: {{regex: '{path}'}}}}"),
                kind => format!("{{{kind}: '{path}', case_sensitive: {exact}}}"),
            });
            let nodes: Vec<_> = texts.map(|text| tree::parse(&text, 1).unwrap().remove(0)).collect();
            let read = || nodes.iter().map(|node| Match::new(Place::new("f", node)));
            let table = Table::new(read());
            for other in read() {
                let each = read().map(|one| one.cover(&other)).enumerate();
                let each = each.filter(|(_, cover)| match cover {
                    Cover::None => false,
                    Cover::Unknown => unknown,
                    Cover::Whole | Cover::Part => true,
                });
                prop_assert_eq!(table.covering(&other, unknown).collect::<Vec<_>>(), each.collect::<Vec<_>>());
            }
        }
    }
}

//! YAML and JSON as a tree whose every node knows its line.
//!
//! Built from the events of the parser that the rest of the workspace reads YAML with. JSON is read
//! as the kind of YAML that it is. Input is hostile: the number of nodes (aliases copied) and the
//! depth are bounded, so that no file takes the memory or the stack.

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Most nodes of a file. The largest bootstraps in use have some ten thousand.
const NODES_MAX: usize = 1_000_000;

/// Deepest nesting.
const DEPTH_MAX: usize = 200;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Line, from 1; 0 where there is none.
    pub line: usize,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Nothing is written here.
    Missing,
    Null,
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Member>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scalar {
    pub text: String,
    /// Without quotes: a number or a word may be meant.
    pub plain: bool,
    /// Read as JSON, or as YAML that becomes JSON: every number is one. Envoy reads YAML otherwise.
    pub json: bool,
    /// Line of the text itself, if its lines are lines of the file (a literal block).
    pub block_line: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub name: String,
    pub line: usize,
    pub value: Node,
}

/// Text that is no YAML.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NotYaml {
    pub line: usize,
    pub message: String,
}

pub(super) static MISSING: Node = Node { line: 0, kind: Kind::Missing };

impl Node {
    /// A member, by its name in snake case or camel case: Envoy takes both.
    pub(super) fn get(&self, name: &str) -> &Node {
        self.member(name).map_or(&MISSING, |member| &member.value)
    }

    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        let Kind::Map(members) = &self.kind else { return None };
        let find = |name: &str| members.iter().find(|member| member.name == name);
        find(name).or_else(|| if name.contains('_') { find(&camel_case(name)) } else { None })
    }

    /// Members of a map.
    pub(super) fn members(&self) -> &[Member] {
        if let Kind::Map(members) = &self.kind { members } else { &[] }
    }

    /// Items of a list.
    pub(super) fn items(&self) -> &[Node] {
        if let Kind::List(items) = &self.kind { items } else { &[] }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Kind::Scalar(scalar) = &self.kind { Some(&scalar.text) } else { None }
    }

    pub(super) fn exists(&self) -> bool {
        !matches!(self.kind, Kind::Missing | Kind::Null)
    }

    /// As JSON, plain scalars read as Envoy reads them.
    pub(super) fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Missing | Kind::Null => Value::Null,
            Kind::Scalar(scalar) if scalar.plain && scalar.json => {
                number(&scalar.text).unwrap_or_else(|| plain(&scalar.text))
            }
            Kind::Scalar(scalar) if scalar.plain => plain(&scalar.text),
            Kind::Scalar(scalar) => Value::String(scalar.text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Kind::Map(members) => {
                let members = members.iter().map(|member| (member.name.clone(), member.value.to_json()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// Takes it, and all that is inside, for JSON.
    pub(super) fn take_for_json(&mut self) {
        match &mut self.kind {
            Kind::Missing | Kind::Null => {}
            Kind::Scalar(scalar) => scalar.json = true,
            Kind::List(items) => items.iter_mut().for_each(Self::take_for_json),
            Kind::Map(members) => members.iter_mut().for_each(|member| member.value.take_for_json()),
        }
    }

    fn size(&self) -> (usize, usize) {
        let inner: Vec<_> = match &self.kind {
            Kind::List(items) => items.iter().map(Self::size).collect(),
            Kind::Map(members) => members.iter().map(|member| member.value.size()).collect(),
            Kind::Missing | Kind::Null | Kind::Scalar(_) => Vec::new(),
        };
        let nodes = inner.iter().map(|(nodes, _)| nodes).sum::<usize>() + 1;
        (nodes, inner.iter().map(|(_, depth)| *depth).max().unwrap_or_default() + 1)
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

fn plain(text: &str) -> Value {
    match text {
        // As yaml-cpp, Envoy's reader, takes them: `mode: off` is a boolean there, not the word.
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        // Integers only, and as numbers only those of 32 bits: all else is text.
        _ => match integer(text) {
            Some(number) if i32::try_from(number).is_ok() => Value::from(number),
            Some(number) => Value::String(number.to_string()),
            None => Value::String(text.to_owned()),
        },
    }
}

/// A number as JSON has it, whatever its size.
fn number(text: &str) -> Option<Value> {
    if let Some(number) = integer(text) {
        return Some(Value::from(number));
    }
    // No words, such as `inf`.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number = text.parse().ok().filter(|_| digits && text.bytes().any(|byte| byte.is_ascii_digit()))?;
    serde_json::Number::from_f64(number).map(Value::Number)
}

/// An integer as C++ reads it: decimal, `0x` and hexadecimal, or `0` and octal.
pub(super) fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // A second sign is none of them.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -number } else { number })
}

/// A collection that is being read.
enum Open {
    List {
        line: usize,
        anchor: usize,
        items: Vec<Node>,
    },
    Map {
        line: usize,
        anchor: usize,
        members: Vec<Member>,
        names: HashSet<String>,
        name: Option<(String, usize)>,
    },
}

/// Reads all documents of a text whose first line is number `first_line`.
pub(super) fn parse(text: &str, first_line: usize) -> Result<Vec<Node>, NotYaml> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder { documents: Vec::new(), open: Vec::new(), anchors: HashMap::new(), nodes: 0 };
    let offset = first_line.saturating_sub(1);
    for next in Parser::new_from_str(text) {
        let (event, span) = next
            .map_err(|error| NotYaml { line: error.marker().line() + offset, message: error.to_string() })?;
        let line = span.start.line().max(1) + offset;
        builder.event(event, line).map_err(|message| NotYaml { line, message: message.to_owned() })?;
    }
    Ok(builder.documents)
}

struct Builder {
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize, usize)>,
    nodes: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = matches!(style, ScalarStyle::Plain) && tag.is_none();
                let null = plain && matches!(text.as_ref(), "" | "~" | "null" | "Null" | "NULL");
                let kind = if null {
                    Kind::Null
                } else {
                    // The event's line is that of the first text that is not empty.
                    let empty = text.bytes().take_while(|byte| *byte == b'\n').count();
                    let literal = matches!(style, ScalarStyle::Literal);
                    let block_line = literal.then(|| line.saturating_sub(empty).max(1));
                    Kind::Scalar(Scalar { text: text.into_owned(), plain, json: false, block_line })
                };
                self.close(Node { line, kind }, anchor, 1, 1)
            }
            Event::Alias(id) => {
                let (node, nodes, depth) = self.anchors.get(&id).ok_or("an alias of nothing")?;
                let (mut node, nodes, depth) = (node.clone(), *nodes, *depth);
                node.line = line;
                self.close(node, 0, nodes, depth)
            }
            Event::SequenceStart(_, anchor, _) => self.start(Open::List { line, anchor, items: Vec::new() }),
            Event::MappingStart(_, anchor, _) => {
                let (members, names) = (Vec::new(), HashSet::new());
                self.start(Open::Map { line, anchor, members, names, name: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (node, anchor) = match self.open.pop().ok_or("an end without a beginning")? {
                    Open::List { line, anchor, items } => (Node { line, kind: Kind::List(items) }, anchor),
                    Open::Map { line, anchor, members, .. } => {
                        (Node { line, kind: Kind::Map(members) }, anchor)
                    }
                };
                // What is inside was counted when it was closed.
                self.close(node, anchor, 1, 0)
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, open: Open) -> Result<(), &'static str> {
        if self.open.len() >= DEPTH_MAX {
            return Err("nested too deep");
        }
        self.open.push(open);
        Ok(())
    }

    /// Puts a finished node where it belongs. It brings so many new nodes, and is so deep.
    fn close(&mut self, node: Node, anchor: usize, nodes: usize, depth: usize) -> Result<(), &'static str> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > NODES_MAX {
            return Err("too many values");
        }
        if self.open.len() + depth > DEPTH_MAX {
            return Err("nested too deep");
        }
        if anchor != 0 {
            let (nodes, depth) = node.size();
            self.anchors.insert(anchor, (node.clone(), nodes, depth));
        }
        match self.open.last_mut() {
            None => self.documents.push(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { members, names, name, .. }) => match name.take() {
                Some((name, line)) => {
                    if !names.insert(name.clone()) {
                        return Err("the same name twice in one map");
                    }
                    members.push(Member { name, line, value: node });
                }
                None => {
                    let text = match node.kind {
                        Kind::Scalar(scalar) => scalar.text,
                        Kind::Null => "null".to_owned(),
                        _ => return Err("a name that is no text"),
                    };
                    *name = Some((text, node.line));
                }
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str) -> Node {
        parse(text, 1).unwrap().remove(0)
    }

    #[test]
    fn every_value_knows_its_line() {
        let tree = one("# head\na: 1\nb:\n- x\n- {c: y}\nd: |\n  l1\n  l2\n");
        assert_eq!(tree.get("a").line, 2);
        assert_eq!(tree.get("b").items()[1].get("c").line, 5);
        let Kind::Scalar(block) = &tree.get("d").kind else { panic!() };
        assert_eq!((block.block_line, block.text.as_str()), (Some(7), "l1\nl2\n"));
        let json = one("{\n\t\"a\": {\n\t\t\"b\": [1,\n\t\t2]}}");
        assert_eq!(json.get("a").get("b").items()[1].line, 4);
        assert_eq!(parse("a: [", 5).unwrap_err().line, 5);
    }

    #[test]
    fn names_may_be_camel_case_and_stand_once() {
        assert_eq!(one("perTryTimeout: 1s").get("per_try_timeout").text(), Some("1s"));
        assert_eq!(parse("a: 1\na: 2", 1).unwrap_err().line, 2);
    }

    #[test]
    fn plain_words_are_typed_and_quoted_ones_are_text() {
        let text = "[1, 1.5, true, null, x, \"1\", 'true', 5s, -3, inf, off, 'off', yes, 0x10, 010, 08, 3000000000, +-1]";
        let expected = serde_json::json!([
            1,
            "1.5",
            true,
            null,
            "x",
            "1",
            "true",
            "5s",
            -3,
            "inf",
            false,
            "off",
            true,
            16,
            8,
            "08",
            "3000000000",
            "+-1"
        ]);
        assert_eq!(one(text).to_json(), expected);
    }

    #[test]
    fn json_has_numbers_of_every_size_and_with_fractions() {
        let mut tree = one("[9.0, 1e3, 3000000000, 5, true, '9.0', .5, inf, e, 5s]");
        assert_eq!(tree.to_json()[0], serde_json::json!("9.0"), "as Envoy reads YAML");
        tree.take_for_json();
        let expected =
            serde_json::json!([9.0, 1000.0, 3_000_000_000_u32, 5, true, "9.0", 0.5, "inf", "e", "5s"]);
        assert_eq!(tree.to_json(), expected);
    }

    #[test]
    fn aliases_are_copied_within_bounds() {
        let tree = one("a: &x {k: v}\nb: *x");
        assert_eq!((tree.get("b").get("k").text(), tree.get("b").line), (Some("v"), 2));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..10 {
            let list = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{list}]\n"));
        }
        assert_eq!(parse(&bomb, 1).unwrap_err().message, "too many values");
        let mut tower = "a0: &a0 [x]\n".to_owned();
        for i in 1..2_000 {
            tower.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
        }
        assert_eq!(parse(&tower, 1).unwrap_err().message, "nested too deep");
        assert!(parse(&"[".repeat(100_000), 1).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_tree_or_an_error(text in "(?s).{0,200}") {
            let _ = parse(&text, 1);
        }

        #[test]
        fn any_text_of_yaml_signs_is_a_tree_or_an_error(text in "[-a:&*{}\\[\\]|>\"'\n ,#!%?]{0,200}") {
            let _ = parse(&text, 1);
        }
    }
}

//! A node with its file: what a finding points at.

use super::code::Code;
use super::finding::{Finding, Severity};
use super::tree::{self, Kind, MISSING, Node};
use fencepost_filter_core::policy::quantity;

/// A node of a file. Where nothing is written, it keeps the line of what is around.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub file: &'a str,
    pub node: &'a Node,
    line: usize,
}

impl<'a> Place<'a> {
    pub(super) fn new(file: &'a str, node: &'a Node) -> Self {
        Self { file, node, line: node.line.max(1) }
    }

    /// A member, snake case; nothing where there is none.
    pub(super) fn get(&self, name: &str) -> Self {
        let (node, line) = match self.node.member(name) {
            Some(member) => (&member.value, member.line),
            None => (self.node.get(name), self.line),
        };
        Self { file: self.file, node, line }
    }

    /// A member's member: `a.b.c`. Names with dots need [`Self::get`].
    pub(super) fn at(&self, path: &str) -> Self {
        path.split('.').fold(*self, |place, name| place.get(name))
    }

    /// Nothing, in a file.
    pub(super) fn nothing(file: &'a str) -> Self {
        Self::new(file, &MISSING)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let file = self.file;
        self.node.items().iter().map(move |node| Self { file, node, line: node.line.max(1) })
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        let file = self.file;
        let members = self.node.members().iter();
        members.map(move |member| {
            (member.name.as_str(), Self { file, node: &member.value, line: member.line.max(1) })
        })
    }

    pub(super) fn exists(&self) -> bool {
        self.node.exists()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.node.text()
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.text() == Some(text)
    }

    pub(super) fn is_true(&self) -> bool {
        self.text().is_some_and(|text| {
            ["true", "True", "TRUE", "yes", "Yes", "YES", "y", "Y", "on", "On", "ON"].contains(&text)
        })
    }

    /// A number that is none below zero, as Envoy reads it: `10000`, `0x8000`, `1e4` or `10000.0`.
    pub(super) fn number(&self) -> Option<u64> {
        let Kind::Scalar(scalar) = &self.node.kind else { return None };
        let text = scalar.text.as_str();
        let plain = if scalar.plain { tree::integer(text) } else { None };
        let whole = plain.and_then(|number| u64::try_from(number).ok()).or_else(|| text.parse().ok());
        whole.or_else(|| {
            let float: f64 = text.parse().ok()?;
            ((0.0..1e15).contains(&float) && float.fract() == 0.0).then_some(float as u64)
        })
    }

    /// A duration as Envoy writes it: `1.5s`, or as Gateways do: `250ms`.
    pub(super) fn millis(&self) -> Option<u64> {
        let text = self.text()?;
        if let Some(quantity::Millis(ms)) = quantity::Millis::parse(text) {
            return Some(ms);
        }
        let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
        (0.0..1e15).contains(&seconds).then_some((seconds * 1_000.0).ceil() as u64)
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// The same file, another line.
    pub(super) fn on_line(self, line: usize) -> Self {
        Self { line, ..self }
    }

    /// The value as a finding shows it.
    pub(super) fn shown(&self) -> String {
        match &self.node.kind {
            Kind::Missing | Kind::Null => "nothing".to_owned(),
            Kind::Scalar(scalar) => {
                let short: String = scalar.text.chars().take(60).collect();
                format!("{short:?}")
            }
            Kind::List(items) => format!("a list of {}", items.len()),
            Kind::Map(_) => "a map".to_owned(),
        }
    }

    fn finding(&self, severity: Severity, code: Code, found: String, expected: String) -> Finding {
        Finding { file: self.file.to_owned(), line: self.line, severity, code, found, expected }
    }
}

/// Where findings are collected.
#[derive(Debug, Default)]
pub(super) struct Findings(pub Vec<Finding>);

impl Findings {
    pub(super) fn add(
        &mut self,
        severity: Severity,
        place: Place<'_>,
        code: Code,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.0.push(place.finding(severity, code, found.into(), expected.into()));
    }

    pub(super) fn error(
        &mut self,
        place: Place<'_>,
        code: Code,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.add(Severity::Error, place, code, found, expected);
    }

    pub(super) fn warning(
        &mut self,
        place: Place<'_>,
        code: Code,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.add(Severity::Warning, place, code, found, expected);
    }

    pub(super) fn note(
        &mut self,
        place: Place<'_>,
        code: Code,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.add(Severity::Note, place, code, found, expected);
    }
}

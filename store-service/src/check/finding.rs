//! What `check` says: a code, a place, what was found and what would be right.

use super::code::Code;
use serde::Serialize;
use std::fmt;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Wrong in some situations, or unusual.
    Warning,
    /// Breaks a promise, or does not work.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// File, as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// How bad.
    pub severity: Severity,
    /// Stable name of the finding.
    pub code: Code,
    /// What was found.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, severity, code, found, expected } = self;
        write!(f, "{file}:{line}: {severity}[{code}]: found {found}; expected {expected}")
    }
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Findings by file and line.
    pub findings: Vec<Finding>,
    /// How many of them.
    pub summary: Summary,
}

/// Counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Files read.
    pub files: usize,
    /// Filters of Fencepost found in them.
    pub filters: usize,
    /// Findings of severity error.
    pub errors: usize,
    /// Findings of severity warning.
    pub warnings: usize,
    /// Findings of severity note.
    pub notes: usize,
}

impl Report {
    pub(super) fn new(mut findings: Vec<Finding>, files: usize, filters: usize) -> Self {
        findings
            .sort_by(|a, b| (&a.file, a.line, a.code, &a.found).cmp(&(&b.file, b.line, b.code, &b.found)));
        findings.dedup();
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let summary = Summary {
            files,
            filters,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notes: count(Severity::Note),
        };
        Self { findings, summary }
    }

    /// Whether it counts as clean.
    pub fn is_clean(&self, strict: bool) -> bool {
        self.summary.errors == 0 && !(strict && self.summary.warnings > 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let Summary { files, filters, errors, warnings, notes } = self.summary;
        writeln!(f, "files={files} filters={filters} errors={errors} warnings={warnings} notes={notes}")
    }
}

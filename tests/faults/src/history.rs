//! What clients asked for and were told, and how it ended.

use fencepost_rig::client::Answer;
use std::collections::BTreeMap;

/// How a request is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guard {
    /// By a key, inside the client's stream.
    Inline,
    /// By a key, on a call of the filter's own.
    Detached,
    /// By a one-time grant.
    Grant,
}

/// One thing that a client wants done once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// How it is guarded.
    pub guard: Guard,
    /// Its key, or its operation's id.
    pub id: String,
    /// The grant that it spends.
    pub grant: Option<String>,
}

/// What was told about keeping an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The first answer, and it is stored: nothing may lose it.
    Stored,
    /// The first answer, marked as not stored (`unstored`, `lost`).
    NotStored,
    /// A replay.
    Replayed,
}

/// What one attempt was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The application's answer: what must be the same for ever.
    Answer {
        /// Status, `Location` and body.
        bytes: Vec<u8>,
        /// What was said about keeping it.
        kept: Kept,
    },
    /// A refusal that promises that this attempt ran nothing.
    Refused {
        /// HTTP status.
        status: u16,
        /// Its code.
        code: String,
    },
    /// Anything from which it can't be told whether this attempt ran.
    Unclear {
        /// HTTP status.
        status: u16,
        /// Its code; empty where there is none.
        code: String,
    },
    /// No answer came, or the client did not wait for it.
    Nothing,
}

/// How a subject stands after the faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The answer is kept, and it is this one.
    Answered(Vec<u8>),
    /// It is said that nobody knows: 409 `outcome_unknown`, or 202 of an operation.
    Unknown,
    /// It is refused for good: the grant went to another operation, or was never sent.
    Refused,
    /// None of these within the bound.
    Stuck,
}

/// Everything about one subject.
#[derive(Debug, Clone)]
pub struct Record {
    /// In the order of the answers.
    pub told: Vec<Told>,
    /// How it stands at the end; not asked yet where there is none.
    pub end: Option<End>,
    /// How often the upstream ran it.
    pub executions: u64,
}

/// All subjects.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// By subject.
    pub records: BTreeMap<Subject, Record>,
    /// Runs of what nobody asked for, by path or operation: there must be none.
    pub strangers: BTreeMap<String, u64>,
}

impl History {
    /// Writes down what an attempt was told.
    pub fn tell(&mut self, subject: &Subject, told: Told) {
        self.record(subject).told.push(told);
    }

    /// Writes down how a subject stands at the end.
    pub fn end(&mut self, subject: &Subject, end: End) {
        self.record(subject).end = Some(end);
    }

    /// Writes down how often each path or operation ran: of the subjects, and of what is no subject.
    pub fn ran(&mut self, mut runs: BTreeMap<String, u64>) {
        for (subject, record) in &mut self.records {
            record.executions = runs.remove(&subject.id).unwrap_or(0);
        }
        self.strangers = runs;
    }

    /// How often each refusal was told, and each end without an answer of the application's: by status
    /// and code, the most frequent first.
    pub fn refusals(&self) -> Vec<(String, usize)> {
        let mut counts = BTreeMap::<String, usize>::new();
        for told in self.records.values().flat_map(|record| &record.told) {
            let name = match told {
                Told::Answer { .. } => continue,
                Told::Refused { status, code } | Told::Unclear { status, code } => {
                    format!("{status} {code}").trim_end().to_owned()
                }
                Told::Nothing => "no answer".to_owned(),
            };
            *counts.entry(name).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }

    fn record(&mut self, subject: &Subject) -> &mut Record {
        let empty = || Record { told: Vec::new(), end: None, executions: 0 };
        self.records.entry(subject.clone()).or_insert_with(empty)
    }
}

/// Codes that promise that the attempt which gets them ran nothing (docs/problems.md).
const RAN_NOTHING: [&str; 14] = [
    "store_unavailable",
    "claim_too_late",
    "too_busy",
    "stalled",
    "in_progress",
    "outcome_unknown",
    "key_reused",
    "upstream_unreached",
    "grant_not_submitted",
    "grant_not_available",
    "grant_expired",
    "grant_not_covered",
    "grant_not_valid",
    "operation_failed",
];

impl Told {
    /// Reads an answer.
    pub fn of(answer: &Answer) -> Self {
        let (status, code) = (answer.status, answer.problem_code());
        if status == 201 {
            let location = answer.header("location").unwrap_or_default();
            let bytes = [format!("{status} {location}\n").as_bytes(), &answer.body].concat();
            let kept = match answer.header("x-fencepost-result") {
                _ if answer.is_replay() => Kept::Replayed,
                None => Kept::Stored,
                Some(_) => Kept::NotStored,
            };
            return Self::Answer { bytes, kept };
        }
        if status == 202 || RAN_NOTHING.contains(&code.as_str()) {
            return Self::Refused { status, code };
        }
        Self::Unclear { status, code }
    }

    /// The end that it tells, if it tells one.
    pub fn end(&self) -> Option<End> {
        match self {
            Self::Answer { bytes, kept: Kept::Replayed } => Some(End::Answered(bytes.clone())),
            // Told to nobody before, so it ran just now; the next one asked gets the replay.
            Self::Answer { .. } | Self::Nothing | Self::Unclear { .. } => None,
            Self::Refused { status: 202, .. } => Some(End::Unknown),
            Self::Refused { code, .. } => match code.as_str() {
                "outcome_unknown" => Some(End::Unknown),
                "grant_not_available" | "grant_not_submitted" | "operation_failed" => Some(End::Refused),
                _ => None,
            },
        }
    }
}

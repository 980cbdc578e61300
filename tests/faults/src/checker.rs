//! Judges a history: what the upstream ran against what clients were told. Pure.
//!
//! It holds for policies under `hold` whose upstream answers nothing that would free a key, and for
//! faults that the database's durability covers. What it can't see: work that an upstream does twice
//! for one request.

use crate::history::{End, History, Kept, Record, Subject, Told};
use std::collections::BTreeMap;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// One key, or one operation, ran more than once.
    RanTwice(Subject, u64),
    /// One grant was spent by several runs.
    GrantSpentTwice(String, u64),
    /// Two answers of one subject differ.
    AnswersDiffer(Subject),
    /// A client was told that its answer is kept, and it is not there any more.
    CompletionLost(Subject, End),
    /// A client was told an answer, and nothing ran.
    AnsweredWithoutRun(Subject),
    /// Every attempt was refused before it ran, and something ran.
    RanAlthoughRefused(Subject),
    /// A client was told that its answer is kept, and a later one was told something else.
    ForgottenMeanwhile(Subject, Told),
    /// Something ran that nobody asked for.
    RanUnasked(String, u64),
    /// Nothing is known about it when its bound is over.
    Stuck(Subject),
}

/// All broken promises of a history that has ended.
pub fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut spent = BTreeMap::<&str, u64>::new();
    for (subject, record) in &history.records {
        check_one(subject, record, &mut violations);
        if let Some(grant) = &subject.grant {
            *spent.entry(grant).or_default() += record.executions;
        }
    }
    let twice = spent.into_iter().filter(|(_, runs)| *runs > 1);
    violations.extend(twice.map(|(grant, runs)| Violation::GrantSpentTwice(grant.to_owned(), runs)));
    violations.extend(history.strangers.iter().map(|(id, runs)| Violation::RanUnasked(id.clone(), *runs)));
    violations
}

fn check_one(subject: &Subject, record: &Record, violations: &mut Vec<Violation>) {
    let mut broken = |violation: fn(Subject) -> Violation| violations.push(violation(subject.clone()));
    let end = record.end.clone().unwrap_or(End::Stuck);
    let mut answers: Vec<&Vec<u8>> = record.told.iter().filter_map(answer).collect();
    if let End::Answered(bytes) = &end {
        answers.push(bytes);
    }
    if answers.windows(2).any(|pair| pair.first() != pair.last()) {
        broken(Violation::AnswersDiffer);
    }
    if record.executions == 0 && !answers.is_empty() {
        broken(Violation::AnsweredWithoutRun);
    }
    let refused = |told: &Told| matches!(told, Told::Refused { .. });
    if record.executions > 0 && record.told.iter().all(refused) {
        broken(Violation::RanAlthoughRefused);
    }
    if end == End::Stuck {
        broken(Violation::Stuck);
    }
    let promised = record.told.iter().any(|told| matches!(told, Told::Answer { kept: Kept::Stored, .. }));
    if promised && !matches!(end, End::Answered(_)) {
        violations.push(Violation::CompletionLost(subject.clone(), end));
    }
    let kept = |told: &Told| matches!(told, Told::Answer { kept: Kept::Stored | Kept::Replayed, .. });
    let after = record.told.iter().skip_while(|told| !kept(told));
    for told in after.filter(|told| denies_an_answer(told)) {
        violations.push(Violation::ForgottenMeanwhile(subject.clone(), told.clone()));
    }
    if record.executions > 1 {
        violations.push(Violation::RanTwice(subject.clone(), record.executions));
    }
}

/// Says that there is no answer, or that nobody knows of one. Of outages and refusals of a proxy
/// nothing follows.
fn denies_an_answer(told: &Told) -> bool {
    const DENIES: [&str; 6] = [
        "outcome_unknown",
        "operation_failed",
        "grant_not_submitted",
        "grant_not_available",
        "in_progress",
        "key_reused",
    ];
    matches!(told, Told::Refused { status, code } if *status == 202 || DENIES.contains(&code.as_str()))
}

fn answer(told: &Told) -> Option<&Vec<u8>> {
    match told {
        Told::Answer { bytes, .. } => Some(bytes),
        Told::Refused { .. } | Told::Unclear { .. } | Told::Nothing => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Guard;

    fn key(id: &str) -> Subject {
        Subject { guard: Guard::Inline, id: id.into(), grant: None }
    }

    fn first(text: &str) -> Told {
        Told::Answer { bytes: text.into(), kept: Kept::Stored }
    }

    fn replay(text: &str) -> Told {
        Told::Answer { bytes: text.into(), kept: Kept::Replayed }
    }

    fn unstored(text: &str) -> Told {
        Told::Answer { bytes: text.into(), kept: Kept::NotStored }
    }

    fn refused(code: &str) -> Told {
        Told::Refused { status: 503, code: code.into() }
    }

    fn answered(text: &str) -> End {
        End::Answered(text.into())
    }

    fn history(subject: Subject, told: &[Told], end: Option<End>, executions: u64) -> History {
        let record = Record { told: told.to_vec(), end, executions };
        History { records: BTreeMap::from([(subject, record)]), ..History::default() }
    }

    fn judged(told: &[Told], end: End, executions: u64) -> Vec<Violation> {
        check(&history(key("k"), told, Some(end), executions))
    }

    #[test]
    fn honest_histories_pass() {
        let unclear = Told::Unclear { status: 504, code: "upstream_lost".into() };
        for (told, end, executions) in [
            (vec![first("a"), replay("a")], answered("a"), 1),
            (vec![refused("store_unavailable"), first("a")], answered("a"), 1),
            (vec![Told::Nothing], End::Unknown, 1),
            (vec![Told::Nothing], End::Unknown, 0),
            (vec![Told::Nothing, refused("in_progress")], answered("a"), 1),
            (vec![unclear], End::Unknown, 1),
            // The client got its answer, and it was said that it is not stored.
            (vec![unstored("a")], End::Unknown, 1),
            (vec![unstored("a")], answered("a"), 1),
        ] {
            assert_eq!(judged(&told, end, executions), [], "{told:?}");
        }
    }

    #[test]
    fn a_second_run_is_flagged() {
        assert_eq!(judged(&[first("a"), replay("a")], answered("a"), 2), [Violation::RanTwice(key("k"), 2)]);
        assert_eq!(judged(&[Told::Nothing], End::Unknown, 2), [Violation::RanTwice(key("k"), 2)]);
    }

    #[test]
    fn a_replay_that_differs_in_a_byte_is_flagged() {
        let differ = [Violation::AnswersDiffer(key("k"))];
        assert_eq!(judged(&[first("a"), replay("b")], answered("a"), 1), differ);
        assert_eq!(judged(&[first("a"), Told::Nothing, replay("a")], answered("b"), 1), differ);
        assert_eq!(judged(&[unstored("a")], answered("b"), 1), differ);
    }

    #[test]
    fn a_completion_that_was_told_and_is_gone_is_flagged() {
        let lost = |end: End| Violation::CompletionLost(key("k"), end);
        assert_eq!(judged(&[first("a")], End::Unknown, 1), [lost(End::Unknown)]);
        assert_eq!(judged(&[first("a")], End::Refused, 1), [lost(End::Refused)]);
    }

    #[test]
    fn an_answer_from_nowhere_is_flagged() {
        assert_eq!(judged(&[first("a")], answered("a"), 0), [Violation::AnsweredWithoutRun(key("k"))]);
    }

    #[test]
    fn a_run_of_what_was_only_refused_is_flagged() {
        let ran = [Violation::RanAlthoughRefused(key("k"))];
        assert_eq!(judged(&[refused("store_unavailable")], End::Unknown, 1), ran);
        assert_eq!(judged(&[refused("store_unavailable"), Told::Nothing], End::Unknown, 1), []);
    }

    #[test]
    fn an_answer_that_is_forgotten_for_a_while_is_flagged() {
        let unknown = refused("outcome_unknown");
        let forgotten = [Violation::ForgottenMeanwhile(key("k"), unknown.clone())];
        assert_eq!(judged(&[first("a"), unknown.clone(), replay("a")], answered("a"), 1), forgotten);
        assert_eq!(judged(&[replay("a"), unknown.clone()], answered("a"), 1), forgotten);
        // Said before it was known, or by a proxy that knows of nothing.
        assert_eq!(judged(&[unknown.clone(), replay("a")], answered("a"), 1), []);
        assert_eq!(judged(&[unstored("a"), unknown, replay("a")], answered("a"), 1), []);
        assert_eq!(judged(&[first("a"), refused("store_unavailable")], answered("a"), 1), []);
    }

    #[test]
    fn a_run_that_nobody_asked_for_is_flagged() {
        let mut history = history(key("/pay/1"), &[first("a")], Some(answered("a")), 0);
        history.ran(BTreeMap::from([("/pay/1".to_owned(), 1), ("/pay/2".to_owned(), 3)]));
        assert_eq!(check(&history), [Violation::RanUnasked("/pay/2".into(), 3)]);
    }

    #[test]
    fn refusals_are_counted_by_what_was_told() {
        let unclear = Told::Unclear { status: 504, code: String::new() };
        let told = [refused("a"), refused("b"), Told::Nothing, refused("b"), first("x"), unclear];
        let counted = history(key("k"), &told, None, 1).refusals();
        let named = [("503 b", 2), ("503 a", 1), ("504", 1), ("no answer", 1)];
        assert_eq!(counted, named.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn a_key_that_nothing_is_known_about_is_flagged() {
        let stuck = [Violation::Stuck(key("k"))];
        assert_eq!(judged(&[refused("in_progress")], End::Stuck, 0), stuck);
        assert_eq!(check(&history(key("k"), &[Told::Nothing], None, 0)), stuck, "never asked");
    }

    #[test]
    fn a_grant_that_two_operations_spent_is_flagged() {
        let operation = |id: &str| Subject { guard: Guard::Grant, id: id.into(), grant: Some("g".into()) };
        let mut both = history(operation("1"), &[first("a")], Some(answered("a")), 1);
        both.records.extend(history(operation("2"), &[first("b")], Some(answered("b")), 1).records);
        assert_eq!(check(&both), [Violation::GrantSpentTwice("g".into(), 2)]);
        let mut one = history(operation("1"), &[first("a")], Some(answered("a")), 1);
        let denied = [refused("grant_not_available")];
        one.records.extend(history(operation("2"), &denied, Some(End::Refused), 0).records);
        assert_eq!(check(&one), []);
    }
}

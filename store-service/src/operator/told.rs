//! Histories as sentences for people. Programs read the words that they are made from, in JSON.
//!
//! A word that is not known, because the service is newer than the program, stands as it is.

use super::desk_model::EventView;
use super::model::AuditLine;

/// A line of a history.
pub struct Told {
    /// What was done.
    pub what: String,
    /// More about it; may be empty.
    pub detail: String,
}

/// A line of an operation's history.
pub fn event(event: &EventView) -> Told {
    let EventView { step, result, status, detail, .. } = event;
    let known = known(result);
    let (what, detail) = match (&step[..], &status[..]) {
        ("take_over", _) => ("Taken over by recovery".to_owned(), detail.clone()),
        ("look_up", _) => ("Looked up".to_owned(), with("at provider ", detail)),
        ("submit", _) => ("Sent again".to_owned(), both(&with("to provider ", detail), &known)),
        ("postpone", _) => ("Left for later".to_owned(), both(&known, detail)),
        ("record", "needs_reconciliation") => {
            let (word, more) = detail.split_once(": ").unwrap_or((detail.as_str(), ""));
            ("Given to a person".to_owned(), both(&because(word), &both(&known, more)))
        }
        ("record", ended) => (format!("Recorded as {}", plain(ended)), both(&known, detail)),
        ("settle_succeeded", _) => ("Said to have succeeded".to_owned(), detail.clone()),
        ("settle_failed", _) => ("Said to have failed".to_owned(), detail.clone()),
        ("look_again", _) => ("Sent back to recovery, to look again".to_owned(), detail.clone()),
        (other, _) => (plain(other), both(&plain(result), detail)),
    };
    Told { what, detail }
}

/// A line of the audit of a key.
pub fn order(line: &AuditLine) -> Told {
    let what = match &line.action[..] {
        "release" => "Released, so that it may run again",
        "settle_not_run" => "Said not to have run, so that it may",
        "settle_answer" => "Given an answer",
        "look_at_answer" => "Its answer was looked at",
        "erase" => "Its answer was erased",
        "look_again" => "Sent back to recovery, to look again",
        other => return Told { what: plain(other), detail: line.reason.clone() },
    };
    let changed = line.state_before != line.state_after;
    let was = if changed { format!(" (it was {})", line.state_before) } else { String::new() };
    let forced = if line.forced { ", though its request might have been running" } else { "" };
    Told { what: format!("{what}{was}{forced}"), detail: line.reason.clone() }
}

/// What was known before a step.
fn known(word: &str) -> String {
    match word {
        "not_asked" => "the provider was not asked",
        "succeeded" => "the provider says that it succeeded",
        "refused" => "the provider says that it refused",
        "in_progress" => "the provider is still at it",
        "not_found" => "the provider knows nothing of it",
        "unclear" => "the provider's answer is unclear",
        "unreachable" => "the provider gave no answer",
        other => return plain(other),
    }
    .to_owned()
}

/// Why a person is needed.
fn because(word: &str) -> String {
    match word {
        "no_provider" => "no provider serves its issuer",
        "no_lookup" => "the provider has no look-up",
        "window_passed" => "the time to send it is over",
        "key_forgotten" => "the provider may have forgotten its key",
        "attempts" => "it was looked up too often",
        "age" => "it has been open for too long",
        other => return plain(other),
    }
    .to_owned()
}

fn plain(word: &str) -> String {
    word.replace('_', " ")
}

fn with(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{text}") }
}

fn both(one: &str, other: &str) -> String {
    match (one, other) {
        ("", text) | (text, "") => text.to_owned(),
        (one, other) => format!("{one}: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::plan::{Answer, Because, Known};
    use crate::recovery::store::StepName;

    fn told(step: &str, result: &str, status: &str, detail: &str) -> String {
        let text = |text: &str| text.to_owned();
        let told = event(&EventView {
            at_us: 0,
            who: text("ann"),
            step: text(step),
            owner_version: 2,
            result: text(result),
            status: text(status),
            detail: text(detail),
        });
        both(&told.what, &told.detail)
    }

    #[test]
    fn histories_are_sentences() {
        for (line, text) in [
            (("take_over", "", "admitted", "billing"), "Taken over by recovery: billing"),
            (("look_up", "", "admitted", "billing"), "Looked up: at provider billing"),
            (
                ("submit", "not_found", "admitted", "billing"),
                "Sent again: to provider billing: the provider knows nothing of it",
            ),
            (
                ("postpone", "unreachable", "admitted", "status 503"),
                "Left for later: the provider gave no answer: status 503",
            ),
            (
                ("record", "not_found", "needs_reconciliation", "attempts: "),
                "Given to a person: it was looked up too often: the provider knows nothing of it",
            ),
            (
                ("record", "succeeded", "succeeded", ""),
                "Recorded as succeeded: the provider says that it succeeded",
            ),
            (("settle_failed", "unknown", "failed", "case 1"), "Said to have failed: case 1"),
            (("of_tomorrow", "new_word", "admitted", "why"), "of tomorrow: new word: why"),
        ] {
            assert_eq!(told(line.0, line.1, line.2, line.3), text);
        }
    }

    /// A word that recovery writes has its sentence here.
    #[test]
    fn no_word_of_recovery_is_left_without_its_sentence() {
        let answers = [
            Answer::Succeeded { reference: None, answer: None },
            Answer::Refused { reason: None, answer: None },
            Answer::InProgress,
            Answer::NotFound,
            Answer::Unclear(String::new()),
            Answer::Unreachable(String::new()),
        ];
        for word in answers.map(Known::Lookup).iter().chain([&Known::NotAsked]).map(Known::word) {
            assert!(known(word).starts_with("the provider"), "{word}");
        }
        for because_of in [
            Because::NoProvider,
            Because::NoLookup,
            Because::WindowPassed,
            Because::KeyForgotten,
            Because::Attempts,
            Because::Age,
        ] {
            assert_ne!(because(because_of.word()), plain(because_of.word()));
        }
        for step in [StepName::LookUp, StepName::Submit] {
            assert_ne!(told(step.word(), "", "admitted", ""), plain(step.word()));
        }
        use crate::desk::Ending;
        for ending in [Ending::Succeeded, Ending::Failed, Ending::LookAgain] {
            assert_ne!(told(ending.action(), "", "unknown", ""), plain(ending.action()));
        }
    }

    #[test]
    fn orders_say_what_was_and_what_was_risked() {
        let mut line = AuditLine {
            at_us: 0,
            who: "ann".into(),
            action: "release".into(),
            version: "1.1".into(),
            state_before: "claimed".into(),
            state_after: "released".into(),
            forced: true,
            reason: "why".into(),
        };
        let text =
            "Released, so that it may run again (it was claimed), though its request might have been running";
        assert_eq!(order(&line).what, text);
        (line.action, line.state_after, line.forced) = ("look_at_answer".into(), "claimed".into(), false);
        assert_eq!(order(&line).what, "Its answer was looked at");
    }
}

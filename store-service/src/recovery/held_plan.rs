//! What happens next to a held key: decided from what is known, without I/O, clock or randomness.
//!
//! A key is held because its request may have run. It gets its answer where that is found; in every
//! other case it stays held, and after enough looking it is marked for a person. No step here
//! releases it: "not found" does not mean "not run".

use super::plan::GiveUp;
use crate::entry::Ruling;

/// What was said about a held key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeldAnswer {
    /// It ran; this is its answer.
    Found(Ruling),
    /// It ran or was refused, and its answer was not given.
    NoAnswer,
    /// It is being worked on.
    InProgress,
    /// Nothing is known of it there. That proves nothing.
    NotFound,
    /// An answer that says nothing; why.
    Unclear(String),
    /// No answer; why.
    Unreachable(String),
    /// The provider is left alone for a while, and was not asked.
    NotAsked,
}

impl HeldAnswer {
    /// Word of the marker and of metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Found(_) => "found",
            Self::NoAnswer => "no_answer",
            Self::InProgress => "in_progress",
            Self::NotFound => "not_found",
            Self::Unclear(_) => "unclear",
            Self::Unreachable(_) => "unreachable",
            Self::NotAsked => "not_asked",
        }
    }
}

/// What happens next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeldStep {
    /// Complete it with this answer, if it is still what was seen.
    Complete(Ruling),
    /// Come back later.
    Later {
        /// Does this attempt count?
        counted: bool,
    },
    /// It stays held, and a person is told why.
    Mark(String),
}

/// The next step for a key after so many attempts in so many turns, held for so long.
pub fn plan_held(attempts: u32, turns: u32, age_ms: u64, answer: HeldAnswer, give_up: &GiveUp) -> HeldStep {
    let counted = match answer {
        HeldAnswer::Found(ruling @ Ruling::Answer { .. }) => return HeldStep::Complete(ruling),
        HeldAnswer::NoAnswer => {
            return HeldStep::Mark("it was carried out or refused, and its answer was not given".into());
        }
        // Nobody's look-up frees a key.
        HeldAnswer::Found(Ruling::Free(_)) | HeldAnswer::NotFound | HeldAnswer::Unclear(_) => true,
        HeldAnswer::NotAsked => return HeldStep::Later { counted: false },
        HeldAnswer::Unreachable(_) if give_up.waits_for_silence(attempts, turns, age_ms) => {
            return HeldStep::Later { counted: false };
        }
        HeldAnswer::InProgress | HeldAnswer::Unreachable(_) => false,
    };
    if age_ms >= give_up.age_ms {
        return HeldStep::Mark(format!("{}, and held for too long", told(&answer)));
    }
    if counted && attempts.saturating_add(1) >= give_up.attempts {
        return HeldStep::Mark(format!("{}, after {} look-ups", told(&answer), attempts.saturating_add(1)));
    }
    HeldStep::Later { counted }
}

fn told(answer: &HeldAnswer) -> String {
    match answer {
        HeldAnswer::Found(_) | HeldAnswer::NoAnswer => "no answer was given".into(),
        HeldAnswer::InProgress => "in progress".into(),
        HeldAnswer::NotFound => "not found, which does not mean that it did not run".into(),
        HeldAnswer::Unclear(why) => format!("unclear: {why}"),
        HeldAnswer::Unreachable(why) => format!("the provider can't be asked: {why}"),
        HeldAnswer::NotAsked => "the provider was not asked".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use fencepost_protocol::claims::ReleaseCause;

    #[test]
    fn no_answer_of_anybody_releases_a_held_key() {
        let found =
            Ruling::Answer { status: 201, headers: Bytes::new(), body: Bytes::from_static(b"x"), ttl_ms: 1 };
        let answers = [
            HeldAnswer::Found(found.clone()),
            HeldAnswer::Found(Ruling::Free(ReleaseCause::NotRun)),
            HeldAnswer::NoAnswer,
            HeldAnswer::InProgress,
            HeldAnswer::NotFound,
            HeldAnswer::Unclear("x".into()),
            HeldAnswer::Unreachable("x".into()),
            HeldAnswer::NotAsked,
        ];
        let give_up = GiveUp { attempts: 3, age_ms: 1_000 };
        for answer in answers {
            for attempts in [0, 1, 2, 3, u32::MAX] {
                for (age_ms, turns) in [0, 999, 1_000, 1_999, 2_000, u64::MAX]
                    .into_iter()
                    .flat_map(|age| [0, 2, 3, u32::MAX].map(|turns| (age, turns)))
                {
                    let step = plan_held(attempts, turns, age_ms, answer.clone(), &give_up);
                    let silent = matches!(answer, HeldAnswer::Unreachable(_)) && attempts == 0;
                    let patient = answer == HeldAnswer::NotAsked || silent && (turns < 3 || age_ms < 2_000);
                    match &step {
                        HeldStep::Complete(ruling) => assert_eq!(*ruling, found),
                        HeldStep::Later { .. } => assert!(age_ms < 1_000 || patient),
                        HeldStep::Mark(why) => {
                            assert!(!why.is_empty() && !patient, "{answer:?} {age_ms} {turns}")
                        }
                    }
                    let is_found = answer == HeldAnswer::Found(found.clone());
                    assert_eq!(matches!(step, HeldStep::Complete(_)), is_found, "{answer:?}");
                    if matches!(answer, HeldAnswer::NotFound | HeldAnswer::Unclear(_)) && attempts >= 2 {
                        assert!(matches!(step, HeldStep::Mark(_)), "{answer:?} {attempts}");
                    }
                }
            }
        }
    }
}

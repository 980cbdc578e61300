//! What happens next to an operation: decided from what is known, without I/O, clock or randomness.
//!
//! Rules, in the order in which they win:
//! - An end, and what waits for a person, is left alone. So is what somebody else owns.
//! - Found is [`Step::Succeed`]. Only the provider's own word that it refused is [`Step::Fail`].
//!   Not found, silence and nonsense are neither.
//! - Nothing is looked up, or sent again, where the provider declares no look-up.
//! - Nothing is sent again but inside the declared contract: concurrent requests with one key are one,
//!   the same parameters give the same answer, the key is remembered for longer than the operation has
//!   been open; and before submit_by. The store checks owner, lease and submit_by once more right
//!   before sending.
//! - What stays open for too long, or was looked up too often, goes to a person; but not because a
//!   provider happened to be silent when it was its turn. Silence alone ends it only where it was never
//!   answered in many turns and twice the age. Who is not asked is not judged.

use crate::grant::operation::OperationAnswer;
use fencepost_protocol::grants::OperationStatus;

/// What the provider promises, as the settings declare it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contract {
    /// An effect can be looked up by the operation's id.
    pub lookup: bool,
    /// There is a way to send again.
    pub submit: bool,
    /// Concurrent requests with the same key are handled as one.
    pub atomic_concurrent_keys: bool,
    /// A repeated request with the same key and parameters gives the answer of the first.
    pub same_parameters: bool,
    /// How long a key is surely remembered: as documented, less the margin.
    pub key_kept_ms: u64,
}

impl Contract {
    /// May anything be sent again for an operation of this age, as far as the provider goes?
    pub fn allows_resubmission(&self, age_ms: u64) -> bool {
        self.lookup
            && self.submit
            && self.atomic_concurrent_keys
            && self.same_parameters
            && age_ms < self.key_kept_ms
    }
}

/// When recovery stops trying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GiveUp {
    /// After so many look-ups that were answered and settled nothing.
    pub attempts: u32,
    /// So long after the beginning.
    pub age_ms: u64,
}

impl GiveUp {
    /// Does silence mean nothing yet, whatever the age? So it is while no look-up was answered, in
    /// fewer turns than there are attempts or in less than twice the age.
    pub fn waits_for_silence(&self, attempts: u32, turns: u32, age_ms: u64) -> bool {
        attempts == 0 && (turns < self.attempts || age_ms < self.age_ms.saturating_mul(2))
    }
}

/// The operation, as it was seen last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Its status.
    pub status: OperationStatus,
    /// Does this recoverer own it?
    pub mine: bool,
    /// What is left of its owner's lease.
    pub lease_left_ms: u64,
    /// What is left of the time to send.
    pub submit_left_ms: u64,
    /// Time since its admission.
    pub age_ms: u64,
    /// Look-ups before this turn that were answered and settled nothing.
    pub attempts: u32,
    /// Takings by recovery before this one.
    pub turns: u32,
}

/// What a provider said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The effect exists.
    Succeeded {
        /// The provider's name of it.
        reference: Option<String>,
        /// What its caller should have been answered.
        answer: Option<OperationAnswer>,
    },
    /// It was definitely refused, and will not come.
    Refused {
        /// Why.
        reason: Option<String>,
        /// What its caller should have been answered.
        answer: Option<OperationAnswer>,
    },
    /// It is being worked on.
    InProgress,
    /// Nothing is known of it there. That proves nothing.
    NotFound,
    /// An answer that says nothing; why.
    Unclear(String),
    /// No answer; why.
    Unreachable(String),
}

impl Answer {
    /// Word of the history and of metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "succeeded",
            Self::Refused { .. } => "refused",
            Self::InProgress => "in_progress",
            Self::NotFound => "not_found",
            Self::Unclear(_) => "unclear",
            Self::Unreachable(_) => "unreachable",
        }
    }

    /// What more there is to say to people.
    pub fn detail(&self) -> &str {
        match self {
            Self::Unclear(why) | Self::Unreachable(why) => why,
            Self::Succeeded { .. } | Self::Refused { .. } | Self::InProgress | Self::NotFound => "",
        }
    }
}

/// What this turn has found out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Known {
    /// Nothing yet.
    Nothing,
    /// Nothing, and the provider is not asked in this turn: it is left alone for a while.
    NotAsked,
    /// The answer to the look-up.
    Lookup(Answer),
    /// The answer to sending again.
    Submit(Answer),
}

impl Known {
    /// Word of the history; empty for nothing.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::NotAsked => "not_asked",
            Self::Lookup(answer) | Self::Submit(answer) => answer.word(),
        }
    }

    /// What more there is to say to people.
    pub fn detail(&self) -> &str {
        match self {
            Self::Nothing => "",
            Self::NotAsked => "the provider is left alone for a while",
            Self::Lookup(answer) | Self::Submit(answer) => answer.detail(),
        }
    }
}

/// Why an operation is left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// It has ended.
    Ended,
    /// It waits for a person.
    ForPerson,
    /// Its owner's lease lives.
    Owned,
}

/// Why a person is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// No provider is configured for its issuer.
    NoProvider,
    /// The provider declares no look-up.
    NoLookup,
    /// It was not found, and the time to send is over.
    WindowPassed,
    /// It was not found, and the provider does not remember its key for long enough.
    KeyForgotten,
    /// It was looked up too often.
    Attempts,
    /// It has been open for too long.
    Age,
}

impl Because {
    /// Word of the history and of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoProvider => "no_provider",
            Self::NoLookup => "no_lookup",
            Self::WindowPassed => "window_passed",
            Self::KeyForgotten => "key_forgotten",
            Self::Attempts => "attempts",
            Self::Age => "age",
        }
    }
}

/// What happens next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing.
    Leave(Leave),
    /// Become its owner.
    TakeOver,
    /// Look the effect up.
    LookUp,
    /// Send the request again, after the store's last check.
    Submit,
    /// Record that it succeeded.
    Succeed {
        /// The provider's name of the effect.
        reference: Option<String>,
        /// What its caller should have been answered.
        answer: Option<OperationAnswer>,
    },
    /// Record that it was refused.
    Fail {
        /// Why.
        reason: Option<String>,
        /// What its caller should have been answered.
        answer: Option<OperationAnswer>,
    },
    /// Come back later.
    Later {
        /// Does this attempt count?
        counted: bool,
    },
    /// Record that a person is needed.
    ForPerson(Because),
}

/// The next step.
pub fn plan(view: &View, contract: Option<&Contract>, known: &Known, give_up: &GiveUp) -> Step {
    match view.status {
        OperationStatus::Succeeded | OperationStatus::Failed => return Step::Leave(Leave::Ended),
        OperationStatus::NeedsReconciliation => return Step::Leave(Leave::ForPerson),
        OperationStatus::Admitted | OperationStatus::Unknown => {}
    }
    if !view.mine {
        return if view.lease_left_ms > 0 { Step::Leave(Leave::Owned) } else { Step::TakeOver };
    }
    let Some(contract) = contract else {
        return if view.age_ms >= give_up.age_ms {
            Step::ForPerson(Because::NoProvider)
        } else {
            Step::Later { counted: false }
        };
    };
    if !contract.lookup {
        return Step::ForPerson(Because::NoLookup);
    }
    let (answer, sent) = match known {
        Known::Nothing => return Step::LookUp,
        Known::NotAsked => return Step::Later { counted: false },
        Known::Lookup(answer) => (answer, false),
        Known::Submit(answer) => (answer, true),
    };
    match answer {
        Answer::Succeeded { reference, answer } => {
            Step::Succeed { reference: reference.clone(), answer: answer.clone() }
        }
        Answer::Refused { reason, answer } => Step::Fail { reason: reason.clone(), answer: answer.clone() },
        // Who sent the request and is told "not found" has learned nothing.
        Answer::NotFound if !sent => not_found(view, contract, give_up),
        Answer::NotFound | Answer::Unclear(_) => later(view, give_up, true),
        Answer::InProgress => later(view, give_up, false),
        Answer::Unreachable(_) if give_up.waits_for_silence(view.attempts, view.turns, view.age_ms) => {
            Step::Later { counted: false }
        }
        Answer::Unreachable(_) => later(view, give_up, false),
    }
}

fn not_found(view: &View, contract: &Contract, give_up: &GiveUp) -> Step {
    if let Some(because) = exhausted(view, give_up) {
        return Step::ForPerson(because);
    }
    if view.submit_left_ms == 0 {
        return Step::ForPerson(Because::WindowPassed);
    }
    if contract.allows_resubmission(view.age_ms) {
        return Step::Submit;
    }
    if contract.submit && view.age_ms >= contract.key_kept_ms {
        return Step::ForPerson(Because::KeyForgotten);
    }
    // The first request may be on its way still; it is looked up again, and never repeated.
    later(view, give_up, true)
}

/// This turn is one attempt as well.
fn exhausted(view: &View, give_up: &GiveUp) -> Option<Because> {
    if view.age_ms >= give_up.age_ms {
        return Some(Because::Age);
    }
    (view.attempts.saturating_add(1) >= give_up.attempts).then_some(Because::Attempts)
}

fn later(view: &View, give_up: &GiveUp, counted: bool) -> Step {
    match exhausted(view, give_up) {
        Some(Because::Attempts) if !counted => Step::Later { counted },
        Some(because) => Step::ForPerson(because),
        None => Step::Later { counted },
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

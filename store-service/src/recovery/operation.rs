//! Does what the plan says about one operation that recovery owns.
//!
//! Each step begins with a write that renews the lease and applies only for our version, so whoever
//! was replaced stops before the step, and its note is in the history before the step can have an
//! effect. A write that did not apply, or whose fate is unknown, ends the work: the lease ends, and
//! the next owner looks. Nothing is retried here.

use super::plan::{Answer, Contract, Known, Step, View, plan};
use super::provider::{OperationsAt, Place, Provider};
use super::store::{Applied, Ending, Note, Owner, RecoveryStore, Rest, StepName, Taken};
use super::worker::Desk;
use crate::grant::operation::OperationAnswer;
use crate::grant::store::OwnerOutcome;
use crate::store::StoreError;
use crate::trace;
use fencepost_protocol::grants::{OperationRefusal, OperationStatus};
use std::time::Duration;
use tracing::Instrument;

/// How the work on one operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Ended {
    /// The effect was found, or made.
    Succeeded,
    /// The provider said that it refused.
    Failed,
    /// It is looked at again later.
    Postponed,
    /// A person is needed.
    ForPerson,
    /// Somebody else owns it, or ended it.
    Lost,
    /// The store did not answer; the lease ends by itself.
    Unsure,
}

impl Ended {
    /// Label of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Postponed => "postponed",
            Self::ForPerson => "needs_reconciliation",
            Self::Lost => "lost",
            Self::Unsure => "unsure",
        }
    }
}

/// Works on one operation until it has its end, or has to wait. Without a place its provider is not
/// asked.
pub async fn work(desk: &Desk, provider: Option<&Provider>, place: Option<Place<'_>>, taken: Taken) -> Ended {
    let id = taken.row.operation.clone();
    let run = Work::new(desk, provider, place, taken).run();
    let ended = match run.instrument(trace::work("recover_operation")).await {
        Ok(ended) => ended,
        Err(error) => {
            tracing::warn!(operation = %id, %error, "recovery of an operation stopped; it goes on when the lease ends");
            Ended::Unsure
        }
    };
    metrics::counter!("fencepost_recovery_operations_total", "outcome" => ended.word()).increment(1);
    if ended == Ended::ForPerson {
        tracing::warn!(operation = %id, "an operation needs a person");
    } else {
        tracing::info!(operation = %id, outcome = ended.word(), "recovery of an operation");
    }
    ended
}

struct Work<'a> {
    desk: &'a Desk,
    store: &'a dyn RecoveryStore,
    provider: Option<&'a Provider>,
    place: Option<Place<'a>>,
    taken: Taken,
    view: View,
    owner: Owner,
    known: Known,
}

impl<'a> Work<'a> {
    fn new(desk: &'a Desk, provider: Option<&'a Provider>, place: Option<Place<'a>>, taken: Taken) -> Self {
        let owned = &taken.row.owned;
        let view = View {
            status: taken.row.status,
            mine: true,
            lease_left_ms: owned.lease_left_ms,
            submit_left_ms: owned.submit_left_ms,
            age_ms: taken.age_ms,
            attempts: taken.attempts,
            turns: turns_before(owned.owner_version),
        };
        let owner = Owner { id: taken.row.operation.clone(), version: owned.owner_version };
        Self { desk, store: desk.store(), provider, place, taken, view, owner, known: Known::Nothing }
    }

    fn at(&self) -> Option<(&'a Provider, &'a OperationsAt)> {
        let provider = self.provider?;
        provider.operations.as_ref().map(|at| (provider, at))
    }

    async fn run(mut self) -> Result<Ended, StoreError> {
        let contract: Option<Contract> = self.at().map(|(_, at)| at.contract);
        loop {
            match plan(&self.view, contract.as_ref(), &self.known, &self.desk.settings().give_up) {
                Step::LookUp => {
                    if !self.look_up().await? {
                        return Ok(Ended::Lost);
                    }
                }
                Step::Submit => {
                    if !self.submit().await? {
                        return Ok(Ended::Lost);
                    }
                }
                Step::Succeed { reference, answer } => {
                    return self.end(OperationStatus::Succeeded, reference, answer, String::new()).await;
                }
                Step::Fail { reason, answer } => {
                    return self.end(OperationStatus::Failed, reason, answer, String::new()).await;
                }
                Step::ForPerson(because) => {
                    let detail = format!("{}: {}", because.word(), self.known.detail());
                    return self.end(OperationStatus::NeedsReconciliation, None, None, detail).await;
                }
                Step::Later { counted } => return self.postpone(counted).await,
                // Cannot happen: it is open and ours, as far as we know.
                Step::TakeOver | Step::Leave(_) => return Ok(Ended::Lost),
            }
        }
    }

    fn note(&self, detail: String) -> Note {
        Note { actor: self.desk.actor(), result: self.known.word().to_owned(), detail: short(detail) }
    }

    /// Renews the lease for a step and notes it; false where it is not ours any more.
    async fn begin(&mut self, step: StepName) -> Result<bool, StoreError> {
        let name = self.provider.map(|provider| provider.name.clone()).unwrap_or_default();
        let note = self.note(name);
        match self.store.step(self.owner.clone(), step, self.desk.timings().recovery_lease, note).await? {
            Applied::Lost => Ok(false),
            Applied::Yes(owned) => {
                self.view.lease_left_ms = owned.lease_left_ms;
                self.view.submit_left_ms = owned.submit_left_ms;
                Ok(true)
            }
        }
    }

    async fn look_up(&mut self) -> Result<bool, StoreError> {
        let Some((provider, at)) = self.at() else { return Ok(false) };
        // Cannot happen without one: the settings tie it to the contract that the plan goes by.
        let Some(endpoint) = &at.lookup else { return Ok(false) };
        if self.place.is_none() || provider.rests() {
            // Left alone for now: that is no attempt, and no silence either.
            self.known = Known::NotAsked;
            return Ok(true);
        }
        if !self.begin(StepName::LookUp).await? {
            return Ok(false);
        }
        let looked_up = provider.look_up(endpoint, &self.taken.row).instrument(trace::request("look_up"));
        self.known = Known::Lookup(looked_up.await);
        Ok(true)
    }

    /// The connection first, the store's last check next, the request at once behind it.
    async fn submit(&mut self) -> Result<bool, StoreError> {
        let Some((provider, at)) = self.at() else { return Ok(false) };
        let Some(endpoint) = &at.submit else { return Ok(false) };
        if !self.begin(StepName::Submit).await? {
            return Ok(false);
        }
        let line = match provider.connect(endpoint).await {
            Ok(line) => line,
            Err(why) => {
                self.known = Known::Submit(Answer::Unreachable(why));
                return Ok(true);
            }
        };
        match self.store.may_submit(self.owner.clone(), self.view.status).await? {
            OwnerOutcome::Done(owned) => {
                let margin = self.desk.timings().lease_margin.as_ms();
                let left = owned.lease_left_ms.saturating_sub(margin).min(owned.submit_left_ms);
                let limit = Duration::from_millis(left);
                let submit = provider.submit(endpoint, line, &self.taken.row, limit);
                self.known = Known::Submit(submit.instrument(trace::request("submit")).await);
                Ok(true)
            }
            // Between the look-up and now the time ran out: nothing is sent, and it was not found.
            OwnerOutcome::Refused(OperationRefusal::SubmitOver) => {
                self.view.submit_left_ms = 0;
                Ok(true)
            }
            OwnerOutcome::Refused(_) | OwnerOutcome::Before => Ok(false),
        }
    }

    async fn end(
        self,
        outcome: OperationStatus,
        reference: Option<String>,
        answer: Option<OperationAnswer>,
        detail: String,
    ) -> Result<Ended, StoreError> {
        let ending = Ending { expected: self.view.status, outcome, reference, answer };
        let note = self.note(detail);
        Ok(match self.store.record(self.owner.clone(), ending, note).await? {
            Applied::Lost => Ended::Lost,
            Applied::Yes(()) => match outcome {
                OperationStatus::Succeeded => Ended::Succeeded,
                OperationStatus::Failed => Ended::Failed,
                OperationStatus::Admitted
                | OperationStatus::Unknown
                | OperationStatus::NeedsReconciliation => Ended::ForPerson,
            },
        })
    }

    async fn postpone(self, counted: bool) -> Result<Ended, StoreError> {
        let rest = Rest { span: self.desk.rest(self.view.turns), counted };
        let note = self.note(self.known.detail().to_owned());
        Ok(match self.store.postpone(self.owner.clone(), rest, note).await? {
            Applied::Yes(()) => Ended::Postponed,
            Applied::Lost => Ended::Lost,
        })
    }
}

/// Takings by recovery before this one: the version counts all, the first was the admission and the
/// last is ours.
fn turns_before(owner_version: i32) -> u32 {
    u32::try_from(owner_version.saturating_sub(2)).unwrap_or(0)
}

/// At most 255 bytes, without NUL, which PostgreSQL keeps in no text.
fn short(text: String) -> String {
    let mut text = text.replace('\0', " ");
    let end = (0..=text.len().min(255)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}

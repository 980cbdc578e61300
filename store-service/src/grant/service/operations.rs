//! Calls on operations.

use super::{Grants, Refusal};
use crate::grant::requester::Requester;
use crate::grant::store::{OperationAnswer, OperationRow, OwnerCall, OwnerOutcome, lease_of};
use fencepost_protocol::grant_claims::FinishOutcome;
use fencepost_protocol::grants::{
    Caller, MaySubmitRequest, OperationId, OperationStatus, RecordRequest, RenewOperationRequest, TEXT_MAX,
    TakeOverRequest,
};

/// What a route says at the end of an operation.
#[derive(Debug, Clone)]
pub struct Finish {
    /// Expected status.
    pub expected: OperationStatus,
    /// How it ended.
    pub outcome: FinishOutcome,
    /// Recorded with it.
    pub reference: Option<String>,
    /// The answer; only with a final outcome.
    pub answer: Option<OperationAnswer>,
}

fn check_reference(reference: Option<&str>) -> Result<(), Refusal> {
    let long = |text: &str| text.chars().count() > TEXT_MAX || text.contains('\0');
    if reference.is_some_and(long) {
        return Err(Refusal::Malformed("reference: expected at most 255 characters"));
    }
    Ok(())
}

impl Grants {
    /// May an operation's owner send now?
    pub async fn may_submit(
        &self,
        id: OperationId,
        request: MaySubmitRequest,
    ) -> Result<OwnerOutcome, Refusal> {
        let call = OwnerCall::MaySubmit { expected: request.expected_status };
        self.own("may_submit", id, request.owner_version, call).await
    }

    /// How an operation went.
    pub async fn record(&self, id: OperationId, request: RecordRequest) -> Result<OwnerOutcome, Refusal> {
        if request.outcome == OperationStatus::Admitted {
            return Err(Refusal::Malformed(
                "outcome: expected succeeded, failed, unknown or needs_reconciliation",
            ));
        }
        check_reference(request.reference.as_deref())?;
        let call = OwnerCall::Record {
            expected: request.expected_status,
            outcome: request.outcome,
            reference: request.reference,
        };
        self.own("record", id, request.owner_version, call).await
    }

    /// How an operation of a route went, with its answer.
    pub async fn finish(
        &self,
        id: OperationId,
        owner_version: i32,
        finish: Finish,
    ) -> Result<OwnerOutcome, Refusal> {
        check_reference(finish.reference.as_deref())?;
        if finish.answer.is_some() && finish.outcome == FinishOutcome::Unknown {
            return Err(Refusal::Malformed("answer: found one with the outcome unknown; expected none"));
        }
        let call = OwnerCall::Finish {
            expected: finish.expected,
            outcome: finish.outcome.into(),
            reference: finish.reference,
            answer: finish.answer,
        };
        self.own("finish", id, owner_version, call).await
    }

    /// The answer of an operation that its caller may see, if it has one.
    pub async fn answer(&self, row: &OperationRow) -> Result<Option<OperationAnswer>, Refusal> {
        // Only a final outcome has one; an operation that ends between the two reads is told as it was.
        match row.status {
            OperationStatus::Succeeded | OperationStatus::Failed => {
                Ok(self.store.answer(row.operation.clone()).await?)
            }
            OperationStatus::Admitted | OperationStatus::Unknown | OperationStatus::NeedsReconciliation => {
                Ok(None)
            }
        }
    }

    /// A longer lease.
    pub async fn renew(
        &self,
        id: OperationId,
        request: RenewOperationRequest,
    ) -> Result<OwnerOutcome, Refusal> {
        let call = OwnerCall::Renew { lease: lease_of(request.lease, &self.issuers.timings) };
        self.own("renew", id, request.owner_version, call).await
    }

    /// Ownership of a stalled operation.
    pub async fn take_over(
        &self,
        id: OperationId,
        request: TakeOverRequest,
    ) -> Result<OwnerOutcome, Refusal> {
        let call = OwnerCall::TakeOver { lease: self.issuers.timings.recovery_lease };
        self.own("take_over", id, request.owner_version, call).await
    }

    async fn own(
        &self,
        name: &'static str,
        id: OperationId,
        version: i32,
        call: OwnerCall,
    ) -> Result<OwnerOutcome, Refusal> {
        let outcome = self.store.own(id, version, call).await?;
        let applied = match &outcome {
            OwnerOutcome::Done(_) => "done",
            OwnerOutcome::Before => "before",
            OwnerOutcome::Refused(_) => "refused",
        };
        metrics::counter!("fencepost_operation_calls_total", "call" => name, "outcome" => applied)
            .increment(1);
        Ok(outcome)
    }

    /// May this requester act on the operation? One that is bound to issuers may on theirs only; who
    /// an operation's issuer is never changes, so the look before the call is enough.
    pub async fn reaches(&self, who: &Requester<'_>, id: &OperationId) -> Result<bool, Refusal> {
        if !who.is_bound() {
            return Ok(true);
        }
        let row = self.store.operation(id.clone()).await?;
        Ok(row.is_none_or(|row| who.may_use(&row.key.issuer).is_ok()))
    }

    /// An operation, for its own caller only. Works after the grant has expired.
    pub async fn operation(
        &self,
        id: OperationId,
        caller: &Caller,
        tenant: &str,
    ) -> Result<Option<OperationRow>, Refusal> {
        let row = self.store.operation(id).await?;
        Ok(row.filter(|row| {
            row.caller_namespace == caller.namespace && row.caller_id == caller.id && row.tenant == tenant
        }))
    }
}

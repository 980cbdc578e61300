//! Admission: proof, cover, then the store.

use super::{Grants, Refusal};
use crate::grant::details;
use crate::grant::limiter::Limiter;
use crate::grant::requester::Requester;
use crate::grant::store::{Admission, Admitted, Because};
use fencepost_protocol::grants::AdmitRequest;
use std::time::Instant;

impl Grants {
    /// Claims a grant's single use for an operation.
    pub async fn admit(&self, request: AdmitRequest) -> Result<Admitted, Refusal> {
        self.admit_for(&Requester::from(""), request).await
    }

    /// As [`Self::admit`], within the issuers and the limits of whoever asks.
    pub async fn admit_for(&self, who: &Requester<'_>, request: AdmitRequest) -> Result<Admitted, Refusal> {
        self.limited(self.admissions.as_ref(), who.name())?;
        let proven = self.prove(who, request.token.as_ref(), request.grant.as_ref()).await;
        let (issuer, grant) = match proven {
            Ok(proven) => proven,
            Err(Refusal::NoProof) => return Ok(self.counted(Admitted::Refused(Because::NoRow))),
            Err(refusal) => return Err(refusal),
        };
        let covered = self.cover(issuer, &grant, &request)?;
        // After the proof: who can't prove a grant can't use its issuer's limit up.
        self.limited(self.of_issuers.get(&issuer.name), &issuer.name)?;
        let timings = &self.issuers.timings;
        let admission = Admission {
            form: issuer.form,
            issued_from: grant.issued_from,
            expires_at: grant.expires_at,
            leeway: grant.leeway,
            operation: request.operation_id,
            caller_namespace: request.caller.namespace,
            caller_id: request.caller.id,
            tenant: grant.tenant,
            details_digest: covered.digest,
            details: covered.text,
            lease: timings.execution_lease,
            submission: timings.submission_window,
            key: grant.key,
        };
        let log_id = details::log_id(&admission.key);
        let operation = admission.operation.clone();
        let admitted = self.store.admit(admission).await?;
        match &admitted {
            Admitted::Now(_) => tracing::info!(grant = log_id, %operation, "grant admitted"),
            Admitted::Before(_) => tracing::info!(grant = log_id, %operation, "grant admitted before"),
            Admitted::Refused(because) => {
                tracing::info!(grant = log_id, %operation, because = because.name(), "grant refused");
            }
        }
        Ok(self.counted(admitted))
    }

    /// Counts in this instance only, and proves nothing: it narrows a flood.
    fn limited(&self, limiter: Option<&Limiter>, name: &str) -> Result<(), Refusal> {
        match limiter {
            Some(limiter) if !limiter.take(name, Instant::now()) => {
                metrics::counter!("fencepost_grant_admissions_total", "outcome" => "too_often").increment(1);
                Err(Refusal::TooOften)
            }
            _ => Ok(()),
        }
    }

    fn counted(&self, admitted: Admitted) -> Admitted {
        let outcome = match &admitted {
            Admitted::Now(_) => "admitted",
            Admitted::Before(_) => "admitted_before",
            Admitted::Refused(because) => because.name(),
        };
        metrics::counter!("fencepost_grant_admissions_total", "outcome" => outcome).increment(1);
        admitted
    }
}

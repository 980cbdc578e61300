//! A service that applies a goodwill credit through a billing provider, once for each approval.
//!
//! The approval is a one-time grant. The handler follows the order of steps that keeps it so: check
//! everything, admit, ask once more whether to send, send with the operation id as the provider's
//! idempotency key, record. `cargo run -p fencepost-client --example credit` runs it on a service at
//! `FENCEPOST_URL` with a grant from `FENCEPOST_GRANT`.

use fencepost_client::{
    Admission, AdmitRequest, Caller, Client, Details, GrantToken, Operation, OperationId, OperationStatus,
    RecordRequest, Recorded, Submission,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the provider may take. Shorter than the execution lease less its margin.
const BILLING_TIMEOUT: Duration = Duration::from_millis(500);

/// What somebody asks for. The operation id was made when the form was rendered, so a second click
/// sends the same one.
#[derive(Clone)]
pub struct ApplyCredit {
    /// The supervisor's approval.
    pub grant: GrantToken,
    /// The intended operation.
    pub operation_id: OperationId,
    /// Whose account.
    pub account: String,
    /// How much, as exact text.
    pub amount: String,
    /// In what.
    pub currency: String,
}

/// What the person is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreditResult {
    /// The credit exists: its id.
    Applied(String),
    /// There is no credit, and with this approval there will be none: why.
    Rejected(String),
    /// Nothing was done, and asking again does not help by itself: the approval is older than a
    /// restored backup. A person looks whether the credit exists, or a new approval is needed.
    Held,
    /// Nobody knows yet. Ask again; never "failed".
    Pending,
    /// Nothing was done on this attempt. Send the same again.
    RetryLater,
}

/// How the provider behaves, for tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Creates the credit and says so.
    Kind,
    /// Refuses, and creates nothing.
    Refusing,
    /// Creates the credit, and its answer never arrives.
    Silent,
}

/// A billing provider that honours idempotency keys.
#[derive(Clone)]
pub struct FakeBilling {
    credits: Arc<Mutex<HashMap<String, String>>>,
    mood: Arc<Mutex<Mood>>,
}

/// What the provider answers.
pub enum BillingAnswer {
    /// Created, or created before under the same key.
    Created(String),
    /// Definitely refused.
    Refused(&'static str),
}

impl FakeBilling {
    /// A provider in this mood.
    pub fn new(mood: Mood) -> Self {
        Self { credits: Arc::default(), mood: Arc::new(Mutex::new(mood)) }
    }

    /// How many credits exist.
    pub fn credits(&self) -> usize {
        self.credits.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    async fn create(&self, key: &str) -> BillingAnswer {
        let mood = *self.mood.lock().unwrap_or_else(PoisonError::into_inner);
        if mood == Mood::Refusing {
            return BillingAnswer::Refused("account_closed");
        }
        let id = {
            let mut credits = self.credits.lock().unwrap_or_else(PoisonError::into_inner);
            let next = format!("cr_{}", credits.len() + 1);
            credits.entry(key.to_owned()).or_insert(next).clone()
        };
        if mood == Mood::Silent {
            std::future::pending::<()>().await;
        }
        BillingAnswer::Created(id)
    }
}

/// The execution boundary.
pub struct CreditHandler {
    /// Admission, ownership and record.
    pub grants: Client,
    /// The provider.
    pub billing: FakeBilling,
}

impl CreditHandler {
    /// Applies a credit. The caller was authenticated before.
    pub async fn apply(&self, command: ApplyCredit, caller: Caller) -> CreditResult {
        // 1. Everything that can be refused without spending the grant.
        if command.account.is_empty() {
            return CreditResult::Rejected("malformed".into());
        }
        // 2. Admit. The service compares caller and details with the verified grant.
        let details = Details::from([
            ("account", command.account),
            ("amount", command.amount),
            ("currency", command.currency),
        ]);
        let id = command.operation_id;
        let request = AdmitRequest {
            token: Some(command.grant),
            grant: None,
            operation_id: id.clone(),
            operation_mac: None,
            caller,
            tenant: None,
            details,
        };
        let owned = match self.grants.admit(&request).await {
            Ok(Admission::Admitted(owned)) => owned,
            Ok(Admission::Before(operation)) => return told(&operation),
            Ok(Admission::Held) => return CreditResult::Held,
            Ok(Admission::Refused { code, .. }) => return CreditResult::Rejected(code),
            // It may have been admitted: a retry with the same id finds out. Nothing is executed.
            Err(_) => return CreditResult::RetryLater,
        };
        // 3. Right before sending: still ours, and not too late? No answer is a no.
        match self.grants.may_submit(&id, owned.owner_version).await {
            Ok(Submission::May(_)) => {}
            Ok(Submission::MayNot(_)) | Err(_) => return CreditResult::Pending,
        }
        // 4. The effect. A timeout of its own: the person's hanging up does not abandon it half way.
        let answer = tokio::time::timeout(BILLING_TIMEOUT, self.billing.create(id.as_str())).await;
        let (outcome, reference, result) = match answer {
            Ok(BillingAnswer::Created(credit)) => {
                (OperationStatus::Succeeded, Some(credit.clone()), CreditResult::Applied(credit))
            }
            Ok(BillingAnswer::Refused(reason)) => {
                (OperationStatus::Failed, Some(reason.to_owned()), CreditResult::Rejected(reason.into()))
            }
            // Everything else is unknown: the credit may exist.
            Err(_) => (OperationStatus::Unknown, None, CreditResult::Pending),
        };
        // 5. Record, as the owner that we were admitted as. If recovery took over, nothing is written.
        let record = RecordRequest {
            owner_version: owned.owner_version,
            expected_status: OperationStatus::Admitted,
            outcome,
            reference,
        };
        match self.grants.record(&id, &record).await {
            Ok(Recorded::Yes) => result,
            Ok(Recorded::No(_)) => CreditResult::Pending,
            Err(error) => {
                eprintln!("operation {id}: {outcome:?} is known and not recorded: {error}");
                CreditResult::Pending
            }
        }
    }
}

/// What a retry is told; it never executes.
pub fn told(operation: &Operation) -> CreditResult {
    let reference = operation.reference.clone().unwrap_or_default();
    match operation.status {
        OperationStatus::Succeeded => CreditResult::Applied(reference),
        OperationStatus::Failed => CreditResult::Rejected(reference),
        OperationStatus::Admitted | OperationStatus::Unknown | OperationStatus::NeedsReconciliation => {
            CreditResult::Pending
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("FENCEPOST_URL").unwrap_or_else(|_| "http://127.0.0.1:7070".into());
    let grant = std::env::var("FENCEPOST_GRANT")?;
    let operation = std::env::var("FENCEPOST_OPERATION")?;
    let handler = CreditHandler {
        grants: Client::new(&url, None, Duration::from_secs(5))?,
        billing: FakeBilling::new(Mood::Kind),
    };
    let command = ApplyCredit {
        grant: GrantToken::new(grant),
        operation_id: OperationId::parse(&operation)?,
        account: "A-1187".into(),
        amount: "250.00".into(),
        currency: "USD".into(),
    };
    let caller = Caller { namespace: "https://login.example".into(), id: "agent-7".into() };
    println!("{:?}, {} credit(s)", handler.apply(command, caller).await, handler.billing.credits());
    Ok(())
}

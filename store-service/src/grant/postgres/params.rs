//! Parameters of the statements.

use super::pool::Params;
use super::row::system_time;
use super::statements;
use crate::desk::grant_subject;
use crate::grant::store::{Admission, FIRST_OWNER, OwnerCall, status_word};
use crate::grant::token::GrantKey;
use fencepost_protocol::grants::OperationId;

pub fn key_params(key: &GrantKey) -> Params {
    vec![Box::new(key.issuer.clone()), Box::new(key.key_tenant.clone()), Box::new(key.grant_id.clone())]
}

pub fn admit_params(admission: &Admission) -> Params {
    let mut params = key_params(&admission.key);
    params.extend::<Params>(vec![
        Box::new(admission.operation.as_str().to_owned()),
        Box::new(system_time(admission.expires_at)),
        Box::new(admission.leeway.as_i64()),
    ]);
    params.extend(operation_params(admission));
    params.push(Box::new(system_time(admission.issued_from)));
    params.push(Box::new(grant_subject(&admission.key)));
    params
}

pub fn admit_row_params(admission: &Admission) -> Params {
    let mut params = key_params(&admission.key);
    params.push(Box::new(admission.operation.as_str().to_owned()));
    params.extend(operation_params(admission));
    params.push(Box::new(grant_subject(&admission.key)));
    params
}

fn operation_params(admission: &Admission) -> Params {
    vec![
        Box::new(admission.caller_namespace.clone()),
        Box::new(admission.caller_id.clone()),
        Box::new(admission.tenant.clone()),
        Box::new(admission.details_digest.to_vec()),
        Box::new(admission.details.clone()),
        Box::new(admission.lease.as_i64()),
        Box::new(admission.submission.as_i64()),
        Box::new(FIRST_OWNER),
    ]
}

pub fn own_params(id: &OperationId, version: i32, call: &OwnerCall) -> (&'static statements::Sql, Params) {
    let mut params: Params = vec![Box::new(id.as_str().to_owned()), Box::new(version)];
    let sql = match call {
        OwnerCall::MaySubmit { expected } => {
            params.push(Box::new(status_word(*expected)));
            &statements::OPERATION_MAY_SUBMIT
        }
        OwnerCall::Record { expected, outcome, reference } => {
            params.push(Box::new(status_word(*expected)));
            params.push(Box::new(status_word(*outcome)));
            params.push(Box::new(reference.clone()));
            &statements::OPERATION_RECORD
        }
        OwnerCall::Finish { expected, outcome, reference, answer } => {
            params.push(Box::new(status_word(*expected)));
            params.push(Box::new(status_word(*outcome)));
            params.push(Box::new(reference.clone()));
            params.push(Box::new(answer.as_ref().map(|answer| i32::from(answer.status))));
            params.push(Box::new(answer.as_ref().map(|answer| answer.headers.to_vec())));
            params.push(Box::new(answer.as_ref().map(|answer| answer.body.to_vec())));
            &statements::OPERATION_FINISH
        }
        OwnerCall::Renew { lease } => {
            params.push(Box::new(lease.as_i64()));
            &statements::OPERATION_RENEW
        }
        OwnerCall::TakeOver { lease } => {
            params.push(Box::new(lease.as_i64()));
            &statements::OPERATION_TAKE_OVER
        }
    };
    (sql, params)
}

//! Parameters of the longer statements, in their order.

use crate::desk::{
    AgainOrder, AuditFilter, AuditKind, EraseOrder, again, entry_subject, erase, whose_subject,
};
use crate::grant::postgres::pool::Params;
use crate::store::postgres::row::time;
use fencepost_protocol::grants::OperationId;
use fencepost_protocol::{ScopeDigest, StoreKey};

/// Of `held_again`.
pub fn held_again(order: &AgainOrder) -> Params {
    vec![
        Box::new(order.key.as_str().to_owned()),
        Box::new(order.version.fence),
        Box::new(time(order.version.updated_at)),
        Box::new(order.version.to_string()),
        Box::new(order.who.clone()),
        Box::new(again::ACTION),
        Box::new(entry_subject(order.key.as_str())),
        Box::new(order.reason.clone()),
    ]
}

/// Of `entry_erase`.
pub fn entry_erase(order: &EraseOrder, scope: &ScopeDigest, after: Option<&StoreKey>) -> Params {
    let (headers, body) = erase::marker();
    vec![
        Box::new(scope.as_bytes().to_vec()),
        Box::new(order.prefixes.clone()),
        Box::new(after.map(|key| key.as_str().to_owned())),
        Box::new(i64::from(erase::BATCH)),
        Box::new(i16::try_from(erase::STATUS).unwrap_or(i16::MAX)),
        Box::new(headers),
        Box::new(body),
        Box::new(order.who.clone()),
        Box::new(whose_subject(&order.whose)),
        Box::new(order.reason.clone()),
    ]
}

/// Of `operation_erase`.
pub fn operation_erase(order: &EraseOrder, after: Option<&OperationId>) -> Params {
    let (headers, body) = erase::marker();
    let (namespace, id) = order.whose.names();
    vec![
        Box::new(order.whose.as_detail()),
        Box::new(namespace.map(str::to_owned)),
        Box::new(id.map(str::to_owned)),
        Box::new(after.map(|id| id.as_str().to_owned())),
        Box::new(i64::from(erase::BATCH)),
        Box::new(i32::from(erase::STATUS)),
        Box::new(headers),
        Box::new(body),
        Box::new(order.who.clone()),
        Box::new(whose_subject(&order.whose)),
        Box::new(order.reason.clone()),
        Box::new(erase::STEP),
    ]
}

/// Of `audit_list`.
pub fn audit_list(filter: &AuditFilter) -> Params {
    let kinds: Option<Vec<&'static str>> =
        filter.kinds.as_ref().map(|kinds| kinds.iter().copied().map(AuditKind::word).collect());
    let grant = filter.grant();
    let after = filter.after;
    vec![
        Box::new(kinds),
        Box::new(filter.action.clone()),
        Box::new(filter.who.clone()),
        Box::new(filter.since.map(time)),
        Box::new(filter.until.map(time)),
        Box::new(filter.written()),
        Box::new(filter.operation().map(|id| id.as_str().to_owned())),
        Box::new(grant.as_ref().map(|key| key.issuer.clone())),
        Box::new(grant.as_ref().map(|key| key.key_tenant.clone())),
        Box::new(grant.map(|key| key.grant_id)),
        Box::new(filter.prefixes.clone()),
        Box::new(after.map(|place| time(place.at))),
        Box::new(after.map(|place| place.source)),
        Box::new(after.map(|place| place.id)),
        Box::new(i64::from(filter.limit)),
    ]
}

//! Operations and grants as text for people.

use super::desk_model::{EventView, GrantView, GrantsReply, OperationView, OperationsReply};
use super::print::{duration, printable, time};
use std::fmt::Write;

/// A list, one operation a line.
pub fn operations(reply: &OperationsReply) -> String {
    if reply.operations.is_empty() {
        return "no operations\n".into();
    }
    let mut text = format!(
        "{:<20}  {:<20}  {:>7}  {:<36}  {:<24}  VERSION\n",
        "STATUS", "ADMITTED (UTC)", "AGE", "OPERATION", "CALLER"
    );
    for seen in &reply.operations {
        let age = u64::try_from((seen.now_us - seen.created_at_us) / 1_000).unwrap_or(0);
        let _ = writeln!(
            text,
            "{:<20}  {:<20}  {:>7}  {:<36}  {:<24}  {}",
            seen.status,
            time(seen.created_at_us),
            duration(age),
            seen.operation_id,
            printable(&seen.caller),
            seen.version
        );
    }
    if let Some(next) = &reply.next {
        let _ = writeln!(text, "there may be more: --after {next}");
    }
    text
}

/// One operation with what happened to it.
pub fn operation(seen: &OperationView) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12} {}", printable(&value));
    };
    let left = |ms: u64| if ms == 0 { "over".to_owned() } else { format!("{} left", duration(ms)) };
    line("operation", seen.operation_id.clone());
    line("status", seen.status.clone());
    line("version", seen.version.clone());
    line("issuer", seen.issuer.clone());
    line("grant", seen.grant_id.clone());
    if !seen.tenant.is_empty() {
        line("tenant", seen.tenant.clone());
    }
    line("caller", format!("{} in {}", seen.caller, seen.caller_namespace));
    for (name, value) in &seen.details {
        line("detail", format!("{name} = {value}"));
    }
    if let Some(reference) = &seen.reference {
        line("reference", reference.clone());
    }
    line("lease", left(seen.lease_left_ms));
    line("may be sent", left(seen.submit_left_ms));
    line("admitted", time(seen.created_at_us));
    line("updated", time(seen.updated_at_us));
    for event in seen.history.iter().flatten() {
        line("history", self::event(event));
    }
    text
}

/// One event as a line.
fn event(event: &EventView) -> String {
    let EventView { who, step, result, status, detail, .. } = event;
    format!("{} {step} by {who}: {result} -> {status}: {detail}", time(event.at_us))
}

/// A list, one grant a line.
pub fn grants(reply: &GrantsReply) -> String {
    if reply.grants.is_empty() {
        return "no grants\n".into();
    }
    let mut text = format!(
        "{:<8}  {:<20}  {:<36}  {:<24}  {:<16}  ISSUER\n",
        "STATE", "EXPIRES (UTC)", "OPERATION", "GRANT", "SUBJECT"
    );
    for seen in &reply.grants {
        let _ = writeln!(
            text,
            "{:<8}  {:<20}  {:<36}  {:<24}  {:<16}  {}",
            seen.state,
            seen.expires_at_us.map_or_else(|| "-".into(), time),
            seen.operation_id.as_deref().unwrap_or("-"),
            printable(&seen.grant_id),
            printable(seen.subject.as_deref().unwrap_or("-")),
            printable(&seen.issuer)
        );
    }
    if let Some(next) = &reply.next {
        let _ = writeln!(text, "there may be more: --after '{}'", printable(next));
    }
    text
}

/// One grant.
pub fn grant(seen: &GrantView) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{name:<12} {}", printable(&value));
        }
    };
    line("issuer", Some(seen.issuer.clone()));
    line("grant", Some(seen.grant_id.clone()));
    line("state", Some(seen.state.clone()));
    line("recorded as", seen.form.clone());
    line("tenant", seen.tenant.clone().or_else(|| Some(seen.key_tenant.clone()).filter(|t| !t.is_empty())));
    line("subject", seen.subject.clone());
    for (name, value) in seen.details.iter().flatten() {
        line("allows", Some(format!("{name} = {value}")));
    }
    line("issued", seen.issued_at_us.map(time));
    line("expires", seen.expires_at_us.map(time));
    line("used", seen.used_at_us.map(time));
    line("operation", seen.operation_id.clone());
    line("revoked", seen.revoked_at_us.map(time));
    text
}

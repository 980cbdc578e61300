//! Operations and grants as text for people.

use super::desk_model::{
    EventView, GrantView, GrantsReply, HoldView, HoldsReply, OperationView, OperationsReply,
};
use super::print::{duration, held, printable, time};
use super::told;
use std::fmt::Write;

/// A list, one operation a line.
pub fn operations(reply: &OperationsReply) -> String {
    if reply.operations.is_empty() {
        return "no operations\n".into();
    }
    let mut text = format!(
        "{:<20}  {:<13}  {:<20}  {:>7}  {:<36}  {:<24}  VERSION\n",
        "STATUS", "CAUSE", "ADMITTED (UTC)", "AGE", "OPERATION", "CALLER"
    );
    for seen in &reply.operations {
        let age = u64::try_from((seen.now_us - seen.created_at_us) / 1_000).unwrap_or(0);
        let _ = writeln!(
            text,
            "{:<20}  {:<13}  {:<20}  {:>7}  {:<36}  {:<24}  {}",
            seen.status,
            printable(seen.cause.as_deref().unwrap_or("-")),
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
    if let Some(cause) = &seen.cause {
        line("cause", cause.clone());
    }
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
    if !seen.has_ended() {
        let rests = if seen.resting { ", recovery rests" } else { "" };
        line("lease", format!("{}{rests}", left(seen.lease_left_ms)));
        line("may be sent", left(seen.submit_left_ms));
    }
    line("admitted", time(seen.created_at_us));
    line("updated", time(seen.updated_at_us));
    for event in seen.history.iter().flatten() {
        line("history", self::event(event));
    }
    text
}

/// One event as a line.
fn event(event: &EventView) -> String {
    let told = told::event(event);
    let detail = if told.detail.is_empty() { String::new() } else { format!(": {}", told.detail) };
    format!("{} {} by {}{detail}", time(event.at_us), told.what, event.who)
}

/// A list, one grant a line.
pub fn grants(reply: &GrantsReply) -> String {
    if reply.grants.is_empty() {
        return "no grants\n".into();
    }
    let mut text = format!(
        "{:<8}  {:<4}  {:<20}  {:<36}  {:<24}  {:<16}  ISSUER\n",
        "STATE", "HELD", "EXPIRES (UTC)", "OPERATION", "GRANT", "SUBJECT"
    );
    for seen in &reply.grants {
        let _ = writeln!(
            text,
            "{:<8}  {:<4}  {:<20}  {:<36}  {:<24}  {:<16}  {}",
            seen.state,
            held(Some(seen.held)),
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
    line("held", seen.held.then(|| "by a hold that stands".into()));
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

/// Holds, one a line.
pub fn holds(reply: &HoldsReply) -> String {
    if reply.holds.is_empty() {
        return "no holds\n".into();
    }
    let mut text = format!(
        "{:>4}  {:<9}  {:<20}  {:<10}  {:<8}  {:<12}  REASON\n",
        "ID", "STATE", "SINCE (UTC)", "KEYS FOR", "GRANTS", "PREFIX"
    );
    for hold in &reply.holds {
        let _ = writeln!(
            text,
            "{:>4}  {:<9}  {:<20}  {:<10}  {:<8}  {:<12}  {}",
            hold.id,
            if hold.lifted_at_us.is_some() { "lifted" } else { "in force" },
            time(hold.since_us),
            hold.keys_left_ms.map_or_else(|| "-".into(), duration),
            if hold.grants { "held" } else { "-" },
            hold.prefix.as_deref().unwrap_or("-"),
            printable(&hold.reason)
        );
    }
    text
}

/// One hold.
pub fn hold(view: &HoldView) -> String {
    holds(&HoldsReply { holds: vec![view.clone()] })
}

/// A time as `2026-11-30T20:15:00Z`, in microseconds since 1970.
pub fn read_time(text: &str) -> Result<i64, String> {
    let bad = || "expected a time in UTC, such as 2026-11-30T20:15:00Z".to_owned();
    let rest = text.strip_suffix('Z').ok_or_else(bad)?;
    // A part is two digits, a year four: what follows computes with no number that overflows.
    let numbers: Vec<i64> = rest
        .split(['-', 'T', ':'])
        .enumerate()
        .map(|(place, part)| {
            let digits = if place == 0 { 4 } else { 2 };
            let fits = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|_| fits)
        })
        .collect::<Option<_>>()
        .ok_or_else(bad)?;
    let [year, month, day, hour, minute, second] = numbers[..] else { return Err(bad()) };
    // The years of four digits; days from the civil calendar, the inverse of how times are printed.
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let us = (days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000;
    // Whatever is no date prints as another one.
    let wanted = text.replacen('T', " ", 1);
    if time(us) == wanted.trim_end_matches('Z') { Ok(us) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_printed() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2026-09-21T14:13:20Z", 1_790_000_000),
        ] {
            assert_eq!(read_time(text), Ok(seconds * 1_000_000));
        }
        for text in [
            "",
            "2026-09-21",
            "2026-02-30T00:00:00Z",
            "2026-09-21T14:13:20",
            "2026-09-21T24:00:00Z",
            "2026-9-21T014:13:20Z",
            "999999999-1-1-1-1-1Z",
            "9223372036854775807-01-01T00:00:00Z",
            "2026-09-21T14:13:9223372036854775807Z",
        ] {
            assert!(read_time(text).is_err(), "{text}");
        }
    }
}

//! Entries as text for people.

use super::model::{AuditLine, EntryView, ListReply, Octets};
use super::told;
use std::fmt::Write;

/// A list, one entry a line.
pub fn list(reply: &ListReply) -> String {
    let mut text = String::new();
    if reply.entries.is_empty() {
        return "no entries\n".into();
    }
    let _ = writeln!(
        text,
        "{:<9}  {:<13}  {:<4}  {:<20}  {:>7}  {:>9}  {:<44}  VERSION",
        "STATE", "CAUSE", "HELD", "SINCE (UTC)", "AGE", "EXPIRES", "KEY"
    );
    for entry in &reply.entries {
        let ends = entry.left_ms.map_or_else(|| "-".into(), duration);
        let since = time(entry.updated_at_us);
        let _ = writeln!(
            text,
            "{:<9}  {:<13}  {:<4}  {since:<20}  {:>7}  {ends:>9}  {:<44}  {}",
            entry.state,
            entry.cause.as_deref().unwrap_or("-"),
            held(entry.held),
            duration(entry.age_ms()),
            entry.key,
            entry.version
        );
    }
    if let Some(next) = &reply.next {
        let _ = writeln!(text, "there may be more: --after {next}");
    }
    text
}

/// Whether a hold that stands holds it.
pub fn held(held: Option<bool>) -> &'static str {
    if held == Some(true) { "held" } else { "-" }
}

/// One entry with what people did to it.
pub fn entry(entry: &EntryView) -> String {
    let mut text = String::new();
    let mut raw = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    let mut line = |name: &str, value: String| raw(name, printable(&value));
    line("key", entry.key.clone());
    line("state", entry.state.clone());
    line("version", entry.version.clone());
    if let Some(cause) = &entry.cause {
        line("cause", cause.clone());
    }
    if let Some(on_lost) = &entry.on_lost {
        line("on_lost", on_lost.clone());
    }
    if let Some(left) = entry.lease_left_ms {
        line("lease", if left == 0 { "over".into() } else { format!("{} left", duration(left)) });
    }
    if let Some(left) = entry.run_left_ms {
        line("may run for", duration(left));
    }
    if let Some(left) = entry.left_ms {
        line("expires in", duration(left));
    }
    line("fence", entry.fence.to_string());
    line("scheme", entry.scheme.clone());
    line("fingerprint", entry.fingerprint.clone());
    line("scope", entry.scope.clone());
    line("created", time(entry.created_at_us));
    line("updated", time(entry.updated_at_us));
    if let Some(status) = entry.status {
        let (headers, body) = (entry.headers_len.unwrap_or(0), entry.body_len.unwrap_or(0));
        let hidden = if entry.body.is_some() { "" } else { "; hidden, --answer shows it" };
        line("answer", format!("status {status}, {headers} bytes of headers, {body} bytes of body{hidden}"));
    }
    for (name, value) in entry.headers.iter().flatten() {
        line("", format!("{name}: {}", shown(value)));
    }
    if let Some(body) = &entry.body {
        raw("body", block(body));
    }
    let mut line = |name: &str, value: String| raw(name, printable(&value));
    for done in entry.audit.iter().flatten() {
        line("audit", audit(done));
    }
    text
}

fn audit(line: &AuditLine) -> String {
    let told = told::order(line);
    // Who and why may hold anything.
    format!("{} {} by {}: {}", time(line.at_us), told.what, printable(&line.who), printable(&told.detail))
}

/// Text as it is, other bytes as base64 in JSON.
fn shown(octets: &Octets) -> String {
    match std::str::from_utf8(&octets.0) {
        Ok(text) => text.to_owned(),
        Err(_) => serde_json::to_string(octets).unwrap_or_default(),
    }
}

/// A body: each line of it indented, so that none of them looks like a line of ours.
fn block(octets: &Octets) -> String {
    let text = shown(octets);
    let lines: Vec<_> = text.split('\n').map(|line| printable(line.trim_end_matches('\r'))).collect();
    lines.join("\n             ")
}

/// One line, with nothing in it that a terminal would obey, nor what turns the direction of reading:
/// whoever wrote it can't make it look like another line.
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\t' => line.push_str("\\t"),
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                line.push('\u{fffd}');
            }
            c if c.is_control() => line.push('\u{fffd}'),
            c => line.push(c),
        }
    }
    line
}

/// A duration in the unit that fits.
pub fn duration(ms: u64) -> String {
    let seconds = ms.div_ceil(1_000);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// UTC, to the second (civil date from days since 1970, proleptic Gregorian calendar).
pub fn time(us: i64) -> String {
    let seconds = us.div_euclid(1_000_000);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin in March here, so that the day that leap years add is the last one.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_164_800, "2024-02-29 00:00:00"),
            (1_790_000_000, "2026-09-21 14:13:20"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(time(seconds * 1_000_000), text);
        }
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(printable("a\u{1b}[31mb\r"), "a\u{fffd}[31mb\u{fffd}");
        for turned in ['\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}', '\u{2028}', '\u{85}'] {
            assert_eq!(printable(&format!("a{turned}b")), "a\u{fffd}b");
        }
    }

    #[test]
    fn nobody_forges_a_line_of_an_entry() {
        let forged = "x\naudit        2026-01-01 00:00:00 release by ann: unknown -> released: fine";
        let shown = entry(&EntryView {
            headers: Some(vec![("a\nstate        released".into(), Octets(forged.into()))]),
            body: Some(Octets(format!("{forged}\r\n\nkey          other").into())),
            audit: Some(vec![AuditLine {
                at_us: 0,
                who: forged.into(),
                action: "release".into(),
                version: "1.1".into(),
                state_before: "unknown".into(),
                state_after: "released".into(),
                forced: false,
                reason: forged.into(),
            }]),
            status: Some(200),
            ..EntryView::default()
        });
        for (name, times) in [("audit", 1), ("key", 1), ("state", 1)] {
            let lines = shown.lines().filter(|line| line.split(' ').next() == Some(name));
            assert_eq!(lines.count(), times, "{shown}");
        }
        assert!(shown.contains("body         x\n             audit"), "{shown}");
    }
}

//! `fencepost-store entries for-person`: keys that recovery has given to a person, and why.

use super::client::Client;
use super::model::{MarkedReply, MarkedView};
use super::print::{printable, time};
use super::terminal::{Common, End, print, with_query};
use clap::Args;
use fencepost_protocol::StoreKey;
use std::fmt::Write;

#[derive(Debug, Args)]
pub struct ForPerson {
    #[command(flatten)]
    common: Common,

    /// Only keys behind this one.
    #[arg(long, value_name = "STORED_KEY", value_parser = StoreKey::parse)]
    after: Option<StoreKey>,

    /// At most so many, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

impl ForPerson {
    /// Runs the command.
    pub async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let after = self.after.map(|key| key.to_string());
        let pairs = vec![("limit", Some(self.limit.to_string())), ("after", after)];
        let reply: MarkedReply = client.get(&with_query("/v1/recovery/keys", pairs)).await?;
        print(self.common.output, &reply, list)
    }
}

/// A list, one key a line.
fn list(reply: &MarkedReply) -> String {
    if reply.keys.is_empty() {
        return "no keys\n".into();
    }
    let mut text =
        format!("{:<20}  {:>9}  {:<44}  {:<34}  WHY\n", "SINCE (UTC)", "LOOKED UP", "KEY", "VERSION");
    for MarkedView { key, version, attempts, reason, marked_at_us, .. } in &reply.keys {
        let (since, why) = (time(*marked_at_us), printable(reason));
        let _ = writeln!(text, "{since:<20}  {attempts:>9}  {key:<44}  {version:<34}  {why}");
    }
    if let Some(next) = &reply.next {
        let _ = writeln!(text, "there may be more: --after {next}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_reason_on_its_line() {
        let key = MarkedView {
            key: "test:5d156d4c67cb1ee2cbe7e39f77950664".into(),
            version: "7.12".into(),
            attempts: 8,
            result: "not_found".into(),
            reason: "the provider knows nothing\nof it".into(),
            marked_at_us: 0,
            by: "recovery/one".into(),
        };
        let next = Some(key.key.clone());
        let text = list(&MarkedReply { keys: vec![key], next });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("1970-01-01 00:00:00") && lines[1].contains("  7.12 "), "{text}");
        assert!(lines[1].ends_with("the provider knows nothing\\nof it"), "{text}");
        assert!(lines[2].contains("--after test:5d15"), "{text}");
        assert_eq!(list(&MarkedReply { keys: Vec::new(), next: None }), "no keys\n");
    }
}

//! What a failure of the server could take with it, as far as its settings tell.
//!
//! A server whose settings lose confirmed writes by themselves is refused (`server_check`). What is
//! here depends on what people do when a server fails, so it is said, in the log and by `/readyz`, and
//! not refused. It is as old as the newest connection: a standby that joins later is seen by the next
//! one.
//!
//! It does not see that somebody cancels a statement which waits for a standby: PostgreSQL then says that
//! the statement is done, with a warning. It does not find out whether a promoted standby lacked something: only the standby's own log could
//! tell that, and it has no memory of what it never received.

use std::sync::{Mutex, PoisonError};

/// What a server said about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// `synchronous_standby_names`.
    pub standby_names: String,
    /// Receivers of its log.
    pub standbys: i64,
    /// `synchronous_commit`.
    pub commit: String,
    /// Whether commits reach its own disk.
    pub fsync: bool,
    /// Its timeline, as in the names of its log's files.
    pub timeline: Option<String>,
}

/// Remembers what was found, and says what is new.
#[derive(Debug, Default)]
pub struct Durability {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    weaknesses: Vec<String>,
    promotions: Vec<String>,
    timeline: Option<String>,
}

impl Durability {
    /// Takes note of a server; a weakness is logged when it is new.
    pub fn note(&self, found: &Found) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let weaknesses = weaknesses(found);
        for weakness in weaknesses.iter().filter(|weakness| !known.weaknesses.contains(weakness)) {
            tracing::warn!("{weakness}");
        }
        known.weaknesses = weaknesses;
        if let (Some(before), Some(now)) = (known.timeline.clone(), &found.timeline)
            && before != *now
        {
            let promotion = format!(
                "a standby was promoted (timeline {before}, now {now}): if it did not have everything that was \
                 confirmed, requests may run again; see \"A backup is restored\" in docs/runbook.md for holding them"
            );
            tracing::warn!("{promotion}");
            known.promotions.push(promotion);
        }
        known.timeline = found.timeline.clone().or(known.timeline.take());
    }

    /// What there is to worry about, in sentences.
    pub fn warnings(&self) -> Vec<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.weaknesses.iter().chain(&known.promotions).cloned().collect()
    }
}

fn weaknesses(found: &Found) -> Vec<String> {
    let mut weaknesses = Vec::new();
    let mut say = |weakness: &str| weaknesses.push(weakness.to_owned());
    let waits = !found.standby_names.trim().is_empty();
    if !waits && found.standbys > 0 {
        say(
            "found standbys and an empty synchronous_standby_names: a failover to one of them can lose claims and \
             answers that were confirmed; expected synchronous_standby_names to name them, or nobody to promote them",
        );
    }
    if waits && found.commit == "local" {
        say(
            "found synchronous_commit = local, which does not wait for the standbys of synchronous_standby_names: \
             a failover can lose claims and answers that were confirmed; expected on or remote_apply",
        );
    }
    if !found.fsync {
        say("found fsync = off: a crash of the database's machine can lose everything; expected on");
    }
    weaknesses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Found {
        Found {
            standby_names: "ANY 1 (a, b)".into(),
            standbys: 2,
            commit: "on".into(),
            fsync: true,
            timeline: Some("00000001".into()),
        }
    }

    #[test]
    fn each_weakness_is_said_and_a_sound_server_has_none() {
        assert_eq!(weaknesses(&sound()), Vec::<String>::new());
        let alone = Found { standby_names: String::new(), standbys: 0, ..sound() };
        assert_eq!(weaknesses(&alone), Vec::<String>::new(), "a single server promises its own disk only");
        for (found, word) in [
            (Found { standby_names: " ".into(), ..sound() }, "empty synchronous_standby_names"),
            (Found { commit: "local".into(), ..sound() }, "synchronous_commit = local"),
            (Found { fsync: false, ..sound() }, "fsync = off"),
        ] {
            let said = weaknesses(&found);
            assert!(said.len() == 1 && said[0].contains(word), "{word}: {said:?}");
        }
    }

    #[test]
    fn a_promotion_is_said_once_and_stays_said() {
        let durability = Durability::default();
        durability.note(&sound());
        durability.note(&Found { timeline: None, ..sound() });
        assert_eq!(durability.warnings(), Vec::<String>::new());
        for _ in 0..2 {
            durability.note(&Found { timeline: Some("00000002".into()), ..sound() });
            let said = durability.warnings();
            assert!(said.len() == 1 && said[0].contains("timeline 00000001, now 00000002"), "{said:?}");
        }
    }
}

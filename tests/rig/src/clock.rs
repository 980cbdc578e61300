//! A clock that a test steps, for one process and its children, by Debian's libfaketime.
//!
//! Only the time of day is stepped. Durations (the monotonic clock) go on as they are: that is what
//! happens when an administrator or a time server corrects a machine.

use crate::debian;
use crate::scratch::Scratch;
use anyhow::{Context, Result};

/// A clock. It must outlive the processes that have it.
pub struct SteppedClock {
    folder: Scratch,
}

impl SteppedClock {
    /// A clock that is right so far.
    pub fn new() -> Result<Self> {
        let clock = Self { folder: Scratch::new("clock")? };
        // Where any user can read it.
        std::fs::copy(debian::libfaketime()?, clock.folder.path().join("libfaketime.so"))
            .context("copy libfaketime")?;
        clock.step(0)?;
        Ok(clock)
    }

    /// Sets how many seconds it is ahead; negative is behind.
    pub fn step(&self, seconds: i64) -> Result<()> {
        let draft = self.folder.path().join("draft");
        std::fs::write(&draft, format!("{seconds:+}\n"))?;
        std::fs::rename(draft, self.folder.path().join("time")).context("step the clock")
    }

    /// What a process needs in its environment to have it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        [
            ("LD_PRELOAD", path("libfaketime.so")),
            ("FAKETIME_TIMESTAMP_FILE", path("time")),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_DONT_RESET", "1".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

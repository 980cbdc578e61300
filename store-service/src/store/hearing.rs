//! How a store learns what other instances freed, and who is told.

use fencepost_protocol::StoreKey;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What became of a mark on a claim that callers wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// The claim is marked: its end will be told.
    Waited,
    /// The claim has ended: read it again.
    Changed,
    /// Nobody has to be told, or nobody here would hear it.
    Needless,
}

/// How this instance learns of what others free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hearing {
    /// There are no others.
    Alone,
    /// It is told.
    Notified,
    /// It looks for itself; why.
    Polling(String),
}

impl Hearing {
    /// Name in answers to operators.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Notified => "notified",
            Self::Polling(_) => "polling",
        }
    }
}

/// What was freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken<'a> {
    /// This key.
    Key(&'a StoreKey),
    /// Any: notices may have been missed.
    All,
}

/// Somebody who wants to be told.
pub type Ear = Box<dyn Fn(Woken<'_>) + Send + Sync>;

/// Everybody who wants to be told.
pub struct Ears {
    ears: Mutex<Vec<Ear>>,
    hearing: Mutex<Hearing>,
}

impl Ears {
    /// Nobody yet.
    pub fn new(hearing: Hearing) -> Self {
        Self { ears: Mutex::default(), hearing: Mutex::new(hearing) }
    }

    /// One more.
    pub fn add(&self, ear: Ear) {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner).push(ear);
    }

    /// Tells them.
    pub fn tell(&self, woken: Woken<'_>) {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|ear| ear(woken));
    }

    /// How this instance learns of what others free, now.
    pub fn hearing(&self) -> Hearing {
        self.lock().clone()
    }

    /// Changes that; true when it is news.
    pub fn set_hearing(&self, hearing: Hearing) -> bool {
        let mut now = self.lock();
        let news = *now != hearing;
        *now = hearing;
        news
    }

    fn lock(&self) -> MutexGuard<'_, Hearing> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What the upstream has seen and done: the truth that tests compare with.

use super::{Behaviour, Gate};
use crate::process::guard;
use bytes::Bytes;
use hyper::HeaderMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use tokio::sync::watch;

/// One request, as far as it came.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Method.
    pub method: String,
    /// Path without query.
    pub path: String,
    /// Query, if there was one.
    pub query: Option<String>,
    /// Header lines.
    pub headers: HeaderMap,
    /// Body bytes so far.
    pub body: Vec<u8>,
    /// Whether the body's end has come.
    pub body_whole: bool,
    /// Trailers.
    pub trailers: HeaderMap,
    /// Whether it came by HTTP/2.
    pub http2: bool,
    /// Number of this execution on its path; none while the body is incomplete.
    pub execution: Option<u64>,
    /// Whether the answer was handed over to its end.
    pub answered: bool,
    /// Whether the peer left, or we cut the connection, before that.
    pub cut: bool,
}

impl Seen {
    /// A header's first value as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

#[derive(Default)]
struct Books {
    seen: Vec<Seen>,
    executions: BTreeMap<String, u64>,
    scripts: BTreeMap<String, Behaviour>,
    next: BTreeMap<String, VecDeque<Behaviour>>,
    gates: BTreeMap<String, Gate>,
}

/// The books, and a bell for those who wait for an entry.
#[derive(Default)]
pub(super) struct Ledger {
    books: Mutex<Books>,
    changes: watch::Sender<u64>,
}

impl Ledger {
    fn change<T>(&self, change: impl FnOnce(&mut Books) -> T) -> T {
        let result = change(&mut guard(&self.books));
        self.changes.send_modify(|count| *count += 1);
        result
    }

    fn entry(&self, id: usize, change: impl FnOnce(&mut Seen)) {
        self.change(|books| books.seen.get_mut(id).map(change));
    }

    pub(super) fn head(&self, seen: Seen) -> usize {
        self.change(|books| {
            books.seen.push(seen);
            books.seen.len() - 1
        })
    }

    pub(super) fn body_part(&self, id: usize, part: &Bytes) {
        self.entry(id, |seen| seen.body.extend_from_slice(part));
    }

    pub(super) fn trailers(&self, id: usize, trailers: HeaderMap) {
        self.entry(id, |seen| seen.trailers = trailers);
    }

    /// Counts an execution; its number on this path.
    pub(super) fn execute(&self, id: usize) -> u64 {
        self.change(|books| {
            let Some(seen) = books.seen.get_mut(id) else { return 0 };
            let count = books.executions.entry(seen.path.clone()).or_default();
            *count += 1;
            seen.body_whole = true;
            seen.execution = Some(*count);
            *count
        })
    }

    pub(super) fn ended(&self, id: usize, answered: bool) {
        self.entry(id, |seen| {
            seen.answered = answered;
            seen.cut = !answered;
        });
    }

    pub(super) fn behaviour(&self, path: &str) -> Behaviour {
        self.change(|books| {
            let queued = books.next.get_mut(path).and_then(VecDeque::pop_front);
            queued.or_else(|| books.scripts.get(path).cloned()).unwrap_or_default()
        })
    }

    pub(super) fn script(&self, path: &str, behaviour: Behaviour) {
        self.change(|books| books.scripts.insert(path.to_owned(), behaviour));
    }

    pub(super) fn script_next(&self, path: &str, behaviour: Behaviour) {
        self.change(|books| books.next.entry(path.to_owned()).or_default().push_back(behaviour));
    }

    pub(super) fn gate(&self, name: &str) -> Gate {
        self.change(|books| books.gates.entry(name.to_owned()).or_default().clone())
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        guard(&self.books).seen.clone()
    }

    pub(super) fn executions(&self) -> BTreeMap<String, u64> {
        guard(&self.books).executions.clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

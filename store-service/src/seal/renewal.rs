//! Sealing stored answers anew, after the current key has changed or where they lie open.
//!
//! Each answer is one step of its own, so a renewal that is interrupted has lost nothing: the next
//! one passes over what is done. Answers are read one at a time and a few at once, so its memory is
//! bounded by the largest answers. Callers see nothing of it: the answer is the same before, during
//! and after, and what is freed, erased or stored meanwhile is left as it is by then.
//!
//! An answer that can't be opened is left, counted and no reason to stop.

use super::keeper::{SealRow, SealStore, Seen, Table};
use super::{KeyId, Seal, SealFault, envelope};
use crate::desk::erase_marker;
use crate::store::StoreError;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::collections::BTreeMap;

/// Rows of one page.
const PAGE: u32 = 500;

/// Answers that are worked on at once.
const AT_ONCE: usize = 2;

/// How answers are sealed, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Not at all.
    pub open: u64,
    /// With each key.
    pub keys: BTreeMap<KeyId, u64>,
    /// In a form that this version does not know.
    pub unreadable: u64,
}

impl Counts {
    fn add(&mut self, seen: &Seen) {
        let Some(head) = &seen.head else { return };
        match envelope::sealed_with(head) {
            Ok(None) => self.open += 1,
            Ok(Some(id)) => *self.keys.entry(id).or_default() += 1,
            Err(_) => self.unreadable += 1,
        }
    }

    /// With this key.
    pub fn with(&self, id: &KeyId) -> u64 {
        self.keys.get(id).copied().unwrap_or(0)
    }
}

/// Counts the answers of a table, page by page.
pub async fn count(keeper: &dyn SealStore, table: Table) -> Result<Counts, StoreError> {
    let mut counts = Counts::default();
    let mut after = String::new();
    loop {
        let page = keeper.page(table, &after, PAGE).await?;
        page.iter().for_each(|seen| counts.add(seen));
        match page.last() {
            Some(last) if page.len() == PAGE as usize => after.clone_from(&last.name),
            _ => return Ok(counts),
        }
    }
}

/// How far a renewal is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that were looked at.
    pub looked: u64,
    /// Answers that were sealed.
    pub sealed: u64,
    /// Answers that were changed by somebody else just then, and left.
    pub passed: u64,
    /// Answers that can't be opened.
    pub failed: u64,
    /// Name of the last row.
    pub after: String,
}

enum Step {
    Right,
    Sealed,
    Passed,
    Failed(SealFault),
}

/// A renewal of one table.
pub struct Renewal<'a> {
    seal: &'a Seal,
    keeper: &'a dyn SealStore,
    table: Table,
    current: &'a KeyId,
    progress: Progress,
}

/// Seals everything anew that is not sealed with the current key, and tells of each page. Without
/// keys there is nothing to do.
pub async fn renew(
    seal: &Seal,
    keeper: &dyn SealStore,
    table: Table,
    mut told: impl FnMut(&Progress),
) -> Result<Progress, StoreError> {
    let Some(ring) = seal.ring() else { return Ok(Progress::default()) };
    let current = ring.current().0;
    let mut renewal = Renewal { seal, keeper, table, current, progress: Progress::default() };
    loop {
        let more = renewal.page().await?;
        told(&renewal.progress);
        if !more {
            return Ok(renewal.progress);
        }
    }
}

impl Renewal<'_> {
    /// One page; whether there is another.
    async fn page(&mut self) -> Result<bool, StoreError> {
        let page = self.keeper.page(self.table, &self.progress.after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(false) };
        let this = &*self;
        let steps: Vec<Step> = stream::iter(&page)
            .map(|seen| async move { this.one(seen).await })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        for step in steps {
            match step {
                Step::Right => {}
                Step::Sealed => self.progress.sealed += 1,
                Step::Passed => self.progress.passed += 1,
                Step::Failed(fault) => {
                    tracing::warn!(%fault, table = self.table.word(), "an answer was left as it is");
                    self.progress.failed += 1;
                }
            }
        }
        self.progress.looked += page.len() as u64;
        self.progress.after.clone_from(&last.name);
        Ok(page.len() == PAGE as usize)
    }

    async fn one(&self, seen: &Seen) -> Result<Step, StoreError> {
        let is_right =
            |head: &[u8]| envelope::sealed_with(head).is_ok_and(|id| id.as_ref() == Some(self.current));
        if seen.head.as_deref().is_none_or(is_right) {
            return Ok(Step::Right);
        }
        let Some(row) = self.keeper.row(self.table, &seen.name).await? else { return Ok(Step::Passed) };
        let answer = row.answer();
        if is_right(&answer.headers) || is_marker(&row) {
            return Ok(Step::Right);
        }
        let (mut headers, mut body) = (answer.headers.clone(), answer.body.clone());
        let renewed = self
            .seal
            .open(row.subject(), &mut headers, &mut body)
            .and_then(|()| self.seal.close(row.subject(), &mut headers, &mut body));
        match renewed {
            Ok(()) => {}
            Err(StoreError::Sealed(fault)) => return Ok(Step::Failed(fault)),
            Err(error) => return Err(error),
        }
        let done = self.keeper.replace(&row, headers, body).await?;
        Ok(if done { Step::Sealed } else { Step::Passed })
    }
}

/// What stands in place of an erased answer is no answer of an application.
fn is_marker(row: &SealRow) -> bool {
    let (headers, body) = erase_marker();
    let answer = row.answer();
    answer.headers == headers && answer.body == body
}

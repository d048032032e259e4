//! What happened to the pages of tables on disk in a window, and how transactions came to them.

use rialto::{Metrics, PageCounts, TwoStageAccount};

use super::Measured;
use crate::text::{Table, bytes, thousands};

/// Pages in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pages {
    /// The share of data accesses that found all pages in memory; 1 if there was none.
    pub hit_ratio: f64,
    /// Pages that were read for each access that did not; `None` if all did.
    pub reads_per_miss: Option<f64>,
    /// Pages that were read, and written, by whomever.
    pub reads: u64,
    pub writes: u64,
    /// The length of the page file at the end.
    pub file_bytes: u64,
    /// Over all procedures; `None` if no transaction has touched a page.
    pub staged: Option<Staged>,
}

/// What executions in stages have met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Staged {
    pub misprefetches: u64,
    pub conversions: u64,
    pub lock_held_io_waits: u64,
}

impl Measured {
    /// Whether there are tables on disk.
    pub(super) fn has_pages(&self) -> bool {
        self.metrics.1.pages.page_bytes > 0
    }

    /// Pages in the window; `None` without tables on disk.
    pub(super) fn pages(&self) -> Option<Pages> {
        if !self.has_pages() {
            return None;
        }
        let sum = |metrics: &Metrics, of: fn(&PageCounts) -> u64| {
            metrics.procedures.iter().map(|account| of(&account.pages)).sum()
        };
        let counted = |of: fn(&PageCounts) -> u64| self.grown(|metrics| sum(metrics, of));
        let (accesses, misses) = (counted(|pages| pages.accesses), counted(|pages| pages.misses));
        let read_by_accesses = counted(|pages| pages.reads);
        let accounts = self.two_stage();
        let staged = |of: fn(&TwoStageAccount) -> u64| accounts.iter().map(of).sum();
        Some(Pages {
            hit_ratio: 1.0 - misses as f64 / accesses.max(1) as f64,
            reads_per_miss: (misses > 0).then(|| read_by_accesses as f64 / misses as f64),
            reads: self.grown(|metrics| metrics.pages.reads),
            writes: self.grown(|metrics| metrics.pages.writes),
            file_bytes: self.metrics.1.pages.file_bytes,
            staged: (!accounts.is_empty()).then(|| Staged {
                misprefetches: staged(|account| account.misprefetches),
                conversions: staged(|account| account.conversions),
                lock_held_io_waits: staged(|account| account.lock_held_io_waits),
            }),
        })
    }

    /// How many pages were read, and how many written, for each transaction; `None` without tables on disk.
    pub fn pages_per_transaction(&self) -> Option<(f64, f64)> {
        let transactions = self.outcome.committed().max(1) as f64;
        self.pages().map(|pages| (pages.reads as f64 / transactions, pages.writes as f64 / transactions))
    }

    /// The part of the waits for locks in which others waited for the disk; `None` if there was no wait, or no table on disk.
    pub(super) fn lock_wait_for_disk_share(&self) -> Option<f64> {
        let waited = self.grown(|metrics| metrics.locks.wait_ns);
        let for_disk = self.grown(|metrics| metrics.locks.wait_for_disk_ns);
        (self.has_pages() && waited > 0).then(|| for_disk as f64 / waited as f64)
    }

    /// Executions in stages in the window, by procedure.
    pub(super) fn two_stage(&self) -> Vec<TwoStageAccount> {
        let before = |name: &str| self.metrics.0.two_stage.iter().find(|account| account.name == name);
        let since = |end: &TwoStageAccount| match before(&end.name) {
            None => end.clone(),
            Some(begin) => end.since(begin),
        };
        self.metrics.1.two_stage.iter().map(since).filter(|account| account.executions > 0).collect()
    }

    /// The rows of the table for people.
    pub(super) fn page_rows(&self, table: &mut Table) {
        let Some(Pages { hit_ratio, reads_per_miss, reads, writes, file_bytes, staged }) = self.pages()
        else {
            return;
        };
        let per_miss = reads_per_miss.map_or_else(String::new, |reads| format!(", {reads:.2} reads a miss"));
        let [reads, writes] = [reads, writes].map(|count| thousands(count as f64));
        table.row(
            "pages",
            format!(
                "{:.2}% of accesses hit{per_miss}; {reads} read, {writes} written; a file of {}",
                hit_ratio * 100.0,
                bytes(file_bytes)
            ),
        );
        let Some(Staged { misprefetches, conversions, lock_held_io_waits }) = staged else { return };
        let [conversions, misprefetches, held] =
            [conversions, misprefetches, lock_held_io_waits].map(|count| thousands(count as f64));
        table.row(
            "two stages",
            format!(
                "{conversions} executions needed two, {misprefetches} misprefetches, {held} waits for pages under locks"
            ),
        );
        for account in self.two_stage() {
            let TwoStageAccount { name, strategy, executions, conversions, .. } = account;
            let [executions, conversions] = [executions, conversions].map(|count| thousands(count as f64));
            table.row(
                "",
                format!("{name}: {strategy}, {executions} executions, {conversions} of them in two"),
            );
        }
    }
}

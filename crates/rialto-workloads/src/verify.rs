//! What the verifiers have in common: rows that are visited, totals that are compared with what the clients were told, and
//! what does not hold.

use std::ops::ControlFlow;

use rialto::row::RowView;
use rialto::{Result, Scan, Table, Transaction};

use crate::workload::Verdict;

/// Visits the rows that a scan gives, in its order. Returns how many they are.
pub(crate) fn each(
    transaction: &mut Transaction,
    table: &Table,
    scan: &Scan,
    mut visit: impl FnMut(RowView<'_>) -> Result<()>,
) -> Result<u64> {
    let mut rows = 0;
    transaction.scan(table, scan, |_, row| {
        rows += 1;
        visit(row).map(ControlFlow::Continue)
    })?;
    Ok(rows)
}

/// `N` numbers that transactions add up to. Each client adds up what it was told, and the tables must have changed by that.
pub(crate) trait Totals<const N: usize>: Copy {
    /// Each with its name.
    fn each_mut(&mut self) -> [(&'static str, &mut i64); N];

    /// Likewise.
    fn each(mut self) -> [(&'static str, i64); N] {
        self.each_mut().map(|(name, value)| (name, *value))
    }

    /// Adds all of another.
    fn add(&mut self, other: &Self) {
        for ((_, own), (_, other)) in self.each_mut().into_iter().zip(other.each()) {
            *own += other;
        }
    }
}

/// The most problems of one kind that are told.
const TOLD_MAX: usize = 3;

/// What does not hold, by kind.
#[derive(Default)]
pub(crate) struct Problems(Vec<(String, Vec<String>)>);

impl Problems {
    /// Notes a problem, unless it holds that there is none.
    pub fn expect(&mut self, kind: &str, holds: bool, problem: impl FnOnce() -> String) {
        if holds {
            return;
        }
        match self.0.iter_mut().find(|(name, _)| name == kind) {
            Some((_, problems)) => problems.push(problem()),
            None => self.0.push((kind.to_owned(), vec![problem()])),
        }
    }

    /// Expects a number.
    pub fn equal(&mut self, what: &str, found: i64, expected: i64) {
        self.expect(what, found == expected, || format!("{found}, expected {expected}"));
    }

    /// Expects the totals that were there `before`, and what `done` adds up to.
    pub fn told<const N: usize, T: Totals<N>>(&mut self, found: &T, before: &T, done: &T) {
        let mut expected = *before;
        expected.add(done);
        for ((what, found), (_, expected)) in found.each().into_iter().zip(expected.each()) {
            self.equal(&format!("{what}, by what the clients were told"), found, expected);
        }
    }

    /// The verdict; `sound` says what holds if there is no problem.
    pub fn verdict(self, sound: impl FnOnce() -> String) -> Verdict {
        if self.0.is_empty() {
            return Verdict { consistent: true, text: sound() };
        }
        let told = self.0.iter().map(|(kind, problems)| {
            let more = match problems.len().saturating_sub(TOLD_MAX) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            format!("{kind}: {}{more}", problems[..problems.len().min(TOLD_MAX)].join(", "))
        });
        Verdict { consistent: false, text: told.collect::<Vec<_>>().join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Counts([i64; 2]);

    impl Totals<2> for Counts {
        fn each_mut(&mut self) -> [(&'static str, &mut i64); 2] {
            let [sales, payments] = &mut self.0;
            [("sales", sales), ("payments", payments)]
        }
    }

    #[test]
    fn a_verdict_names_each_kind_of_problem_and_three_of_it() {
        let mut problems = Problems::default();
        (1..=5).for_each(|row| problems.expect("rows", row == 1, || format!("row {row} is gone")));
        problems.told(&Counts([7, 3]), &Counts([5, 1]), &Counts([2, 1]));
        let verdict = problems.verdict(|| unreachable!("there are problems"));
        assert!(!verdict.consistent);
        assert_eq!(
            verdict.text,
            "rows: row 2 is gone, row 3 is gone, row 4 is gone, and 1 more; \
             payments, by what the clients were told: 3, expected 2"
        );
        let sound = Problems::default().verdict(|| "all adds up".to_owned());
        assert_eq!(sound, Verdict { consistent: true, text: "all adds up".to_owned() });
    }
}

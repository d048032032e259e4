//! [`Attempts`]: what a client knows of its transactions, and which of them are in the ledger.

/// How a transaction has ended, as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server has answered the commit.
    Answered,
    /// The server has refused it, or COMMIT was not sent.
    Aborted,
    /// COMMIT was sent, and there is no certain answer.
    Unknown,
}

/// The transactions of one client, by their numbers.
#[derive(Debug, Default)]
pub struct Attempts(Vec<Outcome>);

impl Attempts {
    /// The number of the next transaction.
    pub fn next_number(&self) -> u64 {
        self.0.len() as u64
    }

    /// The transaction of the next number has ended so.
    pub fn ended(&mut self, outcome: Outcome) {
        self.0.push(outcome);
    }

    /// How many have ended so.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.0.iter().filter(|has| **has == outcome).count() as u64
    }
}

/// The rows of the ledger that belong to a run, beside what its clients know.
pub struct Ledger<'a> {
    attempts: &'a [Attempts],
    is_there: Vec<Vec<bool>>,
    /// Rows that belong to no transaction.
    strange: u64,
}

/// A transaction: its client, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Which {
    /// The client.
    pub client: usize,
    /// The number.
    pub number: usize,
}

impl<'a> Ledger<'a> {
    /// A ledger without rows.
    pub fn new(attempts: &'a [Attempts]) -> Ledger<'a> {
        let is_there = attempts.iter().map(|of| vec![false; of.0.len()]).collect();
        Ledger { attempts, is_there, strange: 0 }
    }

    /// It has this row. A row may be told more than once.
    pub fn has(&mut self, client: u64, number: u64) {
        let place = usize::try_from(client).ok().and_then(|client| self.is_there.get_mut(client));
        let place = place.zip(usize::try_from(number).ok()).and_then(|(of, number)| of.get_mut(number));
        match place {
            Some(place) => *place = true,
            None => self.strange += 1,
        }
    }

    /// The transactions that were answered, and are absent.
    pub fn lost(&self) -> Vec<Which> {
        self.find(Outcome::Answered, false)
    }

    /// How many rows there are that must not be: of transactions that were aborted, or of none.
    pub fn too_many(&self) -> u64 {
        self.find(Outcome::Aborted, true).len() as u64 + self.strange
    }

    fn find(&self, outcome: Outcome, is_there: bool) -> Vec<Which> {
        let mut found = Vec::new();
        for (client, (attempts, there)) in self.attempts.iter().zip(&self.is_there).enumerate() {
            let ends = attempts.0.iter().zip(there).enumerate();
            let these = ends.filter(|(_, end)| *end == (&outcome, &is_there));
            found.extend(these.map(|(number, _)| Which { client, number }));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Aborted, Answered, Unknown};
    use super::*;

    fn attempts(outcomes: &[Outcome]) -> Attempts {
        Attempts(outcomes.to_vec())
    }

    #[test]
    fn what_was_answered_and_is_absent_is_lost_and_nothing_else() {
        let all = [attempts(&[Answered, Unknown, Aborted]), attempts(&[Unknown, Answered, Answered])];
        let mut ledger = Ledger::new(&all);
        assert_eq!(ledger.lost().len(), 3);
        for (client, number) in [(0, 0), (1, 0), (1, 2)] {
            ledger.has(client, number);
        }
        assert_eq!(ledger.lost(), [Which { client: 1, number: 1 }]);
        assert_eq!(ledger.too_many(), 0);
        ledger.has(1, 1);
        assert!(ledger.lost().is_empty());
        assert_eq!((all[1].count(Unknown), all[1].count(Answered), all[1].next_number()), (1, 2, 3));
    }

    #[test]
    fn rows_of_aborted_transactions_and_of_none_are_too_many() {
        let all = [attempts(&[Aborted, Answered])];
        let mut ledger = Ledger::new(&all);
        ledger.has(0, 1);
        assert_eq!(ledger.too_many(), 0);
        for (client, number) in [(0, 0), (0, 0), (0, 2), (1, 0), (u64::MAX, u64::MAX)] {
            ledger.has(client, number);
        }
        assert_eq!(ledger.too_many(), 4);
    }
}

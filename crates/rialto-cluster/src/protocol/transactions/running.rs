//! The numbers of the transactions that run at a coordinator's node, which tell partitions what they may forget.
//!
//! Calls are over soon, so the lowest number of a call is never far behind. A transaction whose statements come from a
//! client may stay open for hours; partitions would have to remember all that has ended since. Therefore heartbeats
//! name those one by one.

use std::collections::BTreeSet;

use rialto::fault_injection;

use super::{Body, Work};

/// What makes a transaction go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A call: its actions follow one another, and there is a time for all of them.
    Call,
    /// A client sends one statement after the other, and thinks in between. How long a statement may take is the
    /// driver's to say.
    Statements,
}

/// The transactions that run at a node, since it has started.
#[derive(Debug, Default)]
pub struct Running {
    last: u64,
    calls: BTreeSet<u64>,
    others: BTreeSet<u64>,
}

impl Running {
    /// The number of a new transaction.
    pub fn begin(&mut self, pace: Pace) -> u64 {
        self.last += 1;
        match pace {
            _ if fault_injection::is_on("long-transactions-hold-others-back") => self.calls.insert(self.last),
            Pace::Call => self.calls.insert(self.last),
            Pace::Statements => self.others.insert(self.last),
        };
        self.last
    }

    /// A transaction has ended.
    pub fn end(&mut self, number: u64) {
        self.calls.remove(&number);
        self.others.remove(&number);
    }

    /// The lowest number that runs, for messages that open branches.
    pub fn low(&self) -> u64 {
        let first = |of: &BTreeSet<u64>| of.first().copied().unwrap_or(self.last + 1);
        first(&self.calls).min(first(&self.others))
    }

    /// What a heartbeat says.
    pub fn heartbeat<W: Work>(&self) -> Body<W> {
        let low = self.calls.first().copied().unwrap_or(self.last + 1);
        Body::Low { low, older: self.others.range(..low).copied().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bank;
    use super::*;

    #[test]
    fn a_transaction_that_stays_open_holds_no_other_number_back() {
        let mut running = Running::default();
        let open = running.begin(Pace::Statements);
        let calls: Vec<_> = (0..5).map(|_| running.begin(Pace::Call)).collect();
        let told = |running: &Running| match running.heartbeat::<Bank>() {
            Body::Low { low, older } => (low, older),
            _ => unreachable!("a heartbeat"),
        };
        assert_eq!(told(&running), (calls[0], vec![open]));
        calls[..4].iter().for_each(|number| running.end(*number));
        let later = running.begin(Pace::Statements);
        assert_eq!(told(&running), (calls[4], vec![open]));
        running.end(calls[4]);
        assert_eq!((told(&running), running.low()), ((later + 1, vec![open, later]), open));
        running.end(open);
        assert_eq!((told(&running), running.low()), ((later + 1, vec![later]), later));
    }
}

//! Whether a history is strictly serializable. Each key has the list of its writers, which is the order of its
//! versions, so all edges between transactions are known: write to write, write to read, read to write, and of time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::model::Seen;
use crate::protocol::PartitionId;
use crate::protocol::transactions::TransactionId;

/// A transaction that has committed.
#[derive(Debug, Clone)]
pub struct Transaction {
    pub id: TransactionId,
    pub seen: Vec<Seen>,
    pub began: Duration,
    /// When its client was told, if it was told at a level that counts.
    pub told: Option<Duration>,
}

/// The writers of each key, at the end.
pub type Writers = BTreeMap<(PartitionId, u8), Vec<TransactionId>>;

/// What is wrong with a history; `None` if it is strictly serializable.
pub fn what_is_wrong(transactions: &[Transaction], writers: &Writers) -> Option<String> {
    let index: BTreeMap<_, _> = transactions.iter().enumerate().map(|(at, of)| (of.id, at)).collect();
    let mut edges = vec![Vec::new(); transactions.len()];
    let mut add = |from: Option<&TransactionId>, to: Option<&TransactionId>| {
        if let (Some(from), Some(to)) = (from.and_then(|id| index.get(id)), to.and_then(|id| index.get(id)))
            && from != to
        {
            edges[*from].push(*to);
        }
    };
    for list in writers.values() {
        list.windows(2).for_each(|pair| add(Some(&pair[0]), Some(&pair[1])));
    }
    for transaction in transactions {
        for seen in &transaction.seen {
            let list = &writers[&seen.key];
            let last = seen.writers.checked_sub(1).map(|at| list.get(at));
            if last.is_some_and(|last| last != seen.last.as_ref()) {
                return Some(format!("{} has seen a version that is lost: {seen:?}", transaction.id));
            }
            add(seen.last.as_ref(), Some(&transaction.id));
            add(Some(&transaction.id), list.get(seen.writers));
            // The next writer is the transaction itself: the one after it.
            if list.get(seen.writers) == Some(&transaction.id) {
                add(Some(&transaction.id), list.get(seen.writers + 1));
            }
        }
    }
    for (from, before) in transactions.iter().enumerate() {
        let Some(told) = before.told else { continue };
        let after = transactions.iter().enumerate().filter(|(_, after)| told < after.began);
        edges[from].extend(after.map(|(to, _)| to));
    }
    let mut incoming = vec![0; transactions.len()];
    edges.iter().flatten().for_each(|to| incoming[*to] += 1);
    let mut free: Vec<_> = (0..transactions.len()).filter(|at| incoming[*at] == 0).collect();
    let mut ordered = 0;
    while let Some(at) = free.pop() {
        ordered += 1;
        for to in &edges[at] {
            incoming[*to] -= 1;
            if incoming[*to] == 0 {
                free.push(*to);
            }
        }
    }
    (ordered < transactions.len()).then(|| {
        let cyclic = (0..transactions.len()).filter(|at| incoming[*at] > 0);
        let cyclic: Vec<_> = cyclic.map(|at| transactions[at].to_string()).collect();
        let writers = writers.iter().map(|((of, key), list)| {
            let list: Vec<_> = list.iter().map(|id| id.to_string()).collect();
            format!("{of} key {key}: {}", list.join(", "))
        });
        let writers: Vec<_> = writers.collect();
        format!("a cycle among or before:\n{}\nwriters:\n{}", cyclic.join("\n"), writers.join("\n"))
    })
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {:?} to {:?} has seen", self.id, self.began, self.told)?;
        for seen in &self.seen {
            write!(f, " [{} key {}: {} writers", seen.key.0, seen.key.1, seen.writers)?;
            seen.last.map_or(Ok(()), |last| write!(f, ", last {last}"))?;
            write!(f, "]")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::NodeId;
    use crate::protocol::transactions::Start;

    fn id(number: u64) -> TransactionId {
        TransactionId { node: NodeId(0), start: Start(0), number }
    }

    fn of(number: u64, key: u8, writers: usize, last: Option<u64>, time: (u64, u64)) -> Transaction {
        let seen = Seen { key: (PartitionId(0), key), writers, last: last.map(id), balance: 0 };
        let [began, told] = [time.0, time.1].map(Duration::from_millis);
        Transaction { id: id(number), seen: vec![seen], began, told: Some(told) }
    }

    fn writers(of: &[(u8, &[u64])]) -> Writers {
        let list = |list: &[u64]| list.iter().copied().map(id).collect();
        of.iter().map(|(key, writers)| ((PartitionId(0), *key), list(writers))).collect()
    }

    #[test]
    fn cycles_stale_reads_and_lost_versions_are_found() {
        let two = writers(&[(0, &[1]), (1, &[2])]);
        // Each has read the key that the other has written, before it: write skew.
        let skew = [of(1, 1, 0, None, (0, 9)), of(2, 0, 0, None, (0, 9))];
        assert!(what_is_wrong(&skew, &two).is_some());
        let in_order = [of(1, 1, 0, None, (0, 9)), of(2, 0, 1, Some(1), (0, 9))];
        assert_eq!(what_is_wrong(&in_order, &two), None);
        let stale = [of(1, 1, 0, None, (0, 1)), of(3, 0, 0, None, (2, 3))];
        assert!(what_is_wrong(&stale, &two).is_some());
        let beside = [of(1, 1, 0, None, (0, 2)), of(3, 0, 0, None, (1, 3))];
        assert_eq!(what_is_wrong(&beside, &two), None);
        let lost = [of(3, 0, 2, Some(4), (0, 1))];
        assert!(what_is_wrong(&lost, &two).is_some());
    }
}

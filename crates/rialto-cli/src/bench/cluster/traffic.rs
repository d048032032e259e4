//! [`Traffic`]: what the nodes have counted, as they tell it themselves.

use std::collections::BTreeMap;

use super::addresses::Addresses;
use super::args::LevelName;
use super::connection::Connection;

/// The counts of one node (`SHOW rialto.node_counts`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    start: u64,
    messages_sent: u64,
    over_one: u64,
    over_several: u64,
}

impl NodeCounts {
    fn parse(text: &str) -> Option<NodeCounts> {
        let pairs: BTreeMap<&str, &str> =
            text.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
        let number = |name: &str| pairs.get(name)?.parse().ok();
        Some(NodeCounts {
            start: number("start")?,
            messages_sent: number("messages_sent")?,
            over_one: number("over_one_partition")?,
            over_several: number("over_several_partitions")?,
        })
    }

    /// What has come since then; `None` if the node has started again, and has counted from the beginning.
    fn since(self, before: NodeCounts) -> Option<NodeCounts> {
        (self.start == before.start).then(|| NodeCounts {
            start: self.start,
            messages_sent: self.messages_sent.saturating_sub(before.messages_sent),
            over_one: self.over_one.saturating_sub(before.over_one),
            over_several: self.over_several.saturating_sub(before.over_several),
        })
    }
}

/// The counts of all nodes, by their addresses; `None` for a node that does not tell, or has started again.
#[derive(Debug, Default)]
pub struct Traffic(BTreeMap<String, Option<NodeCounts>>);

impl Traffic {
    /// Asks all nodes.
    pub fn read(addresses: &Addresses) -> Traffic {
        let all = addresses.all().into_iter().map(|address| {
            let one = Addresses::new(vec![address.clone()]);
            let mut found = None;
            let mut connection = Connection::new(&one, LevelName::Disk, 0);
            let asked = connection.query("SHOW rialto.node_counts", |row| {
                found = row.first().copied().flatten().and_then(NodeCounts::parse);
            });
            (address, asked.ok().and(found))
        });
        Traffic(all.collect())
    }

    /// What has come since then.
    pub fn since(self, before: &Traffic) -> Traffic {
        let one = |(address, now): (String, Option<NodeCounts>)| {
            let before = before.0.get(&address).copied().flatten();
            let counts = now.zip(before).and_then(|(now, before)| now.since(before));
            (address, counts)
        };
        Traffic(self.0.into_iter().map(one).collect())
    }

    /// The sum over all nodes; `None` if one is missing.
    fn sum(&self, of: impl Fn(&NodeCounts) -> u64) -> Option<u64> {
        self.0.values().map(|counts| counts.as_ref().map(&of)).sum()
    }

    /// Messages between nodes for each of so many commits.
    pub fn messages_per_txn(&self, committed: u64) -> Option<f64> {
        let messages = self.sum(|counts| counts.messages_sent)?;
        (committed > 0).then(|| messages as f64 / committed as f64)
    }

    /// How many in a hundred transactions were committed in several partitions.
    pub fn remote_pct(&self) -> Option<f64> {
        let several = self.sum(|counts| counts.over_several)?;
        let all = several + self.sum(|counts| counts.over_one)?;
        (all > 0).then(|| several as f64 * 100.0 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nodes have told; an empty text is that of a server of one database.
    fn traffic(nodes: &[&str]) -> Traffic {
        let all = nodes.iter().enumerate();
        Traffic(all.map(|(node, text)| (node.to_string(), NodeCounts::parse(text))).collect())
    }

    #[test]
    fn counts_are_those_of_the_run_over_all_nodes() {
        let counts = |start, messages, one, several| {
            format!(
                "start={start} messages_sent={messages} over_one_partition={one} over_several_partitions={several}"
            )
        };
        let before = traffic(&[&counts(3, 100, 5, 5), &counts(1, 0, 0, 0)]);
        let after = traffic(&[&counts(3, 150, 6, 5), &counts(1, 50, 0, 3)]).since(&before);
        assert_eq!((after.messages_per_txn(4), after.remote_pct()), (Some(25.0), Some(75.0)));
        assert_eq!(after.messages_per_txn(0), None);
        let restarted = traffic(&[&counts(4, 150, 6, 5), &counts(1, 50, 0, 3)]).since(&before);
        assert_eq!((restarted.messages_per_txn(4), restarted.remote_pct()), (None, None));
        let gone = traffic(&[&counts(3, 150, 6, 5), ""]).since(&before);
        assert_eq!(gone.messages_per_txn(4), None);
        assert_eq!(traffic(&[""]).remote_pct(), None);
    }
}

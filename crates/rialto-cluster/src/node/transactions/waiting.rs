//! [`Waiting`]: messages of transactions that found no room on their way to another node.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use rialto::fault_injection;

use super::work::SqlWork;
use crate::net::Class;
use crate::protocol::NodeId;
use crate::protocol::transactions::{Message, MessageKey};

/// Messages that belong to work which was admitted, by the node that they go to and the room that they take there.
///
/// Invariants:
/// 1. Nothing is lost, and messages of a lane go in the order in which they came.
/// 2. A message that is sent again while its earlier copy waits takes that one's place (C13): so each transaction has
///    each kind of message in a lane once at most, however long the other node stands still.
#[derive(Debug, Default)]
pub struct Waiting(BTreeMap<(NodeId, Class), Lane>);

#[derive(Debug, Default)]
struct Lane {
    messages: BTreeMap<u64, Message<SqlWork>>,
    /// Where each message is.
    at: HashMap<MessageKey<SqlWork>, u64>,
    next: u64,
}

impl Waiting {
    /// Keeps a message.
    pub fn push(&mut self, lane: (NodeId, Class), message: Message<SqlWork>) {
        let Lane { messages, at, next } = self.0.entry(lane).or_default();
        let key = message.key();
        let before = at.get(&key).filter(|_| !fault_injection::is_on("waiting-messages-pile-up"));
        let place = *before.unwrap_or(next);
        *next = (*next).max(place + 1);
        at.insert(key, place);
        messages.insert(place, message);
    }

    /// Whether messages of a lane wait.
    pub fn has(&self, lane: (NodeId, Class)) -> bool {
        self.0.contains_key(&lane)
    }

    /// Sends what there is room for: `send` gives a message back for which there is none.
    pub fn send(&mut self, mut send: impl FnMut(NodeId, Message<SqlWork>) -> Option<Message<SqlWork>>) {
        let lanes: Vec<_> = self.0.keys().copied().collect();
        for key in lanes {
            let Entry::Occupied(mut lane) = self.0.entry(key) else { continue };
            let Lane { messages, at, .. } = lane.get_mut();
            while let Some((place, message)) = messages.pop_first() {
                let of = message.key();
                if let Some(unsent) = send(key.0, message) {
                    messages.insert(place, unsent);
                    break;
                }
                at.remove(&of);
            }
            if messages.is_empty() {
                lane.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PartitionId;
    use crate::protocol::transactions::{Address, Body, Opening, Outcome, Sender, Start, TransactionId};

    fn message(number: u64, partition: u32, body: Body<SqlWork>) -> Message<SqlWork> {
        let transaction = TransactionId { node: NodeId(1), start: Start(1), number };
        let from = Sender::Partition(PartitionId(partition), Opening(3));
        Message { from, to: Address::Partition(PartitionId(9)), transaction, body }
    }

    fn sent(waiting: &mut Waiting, room: usize) -> Vec<String> {
        let mut sent = Vec::new();
        waiting.send(|_, message| {
            if sent.len() == room {
                return Some(message);
            }
            sent.push(format!("{} {:?} {:?}", message.transaction.number, message.from, message.body));
            None
        });
        sent
    }

    #[test]
    fn what_is_sent_again_takes_its_own_place_and_nothing_is_lost() {
        let (mut waiting, lane) = (Waiting::default(), (NodeId(2), Class::Protocol));
        for _ in 0..1_000 {
            for number in [1, 2] {
                waiting.push(lane, message(number, 0, Body::NotYet));
                waiting.push(lane, message(number, 0, Body::Forgotten));
                // Another partition of the node.
                waiting.push(lane, message(number, 1, Body::Forgotten));
                waiting.push(lane, message(number, 0, Body::Outcome(Outcome::Unknown)));
            }
        }
        let mut all = sent(&mut waiting, 3);
        assert_eq!(all.len(), 3);
        assert!(waiting.has(lane));
        // One that has gone is a new one.
        waiting.push(lane, message(1, 0, Body::NotYet));
        all.extend(sent(&mut waiting, usize::MAX));
        assert!(!waiting.has(lane) && sent(&mut waiting, 1).is_empty());
        let of = |number| {
            let bodies = [(0, "NotYet"), (0, "Forgotten"), (1, "Forgotten"), (0, "Outcome(Unknown)")];
            bodies.map(|(partition, body)| {
                format!("{number} {:?} {body}", Sender::Partition(PartitionId(partition), Opening(3)))
            })
        };
        let expected: Vec<String> = of(1).into_iter().chain(of(2)).chain([of(1)[0].clone()]).collect();
        assert_eq!(all, expected);
    }
}

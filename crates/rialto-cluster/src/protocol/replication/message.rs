//! The messages between the replicas of a partition.

use rialto::log::LogPoint;
use serde::{Deserialize, Serialize};

use super::configuration::{Known, Member};
use super::promise::Asked;
use crate::control::Revision;
use crate::protocol::wire::{log_point, optional_log_point};
use crate::protocol::{Epoch, Life, Moment, NodeId, PartitionId};

/// A stretch of shipping from a primary to one replica: the blocks of one stream follow one another. A new one begins when the
/// replica's end has to be compared with the primary's log again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stream {
    /// The epoch in which the primary began it.
    pub epoch: Epoch,
    /// Its number among those that this primary has begun.
    pub number: u64,
}

/// A message with what every message carries (C2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The partition.
    pub partition: PartitionId,
    /// The highest epoch that the sender has seen.
    pub epoch: Epoch,
    /// The sender, in its life.
    pub from: Member,
    /// The node that it goes to.
    pub to: NodeId,
    /// If it is for one life only: that one.
    pub to_life: Option<Life>,
    /// What it says.
    pub message: Message,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A primary leads under this configuration, and asks for a promise.
    Heartbeat {
        /// The configuration in force.
        known: Known,
        /// The request.
        ask: Asked,
        /// What all replicas in sync have: it may be redone.
        #[serde(with = "log_point")]
        redo: LogPoint,
    },
    /// How far a replica is.
    Status {
        /// The request that it answers with a promise.
        promise: Option<Asked>,
        /// The stream that its log's end belongs to, if any.
        stream: Option<Stream>,
        /// What it has in memory that outlives its process; nothing while its database is not open.
        #[serde(with = "optional_log_point")]
        received: Option<LogPoint>,
        /// Whether it can go on as a standby.
        fitness: Fitness,
    },
    /// Blocks of the primary's log. Their bytes travel beside the message.
    Blocks {
        /// The stream. Its first message shows that the primary's log goes through `begin`.
        stream: Stream,
        /// Where the first block begins.
        #[serde(with = "log_point")]
        begin: LogPoint,
        /// Where the last one ends; `begin` if there is none.
        #[serde(with = "log_point")]
        end: LogPoint,
    },
    /// The primary's log does not go through this end of the receiver's log, or does not have the blocks after it any
    /// more.
    StartOver {
        /// The stream that was to begin there, or to go on.
        stream: Stream,
        /// The receiver's end.
        #[serde(with = "log_point")]
        end: LogPoint,
    },
    /// The receiver is behind: the envelope has the newer epoch.
    Newer {
        /// The configuration, if the sender knows it.
        known: Option<Known>,
    },
    /// The primary has stopped to serve in this epoch and gives the receiver's promise back.
    Handover {
        /// Where the log ends of those in `with`.
        #[serde(with = "log_point")]
        end: LogPoint,
        /// Replicas in sync whose logs end there, and will not grow in this epoch.
        with: Vec<Member>,
    },
    /// A recorded primary with a new life asks whether the receiver has one, too.
    AskLife {
        /// The configuration that the question is about.
        revision: Revision,
    },
    /// The answer: the envelope has the life.
    LifeIs {
        /// That of the question.
        revision: Revision,
    },
    /// An operator has a replica go on by force: the envelope's epoch ends all earlier ones.
    Fence,
    /// The answer: no epoch below the envelope's goes on through the sender.
    Fenced {
        /// The end of the sender's log; nothing while its database is not open.
        #[serde(with = "optional_log_point")]
        received: Option<LogPoint>,
    },
    /// The other answer: the epoch of the fence is not above all.
    FenceRefused {
        /// It has to be above this one.
        above: Epoch,
    },
    /// A replica that follows asks its primary where the log ends.
    AskEnd {
        /// When it asks, on its own clock: it comes back with the answer.
        asked_at: Moment,
    },
    /// The answer of a primary that serves. It is for the life of the replica that has asked: a clock begins anew with
    /// each boot, and so does a life.
    EndIs {
        /// That of the question.
        asked_at: Moment,
        /// The epoch in which the primary began to lead: that of its streams.
        began: Epoch,
        /// The end of its log. Everything that was answered before the question, at any level, ends at or before it.
        #[serde(with = "log_point")]
        end: LogPoint,
        /// What all replicas in sync have: it may be redone.
        #[serde(with = "log_point")]
        redo: LogPoint,
    },
}

/// Whether a replica can be a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fitness {
    /// It can.
    Fit,
    /// Its log has stopped, or blocks could not be appended or redone (C7). It stays so until its database is opened anew.
    Unfit,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rialto::Lsn;
    use rialto::log::LogPosition;

    use super::super::{Configuration, LostBefore, StoreIdentity};
    use super::*;

    fn messages() -> Vec<Message> {
        let point = LogPoint { lsn: Lsn(7), position: LogPosition(4096), checksum: 0xFEDC };
        let member = Member { node: NodeId(1), life: Life(11) };
        let stream = Stream { epoch: Epoch(3), number: 9 };
        let configuration = Configuration {
            epoch: Epoch(3),
            primary: NodeId(1),
            in_sync: vec![member],
            learners: vec![],
            lost_before: LostBefore::default(),
        };
        let known = Known { store: StoreIdentity(5), revision: Revision(8), configuration };
        vec![
            Message::Heartbeat { known: known.clone(), ask: Asked(2), redo: point },
            Message::Status {
                promise: Some(Asked(2)),
                stream: Some(stream),
                received: Some(point),
                fitness: Fitness::Fit,
            },
            Message::Status { promise: None, stream: None, received: None, fitness: Fitness::Unfit },
            Message::Blocks { stream, begin: point, end: point },
            Message::StartOver { stream, end: point },
            Message::Newer { known: Some(known) },
            Message::Handover { end: point, with: vec![member] },
            Message::AskLife { revision: Revision(8) },
            Message::LifeIs { revision: Revision(8) },
            Message::Fence,
            Message::Fenced { received: Some(point) },
            Message::FenceRefused { above: Epoch(4) },
            Message::AskEnd { asked_at: Moment(Duration::from_micros(77)) },
            Message::EndIs {
                asked_at: Moment(Duration::from_micros(77)),
                began: Epoch(2),
                end: point,
                redo: point,
            },
        ]
    }

    #[test]
    fn bytes_are_the_message_or_an_error() {
        for message in messages() {
            let envelope = Envelope {
                partition: PartitionId(2),
                epoch: Epoch(3),
                from: Member { node: NodeId(1), life: Life(11) },
                to: NodeId(2),
                to_life: Some(Life(12)),
                message,
            };
            let bytes = postcard::to_stdvec(&envelope).unwrap();
            assert_eq!(postcard::from_bytes::<Envelope>(&bytes).unwrap(), envelope);
            for length in 0..bytes.len() {
                assert!(postcard::from_bytes::<Envelope>(&bytes[..length]).is_err(), "{length} bytes");
            }
        }
        let mut beyond = postcard::to_stdvec(&(Lsn::MAX.0 + 1)).unwrap();
        beyond.extend([0, 0]);
        let read = log_point::deserialize(&mut postcard::Deserializer::from_bytes(&beyond));
        assert!(read.is_err(), "a place that no log has");
    }
}

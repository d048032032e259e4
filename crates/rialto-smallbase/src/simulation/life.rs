//! [`Life`]: the steps of a transaction, from thread to thread.
//!
//! They are those of the code: a message is written by the thread that sends it, is read by the thread of the connection at the other
//! node, and what may block there is a job for a worker. A client's thread runs what its own node serves.

use crate::spec::Protocol;

/// A node, seen from a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The node of the client.
    Own,
    /// The node of the account.
    Other,
    /// The node with the standby of the client's node.
    OwnStandby,
    /// The node with the standby of the account's node.
    OtherStandby,
}

/// The thread that takes a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The client's thread.
    Client,
    /// The thread that reads the connection with the node of the step before.
    Reader,
    /// A thread that takes jobs.
    Worker,
}

/// A step. A step on another node than the one before it follows a message, which a reader takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// On which node.
    pub place: Place,
    /// By which thread.
    pub by: By,
    /// Its share of the processor time of the life, switches not counted.
    pub share: f64,
    /// Whether the client has its answer at its end.
    pub answers: bool,
}

/// The steps of a transaction. Those after the answer go on while the client begins another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// In their order; at least one.
    pub steps: Vec<Step>,
}

/// What steps weigh: to write a message, to read one, and to change an account or the rest.
const WRITES: f64 = 3.0;
const READS: f64 = 1.0;
const CHANGES: f64 = 2.0;

impl Life {
    fn of(steps: &[(Place, By, f64)], answer: usize) -> Life {
        let all: f64 = steps.iter().map(|(.., weight)| weight).sum();
        let step = |(nth, &(place, by, weight)): (usize, &(Place, By, f64))| Step {
            place,
            by,
            share: weight / all,
            answers: nth == answer,
        };
        Life { steps: steps.iter().enumerate().map(step).collect() }
    }

    /// A transaction of one node. As a whole it is at level 2: its log goes to the standby, which answers. The disk is not simulated.
    pub fn local(protocol: Protocol) -> Life {
        use {By::*, Place::*};
        match protocol {
            Protocol::AsPaper => Life::of(&[(Own, Client, 1.0)], 0),
            Protocol::Atomic => Life::of(
                &[
                    (Own, Client, CHANGES + WRITES),
                    (OwnStandby, Reader, READS + WRITES),
                    (Own, Reader, READS),
                    (Own, Client, READS),
                ],
                3,
            ),
        }
    }

    /// A transaction over two nodes. As the paper ran it: the account first, by a message and its reply, and then the rest. As a whole:
    /// the account, whose node votes once its standby has it; the rest and the commit, which the client's own standby has before the
    /// answer; then the decision, which the other node takes over to its standby and confirms.
    pub fn remote(protocol: Protocol) -> Life {
        use {By::*, Place::*};
        match protocol {
            Protocol::AsPaper => Life::of(
                &[
                    (Own, Client, WRITES),
                    (Other, Reader, READS),
                    (Other, Worker, WRITES),
                    (Own, Reader, READS),
                    (Own, Client, CHANGES),
                ],
                4,
            ),
            Protocol::Atomic => Life::of(
                &[
                    (Own, Client, WRITES + CHANGES),
                    (Other, Reader, READS),
                    (Other, Worker, CHANGES + WRITES),
                    (OtherStandby, Reader, READS + WRITES),
                    (Other, Reader, READS),
                    (Other, Worker, WRITES),
                    (Own, Reader, READS),
                    (Own, Client, WRITES),
                    (OwnStandby, Reader, READS + WRITES),
                    (Own, Reader, READS),
                    (Own, Client, WRITES),
                    (Other, Reader, READS),
                    (Other, Worker, WRITES),
                    (OtherStandby, Reader, READS + WRITES),
                    (Other, Reader, READS),
                    (Other, Worker, WRITES),
                    (Own, Reader, READS),
                ],
                10,
            ),
        }
    }

    /// Messages between nodes.
    pub fn messages(&self) -> usize {
        self.steps.windows(2).filter(|pair| pair[0].place != pair[1].place).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_have_the_messages_of_the_protocol_and_one_answer() {
        let lives = [
            (Life::local(Protocol::AsPaper), 0),
            (Life::local(Protocol::Atomic), 2),
            (Life::remote(Protocol::AsPaper), 2),
            // Four of the protocol, and two for each of three commits at standbys.
            (Life::remote(Protocol::Atomic), 4 + 6),
        ];
        for (life, messages) in lives {
            assert_eq!(life.messages(), messages, "{life:?}");
            assert_eq!(life.steps.iter().filter(|step| step.answers).count(), 1, "{life:?}");
            assert!((life.steps.iter().map(|step| step.share).sum::<f64>() - 1.0).abs() < 1e-9);
            assert_eq!((life.steps[0].place, life.steps[0].by), (Place::Own, By::Client));
            for pair in life.steps.windows(2) {
                assert!(pair[0].place == pair[1].place || pair[1].by == By::Reader, "{pair:?}");
            }
            let answer = life.steps.iter().find(|step| step.answers).unwrap();
            assert_eq!(answer.by, By::Client);
        }
    }
}

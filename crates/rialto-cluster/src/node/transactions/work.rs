//! [`SqlWork`]: what actions and replies of transactions are: of SQL sessions, and of calls.

use rialto_sql::partitions::{Level as SqlLevel, Opening, Reply, Request, Told, Work as SqlRequest};
use rialto_sql::{SqlError, SqlState};
use serde::{Deserialize, Serialize};

use crate::node::calls::{CallAction, Failure, Outputs};
use crate::protocol::PartitionId;
use crate::protocol::transactions::{Level, Work};

/// The work of SQL sessions and of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlWork;

impl Work for SqlWork {
    type Action = Action;
    type Reply = Answer;
}

/// An action of a transaction in one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Of a SQL session.
    Sql(SqlAction),
    /// Of a call.
    Call(CallAction),
}

/// An action of a SQL session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SqlAction {
    /// The session.
    pub opening: Opening,
    /// Whether a cancellation that came too late for the action before is taken back.
    pub clears_cancellation: bool,
    /// What is to be done.
    pub what: What,
}

impl SqlAction {
    /// Whether it may give its result in portions, each of which waits for the session. A statement that only changes rows
    /// gives none.
    pub fn may_give_portions(&self) -> bool {
        let What::Request(Request::Run(run)) = &self.what else { return false };
        let SqlRequest::Statement(statement) = &run.work else { return false };
        let text = statement.text.trim_start().as_bytes();
        let begins_with = |word: &str| {
            text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()))
        };
        let returns = |text: &[u8]| text.windows(9).any(|word| word.eq_ignore_ascii_case(b"returning"));
        !["insert", "update", "delete"].into_iter().any(begins_with) || returns(text)
    }
}

/// What an action does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// A request of the session.
    Request(Request),
    /// Waits until what the branch has read is durable at this level.
    Settle(Level),
    /// Says whether the partition refuses the branch's commit at level 2 ([`unprotected`]).
    Admit,
    /// Says where the partition's log ends, once everything up to there is at level 2.
    Position,
}

/// What an action gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The reply to the session.
    Reply(Box<Reply>),
    /// There was no request.
    Nothing,
    /// What a call, or some of its actions, gave.
    Called(Result<Outputs, Failure>),
    /// The result is larger than a call can give. It has no effect: the statement is to be run as a transaction of several
    /// actions.
    TooLarge,
}

/// The error in place of a reply that is too long for a message.
pub fn too_long_reply(reply: &Answer) -> Answer {
    if let Answer::Called(_) = reply {
        return Answer::Called(Err(Failure::TooLong));
    }
    let has_written = matches!(reply, Answer::Reply(reply) if reply.has_written);
    let limit =
        SqlError::new(SqlState::LimitExceeded, "a row of the result is too long for a message between nodes");
    let answer = Err(Told::from(&limit.hint("A message has at most 4 MiB.")));
    Answer::Reply(Box::new(Reply { answer, has_written }))
}

/// The error of a commit at level 2 in a partition that has too few replicas in sync, where the cluster refuses that.
pub fn unprotected(partition: PartitionId) -> SqlError {
    let message = format!(
        "{partition} has too few replicas in sync, and this cluster then refuses commits at level standby: the transaction has \
         no effect"
    );
    SqlError::new(SqlState::InsufficientResources, message).hint(
        "Try again when `rialto cluster status` shows the partition as protected, or commit at level disk: SET \
         rialto.durability = 'disk'.",
    )
}

/// The level that a session asks for; without one, the cluster's default.
pub fn level(asked: Option<SqlLevel>) -> Level {
    match asked {
        Some(SqlLevel::Memory) => Level::Memory,
        Some(SqlLevel::Standby) | None => Level::Standby,
        Some(SqlLevel::Disk) => Level::Disk,
    }
}

//! System M's transaction server (its paper, sections 2.1, 2.2 and 2.4): requests come through one bounded queue, one
//! executor runs them one after the other, and each message server has a response queue of its own.
//!
//! ```text
//!  message server ─┐                  ┌─ priority executor ─┐   log server
//!  message server ─┼▶ request queue ──┤  (one runs at a     ├─▶ forwards when ─┬▶ response queue of the
//!  message server ─┘    bounded       └─ standby executors ─┘   durable        └▶ message server that asked
//! ```
//!
//! - A [`TransactionServer`] has one *priority executor*, which takes requests off the queue and runs them to their
//!   commit, serially. If the transaction that it runs has to wait for a lock, for room in the log or for a
//!   checkpoint's barrier, a *standby executor* runs the next request meanwhile. So at most one executor runs at any
//!   time. The blocked executor goes on when its wait is over and the running request is done, before the next one is
//!   begun.
//! - A transaction never waits until it is durable. When it has its place, the executor goes on to the next request,
//!   and the response goes out when the log is as durable as was requested (flush pipelining). The thread that made
//!   the log durable, the log server, forwards all responses of its group.
//! - A request whose run was a deadlock's victim is put on the restart queue. It runs again after a back-off, on any
//!   executor.
//! - A [`MessageServer`] puts [`Request`]s on the queue and takes [`Response`]s, each with the times when it was put
//!   and taken. There can be any number of them; each is used by one thread.
//! - Processor time by server is in [`Metrics::servers`](crate::Metrics::servers).
//!
//! The executor is one of the data-oriented engine (`engine/data_oriented/threads/`), whichever engine the database
//! has: with the same loop, and standbys for requests that wait.
//!
//! In two cases a waiting executor does not let a standby run: at the memory bound, and behind the latch of a segment
//! that an unspooled sweep is writing.
//!
//! ```
//! use rialto::io::MemoryDisk;
//! use rialto::row::{Column, ColumnType, Value};
//! use rialto::{Action, Database, Flow, Options, Procedure, TableDef, TransactionServer, TransactionServerOptions};
//!
//! let database = Database::open_on(MemoryDisk::new(), Options::default())?;
//! let columns = vec![Column::new("id", ColumnType::Int4), Column::new("balance", ColumnType::Int8)];
//! let accounts = TableDef::new("accounts", columns).with_primary_key(&["id"]);
//! database.transact(|transaction| {
//!     let table = transaction.create_table(&accounts)?;
//!     transaction.insert(&table, &[Value::Int4(7), Value::Int8(100)])
//! })?;
//! let deposit = Action::exclusive("accounts", |transaction, arguments, outputs| {
//!     let (id, amount): (i32, i64) = (arguments.get(0)?, arguments.get(1)?);
//!     let mut balance = 0;
//!     transaction.modify(arguments.table()?, id, |fields| {
//!         balance = fields.add_i64(1, amount)?;
//!         Ok(())
//!     })?;
//!     outputs.push(balance);
//!     Ok(())
//! });
//! let arguments = [ColumnType::Int4, ColumnType::Int8];
//! database.register(Procedure::new("deposit", arguments, Flow::from(deposit.by_argument(0))))?;
//!
//! let server = TransactionServer::start(&database, &TransactionServerOptions { queue: 8, ..Default::default() })?;
//! let deposit = server.procedure("deposit")?;
//! let mut message_server = server.message_server();
//! for amount in [5, 10] {
//!     let mut request = message_server.request(&deposit);
//!     request.push(7).push(i64::from(amount));
//!     message_server.put(request)?;
//! }
//! for balance in [105, 115] {
//!     let response = message_server.take().expect("both are on their way");
//!     assert_eq!(response.outcome(), &Ok(()));
//!     assert_eq!(response.outputs(), [Value::Int8(balance)]);
//!     message_server.recycle(response);
//! }
//! assert!(message_server.take().is_none());
//! server.close();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Inside: the server is a `Queues` of one thread, with a bound, and a request is one of its tasks, which runs whole.
//! `envelope`: a request that runs, and a response that waits for the log. The request queue, and the choice of the
//! executor that runs, are in `engine/dispatch/`, with a model of these and of `response_queue`.
//! [`wait_guard`](crate::account::wait_guard): how a wait deep in the kernel lets a standby run.

mod envelope;
mod message_server;
mod request;
mod response_queue;
mod server;
#[cfg(test)]
mod tests;

use super::dispatch::{RoomWaiter, sync};

pub use super::dispatch::TransactionServerStats;
pub(super) use envelope::{Envelope, Unanswered};
pub use message_server::MessageServer;
pub use request::{Request, Response};
#[cfg(test)]
pub(super) use response_queue::{ResponseQueue, ServerWait};
pub(crate) use server::KeptOpen;
pub use server::{ServedProcedure, TransactionServer, TransactionServerOptions};

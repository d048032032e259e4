//! [`PreparedCall`]: a procedure that is looked up once, for a caller that calls it often.

use std::fmt;

use super::Database;
use crate::engine::data_oriented::Way;
use crate::engine::{KeysAhead, Outputs, Prepared};
use crate::error::Result;
use crate::reply::{Sent, Ticket};
use crate::row::Value;
use crate::txn::{Transaction, TxOptions};

/// A registered procedure with its options, for one caller at a time. The name is looked up once, and the outputs of a
/// call lie in memory that the next call uses again.
///
/// [`Database::call`] does the same, but looks the name up in a map and allocates a vector in each call. Once a higher
/// version of the procedure has been registered, the next call runs that version.
///
/// ```
/// # use rialto::row::{Column, ColumnType, Value};
/// # use rialto::{Action, Database, Procedure, TableDef};
/// # let options = rialto::Options { memory_bytes: 64 << 20, ..rialto::Options::default() };
/// # let database = Database::open_on(rialto::io::MemoryDisk::new(), options)?;
/// # let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
/// # let definition = TableDef::new("counters", columns).with_primary_key(&["id"]);
/// # let counters = database.transact(|transaction| transaction.create_table(&definition))?;
/// # database.transact(|transaction| transaction.insert(&counters, &[Value::Int4(7), Value::Int8(0)]))?;
/// let add = Action::exclusive("counters", |transaction, arguments, outputs| {
///     let mut sum = 0;
///     transaction.modify(arguments.table()?, arguments.get::<i32>(0)?, |row| {
///         sum = row.get_i64(1)? + arguments.get::<i64>(1)?;
///         row.set(1, &Value::Int8(sum))
///     })?;
///     outputs.push(sum);
///     Ok(())
/// });
/// database.register(Procedure::new("add", [ColumnType::Int4, ColumnType::Int8], add.by_argument(0)))?;
///
/// let mut add = database.prepare_call("add")?;
/// assert_eq!(add.call(&[Value::Int4(7), Value::Int8(5)])?, [Value::Int8(5)]);
/// let (sum, ticket) = add.submit(&[Value::Int4(7), Value::Int8(5)])?;
/// assert_eq!(sum, [Value::Int8(10)]);
/// ticket.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PreparedCall {
    database: Database,
    procedure: Prepared,
    /// The options as the caller gave them.
    given: TxOptions,
    /// The same, with the procedure's account and choices.
    options: TxOptions,
    outputs: Outputs,
    keys_ahead: KeysAhead,
}

impl Database {
    /// Looks up a registered procedure that the caller wants to call often.
    ///
    /// # Errors
    /// [`Error::Procedure`](crate::Error::Procedure) if no procedure of this name is registered.
    pub fn prepare_call(&self, name: &str) -> Result<PreparedCall> {
        self.prepare_call_with(&TxOptions::default(), name)
    }

    /// As [`Database::prepare_call`], with the options for all of its calls.
    ///
    /// # Errors
    /// As [`Database::prepare_call`].
    pub fn prepare_call_with(&self, options: &TxOptions, name: &str) -> Result<PreparedCall> {
        let procedure = self.find_procedure(name)?;
        let (given, options) = (options.clone(), procedure.options(options));
        Ok(PreparedCall {
            database: self.clone(),
            procedure,
            given,
            options,
            outputs: Outputs::none(),
            keys_ahead: KeysAhead::default(),
        })
    }
}

impl PreparedCall {
    /// The procedure's name.
    pub fn name(&self) -> &str {
        self.procedure.name()
    }

    /// Runs the procedure as [`Database::call`] does.
    ///
    /// # Blocking
    /// As [`Database::call`].
    ///
    /// # Errors
    /// As [`Database::call`].
    #[inline]
    pub fn call(&mut self, arguments: &[Value]) -> Result<&[Value]> {
        self.follow()?;
        let PreparedCall { database, procedure, options, outputs, .. } = self;
        let arguments = procedure.check(arguments)?;
        match database.way(procedure, &arguments)? {
            Way::Queue(queue) => {
                let sent = database.hand_over(queue, procedure, options, arguments)?;
                *outputs = Outputs::after(sent.wait()?);
            }
            Way::Here(_visit) => database
                .transact_with(options, |transaction| procedure.run(transaction, &arguments, outputs))?,
        }
        Ok(self.outputs.values())
    }

    /// Runs the procedure as [`Database::submit_call`] does.
    ///
    /// # Blocking
    /// As [`Database::submit_call`].
    ///
    /// # Errors
    /// As [`Database::call`].
    #[inline]
    pub fn submit(&mut self, arguments: &[Value]) -> Result<(&[Value], Ticket)> {
        self.follow()?;
        let PreparedCall { database, procedure, options, outputs, .. } = self;
        let arguments = procedure.check(arguments)?;
        let ticket = match database.way(procedure, &arguments)? {
            Way::Queue(queue) => {
                let sent = database.hand_over(queue, procedure, options, arguments)?;
                let (values, ticket) = sent.wait_for_place()?;
                *outputs = Outputs::after(values);
                ticket
            }
            Way::Here(_visit) => {
                let run = |transaction: &mut Transaction| procedure.run(transaction, &arguments, outputs);
                database.submit_with(options, run)?.1
            }
        };
        Ok((self.outputs.values(), ticket))
    }

    /// Sends a call on its way as [`Database::send_call`] does; its outputs are in [`Sent`].
    ///
    /// # Blocking
    /// As [`Database::send_call`].
    ///
    /// # Errors
    /// As [`Database::send_call`].
    #[inline]
    pub fn send(&mut self, arguments: &[Value]) -> Result<Sent> {
        self.follow()?;
        let arguments = self.procedure.check(arguments)?;
        self.database.send(&self.procedure, &self.options, arguments, None)
    }

    /// Sends several calls on their way, in this order, each as [`PreparedCall::send`] does. Each call is a transaction
    /// of its own and has a result of its own, at its position: an error or a panic of one call does not affect
    /// another.
    ///
    /// Where calls run on the calling thread, a call sees the effects of the calls before it. The keys that the first
    /// phases of the calls name by arguments ([`Action::by_argument`](crate::Action::by_argument), whole keys of an
    /// index) are looked up together, up to 16 at a time, before their calls run. A look-up in a large table waits for
    /// main memory three or four times, and these waits overlap. This pays for short calls by one or two keys in tables
    /// larger than the processor's cache, in batches of four or more. Keys of small tables (an index of at most 252
    /// leaves) are not looked up before their calls, nor are the keys of a first phase of five actions or more, which
    /// looks its own keys up together.
    ///
    /// Threads that own executors ([`Executors::threads`](crate::Executors::threads)) run the calls at the same time
    /// and in any order, and look up no keys before a call runs.
    ///
    /// # Errors
    /// Of each call, as [`PreparedCall::send`].
    ///
    /// # Panics
    /// If `as_ref` of the arguments does. The calls before them have been sent.
    ///
    /// ```
    /// # use rialto::row::Value;
    /// fn balances(balance: &mut rialto::PreparedCall, accounts: &[i32]) -> rialto::Result<Vec<Vec<Value>>> {
    ///     let calls: Vec<[Value; 1]> = accounts.iter().map(|account| [Value::Int4(*account)]).collect();
    ///     balance.send_all(&calls).into_iter().map(|sent| sent?.wait()).collect()
    /// }
    /// ```
    pub fn send_all(&mut self, calls: &[impl AsRef<[Value]>]) -> Vec<Result<Sent>> {
        let mut sent = Vec::with_capacity(calls.len());
        let mut rest = calls;
        while !rest.is_empty() {
            let (window, later) = rest.split_at(self.fetch_keys(rest));
            sent.extend(window.iter().enumerate().map(|(nth, call)| self.send_of_window(nth, call.as_ref())));
            rest = later;
        }
        sent
    }

    /// Looks up the keys of the first of these calls; of how many.
    fn fetch_keys(&mut self, calls: &[impl AsRef<[Value]>]) -> usize {
        // Each call tells of the error.
        if self.follow().is_err() {
            return calls.len();
        }
        let PreparedCall { database, procedure, keys_ahead, .. } = self;
        match database.queues_for(procedure) {
            Some(_) => calls.len(),
            None => keys_ahead.fetch(&database.core().storage, procedure, calls),
        }
    }

    /// Sends the call at this position of the window.
    fn send_of_window(&mut self, nth: usize, arguments: &[Value]) -> Result<Sent> {
        self.follow()?;
        let PreparedCall { database, procedure, options, keys_ahead, .. } = self;
        let arguments = procedure.check(arguments)?;
        database.send(procedure, options, arguments, keys_ahead.of_call(nth))
    }

    /// Moves on to the version that is registered by now, and to the tables as they are by now.
    #[inline]
    fn follow(&mut self) -> Result<()> {
        if self.procedure.is_superseded() {
            return self.find_again();
        }
        self.procedure.follow(&self.database.core().storage.catalog);
        Ok(())
    }

    #[cold]
    fn find_again(&mut self) -> Result<()> {
        self.procedure = self.database.find_procedure(self.procedure.name())?;
        self.options = self.procedure.options(&self.given);
        Ok(())
    }
}

impl fmt::Debug for PreparedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PreparedCall { procedure, options, .. } = self;
        let version = procedure.procedure().version;
        f.debug_struct("PreparedCall")
            .field("name", &procedure.name())
            .field("version", &version)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

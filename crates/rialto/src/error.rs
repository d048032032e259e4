//! What can go wrong in a transaction, one variant per thing that a caller may want to tell apart.

use std::borrow::Cow;

use crate::ids::Lsn;

/// The result of an operation inside a transaction.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation, or a whole transaction, did not succeed.
///
/// After [`Error::Deadlock`], [`Error::Timeout`], [`Error::Stopped`] and [`Error::OutcomeUnknown`] the transaction
/// cannot go on. [`Database::transact`](crate::Database::transact) aborts a deadlock's victim and runs its body again.
/// After [`Error::Cancelled`] each operation fails until
/// [`clear_cancellation`](crate::Transaction::clear_cancellation). After every other error the transaction is as it was
/// before the failed operation and may go on, holding the locks that it holds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Recovery has run a call in the log again, and the call had another result than when it committed (System M's
    /// TOPER).
    #[error(
        "replaying place {lsn} of the log, procedure \"{procedure}\" version {version} with ({arguments}): {what}"
    )]
    Replay {
        /// The call's place in the log.
        lsn: Lsn,
        /// The procedure's name.
        procedure: String,
        /// Its version.
        version: u32,
        /// The arguments, printed.
        arguments: String,
        /// What was expected and found, and what to do.
        what: String,
    },
    /// The transaction was chosen as the victim of a deadlock. Abort it and run it again. SQLSTATE 40P01.
    #[error(
        "deadlock: waiting for {waiting_for} closed a cycle; the transaction was chosen as its victim, run it again"
    )]
    Deadlock {
        /// The requested lock.
        waiting_for: String,
    },
    /// A lock was not granted in time. SQLSTATE 55P03.
    #[error("lock time-out: {lock} was not granted within {waited_ms} ms (TxOptions::lock_timeout)")]
    LockTimeout {
        /// The requested lock.
        lock: String,
        /// How long the transaction waited.
        waited_ms: u64,
    },
    /// Another transaction holds the lock, and the caller asked not to wait for it. SQLSTATE 55P03.
    #[error("the lock on {lock} is held by another transaction and the caller asked not to wait")]
    WouldWait {
        /// The requested lock.
        lock: String,
    },
    /// The transaction was cancelled from outside. SQLSTATE 57014.
    #[error("cancelled on request")]
    Cancelled,
    /// The transaction ran longer than its time-out ([`TxOptions::timeout`](crate::TxOptions::timeout)). SQLSTATE
    /// 57014.
    #[error("transaction time-out: ran longer than {limit_ms} ms (TxOptions::timeout)")]
    Timeout {
        /// The limit that was passed.
        limit_ms: u64,
    },
    /// The unique index has the key already. SQLSTATE 23505.
    #[error("duplicate key {key} in unique index \"{index}\" of table \"{table}\"")]
    DuplicateKey {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
        /// The key, printed by column.
        key: String,
    },
    /// A null for a column that takes none. SQLSTATE 23502.
    #[error("null value in column \"{column}\" of table \"{table}\", which is NOT NULL")]
    NotNull {
        /// The table's name.
        table: String,
        /// The column's name.
        column: String,
    },
    /// A string longer than its column. SQLSTATE 22001.
    #[error("value of {length} characters is too long for column \"{column}\" of type char({limit})")]
    StringTooLong {
        /// The column's name.
        column: String,
        /// The value's length in characters.
        length: usize,
        /// The column's length in characters.
        limit: usize,
    },
    /// A number that its column cannot hold. SQLSTATE 22003.
    #[error("value {value} is out of range for column \"{column}\" of type {type_name}")]
    OutOfRange {
        /// The column's name.
        column: String,
        /// The value, printed.
        value: String,
        /// The column's type.
        type_name: String,
    },
    /// A value of another type than its column. SQLSTATE 42804.
    #[error("column \"{column}\" is of type {expected}, but the value is {found}")]
    TypeMismatch {
        /// The column's name.
        column: String,
        /// The column's type.
        expected: String,
        /// The value's type.
        found: String,
    },
    /// The number of values is not the number of the table's columns. SQLSTATE 42601.
    #[error("row of {found} values for table \"{table}\", which has {expected} columns")]
    ColumnCount {
        /// The table's name.
        table: String,
        /// The number of columns.
        expected: usize,
        /// The number of values.
        found: usize,
    },
    /// The number of values is not the number of the index's columns. SQLSTATE 42601.
    #[error("key of {found} values for index \"{index}\", whose keys are ({expected})")]
    KeyColumns {
        /// The index's name.
        index: String,
        /// The key's columns and their types.
        expected: String,
        /// The number of values.
        found: usize,
    },
    /// No table of this name. SQLSTATE 42P01.
    #[error("table \"{table}\" does not exist")]
    NoSuchTable {
        /// The name that was asked for.
        table: String,
    },
    /// The handle is of another database, or of an earlier opening of this one. The operation did nothing. SQLSTATE
    /// 55000.
    #[error(
        "{what} is of another database, or of an earlier opening of this one: get it anew from the database that is to use it"
    )]
    ForeignHandle {
        /// What the handle stands for.
        what: String,
    },
    /// The table's indexes or key have changed since a scan of it was planned. SQLSTATE 40001.
    #[error(
        "table \"{table}\" has changed since the scan was planned: plan it again with the table's current schema"
    )]
    TableChanged {
        /// The table's name.
        table: String,
    },
    /// No column of this name. SQLSTATE 42703.
    #[error("column \"{column}\" of table \"{table}\" does not exist")]
    NoSuchColumn {
        /// The table's name.
        table: String,
        /// The name that was asked for.
        column: String,
    },
    /// No index of this name. SQLSTATE 42704.
    #[error("index \"{index}\" does not exist")]
    NoSuchIndex {
        /// The name that was asked for.
        index: String,
    },
    /// The name is taken. SQLSTATE 42P07.
    #[error("\"{name}\" exists already")]
    NameTaken {
        /// The name of the table or index.
        name: String,
    },
    /// A prepared transaction has the name already. SQLSTATE 55000.
    #[error("a prepared transaction \"{name}\" exists already: decide it first, or take another name")]
    PreparedExists {
        /// The name of the transaction.
        name: String,
    },
    /// There is no prepared transaction of this name. SQLSTATE 42704.
    #[error("there is no prepared transaction \"{name}\": it is decided already, or was never prepared")]
    NoSuchPrepared {
        /// The name that was asked for.
        name: String,
    },
    /// Another call prepares or decides the prepared transaction. SQLSTATE 55000.
    #[error("the prepared transaction \"{name}\" is being prepared or decided by another call: ask again")]
    PreparedBusy {
        /// The name of the transaction.
        name: String,
    },
    /// A definition that makes no sense, with the reason. SQLSTATE 42P16.
    #[error("bad definition of \"{name}\": {reason}")]
    BadDefinition {
        /// The name of the table, index or column.
        name: String,
        /// What is wrong, and what was expected.
        reason: String,
    },
    /// The fields of a Rust record do not fit the table's columns. SQLSTATE 42804.
    #[error("record \"{record}\" does not fit table \"{table}\": {reason}")]
    SchemaMismatch {
        /// The Rust type.
        record: String,
        /// The table's name.
        table: String,
        /// The first difference, naming the column.
        reason: String,
    },
    /// The row is larger than a segment allows. SQLSTATE 54000.
    #[error("row of {length} bytes for table \"{table}\" is longer than the limit of {limit} bytes")]
    RowTooLong {
        /// The table's name.
        table: String,
        /// The row's length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The key is longer than an index node allows. SQLSTATE 54000.
    #[error("key of {length} bytes for index \"{index}\" is longer than the limit of {limit} bytes")]
    KeyTooLong {
        /// The index's name.
        index: String,
        /// The key's length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The transaction wrote, or defined, more than one transaction may. SQLSTATE 54000.
    #[error(
        "write set of {length} bytes passes the limit of {limit} bytes (Options::write_set_bytes_max); split the transaction"
    )]
    WriteSetTooLarge {
        /// What the write set would have grown to, in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The memory bound is reached. SQLSTATE 53200.
    #[error(
        "out of memory: {used} of {limit} bytes are in use (Options::memory_bytes); delete rows, truncate or drop a \
         table, or reopen with a higher limit"
    )]
    MemoryLimit {
        /// Bytes in use.
        used: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A kind of numbers is used up, since no number is given out twice. All data stays as it is. SQLSTATE 54000.
    #[error(
        "this database has used up the {limit} numbers that it has for its {what}; copy the tables into a new database"
    )]
    NumbersUsedUp {
        /// What is numbered, in words.
        what: &'static str,
        /// How many numbers there are.
        limit: u32,
    },
    /// The transaction holds as many locks on keys as one transaction may. These are locks on absent keys, and locks on
    /// all keys where locks are central or belong to executors ([`Engine`](crate::Engine)). SQLSTATE 53200.
    #[error("a transaction holds locks on at most {limit} keys; split the transaction")]
    TooManyLocks {
        /// How many of these locks a transaction may hold.
        limit: usize,
    },
    /// The long lists of locks on rows take as much memory as all of them together may. SQLSTATE 53200.
    #[error(
        "locks on rows take up their {limit} bytes (an eighth of Options::memory_bytes, at least 1 MiB): split the transaction, end other long transactions, scan a table \
         while no other transaction writes to it, which takes one lock, or reopen with a higher limit"
    )]
    LockMemory {
        /// The limit in bytes.
        limit: u64,
    },
    /// All pages of disk-resident tables that memory has room for are in use: by transactions that have changed rows or
    /// entries in them, and have not ended. SQLSTATE 53200.
    #[error(
        "all {limit} bytes of pages in memory (Options::cache_bytes) are in use by transactions in progress: split the transaction, \
         end other ones, or reopen with a higher limit"
    )]
    CacheFull {
        /// The limit in bytes.
        limit: u64,
    },
    /// More transactions are open than the database has slots for. SQLSTATE 53300.
    #[error(
        "all {limit} transaction slots are in use (Options::transactions_max); finish some transactions first"
    )]
    TooManyTransactions {
        /// The number of slots.
        limit: usize,
    },
    /// All packet slots are taken by commits on their way to the disk. SQLSTATE 53300.
    #[error(
        "all {limit} packet slots hold commits that are not written yet (Options::packets_max); wait for some of them, or reopen with more"
    )]
    TooManyPackets {
        /// The number of packet slots.
        limit: usize,
    },
    /// A log record that is longer than the room that the log can ever make for it. SQLSTATE 54000.
    #[error(
        "log record of {length} bytes is longer than the {limit} bytes for which a log of {log_bytes_max} bytes \
         (Options::log_bytes_max) can make room; split the transaction, or reopen with a higher limit"
    )]
    LogTooSmall {
        /// The record's length in bytes: the length of the write set, or of the call where calls are logged.
        length: usize,
        /// The longest record that has room once everything that can be freed is freed, in bytes.
        limit: usize,
        /// The bound on the log in bytes.
        log_bytes_max: u64,
    },
    /// The log has no room left. SQLSTATE 53100.
    #[error("no room for the log: {reason}")]
    LogFull {
        /// What ran out, and what to do.
        reason: String,
    },
    /// The database follows the log of another one. SQLSTATE 25006.
    #[error(
        "this database follows the log of another one and takes no writes: write there, or end the following first (Follower::lead)"
    )]
    Following,
    /// The log that a database follows names a load file which the database does not have. SQLSTATE XX000.
    #[error(
        "the log that is followed names load file {number}, which is not here: give it first (Follower::take_load_file)"
    )]
    LoadFileMissing {
        /// The number of the load file.
        number: u64,
    },
    /// A reader of the log is further behind than the log keeps. SQLSTATE XX000.
    #[error(
        "the log from position {position} on is needed, and the oldest that is there begins at {oldest}: begin again from a copy of \
         the database, and keep more of the log for its readers"
    )]
    LogTrimmed {
        /// Where the reader is, in bytes of the log.
        position: u64,
        /// Where the log begins that is still there.
        oldest: u64,
    },
    /// A reader of the log comes from a point that the log has not gone through: it has the log of another life of the database.
    /// SQLSTATE XX000.
    #[error(
        "the log does not go through the end of a block at position {position} with checksum {checksum:016x}: that is of another life of \
         the database; begin again from a copy of this one"
    )]
    LogDiverged {
        /// The position of the point, in bytes of the log.
        position: u64,
        /// The checksum of the block that ends there.
        checksum: u64,
    },
    /// A write in a transaction that was opened for reading. SQLSTATE 25006.
    #[error("the transaction is read-only")]
    ReadOnly,
    /// An operation that would wait for the code that calls it: `transact`, `close` and others inside a body; and in
    /// code that a backup's stream or a line of progress runs, an operation that would wait for that backup or
    /// checkpoint.
    #[error(
        "a transaction is open on this thread already: use the handle that the body was given, or Database::begin"
    )]
    Nested,
    /// The savepoint does not exist, or was released. SQLSTATE 3B001.
    #[error("savepoint \"{name}\" does not exist")]
    NoSuchSavepoint {
        /// Its name or number.
        name: String,
    },
    /// No procedure of this name and version is registered, it takes other arguments, or one of its actions does what
    /// its table, identifier or mode do not allow.
    #[error("procedure \"{name}\": {reason}")]
    Procedure {
        /// The procedure's name.
        name: String,
        /// What was expected.
        reason: String,
    },
    /// The body asked to abort; nothing of the transaction is kept.
    #[error("aborted: {reason}")]
    Aborted {
        /// The reason that the body gave. A static text is not copied, since some transactions abort often.
        reason: Cow<'static, str>,
    },
    /// An operation that this place does not allow, with the reason. SQLSTATE 0A000.
    #[error("not supported: {what}")]
    Unsupported {
        /// The operation, and what to do instead.
        what: String,
    },
    /// The database stopped after an I/O error while this transaction had its place in the log: the transaction may or
    /// may not be durable. It is never retried (I4). SQLSTATE 08007.
    #[error(
        "outcome unknown: the log failed after the transaction took place {lsn} in it; reopen the database to learn its outcome ({cause})"
    )]
    OutcomeUnknown {
        /// The transaction's place.
        lsn: Lsn,
        /// The error that stopped the log.
        cause: String,
    },
    /// The database stopped earlier, after an I/O error; the error is sticky (I4). SQLSTATE 58030, or 53100 when the
    /// disk was full.
    #[error("the database has stopped: {cause}; reopen it to recover")]
    Stopped {
        /// The error that stopped it.
        cause: String,
        /// Whether the disk was full.
        disk_full: bool,
    },
    /// Reading or writing a file failed. SQLSTATE 58030.
    #[error("{operation} of \"{file}\" at offset {offset} failed: {cause}")]
    Io {
        /// The file's name in the data directory.
        file: String,
        /// The byte offset.
        offset: u64,
        /// What was being done.
        operation: String,
        /// The operating system's error.
        cause: String,
    },
    /// A file needed room that the disk does not have. SQLSTATE 53100.
    #[error("{operation} of \"{file}\" at offset {offset} failed: the disk is full; make room on it")]
    DiskFull {
        /// The file's name in the data directory.
        file: String,
        /// The byte offset.
        offset: u64,
        /// What was being done.
        operation: String,
    },
    /// Bytes that fail their checksum or make no sense (I9). SQLSTATE XX001.
    #[error("\"{file}\" is corrupt at offset {offset}: {what}")]
    Corrupt {
        /// The file's name in the data directory.
        file: String,
        /// The byte offset.
        offset: u64,
        /// What was expected and what was found.
        what: String,
    },
    /// The database is closed or closing. SQLSTATE 57P01.
    #[error("the database is closed")]
    Closed,
}

impl Error {
    /// An error for a body that wants its transaction aborted.
    pub fn aborted(reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Aborted { reason: reason.into() }
    }

    /// Whether another run of a body with the same arguments on the same rows may succeed. It may if the error follows
    /// from locks, times, limits, options, handles or devices, or from a table's absence, which no lock protects. The
    /// match names every variant, so that a new one is put on one side on purpose.
    pub fn is_of_the_moment(&self) -> bool {
        match self {
            Error::Deadlock { .. }
            | Error::LockTimeout { .. }
            | Error::WouldWait { .. }
            | Error::Cancelled
            | Error::Timeout { .. }
            | Error::ForeignHandle { .. }
            | Error::NoSuchTable { .. }
            | Error::TableChanged { .. }
            | Error::WriteSetTooLarge { .. }
            | Error::MemoryLimit { .. }
            | Error::NumbersUsedUp { .. }
            | Error::TooManyLocks { .. }
            | Error::LockMemory { .. }
            | Error::CacheFull { .. }
            | Error::TooManyTransactions { .. }
            | Error::TooManyPackets { .. }
            | Error::LogTooSmall { .. }
            | Error::LogFull { .. }
            | Error::Following
            | Error::LoadFileMissing { .. }
            | Error::LogTrimmed { .. }
            | Error::LogDiverged { .. }
            | Error::ReadOnly
            | Error::Nested
            | Error::OutcomeUnknown { .. }
            | Error::Stopped { .. }
            | Error::Io { .. }
            | Error::DiskFull { .. }
            | Error::Corrupt { .. }
            | Error::Replay { .. }
            | Error::PreparedExists { .. }
            | Error::NoSuchPrepared { .. }
            | Error::PreparedBusy { .. }
            | Error::Closed => true,
            Error::DuplicateKey { .. }
            | Error::NotNull { .. }
            | Error::StringTooLong { .. }
            | Error::OutOfRange { .. }
            | Error::TypeMismatch { .. }
            | Error::ColumnCount { .. }
            | Error::KeyColumns { .. }
            | Error::NoSuchColumn { .. }
            | Error::NoSuchIndex { .. }
            | Error::NameTaken { .. }
            | Error::BadDefinition { .. }
            | Error::SchemaMismatch { .. }
            | Error::RowTooLong { .. }
            | Error::KeyTooLong { .. }
            | Error::NoSuchSavepoint { .. }
            | Error::Procedure { .. }
            | Error::Aborted { .. }
            | Error::Unsupported { .. } => false,
        }
    }
}

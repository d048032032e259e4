//! The one table of SQLSTATEs: every code that a client can see, and which kernel error gives which.

use rialto::Error;

use crate::error::{About, SqlError};

/// One line of the table: variant, code, name as PostgreSQL's documentation has it.
macro_rules! sqlstates {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// A five-character code for a kind of error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum SqlState {
            $($(#[$doc])* $variant,)*
        }

        impl SqlState {
    /// Whether a statement has named something that was not found.
    pub fn is_undefined(self) -> bool {
        matches!(self, SqlState::UndefinedTable | SqlState::UndefinedColumn | SqlState::UndefinedObject)
    }

            /// Every code, in the table's order.
            pub const ALL: &'static [SqlState] = &[$(SqlState::$variant,)*];

            /// The code of these five characters, if it is one of the table.
            pub fn of_code(code: &str) -> Option<SqlState> {
                SqlState::ALL.iter().copied().find(|state| state.code() == code)
            }

            /// The five characters.
            pub fn code(self) -> &'static str {
                match self { $(SqlState::$variant => $code,)* }
            }

            /// The condition's name.
            pub fn condition(self) -> &'static str {
                match self { $(SqlState::$variant => $name,)* }
            }
        }
    };
}

sqlstates! {
    /// Not an error.
    Success = "00000", "successful_completion";
    /// The log failed after the transaction took its place in it.
    OutcomeUnknown = "08007", "transaction_resolution_unknown";
    /// Bytes or messages that the protocol does not allow.
    ProtocolViolation = "08P01", "protocol_violation";
    /// Valid SQL that is not built.
    FeatureNotSupported = "0A000", "feature_not_supported";
    /// A string longer than its column.
    StringTooLong = "22001", "string_data_right_truncation";
    /// A number outside its type.
    NumberOutOfRange = "22003", "numeric_value_out_of_range";
    /// Text that is no date or timestamp.
    InvalidDatetime = "22007", "invalid_datetime_format";
    /// A date or timestamp outside its type.
    DatetimeOverflow = "22008", "datetime_field_overflow";
    /// Division by zero.
    DivisionByZero = "22012", "division_by_zero";
    /// A byte sequence that is not UTF-8.
    BadEncoding = "22021", "character_not_in_repertoire";
    /// A setting, limit or argument with a value it does not take.
    InvalidParameterValue = "22023", "invalid_parameter_value";
    /// Text that is no value of its type.
    InvalidText = "22P02", "invalid_text_representation";
    /// A binary argument that is no value of its type.
    InvalidBinary = "22P03", "invalid_binary_representation";
    /// COPY input of a wrong shape.
    BadCopyFormat = "22P04", "bad_copy_file_format";
    /// A null for a column that takes none.
    NotNull = "23502", "not_null_violation";
    /// A unique key that is there already.
    UniqueViolation = "23505", "unique_violation";
    /// A portal that runs, where it may not.
    InvalidCursorState = "24000", "invalid_cursor_state";
    /// BEGIN inside a transaction block.
    ActiveTransaction = "25001", "active_sql_transaction";
    /// A write in a read-only transaction.
    ReadOnlyTransaction = "25006", "read_only_sql_transaction";
    /// A statement that needs a transaction block, outside one.
    NoActiveTransaction = "25P01", "no_active_sql_transaction";
    /// A statement in a transaction block that has failed.
    InFailedTransaction = "25P02", "in_failed_sql_transaction";
    /// No prepared statement of this name.
    NoSuchStatement = "26000", "invalid_sql_statement_name";
    /// No portal of this name.
    NoSuchPortal = "34000", "invalid_cursor_name";
    /// No savepoint of this name.
    NoSuchSavepoint = "3B001", "invalid_savepoint_specification";
    /// A table has changed since the plan was made. The session plans again, and no client is told.
    SerializationFailure = "40001", "serialization_failure";
    /// Chosen as a deadlock's victim.
    Deadlock = "40P01", "deadlock_detected";
    /// Text that is no SQL.
    SyntaxError = "42601", "syntax_error";
    /// A name twice in one list.
    DuplicateColumn = "42701", "duplicate_column";
    /// A name that two output columns have.
    AmbiguousColumn = "42702", "ambiguous_column";
    /// No such column.
    UndefinedColumn = "42703", "undefined_column";
    /// No such index or setting.
    UndefinedObject = "42704", "undefined_object";
    /// An aggregate or column where none may stand.
    GroupingError = "42803", "grouping_error";
    /// A value of another type than is needed.
    TypeMismatch = "42804", "datatype_mismatch";
    /// A cast that does not exist.
    CannotCoerce = "42846", "cannot_coerce";
    /// No such function or operator for these types.
    UndefinedFunction = "42883", "undefined_function";
    /// A value that is no array where an array is needed.
    WrongObjectType = "42809", "wrong_object_type";
    /// No such table.
    UndefinedTable = "42P01", "undefined_table";
    /// No such parameter.
    UndefinedParameter = "42P02", "undefined_parameter";
    /// A portal of this name exists.
    DuplicatePortal = "42P03", "duplicate_cursor";
    /// A prepared statement of this name exists.
    DuplicateStatement = "42P05", "duplicate_prepared_statement";
    /// A table or index of this name exists.
    DuplicateTable = "42P07", "duplicate_table";
    /// A parameter of which two places want different types.
    AmbiguousParameter = "42P08", "ambiguous_parameter";
    /// A column list that does not fit.
    InvalidColumnReference = "42P10", "invalid_column_reference";
    /// A definition that makes no sense.
    InvalidDefinition = "42P16", "invalid_table_definition";
    /// A parameter whose type is unknown.
    IndeterminateType = "42P18", "indeterminate_datatype";
    /// Something that the statement needs is not there at the moment: replicas in sync, say.
    InsufficientResources = "53000", "insufficient_resources";
    /// The disk is full.
    DiskFull = "53100", "disk_full";
    /// The memory bound is reached, or a smaller bound on memory.
    OutOfMemory = "53200", "out_of_memory";
    /// No room for one more connection or transaction.
    TooManyConnections = "53300", "too_many_connections";
    /// A row, key, statement, transaction or database beyond a limit.
    LimitExceeded = "54000", "program_limit_exceeded";
    /// A statement whose tree is too high.
    TooComplex = "54001", "statement_too_complex";
    /// More columns than a table or a result may have.
    TooManyColumns = "54011", "too_many_columns";
    /// An object that is not in a state for this.
    NotInPrerequisiteState = "55000", "object_not_in_prerequisite_state";
    /// A setting that cannot be changed now, or at all.
    CannotChangeNow = "55P02", "cant_change_runtime_param";
    /// A lock that was not granted in time.
    LockNotAvailable = "55P03", "lock_not_available";
    /// Cancelled on request, or by a time-out.
    Cancelled = "57014", "query_canceled";
    /// The server or the database is closing.
    Shutdown = "57P01", "admin_shutdown";
    /// What would run the statement is not there at the moment: the primary of a partition.
    CannotConnectNow = "57P03", "cannot_connect_now";
    /// Reading or writing a file failed.
    IoError = "58030", "io_error";
    /// A bug in Rialto.
    Internal = "XX000", "internal_error";
    /// Bytes on disk that fail their checksum, or make no sense under a right one.
    Corrupt = "XX001", "data_corrupted";
}

/// The SQLSTATE of a kernel error.
pub fn of(error: &Error) -> SqlState {
    match error {
        Error::Deadlock { .. } => SqlState::Deadlock,
        Error::TableChanged { .. } => SqlState::SerializationFailure,
        Error::LockTimeout { .. } | Error::WouldWait { .. } => SqlState::LockNotAvailable,
        Error::Cancelled | Error::Timeout { .. } => SqlState::Cancelled,
        Error::DuplicateKey { .. } => SqlState::UniqueViolation,
        Error::NotNull { .. } => SqlState::NotNull,
        Error::StringTooLong { .. } => SqlState::StringTooLong,
        Error::OutOfRange { .. } => SqlState::NumberOutOfRange,
        Error::TypeMismatch { .. } | Error::SchemaMismatch { .. } => SqlState::TypeMismatch,
        Error::ColumnCount { .. } | Error::KeyColumns { .. } => SqlState::SyntaxError,
        Error::NoSuchTable { .. } => SqlState::UndefinedTable,
        Error::ForeignHandle { .. } => SqlState::NotInPrerequisiteState,
        Error::NoSuchColumn { .. } => SqlState::UndefinedColumn,
        Error::NoSuchIndex { .. } | Error::NoSuchPrepared { .. } => SqlState::UndefinedObject,
        // No SQL statement prepares a transaction.
        Error::PreparedExists { .. } | Error::PreparedBusy { .. } => SqlState::NotInPrerequisiteState,
        Error::NameTaken { .. } => SqlState::DuplicateTable,
        Error::BadDefinition { .. } => SqlState::InvalidDefinition,
        Error::RowTooLong { .. }
        | Error::KeyTooLong { .. }
        | Error::WriteSetTooLarge { .. }
        | Error::LogTooSmall { .. }
        | Error::NumbersUsedUp { .. } => SqlState::LimitExceeded,
        Error::MemoryLimit { .. }
        | Error::TooManyLocks { .. }
        | Error::LockMemory { .. }
        | Error::CacheFull { .. } => SqlState::OutOfMemory,
        Error::TooManyTransactions { .. } | Error::TooManyPackets { .. } => SqlState::TooManyConnections,
        Error::LogFull { .. } | Error::DiskFull { .. } | Error::Stopped { disk_full: true, .. } => {
            SqlState::DiskFull
        }
        Error::ReadOnly | Error::Following => SqlState::ReadOnlyTransaction,
        Error::NoSuchSavepoint { .. } => SqlState::NoSuchSavepoint,
        Error::Unsupported { .. } => SqlState::FeatureNotSupported,
        Error::OutcomeUnknown { .. } => SqlState::OutcomeUnknown,
        Error::Stopped { .. } | Error::Io { .. } => SqlState::IoError,
        // A page of a table on disk that fails its checksum. All other files are read, and verified, by the opening; from
        // a table in memory this error would be a bug: a row of our own encoder that `Transaction::insert_encoded`
        // rejects.
        Error::Corrupt { .. } => SqlState::Corrupt,
        Error::Closed => SqlState::Shutdown,
        // SQL sessions use no procedures, nested closures or bodies that abort.
        _ => SqlState::Internal,
    }
}

/// The message of a kernel error. Where the kernel's names an option of a Rust program, this names the setting of a
/// session, or the option of `rialto serve`.
fn message(error: &Error) -> String {
    match error {
        Error::LockTimeout { lock, waited_ms } => {
            format!("lock time-out: {lock} was not granted within {waited_ms} ms (lock_timeout)")
        }
        Error::Timeout { limit_ms } => format!("transaction time-out: ran longer than {limit_ms} ms"),
        Error::WriteSetTooLarge { length, limit } => {
            format!("write set of {length} bytes passes the limit of {limit} bytes; split the transaction")
        }
        Error::MemoryLimit { used, limit } => format!(
            "out of memory: {used} of {limit} bytes are in use (--memory-bytes); delete rows, truncate or drop a table, or \
             restart the server with a higher limit"
        ),
        Error::CacheFull { limit } => format!(
            "all {limit} bytes of pages in memory (--cache-bytes) are in use by transactions in progress: split the transaction, \
             end other ones, or start the server with a higher limit"
        ),
        Error::LockMemory { limit } => format!(
            "locks on rows take up their {limit} bytes (an eighth of --memory-bytes, at least 1 MiB): split the transaction, \
             end other long transactions, read a table while no other transaction writes to it, which takes one lock, or \
             restart the server with a higher limit"
        ),
        Error::TooManyTransactions { limit } => {
            format!("all {limit} transaction slots are in use; finish some transactions first")
        }
        Error::TooManyPackets { limit } => {
            format!("all {limit} packet slots hold commits that are not written yet; wait for some of them")
        }
        Error::LogTooSmall { length, limit, log_bytes_max } => format!(
            "log record of {length} bytes is more than the {limit} bytes that a log of {log_bytes_max} bytes \
             (--log-bytes-max) has room for; split the transaction, or restart the server with a higher limit"
        ),
        Error::LogFull { reason } => {
            format!("no room for the log: {}", reason.replace("(log_bytes_max)", "(--log-bytes-max)"))
        }
        Error::DuplicateKey { index, .. } => {
            format!("duplicate key value violates unique constraint \"{index}\"")
        }
        Error::StringTooLong { limit, .. } => format!("value too long for type character({limit})"),
        Error::NotNull { table, column } => {
            format!("null value in column \"{column}\" of relation \"{table}\" violates not-null constraint")
        }
        error => error.to_string(),
    }
}

/// The names of the things that a kernel error is about. PostgreSQL gives them for violations of constraints only.
fn about(error: &Error) -> Option<Box<About>> {
    let about = match error {
        Error::DuplicateKey { table, index, .. } => {
            About { table: Some(table.clone()), constraint: Some(index.clone()), ..About::default() }
        }
        Error::NotNull { table, column } => {
            About { table: Some(table.clone()), column: Some(column.clone()), ..About::default() }
        }
        _ => return None,
    };
    Some(Box::new(about))
}

impl From<Error> for SqlError {
    fn from(error: Error) -> SqlError {
        let mut answer = SqlError::new(of(&error), message(&error));
        answer.detail = match &error {
            Error::DuplicateKey { key, .. } => Some(format!("Key {key} already exists.")),
            _ => None,
        };
        answer.hint = match &error {
            Error::Deadlock { .. } => Some("Roll back and run the transaction again.".to_string()),
            Error::Stopped { .. } | Error::OutcomeUnknown { .. } => {
                Some("Restart the server: it recovers from the log.".to_string())
            }
            _ => None,
        };
        answer.about = about(&error);
        answer.cause = Some(Box::new(error));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rialto::Lsn;

    #[test]
    fn codes_have_five_characters_and_are_unique() {
        let mut codes: Vec<_> = SqlState::ALL.iter().map(|state| state.code()).collect();
        assert!(codes.iter().all(|code| code.len() == 5));
        codes.sort_unstable();
        let count = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }

    /// One kernel error for each code that comes from the kernel.
    #[test]
    fn kernel_errors_have_the_documented_codes() {
        let text = String::new;
        let io = || (text(), 0, text());
        let cases = [
            (Error::Deadlock { waiting_for: text() }, "40P01"),
            (Error::LockTimeout { lock: text(), waited_ms: 1 }, "55P03"),
            (Error::Cancelled, "57014"),
            (Error::Timeout { limit_ms: 1 }, "57014"),
            (Error::DuplicateKey { table: text(), index: text(), key: text() }, "23505"),
            (Error::NotNull { table: text(), column: text() }, "23502"),
            (Error::StringTooLong { column: text(), length: 3, limit: 2 }, "22001"),
            (Error::OutOfRange { column: text(), value: text(), type_name: text() }, "22003"),
            (Error::NoSuchTable { table: text() }, "42P01"),
            (Error::NoSuchColumn { table: text(), column: text() }, "42703"),
            (Error::MemoryLimit { used: 1, limit: 1 }, "53200"),
            (Error::TooManyLocks { limit: 1 }, "53200"),
            (Error::LockMemory { limit: 1 }, "53200"),
            (Error::CacheFull { limit: 1 }, "53200"),
            (Error::WriteSetTooLarge { length: 2, limit: 1 }, "54000"),
            (Error::TooManyTransactions { limit: 1 }, "53300"),
            (Error::TooManyPackets { limit: 1 }, "53300"),
            (Error::LogFull { reason: text() }, "53100"),
            (Error::LogTooSmall { length: 1, limit: 1, log_bytes_max: 1 }, "54000"),
            (Error::NumbersUsedUp { what: "tables", limit: 1 }, "54000"),
            (Error::DiskFull { file: text(), offset: 0, operation: text() }, "53100"),
            (Error::Stopped { cause: text(), disk_full: true }, "53100"),
            (Error::Stopped { cause: text(), disk_full: false }, "58030"),
            (Error::OutcomeUnknown { lsn: Lsn::default(), cause: text() }, "08007"),
            (Error::Closed, "57P01"),
        ];
        for (error, code) in cases {
            assert_eq!(of(&error).code(), code, "{error:?}");
            let message = SqlError::from(error).message;
            assert!(!message.contains("::"), "a type of Rust's: {message}");
        }
        let (file, offset, what) = io();
        assert_eq!(of(&Error::Corrupt { file, offset, what }).code(), "XX001");
        let (file, offset, cause) = io();
        assert_eq!(of(&Error::Io { file, offset, operation: text(), cause }).code(), "58030");
    }
}

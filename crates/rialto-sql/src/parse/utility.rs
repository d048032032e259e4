//! Statements about transactions, settings and whole tables, read from tokens in PostgreSQL's form.

use rialto::BackupKind;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::cursor::Cursor;
use super::{Name, Places, Statement};
use crate::error::{Result, SqlError};

/// The modes of a transaction. Every isolation level runs serializable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    /// Whether an isolation level was named.
    pub isolation: bool,
    /// READ ONLY or READ WRITE, if named.
    pub access: Option<Access>,
}

/// Whether a transaction may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It may not.
    ReadOnly,
    /// It may.
    ReadWrite,
}

/// How long a SET is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetScope {
    /// To the end of the session, once its transaction has committed.
    Session,
    /// To the end of the transaction.
    Local,
}

/// The value of a SET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetValue {
    /// SET name TO DEFAULT.
    Default,
    /// SET name TO value, several values joined by commas.
    Text(String),
}

/// What DISCARD drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// Everything that a session keeps.
    All,
    /// Plans.
    Plans,
    /// The state of sequences, of which there are none.
    Sequences,
    /// Temporary tables, of which there are none.
    Temp,
}

/// Reads a utility statement; `None` if it is none.
pub(super) fn parse<'a>(places: &'a Places<'a>, tokens: &'a [TokenWithSpan]) -> Result<Option<Statement>> {
    let mut cursor = Cursor::new(places, tokens);
    let Some(verb) = cursor.peek_word() else { return Ok(None) };
    let known = [
        "BEGIN",
        "START",
        "COMMIT",
        "END",
        "ROLLBACK",
        "ABORT",
        "SAVEPOINT",
        "RELEASE",
        "SET",
        "RESET",
        "DEALLOCATE",
        "CLOSE",
        "DISCARD",
        "UNLISTEN",
        "SHOW",
        "VACUUM",
        "ANALYZE",
        "TRUNCATE",
        "DROP",
        "ALTER",
        "COPY",
        "BACKUP",
        "ARCHIVE",
    ];
    if !known.contains(&verb.as_str()) {
        return Ok(None);
    }
    cursor.take(&verb);
    let statement = match verb.as_str() {
        "BEGIN" => {
            let _ = cursor.take("WORK") || cursor.take("TRANSACTION");
            Statement::Begin("BEGIN", modes(&mut cursor)?)
        }
        "START" => {
            cursor.expect("TRANSACTION")?;
            Statement::Begin("START TRANSACTION", modes(&mut cursor)?)
        }
        "COMMIT" | "END" | "ROLLBACK" | "ABORT" => end(&mut cursor, &verb)?,
        "SAVEPOINT" => Statement::Savepoint(cursor.name()?),
        "RELEASE" => {
            cursor.take("SAVEPOINT");
            Statement::Release(cursor.name()?)
        }
        "SET" => set(&mut cursor)?,
        "RESET" => {
            if cursor.take("ALL") {
                Statement::Reset(None)
            } else {
                Statement::Reset(Some(setting_name(&mut cursor)?))
            }
        }
        "DEALLOCATE" => {
            // A statement may have the name PREPARE.
            let _ = cursor.take_before("PREPARE");
            Statement::Deallocate(name_or_all(&mut cursor)?)
        }
        "CLOSE" => Statement::Close(name_or_all(&mut cursor)?),
        "DISCARD" => Statement::Discard(discard(&mut cursor)?),
        "UNLISTEN" => {
            if !cursor.take_token(&Token::Mul) {
                cursor.name()?;
            }
            Statement::Unlisten
        }
        "SHOW" => {
            if cursor.take("ALL") {
                Statement::Show(None)
            } else {
                Statement::Show(Some(setting_name(&mut cursor)?))
            }
        }
        "VACUUM" | "ANALYZE" => maintain(&mut cursor, &verb)?,
        "BACKUP" => {
            let kind = match cursor.take("INCREMENTAL") {
                true => BackupKind::Incremental,
                false => BackupKind::Full,
            };
            cursor.expect("TO")?;
            Statement::Backup { kind, to: cursor.string()? }
        }
        "ARCHIVE" => {
            cursor.expect("LOG")?;
            Statement::ArchiveLog
        }
        "TRUNCATE" => truncate(&mut cursor)?,
        "DROP" => match drop(&mut cursor)? {
            Some(statement) => statement,
            None => return Ok(None),
        },
        "ALTER" => match alter(&mut cursor)? {
            Some(statement) => statement,
            None => return Ok(None),
        },
        _ => Statement::Copy(super::copy::copy(&mut cursor)?),
    };
    cursor.expect_end()?;
    Ok(Some(statement))
}

/// The position of the explained statement in the tokens; `None` if this is no EXPLAIN.
pub(super) fn explained<'a>(places: &'a Places<'a>, tokens: &'a [TokenWithSpan]) -> Result<Option<usize>> {
    let mut cursor = Cursor::new(places, tokens);
    if !cursor.take("EXPLAIN") {
        return Ok(None);
    }
    let position = cursor.position();
    let options = if cursor.peek_is(&Token::LParen) {
        Some("EXPLAIN with options")
    } else {
        [("ANALYZE", "EXPLAIN ANALYZE"), ("VERBOSE", "EXPLAIN VERBOSE"), ("EXPLAIN", "EXPLAIN of EXPLAIN")]
            .into_iter()
            .find_map(|(word, name)| cursor.take(word).then_some(name))
    };
    if let Some(options) = options {
        return Err(SqlError::unsupported(options).at(position));
    }
    let is_word = |token: &TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    Ok(tokens.iter().position(is_word).map(|explain| explain + 1))
}

fn modes(cursor: &mut Cursor<'_>) -> Result<Modes> {
    let mut modes = Modes::default();
    while !cursor.is_end() {
        let position = cursor.position();
        if cursor.take_all(&["ISOLATION", "LEVEL"]) {
            let levels: [&[&str]; 4] = [
                &["SERIALIZABLE"],
                &["REPEATABLE", "READ"],
                &["READ", "COMMITTED"],
                &["READ", "UNCOMMITTED"],
            ];
            if !levels.iter().any(|level| cursor.take_all(level)) {
                return Err(cursor.unexpected("an isolation level"));
            }
            modes.isolation = true;
        } else if cursor.take_all(&["READ", "ONLY"]) {
            modes.access = Some(Access::ReadOnly);
        } else if cursor.take_all(&["READ", "WRITE"]) {
            modes.access = Some(Access::ReadWrite);
        } else if cursor.take_all(&["NOT", "DEFERRABLE"]) {
            // Every transaction is so already.
        } else if cursor.take("DEFERRABLE") {
            return Err(SqlError::unsupported("a DEFERRABLE transaction").at(position));
        } else {
            return Err(cursor.unexpected("ISOLATION LEVEL, READ ONLY or READ WRITE"));
        }
        cursor.take_token(&Token::Comma);
    }
    Ok(modes)
}

fn end(cursor: &mut Cursor<'_>, verb: &str) -> Result<Statement> {
    let position = cursor.position();
    if cursor.take("PREPARED") {
        return Err(SqlError::unsupported(format!("{verb} PREPARED")).at(position));
    }
    let _ = cursor.take("WORK") || cursor.take("TRANSACTION");
    if verb == "ROLLBACK" && cursor.take("TO") {
        cursor.take("SAVEPOINT");
        return Ok(Statement::RollbackTo(cursor.name()?));
    }
    let position = cursor.position();
    if cursor.take_all(&["AND", "CHAIN"]) {
        return Err(SqlError::unsupported("AND CHAIN").at(position));
    }
    cursor.take_all(&["AND", "NO", "CHAIN"]);
    Ok(if matches!(verb, "COMMIT" | "END") { Statement::Commit } else { Statement::Rollback })
}

/// A name, or `None` for ALL.
fn name_or_all(cursor: &mut Cursor<'_>) -> Result<Option<Name>> {
    if cursor.take("ALL") { Ok(None) } else { cursor.name().map(Some) }
}

fn discard(cursor: &mut Cursor<'_>) -> Result<Discard> {
    let kinds = [
        ("ALL", Discard::All),
        ("PLANS", Discard::Plans),
        ("SEQUENCES", Discard::Sequences),
        ("TEMP", Discard::Temp),
        ("TEMPORARY", Discard::Temp),
    ];
    let found = kinds.into_iter().find(|(word, _)| cursor.take(word));
    found.map(|(_, kind)| kind).ok_or_else(|| cursor.unexpected("ALL, PLANS, SEQUENCES or TEMP"))
}

/// A setting's name, in its one-word form.
fn setting_name(cursor: &mut Cursor<'_>) -> Result<Name> {
    let position = cursor.position();
    let name = |text: &str| Ok(Name { text: text.to_string(), position });
    if cursor.take_all(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
        return name("transaction_isolation");
    }
    if cursor.take_all(&["TIME", "ZONE"]) {
        return name("timezone");
    }
    let mut name = cursor.dotted()?;
    name.text.make_ascii_lowercase();
    Ok(name)
}

fn set(cursor: &mut Cursor<'_>) -> Result<Statement> {
    let position = cursor.position();
    if cursor.take_all(&["SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"]) {
        return Ok(Statement::SetSessionModes(modes(cursor)?));
    }
    for (word, what) in [("ROLE", "SET ROLE"), ("CONSTRAINTS", "SET CONSTRAINTS")] {
        if cursor.take(word) {
            return Err(SqlError::unsupported(what).at(position));
        }
    }
    if cursor.take_all(&["SESSION", "AUTHORIZATION"]) {
        return Err(SqlError::unsupported("SET SESSION AUTHORIZATION").at(position));
    }
    let scope = if cursor.take("LOCAL") {
        SetScope::Local
    } else {
        cursor.take("SESSION");
        SetScope::Session
    };
    if cursor.take("TRANSACTION") {
        let position = cursor.position();
        if cursor.take("SNAPSHOT") {
            return Err(SqlError::unsupported("SET TRANSACTION SNAPSHOT").at(position));
        }
        return Ok(Statement::SetTransaction(modes(cursor)?));
    }
    let position = cursor.position();
    let name = if cursor.take("NAMES") {
        Name { text: "client_encoding".to_string(), position }
    } else if cursor.take_all(&["TIME", "ZONE"]) {
        Name { text: "timezone".to_string(), position }
    } else {
        setting_to(cursor)?
    };
    Ok(Statement::Set(scope, name, setting_value(cursor)?))
}

/// A setting's name and the TO or = behind it.
fn setting_to(cursor: &mut Cursor<'_>) -> Result<Name> {
    let name = setting_name(cursor)?;
    if !(cursor.take("TO") || cursor.take_token(&Token::Eq)) {
        return Err(cursor.unexpected("TO or ="));
    }
    Ok(name)
}

fn setting_value(cursor: &mut Cursor<'_>) -> Result<SetValue> {
    if cursor.take("DEFAULT") {
        return Ok(SetValue::Default);
    }
    Ok(SetValue::Text(cursor.list(Cursor::literal)?.join(", ")))
}

/// The statement behind ALTER SYSTEM.
fn alter_system(cursor: &mut Cursor<'_>) -> Result<Statement> {
    if cursor.take("RESET") {
        return Ok(Statement::AlterSystem(setting_name(cursor)?, SetValue::Default));
    }
    if !cursor.take("SET") {
        return Err(cursor.unexpected("SET or RESET"));
    }
    let name = setting_to(cursor)?;
    Ok(Statement::AlterSystem(name, setting_value(cursor)?))
}

/// VACUUM and ANALYZE. The engine needs neither, so their options are checked and then ignored.
fn maintain(cursor: &mut Cursor<'_>, verb: &str) -> Result<Statement> {
    let options = [
        "FULL",
        "FREEZE",
        "VERBOSE",
        "ANALYZE",
        "DISABLE_PAGE_SKIPPING",
        "SKIP_LOCKED",
        "INDEX_CLEANUP",
        "PROCESS_TOAST",
        "TRUNCATE",
        "PARALLEL",
    ];
    if cursor.take_token(&Token::LParen) {
        cursor.list(|cursor| {
            if !options.iter().any(|option| cursor.take(option)) {
                return Err(cursor.unexpected("an option of VACUUM"));
            }
            if !cursor.peek_is(&Token::Comma) && !cursor.peek_is(&Token::RParen) {
                cursor.literal()?;
            }
            Ok(())
        })?;
        cursor.expect_token(&Token::RParen)?;
    } else {
        while ["FULL", "FREEZE", "VERBOSE", "ANALYZE"].iter().any(|option| cursor.take(option)) {}
    }
    let mut tables = Vec::new();
    if !cursor.is_end() {
        tables = cursor.list(|cursor| {
            let table = cursor.object()?;
            if cursor.peek_is(&Token::LParen) {
                return Err(SqlError::unsupported("ANALYZE of single columns").at(cursor.position()));
            }
            Ok(table)
        })?;
    }
    let command = if verb == "VACUUM" { "VACUUM" } else { "ANALYZE" };
    Ok(Statement::Maintain { command, tables })
}

fn truncate(cursor: &mut Cursor<'_>) -> Result<Statement> {
    cursor.take("TABLE");
    cursor.take("ONLY");
    let tables = cursor.list(|cursor| {
        let table = cursor.object()?;
        cursor.take_token(&Token::Mul);
        Ok(table)
    })?;
    let position = cursor.position();
    // There are no sequences, so CONTINUE IDENTITY changes nothing, and no references, so neither does RESTRICT.
    if cursor.take("RESTART") {
        return Err(SqlError::unsupported("TRUNCATE ... RESTART IDENTITY").at(position));
    }
    cursor.take_all(&["CONTINUE", "IDENTITY"]);
    behaviour(cursor, "TRUNCATE")?;
    Ok(Statement::Truncate(tables))
}

/// RESTRICT, the default, or CASCADE, which is refused.
fn behaviour(cursor: &mut Cursor<'_>, command: &str) -> Result<()> {
    let position = cursor.position();
    if cursor.take("CASCADE") {
        return Err(SqlError::unsupported(format!("{command} ... CASCADE")).at(position));
    }
    cursor.take("RESTRICT");
    Ok(())
}

fn drop(cursor: &mut Cursor<'_>) -> Result<Option<Statement>> {
    let is_table = cursor.take("TABLE");
    if !is_table && !cursor.take("INDEX") {
        return Ok(None);
    }
    let position = cursor.position();
    if !is_table && cursor.take("CONCURRENTLY") {
        return Err(SqlError::unsupported("DROP INDEX CONCURRENTLY").at(position));
    }
    let if_exists = cursor.take_all(&["IF", "EXISTS"]);
    let names = cursor.list(Cursor::object)?;
    behaviour(cursor, if is_table { "DROP TABLE" } else { "DROP INDEX" })?;
    Ok(Some(if is_table {
        Statement::DropTable { names, if_exists }
    } else {
        Statement::DropIndex { names, if_exists }
    }))
}

/// `(residence = 'disk')`, behind ALTER TABLE ... SET.
fn set_residence(cursor: &mut Cursor<'_>, table: Name) -> Result<Statement> {
    cursor.expect_token(&Token::LParen)?;
    let position = cursor.position();
    let option = cursor.name()?;
    if option.text != "residence" {
        let what = format!("ALTER TABLE ... SET ({})", option.text);
        return Err(SqlError::unsupported(what).at(position));
    }
    cursor.expect_token(&Token::Eq)?;
    let position = cursor.position();
    let value = match cursor.peek_word() {
        Some(_) => cursor.name()?.text,
        None => cursor.string()?,
    };
    let residence = super::create::residence(&value).map_err(|error| error.at(position))?;
    cursor.expect_token(&Token::RParen)?;
    Ok(Statement::SetResidence { table, residence })
}

fn alter(cursor: &mut Cursor<'_>) -> Result<Option<Statement>> {
    if cursor.take("SYSTEM") {
        return alter_system(cursor).map(Some);
    }
    if !cursor.take("TABLE") {
        return Ok(None);
    }
    let position = cursor.position();
    if cursor.take_all(&["IF", "EXISTS"]) {
        return Err(SqlError::unsupported("ALTER TABLE IF EXISTS").at(position));
    }
    cursor.take("ONLY");
    let table = cursor.object()?;
    let position = cursor.position();
    if cursor.take_all(&["ADD", "CONSTRAINT"]) {
        return Err(SqlError::unsupported("ALTER TABLE ... ADD CONSTRAINT").at(position));
    }
    if cursor.take("SET") {
        if cursor.peek_is(&Token::LParen) {
            return set_residence(cursor, table).map(Some);
        }
        let what = cursor.peek_word().unwrap_or_default();
        return Err(SqlError::unsupported(format!("ALTER TABLE ... SET {what}")).at(position));
    }
    if !cursor.take_all(&["ADD", "PRIMARY", "KEY"]) {
        let words: Vec<String> = (0..2)
            .map_while(|_| {
                let word = cursor.peek_word()?;
                cursor.take(&word);
                Some(word)
            })
            .collect();
        if words.is_empty() {
            return Err(cursor.unexpected("ADD PRIMARY KEY"));
        }
        return Err(SqlError::unsupported(format!("ALTER TABLE ... {}", words.join(" "))).at(position));
    }
    let position = cursor.position();
    if cursor.take("USING") {
        return Err(SqlError::unsupported("ADD PRIMARY KEY USING INDEX").at(position));
    }
    let columns = cursor.column_list()?;
    let position = cursor.position();
    for (word, what) in [
        ("INCLUDE", "INCLUDE"),
        ("WITH", "ADD PRIMARY KEY with storage options"),
        ("USING", "USING INDEX TABLESPACE"),
        ("DEFERRABLE", "a DEFERRABLE constraint"),
        ("INITIALLY", "a deferred constraint"),
    ] {
        if cursor.take(word) {
            return Err(SqlError::unsupported(what).at(position));
        }
    }
    if cursor.peek_is(&Token::Comma) {
        return Err(SqlError::unsupported("ALTER TABLE with several actions").at(position));
    }
    Ok(Some(Statement::AddPrimaryKey { table, columns }))
}

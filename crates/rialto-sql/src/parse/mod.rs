//! Parsing: from text to [`Statement`], or to an error with the place of the first mistake.
//!
//! Invariant: nothing that is parsed is ignored. The accepted parts of a statement are taken out of sqlparser's tree
//! field by field, and the rest has to equal an empty statement of its kind. Otherwise the statement is refused with
//! SQLSTATE 0A000 and the construct's name. Of utility statements (transactions, settings, whole tables) sqlparser
//! accepts the forms of other databases, so they are parsed here, from its tokens. No table is looked up here:
//! [`bind`](crate::bind) does that.

mod copy;
mod create;
mod cursor;
mod dialect;
mod dml;
mod expr;
mod isnull;
mod lift;
mod limits;
mod literals;
mod split;
mod tokens;
mod utility;
mod weight;

use std::sync::Arc;

use rialto::{Residence, fault_injection};
use sqlparser::ast;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use dialect::BoundedDialect;
use tokens::Reading;

pub use copy::{Copy, CopyDirection, CopyFormat, CopyHeader, ForceQuote};
pub use create::{CreateIndex, CreateTable, Placing};
pub(crate) use create::{check_index_count, column_type};
pub use dml::{Delete, Insert, InsertSource, OrderItem, Select, Source, Update};
pub use expr::{Arguments, Call, Item, Node, NodeKind, Truth};
pub use lift::{Lifted, Literal};
pub use limits::{CHAIN_MAX, HEIGHT_MAX, STATEMENT_BYTES_MAX};
pub use split::{Piece, Pieces, split};
pub use tokens::{READING_BYTES_MAX, READING_ROOM_BYTES, weigh};
pub use utility::{Access, Discard, Modes, SetScope, SetValue};

use crate::cancel::Cancel;
use crate::error::{Result, SqlError, SqlState};
use crate::room::Room;

/// A name in a statement, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name, folded to lower case unless it was quoted.
    pub text: String,
    /// Where it stands, in characters from 1.
    pub position: Option<usize>,
}

/// A statement that is accepted.
#[derive(Debug, Clone)]
pub enum Statement {
    /// BEGIN, START TRANSACTION: which of them, and its modes.
    Begin(&'static str, Modes),
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// SAVEPOINT.
    Savepoint(Name),
    /// RELEASE SAVEPOINT.
    Release(Name),
    /// ROLLBACK TO SAVEPOINT.
    RollbackTo(Name),
    /// SET TRANSACTION.
    SetTransaction(Modes),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION.
    SetSessionModes(Modes),
    /// SET.
    Set(SetScope, Name, SetValue),
    /// ALTER SYSTEM SET, ALTER SYSTEM RESET.
    AlterSystem(Name, SetValue),
    /// RESET; `None` for RESET ALL.
    Reset(Option<Name>),
    /// DEALLOCATE; `None` for all prepared statements.
    Deallocate(Option<Name>),
    /// CLOSE; `None` for all portals.
    Close(Option<Name>),
    /// DISCARD.
    Discard(Discard),
    /// UNLISTEN, of channels to which no session listens.
    Unlisten,
    /// SHOW; `None` for SHOW ALL.
    Show(Option<Name>),
    /// VACUUM and ANALYZE, with the tables named.
    Maintain {
        /// "VACUUM" or "ANALYZE".
        command: &'static str,
        /// The tables; none means all.
        tables: Vec<Name>,
    },
    /// BACKUP TO a directory of the server's.
    Backup {
        /// How much of the database.
        kind: rialto::BackupKind,
        /// The directory.
        to: String,
    },
    /// ARCHIVE LOG.
    ArchiveLog,
    /// TRUNCATE.
    Truncate(Vec<Name>),
    /// DROP TABLE.
    DropTable {
        /// The tables.
        names: Vec<Name>,
        /// Whether an absent table gives only a notice.
        if_exists: bool,
    },
    /// DROP INDEX.
    DropIndex {
        /// The indexes.
        names: Vec<Name>,
        /// Whether an absent index gives only a notice.
        if_exists: bool,
    },
    /// ALTER TABLE ... ADD PRIMARY KEY.
    AddPrimaryKey {
        /// The table.
        table: Name,
        /// The key's columns.
        columns: Vec<Name>,
    },
    /// ALTER TABLE ... SET (residence = ...).
    SetResidence {
        /// The table.
        table: Name,
        /// Where its rows go.
        residence: Residence,
    },
    /// CREATE TABLE.
    CreateTable(CreateTable),
    /// CREATE INDEX.
    CreateIndex(CreateIndex),
    /// COPY.
    Copy(Copy),
    /// SELECT.
    Select(Box<Select>),
    /// INSERT.
    Insert(Box<Insert>),
    /// UPDATE.
    Update(Box<Update>),
    /// DELETE.
    Delete(Box<Delete>),
    /// EXPLAIN of one of the four above.
    Explain(Box<Statement>),
}

impl Statement {
    /// The bytes of the lists of a statement that runs as it was read, twice for the room into which they may grow.
    /// Everything else of it takes no more than its text.
    pub(crate) fn bytes(&self) -> usize {
        let names =
            |names: &[Name]| names.iter().map(|name| 2 * size_of::<Name>() + name.text.len()).sum::<usize>();
        match self {
            Statement::Maintain { tables: list, .. }
            | Statement::Truncate(list)
            | Statement::DropTable { names: list, .. }
            | Statement::DropIndex { names: list, .. }
            | Statement::AddPrimaryKey { columns: list, .. } => names(list),
            Statement::CreateIndex(index) => names(&index.columns),
            Statement::CreateTable(table) => {
                let columns = table.columns.iter().map(|column| 2 * size_of_val(column) + column.name.len());
                let keys = table.primary_key.iter().chain(&table.unique);
                columns.sum::<usize>() + keys.map(|key| 2 * size_of_val(key) + names(key)).sum::<usize>()
            }
            _ => 0,
        }
    }
}

/// Finds the position of a token in the text.
pub(crate) struct Places<'a> {
    text: &'a str,
    /// The number of characters before each line but the first.
    lines: Vec<usize>,
}

impl<'a> Places<'a> {
    /// For places in `text`.
    pub(crate) fn new(text: &'a str) -> Places<'a> {
        let mut lines = Vec::new();
        if text.contains('\n') {
            lines.reserve_exact(text.bytes().filter(|byte| *byte == b'\n').count() + 1);
            let mut before = 0;
            for line in text.split_inclusive('\n') {
                before += line.chars().count();
                lines.push(before);
            }
        }
        Places { text, lines }
    }

    /// Characters from 1; `None` for the empty location.
    pub(crate) fn position(&self, location: Location) -> Option<usize> {
        let before = match location.line {
            0 => return None,
            line if fault_injection::is_on("places-from-the-first-line") => {
                self.text.split_inclusive('\n').take(line as usize - 1).map(|line| line.chars().count()).sum()
            }
            1 => 0,
            line => *self.lines.get(line as usize - 2)?,
        };
        Some(before + location.column as usize)
    }

    /// The position behind the last character that is not blank.
    pub(crate) fn end(&self) -> usize {
        self.text.trim_end().chars().count() + 1
    }

    /// The name that an identifier gives.
    pub(crate) fn name(&self, ident: &ast::Ident) -> Name {
        let text = match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_lowercase(),
        };
        Name { text, position: self.position(ident.span.start) }
    }

    /// The name that an alias gives. Refuses a string, which sqlparser accepts.
    pub(crate) fn alias(&self, ident: &ast::Ident) -> Result<Name> {
        match ident.quote_style {
            Some('\'') => {
                let message = format!("syntax error at or near \"{ident}\"");
                Err(SqlError::new(SqlState::SyntaxError, message).at(self.position(ident.span.start)))
            }
            _ => Ok(self.name(ident)),
        }
    }

    /// The name of a table or index: bare, or in schema `public`.
    pub(crate) fn object(&self, name: &ast::ObjectName) -> Result<Name> {
        let mut idents = Vec::new();
        for part in &name.0 {
            match part {
                ast::ObjectNamePart::Identifier(ident) => idents.push(ident),
                ast::ObjectNamePart::Function(_) => return Err(SqlError::unsupported("a computed name")),
            }
        }
        match idents[..] {
            [ident] => Ok(self.name(ident)),
            [schema, ident] if self.name(schema).text == "public" => Ok(self.name(ident)),
            [schema, _] => {
                let schema = self.name(schema);
                Err(SqlError::unsupported(format!("schema \"{}\"", schema.text)).at(schema.position))
            }
            _ => Err(SqlError::unsupported(format!("the qualified name {name}"))),
        }
    }
}

/// Parses one statement, as [`split()`] gives it. `cancel` ends it early.
pub fn parse(text: &str, cancel: &Arc<Cancel>) -> Result<Statement> {
    parse_in(text, &Room::new(READING_ROOM_BYTES), cancel)
}

/// As [`parse`], within the room that other sessions' reading has left.
pub fn parse_in(text: &str, room: &Arc<Room>, cancel: &Arc<Cancel>) -> Result<Statement> {
    limits::check_length(text)?;
    let mut reading = Reading::begin(text, room, cancel)?;
    let places = Places::new(text);
    let mut tokens = reading.tokens(&places)?;
    literals::join(&places, &mut tokens)?;
    cancel.check()?;
    if let Some(inner) = utility::explained(&places, &tokens)? {
        tokens.drain(..inner);
        let position = first_position(&places, &tokens);
        return match row_statement(&places, tokens, room, cancel)? {
            inner @ (Statement::Select(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)) => Ok(Statement::Explain(Box::new(inner))),
            _ => Err(SqlError::unsupported("EXPLAIN of this statement").at(position)),
        };
    }
    match utility::parse(&places, &tokens)? {
        Some(statement) => Ok(statement),
        None => row_statement(&places, tokens, room, cancel),
    }
}

/// Parses a statement that sqlparser reads as PostgreSQL does.
fn row_statement(
    places: &Places<'_>,
    mut tokens: Vec<TokenWithSpan>,
    room: &Arc<Room>,
    cancel: &Arc<Cancel>,
) -> Result<Statement> {
    // The parser would pass over blanks each time that it looks ahead, and might take comments for hints.
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    // The words by which messages name the statement.
    let first: Vec<TokenWithSpan> = words(&tokens).take(FIRST_WORDS).cloned().collect();
    isnull::spell_out(&mut tokens);
    let chain = limits::chain(&tokens);
    limits::check_nesting(&tokens, chain)?;
    limits::on_a_stack_for(chain, room, || {
        let dialect = BoundedDialect::new(tokens.len(), cancel);
        let mut parser = Parser::new(&dialect)
            .with_recursion_limit(limits::RECURSION_MAX)
            .with_tokens_with_locations(tokens);
        let parsed = dialect.bound(|| {
            let statement = parser.parse_statement()?;
            let next = parser.peek_token();
            if next.token == Token::EOF { Ok(statement) } else { parser.expected("end of statement", next) }
        })?;
        match parsed {
            Ok(statement) => lower(places, statement, &first),
            // PostgreSQL knows commands that sqlparser does not.
            Err(error) => match known_command(&first) {
                Some(command) => Err(SqlError::unsupported(command).at(first_position(places, &first))),
                None => Err(syntax_error(places, error)),
            },
        }
    })
}

/// More words than [`command_words`] looks at.
const FIRST_WORDS: usize = 16;

fn lower(places: &Places<'_>, statement: ast::Statement, tokens: &[TokenWithSpan]) -> Result<Statement> {
    Ok(match statement {
        ast::Statement::Query(query) => Statement::Select(Box::new(dml::select(places, *query)?)),
        ast::Statement::Insert(insert) => Statement::Insert(Box::new(dml::insert(places, insert)?)),
        ast::Statement::Update(update) => Statement::Update(Box::new(dml::update(places, update)?)),
        ast::Statement::Delete(delete) => Statement::Delete(Box::new(dml::delete(places, delete)?)),
        ast::Statement::CreateTable(table) => Statement::CreateTable(create::table(places, table)?),
        ast::Statement::CreateIndex(index) => Statement::CreateIndex(create::index(places, index)?),
        _ => {
            let command = command_words(tokens);
            return Err(SqlError::unsupported(command).at(first_position(places, tokens)));
        }
    })
}

fn words(tokens: &[TokenWithSpan]) -> impl Iterator<Item = &TokenWithSpan> {
    tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)))
}

fn first_position(places: &Places<'_>, tokens: &[TokenWithSpan]) -> Option<usize> {
    words(tokens).next().and_then(|token| places.position(token.span.start))
}

/// The words that name a statement's kind, for messages: the verb, and for CREATE and the like the kind of object.
fn command_words(tokens: &[TokenWithSpan]) -> String {
    let mut command = String::new();
    for token in words(tokens) {
        let Token::Word(word) = &token.token else { break };
        let text = word.value.to_uppercase();
        let filler =
            matches!(text.as_str(), "OR" | "REPLACE" | "TEMP" | "TEMPORARY" | "UNLOGGED" | "RECURSIVE");
        if filler && !command.is_empty() {
            continue;
        }
        let verb = command.is_empty();
        if !verb {
            command.push(' ');
        }
        let more = matches!(
            text.as_str(),
            "CREATE" | "DROP" | "ALTER" | "SET" | "MATERIALIZED" | "FOREIGN" | "EVENT"
        );
        command.push_str(&text);
        if !(verb && more || matches!(text.as_str(), "MATERIALIZED" | "FOREIGN" | "EVENT")) {
            break;
        }
    }
    if command.is_empty() { "this statement".to_string() } else { command }
}

/// The command's name, if its verb is one of PostgreSQL's whose form sqlparser may not know.
fn known_command(tokens: &[TokenWithSpan]) -> Option<String> {
    let command = command_words(tokens);
    let verb = command.split(' ').next().unwrap_or_default();
    let known = [
        "CALL",
        "CHECKPOINT",
        "CLUSTER",
        "COMMENT",
        "DECLARE",
        "DO",
        "EXECUTE",
        "FETCH",
        "GRANT",
        "IMPORT",
        "LISTEN",
        "LOAD",
        "LOCK",
        "MERGE",
        "MOVE",
        "NOTIFY",
        "PREPARE",
        "REASSIGN",
        "REFRESH",
        "REINDEX",
        "REVOKE",
        "SECURITY",
    ];
    let created = [
        "ACCESS",
        "AGGREGATE",
        "CAST",
        "COLLATION",
        "CONVERSION",
        "DATABASE",
        "DOMAIN",
        "EVENT",
        "EXTENSION",
        "FOREIGN",
        "FUNCTION",
        "GROUP",
        "LANGUAGE",
        "MATERIALIZED",
        "OPERATOR",
        "POLICY",
        "PROCEDURE",
        "PUBLICATION",
        "ROLE",
        "ROUTINE",
        "RULE",
        "SCHEMA",
        "SEQUENCE",
        "SERVER",
        "STATISTICS",
        "SUBSCRIPTION",
        "TABLESPACE",
        "TEXT",
        "TRANSFORM",
        "TRIGGER",
        "TYPE",
        "USER",
        "VIEW",
    ];
    let object = command.split(' ').nth(1).unwrap_or_default();
    let is_definition = matches!(verb, "CREATE" | "DROP" | "ALTER") && created.contains(&object);
    (known.contains(&verb) || is_definition).then_some(command)
}

/// A syntax error in PostgreSQL's words, with sqlparser's as the detail.
fn syntax_error(places: &Places<'_>, error: ParserError) -> SqlError {
    let message = match error {
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
        ParserError::RecursionLimitExceeded => return limits::too_nested(),
    };
    let (what, location) = match message.rfind(" at Line: ") {
        Some(at) => (message[..at].to_string(), parse_location(&message[at..])),
        None => (message, None),
    };
    let position = location.and_then(|location| places.position(location));
    let found = what.rsplit_once(", found: ").map(|(_, found)| found);
    let mut answer = match found {
        None => SqlError::new(SqlState::SyntaxError, format!("syntax error: {what}")),
        Some("EOF") => {
            SqlError::new(SqlState::SyntaxError, "syntax error at end of input").at(Some(places.end()))
        }
        Some(found) => SqlError::new(SqlState::SyntaxError, format!("syntax error at or near \"{found}\"")),
    };
    answer.position = answer.position.or(position);
    if found.is_some() {
        answer.detail = Some(format!("{what}."));
    }
    answer
}

/// Reads " at Line: 1, Column: 8".
fn parse_location(text: &str) -> Option<Location> {
    let (line, column) = text.strip_prefix(" at Line: ")?.split_once(", Column: ")?;
    Some(Location { line: line.parse().ok()?, column: column.trim().parse().ok()? })
}

/// Refuses what is left of a tree after all accepted parts were taken out.
fn left_over(what: &str, is_empty: bool) -> Result<()> {
    if is_empty { Ok(()) } else { Err(SqlError::unsupported(format!("this form of {what}"))) }
}

#[cfg(test)]
mod tests;

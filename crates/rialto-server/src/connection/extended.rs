//! The extended protocol: prepared statements, portals, pipelines that end with a Sync.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use rialto::row::Value;
use rialto_sql::parse::{CopyDirection, split};
use rialto_sql::values::{binary, text};
use rialto_sql::{Prepared, SqlError, SqlState, SqlType, Tag};

use super::copy::CopyState;
use super::output::OutputFormats;
use super::{Connection, Length, Mode, Stream, form, protocol_error};
use crate::protocol::backend;
use crate::protocol::frontend::{Bind, Format, Formats, Message, Target};

/// A prepared statement of the client's.
pub(super) struct Statement {
    /// `None` for an empty statement.
    prepared: Option<Arc<Prepared>>,
    /// The answer to a Describe of a portal whose columns are all text: RowDescription or NoData.
    description: Vec<u8>,
}

impl Statement {
    fn new(prepared: Option<Arc<Prepared>>) -> Statement {
        let mut description = Vec::new();
        describe_rows(&mut description, prepared.as_deref(), &OutputFormats::TEXT);
        Statement { prepared, description }
    }

    fn params(&self) -> &[SqlType] {
        self.prepared.as_ref().map_or(&[], |prepared| &prepared.params)
    }
}

/// A statement with its arguments.
pub(super) struct Portal {
    /// `None` if there is no such portal.
    statement: Option<Arc<Statement>>,
    params: Vec<Value>,
    formats: OutputFormats,
    state: PortalState,
}

enum PortalState {
    New,
    /// It ran, and these DataRow messages are left, each one with its end.
    Suspended {
        rows: Vec<u8>,
        ends: VecDeque<usize>,
        at: usize,
        tag: Tag,
    },
    Done,
}

impl Default for Portal {
    fn default() -> Portal {
        Portal { statement: None, params: Vec::new(), formats: OutputFormats::TEXT, state: PortalState::Done }
    }
}

impl Portal {
    /// Makes it one that is not there; its room for arguments stays.
    pub(super) fn close(&mut self) {
        self.statement = None;
        self.state = PortalState::Done;
    }

    /// Whether there is such a portal.
    fn is_there(&self) -> bool {
        self.statement.is_some()
    }

    /// Answers a Describe of it.
    fn describe(&self, out: &mut Vec<u8>) {
        let Some(statement) = &self.statement else { return };
        match self.formats {
            OutputFormats::TEXT => out.extend_from_slice(&statement.description),
            _ => describe_rows(out, statement.prepared.as_deref(), &self.formats),
        }
    }

    /// Makes it a statement's, with these arguments.
    fn bind(&mut self, statement: Arc<Statement>, bind: &Bind<'_>) -> Result<(), SqlError> {
        let bound = arguments(bind, statement.params(), &mut self.params).and_then(|()| {
            let columns = statement.prepared.as_ref().map_or(0, |prepared| prepared.columns.len());
            formats(bind.result_formats, columns)
        });
        match bound {
            Ok(formats) => {
                self.formats = formats;
                self.state = PortalState::New;
                self.statement = Some(statement);
                Ok(())
            }
            Err(error) => {
                self.close();
                Err(error)
            }
        }
    }
}

/// A client's portals.
#[derive(Default)]
pub(super) struct Portals {
    /// The one without a name, which stays to be used again.
    pub(super) unnamed: Portal,
    named: HashMap<String, Portal>,
}

impl Portals {
    fn get(&mut self, name: &str) -> Result<&mut Portal, SqlError> {
        let portal = if name.is_empty() { Some(&mut self.unnamed) } else { self.named.get_mut(name) };
        portal
            .filter(|portal| portal.is_there())
            .ok_or_else(|| SqlError::new(SqlState::NoSuchPortal, format!("portal \"{name}\" does not exist")))
    }

    /// Answers a Describe of a portal.
    #[inline]
    pub(super) fn describe(&mut self, name: &str, out: &mut Vec<u8>) -> Result<(), SqlError> {
        self.get(name)?.describe(out);
        Ok(())
    }

    fn close(&mut self, name: &str) {
        match name {
            "" => self.unnamed.close(),
            name => drop(self.named.remove(name)),
        }
    }

    /// Closes all of them.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.unnamed.close();
        if !self.named.is_empty() {
            self.named.clear();
        }
    }
}

impl<S: Stream> Connection<S> {
    /// One message of a pipeline.
    pub(super) fn pipeline_message(&mut self, message: Message<'_>) -> Result<(), SqlError> {
        match message {
            Message::Parse { name, sql, types } => self.parse(name, sql, &types),
            Message::Bind(bind) => self.bind(&bind),
            Message::Describe(target, name) => self.describe(target, name),
            Message::Execute { portal, max_rows } => self.execute_portal(portal, max_rows),
            Message::Close(target, name) => {
                match target {
                    Target::Statement => drop(self.statements.remove(name.as_bytes())),
                    Target::Portal => self.portals.close(name),
                }
                backend::bare(&mut self.out, b'3');
                Ok(())
            }
            _ => Err(SqlError::new(SqlState::Internal, "a message that is no part of a pipeline")),
        }
    }

    fn parse(&mut self, name: &str, sql: &str, types: &[u32]) -> Result<(), SqlError> {
        if !name.is_empty() && self.statements.contains_key(name.as_bytes()) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DuplicateStatement, message));
        }
        let types = types
            .iter()
            .map(|&oid| {
                SqlType::from_oid(oid).ok_or_else(|| {
                    SqlError::unsupported(format!("a parameter of the type with number {oid}"))
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let prepared = match split(sql)[..] {
            [] => None,
            [piece] => {
                let prepared =
                    self.session.prepare(piece.text, &types).map_err(|error| piece.move_error(error));
                Some(prepared?)
            }
            _ => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(SqlError::new(SqlState::SyntaxError, message));
            }
        };
        self.statements.insert(name.as_bytes().to_vec(), Arc::new(Statement::new(prepared)));
        backend::bare(&mut self.out, b'1');
        Ok(())
    }

    pub(super) fn bind(&mut self, bind: &Bind<'_>) -> Result<(), SqlError> {
        let statement = match self.statements.get(bind.statement.0) {
            Some(statement) => statement.clone(),
            None => return Err(no_statement(bind.statement.text().map_err(protocol_error)?)),
        };
        if !bind.portal.is_empty() && self.portals.named.contains_key(bind.portal) {
            let message = format!("cursor \"{}\" already exists", bind.portal);
            return Err(SqlError::new(SqlState::DuplicatePortal, message));
        }
        let expected = statement.params().len();
        if bind.arguments.count() != expected {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {expected}",
                bind.arguments.count(),
                bind.statement.text().unwrap_or_default(),
            );
            return Err(SqlError::new(SqlState::ProtocolViolation, message));
        }
        if bind.portal.is_empty() {
            self.portals.unnamed.bind(statement, bind)?;
        } else {
            let mut portal = Portal::default();
            portal.bind(statement, bind)?;
            self.portals.named.insert(bind.portal.to_string(), portal);
        }
        backend::bare(&mut self.out, b'2');
        Ok(())
    }

    fn describe(&mut self, target: Target, name: &str) -> Result<(), SqlError> {
        match target {
            Target::Statement => {
                let statement =
                    self.statements.get(name.as_bytes()).ok_or_else(|| no_statement(name))?.clone();
                let params = statement.params().iter();
                backend::parameter_description(&mut self.out, params.map(|sql_type| sql_type.oid()));
                self.out.extend_from_slice(&statement.description);
            }
            Target::Portal => {
                self.portals.describe(name, &mut self.out)?;
            }
        }
        Ok(())
    }

    /// Runs a portal: all its rows, or `max_rows` of them if that is not zero.
    pub(super) fn execute_portal(&mut self, name: &str, max_rows: u32) -> Result<(), SqlError> {
        let portal = self.portals.get(name)?;
        let Some(statement) = portal.statement.clone() else { return Ok(()) };
        let Some(prepared) = &statement.prepared else {
            backend::bare(&mut self.out, b'I');
            return Ok(());
        };
        match portal.state {
            PortalState::New => {}
            PortalState::Suspended { .. } => return self.more_rows(name, max_rows),
            PortalState::Done => {
                let message = format!("portal \"{name}\" cannot be run");
                return Err(SqlError::new(SqlState::NotInPrerequisiteState, message));
            }
        }
        // Also if it fails: it cannot be run again.
        portal.state = PortalState::Done;
        let params = std::mem::take(&mut portal.params);
        let formats = std::mem::replace(&mut portal.formats, OutputFormats::TEXT);
        if let Some((direction, columns)) = prepared.copy() {
            if let CopyDirection::FromStdin = direction {
                let copy = self.session.begin_copy(prepared)?;
                backend::copy_response(&mut self.out, b'G', columns);
                self.mode = Mode::CopyIn(Box::new(CopyState::in_pipeline(copy)));
                return self.flush().map_err(|error| SqlError::new(SqlState::IoError, error.to_string()));
            }
            backend::copy_response(&mut self.out, b'H', columns);
        }
        let form = form(prepared, &formats);
        if max_rows > 0 && !prepared.columns.is_empty() {
            // All its rows are kept, to be handed out piece by piece.
            let sent = std::mem::take(&mut self.out);
            let answer = self.execute(prepared, &params, form, Length::Kept);
            let rows = std::mem::replace(&mut self.out, sent);
            let tag = answer?;
            let ends = message_ends(&rows);
            self.portals.get(name)?.state = PortalState::Suspended { rows, ends, at: 0, tag };
            return self.more_rows(name, max_rows);
        }
        let tag = self.execute(prepared, &params, form, Length::Streamed)?;
        if prepared.copy().is_some() {
            backend::bare(&mut self.out, b'c');
        }
        self.complete(tag);
        // Room for the next arguments.
        self.portals.unnamed.params = params;
        Ok(())
    }

    /// Sends the next rows of a portal.
    fn more_rows(&mut self, name: &str, max_rows: u32) -> Result<(), SqlError> {
        let Connection { portals, out, .. } = self;
        let Portal { state, .. } = portals.get(name)?;
        let PortalState::Suspended { rows, ends, at, tag } = state else { return Ok(()) };
        let count = if max_rows == 0 { ends.len() } else { ends.len().min(max_rows as usize) };
        if let Some(end) = ends.drain(..count).next_back() {
            out.extend_from_slice(&rows[*at..end]);
            *at = end;
        }
        if ends.is_empty() && (max_rows == 0 || count < max_rows as usize) {
            let tag = match *tag {
                Tag::Rows(word @ "SELECT", _) => Tag::Rows(word, count as u64),
                tag => tag,
            };
            *state = PortalState::Done;
            self.complete(tag);
        } else {
            backend::bare(&mut self.out, b's');
        }
        Ok(())
    }
}

fn no_statement(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_string(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(SqlState::NoSuchStatement, message)
}

fn describe_rows(out: &mut Vec<u8>, prepared: Option<&Prepared>, formats: &OutputFormats) {
    match prepared {
        Some(prepared) if !prepared.columns.is_empty() => {
            backend::row_description(out, &prepared.columns, |index| formats.of(index));
        }
        _ => backend::bare(out, b'n'),
    }
}

/// Where each of these messages ends.
fn message_ends(messages: &[u8]) -> VecDeque<usize> {
    let mut ends = VecDeque::new();
    let mut at = 0;
    while let Some(length) = messages.get(at + 1..at + 5) {
        at += 1 + u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        ends.push_back(at);
    }
    ends
}

fn arguments(bind: &Bind<'_>, types: &[SqlType], values: &mut Vec<Value>) -> Result<(), SqlError> {
    values.clear();
    values.reserve(types.len());
    let text_only = bind.formats.count() == 0;
    for (argument, sql_type) in bind.arguments.iter().zip(types) {
        let Some(bytes) = argument else {
            values.push(Value::Null);
            continue;
        };
        // Most arguments are integers, as text.
        if text_only
            && *sql_type == SqlType::Int4
            && let Some(number) = text::plain_int4(bytes)
        {
            values.push(Value::Int4(number));
            continue;
        }
        let format = bind.formats.get(values.len()).map_err(protocol_error)?;
        values.push(argument_value(format, *sql_type, bytes, values.len() + 1)?);
    }
    Ok(())
}

/// The value of argument `number`, from 1.
fn argument_value(format: Format, sql_type: SqlType, bytes: &[u8], number: usize) -> Result<Value, SqlError> {
    let value = match format {
        Format::Binary => binary::parse(sql_type, bytes),
        Format::Text => text::parse_bytes(sql_type, bytes),
    };
    let value = value.map_err(|error| match error.detail {
        None => error.detail(format!("Parameter ${number}.")),
        Some(_) => error,
    })?;
    if matches!(&value, Value::Text(text) if text.contains('\0')) {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(SqlError::new(SqlState::BadEncoding, message));
    }
    Ok(value)
}

fn formats(formats: Formats<'_>, columns: usize) -> Result<OutputFormats, SqlError> {
    match formats.count() {
        0 => Ok(OutputFormats::TEXT),
        1 => formats.get(0).map(OutputFormats::All).map_err(protocol_error),
        count if count == columns => {
            let each = (0..count).map(|index| formats.get(index).map_err(protocol_error));
            Ok(OutputFormats::Each(each.collect::<Result<_, _>>()?))
        }
        count => {
            let message = format!("bind message has {count} result formats but query has {columns} columns");
            Err(SqlError::new(SqlState::ProtocolViolation, message))
        }
    }
}

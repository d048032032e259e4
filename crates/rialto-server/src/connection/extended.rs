//! The extended protocol: prepared statements, portals, pipelines that end with a Sync.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rialto::row::Value;
use rialto_sql::parse::{CopyDirection, split};
use rialto_sql::values::{binary, text};
use rialto_sql::{Prepared, SqlError, SqlState, SqlType, Tag};

use super::copy::CopyState;
use super::output::format_of;
use super::{Connection, Length, Mode, Stream, protocol_error};
use crate::protocol::backend;
use crate::protocol::frontend::{Bind, Format, Formats, Message, Target};

/// A statement with its arguments.
pub(super) struct Portal {
    /// `None` for an empty statement.
    prepared: Option<Arc<Prepared>>,
    params: Vec<Value>,
    formats: Vec<Format>,
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

impl<S: Stream> Connection<S> {
    /// One message of a pipeline.
    pub(super) fn pipeline_message(&mut self, message: Message<'_>) -> Result<(), SqlError> {
        match message {
            Message::Parse { name, sql, types } => self.parse(name, sql, &types),
            Message::Bind(bind) => self.bind(bind),
            Message::Describe(target, name) => self.describe(target, name),
            Message::Execute { portal, max_rows } => self.execute_portal(portal, max_rows),
            Message::Close(target, name) => {
                match target {
                    Target::Statement => drop(self.statements.remove(name)),
                    Target::Portal => drop(self.portals.remove(name)),
                }
                backend::bare(&mut self.out, b'3');
                Ok(())
            }
            _ => Err(SqlError::new(SqlState::Internal, "a message that is no part of a pipeline")),
        }
    }

    /// The end of a pipeline.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.ready()
    }

    fn parse(&mut self, name: &str, sql: &str, types: &[u32]) -> Result<(), SqlError> {
        if !name.is_empty() && self.statements.contains_key(name) {
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
        self.statements.insert(name.to_string(), prepared);
        backend::bare(&mut self.out, b'1');
        Ok(())
    }

    fn bind(&mut self, bind: Bind<'_>) -> Result<(), SqlError> {
        let prepared = self.statement_named(bind.statement)?.clone();
        if !bind.portal.is_empty() && self.portals.contains_key(bind.portal) {
            let message = format!("cursor \"{}\" already exists", bind.portal);
            return Err(SqlError::new(SqlState::DuplicatePortal, message));
        }
        let expected: &[SqlType] = prepared.as_ref().map_or(&[], |prepared| &prepared.params);
        if bind.arguments.count() != expected.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
                bind.arguments.count(),
                bind.statement,
                expected.len()
            );
            return Err(SqlError::new(SqlState::ProtocolViolation, message));
        }
        let columns = prepared.as_ref().map_or(0, |prepared| prepared.columns.len());
        let mut params = std::mem::take(&mut self.spare_params);
        arguments(&bind, expected, &mut params)?;
        let formats = formats(bind.result_formats, columns)?;
        let portal = Portal { prepared, params, formats, state: PortalState::New };
        match self.portals.get_mut(bind.portal) {
            Some(old) => *old = portal,
            None => drop(self.portals.insert(bind.portal.to_string(), portal)),
        }
        backend::bare(&mut self.out, b'2');
        Ok(())
    }

    fn statement_named(&self, name: &str) -> Result<&Option<Arc<Prepared>>, SqlError> {
        self.statements.get(name).ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_string(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            SqlError::new(SqlState::NoSuchStatement, message)
        })
    }

    fn describe(&mut self, target: Target, name: &str) -> Result<(), SqlError> {
        match target {
            Target::Statement => {
                let prepared = self.statement_named(name)?.clone();
                let params = prepared.as_ref().map_or(&[][..], |prepared| &prepared.params);
                backend::parameter_description(&mut self.out, params.iter().map(|sql_type| sql_type.oid()));
                describe_rows(&mut self.out, prepared.as_deref(), &[]);
            }
            Target::Portal => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                describe_rows(&mut self.out, portal.prepared.as_deref(), &portal.formats);
            }
        }
        Ok(())
    }

    fn execute_portal(&mut self, name: &str, max_rows: u32) -> Result<(), SqlError> {
        let portal = self.portals.get_mut(name).ok_or_else(|| no_portal(name))?;
        let Some(prepared) = &portal.prepared else {
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
        let prepared = prepared.clone();
        let (params, formats) = (std::mem::take(&mut portal.params), std::mem::take(&mut portal.formats));
        match prepared.copy() {
            Some((CopyDirection::FromStdin, columns)) => {
                let copy = self.session.begin_copy(&prepared)?;
                backend::copy_response(&mut self.out, b'G', columns);
                self.mode = Mode::CopyIn(Box::new(CopyState::in_pipeline(copy)));
                return self.flush().map_err(|error| SqlError::new(SqlState::IoError, error.to_string()));
            }
            Some((CopyDirection::ToStdout, columns)) => backend::copy_response(&mut self.out, b'H', columns),
            None => {}
        }
        if max_rows > 0 && !prepared.columns.is_empty() {
            // All its rows are kept, to be handed out piece by piece.
            let sent = std::mem::take(&mut self.out);
            let answer = self.execute(&prepared, &params, &formats, Length::Kept);
            let rows = std::mem::replace(&mut self.out, sent);
            let tag = answer?;
            let ends = message_ends(&rows);
            if let Some(portal) = self.portals.get_mut(name) {
                portal.state = PortalState::Suspended { rows, ends, at: 0, tag };
            }
            return self.more_rows(name, max_rows);
        }
        let tag = self.execute(&prepared, &params, &formats, Length::Streamed)?;
        if prepared.copy().is_some() {
            backend::bare(&mut self.out, b'c');
        }
        self.complete(tag);
        self.spare_params = params;
        Ok(())
    }

    /// Sends the next rows of a portal.
    fn more_rows(&mut self, name: &str, max_rows: u32) -> Result<(), SqlError> {
        let portal = self.portals.get_mut(name).ok_or_else(|| no_portal(name))?;
        let PortalState::Suspended { rows, ends, at, tag } = &mut portal.state else { return Ok(()) };
        let count = if max_rows == 0 { ends.len() } else { ends.len().min(max_rows as usize) };
        if let Some(end) = ends.drain(..count).next_back() {
            self.out.extend_from_slice(&rows[*at..end]);
            *at = end;
        }
        if ends.is_empty() && (max_rows == 0 || count < max_rows as usize) {
            let tag = match *tag {
                Tag::Rows(word @ "SELECT", _) => Tag::Rows(word, count as u64),
                tag => tag,
            };
            portal.state = PortalState::Done;
            self.complete(tag);
        } else {
            backend::bare(&mut self.out, b's');
        }
        Ok(())
    }
}

fn describe_rows(out: &mut Vec<u8>, prepared: Option<&Prepared>, formats: &[Format]) {
    match prepared {
        Some(prepared) if !prepared.columns.is_empty() => {
            backend::row_description(out, &prepared.columns, |index| format_of(formats, index));
        }
        _ => backend::bare(out, b'n'),
    }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(SqlState::NoSuchPortal, format!("portal \"{name}\" does not exist"))
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
    for (index, (argument, sql_type)) in bind.arguments.iter().zip(types).enumerate() {
        let Some(bytes) = argument else {
            values.push(Value::Null);
            continue;
        };
        let value = match bind.formats.get(index).map_err(protocol_error)? {
            Format::Binary => binary::parse(*sql_type, bytes),
            Format::Text => binary::utf8(bytes).and_then(|text| text::parse(*sql_type, text)),
        };
        let value = value.map_err(|error| match error.detail {
            None => error.detail(format!("Parameter ${}.", index + 1)),
            Some(_) => error,
        })?;
        if matches!(&value, Value::Text(text) if text.contains('\0')) {
            let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
            return Err(SqlError::new(SqlState::BadEncoding, message));
        }
        values.push(value);
    }
    Ok(())
}

fn formats(formats: Formats<'_>, columns: usize) -> Result<Vec<Format>, SqlError> {
    if formats.count() > 1 && formats.count() != columns {
        let message =
            format!("bind message has {} result formats but query has {columns} columns", formats.count());
        return Err(SqlError::new(SqlState::ProtocolViolation, message));
    }
    (0..formats.count()).map(|index| formats.get(index).map_err(protocol_error)).collect()
}

//! The extended protocol: prepared statements, portals, pipelines that end with a Sync.

use rialto::fault_injection;
use rialto::row::Value;
use rialto_sql::parse::{CopyDirection, split};
use rialto_sql::values::{binary, text};
use rialto_sql::{Closing, Prepared, SqlError, SqlState, SqlType, Tag};

use super::copy::{CopyState, begin_copy_in};
use super::output::{OutputFormats, Rest, RowForm};
use super::portal::PortalState;
use super::{Connection, Mode, Stream, protocol_error};
use crate::protocol::backend;
use crate::protocol::frontend::{Bind, Format, Formats, Message, Target};

impl<S: Stream> Connection<S> {
    /// Handles one message of a pipeline.
    pub(super) fn pipeline_message(&mut self, message: Message<'_>) -> Result<(), SqlError> {
        self.session.check_not_cancelled()?;
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

    fn parse(&mut self, name: &str, sql: &str, declared: &[u32]) -> Result<(), SqlError> {
        let stays = fault_injection::is_on("failed-parse-leaves-the-unnamed");
        if name.is_empty() && !stays {
            // Also if the new statement fails: a Bind must not find the old one.
            self.statements.remove(b"");
        }
        self.statements.check_room(name.len() + sql.len())?;
        let types = declared
            .iter()
            .map(|&oid| {
                SqlType::from_oid(oid).ok_or_else(|| {
                    SqlError::unsupported(format!("a parameter of the type with number {oid}"))
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut pieces = split(sql);
        let prepared = match (pieces.next(), pieces.next()) {
            (None, _) => None,
            (Some(piece), None) => {
                let prepared =
                    self.session.prepare(piece.text, &types).map_err(|error| piece.move_error(error));
                Some(prepared?)
            }
            (Some(_), Some(_)) => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(SqlError::new(SqlState::SyntaxError, message));
            }
        };
        if name.is_empty() && stays {
            self.statements.remove(b"");
        }
        self.statements.insert(name, prepared, declared, sql.len())?;
        backend::bare(&mut self.out, b'1');
        Ok(())
    }

    pub(super) fn bind(&mut self, bind: &Bind<'_>) -> Result<(), SqlError> {
        let statement = match self.statements.get(bind.statement.0) {
            Some(statement) => statement.clone(),
            None => return Err(no_statement(bind.statement.text().map_err(protocol_error)?)),
        };
        let expected = statement.params().len();
        if bind.arguments.count() != expected {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires {expected}",
                bind.arguments.count(),
                bind.statement.text().unwrap_or_default(),
            );
            return Err(SqlError::new(SqlState::ProtocolViolation, message));
        }
        if let Err(error) = self.session.check_not_failed()
            && !statement.prepared.as_ref().is_none_or(|prepared| prepared.is_allowed_when_failed())
        {
            return Err(error);
        }
        self.portals.check_is_free(bind.portal)?;
        self.portals.open(bind, statement, self.session.savepoint_number())?;
        backend::bare(&mut self.out, b'2');
        Ok(())
    }

    fn describe(&mut self, target: Target, name: &str) -> Result<(), SqlError> {
        match target {
            Target::Statement => {
                let statement =
                    self.statements.get(name.as_bytes()).ok_or_else(|| no_statement(name))?.clone();
                if statement.has_columns() {
                    self.session.check_not_failed()?;
                }
                if let Some(prepared) = &statement.prepared {
                    self.session.settle_plan(prepared)?;
                }
                backend::parameter_description(&mut self.out, statement.param_oids());
                self.out.extend_from_slice(&statement.description);
                Ok(())
            }
            Target::Portal => self.describe_portal(name),
        }
    }

    /// Describes the columns of a portal, with their formats.
    #[inline]
    pub(super) fn describe_portal(&mut self, name: &str) -> Result<(), SqlError> {
        let portal = self.portals.get(name)?;
        if portal.has_columns() {
            self.session.check_not_failed()?;
        }
        if let Some(prepared) = portal.statement.as_ref().and_then(|statement| statement.prepared.as_ref()) {
            self.session.settle_plan(prepared)?;
        }
        portal.describe(&mut self.out);
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
            PortalState::Suspended { .. } => {
                if !fault_injection::is_on("portal-runs-in-a-failed-block") {
                    self.session.check_not_failed()?;
                }
                return self.more_rows(name, max_rows);
            }
            // A portal that gave rows has none left. One that gave none is not run twice.
            PortalState::Ran(tag) if !prepared.columns.is_empty() => {
                self.session.check_not_failed()?;
                self.complete(with_rows(tag, 0));
                return Ok(());
            }
            PortalState::Ran(_) | PortalState::Done => {
                self.session.check_not_failed()?;
                let message = format!("portal \"{name}\" cannot be run");
                return Err(SqlError::new(SqlState::NotInPrerequisiteState, message));
            }
        }
        // Also if it fails: a portal cannot be run again.
        portal.state = PortalState::Done;
        let params = std::mem::take(&mut portal.params);
        let formats = portal.formats.clone();
        if fault_injection::is_on("execute-takes-the-formats") {
            portal.formats = OutputFormats::TEXT;
        }
        if let Some((CopyDirection::FromStdin, _)) = prepared.copy() {
            let copy = self.session.begin_copy(prepared)?;
            begin_copy_in(&mut self.out, &copy);
            self.mode = Mode::CopyIn(Box::new(CopyState::in_pipeline(copy)));
            return Ok(());
        }
        let form = RowForm { formats: &formats, described: false };
        if max_rows > 0 && !prepared.columns.is_empty() {
            // The rest of the rows is kept, to be sent piece by piece.
            let mut kept = Vec::new();
            let bytes_max = self.portals.room();
            let rest = Rest { before: max_rows.into(), kept: &mut kept, bytes_max };
            let ran =
                self.execute(form, Some(rest), |session, sink| session.execute(prepared, &params, sink));
            let (tag, before) = ran.inspect_err(|_| self.portals.let_arguments_go(name))?;
            if before > 0 {
                self.portals.ran(name, tag, params);
                self.complete(tag);
            } else {
                self.portals.keep(name, kept, tag, self.session.savepoint_number())?;
                backend::bare(&mut self.out, b's');
            }
            return Ok(());
        }
        let ran = self.execute(form, None, |session, sink| session.execute(prepared, &params, sink));
        let (tag, _) = ran.inspect_err(|_| self.portals.let_arguments_go(name))?;
        if prepared.copy().is_some() {
            backend::bare(&mut self.out, b'c');
        }
        self.complete(tag);
        self.portals.ran(name, tag, params);
        Ok(())
    }

    /// Drops what a statement has asked to drop.
    #[cold]
    pub(super) fn close(&mut self, closing: &Closing) -> Result<(), SqlError> {
        match closing {
            Closing::Statement(name) => {
                // The unnamed statement cannot be named.
                let found = !name.is_empty() && self.statements.remove(name.as_bytes());
                if found { Ok(()) } else { Err(no_statement(name)) }
            }
            Closing::Statements => {
                self.statements.remove_named();
                Ok(())
            }
            Closing::Portal(name) => self.portals.close_by_statement(name),
            Closing::Portals => {
                self.portals.close_all();
                Ok(())
            }
        }
    }

    /// Sends the next rows of a portal.
    fn more_rows(&mut self, name: &str, max_rows: u32) -> Result<(), SqlError> {
        let PortalState::Suspended { rows, at, tag } = &mut self.portals.get(name)?.state else {
            return Ok(());
        };
        let (start, mut count) = (*at, 0);
        while *at < rows.len() && (max_rows == 0 || count < max_rows) {
            *at = message_end(rows, *at);
            count += 1;
        }
        self.out.extend_from_slice(&rows[start..*at]);
        if *at < rows.len() || max_rows > 0 && count == max_rows {
            backend::bare(&mut self.out, b's');
            return Ok(());
        }
        let tag = with_rows(*tag, count);
        self.portals.end(name, tag)?;
        self.complete(tag);
        Ok(())
    }
}

/// The tag of an Execute that shares a portal with others: it counts its own rows.
fn with_rows(tag: Tag, count: u32) -> Tag {
    match tag {
        Tag::Rows(word, _) => Tag::Rows(word, count.into()),
        tag => tag,
    }
}

/// The end of the message that begins at `at`.
fn message_end(messages: &[u8], at: usize) -> usize {
    let length = messages[at + 1..at + 5].try_into().expect("a whole message is kept");
    at + 1 + u32::from_be_bytes(length) as usize
}

fn no_statement(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_string(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(SqlState::NoSuchStatement, message)
}

/// The answer to a Describe of a statement's rows in these formats.
pub(super) fn describe_rows(out: &mut Vec<u8>, prepared: Option<&Prepared>, formats: &OutputFormats) {
    match prepared {
        Some(prepared) if !prepared.columns.is_empty() => {
            backend::row_description(out, &prepared.columns, |index| formats.of(index));
        }
        _ => backend::bare(out, b'n'),
    }
}

/// The arguments of a Bind as values.
pub(super) fn arguments(bind: &Bind<'_>, types: &[SqlType], values: &mut Vec<Value>) -> Result<(), SqlError> {
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

/// The formats of a result as Bind gives them.
pub(super) fn formats(formats: Formats<'_>, columns: usize) -> Result<OutputFormats, SqlError> {
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

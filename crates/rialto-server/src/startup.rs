//! The start of a connection: encryption is declined, any user and database name are accepted, settings are read.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::connection::Stream;
use crate::events;
use crate::protocol::backend::{self, Status};
use crate::protocol::frontend::{self, STARTUP_BYTES_MAX, Startup};
use crate::shared::{Place, Shared};
use rialto::io::FOR_EVER;
use rialto_sql::{Session, Severity, SqlError, SqlState};

/// The settings that a client is told at the start, with their names on the wire.
const TOLD: [(&str, &str); 11] = [
    ("server_version", "server_version"),
    ("server_encoding", "server_encoding"),
    ("client_encoding", "client_encoding"),
    ("application_name", "application_name"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("in_hot_standby", "in_hot_standby"),
    ("is_superuser", "is_superuser"),
    ("DateStyle", "datestyle"),
    ("IntervalStyle", "intervalstyle"),
    ("TimeZone", "timezone"),
    ("integer_datetimes", "integer_datetimes"),
];

/// TLS and GSS encryption may be asked for once each.
const ENCRYPTION_REQUESTS_MAX: usize = 2;

/// Reads start-up packets until a session begins; `None` if there will be none. The client has to send them within the
/// start-up time-out, however it cuts them.
pub(crate) fn start(
    stream: &mut impl Stream,
    shared: &Arc<Shared>,
    place: &Place,
) -> io::Result<Option<Session>> {
    let deadline = Instant::now() + place.startup_timeout().min(FOR_EVER);
    let mut encryption_requests = 0;
    loop {
        let mut length = [0; 4];
        read_by(deadline, stream, &mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if !(8..=STARTUP_BYTES_MAX).contains(&length) {
            let message = format!("start-up packet of {length} bytes; 8 to {STARTUP_BYTES_MAX} are allowed");
            return refuse(stream, &SqlError::new(SqlState::ProtocolViolation, message));
        }
        let mut body = vec![0; length - 4];
        read_by(deadline, stream, &mut body)?;
        match frontend::startup(&body) {
            Ok(Startup::Encryption) if encryption_requests == ENCRYPTION_REQUESTS_MAX => {
                let message = "encryption was asked for before, and declined";
                return refuse(stream, &SqlError::new(SqlState::ProtocolViolation, message));
            }
            Ok(Startup::Encryption) => {
                encryption_requests += 1;
                stream.write_all(b"N")?;
            }
            Ok(Startup::Cancel { process, secret }) => {
                shared.cancel(process, secret);
                return Ok(None);
            }
            Ok(Startup::Session { .. }) if !place.is_served() => return turn_away(stream, shared),
            Ok(Startup::Session { minor, parameters }) => {
                return match session(stream, shared, place, minor, &parameters) {
                    Ok(session) => Ok(Some(session)),
                    Err(error) => refuse(stream, &error),
                };
            }
            Err(malformed) => {
                let error = SqlError::new(SqlState::ProtocolViolation, malformed.to_string());
                return refuse(stream, &error);
            }
        }
    }
}

/// Fills the buffer before the deadline.
fn read_by(deadline: Instant, stream: &mut impl Stream, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer = &mut buffer[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Tells a client that there is no room for it.
pub(crate) fn turn_away(stream: &mut impl Stream, shared: &Shared) -> io::Result<Option<Session>> {
    events::turned_away(shared.connections_max());
    let message =
        format!("sorry, too many clients already: all {} connections are in use", shared.connections_max());
    let error = SqlError::new(SqlState::TooManyConnections, message);
    refuse(stream, &error.hint("Close some, or start the server with a higher --max-connections."))
}

fn refuse(stream: &mut impl Stream, error: &SqlError) -> io::Result<Option<Session>> {
    let mut out = Vec::new();
    events::error_sent(error);
    backend::error(&mut out, Severity::Fatal, error);
    stream.write_all(&out)?;
    Ok(None)
}

fn session(
    stream: &mut impl Stream,
    shared: &Arc<Shared>,
    place: &Place,
    minor: u16,
    parameters: &[(String, String)],
) -> Result<Session, SqlError> {
    let find =
        |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let user = find("user").unwrap_or("rialto");
    let name = find("database").filter(|name| !name.is_empty()).unwrap_or(user);
    let mut session = shared.session(user, name);
    let (mut unknown, mut warning) = (Vec::new(), None);
    for (name, value) in parameters {
        match name.as_str() {
            "user" | "database" => {}
            "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
            "replication" => return Err(SqlError::unsupported("a replication connection")),
            "options" => set_options(&mut session, value)?,
            // Protocol extensions are declined, not refused.
            extension if extension.starts_with("_pq_.") => unknown.push(extension),
            // Some drivers send their machine's zone without being asked. They are told the session's, and go by that.
            zone if zone.eq_ignore_ascii_case("TimeZone") => warning = session.set(zone, value).err(),
            setting => session.set(setting, value)?,
        }
    }
    place.begin(session.cancel());
    events::session_began(user, name, &session);
    let mut out = Vec::with_capacity(512);
    if minor > 0 || !unknown.is_empty() {
        backend::negotiate_version(&mut out, &unknown);
    }
    backend::authentication_ok(&mut out);
    for (told, name) in TOLD {
        backend::parameter_status(&mut out, told, &session.show(name));
    }
    backend::parameter_status(&mut out, "standard_conforming_strings", "on");
    backend::parameter_status(&mut out, "session_authorization", user);
    backend::key_data(&mut out, place.process, place.secret);
    if let Some(warning) = warning {
        backend::error(&mut out, Severity::Warning, &warning);
    }
    backend::ready(&mut out, Status::Idle);
    stream.write_all(&out).map_err(|error| SqlError::new(SqlState::IoError, error.to_string()))?;
    Ok(session)
}

/// The `options` of a start-up packet: `-c name=value`, any number of times; a backslash keeps a blank.
fn set_options(session: &mut Session, options: &str) -> Result<(), SqlError> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => words.last_mut().expect("never empty").extend(characters.next()),
            character if character.is_whitespace() => words.push(String::new()),
            character => words.last_mut().expect("never empty").push(character),
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(setting) => Some(setting.to_string()),
            None => word.strip_prefix("--").map(str::to_string),
        };
        let Some((name, value)) = setting.as_deref().and_then(|setting| setting.split_once('=')) else {
            let message = format!("invalid option \"{word}\" in the start-up packet: write -c name=value");
            return Err(SqlError::new(SqlState::InvalidParameterValue, message));
        };
        session.set(name, value)?;
    }
    Ok(())
}

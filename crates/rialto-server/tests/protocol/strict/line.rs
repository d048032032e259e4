//! A connection of a client, with the state of its session: prepared statements, and the level of its commits.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use rialto::Durability;

use super::statements::Statement;
use crate::common::{Client, Message, bind, error_code, error_text, execute, parse, query, sync};

/// Why a statement was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// An error with this SQLSTATE.
    Error { code: String, text: String },
    /// The server has closed the connection.
    Gone,
}

/// SQLSTATEs after which a transaction may be tried again: no serializable order, a deadlock, no lock in time,
/// cancelled.
const MAY_BE_TRIED_AGAIN: [&str; 4] = ["40001", "40P01", "55P03", "57014"];
/// SQLSTATEs of a server that ends: the outcome is unknown, the disk has failed, the server shuts down.
const OF_THE_END: [&str; 3] = ["08007", "58030", "57P01"];

impl Refused {
    pub fn is(&self, wanted: &str) -> bool {
        matches!(self, Refused::Error { code, .. } if code == wanted)
    }

    /// Whether the connection is unusable.
    pub fn is_end(&self) -> bool {
        match self {
            Refused::Error { code, .. } => OF_THE_END.contains(&&code[..]),
            Refused::Gone => true,
        }
    }

    /// Fails if no history has this error; the end of the server is one if the server may not end.
    pub fn check(&self, may_end: bool, about: &str) {
        let is_known = match self {
            Refused::Error { code, .. } if MAY_BE_TRIED_AGAIN.contains(&&code[..]) => true,
            refused => may_end && refused.is_end(),
        };
        assert!(is_known, "{about}: {self:?}");
    }
}

/// The messages for a statement, up to ReadyForQuery.
pub type Answer = Result<Vec<Message>, Refused>;

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Simple,
    Extended,
    /// By statements that stay prepared, whatever definitions come.
    Prepared,
}

pub const WAYS: [Way; 3] = [Way::Simple, Way::Extended, Way::Prepared];

pub struct Line {
    pub client: Client,
    /// The level of the session's commits.
    pub level: Durability,
    /// Names of prepared statements, by their texts.
    prepared: HashMap<String, String>,
    /// Texts of statements whose Parse is not answered yet.
    unanswered: Vec<String>,
    statements: u64,
}

impl Line {
    /// None: the server has ended.
    pub fn open(address: SocketAddr) -> Option<Line> {
        let client = Client::try_connect(address)?;
        let (prepared, unanswered) = (HashMap::new(), Vec::new());
        Some(Line { client, level: Durability::Disk, prepared, unanswered, statements: 0 })
    }

    /// Runs a text by the simple protocol.
    pub fn run(&mut self, sql: &str) -> Answer {
        self.ask(&query(sql))
    }

    /// Runs a statement.
    pub fn statement(&mut self, way: Way, statement: &Statement) -> Answer {
        let mut messages = self.encode(way, statement);
        if way != Way::Simple {
            messages.extend(sync());
        }
        self.ask(&messages)
    }

    /// Runs a statement in a block by a portal that is suspended after this number of rows, and continues when others
    /// have had time for changes.
    pub fn in_pieces(&mut self, statement: &Statement, rows: u32) -> Answer {
        let (text, arguments) = statement.parts();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.statements += 1;
        let portal = format!("p{}", self.statements);
        let go_on = [execute(&portal, rows), sync()].concat();
        let mut answer =
            self.ask(&[parse("", &text), bind(&portal, "", &arguments), go_on.clone()].concat())?;
        while !answer.iter().any(|(tag, _)| *tag == b'C') {
            std::thread::sleep(Duration::from_micros(300));
            answer.extend(self.ask(&go_on)?);
        }
        Ok(answer)
    }

    fn ask(&mut self, messages: &[u8]) -> Answer {
        if !self.client.try_send(messages) {
            return Err(Refused::Gone);
        }
        self.answer()
    }

    /// The messages of a statement, without a Sync.
    pub fn encode(&mut self, way: Way, statement: &Statement) -> Vec<u8> {
        if way == Way::Simple {
            return query(&statement.text());
        }
        let (text, arguments) = statement.parts();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let run = |name: &str| [bind("", name, &arguments), execute("", 0)].concat();
        // A statement whose Parse is not answered may not be prepared.
        if way == Way::Extended || self.unanswered.contains(&text) {
            return [parse("", &text), run("")].concat();
        }
        if let Some(name) = self.prepared.get(&text) {
            return run(name);
        }
        self.statements += 1;
        let name = format!("s{}", self.statements);
        let messages = [parse(&name, &text), run(&name)].concat();
        self.unanswered.push(text.clone());
        self.prepared.insert(text, name);
        messages
    }

    /// The messages until ReadyForQuery.
    pub fn answer(&mut self) -> Answer {
        let answer = self.client.answer();
        let refused = refusal(&answer);
        self.answered(refused.is_none());
        refused.map_or(Ok(answer), Err)
    }

    /// Everything that was sent is answered, or there was an error, after which statements may not have been prepared.
    pub fn answered(&mut self, whole: bool) {
        for text in self.unanswered.drain(..) {
            if !whole {
                self.prepared.remove(&text);
            }
        }
    }
}

/// The error in the answer, if there is one.
pub fn refusal(answer: &[Message]) -> Option<Refused> {
    match (error_code(answer), answer.last()) {
        (Some(code), _) => Some(Refused::Error { code, text: error_text(answer) }),
        (None, Some((b'Z', _))) => None,
        _ => Some(Refused::Gone),
    }
}

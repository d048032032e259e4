//! Counts the user instructions of the server for one pgbench transaction, and compares them with gates. For `.ci/run`.
//!
//! ```text
//! steady_session                   prints the figures
//! steady_session FILE              and exits 1 if a gate in the file does not hold
//! steady_session run TRANSACTIONS  what callgrind runs
//! ```
//!
//! One client, on the same thread, sends what pgbench sends and takes the answers; there is no socket. The figure is
//! steady for the same reasons as in `rialto_figures::steady`: a fixed seed, no flush by the clock, no checkpoint, level
//! 1 on a memory disk (the log's files have gates of their own there). Each way of sending the transaction is counted
//! in a window of its own. A window begins and ends with a call at which callgrind dumps its counts. Making a request
//! is not counted.

use std::fs;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use mimalloc::MiMalloc;
use rialto::io::{MemoryDisk, Random};
use rialto::{Checkpointing, Database, Durability, Options};
use rialto_server::Shared;
use rialto_server::connection;
use rialto_server::fuzz::InMemory;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Transactions of each window.
const TRANSACTIONS: u32 = 1_000;
/// Transactions before each window: they fill pools and caches.
const WARMUP: u32 = 200;
const ACCOUNTS: u64 = 10_000;
const TELLERS: u64 = 10;

const TABLES: [&str; 8] = [
    "create table pgbench_history(tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
    "create table pgbench_tellers(tid int not null, bid int, tbalance int, filler char(84), primary key (tid))",
    "create table pgbench_accounts(aid int not null, bid int, abalance int, filler char(84), primary key (aid))",
    "create table pgbench_branches(bid int not null, bbalance int, filler char(88), primary key (bid))",
    "insert into pgbench_branches(bid, bbalance) values (1, 0)",
    "insert into pgbench_tellers(tid, bid, tbalance) select tid, 1, 0 from generate_series(1, 10) as tid",
    "insert into pgbench_accounts(aid, bid, abalance, filler) select aid, 1, 0, '' from generate_series(1, 10000) as aid",
    "select count(*) from pgbench_accounts",
];

/// pgbench's tpcb-like script, and the variables for each `{}`.
const SCRIPT: [(&str, &[usize]); 7] = [
    ("BEGIN;", &[]),
    ("UPDATE pgbench_accounts SET abalance = abalance + {} WHERE aid = {};", &[DELTA, AID]),
    ("SELECT abalance FROM pgbench_accounts WHERE aid = {};", &[AID]),
    ("UPDATE pgbench_tellers SET tbalance = tbalance + {} WHERE tid = {};", &[DELTA, TID]),
    ("UPDATE pgbench_branches SET bbalance = bbalance + {} WHERE bid = {};", &[DELTA, BID]),
    (
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ({}, {}, {}, {}, CURRENT_TIMESTAMP);",
        &[TID, BID, AID, DELTA],
    ),
    ("END;", &[]),
];
const DELTA: usize = 0;
const AID: usize = 1;
const TID: usize = 2;
const BID: usize = 3;

/// How the script is sent: pgbench's `-M`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Prepared,
    Simple,
    Extended,
}

impl Way {
    const ALL: [Way; 3] = [Way::Prepared, Way::Simple, Way::Extended];

    fn name(self) -> &'static str {
        match self {
            Way::Prepared => "prepared",
            Way::Simple => "simple",
            Way::Extended => "extended",
        }
    }
}

/// The beginning and the end of a window, for callgrind.
#[inline(never)]
fn steady_session_mark(way: Way) {
    black_box(way);
}

/// The next request.
#[derive(Debug, Clone, Copy)]
enum Step {
    Startup,
    Load(usize),
    Prepare(usize),
    /// A statement of the script, in a transaction, in a window.
    Statement {
        window: usize,
        transaction: u32,
        statement: usize,
    },
    End,
}

/// pgbench, as the server sees it.
struct Client {
    transactions: u32,
    step: Step,
    random: Random,
    /// As text: delta, aid, tid, bid.
    variables: [String; 4],
    request: Vec<u8>,
    /// How much of the request was read.
    sent: usize,
    text: String,
}

impl Client {
    fn new(transactions: u32) -> Client {
        Client {
            transactions,
            step: Step::Startup,
            random: Random::new(1),
            variables: Default::default(),
            request: Vec::new(),
            sent: 0,
            text: String::new(),
        }
    }

    /// Writes the next request. Callgrind counts nothing in here.
    #[inline(never)]
    fn steady_client_turn(&mut self) {
        self.request.clear();
        self.sent = 0;
        self.step = match self.step {
            Step::Startup => {
                let body = b"\0\x03\0\0user\0bench\0database\0bench\0\0";
                self.request.extend_from_slice(&(4 + body.len() as u32).to_be_bytes());
                self.request.extend_from_slice(body);
                Step::Load(0)
            }
            Step::Load(at) => {
                message(&mut self.request, b'Q', |out| string(out, TABLES[at]));
                if at + 1 < TABLES.len() { Step::Load(at + 1) } else { Step::Prepare(0) }
            }
            Step::Prepare(at) => {
                self.parse(&statement_name(at), at);
                message(&mut self.request, b'S', |_| ());
                match at + 1 < SCRIPT.len() {
                    true => Step::Prepare(at + 1),
                    false => Step::Statement { window: 0, transaction: 0, statement: 0 },
                }
            }
            Step::Statement { window, transaction, statement } => {
                self.send(window, statement);
                match (statement + 1 == SCRIPT.len(), transaction == WARMUP + self.transactions) {
                    (false, _) => Step::Statement { window, transaction, statement: statement + 1 },
                    (true, false) => Step::Statement { window, transaction: transaction + 1, statement: 0 },
                    // One more than was requested: the window ended where it began.
                    (true, true) if window + 1 < Way::ALL.len() => {
                        Step::Statement { window: window + 1, transaction: 0, statement: 0 }
                    }
                    (true, true) => Step::End,
                }
            }
            Step::End => {
                message(&mut self.request, b'X', |_| ());
                Step::End
            }
        };
    }

    fn send(&mut self, window: usize, statement: usize) {
        let way = Way::ALL[window];
        if statement == 0 {
            let delta = self.random.below(10_001) as i64 - 5_000;
            let (aid, tid) = (self.random.below(ACCOUNTS) + 1, self.random.below(TELLERS) + 1);
            self.variables = [delta.to_string(), aid.to_string(), tid.to_string(), "1".to_owned()];
        }
        match way {
            Way::Prepared => self.execute(&statement_name(statement), statement),
            Way::Extended => {
                self.parse("", statement);
                self.execute("", statement);
            }
            Way::Simple => {
                let (text, variables) = SCRIPT[statement];
                let values: Vec<&str> = variables.iter().map(|at| &self.variables[*at][..]).collect();
                self.text = fill_in(text, &values);
                message(&mut self.request, b'Q', |out| string(out, &self.text));
            }
        }
    }

    /// Parse, with the variables as parameters.
    fn parse(&mut self, name: &str, statement: usize) {
        let (text, variables) = SCRIPT[statement];
        let numbers: Vec<String> = (1..=variables.len()).map(|number| format!("${number}")).collect();
        let text = fill_in(text, &numbers.iter().map(String::as_str).collect::<Vec<_>>());
        message(&mut self.request, b'P', |out| {
            string(out, name);
            string(out, &text);
            out.extend_from_slice(&[0, 0]);
        });
    }

    /// The messages of libpq for one statement: Bind, Describe, Execute, Sync.
    fn execute(&mut self, name: &str, statement: usize) {
        let (_, variables) = SCRIPT[statement];
        let Client { request, variables: values, .. } = self;
        message(request, b'B', |out| {
            string(out, "");
            string(out, name);
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&(variables.len() as u16).to_be_bytes());
            for at in variables {
                out.extend_from_slice(&(values[*at].len() as u32).to_be_bytes());
                out.extend_from_slice(values[*at].as_bytes());
            }
            out.extend_from_slice(&[0, 1, 0, 0]);
        });
        message(request, b'D', |out| out.extend_from_slice(b"P\0"));
        message(request, b'E', |out| out.extend_from_slice(&[0; 5]));
        message(request, b'S', |_| ());
    }
}

/// As pgbench calls them.
fn statement_name(statement: usize) -> String {
    format!("P0_{}", statement + 4)
}

/// The text with values in place of its `{}`.
fn fill_in(text: &str, values: &[&str]) -> String {
    let mut pieces = text.split("{}");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for (value, piece) in values.iter().zip(pieces) {
        filled.push_str(value);
        filled.push_str(piece);
    }
    filled
}

fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.sent == self.request.len() {
            if let Step::Statement { window, transaction, statement: 0 } = self.step
                && [WARMUP, WARMUP + self.transactions].contains(&transaction)
            {
                steady_session_mark(Way::ALL[window]);
            }
            self.steady_client_turn();
        }
        let count = buffer.len().min(self.request.len() - self.sent);
        buffer[..count].copy_from_slice(&self.request[self.sent..self.sent + count]);
        self.sent += count;
        Ok(count)
    }
}

impl Write for Client {
    /// Each write is a whole answer. An error ends the run.
    fn write(&mut self, answer: &[u8]) -> io::Result<usize> {
        let mut rest = answer;
        while let [tag, a, b, c, d, ..] = *rest {
            let end = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
            assert!(
                !matches!(tag, b'E' | b'N'),
                "{:?}: {}",
                self.step,
                String::from_utf8_lossy(&rest[..end])
            );
            rest = &rest[end..];
        }
        Ok(answer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run(transactions: &str) -> Result<(), String> {
    let transactions = transactions.parse().map_err(|_| format!("\"{transactions}\" is no number"))?;
    let options = Options {
        durability: Durability::Memory,
        memory_bytes: 256 << 20,
        checkpoint: Checkpointing::None,
        // Longer than any run.
        memory_flush_interval: Duration::from_secs(86_400),
        ..Options::default()
    };
    let database = Database::open_on(MemoryDisk::new(), options).map_err(|error| error.to_string())?;
    connection::serve(InMemory(Client::new(transactions)), Shared::new(database.clone(), 1));
    database.close().map_err(|error| error.to_string())
}

/// Instructions for one transaction, by the way that it is sent.
fn count() -> Result<Vec<(Way, f64)>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let out = std::env::temp_dir().join(format!("rialto-steady-session-{}", std::process::id()));
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let figures = count_into(&program, &out);
    let _ = fs::remove_dir_all(&out);
    figures
}

fn count_into(program: &Path, out: &Path) -> Result<Vec<(Way, f64)>, String> {
    let out = out.join("callgrind");
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--dump-before=*steady_session_mark*"]);
    command.args(["--toggle-collect=*steady_client_turn*", "--collect-atstart=yes"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(program);
    command.args(["run", &TRANSACTIONS.to_string()]).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("valgrind does not start ({error}): install Debian's package valgrind"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind failed ({}): {said}", output.status));
    }
    // Callgrind dumps its counts, and begins again, at each mark: an even dump is a window.
    let window = |(position, way)| {
        let path = format!("{}.{}", out.display(), 2 * position + 2);
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("summary:"));
        let count = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let count = count.ok_or_else(|| format!("{path}: it has no line \"summary:\" with a count"))?;
        Ok((way, count as f64 / f64::from(TRANSACTIONS)))
    };
    Way::ALL.into_iter().enumerate().map(window).collect()
}

/// The gates that do not hold. A line has a way and the most that it may take; text behind a `#` is a comment. A gate
/// whose figure was not counted does not hold.
fn broken(gates: &str, figures: &[(Way, f64)]) -> Result<Vec<String>, String> {
    let mut broken = Vec::new();
    for (number, line) in gates.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let [way, at_most] = words[..] else {
            match words[..] {
                [] => continue,
                _ => {
                    return Err(format!(
                        "line {}: expected a way and a number, found \"{line}\"",
                        number + 1
                    ));
                }
            }
        };
        let most: f64 =
            at_most.parse().map_err(|_| format!("line {}: \"{at_most}\" is no number", number + 1))?;
        match figures.iter().find(|(counted, _)| counted.name() == way) {
            Some((_, found)) if *found <= most => {}
            Some((_, found)) => {
                broken.push(format!("gate: {way} takes {found:.0} instructions, at most {most} allowed"))
            }
            None => broken.push(format!("gate: {way} was not counted")),
        }
    }
    Ok(broken)
}

fn check(gates: Option<&str>) -> Result<(), String> {
    let figures = count()?;
    println!("user instructions of the server for one tpcb-like transaction, by callgrind:");
    for (way, count) in &figures {
        println!("  {:10} {count:>10.1}", way.name());
    }
    let Some(path) = gates else { return Ok(()) };
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let broken = broken(&text, &figures).map_err(|problem| format!("{path}: {problem}"))?;
    if broken.is_empty() {
        println!("its gates hold");
        return Ok(());
    }
    Err(broken.join("\n"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["run", transactions] => run(transactions),
        [] => check(None),
        [gates] => check(Some(gates)),
        _ => Err("usage: steady_session [GATES]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_hold_what_is_counted_and_nothing_else() {
        let gates = "# comment\nprepared 2000 # found 1900\n\nsimple 5\n";
        let all = |prepared| [(Way::Prepared, prepared), (Way::Simple, 4.0)];
        assert_eq!(broken(gates, &all(2000.0)), Ok(vec![]));
        let more = broken(gates, &all(2000.5)).unwrap();
        assert!(more.len() == 1 && more[0].contains("prepared takes"), "{more:?}");
        let missing = broken(gates, &all(2000.0)[..1]).unwrap();
        assert!(missing.len() == 1 && missing[0].contains("simple was not counted"), "{missing:?}");
        assert!(broken("prepared", &[]).unwrap_err().contains("line 1"));
        assert!(broken("\nprepared many", &[]).unwrap_err().contains("\"many\""));
    }

    #[test]
    fn the_session_runs_to_its_end() {
        run("3").unwrap();
    }
}

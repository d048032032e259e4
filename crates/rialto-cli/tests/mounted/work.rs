//! What one client does in one life of the server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rialto::io::Random;

use crate::client::{Answer, Client};
use crate::ledger::{History, Level, Progress};
use crate::tables::Change;
use crate::untouched::ACCOUNTS;

/// Clients that are refused so often in all, because something is full, give up.
const REFUSED_MAX: u64 = 1;

/// A client's part of a life.
pub struct Work<'a> {
    pub client: usize,
    /// The tables that it alone changes.
    pub names: &'a [String],
    pub progress: &'a Progress,
    pub transactions: u64,
    /// How long texts may be.
    pub texts: u32,
    /// Whether the disk may fail, or the server end: if not, all that is refused is a transaction in the way of another.
    pub may_fail: bool,
    pub failures: &'a Failures,
    pub about: &'a str,
}

/// What has failed for all clients together.
#[derive(Debug, Default)]
pub struct Failures {
    full: AtomicU64,
    ended: AtomicBool,
}

impl Failures {
    /// How often a client was refused because something is full.
    pub fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether a session has ended, or could not begin: the server ends.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// How a transaction ended.
enum Outcome {
    Told,
    Refused,
    /// Without an answer that says which.
    Unanswered,
    /// The session ended before the commit was asked for.
    Ended,
}

/// Transactions that are refused for what other transactions do.
const IN_THE_WAY: [&str; 3] = ["40P01", "40001", "55P03"];
/// Errors of a disk, and of a server that ends: it cancels what runs.
const FAILURES: [&str; 5] = ["53100", "58030", "57P01", "57014", "08007"];

impl Work<'_> {
    /// Works until it is done, or the session ends.
    pub fn run(&self, address: &str, history: &mut History, random: &mut Random) {
        let Ok(mut client) = Client::connect(address) else {
            assert!(self.may_fail, "{}: no connection", self.about);
            self.failures.ended.store(true, Ordering::Relaxed);
            return;
        };
        let mut tables = history.base.clone();
        let mut level = None;
        for _ in 0..self.transactions {
            let wanted = if random.chance(1, 2) { Level::Disk } else { Level::Memory };
            if level != Some(wanted) {
                match client.query(&format!("SET rialto.durability = '{}'", wanted.name())) {
                    Answer::Done { .. } => level = Some(wanted),
                    other => return self.expect_failure(&other),
                }
            }
            let in_block = random.chance(1, 2);
            let mut after = tables.clone();
            let count = if in_block { 1 + random.below(6) } else { 1 };
            let changes: Vec<Change> = (0..count)
                .map(|_| {
                    let change = Change::any(random, self.names, &after, self.texts);
                    after.apply(&change);
                    change
                })
                .collect();
            let before = self.progress.now();
            let outcome = if in_block {
                self.block(&mut client, &changes, random)
            } else {
                self.statement(&mut client, &changes[0])
            };
            match outcome {
                Outcome::Told => {
                    history.told.push(changes);
                    self.progress.acknowledged(self.client, wanted, before);
                    tables = after;
                }
                Outcome::Unanswered => {
                    history.unanswered = Some(changes);
                    return;
                }
                Outcome::Ended => return,
                // Each further try might wait for room in the log.
                Outcome::Refused if self.failures.full() >= REFUSED_MAX => return,
                Outcome::Refused => {}
            }
        }
    }

    fn expect_failure(&self, answer: &Answer) {
        let known = match answer {
            Answer::Refused { code, .. } => {
                IN_THE_WAY.contains(&code.as_str()) || self.may_fail && FAILURES.contains(&code.as_str())
            }
            Answer::Ended(_) => self.may_fail,
            Answer::Done { .. } => false,
        };
        assert!(known, "{}, client {}: {answer:?}", self.about, self.client);
        let ends = match answer {
            Answer::Refused { code, .. } => code == "57P01" || code == "08007",
            _ => true,
        };
        self.failures.ended.fetch_or(ends, Ordering::Relaxed);
        // What is full, or fails, has a name, and a full disk can be helped.
        if let Answer::Refused { code, text } = answer {
            if code == "53100" {
                self.failures.full.fetch_add(1, Ordering::Relaxed);
                assert!(text.contains("room") || text.contains("full"), "{}: {text}", self.about);
            }
            if code == "53100" || code == "58030" {
                assert!(
                    text.contains('"') || text.contains("log"),
                    "{}: no file is named: {text}",
                    self.about
                );
            }
        }
    }

    /// A statement that is a transaction.
    fn statement(&self, client: &mut Client, change: &Change) -> Outcome {
        self.commit(client, &change.sql(), change.tag())
    }

    /// What commits: whether it has.
    fn commit(&self, client: &mut Client, sql: &str, expected: &str) -> Outcome {
        match client.query(sql) {
            Answer::Done { tag, .. } => {
                assert_eq!(tag, expected, "{}, client {}: {sql:.200}", self.about, self.client);
                Outcome::Told
            }
            answer => {
                self.expect_failure(&answer);
                match answer {
                    Answer::Refused { code, .. } if code != "08007" => Outcome::Refused,
                    _ => Outcome::Unanswered,
                }
            }
        }
    }

    fn block(&self, client: &mut Client, changes: &[Change], random: &mut Random) -> Outcome {
        let mut statements = vec![("BEGIN".to_owned(), "BEGIN")];
        statements.extend(changes.iter().map(|change| (change.sql(), change.tag())));
        if random.chance(1, 3) {
            let (from, to) = (random.below(ACCOUNTS as u64), random.below(ACCOUNTS as u64));
            let sum = random.below(50);
            for (account, sign) in [(from, '-'), (to, '+')] {
                let sql = format!("UPDATE accounts SET balance = balance {sign} {sum} WHERE id = {account}");
                statements.push((sql, "UPDATE 1"));
            }
        }
        for (sql, expected) in statements {
            match client.query(&sql) {
                Answer::Done { tag, .. } => {
                    assert_eq!(tag, expected, "{}, client {}: {sql:.200}", self.about, self.client);
                }
                answer => {
                    self.expect_failure(&answer);
                    return match answer {
                        Answer::Refused { .. } => self.roll_back(client),
                        _ => Outcome::Ended,
                    };
                }
            }
        }
        if random.chance(1, 8) {
            return self.roll_back(client);
        }
        self.commit(client, "COMMIT", "COMMIT")
    }

    fn roll_back(&self, client: &mut Client) -> Outcome {
        match client.query("ROLLBACK") {
            Answer::Done { .. } => Outcome::Refused,
            answer => {
                self.expect_failure(&answer);
                Outcome::Ended
            }
        }
    }
}

//! The clients' work in one life of the server: of each client, and of all at once.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rialto::io::{FaultyDisk, Random};

use crate::change::Change;
use crate::client::{Answer, Client};
use crate::copies::Copies;
use crate::crowd::Defined;
use crate::ledger::{CLIENTS, History, Level, Progress};
use crate::mount::Mounted;
use crate::server::Server;
use crate::tables::Tables;
use crate::untouched::ACCOUNTS;

/// Clients give up after this many refusals in all because something is full.
const REFUSED_MAX: u64 = 1;

/// A client's part of a life.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub client: usize,
    /// The tables that only this client changes.
    pub names: &'a [String],
    pub progress: &'a Progress,
    pub transactions: u64,
    /// The longest texts.
    pub texts: u32,
    /// Whether the disk may fail, or the server end. If not, only conflicts with other transactions refuse a
    /// transaction.
    pub may_fail: bool,
    /// Whether the disk or the log may have no room: the disk is full, or fails, so that checkpoints fail.
    pub may_be_full: bool,
    /// The disk, if it may lose its power. Without power no log file can be made, and transactions find no room.
    pub disk: Option<&'a FaultyDisk>,
    /// Whether the tables may reach the bound of their memory.
    pub has_little_memory: bool,
    /// Whether the log is so small that, on a slow machine, a commit may wait in vain for a checkpoint to free room.
    pub has_small_log: bool,
    pub failures: &'a Failures,
    pub about: &'a str,
}

/// The work of all clients at once.
pub struct ConcurrentWork<'a> {
    /// The work of each client, without its number and tables; also that of clients that change no rows.
    pub each: Work<'a>,
    /// The tables of each client.
    pub names: &'a [Vec<String>; CLIENTS],
    /// Whether definitions of the crowd run meanwhile.
    pub defines: bool,
    /// The number of copies, and the directory of backups.
    pub copies: u64,
    pub copies_to: &'a Path,
    /// Whether the log is archived. Otherwise the copies are only backups.
    pub has_archive: bool,
    /// Whether mapped pages are written to the disk meanwhile, at times of the kernel's choice.
    pub flushes_maps: bool,
}

impl ConcurrentWork<'_> {
    /// Runs until all clients are done, or their sessions end. The process is killed when the power goes. Gives the
    /// definitions, and the copies that were made.
    pub fn run(
        &self,
        server: &Server,
        mounted: &Mounted,
        histories: &mut [History],
        random: &mut Random,
    ) -> (Defined, Copies) {
        let (defined, over) = (Defined::default(), AtomicBool::new(false));
        let (mut copies, address) = (Copies::default(), &server.address);
        let [mut keepers, mut definers] = [random.fork(), random.fork()];
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for (client, (history, names)) in histories.iter_mut().zip(self.names).enumerate() {
                let (work, mut random) = (Work { client, names, ..self.each }, random.fork());
                clients.push(scope.spawn(move || work.run(address, history, &mut random)));
            }
            clients.push(scope.spawn(|| {
                copies.keep(&self.each, address, self.copies_to, self.has_archive, self.copies, &mut keepers);
            }));
            if self.defines {
                scope.spawn(|| self.each.define(address, &mut definers, &defined, &over));
            }
            while !clients.iter().all(|client| client.is_finished()) {
                if mounted.disk.is_down() {
                    server.kill();
                }
                if self.flushes_maps {
                    let _ =
                        std::process::Command::new("sync").arg("--file-system").arg(mounted.path()).output();
                }
                thread::sleep(Duration::from_micros(500));
            }
            over.store(true, Ordering::SeqCst);
        });
        (defined, copies)
    }
}

/// The failures of all clients together.
#[derive(Debug, Default)]
pub struct Failures {
    full: AtomicU64,
    no_memory: AtomicU64,
    ended: AtomicBool,
}

impl Failures {
    /// How often a client was refused because something is full.
    pub fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    /// How often a client was refused because the memory of tables is used up.
    pub fn no_memory(&self) -> u64 {
        self.no_memory.load(Ordering::Relaxed)
    }

    /// Whether a session has ended, or could not begin: the server is ending.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// How a transaction ended.
pub enum Outcome {
    Told,
    Refused,
    /// Without an answer that tells which.
    Unanswered,
    /// The session ended before the commit was requested.
    Ended,
}

/// SQLSTATEs of conflicts with other transactions.
const IN_THE_WAY: [&str; 3] = ["40P01", "40001", "55P03"];
/// SQLSTATEs of a failed disk, and of a server that ends and cancels statements.
const FAILURES: [&str; 4] = ["58030", "57P01", "57014", "08007"];
/// No room on the disk or for the log.
const FULL: &str = "53100";
/// The memory of tables is used up.
const NO_MEMORY: &str = "53200";
/// A duplicate of a unique key.
const IS_THERE: &str = "23505";

impl Work<'_> {
    /// Works until it is done, or the session ends.
    pub fn run(&self, address: &str, history: &mut History, random: &mut Random) {
        let Ok(mut client) = Client::connect(address) else { return self.no_connection() };
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
            if random.chance(1, 12)
                && let Some(change) = Change::any_refused(random, &tables)
            {
                match change.send(&mut client) {
                    Answer::Refused { code, .. } if code == IS_THERE => {}
                    Answer::Done { .. } => {
                        panic!("{}: a key is there, and was taken: {change:?}", self.about)
                    }
                    answer => {
                        self.expect_failure(&answer);
                        if !matches!(answer, Answer::Refused { .. }) {
                            return;
                        }
                    }
                }
            }
            let in_block = random.chance(1, 2);
            let (changes, after) = self.any_changes(in_block, &tables, random);
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

    /// The changes of one transaction, and the tables after them.
    fn any_changes(&self, in_block: bool, tables: &Tables, random: &mut Random) -> (Vec<Change>, Tables) {
        let mut after = tables.clone();
        let mut changes = Vec::new();
        let count = if in_block { 1 + random.below(6) } else { 1 };
        let counted_at = random.chance(1, 2).then(|| random.below(count) as usize);
        while changes.len() < count as usize {
            let load = changes.last().filter(|_| random.chance(1, 2));
            let load = load.and_then(|change: &Change| change.load_behind(random, &after, self.texts));
            let change = match load {
                _ if counted_at == Some(changes.len()) => Change::Count(self.client, after.count + 1),
                Some(load) => load,
                None => Change::any(random, self.names, &after, self.texts),
            };
            after.apply(&change);
            changes.push(change);
        }
        (changes, after)
    }

    /// A connection could not be made.
    pub fn no_connection(&self) {
        assert!(self.may_fail, "{}: no connection", self.about);
        self.failures.ended.store(true, Ordering::Relaxed);
    }

    /// Fails if this answer is impossible in this life.
    pub fn expect_possible(&self, answer: &Answer) {
        let is_possible = match answer {
            Answer::Refused { code, .. } if code == NO_MEMORY => self.has_little_memory,
            Answer::Refused { code, text } if code == FULL => {
                let is_down = self.disk.is_some_and(FaultyDisk::is_down);
                self.may_be_full || (self.has_small_log || is_down) && text.contains("log")
            }
            Answer::Refused { code, .. } => {
                IN_THE_WAY.contains(&code.as_str()) || self.may_fail && FAILURES.contains(&code.as_str())
            }
            Answer::Ended(_) => self.may_fail,
            Answer::Done { .. } => false,
        };
        assert!(is_possible, "{}, client {}: {answer:?}", self.about, self.client);
    }

    pub fn expect_failure(&self, answer: &Answer) {
        self.expect_possible(answer);
        if matches!(answer, Answer::Refused { code, .. } if code == NO_MEMORY) {
            self.failures.no_memory.fetch_add(1, Ordering::Relaxed);
        }
        let ends = match answer {
            Answer::Refused { code, .. } => code == "57P01" || code == "08007",
            _ => true,
        };
        self.failures.ended.fetch_or(ends, Ordering::Relaxed);
        // The message names what is full or has failed, and for a full disk what to do.
        if let Answer::Refused { code, text } = answer {
            if code == FULL {
                self.failures.full.fetch_add(1, Ordering::Relaxed);
                assert!(text.contains("room") || text.contains("full"), "{}: {text}", self.about);
            }
            if code == FULL || code == "58030" {
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
        self.committed(change.send(client), &change.sql(), &change.tag())
    }

    /// Sends a statement that commits. Whether it has committed.
    pub fn commit(&self, client: &mut Client, sql: &str, expected: &str) -> Outcome {
        self.committed(client.query(sql), sql, expected)
    }

    /// The same, by the answer.
    pub fn committed(&self, answer: Answer, sql: &str, expected: &str) -> Outcome {
        match answer {
            Answer::Done { tag, .. } => {
                self.expect_tag(&tag, expected, sql);
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

    fn expect_tag(&self, tag: &str, expected: &str, sql: &str) {
        assert_eq!(tag, expected, "{}, client {}: {sql:.200}", self.about, self.client);
    }

    /// A statement of a block got this unexpected answer.
    pub fn failed_in_block(&self, client: &mut Client, answer: Answer) -> Outcome {
        self.expect_failure(&answer);
        match answer {
            Answer::Refused { .. } => self.roll_back(client),
            _ => Outcome::Ended,
        }
    }

    fn block(&self, client: &mut Client, changes: &[Change], random: &mut Random) -> Outcome {
        match client.query("BEGIN") {
            Answer::Done { .. } => {}
            answer => return self.failed_in_block(client, answer),
        }
        for change in changes {
            match change.send(client) {
                Answer::Done { tag, .. } => self.expect_tag(&tag, &change.tag(), &change.sql()),
                answer => return self.failed_in_block(client, answer),
            }
        }
        if random.chance(1, 3) {
            let (from, to) = (random.below(ACCOUNTS as u64), random.below(ACCOUNTS as u64));
            let sum = random.below(50);
            for (account, sign) in [(from, '-'), (to, '+')] {
                let sql = format!("UPDATE accounts SET balance = balance {sign} {sum} WHERE id = {account}");
                match client.query(&sql) {
                    Answer::Done { tag, .. } => self.expect_tag(&tag, "UPDATE 1", &sql),
                    answer => return self.failed_in_block(client, answer),
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

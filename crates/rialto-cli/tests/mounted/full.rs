//! A real file system that fills up under a server.

use std::thread;
use std::time::{Duration, Instant};

use rialto::io::Random;

use crate::client::{Answer, Client};
use crate::common::Directory;
use crate::ledger::{CLIENTS, History, Progress};
use crate::loop_mount::{Kind, LoopMount};
use crate::server::{Boot, Ended, Server, Settings, check};
use crate::tables::Tables;
use crate::work::{Failures, Work};
use crate::{crowd, untouched};

/// The most rounds of one database.
const ROUNDS: u64 = 2;
/// How long a commit is retried once there is room again.
const PATIENCE: Duration = Duration::from_secs(120);
/// When clients on a full btrfs have no answer for this long, or its server does not end, there is room again: its kernel
/// can keep the write of a mapped page waiting for room without an end, and with it the server's commits.
const STALLS: Duration = Duration::from_secs(15);

/// Counts of what was done, for the tally.
#[derive(Debug, Default)]
pub struct Tally {
    pub rounds: u64,
    pub refused: u64,
    pub stopped: u64,
    pub went_on: u64,
    pub killed: u64,
    /// Servers that took commits again, or ended, only when there was room.
    pub stalled: u64,
    pub transactions: u64,
}

/// The step after the file system is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Room is made while the server runs, and it goes on.
    Goes,
    /// The process is killed, and room is made.
    Killed,
    /// The process is killed, a server is started without room, and then room is made.
    Crowded,
    /// The server is asked to end, and room is made.
    Asked,
}

struct Database {
    random: Random,
    tables: [Tables; CLIENTS],
    names: [Vec<String>; CLIENTS],
    starts: u64,
    boot: Boot,
    mount: LoopMount,
}

impl Database {
    fn start(&mut self, settings: &Settings) -> Result<Server, Ended> {
        self.starts += 1;
        let said = self.mount.scratch().join(format!("stderr-{}", self.starts));
        Server::start(&self.mount.path().join("data"), settings, &self.boot, said, |_| {})
    }

    /// Clients work, and the room is taken meanwhile. Whether room had to be made for their answers.
    fn work(
        &mut self,
        server: &Server,
        room: Option<u64>,
        about: &str,
    ) -> ([History; CLIENTS], Failures, bool) {
        let mut histories = self.tables.clone().map(History::new);
        let progress = Progress::default();
        let failures = Failures::default();
        let transactions = 10 + self.random.below(if room.is_some() { 300 } else { 30 });
        let pause = Duration::from_millis(self.random.below(60));
        let randoms: [Random; CLIENTS] = std::array::from_fn(|_| self.random.fork());
        let (names, mount) = (&self.names, &self.mount);
        let has_stalled = thread::scope(|scope| {
            let mut clients = Vec::new();
            for ((client, history), mut random) in histories.iter_mut().enumerate().zip(randoms) {
                let work = Work {
                    client,
                    names: &names[client],
                    progress: &progress,
                    transactions,
                    texts: 4_000,
                    may_fail: true,
                    may_be_full: true,
                    disk: None,
                    has_little_memory: false,
                    has_small_log: false,
                    failures: &failures,
                    about,
                };
                clients.push(scope.spawn(move || work.run(&server.address, history, &mut random)));
            }
            let Some(room) = room else { return false };
            thread::sleep(pause);
            mount.leave_room(room);
            if mount.kind() != Kind::Btrfs {
                return false;
            }
            let until = Instant::now() + STALLS;
            while !clients.iter().all(|client| client.is_finished()) {
                if Instant::now() > until {
                    mount.make_room();
                    return true;
                }
                thread::sleep(Duration::from_millis(1));
            }
            false
        });
        (histories, failures, has_stalled)
    }

    /// With room again, a server takes commits; false if it has stopped instead.
    fn commits_again(&self, server: &Server, about: &str) -> bool {
        let Ok(mut client) = Client::connect(&server.address) else { return false };
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match client.query("UPDATE accounts SET balance = balance WHERE id = 1") {
                Answer::Done { .. } => return true,
                Answer::Refused { code, .. } if code == "53100" => thread::sleep(Duration::from_millis(20)),
                Answer::Refused { code, .. } if ["58030", "57P01", "08007"].contains(&code.as_str()) => {
                    return false;
                }
                Answer::Ended(_) => return false,
                other => panic!("{about}: {other:?}"),
            }
        }
        panic!("{about}: no commit, though there is room: {} bytes are free", self.mount.free());
    }

    /// Waits for the server's end. On a full btrfs there is room again if the kernel keeps it from ending.
    fn ended(&self, server: Server, about: &str, tally: &mut Tally) -> Ended {
        let until = Instant::now() + STALLS;
        while self.mount.kind() == Kind::Btrfs && self.mount.is_full() && server.runs() {
            if Instant::now() > until && server.is_in_kernel() {
                self.mount.make_room();
                tally.stalled += 1;
            }
            thread::sleep(Duration::from_millis(1));
            if Instant::now() > until + STALLS {
                break;
            }
        }
        server.ended(about)
    }

    /// The server has stopped by itself, or is stopping, and says why.
    fn stopped(
        &mut self,
        server: Server,
        settings: &Settings,
        histories: &[History; CLIENTS],
        about: &str,
        tally: &mut Tally,
    ) -> Server {
        let ended = self.ended(server, about, tally);
        assert_eq!(ended.status.code(), Some(4), "{about}: {ended:?}");
        says_what_is_full(&ended.said, about);
        tally.stopped += 1;
        self.mount.make_room();
        self.next(settings, histories, about)
    }

    fn verify(&mut self, server: &Server, histories: &[History; CLIENTS], about: &str) {
        let mut client = server.connect(about);
        untouched::check(&mut client, about);
        crowd::check(&mut client, about);
        for (at, history) in histories.iter().enumerate() {
            let found = Tables::read(&mut client, at, &self.names[at], about);
            history.check(&found, history.told.len(), &format!("{about}, client {at}"));
            self.tables[at] = found;
        }
    }

    fn round(&mut self, server: Server, settings: &Settings, about: &str, tally: &mut Tally) -> Server {
        let then =
            [Then::Goes, Then::Goes, Then::Killed, Then::Crowded, Then::Asked][self.random.below(5) as usize];
        let room = self.random.below(4 << 20);
        let about = &format!("{about}, {room} bytes of room, {then:?}");
        let (histories, failures, has_stalled) = self.work(&server, Some(room), about);
        tally.rounds += 1;
        tally.stalled += u64::from(has_stalled);
        tally.refused += u64::from(failures.full() > 0);
        tally.transactions += histories.iter().map(|history| history.told.len() as u64).sum::<u64>();

        // It serves readers, or has stopped, or is stopping.
        let reads = Client::connect(&server.address).is_ok_and(|mut client| {
            let read = untouched::read(&mut client, about);
            if let Err(answer) = &read {
                assert!(is_end(answer), "{about}: no reading: {answer:?}");
            }
            read.is_ok()
        });
        if !reads || failures.ended() {
            return self.stopped(server, settings, &histories, about, tally);
        }
        match then {
            Then::Goes => {
                self.mount.make_room();
                // The error of a write that failed before there was room may come only now.
                if !self.commits_again(&server, about) || Client::connect(&server.address).is_err() {
                    return self.stopped(server, settings, &histories, about, tally);
                }
                tally.went_on += 1;
                self.verify(&server, &histories, about);
                let (histories, _, _) = self.work(&server, None, about);
                server.kill();
                tally.killed += 1;
                let ended = server.ended(about);
                assert_eq!(ended.by_signal(), Some(9), "{about}: {ended:?}");
                self.next(settings, &histories, about)
            }
            Then::Killed | Then::Crowded => {
                server.kill();
                tally.killed += 1;
                self.ended(server, about, tally);
                if then == Then::Crowded {
                    match self.start(settings) {
                        Ok(server) => {
                            untouched::check(&mut server.connect(about), about);
                            server.kill();
                            self.ended(server, about, tally);
                        }
                        Err(ended) => {
                            assert!(matches!(ended.status.code(), Some(3 | 4)), "{about}: {ended:?}");
                            says_what_is_full(&ended.said, about);
                        }
                    }
                }
                self.mount.make_room();
                self.next(settings, &histories, about)
            }
            Then::Asked => {
                server.terminate();
                let ended = self.ended(server, about, tally);
                match ended.status.code() {
                    Some(0) => {}
                    Some(4) => says_what_is_full(&ended.said, about),
                    _ => panic!("{about}: {ended:?}"),
                }
                self.mount.make_room();
                self.next(settings, &histories, about)
            }
        }
    }

    /// The next server finds everything that was acknowledged.
    fn next(&mut self, settings: &Settings, histories: &[History; CLIENTS], about: &str) -> Server {
        check(&self.mount.path().join("data"), &self.mount.scratch().join("said"), about);
        let server = self.start(settings).unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
        self.verify(&server, histories, about);
        server
    }
}

/// Whether an answer is that of a server that stops.
fn is_end(answer: &Answer) -> bool {
    match answer {
        Answer::Done { .. } => false,
        Answer::Refused { code, text } => {
            ["57P01", "57014", "08007"].contains(&code.as_str()) || text.contains("stopped")
        }
        Answer::Ended(_) => true,
    }
}

/// A server that stops names the file, and what to do.
fn says_what_is_full(said: &str, about: &str) {
    assert!(said.contains('"') && said.contains("room"), "{about}: {said}");
}

/// A database on a new file system that fills up again and again.
pub fn rounds(kind: Kind, seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let scratch = Directory::new(&format!("full-{}-{seed}", kind.name()));
    let mount = LoopMount::new(kind, scratch).expect("one was made and mounted before");
    let boot = Boot::new(mount.scratch().join("boot"), &mut random);
    let names = std::array::from_fn(|client| ["a", "b"].map(|name| format!("{name}{client}")).to_vec());
    let mut settings =
        Settings(["--log-bytes-max", "16777216", "--memory-bytes", "67108864"].map(str::to_owned).to_vec());
    if random.chance(1, 2) {
        let way = ["direct", "direct-sync", "buffered"][random.below(3) as usize];
        settings.0.extend(["--log-writes".to_owned(), way.to_owned()]);
    }
    if random.chance(1, 3) {
        settings.0.extend(["--engine", "data-oriented"].map(str::to_owned));
    }
    let mut database = Database { random, tables: Default::default(), names, starts: 0, boot, mount };
    let about = &format!("RIALTO_SEED={seed}, {}, {settings:?}", kind.name());
    let mut server = database.start(&settings).unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
    untouched::prepare(&mut server.connect(about), about);
    crowd::prepare(&mut server.connect(about), about);
    for round in 0..1 + database.random.below(ROUNDS) {
        server = database.round(server, &settings, &format!("{about}, round {round}"), tally);
    }
    server.terminate();
    let ended = server.ended(about);
    assert_eq!(ended.status.code(), Some(0), "{about}, at last: {ended:?}");
}

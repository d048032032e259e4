//! Lives of one database: each ends in its own way, and the next begins with what it left.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rialto::io::{FaultKind, FaultyDisk, Random};

use crate::common::Directory;
use crate::kept::Kept;
use crate::ledger::{CLIENTS, History, Progress};
use crate::mount::Mounted;
use crate::server::{Boot, Ended, Server, Settings, check, restore};
use crate::tables::Tables;
use crate::work::{Failures, Work};
use crate::{client, untouched};

const LIVES: u64 = 5;
/// More than a database here ever takes.
const ROOM: u64 = 1 << 40;

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The power goes.
    PowerLost,
    /// The process is killed.
    Killed,
    /// The server is asked to end.
    Asked,
}

/// What was done, for the tally.
#[derive(Debug, Default)]
pub struct Tally {
    pub power_lost: u64,
    pub killed: u64,
    /// Of losses of power and kills: on the data-oriented engine.
    pub data_oriented: u64,
    pub asked: u64,
    pub faults: u64,
    pub stopped: u64,
    pub full: u64,
    pub backups: u64,
    pub restored: u64,
    pub checks: u64,
    pub transactions: u64,
    /// Reads and writes.
    pub interrupted: u64,
    pub short: u64,
}

/// A database on a mounted disk, the server that serves it, and what its tables must have.
struct Database {
    seed: u64,
    random: Random,
    mounted: Mounted,
    boot: Boot,
    kept: Kept,
    /// Each client's tables.
    names: [Vec<String>; CLIENTS],
    tables: [Tables; CLIENTS],
    starts: u64,
    /// Two lives without injected errors, of which one ends by a loss of power and one by a kill.
    certain: [(u64, End); 2],
    // Last, so that it goes last.
    scratch: Directory,
}

impl Database {
    fn new(seed: u64) -> Database {
        let mut random = Random::new(seed);
        let scratch = Directory::new(&format!("mounted-{seed}"));
        let mounted =
            Mounted::new(FaultyDisk::new(random.next()), &scratch.path().join("data")).expect("it mounts");
        let boot = Boot::new(scratch.path().join("boot"), &mut random);
        let names = std::array::from_fn(|client| ["a", "b"].map(|name| format!("{name}{client}")).to_vec());
        let kept = Kept { seed, disk: None };
        let lost = random.below(LIVES);
        let killed = (lost + 1 + random.below(LIVES - 1)) % LIVES;
        let certain = [(lost, End::PowerLost), (killed, End::Killed)];
        let tables = Default::default();
        Database { seed, random, mounted, boot, kept, names, tables, starts: 0, certain, scratch }
    }

    fn said(&mut self) -> PathBuf {
        self.starts += 1;
        self.scratch.path().join(format!("stderr-{}", self.starts))
    }

    fn start(&mut self, settings: &Settings, is_born: impl FnOnce(u32)) -> Result<Server, Ended> {
        let said = self.said();
        self.kept.disk = Some(self.mounted.disk.copied());
        Server::start(self.mounted.path(), settings, &self.boot, said, is_born)
    }

    /// The power goes, if it has not gone yet, and the machine starts again.
    fn lose_power(&mut self, server: Option<Server>, about: &str) {
        if !self.mounted.disk.is_down() {
            self.mounted.disk.crash();
        }
        if let Some(server) = server {
            server.kill();
            server.ended(about);
        }
        let disk = self.mounted.disk.restart();
        disk.leave_room(ROOM);
        self.mounted.replace(disk);
        self.boot.renew(&mut self.random);
    }

    /// Clients work until they are done, or their sessions end; the process is killed when the power goes. Whether the server has ended a
    /// session, and the backups that it has taken.
    fn work(
        &mut self,
        server: &Server,
        histories: &mut [History; CLIENTS],
        progress: &Progress,
        may_fail: bool,
        about: &str,
    ) -> (bool, Vec<Taken>) {
        let scale = 1 + self.random.below(7);
        let transactions = 1 + self.random.below(1 << scale);
        let texts = if self.random.chance(1, 2) { 8 } else { 600 };
        let backups = self.random.below(2) * self.random.below(4);
        let flushes_maps = self.random.chance(1, 4);
        let backup_to = self.scratch.path().join(format!("backup-{}", self.starts));
        let (mounted, names) = (&self.mounted, &self.names);
        let randoms: [Random; CLIENTS] = std::array::from_fn(|_| self.random.fork());
        let failures = Failures::default();
        let mut taken = Vec::new();
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for ((client, history), mut random) in histories.iter_mut().enumerate().zip(randoms) {
                let names = &names[client];
                let work = Work {
                    client,
                    names,
                    progress,
                    transactions,
                    texts,
                    may_fail,
                    failures: &failures,
                    about,
                };
                clients.push(scope.spawn(move || work.run(&server.address, history, &mut random)));
            }
            let backups = scope.spawn(move || {
                let take = |number: u64| Taken::take(server, progress, backup_to.join(number.to_string()));
                (0..backups).filter_map(take).collect::<Vec<_>>()
            });
            while clients.iter().any(|client| !client.is_finished()) {
                if mounted.disk.is_down() {
                    server.kill();
                }
                if flushes_maps {
                    // What is mapped comes to the disk at times of the kernel's choice.
                    let _ =
                        std::process::Command::new("sync").arg("--file-system").arg(mounted.path()).output();
                }
                thread::sleep(Duration::from_micros(500));
            }
            taken = backups.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        (failures.ended(), taken)
    }

    /// Restores a backup and holds what a server then finds against what was told.
    fn restore(&mut self, taken: &Taken, histories: &[History; CLIENTS], about: &str) {
        let about = &format!("{about}, the backup {}", taken.at.display());
        let data = self.scratch.path().join("restored");
        let said = self.scratch.path().join("said");
        restore(&taken.at, &data, &said, about);
        check(&data, &said, about);
        let said = self.said();
        let started = Server::start(&data, &Settings::default(), &self.boot, said, |_| {});
        let server = started.unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
        let mut client = server.connect(about);
        untouched::check(&mut client, about);
        for (at, history) in histories.iter().enumerate() {
            let found = Tables::read(&mut client, &self.names[at], about);
            let between = (taken.least[at], taken.most[at]);
            history.check_between(&found, between, &format!("{about}, client {at}"));
        }
        server.kill();
        server.ended(about);
        std::fs::remove_dir_all(&data).expect("nobody uses it");
    }

    /// One life, and the start of the next.
    fn live(&mut self, life: u64, server: Server, settings: &mut Settings, tally: &mut Tally) -> Server {
        let certain = self.certain.iter().find(|(certain, _)| *certain == life).map(|(_, end)| *end);
        let fault = (certain.is_none() && self.random.chance(1, 4)).then(|| {
            let kinds = [FaultKind::Write, FaultKind::Sync, FaultKind::SyncReverts];
            let prefixes = ["log-0", "log-0", "home", "backup", "load-", "."];
            let kind = kinds[self.random.below(3) as usize];
            (kind, prefixes[self.random.below(prefixes.len() as u64) as usize])
        });
        let room = (certain.is_none() && fault.is_none() && self.random.chance(1, 8))
            .then(|| self.random.below(3 << 20));
        // A sync of the directory that fails ends the file system: no other one succeeds until the machine starts again.
        let needs_machine = matches!(fault, Some((FaultKind::Sync | FaultKind::SyncReverts, ".")));
        let end = match (certain, self.random.below(8)) {
            (Some(end), _) => end,
            _ if needs_machine => End::PowerLost,
            (_, 0) => End::Asked,
            (_, 1..=3) => End::Killed,
            _ => End::PowerLost,
        };
        let about = &format!(
            "RIALTO_SEED={}, life {life}, {end:?}, fault {fault:?}, room {room:?}, {settings:?}",
            self.seed
        );
        let disk = self.mounted.disk.clone();
        let scale = self.random.below(8);
        let step = disk.steps() + 1 + self.random.below(10 << scale);
        match end {
            End::PowerLost => disk.crash_at(step),
            End::Killed => self.mounted.killer.arm(server.process(), step, self.random.chance(1, 2)),
            End::Asked => {}
        }
        if let Some((kind, prefix)) = fault {
            let scale = self.random.below(6);
            disk.fail(kind, prefix, self.random.below(1 << scale));
            tally.faults += 1;
        }
        if let Some(room) = room {
            disk.leave_room(room);
            tally.full += 1;
        }
        let is_well = fault.is_none() && room.is_none();
        let mut histories = self.tables.clone().map(History::new);
        let progress = Progress::default();
        let may_fail = end != End::Asked || !is_well;
        let (ended_sessions, taken) = self.work(&server, &mut histories, &progress, may_fail, about);

        // The end, and what the machine finds after it.
        // Before anything is waited for: from then on its number may be another process's.
        let was_killed = self.mounted.killer.disarm() && end == End::Killed;
        let runs = server.runs();
        let is_left_alone = !was_killed && !disk.is_down();
        let stops = is_left_alone && (ended_sessions || !runs);
        assert!(!(stops && is_well), "{about}: it stops by itself: {}", server.ended(about).said);
        disk.mend();
        let mut closed = false;
        if end == End::PowerLost {
            tally.power_lost += 1;
            self.lose_power(Some(server), about);
        } else {
            match end {
                _ if stops => {}
                End::Killed => server.kill(),
                _ => server.terminate(),
            }
            let ended = server.ended(about);
            let code = ended.status.code();
            let expected = match end {
                _ if stops => code == Some(4),
                // It may have been about to stop.
                End::Killed => ended.by_signal() == Some(9) || !is_well && code == Some(4),
                _ if is_well => code == Some(0),
                _ => matches!(code, Some(0 | 4)),
            };
            assert!(expected, "{about}: {ended:?}");
            if code == Some(4) {
                assert!(ended.said.contains('"'), "{about}: no file is named: {}", ended.said);
                tally.stopped += 1;
            }
            closed = code == Some(0);
            tally.killed += u64::from(end == End::Killed && ended.by_signal() == Some(9));
            tally.asked += u64::from(end == End::Asked && !stops);
            disk.leave_room(ROOM);
        }
        tally.data_oriented += u64::from(end != End::Asked && settings.is_data_oriented());
        if let Some(last) = taken.last() {
            self.restore(last, &histories, about);
            tally.restored += 1;
        }
        tally.backups += taken.len() as u64;
        let mut power_lost = end == End::PowerLost;
        tally.transactions += histories.iter().map(|history| history.told.len() as u64).sum::<u64>();
        if self.random.chance(1, 2) {
            *settings = Settings::any(&mut self.random);
        }
        let about = &format!("{about}, then {settings:?}");
        if self.random.chance(1, 4) {
            // What was closed is on disk.
            power_lost |= self.interrupt_recovery(settings, about) && !closed;
        }
        if self.random.chance(1, 3) {
            check(self.mounted.path(), &self.scratch.path().join("said"), about);
            tally.checks += 1;
        }
        let server = self.start(settings, |_| {}).unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
        untouched::check(&mut server.connect(about), about);
        let mut client = server.connect(about);
        for (at, history) in histories.iter().enumerate() {
            let found = Tables::read(&mut client, &self.names[at], about);
            let least = if power_lost { progress.durable(at) } else { history.told.len() };
            history.check(&found, least, &format!("{about}, client {at}"));
            self.tables[at] = found;
        }
        server
    }

    /// A start that does not come to its end; whether it lost the power.
    fn interrupt_recovery(&mut self, settings: &Settings, about: &str) -> bool {
        let disk = self.mounted.disk.clone();
        let step = disk.steps() + 1 + self.random.below(40);
        let by_power = self.random.chance(2, 3);
        let (killer, takes_place) = (self.mounted.killer.clone(), self.random.chance(1, 2));
        if by_power {
            disk.crash_at(step);
        }
        let started = self.start(settings, |process| {
            if !by_power {
                killer.arm(process, step, takes_place);
            }
        });
        let about = &format!("{about}, interrupted");
        match (by_power, started) {
            (true, started) => {
                let panicked = started.as_ref().err().is_some_and(|ended| ended.said.contains("panicked"));
                assert!(!panicked, "{about}: {started:?}", started = started.err());
                self.lose_power(started.ok(), about);
            }
            (false, Ok(server)) => {
                server.kill();
                server.ended(about);
            }
            (false, Err(ended)) => assert_eq!(ended.by_signal(), Some(9), "{about}: {ended:?}"),
        }
        self.mounted.killer.disarm();
        by_power
    }
}

/// A backup that the server has taken.
#[derive(Debug)]
struct Taken {
    at: PathBuf,
    /// How many transactions of each client were acknowledged before it was asked for.
    least: [usize; CLIENTS],
    /// How many it may have: those acknowledged when it was there, and the next.
    most: [usize; CLIENTS],
}

impl Taken {
    /// Takes one, if the server lives as long.
    fn take(server: &Server, progress: &Progress, at: PathBuf) -> Option<Taken> {
        let mut client = client::Client::connect(&server.address).ok()?;
        let least = progress.now();
        match client.query(&format!("BACKUP TO '{}'", at.display())) {
            client::Answer::Done { .. } => {
                Some(Taken { at, least, most: progress.now().map(|count| count + 1) })
            }
            _ => None,
        }
    }
}

/// A database and its lives.
pub fn lives(seed: u64, tally: &mut Tally) {
    let mut database = Database::new(seed);
    let mut settings = Settings::any(&mut database.random);
    let about = &format!("RIALTO_SEED={seed}, {settings:?}");
    let mut server = database.start(&settings, |_| {}).unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
    untouched::prepare(&mut server.connect(about), about);
    for life in 0..LIVES {
        server = database.live(life, server, &mut settings, tally);
    }
    let (interrupted, short) = database.mounted.reluctance.counts();
    (tally.interrupted, tally.short) = (tally.interrupted + interrupted, tally.short + short);
    server.terminate();
    let ended = server.ended(about);
    assert_eq!(ended.status.code(), Some(0), "RIALTO_SEED={seed}, at last: {ended:?}");
    let said = database.scratch.path().join("said");
    check(database.mounted.path(), &said, &format!("RIALTO_SEED={seed}, at last"));
}

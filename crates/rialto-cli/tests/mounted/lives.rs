//! Lives of one database: each ends in its own way, and the next begins with what it has left.

use std::path::PathBuf;

use rialto::io::{FaultKind, FaultyDisk, Random};

use crate::archive::Archive;
use crate::common::Directory;
use crate::copies::{Copies, Goal, Taken, place_in};
use crate::crowd::Defined;
use crate::kept::Kept;
use crate::ledger::{CLIENTS, Counts, History, Progress};
use crate::mount::Mounted;
use crate::server::{Boot, Ended, Server, Settings, check, restore};
use crate::tables::Tables;
use crate::tally::Tally;
use crate::work::{ConcurrentWork, Failures, Work};
use crate::{crowd, untouched};

const LIVES: u64 = 5;
/// More than any database here takes.
const ROOM: u64 = 1 << 40;
/// Small bounds on the memory of tables and indexes, in bytes.
const MEMORY: [&str; 2] = ["4194304", "8388608"];
/// The longest text that fits in a row has this many repetitions.
const TEXTS_MAX: u32 = 4_400;

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

/// A database on a mounted disk, its server, and the required contents of its tables.
struct Database {
    seed: u64,
    random: Random,
    mounted: Mounted,
    boot: Boot,
    kept: Kept,
    /// Each client's tables.
    names: [Vec<String>; CLIENTS],
    tables: [Tables; CLIENTS],
    /// The bound of its memory, as options of servers and restores.
    memory: Vec<String>,
    archive: Option<Archive>,
    /// The last backup of an earlier life.
    earlier: Option<Taken>,
    starts: u64,
    /// Two lives without injected errors: one ends by a loss of power, the other by a kill.
    certain: [(u64, End); 2],
    // Declared last, so that it is dropped last.
    scratch: Directory,
}

impl Database {
    fn new(seed: u64) -> Database {
        let mut random = Random::new(seed);
        let scratch = Directory::new(&format!("mounted-{seed}"));
        let mounted =
            Mounted::new(FaultyDisk::new(random.next()), &scratch.path().join("data")).expect("it mounts");
        let boot = Boot::new(scratch.path().join("boot"), &mut random);
        let kept = Kept { name: seed.to_string(), disk: None };
        let lost = random.below(LIVES);
        let killed = (lost + 1 + random.below(LIVES - 1)) % LIVES;
        let certain = [(lost, End::PowerLost), (killed, End::Killed)];
        let mut memory = Vec::new();
        if let Some(bytes) = MEMORY.get(random.below(4) as usize) {
            memory = ["--memory-bytes", bytes].map(str::to_owned).to_vec();
        }
        let tables: &[&str] = if memory.is_empty() { &["a", "b"] } else { &["a", "b", "c", "d"] };
        let names =
            std::array::from_fn(|client| tables.iter().map(|name| format!("{name}{client}")).collect());
        let archive = random.chance(1, 2).then(|| Archive::new(scratch.path().join("archive")));
        let (tables, earlier) = (Default::default(), None);
        Database {
            seed,
            random,
            mounted,
            boot,
            kept,
            names,
            tables,
            memory,
            archive,
            earlier,
            starts: 0,
            certain,
            scratch,
        }
    }

    /// The options of the next server.
    fn any_settings(&mut self) -> Settings {
        let archive = self.archive.iter();
        let archive = archive.flat_map(|it| ["--archive".to_owned(), it.path().display().to_string()]);
        let words: Vec<String> = self.memory.iter().cloned().chain(archive).collect();
        Settings::any(&mut self.random).and(&words)
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

    /// From now on the machine that fails has the archive, too.
    fn archive_on_machine(&mut self, server: Server, settings: &Settings, about: &str) -> Server {
        server.connect(about).query("ARCHIVE LOG").rows(about);
        server.terminate();
        let ended = server.ended(about);
        assert_eq!(ended.status.code(), Some(0), "{about}: {ended:?}");
        let archive = self.archive.as_mut().expect("a database with one");
        archive.move_to(&self.mounted, about);
        self.start(settings, |_| {}).unwrap_or_else(|ended| panic!("{about}: {ended:?}"))
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
        self.mounted.replace(disk.clone());
        if let Some(archive) = &mut self.archive {
            archive.restart(&disk);
        }
        self.boot.renew(&mut self.random);
    }

    /// Clients work until they are done, or their sessions end; the process is killed when the power goes. Gives the
    /// failures, the definitions, and the copies that were taken.
    fn work(
        &mut self,
        server: &Server,
        histories: &mut [History; CLIENTS],
        progress: &Progress,
        (may_fail, may_be_full, has_small_log): (bool, bool, bool),
        about: &str,
    ) -> (Failures, Defined, Copies) {
        let scale = 1 + self.random.below(7);
        let transactions = 1 + self.random.below(1 << scale);
        // A small memory has to be used up.
        let texts = if self.memory.is_empty() { [8, 8, 600] } else { [8, 600, TEXTS_MAX] };
        let texts = texts[self.random.below(3) as usize];
        let times = self.random.below(8).saturating_sub(1);
        let defines = self.random.chance(1, 2);
        let flushes_maps = self.random.chance(1, 4);
        let backup_to = self.scratch.path().join(format!("backup-{}", self.starts));
        let (failures, has_archive) = (Failures::default(), self.archive.is_some());
        let work = ConcurrentWork {
            each: Work {
                client: CLIENTS,
                names: &[],
                progress,
                transactions,
                texts,
                may_fail,
                may_be_full,
                disk: Some(&self.mounted.disk),
                has_little_memory: !self.memory.is_empty(),
                has_small_log,
                failures: &failures,
                about,
            },
            names: &self.names,
            defines,
            copies: times,
            copies_to: &backup_to,
            has_archive,
            flushes_maps,
        };
        let (defined, copies) = work.run(server, &self.mounted, histories, &mut self.random.fork());
        (failures, defined, copies)
    }

    /// Restores a backup up to a goal, and compares the contents that a server finds with what was acknowledged. Gives
    /// the contents, and of each client the fewest transactions that make them up; nothing if the restore is refused as
    /// it may be.
    fn restore(
        &mut self,
        (from, is_earlier): (&Taken, bool),
        goal: &Goal<'_>,
        copies: &Copies,
        histories: &[History; CLIENTS],
        about: &str,
    ) -> Option<([Tables; CLIENTS], Counts)> {
        let about = &format!("{about}, the backup {}, restored: {goal:?}", from.at.display());
        let (data, said) = (self.scratch.path().join("restored"), self.scratch.path().join("said"));
        let words = [goal.words(self.archive.as_ref().map(Archive::path)), self.memory.clone()].concat();
        let text = match restore(&from.at, &data, &words, &said, about) {
            Ok(text) => text,
            Err(why) => {
                assert!(copies.may_refuse(goal, &why), "{about}: {why}");
                return None;
            }
        };
        match goal {
            Goal::Backup => assert_eq!(place_in(&text), from.place, "{about}"),
            Goal::Place(to) => assert_eq!(place_in(&text), to.place, "{about}"),
            Goal::End | Goal::Time(_) => assert!(place_in(&text) >= from.place, "{about}: {text}"),
        }
        check(&data, &said, about);
        let (settings, said) = (Settings(self.memory.clone()), self.said());
        let started = Server::start(&data, &settings, &self.boot, said, |_| {});
        let server = started.unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
        let mut client = server.connect(about);
        untouched::check(&mut client, about);
        crowd::check(&mut client, about);
        let (least, most) = copies.bounds(from, is_earlier, goal);
        let mut fewest = Counts::default();
        let found = std::array::from_fn(|at| {
            let found = Tables::read(&mut client, at, &self.names[at], about);
            let about = format!("{about}, client {at}");
            fewest[at] = histories[at].check_between(&found, (least[at], most[at]), &about);
            found
        });
        server.kill();
        server.ended(about);
        std::fs::remove_dir_all(&data).expect("it is not in use");
        Some((found, fewest))
    }

    /// Restores copies of a life that has ended. Gives, of each client, how many transactions the machine has to have
    /// if the archive has them.
    fn restore_copies(
        &mut self,
        copies: &Copies,
        histories: &[History; CLIENTS],
        about: &str,
        tally: &mut Tally,
    ) -> Counts {
        if let Some(last) = copies.taken.last() {
            self.restore((last, false), &Goal::Backup, copies, histories, about);
            tally.restored += 1;
        }
        let mut archived = Counts::default();
        let earlier = self.earlier.take();
        let from = match copies.taken.first() {
            Some(first) if earlier.is_none() || self.random.chance(1, 2) => Some((first, false)),
            // What was archived in this life shows whether an earlier backup's restore is right.
            _ => earlier.as_ref().filter(|_| copies.archived.is_some()).map(|earlier| (earlier, true)),
        };
        if let (Some((from, is_earlier)), true) = (from, self.archive.is_some()) {
            let goal = copies.any_goal(from, is_earlier, &mut self.random);
            let restored = self.restore((from, is_earlier), &goal, copies, histories, about);
            match (&goal, restored) {
                (Goal::End, Some((_, fewest))) => {
                    tally.to_the_end += 1;
                    archived = fewest;
                }
                (Goal::Place(taken), Some((found, _))) => {
                    tally.to_a_place += 1;
                    let alone = self.restore((taken, false), &Goal::Backup, copies, histories, about);
                    let (alone, _) = alone.expect("a backup alone is not refused");
                    assert!(
                        found == alone,
                        "{about}: to the place of {taken:?}, and that backup alone: {found:?}\n{alone:?}"
                    );
                }
                (Goal::Time(_), Some(_)) => tally.to_a_time += 1,
                _ => {}
            }
        }
        self.earlier = copies.taken.last().cloned().or(earlier);
        archived
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
        // A failed sync of the directory ends the file system: no other sync succeeds until the machine starts again.
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
        let bounds = (end != End::Asked || !is_well, !is_well, settings.has_small_log());
        let (failures, defined, mut copies) = self.work(&server, &mut histories, &progress, bounds, about);

        // The end, and what the machine finds after it.
        // Before any wait for the process: after it the number may belong to another process.
        let was_killed = self.mounted.killer.disarm() && end == End::Killed;
        let runs = server.runs();
        let is_left_alone = !was_killed && !disk.is_down();
        let stops = is_left_alone && (failures.ended() || !runs);
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
        if closed && self.archive.is_some() {
            copies.note_archived(progress.now());
        }
        let archived = self.restore_copies(&copies, &histories, about, tally);
        tally.backups += copies.taken.len() as u64;
        tally.no_memory += failures.no_memory();
        tally.defined += defined.all();
        let mut power_lost = end == End::PowerLost;
        tally.transactions += histories.iter().map(|history| history.told.len() as u64).sum::<u64>();
        if self.random.chance(1, 2) {
            *settings = self.any_settings();
        }
        let about = &format!("{about}, then {settings:?}");
        if self.random.chance(1, 4) {
            // A closed database is on disk.
            power_lost |= self.interrupt_recovery(settings, about) && !closed;
        }
        if self.random.chance(1, 3) {
            check(self.mounted.path(), &self.scratch.path().join("said"), about);
            tally.checks += 1;
        }
        let server = self.start(settings, |_| {}).unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
        let mut client = server.connect(about);
        untouched::check(&mut client, about);
        crowd::check(&mut client, about);
        defined.check(&mut client, about);
        for (at, history) in histories.iter().enumerate() {
            let found = Tables::read(&mut client, at, &self.names[at], about);
            let least = if power_lost { progress.durable(at) } else { history.told.len() };
            history.check(&found, least.max(archived[at]), &format!("{about}, client {at}"));
            self.tables[at] = found;
        }
        server
    }

    /// A start that is interrupted. Whether that lost the power.
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

/// A database and its lives.
pub fn lives(seed: u64, tally: &mut Tally) {
    let mut database = Database::new(seed);
    let mut settings = database.any_settings();
    let about = &format!("RIALTO_SEED={seed}, {settings:?}");
    let mut server = database.start(&settings, |_| {}).unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
    untouched::prepare(&mut server.connect(about), about);
    crowd::prepare(&mut server.connect(about), about);
    if database.archive.is_some() && database.random.chance(1, 2) {
        server = database.archive_on_machine(server, &settings, about);
        tally.archives_on_machine += 1;
    }
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

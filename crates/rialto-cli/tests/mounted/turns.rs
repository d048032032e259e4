//! One piece of work of a real server, which ends at each of its I/O steps in turn.
//!
//! A disk is prepared once. In each turn a server opens a copy of it, serves the same clients with the same work, and
//! closes; the power goes, or the process is killed, in the next step of all this. A turn without an end has counted
//! the steps.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rialto::io::{FaultyDisk, Random};

use crate::common::Directory;
use crate::crowd::{self, Defined};
use crate::kept::Kept;
use crate::ledger::{CLIENTS, History, Progress};
use crate::mount::Mounted;
use crate::seeds::patience;
use crate::server::{Boot, Ended, Server, Settings, check};
use crate::tables::Tables;
use crate::untouched;
use crate::work::{ConcurrentWork, Failures, Work};

/// How a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The power goes.
    PowerLost,
    /// The process is killed.
    Killed,
}

/// Counts of what was done, for the tally.
#[derive(Debug, Default)]
pub struct Tally {
    pub power_lost: u64,
    pub killed: u64,
    /// Of these on the data-oriented engine.
    pub data_oriented: u64,
    /// Of these before the server came to serve.
    pub opening: u64,
    pub transactions: u64,
}

/// The work of a turn.
#[derive(Default)]
struct Done {
    histories: Vec<History>,
    progress: Progress,
    defined: Defined,
}

/// A prepared disk, and the work on each copy of it.
struct Run {
    seed: u64,
    random: Random,
    settings: Settings,
    names: [Vec<String>; CLIENTS],
    mounted: Mounted,
    prepared: Arc<FaultyDisk>,
    /// The boot of the machine in which the disk was prepared.
    boot: Boot,
    /// The boot after a loss of power.
    next_boot: Boot,
    /// The contents of the prepared disk.
    tables: [Tables; CLIENTS],
    kept: Kept,
    starts: u64,
    // Declared last, so that it is dropped last.
    scratch: Directory,
}

impl Run {
    /// Prepares a disk. Its database is closed, or its process killed, at the end.
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed);
        let scratch = Directory::new(&format!("turns-{seed}"));
        let disk = FaultyDisk::new(random.next());
        let mounted = Mounted::new(disk.clone(), &scratch.path().join("data")).expect("it mounts");
        let boot = Boot::new(scratch.path().join("boot"), &mut random);
        let next_boot = Boot::new(scratch.path().join("next-boot"), &mut random);
        let settings = Settings::any(&mut random);
        let names = std::array::from_fn(|client| ["a", "b"].map(|name| format!("{name}{client}")).to_vec());
        let mut run = Run {
            seed,
            random,
            settings,
            names,
            mounted,
            prepared: disk,
            boot,
            next_boot,
            tables: Default::default(),
            kept: Kept { name: format!("turns-{seed}"), disk: None },
            starts: 0,
            scratch,
        };
        let about = &format!("RIALTO_SEED={seed}, before, {:?}", run.settings);
        let settings = run.settings.clone();
        let started = run.start(&settings, false, |_| {});
        let server = started.unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
        let mut client = server.connect(about);
        untouched::prepare(&mut client, about);
        crowd::prepare(&mut client, about);
        run.work(&server, false, about);
        run.tables = run.read(&server, about);
        // Of level disk: it makes everything that was committed before durable.
        client.query("CREATE TABLE last (id bigint)").rows(about);
        let is_closed = run.random.chance(1, 2);
        if is_closed {
            server.terminate();
        } else {
            server.kill();
        }
        let ended = server.ended(about);
        assert!(!is_closed || ended.status.code() == Some(0), "{about}: {ended:?}");
        // The pages of the log's ring belong to the kernel until then.
        let synced = std::process::Command::new("sync").arg("--file-system").arg(run.mounted.path()).output();
        assert!(synced.expect("sync runs").status.success(), "{about}");
        run.prepared = run.mounted.disk.copied();
        run
    }

    fn said(&mut self) -> PathBuf {
        self.starts += 1;
        self.scratch.path().join(format!("stderr-{}", self.starts))
    }

    fn start(
        &mut self,
        settings: &Settings,
        power_lost: bool,
        is_born: impl FnOnce(u32),
    ) -> Result<Server, Ended> {
        let said = self.said();
        self.kept.disk = Some(self.mounted.disk.copied());
        let boot = if power_lost { &self.next_boot } else { &self.boot };
        Server::start(self.mounted.path(), settings, boot, said, is_born)
    }

    fn read(&self, server: &Server, about: &str) -> [Tables; CLIENTS] {
        let mut client = server.connect(about);
        std::array::from_fn(|at| Tables::read(&mut client, at, &self.names[at], about))
    }

    /// All clients at once, until they are done, or their sessions end.
    fn work(&mut self, server: &Server, may_fail: bool, about: &str) -> Done {
        // The same in each turn.
        let mut random = Random::new(self.seed ^ 1);
        let (transactions, defines) = (4 + random.below(12), random.chance(1, 2));
        let texts = [8, 8, 600][random.below(3) as usize];
        let backups = random.below(3);
        let backup_to = self.scratch.path().join(format!("backup-{}", self.starts));
        let mut done = Done { histories: self.tables.clone().map(History::new).into(), ..Done::default() };
        let failures = Failures::default();
        let work = ConcurrentWork {
            each: Work {
                client: CLIENTS,
                names: &[],
                progress: &done.progress,
                transactions,
                texts,
                may_fail,
                may_be_full: false,
                disk: Some(&self.mounted.disk),
                has_little_memory: false,
                has_small_log: self.settings.has_small_log(),
                failures: &failures,
                about,
            },
            names: &self.names,
            defines,
            copies: backups,
            copies_to: &backup_to,
            has_archive: false,
            flushes_maps: false,
        };
        (done.defined, _) = work.run(server, &self.mounted, &mut done.histories, &mut random);
        let _ = std::fs::remove_dir_all(&backup_to);
        done
    }

    /// Waits until a server that was asked to end, or its disk, has ended.
    fn wait_for_end(&self, server: &Server, about: &str) {
        let until = Instant::now() + patience();
        while server.runs() && !self.mounted.disk.is_down() {
            assert!(Instant::now() < until, "{about}: the server does not end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The work on a copy of the disk, which ends in this step or, if there are fewer, after the last; and the check of
    /// what the next server finds. Gives the number of steps, if there were fewer.
    fn turn(&mut self, step: u64, end: End, tally: &mut Tally) -> Option<u64> {
        let disk = self.prepared.copied();
        self.mounted.replace(disk.clone());
        let (before, takes_place) = (disk.steps(), self.random.chance(1, 2));
        let at = before.saturating_add(step);
        let (settings, killer) = (self.settings.clone(), self.mounted.killer.clone());
        let about = &format!("RIALTO_SEED={}, {end:?} in step {step}, {settings:?}", self.seed);
        if end == End::PowerLost {
            disk.crash_at(at);
        }
        let started = self.start(&settings, false, |process| {
            if end == End::Killed {
                killer.arm(process, at, takes_place);
            }
        });
        let mut done = Done { histories: self.tables.clone().map(History::new).into(), ..Done::default() };
        if let Ok(server) = &started {
            done = self.work(server, true, about);
            server.terminate();
            self.wait_for_end(server, about);
        }
        // Before the process is waited for: after that its number may belong to another one.
        let was_killed = killer.disarm() && end == End::Killed;
        let has_ended = was_killed || disk.is_down();
        let steps = (!has_ended).then(|| disk.steps() - before);
        let served = started.is_ok();
        let ended = match started {
            Ok(server) => {
                if disk.is_down() {
                    server.kill();
                }
                server.ended(about)
            }
            Err(ended) => ended,
        };
        assert!(!ended.said.contains("panicked"), "{about}: {ended:?}");
        let closed = served && ended.status.code() == Some(0);
        assert!(closed || has_ended, "{about}: it ends by itself: {ended:?}");
        assert!(!was_killed || ended.by_signal() == Some(9), "{about}: {ended:?}");
        let power_lost = end == End::PowerLost;
        if power_lost {
            if !disk.is_down() {
                disk.crash();
            }
            self.mounted.replace(disk.restart());
            self.next_boot.renew(&mut self.random);
        }
        if has_ended {
            *if power_lost { &mut tally.power_lost } else { &mut tally.killed } += 1;
            tally.data_oriented += u64::from(settings.is_data_oriented());
            tally.opening += u64::from(!served);
        }
        tally.transactions += done.histories.iter().map(|history| history.told.len() as u64).sum::<u64>();
        self.check(&done, power_lost, closed, about);
        steps
    }

    /// Checks that the next server finds what the clients were told.
    fn check(&mut self, done: &Done, power_lost: bool, closed: bool, about: &str) {
        let settings = Settings::any(&mut self.random);
        let about = &format!("{about}, then {settings:?}");
        if self.random.chance(1, 4) {
            check(self.mounted.path(), &self.scratch.path().join("said"), about);
        }
        let started = self.start(&settings, power_lost, |_| {});
        let server = started.unwrap_or_else(|ended| panic!("{about}: {ended:?}"));
        let mut client = server.connect(about);
        untouched::check(&mut client, about);
        crowd::check(&mut client, about);
        done.defined.check(&mut client, about);
        let found = self.read(&server, about);
        for (at, (history, found)) in done.histories.iter().zip(&found).enumerate() {
            let least = if power_lost && !closed { done.progress.durable(at) } else { history.told.len() };
            history.check(found, least, &format!("{about}, client {at}"));
        }
        server.kill();
        server.ended(about);
    }
}

/// Ends one piece of work at one step after another, from a random one, until all steps have had a turn or the time is
/// over.
pub fn turns(seed: u64, until: Instant, tally: &mut Tally) {
    let mut run = Run::new(seed);
    let steps = run.turn(u64::MAX, End::Killed, tally).expect("no run has so many steps");
    let first = run.random.below(steps);
    for nth in 0..steps {
        for end in [End::PowerLost, End::Killed] {
            run.turn(1 + (first + nth) % steps, end, tally);
        }
        if Instant::now() > until {
            return;
        }
    }
}

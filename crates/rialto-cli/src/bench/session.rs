//! One run of a workload on tables: opens the disk and the data, drives the clients, verifies, reports.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rialto::engine::servers::TransactionServerStats;
use rialto::io::{Caching, Clock, Disk, FileDisk, MemoryDisk, Open, Processor, SimulatedDisk};
use rialto::recovery::RecoveryReport;
use rialto::{Background, Checkpointing, Database, LockGrain, Metrics, Options};
use rialto_measure::RunError;
use rialto_measure::calibrate::{Calibrator, Slice, Spells};
use rialto_measure::counters::{Counters, Counts};
use rialto_measure::driver::virtual_machine::VirtualMachine;
use rialto_measure::driver::{Load, Observer, Outcome, ServersSetting};
use rialto_measure::growth::{self, Room};
use rialto_measure::interrupt;
use rialto_measure::limits::{self, Beside, Limits, PageMix};
use rialto_measure::machine::{Machine, memory_available};
use rialto_measure::report::{Measured, Setting, median, write_json, write_part};
use rialto_measure::text::{say, seconds, thousands};
use rialto_workloads::data::ShapeError;
use rialto_workloads::workload::{Audited, Verdict};

use super::args::{BenchArgs, DiskName, LoggingName, Rate, ResidenceName};
use crate::args::DurabilityName;

/// The shortest warm-up: the growth of the run is judged by it.
pub const WARMUP_MIN: Duration = Duration::from_millis(200);
/// The longest measurement of a peak for `--rate PCT%`.
const PEAK_WINDOW_MAX: Duration = Duration::from_secs(5);
/// How long a probe of `--limits` runs.
pub const PROBE_MIN: Duration = Duration::from_millis(200);
pub const PROBE_MAX: Duration = Duration::from_secs(3);
/// The database's file with the images of pages.
const PAGE_FILE: &str = "pages";
/// What a transaction writes to the log, about, until it is measured.
const LOG_BYTES_PER_TRANSACTION: f64 = 250.0;
/// Copies of memory on disk: two backups.
const BACKUPS: f64 = 2.0;
/// Bytes of the page file for each byte of rows, about.
const PAGE_PLACES: f64 = 2.0;

/// A workload with its data, open.
pub struct Opened<W: Audited> {
    pub disk: Arc<dyn Disk>,
    /// The data directory, if there is one.
    pub data: Option<String>,
    pub options: Options,
    pub database: Database,
    /// What it runs on, if that is virtual.
    pub machine: Option<VirtualMachine>,
    pub workload: W,
    /// What its tables held.
    pub audit: W::Audit,
}

/// Opens the disk, the database on it and the workload in that by `open`, and verifies what is there.
pub fn open<W: Audited>(
    args: &BenchArgs,
    open: impl Fn(&Database, &mut dyn FnMut(&str)) -> Result<(W, bool), ShapeError>,
) -> Result<Opened<W>, RunError> {
    args.database.memory.warn();
    let machine = args.is_virtual().then(|| Processor::new(args.run_time()));
    let clock = machine.as_ref().map_or(Clock::System, |(_, clock)| Clock::from(clock.clone()));
    let disk = open_disk(args, args.directory().as_deref(), clock.clone())?;
    let mut options = Options { clock, ..args.options() };
    if args.is_virtual() {
        let run = args.run_time().as_micros();
        say(&format!("virtual seconds; each run of a transaction takes {run} us of one processor"));
        // Nothing depends on the machine's time.
        options.background = Background::Driven;
        options.log_writes = Some(Caching::Direct);
        options.log_writes_in_flight = Some(1);
        options.recovery_threads = 1;
    }
    if matches!(args.disk, DiskName::Simulated(_)) {
        say(&format!("simulated disk: {}", disk.describe()));
    }
    options.progress = Some(Arc::new(|text: &str| say(&format!("  {text}"))));
    let data = args.directory().map(|path| absolute(&path));
    let place = data.clone().unwrap_or_else(|| disk.describe());
    let open_database = |options: &Options| {
        Database::open_on(disk.clone(), options.clone())
            .map_err(|cause| RunError::Open { data: place.clone(), cause })
    };
    let mut database = open_database(&options)?;
    for warning in database.recovery().into_iter().flat_map(RecoveryReport::warnings) {
        say(&format!("warning: {place}: {warning}"));
    }
    let mut opened = open(&database, &mut |text| say(&format!("  {text}")));
    if options.lock_grain == LockGrain::Page && matches!(opened, Ok((_, false))) {
        // What is locked together is found from the pages at the opening.
        drop(opened);
        database.close().map_err(RunError::during("closing the database"))?;
        database = open_database(&options)?;
        opened = open(&database, &mut |_| ());
    }
    let workload = open_workload(opened, &place)?;
    let audit = workload.audit().map_err(RunError::during("reading the tables"))?;
    let found = workload.verdict(&audit, &audit, 0..=0);
    if !found.consistent {
        return Err(RunError::Inconsistent(format!(
            "{place} holds a {} that is inconsistent before the run: {}; remove the directory to load another",
            W::DATA,
            found.text
        )));
    }
    let machine =
        machine.map(|(processor, clock)| VirtualMachine { processor, clock, database: database.clone() });
    Ok(Opened { disk, data, options, database, machine, workload, audit })
}

/// Runs a workload on tables, opened by `open_workload`. As [`run`](super::run).
pub fn run_on_tables<W: Audited>(
    args: &BenchArgs,
    out: &mut dyn Write,
    open_workload: impl Fn(&Database, &mut dyn FnMut(&str)) -> Result<(W, bool), ShapeError>,
) -> Result<bool, RunError> {
    let counters = Counters::open();
    let Opened { disk, data, options, database, machine, workload, audit } = open(args, open_workload)?;
    let scratch = Scratch::beside(args)?;

    // Its file is one of a device, or there is none: what a simulated disk takes says nothing of the machine.
    let device = (args.disk == DiskName::File).then_some(&*scratch.disk);
    let calibrator = Calibrator::new(device).map_err(RunError::Directory)?;
    let mut session = Session {
        args,
        disk: disk.clone(),
        database,
        machine,
        workload,
        options,
        counters,
        calibrator: Mutex::new(calibrator),
        scratch,
        windows: 0,
        acknowledged: 0,
        attempted: 0,
    };
    let setting = session.setting(data, &disk);
    let windows = match session.measure() {
        Err(RunError::Interrupted) => {
            // What has committed is kept, without a log too.
            session.database.close().map_err(RunError::during("closing the database"))?;
            return Err(RunError::Interrupted);
        }
        measured => measured?,
    };
    let (measured, line) =
        median(windows, Measured::committed_per_s, "transactions").expect("at least one window");
    say(&format!("verifying the {} on its tables", W::DATA));
    let verdict = session.verify(&audit)?;
    let text = result_text(&session, &setting, &measured, &verdict, args.repeat > 1);
    let written = write_part(out, text + &line);
    let json = args.json.then(|| measured.json(&setting, verdict.consistent));
    session.database.close().map_err(RunError::during("closing the database"))?;
    written?;
    write_json(out, json)?;
    Ok(verdict.consistent)
}

pub fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// A disk whose files are gone when it is dropped.
pub struct Scratch {
    pub disk: Arc<dyn Disk>,
    directory: Option<PathBuf>,
}

impl Scratch {
    /// Beside the data, for the files of calibrations and limits.
    pub fn beside(args: &BenchArgs) -> Result<Scratch, RunError> {
        Scratch::open(
            args,
            args.directory().map(|path| {
                let mut name = path.into_os_string();
                name.push(format!(".bench-{}", std::process::id()));
                PathBuf::from(name)
            }),
        )
    }

    /// Of the kind that the command line says, in this directory if it has one.
    pub fn open(args: &BenchArgs, directory: Option<PathBuf>) -> Result<Scratch, RunError> {
        let disk = open_disk(args, directory.as_deref(), Clock::System)?;
        Ok(Scratch { disk, directory })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory
            && let Err(error) = std::fs::remove_dir_all(directory)
        {
            say(&format!("{} is left over: {error}", directory.display()));
        }
    }
}

fn open_disk(args: &BenchArgs, directory: Option<&Path>, clock: Clock) -> Result<Arc<dyn Disk>, RunError> {
    let inner: Arc<dyn Disk> = match directory {
        None => MemoryDisk::new(),
        Some(path) => FileDisk::create(path).map_err(|error| {
            RunError::Directory(format!(
                "the data directory cannot be used: {error}; choose another with --data DIR"
            ))
        })?,
    };
    let DiskName::Simulated(name) = &args.disk else {
        return Ok(inner);
    };
    let disk = SimulatedDisk::named(name, inner, clock)
        .ok_or_else(|| RunError::Usage(format!("there is no simulated disk \"{name}\"")))?;
    Ok(disk)
}

fn open_workload<W: Audited>(opened: Result<(W, bool), ShapeError>, place: &str) -> Result<W, RunError> {
    match opened {
        Ok((workload, true)) => {
            say(&format!("using the {} in {place}: {}", W::DATA, workload.describe()));
            Ok(workload)
        }
        Ok((workload, false)) => {
            say(&format!("loaded a {} into {place}: {}", W::DATA, workload.describe()));
            Ok(workload)
        }
        Err(ShapeError::OtherShape { found, expected }) => Err(RunError::Directory(format!(
            "{place} holds {found}, expected {expected}: choose another directory with --data DIR, or options that fit it"
        ))),
        Err(ShapeError::Failed(cause)) => Err(RunError::Transaction { during: "loading the data", cause }),
    }
}

/// A run with its database open.
struct Session<'a, W> {
    args: &'a BenchArgs,
    disk: Arc<dyn Disk>,
    database: Database,
    machine: Option<VirtualMachine>,
    workload: W,
    options: Options,
    counters: Counters,
    /// For the thread that watches a window.
    calibrator: Mutex<Calibrator>,
    scratch: Scratch,
    /// Begun so far, that of the peak included.
    windows: u64,
    /// Over all windows.
    acknowledged: u64,
    attempted: u64,
}

/// What was counted until one moment.
struct Look {
    metrics: Metrics,
    servers: TransactionServerStats,
    counts: Counts,
}

/// Watches one window.
struct Watch<'a, W> {
    session: &'a Session<'a, W>,
    /// The time that is still to run after the warm-up, over all windows.
    left: Duration,
    rate: Option<f64>,
    log_bytes_at_start: u64,
    begin: Option<Look>,
    end: Option<Look>,
    slices: Vec<Slice>,
    /// Why the machine was not calibrated.
    uncalibrated: Option<String>,
}

impl<W: Audited> Watch<'_, W> {
    /// What the process has counted, without this thread and the calibrations.
    fn counts(&self) -> Counts {
        let calibrator = self.session.calibrator.lock().expect("no thread panics with it");
        self.session.counters.read_beside(&calibrator)
    }
}

impl<W: Audited> Observer for Watch<'_, W> {
    fn window_begins(&mut self, committed: u64, warmed_up: Duration) -> Result<(), String> {
        let session = self.session;
        let metrics = session.database.metrics();
        let per_s = committed as f64 / warmed_up.as_secs_f64();
        let logged = (metrics.log.bytes - self.log_bytes_at_start) as f64 / committed.max(1) as f64;
        growth::check(&session.rooms(&metrics, logged), self.rate.unwrap_or(per_s), self.left)?;
        let servers = session.workload.server_stats();
        self.begin = Some(Look { metrics, servers, counts: self.counts() });
        Ok(())
    }

    fn window_ends(&mut self) {
        let counts = self.counts();
        let (metrics, servers) = (self.session.database.metrics(), self.session.workload.server_stats());
        self.end = Some(Look { metrics, servers, counts });
    }

    fn slice(&mut self, took: Duration, committed: u64) {
        match self.session.calibrator.lock().expect("no thread panics with it").sample() {
            Ok(sample) => self.slices.push(Slice { took, committed, sample }),
            Err(problem) => self.uncalibrated = Some(problem),
        }
    }

    fn tick(&mut self, open: Option<Duration>, committed_per_s: f64) {
        let when = open.map_or_else(|| "warm-up".to_owned(), seconds);
        say(&format!("  {when:>8}  {:>12} transactions/s", thousands(committed_per_s)));
    }
}

impl<W: Audited> Session<'_, W> {
    fn setting(&self, data: Option<String>, disk: &Arc<dyn Disk>) -> Setting {
        let args = self.args;
        Setting {
            workload: W::NAME,
            shape: self.workload.describe(),
            procedures: self.workload.types(),
            success_percent: W::SUCCESS_PERCENT,
            engine: args.database.engine.as_str(),
            durability: match (args.logging, args.database.durability) {
                (LoggingName::None, _) => "none until the run ends (logging none)",
                (_, DurabilityName::Memory) => "memory (level 1)",
                (_, DurabilityName::Disk) => "disk (level 3)",
            },
            clients: args.load_threads(),
            in_flight: args.in_flight,
            seed: args.seed,
            data,
            disk: disk.describe(),
            machine: Machine::here(),
            uncounted: self.counters.missing_because().map(str::to_owned),
            percent_of_peak: match args.rate {
                Some(Rate::PercentOfPeak(percent)) => Some(percent),
                _ => None,
            },
            servers: self.workload.servers(),
        }
    }

    /// What can run out, and how fast.
    fn rooms(&self, metrics: &Metrics, log_bytes: f64) -> Vec<Room> {
        let per_transaction = self.workload.memory_per_transaction();
        let is_in_memory = self.args.residence == ResidenceName::Memory;
        let mut rooms = Vec::new();
        if is_in_memory {
            rooms.push(Room {
                what: "memory for tables (--memory-bytes)".to_owned(),
                free: metrics.memory_limit.saturating_sub(metrics.memory_used),
                bytes_per_transaction: per_transaction,
            });
        }
        // Two backups of what is in memory; pages that are superseded, and places of others.
        let copies = if is_in_memory { BACKUPS } else { PAGE_PLACES };
        if self.options.checkpoint == Checkpointing::None {
            rooms.push(Room {
                what: "the log (--log-bytes-max), which --checkpoint none never frees,".to_owned(),
                free: self.options.log_bytes_max.saturating_sub(metrics.log.bytes),
                bytes_per_transaction: log_bytes,
            });
        }
        match self.args.directory() {
            None => rooms.extend(memory_available().map(|free| Room {
                what: "the machine's memory, where the disk is too,".to_owned(),
                free,
                bytes_per_transaction: per_transaction * (f64::from(u8::from(is_in_memory)) + copies)
                    + log_bytes,
            })),
            Some(path) => rooms.extend(rustix::fs::statvfs(&path).ok().map(|system| Room {
                what: format!("the file system of {}", path.display()),
                free: (system.f_bavail * system.f_frsize).saturating_sub(self.options.log_bytes_max),
                bytes_per_transaction: per_transaction * copies,
            })),
        }
        rooms
    }

    fn measure(&mut self) -> Result<Vec<Measured>, RunError> {
        let args = self.args;
        let repeat = args.repeat;
        let rate = match args.rate {
            None => None,
            Some(Rate::PerSecond(rate)) => Some(rate),
            Some(Rate::PercentOfPeak(percent)) => {
                say(&format!("measuring the peak, of which {percent}% will be offered"));
                let peak =
                    self.window(None, args.seconds.min(PEAK_WINDOW_MAX), Duration::ZERO)?.committed_per_s();
                say(&format!("  the peak is {} transactions/s", thousands(peak)));
                Some((peak * percent / 100.0).max(f64::MIN_POSITIVE))
            }
        };
        if let Some(rate) = rate {
            let whole = (args.seconds + self.warmup()) * repeat;
            growth::check(&self.rooms(&self.database.metrics(), LOG_BYTES_PER_TRANSACTION), rate, whole)
                .map_err(RunError::Usage)?;
        }
        (0..repeat)
            .map(|number| {
                if repeat > 1 {
                    say(&format!("window {} of {repeat}", number + 1));
                }
                let later = (args.seconds + self.warmup()) * (repeat - 1 - number);
                self.window(rate, args.seconds, later)
            })
            .collect()
    }

    fn warmup(&self) -> Duration {
        self.args.warmup.max(WARMUP_MIN)
    }

    /// Runs one warm-up and window; `later` is what comes after it.
    fn window(&mut self, rate: Option<f64>, window: Duration, later: Duration) -> Result<Measured, RunError> {
        let args = self.args;
        let load = Load {
            clients: args.load_threads(),
            in_flight: args.in_flight as usize,
            rate,
            warmup: self.warmup(),
            window,
            // Other transactions in each window, the same in each run.
            seed: args.seed.wrapping_add(self.windows << 32),
        };
        self.windows += 1;
        say(&format!("running {} s after {} s of warm-up", window.as_secs_f64(), load.warmup.as_secs_f64()));
        let log_bytes_at_start = self.database.metrics().log.bytes;
        let mut watch = Watch {
            session: self,
            left: window + later,
            rate,
            log_bytes_at_start,
            begin: None,
            end: None,
            slices: Vec::new(),
            uncalibrated: None,
        };
        let ended = match &self.machine {
            Some(machine) => self.workload.drive_on(machine, &load, &mut watch),
            None => self.workload.drive(&load, &mut watch),
        };
        let (begin, end) = (watch.begin.take(), watch.end.take());
        let spells = Spells::judge(&watch.slices);
        if let Some(problem) = watch.uncalibrated.take() {
            return Err(RunError::Directory(format!("calibrating the machine: {problem}")));
        }
        let outcome: Outcome = ended.map_err(RunError::of_clients("running transactions"))?;
        self.acknowledged += outcome.acknowledged;
        self.attempted += outcome.attempted;
        let (metrics, server_stats, counts) = begin.zip(end).map_or_else(Default::default, |(begin, end)| {
            let counts = end.counts.since(&begin.counts);
            ((begin.metrics, end.metrics), (begin.servers, end.servers), counts)
        });
        let mut measured =
            Measured { outcome, offered_per_s: rate, metrics, server_stats, counts, spells, limits: None };
        if args.limits {
            interrupt::check()?;
            measured.limits = Some(self.limits(&measured)?);
        }
        Ok(measured)
    }

    /// What bare code reaches now.
    fn limits(&self, measured: &Measured) -> Result<Limits, RunError> {
        let args = self.args;
        let time = (args.seconds / 2).clamp(PROBE_MIN, PROBE_MAX);
        say(&format!("measuring what bare code reaches, {} each", seconds(time)));
        let pages = self.page_mix(measured)?;
        let beside = Beside {
            clients: args.clients,
            in_flight: args.in_flight,
            log_writes: measured.metrics.1.log_writes.caching,
            waits_for_disk: args.database.durability == DurabilityName::Disk
                && args.logging != LoggingName::None,
            log_bytes: measured.log_bytes_per_transaction().unwrap_or(LOG_BYTES_PER_TRANSACTION),
            bank: if pages.is_none() { self.workload.bank() } else { None },
            pages,
            time,
        };
        limits::measure(&*self.scratch.disk, &beside)
            .map_err(|problem| RunError::Directory(format!("measuring limits: {problem}")))
    }

    /// The pages that a transaction read and wrote; `None` without tables on disk.
    fn page_mix(&self, measured: &Measured) -> Result<Option<PageMix>, RunError> {
        let Some((reads, writes)) = measured.pages_per_transaction() else { return Ok(None) };
        let stats = &measured.metrics.1.pages;
        let file = self
            .disk
            .open(PAGE_FILE, Open::Existing, Caching::Direct)
            .map_err(|error| RunError::Directory(format!("measuring limits: {error}")))?;
        let places = stats.used_bytes / stats.page_bytes;
        Ok(Some(PageMix { file, places, page_bytes: stats.page_bytes as usize, reads, writes }))
    }

    fn verify(&self, before: &W::Audit) -> Result<Verdict, RunError> {
        let after = self.workload.audit().map_err(RunError::during("verifying the data"))?;
        Ok(self.workload.verdict(before, &after, self.acknowledged..=self.attempted))
    }
}

fn result_text<W: Audited>(
    session: &Session<'_, W>,
    setting: &Setting,
    measured: &Measured,
    verdict: &Verdict,
    repeated: bool,
) -> String {
    let loop_name = match (setting.servers, measured.offered_per_s, setting.in_flight) {
        (Some(ServersSetting { queue, standbys, .. }), ..) => {
            format!("a request queue of {queue}, one executor and {standbys} standing by")
        }
        (None, None, 1) => "each blocking until its transaction is durable".to_owned(),
        (None, None, n) => format!("each keeping {n} transactions in flight"),
        (None, Some(_), n) => format!("open loop, at most {n} in flight each"),
    };
    let clients = match (setting.servers, setting.clients) {
        (None, 1) => "1 client".to_owned(),
        (None, clients) => format!("{clients} clients"),
        (Some(_), 1) => "1 message server".to_owned(),
        (Some(_), servers) => format!("{servers} message servers"),
    };
    let consistent = if verdict.consistent { "yes" } else { "NO" };
    let window = if repeated { " (the median window)" } else { "" };
    let data = setting.data.clone().unwrap_or_else(|| format!("gone with the process ({})", setting.disk));
    let tail = [("consistent", format!("{consistent}: {}", verdict.text)), ("data", data)];
    format!(
        "{}, {}\n{clients}, {loop_name}; durability {}, {} engine, {} group commit{window}\n{}\n\n{}",
        W::TITLE,
        setting.shape,
        setting.durability,
        setting.engine,
        session.options.group_commit,
        setting.machine,
        measured.table(setting, tail),
    )
}

#[cfg(test)]
mod tests;

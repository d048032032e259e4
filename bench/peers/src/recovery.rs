//! [`Recovery`]: memory of a row, recovery after SIGKILL, and the time to a first commit (`peers recovery`).
//!
//! A process opens a bank, makes a checkpoint, runs transactions that survive SIGKILL only, as many in each engine, and is
//! killed. What it left is copied once a round, the copy dropped from the page cache, and opened by another process, which
//! runs a transaction, counts the rows, and is killed as well. From an empty directory to the first commit: a bank of one
//! branch and one account is made, durably.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rialto::io::{AlignedBuffer, Caching, Disk, FileDisk, Open as FileOpen};
use rialto_measure::machine::Machine;
use rialto_measure::spread::Spread;
use rialto_measure::text::{aligned, row, say, thousands};
use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::Errno;
use serde_json::{Value as Json, json};

use crate::args::{RecoveryArgs, Step};
use crate::bank::{Open, Order, files};
use crate::engine::EngineName;
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::step::Job;
use crate::tpcb::Shape;

/// The smallest bank.
const SMALLEST: Shape = Shape { branches: 1, accounts: 1 };
/// A record, its key included.
const RECORD_BYTES: f64 = 100.0;

/// What one engine took.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// Which engine.
    pub engine: EngineName,
    /// Resident bytes of a process that opened the loaded bank and read all of it.
    pub resident_bytes: u64,
    /// How long the transactions took before the kill.
    pub work_ms: f64,
    /// On how many threads: one for each core.
    pub threads: u64,
    /// What opening it found, once a round.
    pub opened: Vec<Json>,
    /// From opening an empty directory until the load of the smallest bank has committed, once a round.
    pub fresh_ms: Vec<f64>,
    /// How fast the disk reads its newest backup copy, in bytes a second, once a round; for an engine that has one.
    pub read_bytes_per_s: Vec<f64>,
}

/// All engines.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    shape: Shape,
    machine: Machine,
    transactions: u64,
    rounds: u32,
    /// One for each engine.
    pub engines: Vec<Taken>,
}

impl Taken {
    fn spread(&self, path: &str) -> Option<Spread> {
        Spread::of(self.opened.iter().filter_map(|opened| rialto_measure::json::number(opened, path)))
    }

    fn median(&self, path: &str) -> Option<f64> {
        self.spread(path).map(|spread| spread.median)
    }

    /// Bytes of records that were loaded and indexed a second, and that the disk reads.
    fn load_rates(&self) -> Option<[f64; 2]> {
        let median = |name: &str| self.median(&format!("recovery.{name}"));
        let took_ms = median("load_ms")? + median("index_ms")?;
        let disk = Spread::of(self.read_bytes_per_s.iter().copied())?.median;
        let records = median("record_bytes").filter(|bytes| *bytes > 0.0)? / took_ms * 1e3;
        Some([records, disk])
    }

    /// The fewest transactions that were there after a kill; the opening's own is none of them.
    fn kept(&self) -> u64 {
        self.spread("history_rows").map_or(0, |rows| (rows.least as u64).saturating_sub(1))
    }
}

/// Copies a directory, and leaves nothing of the copy in the page cache.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
            continue;
        }
        let file = copy_file(&from, &to)?;
        // What is not written yet cannot be dropped.
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Copies a file with its holes: LMDB's has 64 GiB, most of it holes.
fn copy_file(from: &Path, to: &Path) -> io::Result<File> {
    let (source, copy) = (File::open(from)?, File::create(to)?);
    copy.set_len(source.metadata()?.len())?;
    let mut at = 0;
    loop {
        let data = match seek(&source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // No data from here to the end.
            Err(Errno::NXIO) => return Ok(copy),
            Err(error) => return Err(error.into()),
        };
        at = seek(&source, SeekFrom::Hole(data))?;
        seek(&copy, SeekFrom::Start(data))?;
        seek(&source, SeekFrom::Start(data))?;
        io::copy(&mut (&source).take(at - data), &mut &copy)?;
    }
}

/// Bytes of one read of [`read_rate`].
const READ_BYTES: usize = 4 << 20;

/// How fast the disk reads a file from its beginning to its end, past the page cache (`O_DIRECT`): with one read at a time,
/// or with four, whichever is faster.
fn read_rate(directory: &Path, name: &str) -> Option<f64> {
    let disk = FileDisk::open(directory).ok()?;
    let file = disk.open(name, FileOpen::ReadOnly, Caching::Direct).ok()?;
    let reads = file.length().ok()? / READ_BYTES as u64;
    let rate = |threads: u64| {
        let (next, began) = (AtomicU64::new(0), Instant::now());
        let read = || {
            let mut buffer = AlignedBuffer::zeroed(READ_BYTES);
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= reads {
                    return true;
                }
                if file.read_at(&mut buffer, at * READ_BYTES as u64).is_err() {
                    return false;
                }
            }
        };
        let all = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
            readers.into_iter().all(|reader| reader.join().unwrap_or(false))
        });
        all.then(|| (reads * READ_BYTES as u64) as f64 / began.elapsed().as_secs_f64())
    };
    let rates = [rate(1)?, rate(4)?];
    (reads > 0).then(|| rates[0].max(rates[1]))
}

/// The backup copy in a directory that was written last.
fn newest_backup(directory: &Path) -> Option<String> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            name.starts_with("backup-").then_some((entry.metadata().ok()?.modified().ok()?, name))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, name)| name)
}

fn number(json: &Json, name: &str) -> Result<f64> {
    rialto_measure::json::number(json, name).ok_or_else(|| PeerError::Child {
        during: "a step".to_owned(),
        cause: format!("it printed no number \"{name}\""),
    })
}

impl Recovery {
    /// Measures all engines.
    ///
    /// # Errors
    /// If an engine fails, or takes a bank for another one. Transactions that are lost are a result.
    pub fn measure(args: &RecoveryArgs, directory: &Path) -> Result<Recovery> {
        let (common, guarantee) = (&args.common, Guarantee::Process);
        let shape = common.shape()?;
        let mut engines = Vec::new();
        for engine in common.engines() {
            let own = directory.join(engine.name());
            Open::load(common, guarantee, engine, &own)?;
            let job = |step| Job { step, engine, guarantee, shape, bank: &own };
            let resident_bytes = job(Step::Memory).run()?.unwrap_or_default();
            let worked = job(Step::Work).run_and_kill(args.transactions)?;
            let (work_ms, threads) = (number(&worked, "work_ms")?, number(&worked, "threads")? as u64);
            say(&format!(
                "  {}: {} transactions in {work_ms:.0} ms, killed",
                engine.name(),
                args.transactions
            ));
            let (opened, fresh_ms, read_bytes_per_s) = (Vec::new(), Vec::new(), Vec::new());
            engines.push(Taken {
                engine,
                resident_bytes,
                work_ms,
                threads,
                opened,
                fresh_ms,
                read_bytes_per_s,
            });
        }
        let mut order = Order::new(engines.len());
        for round in 0..args.rounds {
            for &place in order.round() {
                let taken = &mut engines[place];
                let (engine, copied) = (taken.engine, directory.join("copied"));
                let during = || format!("copying the bank of {}", engine.name());
                files(during, copy(&directory.join(engine.name()), &copied))?;
                let newest = newest_backup(&directory.join(engine.name()));
                taken.read_bytes_per_s.extend(newest.and_then(|name| read_rate(&copied, &name)));
                let job = Job { step: Step::Open, engine, guarantee, shape, bank: &copied };
                taken.opened.push(job.run_and_kill(0)?);
                let fresh = directory.join("fresh");
                files(|| format!("creating {}", fresh.display()), fs::create_dir(&fresh))?;
                let (guarantee, shape) = (Guarantee::Machine, SMALLEST);
                let first = Job { guarantee, shape, bank: &fresh, ..job }.run_and_kill(0)?;
                taken.fresh_ms.push(number(&first, "open_ms")?);
                for used in [&copied, &fresh] {
                    files(|| format!("removing {}", used.display()), fs::remove_dir_all(used))?;
                }
                let open_ms =
                    taken.opened.last().and_then(|opened| opened.get("open_ms")).and_then(Json::as_f64);
                let open_ms = open_ms.unwrap_or(f64::NAN);
                say(&format!(
                    "  {}, round {} of {}: open in {open_ms:.0} ms",
                    engine.name(),
                    round + 1,
                    args.rounds
                ));
            }
        }
        Ok(Recovery {
            shape,
            machine: Machine::here(),
            transactions: args.transactions,
            rounds: args.rounds,
            engines,
        })
    }

    /// Rows of a loaded bank.
    fn rows(&self) -> f64 {
        f64::from(self.shape.branches) * 11.0 + f64::from(self.shape.accounts)
    }

    /// Whether every engine that promises to has kept all.
    pub fn consistent(&self) -> bool {
        let is_kept =
            |taken: &Taken| !taken.engine.keeps(Guarantee::Process) || taken.kept() == self.transactions;
        self.engines.iter().all(is_kept)
    }

    /// For people.
    pub fn table(&self) -> String {
        let seconds = |spread: Option<Spread>| {
            spread.map_or("-".to_owned(), |Spread { median, least, most }| {
                format!("{:.3} ({:.3} to {:.3})", median / 1e3, least / 1e3, most / 1e3)
            })
        };
        let millis = |spread: Option<Spread>| {
            spread.map_or("-".to_owned(), |Spread { median, least, most }| {
                format!("{median:.1} ({least:.1} to {most:.1})")
            })
        };
        let head = [
            "",
            "resident bytes a row",
            "over 100",
            "open after SIGKILL, s",
            "to its first commit, s",
            "transactions kept",
            "empty to first commit, ms",
        ];
        let mut rows = vec![row(head)];
        for taken in &self.engines {
            let resident = taken.resident_bytes as f64 / self.rows();
            rows.push(row([
                taken.engine.name(),
                &format!("{resident:.0}"),
                &format!("{:.2}", resident / RECORD_BYTES),
                &seconds(taken.spread("open_ms")),
                &seconds(taken.spread("commit_ms")),
                &thousands(taken.kept() as f64),
                &millis(Spread::of(taken.fresh_ms.iter().copied())),
            ]));
        }
        let mut text = format!(
            "TPC-B, {}; {} transactions between the last checkpoint and SIGKILL\n{}\n{} rounds, files not in the page \
             cache; medians (least to most)\n\n{}\n",
            self.shape,
            thousands(self.transactions as f64),
            &self.machine.to_string(),
            self.rounds,
            aligned(&rows),
        );
        self.engines.iter().for_each(|taken| text.push_str(&self.parts(taken)));
        text
    }

    /// Where an engine's recovery went, if it tells.
    fn parts(&self, taken: &Taken) -> String {
        let median = |name: &str| taken.median(&format!("recovery.{name}"));
        let (Some(load_ms), Some(index_ms), Some(redo_ms), Some(packets)) =
            (median("load_ms"), median("index_ms"), median("redo_ms"), median("packets"))
        else {
            return String::new();
        };
        let name = taken.engine.name();
        let mb = median("loaded_bytes").unwrap_or(0.0) / 1e6;
        let mut text = format!(
            "  {name}: load {load_ms:.0} ms ({mb:.0} MB) + index {index_ms:.0} ms = {:.0} ms; redo {redo_ms:.0} ms ({} \
             transactions)\n",
            load_ms + index_ms,
            thousands(packets)
        );
        if let Some([records, disk]) = taken.load_rates() {
            let goal = (0.6 * disk).min(1e9);
            text += &format!(
                "  {name}: {:.0} MB of records, loaded and indexed at {:.2} GB/s; the disk reads the same file at {:.2} GB/s \
                 (O_DIRECT, 4 MiB a read, the faster of one and four at a time): {:.2} of that, {:.2} of the goal of {:.2} \
                 GB/s (60% of the disk or 1 GB/s, whichever is less)\n",
                median("record_bytes").unwrap_or(0.0) / 1e6,
                records / 1e9,
                disk / 1e9,
                records / disk,
                records / goal,
                goal / 1e9
            );
        }
        if let (Some(predicted_ms), Some(open)) = (median("predicted_ms"), taken.median("recovery.took_ms")) {
            text += &format!(
                "  {name}: predicted {:.2} s from what earlier openings of the bank had measured, took {:.2} s: {:.2}\n",
                predicted_ms / 1e3,
                open / 1e3,
                predicted_ms / open
            );
        }
        if let Some([redo, forward]) = self.rates(taken) {
            text += &format!(
                "  {name}: redo {} transactions/s, forward {} (level 1, {} threads both): {:.2} times\n",
                thousands(redo),
                thousands(forward),
                taken.threads,
                redo / forward
            );
        }
        text
    }

    /// Transactions a second of redo, and of forward execution on as many threads.
    fn rates(&self, taken: &Taken) -> Option<[f64; 2]> {
        let (packets, redo_ms) = (taken.median("recovery.packets")?, taken.median("recovery.redo_ms")?);
        (packets > 0.0 && self.transactions > 0)
            .then(|| [packets / redo_ms * 1e3, self.transactions as f64 / taken.work_ms * 1e3])
    }

    /// For programs.
    pub fn json(&self) -> Json {
        let spread = |spread: Option<Spread>| spread.map_or(Json::Null, |spread| spread.json());
        let engine = |taken: &Taken| {
            let rates = self.rates(taken);
            json!({
                "engine": taken.engine.name(),
                "resident_bytes": taken.resident_bytes,
                "resident_bytes_per_row": (taken.resident_bytes as f64 / self.rows()),
                "open_ms": spread(taken.spread("open_ms")),
                "commit_ms": spread(taken.spread("commit_ms")),
                "kept": taken.kept(),
                "empty_to_commit_ms": spread(Spread::of(taken.fresh_ms.iter().copied())),
                "load_ms": taken.median("recovery.load_ms"),
                "index_ms": taken.median("recovery.index_ms"),
                "redo_ms": taken.median("recovery.redo_ms"),
                "record_bytes_per_s": taken.load_rates().map(|[records, _]| records),
                "disk_bytes_per_s": taken.load_rates().map(|[_, disk]| disk),
                "predicted_ms": taken.median("recovery.predicted_ms"),
                "redo_per_s": rates.map(|[redo, _]| redo),
                "forward_per_s": rates.map(|[_, forward]| forward),
                "threads": taken.threads,
            })
        };
        json!({
            "workload": "tpcb",
            "branches": u64::from(self.shape.branches),
            "accounts": u64::from(self.shape.accounts),
            "transactions": self.transactions,
            "rounds": u64::from(self.rounds),
            "machine": self.machine.json(),
            "consistent": self.consistent(),
            "engines": Json::Array(self.engines.iter().map(engine).collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::size::disk_bytes;

    fn opened(open_ms: f64, history_rows: u64) -> Json {
        let parts = [
            ("load_ms", 100.0),
            ("loaded_bytes", 2e6),
            ("record_bytes", 1.5e8),
            ("predicted_ms", 600.0),
            ("took_ms", 800.0),
            ("index_ms", 200.0),
            ("redo_ms", 500.0),
            ("packets", 1_000.0),
        ];
        json!({
            "open_ms": open_ms,
            "commit_ms": (open_ms + 500.0),
            "history_rows": history_rows,
            "recovery": parts.into_iter().collect::<Json>(),
        })
    }

    fn taken(engine: EngineName, history_rows: u64) -> Taken {
        Taken {
            engine,
            resident_bytes: 16 * 110_000,
            work_ms: 4_000.0,
            threads: 2,
            opened: [1_000.0, 3_000.0, 2_000.0].map(|open_ms| opened(open_ms, history_rows)).to_vec(),
            fresh_ms: vec![20.0, 10.0, 500.0],
            read_bytes_per_s: vec![1e9, 9e9, 2e8],
        }
    }

    fn recovery(engines: Vec<Taken>) -> Recovery {
        let shape = Shape { branches: 1_000, accounts: 99_000 };
        Recovery { shape, machine: Machine::here(), transactions: 1_000, rounds: 3, engines }
    }

    #[test]
    fn figures_are_medians_and_redo_stands_beside_forward_execution() {
        let recovery = recovery(vec![taken(EngineName::Rialto, 1_001)]);
        let table = recovery.table();
        for shown in
            ["16 ", "0.16", "2.000 (1.000 to 3.000)", "2.500 (1.500 to 3.500)", "20.0 (10.0 to 500.0)"]
        {
            assert!(table.contains(shown), "{shown} is missing in\n{table}");
        }
        assert!(table.contains("load 100 ms (2 MB) + index 200 ms = 300 ms; redo 500 ms (1,000"), "{table}");
        assert!(
            table.contains("redo 2,000 transactions/s, forward 250 (level 1, 2 threads both): 8.00"),
            "{table}"
        );
        // 150 MB in 300 ms, from a disk of 1 GB/s.
        assert!(table.contains("150 MB of records, loaded and indexed at 0.50 GB/s"), "{table}");
        assert!(table.contains("0.50 of that, 0.83 of the goal of 0.60 GB/s"), "{table}");
        assert!(table.contains("predicted 0.60 s") && table.contains("took 0.80 s: 0.75"), "{table}");
        let json = recovery.json();
        assert_eq!(json.get("consistent"), Some(&Json::Bool(true)));
        let Some(Json::Array(engines)) = json.get("engines") else { panic!("{json}") };
        assert_eq!(engines[0].pointer("/open_ms/median").and_then(Json::as_f64), Some(2_000.0));
        assert_eq!(engines[0].get("redo_per_s").and_then(Json::as_f64), Some(2_000.0));
    }

    #[test]
    fn a_lost_transaction_is_a_failure_unless_the_engine_promises_none() {
        assert!(!recovery(vec![taken(EngineName::Rialto, 1_000)]).consistent());
        assert!(recovery(vec![taken(EngineName::Redb, 1)]).consistent());
        assert_eq!(taken(EngineName::Redb, 1).kept(), 0);
    }

    #[test]
    fn a_directory_is_copied_with_all_that_is_in_it() {
        let base = std::env::temp_dir().join(format!("peers-copy-{}", std::process::id()));
        fs::create_dir_all(base.join("from/inner")).unwrap();
        fs::write(base.join("from/inner/one"), "1").unwrap();
        fs::write(base.join("from/two"), "22").unwrap();
        // A hole, data, and a hole at the end.
        let sparse = File::create(base.join("from/sparse")).unwrap();
        sparse.write_all_at(&[7; 5_000], 100 << 20).unwrap();
        sparse.set_len(1 << 30).unwrap();
        copy(&base.join("from"), &base.join("to")).unwrap();
        let read = |name: &str| fs::read_to_string(base.join("to").join(name)).unwrap();
        let found = (read("inner/one"), read("two"));
        let sparse = File::open(base.join("to/sparse")).unwrap();
        let mut bytes = [1; 5_002];
        sparse.read_exact_at(&mut bytes, (100 << 20) - 1).unwrap();
        let (length, taken) = (sparse.metadata().unwrap().len(), disk_bytes(&base.join("to")).unwrap());
        fs::remove_dir_all(&base).unwrap();
        assert_eq!(found, ("1".to_owned(), "22".to_owned()));
        assert_eq!((bytes[0], bytes[1], bytes[5_000], bytes[5_001]), (0, 7, 7, 0));
        assert!(length == 1 << 30 && taken < 1 << 20, "{length} bytes, {taken} on disk");
    }
}

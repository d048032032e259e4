//! The speed of redo beside the speed of forward execution, for each logging strategy: TPC-B and the credit cards run
//! at level 1 on some threads, then a recovery redoes all of it on as many, in a directory of its own.
//!
//! `cargo run --release -p rialto-figures --example replay -- [SECONDS] [THREADS] [DIRECTORY]`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rialto::{Checkpointing, Database, Durability, Logging, Options, Residence};
use rialto_measure::driver::Workload;
use rialto_workloads::card::{self, Card, Mix};
use rialto_workloads::tpcb::{self, Tpcb};

fn options(logging: Logging, threads: usize) -> Options {
    Options {
        durability: Durability::Memory,
        logging,
        checkpoint: Checkpointing::None,
        log_bytes_max: 64 << 30,
        recovery_threads: threads,
        procedures: tpcb::procedures().into_iter().chain(card::procedures()).collect(),
        ..Options::default()
    }
}

/// Runs the workload on all threads; gives transactions and the time they took.
fn run<W: Workload>(workload: &W, threads: usize, time: Duration) -> (u64, Duration) {
    let over = AtomicBool::new(false);
    let began = Instant::now();
    let done = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let over = &over;
                scope.spawn(move || {
                    let mut client = workload.client(thread as u32, 1);
                    let mut done = 0;
                    while !over.load(Ordering::Relaxed) {
                        if workload.run_one(&mut client, Instant::now()).is_ok() {
                            done += 1;
                        }
                    }
                    workload.retire(client);
                    done
                })
            })
            .collect();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).sum()
    });
    (done, began.elapsed())
}

fn measure<W: Workload>(
    name: &str,
    logging: Logging,
    (time, threads, directory): (Duration, usize, &Path),
    open: impl Fn(&Database, bool) -> W,
) {
    let _ = std::fs::remove_dir_all(directory);
    let by_calls = logging == Logging::Transaction;
    let db = Database::open_with(directory, options(logging, threads)).expect("a new directory opens");
    let workload = open(&db, by_calls);
    // What is loaded is in the copy; only the transactions are redone.
    db.checkpoint().expect("a checkpoint");
    let bytes = db.metrics().log.bytes;
    let (done, took) = run(&workload, threads, time);
    db.sync().expect("the log is synced");
    let bytes = db.metrics().log.bytes - bytes;
    drop(workload);
    db.close().expect("the database closes");
    let db = Database::open_with(directory, options(logging, threads)).expect("it opens again");
    let report = db.recovery().expect("it was recovered");
    // Of those that wrote something: the others are in no log.
    let packets = report.packets as f64;
    let (forward, redo) = (packets / took.as_secs_f64(), packets / report.redo_time.as_secs_f64());
    println!(
        "{name:<5} {:<12} {done:>9} transactions, that wrote {forward:>9.0}/s  redo {redo:>9.0}/s  ratio {:>5.2}  log {:>6.1} bytes/transaction",
        format!("{logging:?}"),
        redo / forward,
        bytes as f64 / done as f64
    );
    db.close().expect("the database closes");
    let _ = std::fs::remove_dir_all(directory);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| match arguments.get(at).map(|text| text.parse::<u64>()) {
        None => Some(default),
        Some(parsed) => parsed.ok().filter(|number| *number > 0),
    };
    let (Some(seconds), Some(threads)) = (number(0, 5), number(1, 2)) else {
        eprintln!("usage: replay [SECONDS] [THREADS] [DIRECTORY]");
        return ExitCode::from(2);
    };
    let directory =
        arguments.get(2).map_or_else(|| std::env::temp_dir().join("rialto-replay"), PathBuf::from);
    let run = (Duration::from_secs(seconds), threads as usize, &*directory);
    println!(
        "{seconds} s at level 1 on {threads} threads, then recovery on {threads}, in {}",
        directory.display()
    );
    for logging in Logging::ALL {
        let shape = tpcb::Shape { branches: 10, accounts: 1_000_000 };
        measure("tpcb", logging, run, |db, calls| {
            Tpcb::open_or_load(db, Residence::Memory, shape, &mut |_| ())
                .expect("it is loaded")
                .0
                .by_calls(calls)
        });
        let shape = card::Shape::of_scale(1);
        measure("card", logging, run, |db, calls| {
            let card = Card::open_or_load(db, Residence::Memory, shape, Mix::default(), &mut |_| ());
            card.expect("it is loaded").0.by_calls(calls)
        });
    }
    ExitCode::SUCCESS
}

//! SIGKILL of real processes under load: afterwards every acknowledged transaction is there, and none in part.
//!
//! The test runs its own binary again as the child. A transfer moves money between two accounts and inserts a row with
//! its number, so half a transfer breaks the sum or the balances. The test is a program by itself: beside it no other
//! test opens a directory, whose lock a child would have until it runs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Arguments, Checkpointing, Database, Durability, Engine, Error, Executors, Flow,
    GroupCommitDesign, Logging, Options, Outputs, Procedure, Scan, TableDef, Transaction, TxOptions,
};

const ACCOUNTS: i32 = 50;
const START: i64 = 1_000;
const THREADS: u64 = 3;
/// After this many transfers the next round begins with an empty directory: on a fast machine the transfers of a whole
/// test would not fit in memory.
const TRANSFERS_MAX: usize = 150_000;
const DIRECTORY: &str = "RIALTO_KILL_DIRECTORY";
const ROUND: &str = "RIALTO_KILL_ROUND";
/// A child has the locks of this process until it runs, so tests that open directories run one after the other.
static ALONE: Mutex<()> = Mutex::new(());
/// The directory of a failed round, which is examined again.
const KEPT: &str = "RIALTO_KEPT";
const FILES: &str = "files";
const LEDGER: &str = "ledger";

/// All combinations of logging and checkpoints that can recover.
fn combinations() -> Vec<(Logging, Checkpointing)> {
    let all = Logging::ALL.into_iter().flat_map(|logging| Checkpointing::ALL.map(|of| (logging, of)));
    all.filter(|(logging, of)| logging.refuses(*of).is_none()).collect()
}

/// Each round has the next combination and the next group commit design, and another engine.
fn open(directory: &Path, round: u64) -> Database {
    let (designs, combinations, round) = (GroupCommitDesign::ALL, combinations(), round as usize);
    let (logging, checkpoint) = combinations[round % combinations.len()];
    // The combinations come again with other engines.
    let executors = Executors::of(1 + round % 9, round % 2 * 2).handing_over().into();
    let engines = [Engine::thin(), Engine::central(), executors];
    let engine = engines[(round + round / combinations.len()) % engines.len()];
    let options = Options {
        group_commit: designs[round % designs.len()].into(),
        memory_bytes: 256 << 20,
        engine,
        checkpoint,
        logging,
        procedures: vec![transfer_procedure()],
        checkpoint_interval: Duration::from_millis(50),
        ..Options::default()
    };
    Database::open_with(directory, options).unwrap()
}

fn prepare(directory: &Path) {
    let db = open(directory, 0);
    db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("balance", ColumnType::Int8)];
        let accounts = tx.create_table(&TableDef::new("accounts", columns).with_primary_key(&["id"]))?;
        for id in 0..ACCOUNTS {
            tx.insert(&accounts, &[Value::Int4(id), Value::Int8(START)])?;
        }
        let columns = ["id", "from_account", "to_account", "amount"];
        let columns = columns.map(|name| Column::new(name, ColumnType::Int8)).to_vec();
        tx.create_table(&TableDef::new("transfers", columns).with_primary_key(&["id"]))?;
        Ok(())
    })
    .unwrap();
    db.close().unwrap();
}

/// [`transfer`] as a procedure.
fn transfer_procedure() -> Procedure {
    let account = |position: usize, sign: i64| {
        let change = move |tx: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| {
            let (account, amount) = (arguments.get::<i32>(position)?, arguments.get::<i64>(3)?);
            tx.modify(arguments.table()?, account, |fields| fields.add_i64(1, sign * amount).map(drop))
                .map(drop)
        };
        Action::exclusive("accounts", change).by_argument(position)
    };
    let transfers = Action::exclusive("transfers", |tx, arguments, _| {
        let row = [
            arguments.get::<i64>(0)?,
            arguments.get::<i32>(1)?.into(),
            arguments.get::<i32>(2)?.into(),
            arguments.get::<i64>(3)?,
        ];
        tx.insert(arguments.table()?, &row.map(Value::Int8))
    });
    let flow = Flow::new().phase([account(1, -1), account(2, 1)]).phase([transfers.by_argument(0)]);
    let types = [ColumnType::Int8, ColumnType::Int4, ColumnType::Int4, ColumnType::Int8];
    Procedure::new("transfer", types, flow).deterministic(1)
}

fn transfer(db: &Database, id: i64, random: &mut Random) -> Result<(), Error> {
    let from = random.below(ACCOUNTS as u64) as i32;
    let to = (from + 1 + random.below(ACCOUNTS as u64 - 1) as i32) % ACCOUNTS;
    let amount = 1 + random.below(9) as i64;
    let level = if random.chance(1, 2) { Durability::Disk } else { Durability::Memory };
    let options = TxOptions { durability: Some(level), ..TxOptions::default() };
    if random.chance(1, 2) {
        let arguments = [Value::Int8(id), Value::Int4(from), Value::Int4(to), Value::Int8(amount)];
        return db.call_with(&options, "transfer", &arguments).map(drop);
    }
    db.transact_with(&options, |tx| {
        let (accounts, transfers) = (tx.table("accounts")?, tx.table("transfers")?);
        let row = [id, i64::from(from), i64::from(to), amount].map(Value::Int8);
        tx.insert(&transfers, &row)?;
        for (account, change) in [(from, -amount), (to, amount)] {
            tx.modify(&accounts, account, |fields| fields.add_i64(1, change).map(|_| ()))?;
        }
        Ok(())
    })
}

/// The work of a child until it is killed. As a test of its own, it does nothing.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let round: i64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let db = open(Path::new(&directory), round as u64);
    // Not through the harness, which captures a test's output.
    let pipe = std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned().unwrap();
    let out = Mutex::new(std::fs::File::from(pipe));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, out) = (&db, &out);
            scope.spawn(move || {
                let mut random = Random::new(round as u64 * THREADS + thread);
                for nth in 0..1_000_000 {
                    let id = (round * 10 + thread as i64) * 1_000_000 + nth;
                    transfer(db, id, &mut random).unwrap();
                    // In one write, so that the pipe has it whole or not at all.
                    out.lock().unwrap().write_all(format!("done {id}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

/// Lets a child run for a while, kills it, and gives what it acknowledged.
fn live(directory: &Path, round: u64, time: Duration) -> Vec<i64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    std::thread::sleep(time);
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let lines = reader.join().unwrap();
    assert!(ended.is_none(), "the child ended by itself: {lines:?}");
    let id =
        |line: String| line.strip_prefix("done ").unwrap_or_else(|| panic!("child: {line}")).parse().unwrap();
    lines.into_iter().map(id).collect()
}

fn examine(directory: &Path, acknowledged: &BTreeSet<i64>, about: &str) {
    let db = open(directory, 0);
    let (mut expected, mut found) = (vec![START; ACCOUNTS as usize], Vec::new());
    let mut transfers = BTreeSet::new();
    db.read(|tx| {
        let table = tx.table("transfers")?;
        tx.scan(&table, &Scan::all(), |_, row| {
            transfers.insert(row.get_i64(0)?);
            expected[row.get_i64(1)? as usize] -= row.get_i64(3)?;
            expected[row.get_i64(2)? as usize] += row.get_i64(3)?;
            Ok(ControlFlow::Continue(()))
        })?;
        let table = tx.table("accounts")?;
        tx.scan(&table, &Scan::all(), |_, row| {
            found.push(row.get_i64(1)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    let lost: Vec<_> = acknowledged.difference(&transfers).collect();
    assert!(lost.is_empty(), "{about}: acknowledged, but not there: {lost:?}");
    assert_eq!(found.iter().sum::<i64>(), START * i64::from(ACCOUNTS), "{about}: the sum of the balances");
    assert_eq!(found, expected, "{about}: the balances, and what the transfers make them");
    db.close().unwrap();
}

fn copy_directory(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A directory as a killed child has left it, beside the numbers of the transfers that were acknowledged.
fn keep(directory: &Path, acknowledged: &BTreeSet<i64>, to: &Path) {
    copy_directory(directory, &to.join(FILES));
    let lines: Vec<String> = acknowledged.iter().map(i64::to_string).collect();
    std::fs::write(to.join(LEDGER), lines.join("\n")).unwrap();
}

/// Examines a copy of what was kept.
fn examine_again(kept: &Path) {
    let copy = kept.join("examined");
    copy_directory(&kept.join(FILES), &copy);
    let ledger = std::fs::read_to_string(kept.join(LEDGER)).unwrap();
    let acknowledged = ledger.lines().map(|line| line.parse().expect("a number")).collect();
    examine(&copy, &acknowledged, &kept.display().to_string());
}

/// Examines a directory, and keeps it as it was found if that fails.
fn examine_or_keep(directory: &Path, acknowledged: &BTreeSet<i64>, about: &str) {
    let name = directory.file_name().expect("it has a name");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept").join(name);
    keep(directory, acknowledged, &kept);
    if let Err(panic) = catch_unwind(|| examine(directory, acknowledged, about)) {
        println!(
            "kept, to be examined again until the machine restarts, which ends the log's ring: {KEPT}={} (test \
             a_kept_directory_is_examined_again)",
            kept.display()
        );
        resume_unwind(panic);
    }
    std::fs::remove_dir_all(&kept).unwrap();
}

/// A failed round, if one is named; otherwise one that is kept here, and passes only if its ledger is true.
#[test]
fn a_kept_directory_is_examined_again() {
    if let Some(kept) = std::env::var_os(KEPT) {
        return examine_again(Path::new(&kept));
    }
    let _alone = ALONE.lock();
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{}", std::process::id()));
    let kept = directory.with_extension("kept");
    prepare(&directory);
    let mut acknowledged: BTreeSet<i64> =
        live(&directory, 1, Duration::from_millis(200)).into_iter().collect();
    keep(&directory, &acknowledged, &kept);
    examine_again(&kept);
    acknowledged.insert(i64::MAX);
    keep(&directory, &acknowledged, &kept);
    let examined = catch_unwind(|| examine_again(&kept));
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::remove_dir_all(&kept).unwrap();
    assert!(examined.is_err(), "an answer told of one transfer more than there are");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let _alone = ALONE.lock();
    let seed = Random::seed_from_environment();
    let mut random = Random::new(seed);
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kill-{seed}"));
    prepare(&directory);
    let (began, time) = (Instant::now(), Random::test_time_from_environment());
    let (mut acknowledged, mut rounds, mut transfers) = (BTreeSet::new(), 0, 0);
    while rounds < combinations().len() as u64 || began.elapsed() < time {
        rounds += 1;
        if acknowledged.len() > TRANSFERS_MAX {
            transfers += acknowledged.len();
            acknowledged.clear();
            std::fs::remove_dir_all(&directory).unwrap();
            prepare(&directory);
        }
        let milliseconds = 20 + random.below(400);
        acknowledged.extend(live(&directory, rounds, Duration::from_millis(milliseconds)));
        let about = format!("RIALTO_SEED={seed}, round {rounds}, in {}", directory.display());
        examine_or_keep(&directory, &acknowledged, &about);
    }
    transfers += acknowledged.len();
    println!(
        "tally: SIGKILL, {rounds} kills of a real process, {transfers} transactions, RIALTO_SEED={seed}"
    );
    assert!(transfers > 0, "no child came to acknowledge a transfer in {rounds} rounds, RIALTO_SEED={seed}");
    std::fs::remove_dir_all(&directory).unwrap();
}

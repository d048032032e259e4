//! Changes of definitions while the log is full to its last bytes: each is refused whole, with an error that says why
//! there is no room, and works when there is room. A crash in between, or after, finds the same definitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rialto::backup::Archive;
use rialto::io::{Caching, Disk, FaultKind, FaultyDisk};
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Engine, Error, Options, Result, TableDef, Transaction};

const LIMIT: Duration = Duration::from_secs(120);
const ROWS: i32 = 5;

/// Why the log is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    NoCheckpoints,
    CheckpointsFail,
    ArchiveFails,
}

impl Why {
    /// The text of the error about it.
    fn text(self) -> &'static str {
        match self {
            Why::NoCheckpoints => "no checkpoint is made by itself (Checkpointing::None)",
            Why::CheckpointsFail => "the last checkpoint failed",
            Why::ArchiveFails => "the archive takes none",
        }
    }
}

/// How a transaction commits.
#[derive(Debug, Clone, Copy)]
enum Way {
    Closure,
    Handle,
    Ticket,
}

type Ddl = (&'static str, fn(&mut Transaction) -> Result<()>);

/// Each on a table of its own, so that their order does not matter.
const DDL: [Ddl; 6] = [
    ("create a table", |tx| tx.create_table(&definition("made").with_primary_key(&["id"])).map(drop)),
    ("create an index", |tx| tx.create_index("indexed", "fresh", &["n"], true)),
    ("drop an index", |tx| tx.drop_index("stale")),
    ("drop a table", |tx| tx.drop_table("gone")),
    ("add a primary key", |tx| tx.add_primary_key("plain", &["id"])),
    ("truncate", |tx| {
        let table = tx.table("emptied")?;
        tx.truncate(&table)
    }),
];

fn definition(name: &str) -> TableDef {
    TableDef::new(name, vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)])
}

fn made(db: &Database) {
    db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let filler = tx.create_table(&TableDef::new("filler", columns).with_primary_key(&["id"]))?;
        (0..64).try_for_each(|id| tx.insert(&filler, &[Value::Int4(id), Value::Text(String::new())]))?;
        for name in ["indexed", "unindexed", "gone", "plain", "emptied"] {
            let def = definition(name);
            let table =
                tx.create_table(&if name == "plain" { def } else { def.with_primary_key(&["id"]) })?;
            (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(id)]))?;
        }
        tx.create_index("unindexed", "stale", &["n"], false)
    })
    .unwrap();
}

/// A table's primary key, its indexes, and how many rows are found by its primary index.
type Described = (Option<Vec<usize>>, Vec<(String, Vec<usize>, bool)>, u64);

fn described(db: &Database) -> BTreeMap<String, Described> {
    let tables = db.tables().into_iter().filter(|table| !table.name().starts_with("rialto_"));
    let describe = |table: &rialto::Table| {
        let schema = table.schema();
        let indexes = schema.indexes().iter();
        let indexes =
            indexes.map(|index| (index.name.clone(), index.columns.clone(), index.unique)).collect();
        let rows = db.transact(|tx| tx.count(table)).unwrap();
        (schema.primary_key().map(<[usize]>::to_vec), indexes, rows)
    };
    tables.filter(|table| table.name() != "filler").map(|table| (table.name(), describe(&table))).collect()
}

/// What [`described`] gives before, and after all of [`DDL`].
fn expected(after: bool) -> BTreeMap<String, Described> {
    let key = || Some(vec![0]);
    let index = |name: &str, unique| vec![(name.to_owned(), vec![1], unique)];
    let rows = ROWS as u64;
    let tables: Vec<(&str, Described)> = match after {
        false => vec![
            ("indexed", (key(), vec![], rows)),
            ("unindexed", (key(), index("stale", false), rows)),
            ("gone", (key(), vec![], rows)),
            ("plain", (None, vec![], rows)),
            ("emptied", (key(), vec![], rows)),
        ],
        true => vec![
            ("made", (key(), vec![], 0)),
            ("indexed", (key(), index("fresh", true), rows)),
            ("unindexed", (key(), vec![], rows)),
            ("plain", (key(), vec![], rows)),
            ("emptied", (key(), vec![], 0)),
        ],
    };
    tables.into_iter().map(|(name, described)| (name.to_owned(), described)).collect()
}

fn run(db: &Database, way: Way, work: impl Fn(&mut Transaction) -> Result<()>) -> Result<()> {
    if let Way::Closure = way {
        return db.transact(|tx| work(tx));
    }
    let mut tx = db.begin()?;
    if let Err(error) = work(&mut tx) {
        tx.abort()?;
        return Err(error);
    }
    match way {
        Way::Ticket => tx.submit()?.wait(),
        _ => tx.commit(),
    }
}

/// Whether there was no room, for that reason. A file that is not ready yet, and a failure that is still to come, are
/// other reasons.
fn is_full(outcome: &Result<()>, why: Why) -> bool {
    match outcome {
        Ok(()) => false,
        Err(Error::LogFull { reason }) => reason.contains("log_bytes_max") && reason.contains(why.text()),
        Err(other) => panic!("{why:?}: {other}"),
    }
}

/// Repeats the work until the log is full.
fn until_full(why: Why, mut work: impl FnMut() -> Result<()>) {
    let until = Instant::now() + LIMIT;
    while !is_full(&work(), why) {
        assert!(Instant::now() < until, "{why:?}: the log does not fill up");
    }
}

/// Fills the log with less and less at a time, down to what removes one row.
fn fill(db: &Database, why: Why) {
    let filler = db.table("filler").unwrap();
    for (rows, length) in [(32, 30_000), (1, 30_000), (1, 1_000), (1, 10)] {
        let mut letters = ('a'..='z').cycle();
        until_full(why, || {
            let text = letters.next().expect("a cycle").to_string().repeat(length);
            let text = Value::Text(text);
            db.transact(|tx| {
                (0..rows).try_for_each(|id| tx.update(&filler, id, &[(1, text.clone())]).map(drop))
            })
        });
    }
    let mut ids = 32..64;
    until_full(why, || {
        let id = ids.next().expect("few removals fill what is left");
        let outcome = db.transact(|tx| tx.delete(&filler, id).map(drop));
        if outcome.is_err() {
            ids = id..64;
        }
        outcome
    });
}

fn options(why: Why, engine: Engine, log_writes: Caching, archive: &Arc<FaultyDisk>) -> Options {
    Options {
        memory_bytes: 64 << 20,
        engine,
        log_bytes_max: 16 << 20,
        log_writes: Some(log_writes),
        log_writes_in_flight: Some(1),
        log_wait_max: Duration::from_millis(20),
        checkpoint: if why == Why::NoCheckpoints { Checkpointing::None } else { Checkpointing::Fuzzy },
        // Only checkpoints that are due for the log's room.
        checkpoint_interval: Duration::from_secs(3600),
        archive: (why == Why::ArchiveFails).then(|| Archive::on(archive.clone())),
        recovery_threads: 2,
        ..Options::default()
    }
}

fn reopened(disk: &Arc<FaultyDisk>, options: &Options, case: &str) -> (Arc<FaultyDisk>, Database) {
    let disk = disk.restart();
    let shared: Arc<dyn Disk> = disk.clone();
    let report = check(&shared, 64 << 20, 2).unwrap();
    assert!(report.is_sound(), "{case}: {report}");
    let db =
        Database::open_on(disk.clone(), options.clone()).unwrap_or_else(|error| panic!("{case}: {error}"));
    (disk, db)
}

fn definitions_on_a_full_log(why: Why, engine: Engine, log_writes: Caching, crashes_full: bool) {
    let case = format!("{why:?}, {engine}, {log_writes:?}, crash while it is full: {crashes_full}");
    let (mut disk, archive) = (FaultyDisk::new(3), FaultyDisk::new(4));
    let options = options(why, engine, log_writes, &archive);
    let mut db = Database::open_on(disk.clone(), options.clone()).unwrap();
    made(&db);
    match why {
        Why::NoCheckpoints => {}
        Why::CheckpointsFail => disk.fail_always(FaultKind::Write, "backup-", 0),
        Why::ArchiveFails => archive.fail_always(FaultKind::Write, "log-", 0),
    }
    fill(&db, why);
    for (what, ddl) in DDL {
        for way in [Way::Closure, Way::Handle, Way::Ticket] {
            until_full(why, || {
                let outcome = run(&db, way, ddl);
                assert!(outcome.is_err(), "{case}, {what}, {way:?}");
                assert_eq!(described(&db), expected(false), "{case}, {what}, {way:?}");
                outcome
            });
        }
    }
    if crashes_full {
        disk.crash();
        drop(db);
        (disk, db) = reopened(&disk, &options, &case);
        assert_eq!(described(&db), expected(false), "{case}");
    }

    // Room is made.
    disk.mend();
    archive.mend();
    db.set_checkpoint(Checkpointing::Fuzzy).unwrap();
    let until = Instant::now() + LIMIT;
    for ((what, ddl), way) in
        DDL.into_iter().zip([Way::Closure, Way::Handle, Way::Ticket].into_iter().cycle())
    {
        while let Err(error) = run(&db, way, ddl) {
            assert!(matches!(error, Error::LogFull { .. }), "{case}, {what}, {way:?}: {error}");
            assert!(Instant::now() < until, "{case}, {what}, {way:?}: room is not made: {error}");
        }
    }
    assert_eq!(described(&db), expected(true), "{case}");
    disk.crash();
    drop(db);
    let (_, db) = reopened(&disk, &options, &case);
    assert_eq!(described(&db), expected(true), "{case}");
}

/// Each reason on each engine, and each way of writing with each of both.
#[test]
fn definitions_are_refused_whole_by_a_full_log_and_work_when_there_is_room() {
    let ways_of_writing = [Caching::Buffered, Caching::Direct, Caching::DirectSync];
    for (n, why) in [Why::NoCheckpoints, Why::CheckpointsFail, Why::ArchiveFails].into_iter().enumerate() {
        for (m, engine) in Engine::ALL.into_iter().enumerate() {
            definitions_on_a_full_log(why, engine, ways_of_writing[(n + m) % 3], (n + m) % 2 == 0);
        }
    }
}

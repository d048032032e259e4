//! Parts of phases with few threads and small bounds: they take nothing that the transactions for which they wait need.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{in_time, until};
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Durability, Executors, Flow, Options, Procedure, ScanMode, Table,
    TableDef,
};

/// The limit of each wait in these tests; shorter than a lock time-out.
const LIMIT: Duration = Duration::from_secs(60);

/// This many threads, each of which has a hundred keys of a table; the other column has a unique index. The procedure
/// `put` inserts a row for each thread.
fn database(threads: usize, options: Options) -> (Database, Table) {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: Executors::of(threads, threads).handing_over().into(),
        lock_timeout: 4 * LIMIT,
        log_wait_max: 4 * LIMIT,
        ..options
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    let table = db
        .transact(|tx| {
            let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
            tx.create_index("t", "by_n", &["n"], true)?;
            Ok(table)
        })
        .unwrap();
    let bounds: Vec<_> = keys(threads, 0)[1..].iter().map(|bound| vec![bound.clone()]).collect();
    db.set_routing("t", WhichIndex::Primary, &bounds).unwrap();
    (db, table)
}

/// A key of each thread: the row of this number among its own.
fn keys(threads: usize, row: i32) -> Vec<Value> {
    (0..threads as i32).map(|thread| Value::Int4(100 * thread + row)).collect()
}

fn register(db: &Database, name: &str, threads: usize, actions: impl IntoIterator<Item = Action>) {
    db.register(Procedure::new(name, vec![ColumnType::Int4; threads], Flow::new().phase(actions))).unwrap();
}

/// Inserts a row at each thread, whose unique number is that of `n`. Counts the bodies that have begun.
fn put(thread: usize, n: impl Fn(i32) -> i32 + Send + Sync + 'static, begun: &Arc<AtomicU32>) -> Action {
    let begun = begun.clone();
    let put = Action::exclusive("t", move |tx, arguments, _| {
        let id: i32 = arguments.get(thread)?;
        begun.fetch_add(1, Ordering::SeqCst);
        tx.insert(arguments.table()?, &[Value::Int4(id), Value::Int4(n(id))])
    });
    put.by_argument(thread)
}

/// All parts but the first of two calls are on queues that are retired, and so come to one queue; each part of the
/// second call waits for one of the first. All parts of the first one run there all the same.
#[test]
fn a_part_that_waits_for_no_lock_runs_beside_any_number_that_do() {
    const THREADS: usize = 8;
    in_time(2 * LIMIT, || {
        let (db, _) = database(THREADS, Options { transactions_max: 5, ..Options::default() });
        let (held, put_by, go_on) =
            (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let hold = |thread: usize| {
            let (held, go_on) = (held.clone(), go_on.clone());
            let hold = Action::exclusive("t", move |_, _, _| {
                held.fetch_add(1, Ordering::SeqCst);
                until("the end of the bodies that hold threads", || go_on.load(Ordering::SeqCst));
                Ok(())
            });
            hold.by_argument(thread)
        };
        register(&db, "hold", THREADS, (1..THREADS).map(hold));
        let to_thread = |id: i32| id / 100;
        register(&db, "put", THREADS, (0..THREADS).map(|thread| put(thread, to_thread, &put_by)));

        let hold = db.send_call("hold", &keys(THREADS, 1)).unwrap();
        until("bodies that hold threads", || held.load(Ordering::SeqCst) == THREADS as u32 - 1);
        let sent = [2, 3].map(|row| {
            let sent = db.send_call("put", &keys(THREADS, row)).unwrap();
            until("its first body", || put_by.load(Ordering::SeqCst) == row as u32 - 1);
            sent
        });
        db.set_executor_threads(1..=1).unwrap();
        go_on.store(true, Ordering::SeqCst);
        hold.wait().unwrap();
        let [one, other] = sent;
        in_time(LIMIT, || one.wait()).unwrap();
        let refused = other.wait().unwrap_err();
        assert!(matches!(refused, rialto::Error::DuplicateKey { .. }), "{refused}");
    });
}

/// With the least number of packets: all parts that can be write, and wait for locks of a transaction that has not
/// written yet. It has a packet.
#[test]
fn parts_leave_a_packet_to_each_transaction() {
    const THREADS: usize = 4;
    const MOST: usize = 8;
    in_time(2 * LIMIT, || {
        let options = Options { transactions_max: MOST, packets_max: 1, ..Options::default() };
        let (db, table) = database(THREADS, options);
        register(&db, "put", THREADS, (0..THREADS).map(|thread| put(thread, |id| id, &Arc::default())));
        let mut handle = db.begin().unwrap();
        for key in [1, 2].into_iter().flat_map(|row| keys(THREADS, row)) {
            let by_n = WhichIndex::Secondary(0);
            let there = handle.look_by(&table, by_n, &[key][..], ScanMode::Share, |_| ()).unwrap();
            assert_eq!(there, None);
        }
        let sent = [1, 2].map(|row| db.send_call("put", &keys(THREADS, row)).unwrap());
        until("all parts to wait", || db.lock_waits().len() == 2 * THREADS);
        let handle = in_time(LIMIT, move || {
            handle.insert(&table, &[Value::Int4(50), Value::Int4(50)]).unwrap();
            handle
        });
        handle.commit().unwrap();
        for sent in sent {
            assert_eq!(sent.wait(), Ok(vec![]));
        }
    });
}

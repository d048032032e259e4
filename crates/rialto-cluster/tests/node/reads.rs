//! Reads at replicas that are not primaries: how old they are, what they have, and how they give way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rialto_cluster::control::Access;
use rialto_cluster::node::{Node, NotHere, ToldPlace};
use rialto_cluster::protocol::{Epoch, PartitionId};
use rialto_sql::Session;

use crate::cluster::{Cluster, patience, soon};
use crate::sql::{ready, run, session, try_run};

/// As [`soon`], for what a bug may keep from coming: one step alone.
pub fn comes(what: &str, mut is_so: impl FnMut() -> bool) {
    let is_short = std::env::var_os("RIALTO_PATIENCE_S").is_some();
    let (began, patience) = (Instant::now(), if is_short { patience() / 4 } else { patience() });
    while !is_so() {
        assert!(began.elapsed() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn code(session: &mut Session, sql: &str) -> String {
    match try_run(session, sql) {
        Ok(rows) => panic!("{sql}: {rows:?}"),
        Err(error) => error.sqlstate.code().to_owned(),
    }
}

/// The first column, as numbers.
fn numbers(session: &mut Session, sql: &str) -> Vec<i64> {
    run(session, sql).iter().map(|row| row[0].parse().unwrap()).collect()
}

fn at_replicas(node: &Node) -> u64 {
    node.transactions().counts().reads_at_replicas
}

/// One partition, whose primary is on node 0, with a replica on each other node.
pub fn one_partition(cluster: Cluster, replicas: usize) -> Cluster {
    ready(&cluster, 1, replicas);
    cluster.change_primary(0, 0);
    ready(&cluster, 1, replicas);
    cluster
}

/// A session at a node that knows this table.
pub fn session_with(cluster: &Cluster, node: usize, table: &str) -> Session {
    let mut session = session(cluster, node);
    soon("the node knows the table", || {
        try_run(&mut session, &format!("SELECT count(*) FROM {table}")).is_ok()
    });
    session
}

/// Waits until a replica that follows can be read.
pub fn readable(cluster: &Cluster, node: usize) {
    soon("the replica can be read", || {
        cluster.replica(node, 0).read_here(Duration::from_secs(3600), None, Duration::ZERO).is_ok()
    });
}

/// What is read has everything that was answered longer ago than the session accepts, and nothing that came after something that
/// it lacks; and costs no message.
#[test]
fn what_is_read_is_a_beginning_and_no_older_than_asked_for() {
    const STALENESS: Duration = Duration::from_millis(20);
    let cluster = one_partition(Cluster::calm("young", 2, 1, 2), 2);
    let mut writer = session(&cluster, 0);
    run(&mut writer, "CREATE TABLE told (id bigint PRIMARY KEY)");
    let mut reader = session_with(&cluster, 1, "told");
    run(&mut reader, "SET rialto.read_staleness = '20ms'");
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let writes = {
        let (stop, answered) = (stop.clone(), answered.clone());
        move || {
            for id in 1.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                run(&mut writer, &format!("INSERT INTO told VALUES ({id})"));
                answered.lock().push(Instant::now());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    let writing = std::thread::spawn(writes);
    let before = at_replicas(cluster.node(1));
    let mut reads = 0;
    soon("replicas are read", || {
        let begins = Instant::now();
        let told = answered.lock().iter().filter(|at| **at + STALENESS <= begins).count() as i64;
        let ids = numbers(&mut reader, "SELECT id FROM told ORDER BY id");
        assert_eq!(ids, (1..=ids.len() as i64).collect::<Vec<_>>(), "what is read is a beginning");
        assert!(ids.len() as i64 >= told, "{} rows, and {told} were answered long ago", ids.len());
        reads += 1;
        // For some heartbeats, by which the redo of a replica goes on that asks for nothing.
        let has_lasted = reads >= 200 && answered.lock().len() >= 400;
        has_lasted && at_replicas(cluster.node(1)) >= before + 20
    });
    stop.store(true, Ordering::Relaxed);
    writing.join().unwrap();
    // A session that accepts more asks for nothing.
    run(&mut reader, "SET rialto.read_staleness = '1h'");
    readable(&cluster, 1);
    let (messages, reads) =
        (cluster.node(1).transactions().transaction_counts().messages, at_replicas(cluster.node(1)));
    (0..20).for_each(|_| drop(run(&mut reader, "SELECT id FROM told WHERE id = 1")));
    assert_eq!(at_replicas(cluster.node(1)), reads + 20);
    assert_eq!(cluster.node(1).transactions().transaction_counts().messages, messages);
    // Level 3 is the primary's.
    run(&mut reader, "SET rialto.durability = 'disk'");
    run(&mut reader, "SELECT id FROM told WHERE id = 1");
    assert_eq!(at_replicas(cluster.node(1)), reads + 20);
}

/// Without a primary the tables of a replica grow older: those that accept less are refused, those that accept more go on.
#[test]
fn a_replica_that_hears_no_primary_grows_old() {
    let mut cluster = one_partition(Cluster::calm("grows-old", 2, 1, 2), 2);
    readable(&cluster, 1);
    let replica = cluster.replica(1, 0);
    let young = Duration::from_millis(100);
    soon("the replica is young", || replica.read_here(young, None, young).is_ok());
    // Without the store it does not lead.
    cluster.clients[1].set_access(Access::Away);
    cluster.stop(0);
    comes("the replica is too old", || {
        matches!(replica.read_here(young, None, Duration::ZERO), Err(NotHere::TooOld))
    });
    assert!(
        replica.read_here(Duration::from_secs(3600), None, Duration::ZERO).is_ok(),
        "one that accepts more"
    );
}

/// A session reads what it has written, at any node, also after another replica has begun to lead.
#[test]
fn what_a_session_has_written_is_read_behind_its_position() {
    let cluster = one_partition(Cluster::calm("own-writes", 3, 1, 3), 3);
    let mut writer = session(&cluster, 1);
    run(&mut writer, "CREATE TABLE own (id bigint PRIMARY KEY)");
    assert_eq!(run(&mut session(&cluster, 1), "SHOW rialto.commit_position"), [[""]]);
    let mut readers = [session_with(&cluster, 1, "own"), session_with(&cluster, 2, "own")];
    for reader in &mut readers {
        run(reader, "SET rialto.read_staleness = '1h'");
    }
    (1..3).for_each(|node| readable(&cluster, node));
    for id in 1..=40 {
        match id % 2 {
            0 => drop(run(&mut writer, &format!("INSERT INTO own VALUES ({id})"))),
            _ => {
                run(&mut writer, "BEGIN");
                run(&mut writer, &format!("INSERT INTO own VALUES ({id})"));
                run(&mut writer, "COMMIT");
            }
        }
        let position = run(&mut writer, "SHOW rialto.commit_position")[0][0].clone();
        // What only reads leaves it as it is.
        run(&mut writer, "SELECT count(*) FROM own");
        for reader in &mut readers {
            run(reader, &format!("SET rialto.read_after = '{position}'"));
            assert_eq!(numbers(reader, "SELECT id FROM own").len(), id as usize);
        }
    }
    assert!((1..3).any(|node| at_replicas(cluster.node(node)) >= 10), "some are read at replicas");
    cluster.change_primary(0, 1);
    ready(&cluster, 1, 3);
    readable(&cluster, 2);
    let before = at_replicas(cluster.node(2));
    comes("the replica is read behind the position", || {
        assert_eq!(numbers(&mut readers[1], "SELECT id FROM own").len(), 40);
        at_replicas(cluster.node(2)) > before
    });
}

/// A position of one partition, as a session tells it.
pub fn told(position: &str) -> ToldPlace {
    let (_, place) = position.split_once(':').expect("the cluster's number comes first");
    let told: Vec<u64> = place.split('.').map(|number| number.parse().unwrap()).collect();
    ToldPlace { opening: Epoch(told[1]), place: rialto::Lsn(told[2]) }
}

/// Positions that were told before answers may have been lost by force mean nothing any more.
#[test]
fn a_position_from_before_a_loss_is_refused() {
    let cluster = one_partition(Cluster::calm("lost", 2, 1, 2), 2);
    let mut session = session(&cluster, 1);
    run(&mut session, "CREATE TABLE own (id bigint PRIMARY KEY)");
    run(&mut session, "INSERT INTO own VALUES (1)");
    let position = run(&mut session, "SHOW rialto.commit_position")[0][0].clone();
    let place = told(&position);
    cluster.replica(1, 0).force(Vec::new());
    soon("the replica leads by force", || {
        let configuration = cluster.replica(1, 0).status().configuration;
        configuration.is_some_and(|configuration| configuration.lost_before.disks > Epoch(0))
            && cluster.replica(1, 0).admit().is_ok()
    });
    ready(&cluster, 1, 2);
    soon("the other replica can be read", || {
        cluster.replica(0, 0).read_here(Duration::from_secs(3600), None, Duration::ZERO).is_ok()
    });
    let read = cluster.replica(0, 0).read_here(Duration::from_secs(3600), Some(place), Duration::ZERO);
    assert!(matches!(read, Err(NotHere::Lost(_))), "{:?}", read.err());
    // Nor is a new one told for what was written then.
    assert_eq!(code(&mut session, "SHOW rialto.commit_position"), "55000");
    let mut session = session_with(&cluster, 0, "own");
    run(&mut session, "SET rialto.read_staleness = '1h'");
    run(&mut session, &format!("SET rialto.read_after = '{position}'"));
    assert_eq!(code(&mut session, "SELECT id FROM own"), "55000");
    // A block goes back behind the error.
    run(&mut session, "BEGIN READ ONLY");
    run(&mut session, "SAVEPOINT s");
    assert_eq!(code(&mut session, "SELECT id FROM own"), "55000");
    run(&mut session, "ROLLBACK TO s");
    run(&mut session, "COMMIT");
    // Those of another cluster, and of partitions that there are not, are none at all.
    let (_, places) = position.split_once(':').unwrap();
    for other in [format!("a{position}"), position.replace(places, "1.1.1")] {
        assert_eq!(code(&mut session, &format!("SET rialto.read_after = '{other}'")), "22023");
    }
    assert_eq!(run(&mut session, "SHOW rialto.read_after"), [[position]]);
    run(&mut session, "RESET rialto.read_after");
    assert_eq!(numbers(&mut session, "SELECT id FROM own"), [1]);
}

/// All statements of a transaction that is read only see one state of a partition, while it changes.
#[test]
fn no_half_of_a_transaction_is_read() {
    let cluster = one_partition(Cluster::calm("halves", 2, 1, 2), 2);
    let mut writer = session(&cluster, 0);
    crate::sql::bank(&mut writer);
    let mut reader = session_with(&cluster, 1, "accounts");
    run(&mut reader, "SET rialto.read_staleness = '1h'");
    readable(&cluster, 1);
    let stop = Arc::new(AtomicBool::new(false));
    let writing = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut random = rialto::io::Random::new(7);
            while !stop.load(Ordering::Relaxed) {
                let (from, to) = (1 + random.below(20) as i64, 21 + random.below(20) as i64);
                crate::sql::transfer(&mut writer, from, to, 1).unwrap();
            }
        })
    };
    let mut states = std::collections::BTreeSet::new();
    soon("several states are read", || {
        let sums: Result<Vec<i64>, _> = (|| {
            try_run(&mut reader, "BEGIN READ ONLY")?;
            let mut sums = Vec::new();
            for half in ["id <= 20", "id > 20"] {
                let rows = try_run(&mut reader, &format!("SELECT balance FROM accounts WHERE {half}"))?;
                sums.push(rows.iter().map(|row| row[0].parse::<i64>().unwrap()).sum());
            }
            try_run(&mut reader, "COMMIT")?;
            Ok::<_, rialto_sql::SqlError>(sums)
        })();
        match sums {
            Ok(sums) => {
                assert_eq!(sums.iter().sum::<i64>(), 100 * crate::sql::ACCOUNTS);
                states.insert(sums[0]);
            }
            Err(error) => {
                // It gave way, or was the victim of a deadlock with the redo.
                assert!(["40001", "40P01"].contains(&error.sqlstate.code()), "{error}");
                let _ = try_run(&mut reader, "ROLLBACK");
            }
        }
        states.len() >= 10 && at_replicas(cluster.node(1)) >= 10
    });
    stop.store(true, Ordering::Relaxed);
    writing.join().unwrap();
}

#[test]
fn a_transaction_that_reads_at_replicas_does_not_write() {
    let cluster = one_partition(Cluster::calm("no-writes", 2, 1, 2), 2);
    let mut session = session(&cluster, 1);
    run(&mut session, "CREATE TABLE t (id bigint PRIMARY KEY, v bigint)");
    run(&mut session, "INSERT INTO t VALUES (1, 10), (2, 20)");
    run(&mut session, "SET rialto.read_staleness = '1h'");
    let position = run(&mut session, "SHOW rialto.commit_position")[0][0].clone();
    run(&mut session, &format!("SET rialto.read_after = '{position}'"));
    readable(&cluster, 1);
    let before = at_replicas(cluster.node(1));
    soon("the transaction reads at the replica", || {
        run(&mut session, "BEGIN READ ONLY");
        assert_eq!(numbers(&mut session, "SELECT v FROM t WHERE id = 1"), [10]);
        run(&mut session, "SAVEPOINT s");
        assert_eq!(code(&mut session, "INSERT INTO t VALUES (3, 30)"), "25006");
        run(&mut session, "ROLLBACK TO s");
        // Also if it says later that it writes.
        if try_run(&mut session, "SET TRANSACTION READ WRITE").is_ok() {
            assert_eq!(code(&mut session, "UPDATE t SET v = 11 WHERE id = 1"), "25006");
        }
        run(&mut session, "ROLLBACK");
        at_replicas(cluster.node(1)) > before
    });
    // A lock is the primary's, and so is what writes.
    let before = at_replicas(cluster.node(1));
    assert_eq!(numbers(&mut session, "SELECT v FROM t WHERE id = 1 FOR UPDATE"), [10]);
    run(&mut session, "UPDATE t SET v = 11 WHERE id = 1");
    run(&mut session, "BEGIN");
    assert_eq!(numbers(&mut session, "SELECT v FROM t WHERE id = 1"), [11]);
    run(&mut session, "COMMIT");
    assert_eq!(at_replicas(cluster.node(1)), before);
    // A result of many portions, some of which are not fetched.
    run(&mut session, "INSERT INTO t SELECT i, i FROM generate_series(100, 30000) AS i");
    let position = run(&mut session, "SHOW rialto.commit_position")[0][0].clone();
    run(&mut session, &format!("SET rialto.read_after = '{position}'"));
    assert_eq!(numbers(&mut session, "SELECT id FROM t").len(), 29_903);
    assert_eq!(numbers(&mut session, "SELECT id FROM t ORDER BY id LIMIT 2"), [1, 2]);
    soon("no reader is left", || cluster.replica(1, 0).readers() == 0);
}

/// The redo goes on after some time, though a transaction that has read stays open.
#[test]
fn an_idle_reader_gives_way_to_the_redo() {
    let cluster = Cluster::calm_and_yielding("gives-way", 2, Duration::from_millis(200));
    let cluster = one_partition(cluster, 2);
    let mut writer = session(&cluster, 0);
    crate::sql::bank(&mut writer);
    let mut reader = session_with(&cluster, 1, "accounts");
    begin_to_read(&cluster, &mut reader, &mut writer);
    run(&mut writer, "UPDATE accounts SET balance = balance + 1");
    comes("the reader gives way", || cluster.replica(1, 0).readers() == 0);
    assert_eq!(code(&mut reader, "SELECT balance FROM accounts WHERE id = 1"), "40001");
    run(&mut reader, "ROLLBACK");
    assert!(cluster.node(1).transactions().counts().reads_ended > 0);
    let position = run(&mut writer, "SHOW rialto.commit_position")[0][0].clone();
    run(&mut reader, &format!("SET rialto.read_after = '{position}'"));
    assert_eq!(numbers(&mut reader, "SELECT balance FROM accounts WHERE id = 1"), [101]);
}

/// A block that has read all accounts at the replica of node 1.
pub fn begin_to_read(cluster: &Cluster, reader: &mut Session, writer: &mut Session) {
    let position = run(writer, "SHOW rialto.commit_position")[0][0].clone();
    run(reader, "SET rialto.read_staleness = '1h'");
    run(reader, &format!("SET rialto.read_after = '{position}'"));
    soon("the block reads at the replica", || {
        run(reader, "BEGIN READ ONLY");
        assert_eq!(numbers(reader, "SELECT balance FROM accounts").len() as i64, crate::sql::ACCOUNTS);
        let reads = cluster.replica(1, 0).readers() == 1;
        if !reads {
            run(reader, "COMMIT");
        }
        reads
    });
}

/// A replica leads although a transaction has read there, stays open, and keeps the redo from getting on.
#[test]
fn a_takeover_does_not_wait_for_readers() {
    // The redo itself waits for readers for ever here.
    let cluster = one_partition(Cluster::calm("takeover", 2, 1, 2), 2);
    let mut writer = session(&cluster, 0);
    crate::sql::bank(&mut writer);
    let mut reader = session_with(&cluster, 1, "accounts");
    begin_to_read(&cluster, &mut reader, &mut writer);
    run(&mut writer, "UPDATE accounts SET balance = balance + 1");
    let replica = cluster.node(1).replica(PartitionId(0)).unwrap();
    cluster.switch_over(0, 1);
    comes("the replica leads", || replica.admit().is_ok());
    assert_eq!(code(&mut reader, "SELECT balance FROM accounts WHERE id = 1"), "40001");
    run(&mut reader, "ROLLBACK");
    assert_eq!(numbers(&mut reader, "SELECT balance FROM accounts WHERE id = 1"), [101]);
}

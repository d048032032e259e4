//! Backups of a cluster that is used: each is the state of all partitions at one moment, and a new cluster is made of
//! it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rialto_cluster::node::{BackupStatus, MANIFEST, Manifest, restore_partition};
use rialto_sql::Session;

use crate::cluster::{Cluster, Directory, soon};
use crate::sql::{ACCOUNTS, bank, ready, run, session, total, try_run};

/// Takes a backup, and waits for its end.
fn take(cluster: &Cluster, node: usize, to: &Path) -> Result<Manifest, String> {
    let begun = cluster.node(node).begin_backup(to)?;
    ended(cluster, node, begun)
}

/// Waits for the end of a backup.
fn ended(cluster: &Cluster, node: usize, begun: String) -> Result<Manifest, String> {
    let mut status = BackupStatus::None;
    soon("the backup ends", || {
        status = cluster.node(node).backup_status();
        !matches!(status, BackupStatus::Runs { .. })
    });
    match status {
        BackupStatus::Done(manifest) if manifest.backup == begun => Ok(*manifest),
        BackupStatus::Failed { backup, why } if backup == begun => Err(why),
        other => panic!("{other:?}"),
    }
}

/// Takes one. On a busy machine something may stay in doubt for too long, or a primary change: then it is taken again.
fn taken(cluster: &Cluster, node: usize, to: &Path) -> Manifest {
    for _ in 0..20 {
        match take(cluster, node, to) {
            Ok(manifest) => return manifest,
            Err(why) => {
                println!("no backup: {why}");
                assert!(why.contains("run it again") || why.contains(PRIMARY_CHANGED), "{why}");
                assert!(!to.exists(), "nothing is left of it");
            }
        }
    }
    panic!("no backup was taken")
}

/// Why there is no backup where a primary changes.
const PRIMARY_CHANGED: &str = "primary has changed";

/// The numbers of transactions that were answered, in their order, for each client.
type Answered = Arc<Vec<Mutex<Vec<i64>>>>;

/// Runs a client's next transaction. Client 3 adds a row each time. The others change two accounts, whose rows mostly
/// lie in two partitions, and add a row, in turn.
fn next(session: &mut Session, client: i64, number: i64, random: &mut rialto::io::Random) -> bool {
    let account = |random: &mut rialto::io::Random| 1 + random.below(ACCOUNTS as u64) as i64;
    let (from, to) = (account(random), account(random));
    if number % 2 == 1 || from == to || client == 3 {
        let id = client * 1_000_000 + number;
        return try_run(session, &format!("INSERT INTO notes VALUES ({id}, {client}, {number})")).is_ok();
    }
    let mut statements = vec!["BEGIN".to_owned()];
    for (account, amount) in [(from, -1), (to, 1)] {
        statements.push(format!("UPDATE accounts SET balance = balance + {amount} WHERE id = {account}"));
        statements.push(format!("INSERT INTO ledger VALUES ({account}, {client}, {number}, {amount})"));
    }
    statements.push("COMMIT".to_owned());
    for statement in &statements {
        if try_run(session, statement).is_err() {
            let _ = try_run(session, "ROLLBACK");
            return false;
        }
    }
    true
}

fn numbers(session: &mut Session, sql: &str) -> Vec<Vec<i64>> {
    let rows = run(session, sql);
    rows.into_iter().map(|row| row.iter().map(|value| value.parse().unwrap()).collect()).collect()
}

/// What is in a cluster that was made of a backup, taken after `before` of each client's transactions were answered,
/// of those that are answered by now. Gives how many tables it has of those that were made meanwhile.
fn verify(backup: &Path, name: &str, before: &[usize], answered: &[Vec<i64>]) -> usize {
    // What is prepared would get its decision as soon as the new cluster runs.
    let apart = Directory::new(&format!("{name}-apart"));
    for of in &Manifest::read(backup).unwrap().partitions {
        restore_partition(backup, of, apart.path()).unwrap();
        let path = apart.path().join(format!("partition-{}/database", of.partition));
        let db = rialto::Database::open(path).unwrap();
        assert!(db.prepared().is_empty(), "partition {}: something is in doubt in the backup", of.partition);
        db.close().unwrap();
    }
    let restored = Cluster::restored(name, 2, 2, backup);
    ready(&restored, 4, 2);
    let mut session = session(&restored, 1);
    assert_eq!(total(&mut session), 100 * ACCOUNTS, "money stays");
    let ledger = numbers(&mut session, "SELECT account, client, number, amount FROM ledger");
    for row in numbers(&mut session, "SELECT id, balance FROM accounts") {
        let changed: i64 = ledger.iter().filter(|entry| entry[0] == row[0]).map(|entry| entry[3]).sum();
        assert_eq!(row[1], 100 + changed, "account {}", row[0]);
    }
    let notes = numbers(&mut session, "SELECT client, number FROM notes");
    for (client, (before, answered)) in before.iter().zip(answered).enumerate() {
        let client = client as i64;
        let transfers: Vec<i64> =
            ledger.iter().filter(|entry| entry[1] == client).map(|entry| entry[2]).collect();
        let mut there: BTreeSet<i64> = transfers.iter().copied().collect();
        assert_eq!(transfers.len(), 2 * there.len(), "client {client}: a transfer is there by half");
        there.extend(notes.iter().filter(|note| note[0] == client).map(|note| note[1]));
        let present: Vec<bool> = answered.iter().map(|number| there.contains(number)).collect();
        let count = present.iter().filter(|is_there| **is_there).count();
        assert!(count >= *before, "client {client}: what was answered before is there: {count} of {before}");
        assert!(
            present[..count].iter().all(|is_there| *is_there),
            "client {client}: one is there, and an earlier one not"
        );
    }
    // It is a cluster like any other.
    run(&mut session, "UPDATE accounts SET balance = balance + 1");
    assert_eq!(total(&mut session), 101 * ACCOUNTS);
    // Definitions are in all partitions, or in none.
    let mut tables = 0;
    loop {
        match try_run(&mut session, &format!("SELECT count(*) FROM t{tables}")) {
            Ok(rows) => assert_eq!(rows, [["0"]]),
            Err(error) if error.sqlstate.code() == "42P01" => break,
            Err(error) => panic!("t{tables}: {error}"),
        }
        run(&mut session, &format!("INSERT INTO t{tables} SELECT i FROM generate_series(1, 50) AS i"));
        tables += 1;
    }
    for later in tables..tables + 3 {
        run(&mut session, &format!("CREATE TABLE t{later} (id int PRIMARY KEY)"));
    }
    tables
}

#[test]
fn a_backup_is_the_state_of_one_moment() {
    let cluster = Cluster::calm("backup", 3, 4, 2);
    ready(&cluster, 4, 2);
    let mut first = session(&cluster, 0);
    bank(&mut first);
    run(
        &mut first,
        "CREATE TABLE ledger (account int, client int, number int, amount int, PRIMARY KEY (account, client, number))",
    );
    run(&mut first, "CREATE TABLE notes (id int PRIMARY KEY, client int, number int)");
    const CLIENTS: usize = 4;
    let stop = Arc::new(AtomicBool::new(false));
    let answered: Answered = Arc::new((0..CLIENTS).map(|_| Mutex::default()).collect());
    let mut threads: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut session = session(&cluster, client % 3);
            let (stop, answered) = (stop.clone(), answered.clone());
            std::thread::spawn(move || {
                let mut random = rialto::io::Random::new(client as u64);
                for number in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    if next(&mut session, client as i64, number, &mut random) {
                        answered[client].lock().unwrap().push(number);
                    }
                }
            })
        })
        .collect();
    let (mut defining, defines) = (session(&cluster, 2), stop.clone());
    let made = Arc::new(AtomicUsize::new(0));
    let counts_made = made.clone();
    threads.push(std::thread::spawn(move || {
        let mut number = 0;
        while !defines.load(Ordering::Relaxed) && number < 40 {
            match try_run(&mut defining, &format!("CREATE TABLE t{number} (id int PRIMARY KEY)")) {
                Ok(_) => number += 1,
                // An earlier try has had its effect, which was not known.
                Err(error) if error.sqlstate.code() == "42P07" => number += 1,
                Err(error) => println!("t{number}: {error}"),
            }
            counts_made.store(number, Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }));
    let counts = || -> Vec<usize> { answered.iter().map(|of| of.lock().unwrap().len()).collect() };
    let directory = Directory::new("backups");
    let mut backups = Vec::new();
    for number in 0..4 {
        let count = counts();
        soon("transfers run", || counts().iter().zip(&count).all(|(now, then)| *now > then + 40));
        let tables = made.load(Ordering::Relaxed);
        soon("tables are made", || made.load(Ordering::Relaxed) > tables.min(number));
        let (tables, to, before) =
            (made.load(Ordering::Relaxed), directory.path().join(number.to_string()), counts());
        let manifest = taken(&cluster, number % 3, &to);
        assert_eq!(manifest.partitions.len(), 4);
        backups.push((to, before, tables));
    }
    let count = counts();
    soon("transfers run", || counts().iter().zip(&count).all(|(now, then)| *now > then + 5));
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let answered: Vec<Vec<i64>> = answered.iter().map(|of| of.lock().unwrap().clone()).collect();
    println!("answered: {:?}", answered.iter().map(Vec::len).collect::<Vec<_>>());
    // What is there is not written to.
    let refused = take(&cluster, 0, &backups[0].0).unwrap_err();
    assert!(refused.contains("is not empty"), "{refused}");
    drop(cluster);
    for (number, (backup, before, tables)) in backups.iter().enumerate() {
        let has = verify(backup, &format!("restored-{number}"), before, &answered);
        assert!(has >= *tables && has > 0, "{has} tables of the {tables} that were made before the backup");
    }
    is_refused_when_it_is_damaged(&backups[0].0);
}

/// A backup that is damaged or not whole is refused by name.
fn is_refused_when_it_is_damaged(backup: &Path) {
    let refused = |what: &str| {
        let why = Manifest::verify(backup).unwrap_err();
        assert!(why.contains(what), "{why}");
    };
    let file = backup.join("partition-2.backup");
    let whole = std::fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    refused("partition-2.backup: it is damaged");
    std::fs::write(&file, &whole[..middle]).unwrap();
    refused("partition-2.backup: it has");
    std::fs::remove_file(&file).unwrap();
    refused("partition-2.backup");
    std::fs::write(&file, &whole).unwrap();
    Manifest::verify(backup).unwrap();
    let (manifest, moved) = (backup.join(MANIFEST), backup.join("elsewhere"));
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replacen("\"place\": ", "\"place\": 1", 1)).unwrap();
    refused("manifest.json: it is damaged");
    std::fs::rename(&manifest, moved).unwrap();
    refused("is no complete backup");
}

#[test]
fn a_change_of_the_primary_leaves_no_backup_and_blocks_nothing() {
    let mut cluster = Cluster::calm("backup-fails", 2, 2, 2);
    ready(&cluster, 2, 2);
    let mut first = session(&cluster, 0);
    bank(&mut first);
    let directory = Directory::new("backups-fail");
    let to = directory.path().join("one");
    // A branch that stays prepared keeps the backup from its moment.
    let primary = cluster.primary(1);
    let replica = cluster.replica(primary, 1);
    let lead = replica.lead().unwrap();
    let options = rialto::TxOptions { may_prepare: true, ..rialto::TxOptions::default() };
    let mut tx = lead.database().begin_with(&options).unwrap();
    let table = tx.table("numbers").unwrap();
    tx.insert(&table, &[rialto::row::Value::Int8(7)]).unwrap();
    tx.prepare("in-doubt", &[]).unwrap();
    // Where the other partition's hold runs out a moment earlier, that may be what is told.
    let mut whys = Vec::new();
    while !whys.last().is_some_and(|why: &String| why.starts_with("partition 1:") && why.contains("in doubt"))
    {
        assert!(whys.len() < 20, "{whys:?}");
        let why = take(&cluster, 0, &to).unwrap_err();
        assert!(why.contains("run it again"), "{why}");
        assert!(!to.exists(), "nothing is left of it");
        whys.push(why);
    }
    run(&mut first, "UPDATE accounts SET balance = balance + 1");
    assert_eq!(total(&mut first), 101 * ACCOUNTS, "nothing is held up any more");
    // While the branch keeps it, another partition's primary changes.
    let mut whys = Vec::new();
    while !whys.last().is_some_and(|why: &String| why.contains(PRIMARY_CHANGED)) {
        assert!(whys.len() < 20, "{whys:?}");
        cluster.in_sync(0, 2);
        let other = 1 - cluster.primary(0);
        let begun = cluster.node(0).begin_backup(&to).unwrap();
        cluster.change_primary(0, other);
        whys.push(ended(&cluster, 0, begun).unwrap_err());
        assert!(!to.exists(), "nothing is left of it");
    }
    println!("no backup: {whys:?}");
    let why = whys.last().unwrap();
    assert!(why.starts_with("partition 0:"), "{why}");
    soon("statements run", || try_run(&mut first, "SELECT count(*) FROM accounts").is_ok());
    let before = total(&mut first);
    run(&mut first, "UPDATE accounts SET balance = balance + 1");
    assert_eq!(total(&mut first), before + ACCOUNTS, "nothing is held up any more");
    lead.database().abort_prepared("in-doubt").unwrap().wait().unwrap();
    drop((lead, replica));
    let one = taken(&cluster, 0, &to);
    assert_eq!(one.partitions.len(), 2);
    // After a change there is a backup of the new primary.
    cluster.in_sync(0, 2);
    cluster.change_primary(0, 1 - cluster.primary(0));
    soon("statements run again", || try_run(&mut first, "SELECT count(*) FROM accounts").is_ok());
    let two = taken(&cluster, 1, &directory.path().join("two"));
    assert!(two.partitions[0].epoch > one.partitions[0].epoch, "{one:?} {two:?}");
    ready(&cluster, 2, 2);
    cluster.stop(1);
    assert_eq!((cluster.primary(0), cluster.primary(1)), (0, 0));
    taken(&cluster, 0, &directory.path().join("three"));
}

/// A stream that waits amid what is written to it.
struct Waits {
    waits: Arc<AtomicBool>,
    is_wanted: Arc<AtomicBool>,
}

impl std::io::Write for Waits {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.waits.store(true, Ordering::SeqCst);
        soon("the stream goes on", || self.is_wanted.load(Ordering::SeqCst));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_directory_is_given_back_once_no_copy_runs() {
    let directory = Directory::new("given-back");
    let db = rialto::Database::open(directory.path().join("database")).unwrap();
    let (waits, is_wanted, is_back) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let (copied, mut stream) = (db.clone(), Waits { waits: waits.clone(), is_wanted: is_wanted.clone() });
    let copy = std::thread::spawn(move || drop(copied.backup_to(&mut stream, rialto::BackupKind::Full)));
    soon("the copy waits for its stream", || waits.load(Ordering::SeqCst));
    db.clone().close().unwrap();
    let (given, tells) = (db.clone(), is_back.clone());
    let giving = std::thread::spawn(move || {
        given.give_directory_back();
        tells.store(true, Ordering::SeqCst);
    });
    // Long enough for a directory that is given back beside the copy.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!is_back.load(Ordering::SeqCst), "the copy still reads the directory");
    is_wanted.store(true, Ordering::SeqCst);
    giving.join().unwrap();
    // A small one may have been complete but for its last bytes.
    copy.join().unwrap();
    drop(rialto::Database::open(directory.path().join("database")).unwrap());
    drop(db);
}

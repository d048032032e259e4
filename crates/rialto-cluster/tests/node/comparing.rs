//! The comparison of replicas that run: what is the same is never told to differ, and what differs is found and replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rialto::SumRange;
use rialto::fault_injection::distort_redo;
use rialto::io::Random;
use rialto_cluster::node::{ComparisonReport, ComparisonStatus, Difference};

use crate::cluster::{Cluster, soon};
use crate::sql::{ACCOUNTS, bank, ready, run, session, transfer, try_run};

/// What the redo of standbys gets wrong: a packet that has these bytes.
struct Rule {
    needle: Vec<u8>,
    /// It has these in their place; without them the packet is not redone.
    other: Option<Vec<u8>>,
    times: usize,
}

fn rules() -> &'static Mutex<Vec<Rule>> {
    static RULES: OnceLock<Mutex<Vec<Rule>>> = OnceLock::new();
    RULES.get_or_init(|| {
        distort_redo(Box::new(|packet| {
            let mut rules = RULES.get()?.lock().unwrap();
            let find = |needle: &[u8]| packet.windows(needle.len()).position(|bytes| bytes == needle);
            let rule = rules.iter_mut().find(|rule| rule.times > 0 && find(&rule.needle).is_some())?;
            rule.times -= 1;
            let Some(other) = &rule.other else { return Some(Vec::new()) };
            assert_eq!(other.len(), rule.needle.len());
            let mut bytes = packet.to_vec();
            while let Some(at) = bytes.windows(other.len()).position(|bytes| bytes == rule.needle) {
                bytes[at..at + other.len()].copy_from_slice(other);
            }
            Some(bytes)
        }));
        Mutex::default()
    })
}

/// So many replicas get a packet wrong that has these bytes.
fn distort(needle: &str, other: Option<&str>, times: usize) {
    let (needle, other) = (needle.into(), other.map(Into::into));
    rules().lock().unwrap().push(Rule { needle, other, times });
}

/// What a comparison by a node has found.
fn compare(cluster: &Cluster, node: usize) -> ComparisonReport {
    let number = cluster.node(node).begin_comparison().unwrap();
    let mut report = None;
    soon("the comparison ends", || {
        if let ComparisonStatus::Done(done) = cluster.node(node).comparison_status() {
            report = Some(done);
        }
        report.is_some()
    });
    let report = report.unwrap();
    assert_eq!(report.comparison, number);
    report
}

fn no_difference(cluster: &Cluster) {
    let found = differences(cluster);
    assert!(found.is_empty(), "{found:?}");
}

/// The differences that a comparison by the primary of partition 0 has found.
fn differences(cluster: &Cluster) -> Vec<Difference> {
    let report = compare(cluster, cluster.primary(0));
    println!("{report:?}");
    report.partitions.into_iter().flat_map(|partition| partition.differences).collect()
}

/// Compares until a difference is told that has these words: an answer may be lost or late.
fn found(cluster: &Cluster, words: &str) -> Vec<Difference> {
    let mut found = Vec::new();
    soon(&format!("\"{words}\" is told"), || {
        found = differences(cluster);
        found.iter().any(|found| found.to_string().contains(words))
    });
    found
}

/// A cluster of one partition that serves, with a table of notes.
fn with_notes(name: &str, replicas: u32) -> Cluster {
    let cluster = Cluster::calm(name, replicas, 1, replicas);
    ready(&cluster, 1, replicas as usize);
    let mut session = session(&cluster, cluster.primary(0));
    run(&mut session, "CREATE TABLE notes (id int8 PRIMARY KEY, note text)");
    run(&mut session, "CREATE INDEX by_note ON notes (note)");
    let values: Vec<String> = (0..300).map(|id| format!("({id}, 'note {id}')")).collect();
    run(&mut session, &format!("INSERT INTO notes VALUES {}", values.join(", ")));
    cluster
}

/// The notes as a node's replica has them, in words. None while it is opened or copied.
fn notes(cluster: &Cluster, node: usize) -> Option<Vec<String>> {
    let db = cluster.replica(node, 0).readable()?;
    let table = db.table("notes").ok()?;
    let all = SumRange { show: usize::MAX, ..SumRange::all() };
    db.read(|tx| tx.sum_range(&table, &all)).ok().map(|sum| sum.shown)
}

/// Waits until all replicas of partition 0 are in sync and have the same notes.
fn all_have_the_same(cluster: &Cluster, replicas: usize) {
    soon("all replicas are in sync and have the same", || {
        cluster.in_sync(0, replicas);
        let read: Vec<_> = (0..replicas).map(|node| notes(cluster, node)).collect();
        read.iter().all(|rows| rows.is_some() && *rows == read[0])
    });
}

fn lives(cluster: &Cluster) -> Vec<u64> {
    let configuration = cluster.replica(cluster.primary(0), 0).status().configuration.unwrap();
    let mut members = configuration.in_sync;
    members.sort_unstable_by_key(|member| member.node);
    members.into_iter().map(|member| member.life.0).collect()
}

/// A standby has got a change wrong: it is found, told with its rows, and the standby comes back with a copy.
fn is_found_and_replaced(name: &str, change: &[&str], wrong: (&str, Option<&str>), expected: (&str, &str)) {
    let cluster = with_notes(name, 2);
    let mut client = session(&cluster, cluster.primary(0));
    no_difference(&cluster);
    distort(wrong.0, wrong.1, 1);
    for statement in change {
        run(&mut client, statement);
    }
    let before = lives(&cluster);
    let found = found(&cluster, "takes a new copy");
    let first = &found[0];
    let (primary, standby) = (cluster.primary(0), 1 - cluster.primary(0));
    assert_eq!((first.partition, &first.table[..], &first.index), (0, "notes", &None));
    assert_eq!((&first.primary, &first.replica), (&format!("node-{primary}"), &format!("node-{standby}")));
    let shown = (first.of_primary.concat(), first.of_replica.concat());
    assert!(shown.0.contains(expected.0) && shown.1.contains(expected.1), "{first}");
    assert!(first.to_string().contains("takes a new copy"), "{first}");
    all_have_the_same(&cluster, 2);
    let after = lives(&cluster);
    assert_eq!(
        (after[primary], after[standby] == before[standby]),
        (before[primary], false),
        "it has a copy"
    );
    no_difference(&cluster);
}

#[test]
fn a_row_that_a_standby_has_otherwise_is_found_and_replaced() {
    let change = ["UPDATE notes SET note = 'straight 4401' WHERE id = 150"];
    let wrong = ("straight 4401", Some("crooked! 4401"));
    is_found_and_replaced("otherwise", &change, wrong, ("straight 4401", "crooked! 4401"));
}

#[test]
fn a_row_that_a_standby_lacks_is_found_and_replaced() {
    let change = ["INSERT INTO notes VALUES (1000, 'lacking 4402')"];
    is_found_and_replaced("lacks", &change, ("lacking 4402", None), ("lacking 4402", ""));
}

#[test]
fn a_row_that_a_standby_has_too_much_is_found_and_replaced() {
    let insert = "INSERT INTO notes VALUES (2000, 'surplus 4403')";
    let change = ["BEGIN", "DELETE FROM notes WHERE id = 7", insert, "COMMIT"];
    is_found_and_replaced("surplus", &change, ("surplus 4403", None), ("", "note 7"));
}

#[test]
fn a_definition_that_a_standby_lacks_is_found_and_replaced() {
    let cluster = with_notes("definitions", 2);
    distort("lacking_4404", None, 1);
    run(&mut session(&cluster, 0), "CREATE TABLE lacking_4404 (id int8 PRIMARY KEY)");
    let found = found(&cluster, "takes a new copy");
    assert!(found.iter().any(|found| found.table == "rialto_tables"), "{found:?}");
    soon("it comes back with a copy", || {
        cluster.in_sync(0, 2);
        let standby = cluster.replica(1 - cluster.primary(0), 0).readable();
        standby.is_some_and(|db| db.table("lacking_4404").is_ok())
    });
    no_difference(&cluster);
}

/// Standbys redo the same log with the same program: that two agree is no proof that the primary is wrong.
#[test]
fn a_primary_that_more_replicas_disagree_with_leads_on_until_an_operator_chooses() {
    let cluster = with_notes("outvoted", 3);
    let primary = cluster.primary(0);
    distort("odd one 4405", Some("odd two 4405"), 2);
    run(&mut session(&cluster, primary), "UPDATE notes SET note = 'odd one 4405' WHERE id = 9");
    let before = lives(&cluster);
    let found = found(&cluster, "choose whether");
    let mut told: Vec<_> = found.iter().filter(|of| of.index.is_none()).map(|of| &of.replica).collect();
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 2, "both standbys are told of: {found:?}");
    assert!(found.iter().all(|of| !of.action.contains("takes a new copy")), "{found:?}");
    cluster.in_sync(0, 3);
    assert_eq!((cluster.primary(0), lives(&cluster)), (primary, before), "nothing is done");
    assert!(notes(&cluster, primary).unwrap()[9].contains("odd one 4405"));
    let last = cluster.node(primary).last_comparisons();
    assert!(last.iter().any(|of| !of.found.differences.is_empty()), "{last:?}");
    // The operator believes the standbys.
    let to = (primary + 1) % 3;
    cluster.replica(primary, 0).switch_over(rialto_cluster::protocol::NodeId(to as u32));
    soon("another replica leads", || cluster.primary(0) == to);
    cluster.in_sync(0, 3);
    let found = self::found(&cluster, "takes a new copy");
    assert!(found.iter().all(|found| found.replica == format!("node-{primary}")), "{found:?}");
    all_have_the_same(&cluster, 3);
    assert!(notes(&cluster, primary).unwrap()[9].contains("odd two 4405"));
    no_difference(&cluster);
}

/// A transaction that stays open hides no more than its own row.
#[test]
fn behind_a_row_whose_lock_is_not_to_be_had_a_difference_is_found() {
    let cluster = with_notes("behind", 2);
    let mut other = session(&cluster, cluster.primary(0));
    distort("straight 4407", Some("crooked! 4407"), 1);
    run(&mut session(&cluster, cluster.primary(0)), "UPDATE notes SET note = 'straight 4407' WHERE id = 150");
    run(&mut other, "BEGIN");
    run(&mut other, "UPDATE notes SET note = 'kept' WHERE id = 0");
    let report = compare(&cluster, cluster.primary(0));
    let of_notes = |found: &&Difference| found.table == "notes" && found.index.is_none();
    let found = report.partitions.iter().flat_map(|of| &of.differences).find(of_notes);
    assert!(found.is_some_and(|found| found.of_replica.concat().contains("crooked! 4407")), "{report:?}");
    let is_said = |what: &String| what.contains("rows of the table notes: other transactions");
    assert!(report.partitions[0].left_out.iter().any(is_said), "{report:?}");
    drop(other);
    all_have_the_same(&cluster, 2);
}

/// A walk does not end with the first difference: the copy takes the others away.
#[test]
fn all_differences_are_told_before_a_copy_is_taken() {
    let cluster = with_notes("all", 2);
    let mut client = session(&cluster, cluster.primary(0));
    run(&mut client, "CREATE TABLE others (id int8 PRIMARY KEY, note text)");
    for (id, table) in [(1, "notes"), (2, "others")] {
        distort(&format!("straight 441{id}"), Some(&format!("crooked! 441{id}")), 1);
        run(&mut client, &format!("INSERT INTO {table} VALUES (3000, 'straight 441{id}')"));
    }
    let found = found(&cluster, "takes a new copy");
    for (id, table) in [(1, "notes"), (2, "others")] {
        let is_told = |of: &Difference| {
            of.table == table && of.of_replica.concat().contains(&format!("crooked! 441{id}"))
        };
        assert!(found.iter().any(is_told), "{table}: {found:?}");
    }
    all_have_the_same(&cluster, 2);
    no_difference(&cluster);
    // What was mended is shown no more.
    soon("nothing differs", || cluster.node(cluster.primary(0)).differences().is_empty());
}

#[test]
fn an_interval_that_ends_after_all_times_is_a_long_one() {
    let cluster = Cluster::comparing("interval", 1, Duration::MAX);
    ready(&cluster, 1, 2);
    std::thread::sleep(Duration::from_millis(500));
    no_difference(&cluster);
}

/// The node that makes a partition has the table of comparisons in its log alone, until its first checkpoint.
#[test]
fn the_first_primary_of_a_partition_answers_once_it_follows() {
    let cluster = with_notes("first", 2);
    let first = cluster.primary(0);
    cluster.replica(first, 0).switch_over(rialto_cluster::protocol::NodeId(1 - first as u32));
    soon("another replica leads", || cluster.primary(0) != first);
    cluster.in_sync(0, 2);
    let report = compare(&cluster, cluster.primary(0));
    assert_eq!(report.partitions[0].replicas, [format!("node-{first}")], "{report:?}");
    assert!(report.partitions[0].left_out.is_empty(), "{report:?}");
}

#[test]
fn in_the_background_a_difference_is_found_too() {
    let cluster = Cluster::comparing("background", 1, Duration::from_millis(100));
    ready(&cluster, 1, 2);
    let primary = cluster.primary(0);
    let mut client = session(&cluster, primary);
    run(&mut client, "CREATE TABLE notes (id int8 PRIMARY KEY, note text)");
    distort("straight 4406", Some("crooked! 4406"), 1);
    run(&mut client, "INSERT INTO notes VALUES (1, 'straight 4406')");
    let before = lives(&cluster);
    soon("it is found, and the standby has a copy", || {
        cluster.in_sync(0, 2);
        lives(&cluster) != before
    });
    all_have_the_same(&cluster, 2);
}

/// The clients end, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Clients transfer money in one partition and over several, and others make and change tables. Replicas that are the same are
/// never told to differ, and stay in sync. Once the clients are gone, everything is compared.
#[test]
fn what_is_the_same_is_never_told_to_differ() {
    let cluster = Cluster::comparing("same", 2, Duration::from_millis(1));
    ready(&cluster, 2, 2);
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    bank(&mut session(&cluster, 0));
    run(
        &mut session(&cluster, 0),
        "CREATE TABLE on_disk (id int8 PRIMARY KEY, part float8, note text) WITH (residence = 'disk')",
    );
    run(&mut session(&cluster, 0), "CREATE INDEX by_part ON on_disk (part)");
    run(&mut session(&cluster, 0), "CREATE TABLE unkeyed (part int8, note text)");
    let lives_before = lives(&cluster);
    let (is_over, time) =
        (AtomicBool::new(false), Random::test_time_from_environment().max(Duration::from_secs(4)));
    let (mut compared, mut rows, mut partitions) = (0, 0, 0);
    std::thread::scope(|threads| {
        let (cluster, is_over) = (&cluster, &is_over);
        let _ends = Ends(is_over);
        for client in 0..3_u64 {
            threads.spawn(move || {
                let mut random = Random::new(first.wrapping_add(client));
                let mut session = session(cluster, client as usize % 2);
                while !is_over.load(Ordering::SeqCst) {
                    let id = random.below(500);
                    let _ = match random.below(6) {
                        0 | 1 => {
                            let from = 1 + random.below(ACCOUNTS as u64 - 1) as i64;
                            transfer(&mut session, from, from + 1, 1)
                        }
                        2 => try_run(&mut session, &format!("DELETE FROM on_disk WHERE id = {id}")).map(drop),
                        3 => try_run(&mut session, &format!("DELETE FROM unkeyed WHERE part = {}", id % 20))
                            .map(drop),
                        4 => try_run(
                            &mut session,
                            &format!("INSERT INTO unkeyed VALUES ({}, 'n{id}')", id % 20),
                        )
                        .map(drop),
                        _ => {
                            let sql =
                                format!("INSERT INTO on_disk VALUES ({id}, {}, 'n{id}')", id as f64 / 7.0);
                            try_run(&mut session, &sql).map(drop)
                        }
                    };
                }
            });
        }
        threads.spawn(move || {
            let mut session = session(cluster, 1);
            for round in 0.. {
                for sql in [
                    format!("CREATE TABLE made_{round} (id int8 PRIMARY KEY, n int8)"),
                    format!("INSERT INTO made_{round} VALUES (1, 1), (2, 2), (3, 3)"),
                    format!("CREATE INDEX made_{round}_n ON made_{round} (n)"),
                    format!("DROP TABLE made_{}", round - 1),
                ] {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let _ = try_run(&mut session, &sql);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let began = Instant::now();
        while began.elapsed() < time || compared < 3 {
            for node in 0..2 {
                let report = compare(cluster, node);
                for partition in report.partitions {
                    assert!(partition.differences.is_empty(), "{partition:?}");
                    rows += partition.rows;
                    partitions += usize::from(!partition.replicas.is_empty());
                }
            }
            compared += 1;
        }
    });
    println!("{compared} comparisons by each node, {partitions} of partitions, {rows} rows");
    assert!(rows > 100 && partitions > 2);
    for node in 0..2 {
        let mut last = Vec::new();
        soon("everything is compared", || {
            last = compare(&cluster, node).partitions;
            last.iter().all(|of| of.left_out.is_empty() && !of.replicas.is_empty())
        });
        assert!(last.iter().all(|of| of.differences.is_empty()), "{last:?}");
    }
    for node in 0..2 {
        let found = cluster.node(node).differences();
        assert!(found.is_empty(), "{found:?}");
    }
    assert_eq!(lives(&cluster), lives_before, "no replica has taken a copy");
}

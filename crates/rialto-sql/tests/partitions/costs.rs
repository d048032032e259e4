//! What statements cost: exchanges with partitions, branches, commits, and memory.

use rialto::row::Value;

use crate::in_process::Counts;
use crate::{InProcess, run, tag, try_run, value, with_table};

fn exchanges(partitions: &InProcess) -> u64 {
    Counts::take(&partitions.counts.exchanges)
}

#[test]
fn a_statement_of_one_partition_costs_one_exchange_and_no_commit_of_its_own() {
    let (partitions, mut session) = with_table(4, 100);
    for sql in [
        "select v from t where id = 7",
        "update t set v = v + 1 where id = 7",
        "delete from t where id = 8",
        "insert into t values (8, 1, 'x')",
        "insert into t values (200, 1, 'x') returning v",
        "select id from t where id in (7) for update",
        "select count(*) from t where id = 7",
    ] {
        for counter in [&partitions.counts.exchanges, &partitions.counts.commits, &partitions.counts.alone] {
            Counts::take(counter);
        }
        run(&mut session, sql);
        assert_eq!(exchanges(&partitions), 1, "{sql}");
        assert_eq!(Counts::take(&partitions.counts.commits), 0, "{sql}");
        assert_eq!(Counts::take(&partitions.counts.alone), 1, "{sql}");
    }
    let arguments = [Value::Int4(5), Value::Int4(3)];
    try_run(&mut session, "update t set v = v + $1 where id = $2", Some(&arguments)).unwrap();
    assert_eq!(exchanges(&partitions), 1);
    run(&mut session, "select 7 + 3, current_timestamp from generate_series(1, 5) n");
    assert_eq!(exchanges(&partitions), 0, "a statement without a table is run by the session");
}

#[test]
fn a_block_opens_branches_where_its_statements_need_them() {
    let (partitions, mut session) = with_table(4, 100);
    for counter in [&partitions.counts.branches, &partitions.counts.alone, &partitions.counts.two_phase] {
        Counts::take(counter);
    }
    run(&mut session, "begin");
    run(&mut session, "update t set v = v + 1 where id = 7");
    run(&mut session, "update t set v = v + 2 where id = 7");
    run(&mut session, "commit");
    assert_eq!(Counts::take(&partitions.counts.branches), 1);
    assert_eq!(Counts::take(&partitions.counts.two_phase), 0, "one branch that wrote");
    run(&mut session, "begin");
    run(&mut session, "update t set v = v + 1");
    run(&mut session, "select v from t where id = 7");
    run(&mut session, "commit");
    assert_eq!(Counts::take(&partitions.counts.branches), 4);
    assert_eq!(Counts::take(&partitions.counts.two_phase), 1);
    assert_eq!(Counts::take(&partitions.counts.alone), 0, "a branch that may have company may be prepared");
}

/// A branch waits with its next portion until it is asked for, and a LIMIT ends it.
#[test]
fn large_results_come_in_portions() {
    let (partitions, mut session) = with_table(4, 0);
    let insert = "insert into t select n, n, repeat_ from generate_series(1, 40000) n";
    let insert = insert.replace("repeat_", &format!("'{}' || n", "x".repeat(100)));
    run(&mut session, &insert);
    for sql in ["select * from t", "select * from t order by v desc, id", "select c, id from t where v > 0"] {
        partitions.counts.largest_reply.store(0, std::sync::atomic::Ordering::SeqCst);
        exchanges(&partitions);
        assert_eq!(run(&mut session, sql).len(), 40_000, "{sql}");
        let largest = partitions.counts.largest_reply.load(std::sync::atomic::Ordering::SeqCst);
        assert!((50_000..400_000).contains(&largest), "{sql}: {largest}");
        assert!(exchanges(&partitions) > 10, "{sql}");
    }
    exchanges(&partitions);
    assert_eq!(run(&mut session, "select * from t limit 3").len(), 3);
    assert_eq!(run(&mut session, "select * from t order by id limit 3").len(), 3);
    assert!(exchanges(&partitions) <= 4);
    // A LIMIT that is reached within the portions ends the statement in all branches.
    run(&mut session, "begin");
    assert_eq!(run(&mut session, "select * from t limit 9000").len(), 9_000);
    assert_eq!(run(&mut session, "select * from t order by id limit 9000").len(), 9_000);
    assert_eq!(value(&mut session, "select count(*) from t"), "40000");
    assert_eq!(tag(&mut session, "update t set v = 1 where id < 10"), "UPDATE 9");
    run(&mut session, "commit");
}

//! Commits at level 2 in partitions with one replica in sync, where the operator has chosen that they are refused.

use std::time::Duration;

use rialto_cluster::node::{CallError, CallLevel};
use rialto_cluster::protocol::replication::Unprotected;

use crate::calls::{one, two};
use crate::cluster::Cluster;
use crate::sql::{run, session, total, try_run};

#[test]
fn commits_at_level_2_are_refused_in_an_unprotected_partition_and_have_no_effect() {
    let mut cluster = unprotected_accounts("unprotected");
    let mut session = session(&cluster, 0);
    let refused = |session: &mut rialto_sql::Session, statements: &[&str]| {
        let (last, before) = statements.split_last().unwrap();
        before.iter().for_each(|statement| drop(run(session, statement)));
        let error = try_run(session, last).unwrap_err();
        assert_eq!(error.sqlstate.code(), "53000", "{statements:?}: {error}");
        assert!(error.message.contains("has no effect"), "{statements:?}: {error}");
        let _ = try_run(session, "ROLLBACK");
        assert_eq!(total(session), 2000, "{statements:?}");
    };
    let one = "UPDATE accounts SET balance = 7 WHERE id = 3";
    let all = "UPDATE accounts SET balance = 7";
    // Alone, over one and over all partitions; in a block; and what has a definition.
    refused(&mut session, &[one]);
    refused(&mut session, &[all]);
    refused(&mut session, &["BEGIN", one, "COMMIT"]);
    refused(&mut session, &["BEGIN", all, "COMMIT"]);
    refused(&mut session, &["CREATE TABLE others (id int PRIMARY KEY)"]);
    let error = try_run(&mut session, "SELECT count(*) FROM others").unwrap_err();
    assert_eq!(error.sqlstate.code(), "42P01", "{error}");
    // Over several partitions level 1 is level 2.
    run(&mut session, "SET rialto.durability = 'memory'");
    refused(&mut session, &["BEGIN", all, "COMMIT"]);
    run(&mut session, "UPDATE accounts SET balance = 100 WHERE id = 3");
    run(&mut session, "SET rialto.durability = 'disk'");
    for statements in [&[all][..], &["BEGIN", all, "COMMIT"], &["UPDATE accounts SET balance = 100"]] {
        statements.iter().for_each(|statement| drop(run(&mut session, statement)));
    }
    run(&mut session, "SET rialto.durability = 'standby'");
    refused(&mut session, &[one]);
    // Blocks that only read end.
    ["BEGIN", "SELECT * FROM accounts", "COMMIT"].iter().for_each(|sql| drop(run(&mut session, sql)));
    cluster.start(1);
    (0..2).for_each(|partition| cluster.in_sync(partition, 2));
    let others = "CREATE TABLE others (id int PRIMARY KEY)";
    [one, "BEGIN", all, "COMMIT", others].iter().for_each(|sql| drop(run(&mut session, sql)));
    assert_eq!(total(&mut session), 140);
}

/// Accounts in two partitions, each of which has one replica in sync.
fn unprotected_accounts(name: &str) -> Cluster {
    let mut cluster = Cluster::calm_with(name, 2, (2, 2), Unprotected::Refused);
    (0..2).for_each(|partition| cluster.in_sync(partition, 2));
    let mut session = session(&cluster, 0);
    run(&mut session, "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)");
    run(&mut session, "INSERT INTO accounts SELECT i, 100 FROM generate_series(1, 20) AS i");
    cluster.stop(1);
    // It is dropped where it was a standby, and its own partition has another primary.
    crate::cluster::soon("both are unprotected", || {
        (0..2).all(|partition| {
            let status = cluster.replica(cluster.primary(partition), partition).status();
            status.configuration.is_some_and(|found| found.in_sync.len() == 1)
        })
    });
    cluster
}

#[test]
fn calls_at_level_2_are_refused_in_an_unprotected_partition_and_have_no_effect() {
    let cluster = unprotected_accounts("unprotected-calls");
    let transactions = cluster.node(0).transactions();
    // Of these accounts some lie in one partition, and some in the other one: a call is run whole, or as branches.
    for other in 2..=20 {
        for call in [one("deposit", other, &[1]), two("transfer", (1, other), &[1])] {
            let refused = transactions.call(&call.patience(Duration::from_millis(50)));
            let says =
                matches!(&refused, Err(CallError::Aborted(why)) if why.contains("too few replicas in sync"));
            assert!(says, "account {other}: {refused:?}");
        }
    }
    assert_eq!(total(&mut session(&cluster, 0)), 2_000);
    // What only reads runs, and so does level 3.
    let patience = Duration::from_secs(60);
    assert!(transactions.call(&one("balance", 3, &[]).patience(patience)).is_ok());
    for call in [one("deposit", 3, &[5]), two("transfer", (3, 4), &[1])] {
        transactions.call(&call.level(CallLevel::Disk).patience(patience)).unwrap();
    }
    assert_eq!(total(&mut session(&cluster, 0)), 2_005);
}

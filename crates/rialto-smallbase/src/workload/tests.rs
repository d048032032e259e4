//! Verification: what is wrong in the tables is found.

use rialto::io::MemoryDisk;
use rialto::{Database, Options};

use super::*;
use crate::spec::{Protocol, Shape};

const SHAPE: Shape = Shape { nodes: 1, partitions: 1, replicas: 1 };

fn data(workload: WorkloadName, protocol: Protocol) -> Data {
    Data { workload, protocol, branches: 2, accounts: 30 }
}

fn database(workload: &dyn Workload) -> Database {
    let options = Options { memory_bytes: 64 << 20, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    workload.make(&db).unwrap();
    workload.load(&db, &[3, 7]).unwrap();
    db
}

fn problems(workload: &dyn Workload, db: &Database, told: &Told) -> String {
    let mut audit = Audit::default();
    workload.audit(db, &mut audit).unwrap();
    workload.problems(&audit, told, 1).join("; ")
}

fn add(db: &Database, table: &str, key: impl rialto::row::IntoKey + Copy, column: usize) {
    let is_there = db.transact(|tx| {
        let table = tx.table(table)?;
        tx.modify(&table, key, |row| row.add_i64(column, 1).map(drop))
    });
    assert!(is_there.unwrap(), "{table}");
}

#[test]
fn a_balance_that_changes_alone_is_found() {
    for protocol in [Protocol::Atomic, Protocol::AsPaper] {
        let tpcb = of(data(WorkloadName::Tpcb, protocol));
        let told = Told::new(1);
        let found = |change: &dyn Fn(&Database)| {
            let db = database(&*tpcb);
            assert_eq!(problems(&*tpcb, &db, &told), "");
            change(&db);
            problems(&*tpcb, &db, &told)
        };
        let branch = found(&|db| add(db, "branches", 3, 1));
        assert!(
            branch.contains("branch 3 has 1, its tellers 0") && branch.contains("accounts 0"),
            "{branch}"
        );
        assert!(found(&|db| add(db, "tellers", (7, 9), 2)).contains("branch 7 has 0, its tellers 1"));
        assert!(found(&|db| add(db, "accounts", (7, 29), 2)).contains("branches have 0, accounts 1"));
    }
}

#[test]
fn a_transaction_that_is_gone_is_found_unless_its_outcome_is_unknown() {
    let tpcb = of(data(WorkloadName::Tpcb, Protocol::Atomic));
    let db = database(&*tpcb);
    let lost = Told { answered: vec![1], unknown: vec![0] };
    assert!(problems(&*tpcb, &db, &lost).contains("rows of history: 0, expected 1 to 1"));
    assert_eq!(problems(&*tpcb, &db, &Told { answered: vec![0], unknown: vec![1] }), "");
    let scp = of(data(WorkloadName::Scp, Protocol::Atomic));
    let db = database(&*scp);
    assert_eq!(problems(&*scp, &db, &Told::new(3)), "");
    add(&db, "cards", (3, 5), 3);
    add(&db, "cards", (3, 5), 4);
    assert!(problems(&*scp, &db, &Told::new(3)).contains("counted 2 calls"));
    assert_eq!(problems(&*scp, &db, &Told { answered: vec![9, 1, 0], unknown: vec![0, 1, 0] }), "");
    add(&db, "subscribers", (7, 1), 2);
    let half = problems(&*scp, &db, &Told { answered: vec![9, 2, 1], unknown: vec![0; 3] });
    assert!(half.contains("1 services were installed, and 0 mappings changed"), "{half}");
    add(&db, "numbers", (3, 1), 3);
    assert_eq!(problems(&*scp, &db, &Told { answered: vec![9, 2, 1], unknown: vec![0; 3] }), "");
}

#[test]
fn as_many_transactions_are_remote_as_was_asked_for() {
    let two = Shape { nodes: 2, ..SHAPE };
    for workload in [WorkloadName::Tpcb, WorkloadName::Scp] {
        let data = data(workload, Protocol::AsPaper);
        let workload = of(data);
        let homes = Homes::find(two, data, |branch| branch as u32 % 2);
        let mut random = Random::new(5);
        let mut remote = |remote_pct: u32| {
            let place = Place { homes: &homes, node: 1, remote_pct };
            let drawn: Vec<Drawn> = (0..10_000).map(|_| workload.draw(&mut random, &place)).collect();
            // Installations are always remote.
            drawn.iter().filter(|drawn| drawn.kind < 2 && drawn.is_remote).count()
        };
        assert_eq!(remote(0), 0);
        let found = remote(15);
        assert!((1_300..1_700).contains(&found), "{found} of 10000 are remote, expected 15 of 100");
        assert!(remote(100) > 9_500);
        let alone = Homes::find(SHAPE, data, |_| 0);
        let place = Place { homes: &alone, node: 0, remote_pct: 100 };
        assert!((0..1_000).all(|_| !workload.draw(&mut random, &place).is_remote));
    }
}

//! A session whose catalog learns of a definition later than the partitions.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rialto::Database;
use rialto_sql::parse::READING_ROOM_BYTES;
use rialto_sql::partitions::{Branches, Opening, PartitionNumber, Partitions};
use rialto_sql::room::Room;
use rialto_sql::{Result, Session};

use crate::in_process::InProcess;
use crate::{code, column, counts, run, tag};

/// Partitions with a catalog of their own, to which the test brings definitions.
struct Lagging {
    partitions: Arc<InProcess>,
    catalog: Database,
}

impl Partitions for Lagging {
    fn count(&self) -> u32 {
        self.partitions.count()
    }

    fn nearest(&self) -> PartitionNumber {
        self.partitions.nearest()
    }

    fn catalog(&self) -> Database {
        self.catalog.clone()
    }

    fn begin(&self, opening: &Opening) -> Result<Box<dyn Branches>> {
        self.partitions.begin(opening)
    }
}

/// A statement that is planned for an old definition is planned again, once the catalog has the new one. It has done
/// nothing by the old one, not even where only the placement of rows has changed.
#[test]
fn no_statement_runs_by_an_old_definition() {
    let partitions = InProcess::new(4);
    let catalog = InProcess::new(1);
    let lagging = Lagging { partitions: partitions.clone(), catalog: catalog.databases().remove(0) };
    let mut late = Session::over_partitions(Arc::new(lagging), "ann", "bank", Room::new(READING_ROOM_BYTES));
    let (mut session, mut bring) = (partitions.session(), catalog.session());
    let tables = ["with (partition_by = 'a')", "with (partition_by = 'b')", "with (replicated = true)", ""];
    for (round, with) in tables.into_iter().enumerate() {
        let create = format!("create table t (a int, b int, primary key (a, b)) {with}");
        run(&mut session, &create);
        let brings = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            run(&mut bring, "begin");
            if round > 0 {
                run(&mut bring, "drop table t");
            }
            run(&mut bring, &create);
            run(&mut bring, "commit");
            bring
        });
        if round > 0 {
            // The table that the catalog has is another one.
            assert_eq!(tag(&mut late, "insert into t values (1, 2), (3, 4), (5, 6), (7, 8)"), "INSERT 0 4");
        }
        bring = brings.join().unwrap();
        if round == 0 {
            assert_eq!(tag(&mut late, "insert into t values (1, 2), (3, 4), (5, 6), (7, 8)"), "INSERT 0 4");
        }
        let rows = if with.contains("replicated") { 16 } else { 4 };
        assert_eq!(counts(&partitions, "t").iter().sum::<u64>(), rows, "{with}");
        for session in [&mut session, &mut late] {
            for (a, b) in [(1, 2), (3, 4), (5, 6), (7, 8)] {
                let sql = format!("select b from t where a = {a} and b = {b}");
                assert_eq!(column(session, &sql), [b.to_string()], "{with}: {sql}");
            }
        }
        run(&mut session, "drop table t");
    }
    // A table that is gone does not exist, whatever the catalog says.
    assert_eq!(code(&mut late, "select * from t"), "42P01");
    // A block of several statements is told that a definition has changed.
    run(&mut session, "create table t (a int, b int, primary key (a, b)) with (partition_by = 'b')");
    run(&mut late, "begin");
    run(&mut late, "select 1");
    assert_eq!(code(&mut late, "select * from t"), "40001");
    run(&mut late, "rollback");
}

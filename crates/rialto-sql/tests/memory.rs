//! The memory of plans, and of planning. A program of one test, because it reads the memory of the whole process.

use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_sql::Session;
use rialto_sql::run::Collected;

/// The bytes that this process has in memory.
fn resident() -> Option<usize> {
    status("VmRSS:")
}

/// The most bytes that it has had.
fn peak() -> Option<usize> {
    status("VmHWM:")
}

fn status(of: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(of))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? << 10)
}

fn run(session: &mut Session, sql: &str) {
    let read = session.read(sql).unwrap();
    let ready = session.prepare_read(sql, read).unwrap();
    session.execute_ready(&ready, &mut Collected::default()).unwrap();
    session.finish().unwrap();
}

#[test]
fn plans_take_no_more_than_in_proportion_to_their_text_and_few_are_kept() {
    let options = Options { memory_bytes: 64 << 20, ..Options::default() };
    let database = Database::open_on(MemoryDisk::new(), options).expect("a new database opens");
    let mut session = Session::new(database, "ann", "bank");
    let Some(before) = resident() else {
        println!("skipped: there is no /proc/self/status");
        return;
    };
    // A condition is copied for the index that is examined, not for each index.
    run(&mut session, "create table indexed (a text)");
    (0..40).for_each(|index| run(&mut session, &format!("create index i{index} on indexed (a)")));
    let sql = format!("select a from indexed where a = '{}'", "x".repeat(8 << 20));
    session.prepare(&sql, &[]).unwrap();
    let more = peak().unwrap().saturating_sub(before);
    assert!(more < 160 << 20, "planning with 40 indexes took {more} bytes");
    let check = |what: &str, most: usize| {
        let more = resident().unwrap().saturating_sub(before);
        assert!(more < most, "{what}: {more} bytes more");
    };
    let columns: Vec<String> = (0..1_500).map(|number| format!("c{number} int")).collect();
    run(&mut session, &format!("create table wide (id int primary key, {})", columns.join(", ")));
    // A row with one given column has no place for the others.
    let rows: Vec<String> = (0..4_000).map(|row| format!("({row}, {row})")).collect();
    let sql = format!("insert into wide (c1, id) values {}", rows.join(", "));
    let prepared = session.prepare(&sql, &[]).unwrap();
    check("a plan of 4,000 rows", 96 << 20);
    assert!(prepared.bytes < 8 << 20, "{}", prepared.bytes);
    drop(prepared);
    run(&mut session, "insert into wide (c1, id) values (7, 1), (8, 2)");
    let mut rows = Collected::default();
    let prepared = session.prepare("select id, c0, c1 from wide order by id", &[]).unwrap();
    session.execute(&prepared, &[], &mut rows).unwrap();
    session.finish().unwrap();
    assert_eq!(format!("{:?}", rows.0[1]), "[Int4(2), Null, Int4(8)]");
    // Text and pattern are compared in place.
    let before_like = resident().unwrap();
    let prepared = session.prepare("select $1 like $2", &[]).unwrap();
    let texts = ["x".repeat(96 << 20), "_".repeat(96 << 20)].map(rialto::row::Value::Text);
    let mut rows = Collected::default();
    session.execute(&prepared, &texts, &mut rows).unwrap();
    session.finish().unwrap();
    assert_eq!(format!("{:?}", rows.0), "[[Bool(true)]]");
    // Both once more for the expression, and the two that are here.
    let more = peak().unwrap().saturating_sub(before_like);
    assert!(more < 500 << 20, "LIKE took {more} bytes");
    drop((texts, prepared));
    // Texts that are short enough to be kept, with long plans.
    for text in 0..120 {
        let list = vec!["7"; 30_000 - text].join(",");
        let sql = format!("select n from generate_series(1, 0) n where n in ({list})");
        session.prepare(&sql, &[]).unwrap();
    }
    check("120 long plans", 160 << 20);
}

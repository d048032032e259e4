//! The memory that statements count, against what is really allocated for them: what a plan says that it takes, what is
//! kept of rows, and statements of any size.
#![allow(unsafe_code, reason = "an allocator that counts")]

#[path = "../../../rialto/tests/common/seeds.rs"]
mod seeds;
mod sizes;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_sql::run::{Collected, KEPT_BYTES_MAX};
use rialto_sql::{Session, SqlType};

thread_local! {
    /// The bytes that this thread has allocated and not given back.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The most of these at one time since this was last set.
    static PEAK: Cell<isize> = const { Cell::new(0) };
    /// The bytes that it has allocated in all.
    static ALL: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
    let _ = ALL.try_with(|all| all.set(all.get() + bytes.max(0) as usize));
}

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is the allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn database() -> Database {
    let options = Options { memory_bytes: 64 << 20, ..Options::default() };
    Database::open_on(MemoryDisk::new(), options).expect("a new database opens")
}

fn run(session: &mut Session, sql: &str) {
    let prepared = session.prepare(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    session.execute(&prepared, &[], &mut Collected::default()).unwrap();
    session.finish().unwrap();
}

/// Numbered copies of this, with the number in place of `#`.
fn list(item: &str, count: usize) -> String {
    let items: Vec<String> = (0..count).map(|number| item.replace('#', &number.to_string())).collect();
    items.join(", ")
}

#[test]
fn a_plan_counts_at_least_half_of_what_it_keeps() {
    let database = database();
    let name = "c".repeat(57);
    run(
        &mut Session::new(database.clone(), "ann", "bank"),
        "create table t (a int primary key, b text, c char(9))",
    );
    let wide = format!("create table wide ({})", list(&format!("{name}_# int"), 1_600));
    run(&mut Session::new(database.clone(), "ann", "bank"), &wide);
    let texts = [
        "select 1".to_string(),
        "select $65535::int".to_string(),
        format!("select {}", list("$1::text || 'x#'", 1_000)),
        "select * from wide".to_string(),
        "select *, 7 from wide where c = 1 order by 1".replace("c =", &format!("{name}_3 =")),
        format!("select {}", list("coalesce(1, 1 / 0) as a#", 1_600)),
        format!("select {}", list("current_user", 1_600)),
        format!("select {}", list("coalesce(b, 'x') || c || 'yz'", 1_600)) + " from t",
        format!("select a from t where a in ({})", list("#", 20_000)),
        format!("select a from t where b in ({}) order by {}", list("'x#'", 20_000), list("b || '#'", 1_000)),
        format!("select '{}'", "x".repeat(1 << 20)),
        format!("explain select a from t where b = '{}'", "x".repeat(1 << 18)),
        format!("insert into wide values ({})", list("default", 1_600)),
        format!("insert into wide values ({}) returning *", list("$1", 1_600)),
        format!("insert into t (a, b) values {}", list("(#, 'x')", 10_000)),
        format!("insert into wide (\"{name}_0\") select n from generate_series(1, 9) n returning *"),
        format!("update wide set {} returning *", list(&format!("{name}_# = {name}_1 + 1"), 1_600)),
        format!("update wide set {}", list(&format!("{name}_# = default"), 1_600)),
        "delete from wide returning *".to_string(),
        "copy wide to stdout".to_string(),
        format!("copy wide ({}) from stdin", list(&format!("{name}_#"), 1_600)),
        format!("vacuum {}", list("a", 100_000)),
        format!("truncate {}", list("a#", 100_000)),
        format!("drop table {}", list("a", 100_000)),
        format!("drop index if exists {}", list("a", 100_000)),
        wide.replace("wide", "wider"),
        format!("create table u (a int, b int, {})", list("unique (a, b)", 1_000)),
        format!("create index i on t ({})", list("a", 10_000)),
        format!("alter table t add primary key ({})", list("a", 10_000)),
        format!("set application_name to '{}'", "x".repeat(1 << 20)),
        format!("savepoint \"{}\"", "x".repeat(1 << 20)),
    ];
    for text in texts {
        for types in [0, 65_535] {
            // Only one text's parameters have types of their own.
            let types = if text.contains("$65535") { 65_535 } else { types };
            let sql_type = if text.contains("::text") { SqlType::Text } else { SqlType::Int4 };
            let types = vec![sql_type; types];
            // Sessions that have kept nothing yet. What a program makes only once is made for the first.
            let session = || Session::new(database.clone(), &"n".repeat(1_000), "bank");
            let _ = session().prepare(&text, &types);
            let mut session = session();
            let before = LIVE.get();
            let prepared = session.prepare(&text, &types);
            let kept = LIVE.get() - before;
            let shown = &text[..text.len().min(60)];
            let prepared = prepared.unwrap_or_else(|error| panic!("{shown}: {error}"));
            let counted = prepared.bytes as isize;
            // A short one counts 4 KiB wherever it is kept.
            assert!(2 * counted.max(4 << 10) >= kept, "{shown}: {counted} bytes counted, {kept} kept");
        }
    }
}

/// A dropped table exists only for the plan.
#[test]
fn a_plan_counts_the_definition_of_its_table() {
    let database = database();
    let name = "c".repeat(57);
    for (definition, most) in [
        ("a int primary key, b text".to_string(), 8 << 10),
        (list(&format!("{name}_# bool"), 1_600), 1 << 20),
        (format!("{}, {}", list("c# bool", 1_600), list("unique (c#, c1599)", 500)), 4 << 20),
    ] {
        for text in ["select 1 from t", "explain select 1 from t", "copy t to stdout", "delete from t"] {
            let session = || Session::new(database.clone(), "ann", "bank");
            run(&mut session(), &format!("create table t ({definition})"));
            let prepared = session().prepare(text, &[]).unwrap();
            run(&mut session(), "drop table t");
            let counted = prepared.bytes as isize;
            let before = LIVE.get();
            drop(prepared);
            let kept = before - LIVE.get();
            assert!(2 * counted.max(4 << 10) >= kept, "{text}: {counted} bytes counted, {kept} kept");
            assert!(counted < most, "{text}: {counted} bytes counted, {kept} kept");
        }
    }
}

/// The cost of a table with many indexes is proportional to their number: they are made with it, not one version for
/// each.
#[test]
fn a_table_is_made_with_its_indexes_at_once() {
    let database = database();
    let mut session = Session::new(database, "ann", "bank");
    let columns = list("c# int", 100);
    let mut allocated = |indexes: usize| {
        let unique = (0..indexes)
            .map(|number| format!(", unique (c{}, c{})", number % 100, (number / 100 + number + 1) % 100));
        let sql = format!("create table t{indexes} ({columns}{})", unique.collect::<String>());
        let prepared = session.prepare(&sql, &[]).unwrap();
        let before = ALL.get();
        session.execute(&prepared, &[], &mut Collected::default()).unwrap();
        session.finish().unwrap();
        ALL.get() - before
    };
    let (few, many) = (allocated(100), allocated(800));
    assert!(many < 16 * few, "{few} bytes for 100 indexes, {many} bytes for 800");
}

/// A condition is copied for the index that is chosen, not for each index.
#[test]
fn planning_copies_a_condition_as_often_with_many_indexes_as_with_one() {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table one (a text)");
    run(&mut session, "create index one_a on one (a)");
    run(&mut session, "create table many (a text)");
    (0..40).for_each(|index| run(&mut session, &format!("create index many_{index} on many (a)")));
    let mut allocated = |table: &str, condition: &str| {
        let sql = format!("select a from {table} where a {condition} '{}'", "x".repeat(1 << 20));
        let before = ALL.get();
        session.prepare(&sql, &[]).unwrap();
        ALL.get() - before
    };
    for condition in ["=", "<"] {
        let (one, many) = (allocated("one", condition), allocated("many", condition));
        assert!(many < 2 * one, "{condition}: {one} bytes with one index, {many} bytes with 40");
    }
}

/// What a statement counts for rows that it sorts or changes is all that it takes, up to an eighth.
#[test]
fn a_statement_takes_no_more_than_it_may_keep_of_rows() {
    let options = Options { memory_bytes: 512 << 20, ..Options::default() };
    let database = Database::open_on(MemoryDisk::new(), options).expect("a new database opens");
    let mut session = Session::new(database, "ann", "bank");
    run(&mut session, &format!("create table t (a int primary key, {})", list("c# int", 20)));
    run(&mut session, "insert into t (a) select n from generate_series(1, 700000) n");
    for text in [
        "select n from generate_series(1, 10000000) n order by -n".to_string(),
        format!("select n::text || 'x' from generate_series(1, 10000000) n order by {}", list("-n + #", 5)),
        format!("update t set {}", list("c# = 7", 20)),
        format!("update t set c1 = 7 returning {}", list("c#", 20)),
    ] {
        let prepared = session.prepare(&text, &[]).unwrap();
        let before = LIVE.get();
        PEAK.set(before);
        let error = session.execute(&prepared, &[], &mut Collected::default()).unwrap_err();
        let taken = (PEAK.get() - before) as usize;
        session.fail(&error).unwrap();
        assert_eq!(error.sqlstate.code(), "53200", "{text}: {error}");
        assert!(taken < KEPT_BYTES_MAX + KEPT_BYTES_MAX / 8, "{text}: {taken} bytes");
    }
}

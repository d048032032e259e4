//! Bounds of one statement: depth, length, columns, memory. A cancel request ends a statement while it is being read.

use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_sql::room::Room;
use rialto_sql::run::{Collected, KEPT_BYTES_MAX};
use rialto_sql::{Session, SqlError};
use rustix::time::{ClockId, clock_gettime};

fn session() -> Session {
    let database = Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens");
    let mut session = Session::new(database, "ann", "bank");
    run(&mut session, "create table t (k int primary key, c text)").unwrap();
    run(&mut session, "insert into t values (1, 'a'), (2, 'b')").unwrap();
    session
}

/// Runs a statement as a simple query. Gives the number of rows, or the error's code.
fn run(session: &mut Session, sql: &str) -> Result<usize, &'static str> {
    let mut rows = Collected::default();
    let answer = session
        .read(sql)
        .and_then(|read| session.prepare_read(sql, read))
        .and_then(|ready| session.execute_ready(&ready, &mut rows))
        .and_then(|_| session.finish());
    if let Err(error) = &answer {
        let _ = session.fail(error);
    }
    answer.map(|()| rows.0.len()).map_err(|error| error.sqlstate.code())
}

/// Chains of everything that may be repeated, far longer than any stack allows: an answer or an error, on this small
/// stack.
#[test]
fn chains_of_any_length_end_in_an_answer_or_an_error() {
    let mut session = session();
    let repeated =
        |first: &str, part: &str, count: usize, last: &str| format!("{first}{}{last}", part.repeat(count));
    let keys: String = (0..10_000).map(|key| format!(" or k = {key}")).collect();
    assert_eq!(run(&mut session, &format!("select * from t where k = -1{keys}")), Ok(2));
    assert_eq!(run(&mut session, &repeated("select * from t where k > 0", " and k < 5", 10_000, "")), Ok(2));
    assert_eq!(run(&mut session, &repeated("select c || 'a'", " || 'a'", 10_000, " from t")), Ok(2));
    assert_eq!(run(&mut session, &repeated("select k in (1", ", 2", 100_000, ") from t")), Ok(2));
    // Served at a sensible length, if at all. Beyond that the error is the depth.
    const FINE: &str = "00000";
    const DEEP: &str = "54001";
    const UNSERVED: &str = "0A000";
    const SYNTAX: &str = "42601";
    const OPERATOR: &str = "42883";
    const TYPE: &str = "42804";
    for (first, part, last, expected) in [
        ("select k", " + 1", " from t", [FINE, DEEP, DEEP]),
        ("select k", "::int::bigint", " from t", [FINE, DEEP, DEEP]),
        ("select k", " is null", " from t", [FINE, DEEP, DEEP]),
        ("select true", " = true", "", [SYNTAX, SYNTAX, DEEP]),
        ("select true", " between true and true", "", [FINE, DEEP, DEEP]),
        ("select true", " in (true)", "", [FINE, DEEP, DEEP]),
        ("select ", "- ", "1", [FINE, DEEP, DEEP]),
        ("select k", " is not true", " from t", [TYPE, DEEP, DEEP]),
        ("select 'a'", " like 'a'", "", [OPERATOR, DEEP, DEEP]),
        ("select now()", " at time zone 'UTC'", "", [UNSERVED, UNSERVED, DEEP]),
        ("select k", "[1]", " from t", [UNSERVED, UNSERVED, DEEP]),
        ("select k", ".a", " from t", [UNSERVED, UNSERVED, DEEP]),
        ("select 1", " union select 1, 2", "", [UNSERVED, UNSERVED, DEEP]),
        ("select 1", " union all select 1", "", [UNSERVED, UNSERVED, DEEP]),
        ("select * from t", " join t", "", [UNSERVED, UNSERVED, DEEP]),
        ("select * from t", " join t on true", "", [UNSERVED, UNSERVED, DEEP]),
        ("create table a (a int", "[]", ")", [UNSERVED, UNSERVED, DEEP]),
        ("select case when true", " or true", " then 1 end", [UNSERVED, UNSERVED, DEEP]),
        ("select k", " collate \"C\"", " from t", [SYNTAX, SYNTAX, DEEP]),
        ("select ", "case when ", "1", [SYNTAX, DEEP, DEEP]),
        ("select * from t", ", t", "", [UNSERVED, UNSERVED, UNSERVED]),
        ("", "explain ", "select 1", [UNSERVED, UNSERVED, UNSERVED]),
        ("grant ", "select, ", "select on t to x", [UNSERVED, UNSERVED, UNSERVED]),
        ("select 1", "::int[]", "", [UNSERVED, DEEP, DEEP]),
        ("set lock_timeout = ", "- ", "1", [SYNTAX, SYNTAX, SYNTAX]),
        ("select ", "not ", "true", [FINE, DEEP, DEEP]),
        ("select ", "(", "1", [SYNTAX, DEEP, DEEP]),
        ("select ", "coalesce(", "1", [SYNTAX, DEEP, DEEP]),
        ("select * from ", "(", "t", [SYNTAX, DEEP, DEEP]),
        ("select ", "k[", "1", [SYNTAX, DEEP, DEEP]),
        ("create index i on t (", "(", "k", [SYNTAX, DEEP, DEEP]),
        ("create table a (a ", "array<", "int", [SYNTAX, DEEP, DEEP]),
    ] {
        for (count, expected) in [150, 1_000, 40_000].into_iter().zip(expected) {
            let sql = repeated(first, part, count, last);
            let code = run(&mut session, &sql).err().unwrap_or("00000");
            assert_eq!(code, expected, "{first}{part}... ({count})");
        }
    }
    assert_eq!(run(&mut session, &repeated("select k", " + 1", 1_000, " from t")), Err("54001"));
    assert_eq!(run(&mut session, &repeated("select k", " + 1", 400, " from t")), Ok(2));
    assert_eq!(run(&mut session, &repeated("explain select k", " + 1", 400, " from t")), Ok(1));
}

/// Between a depth that is served and one that is refused as too deep, and beyond it, no depth is called wrong syntax.
#[test]
fn what_is_nested_is_served_or_too_complex() {
    let mut session = session();
    for (open, close, served) in [
        ("(", ")", "00000"),
        ("not ", "", "00000"),
        ("not (", ")", "00000"),
        ("- ", "", "00000"),
        ("coalesce(", ")", "00000"),
        ("cast(", " as int)", "00000"),
        ("true in (false, ", ")", "00000"),
        ("case when ", " then 1 end", "0A000"),
        ("case when true then ", " end", "0A000"),
        ("case when true then 1 else ", " end", "0A000"),
        ("case ", " when 1 then 1 end", "0A000"),
        ("not case when ", " then true end", "0A000"),
    ] {
        let first = if open.contains("not") || open.contains("in") { "true" } else { "1" };
        let mut deepest = 0;
        for depth in (1..20).chain((60..300).step_by(3)).chain([500, 1_000, 5_000]) {
            let sql = format!("select {}{first}{}", open.repeat(depth), close.repeat(depth));
            match run(&mut session, &sql) {
                Err("54001") => {}
                answer => {
                    assert_eq!(answer.err().unwrap_or("00000"), served, "{open}... ({depth})");
                    deepest = depth;
                }
            }
        }
        // (The parser recurses for a sign, too, a little deeper.)
        assert!((60..=224).contains(&deepest), "{open}...: {deepest}");
    }
    // Operands side by side are not nested.
    let side_by_side = vec!["not not (k > 0)"; 500].join(" and ");
    assert_eq!(run(&mut session, &format!("select k from t where {side_by_side}")), Ok(2));
    let side_by_side = vec!["case when true then 1 end"; 500].join(", ");
    assert_eq!(run(&mut session, &format!("select {side_by_side}")), Err("0A000"));
}

/// The tree of a BETWEEN has the tested value once. Otherwise it would double with each link.
#[test]
fn a_chain_of_between_does_not_double() {
    let mut session = session();
    let sql = format!("select k between k and k{} from t", " between true and true".repeat(200));
    assert_eq!(run(&mut session, &sql), Ok(2));
}

/// The processor time of this thread so far, in nanoseconds, which other load on the machine does not change.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Eight times as many rows on lines of their own take about eight times as long, not sixty-four times.
#[test]
fn binding_takes_time_in_proportion_to_the_text() {
    let prepare = |rows: usize| {
        // A new session each time, which has no plan of the statement yet.
        let mut session = session();
        let rows: Vec<String> = (0..rows).map(|row| format!("({row}, 'x')")).collect();
        let sql = format!("insert into t values {}", rows.join(",\n"));
        let begin = processor_ns();
        let read = session.read(&sql).unwrap();
        session.prepare_read(&sql, read).unwrap();
        processor_ns() - begin
    };
    // The fastest of several, in turn and of the same length: other programs that share the caches slow down both.
    let all: Vec<_> = (0..5).map(|_| ((0..8).map(|_| prepare(1_000)).sum(), prepare(8_000))).collect();
    let few: u64 = all.iter().map(|(few, _)| *few).min().unwrap();
    let many = all.iter().map(|(_, many)| *many).min().unwrap();
    println!("8 times 1,000 rows took {few} ns, 8,000 rows {many} ns");
    assert!(few > 0 && many < few * 3, "8 times 1,000 rows took {few} ns, 8,000 rows {many} ns");
}

#[test]
fn a_request_ends_a_statement_that_is_parsed_or_bound() {
    let mut session = session();
    let cancel = session.cancel();
    let rows: Vec<String> = (0..100_000).map(|row| format!("({row}, 'x')")).collect();
    let sql = format!("insert into t values {}", rows.join(","));
    let cancelled = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            // A request that comes between two of these reaches none of them.
            (0..20).find_map(|_| session.prepare(&sql, &[]).err())
        });
        while !running.is_finished() {
            cancel.request();
            std::thread::yield_now();
        }
        running.join().unwrap()
    });
    assert_eq!(cancelled.map(|error: SqlError| error.sqlstate.code()), Some("57014"));
    // The request was for that statement alone.
    assert_eq!(run(&mut session, "select * from t"), Ok(2));
}

#[test]
fn results_and_tables_have_so_many_columns_at_most() {
    let mut session = session();
    let list = |item: &str, count: usize| vec![item; count].join(", ");
    assert_eq!(run(&mut session, &format!("select {}", list("7", 1_664))), Ok(1));
    for count in [1_665, 65_536, 65_537] {
        assert_eq!(run(&mut session, &format!("select {}", list("7", count))), Err("54011"));
    }
    assert_eq!(run(&mut session, &format!("select {} from t", list("*", 833))), Err("54011"));
    let sql = format!("insert into t values (3, 'c') returning {}", list("k", 1_665));
    assert_eq!(run(&mut session, &sql), Err("54011"));
    let sql = format!("select k from t order by {}", list("k", 1_665));
    assert_eq!(run(&mut session, &sql), Err("54011"));
    let columns: Vec<String> = (0..1_601).map(|number| format!("c{number} int")).collect();
    assert_eq!(run(&mut session, &format!("create table wide ({})", columns.join(", "))), Err("54011"));
    assert_eq!(run(&mut session, "select * from t"), Ok(2), "nothing was run");
}

/// Sessions of one server read large statements within one room. A statement that does not fit beside the others is
/// refused, and small ones fit.
#[test]
fn a_large_statement_is_read_where_there_is_room() {
    let database = Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens");
    let room = Room::new(3 << 20);
    let mut session = Session::beside_others(database, "ann", "bank", room);
    run(&mut session, "create table t (k int primary key, c text)").unwrap();
    let insert = |from: usize, rows: usize| {
        let rows: Vec<String> = (from..from + rows).map(|row| format!("({row}, 'it''s')")).collect();
        format!("insert into t values {}", rows.join(","))
    };
    for round in 0..3 {
        // The room is given back whether or not the statement was read.
        assert_eq!(run(&mut session, &insert(round * 2_000, 800)), Ok(0));
        assert_eq!(run(&mut session, &format!("{} x", insert(0, 800))), Err("42601"));
        assert_eq!(run(&mut session, &insert(0, 2_000)), Err("53200"));
        assert_eq!(run(&mut session, &format!("explain {}", insert(0, 2_000))), Err("53200"));
        assert_eq!(run(&mut session, &insert(round * 2_000 + 1_000, 100)), Ok(0));
        assert_eq!(run(&mut session, "select count(*) from t"), Ok(1));
    }
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    let mut session = session();
    let sql = format!("select '{}'", "x".repeat(17 << 20));
    assert_eq!(run(&mut session, &sql), Err("54000"));
}

/// A sort with a limit keeps only as many rows as the limit needs. All rows together would take more than a statement
/// may keep.
#[test]
fn a_limit_bounds_what_a_sort_keeps() {
    let mut session = session();
    let text = "x".repeat(16 << 10);
    let rows = KEPT_BYTES_MAX / text.len() + 1_000;
    let sql =
        format!("select n, '{text}' || n from generate_series(1, {rows}) n order by -n limit 3 offset 1");
    assert_eq!(run(&mut session, &sql), Ok(3));
}

/// Each of the texts is within its own bound; together they would take more than any machine has.
#[test]
fn the_expressions_of_one_row_come_to_so_much_text_at_most() {
    let mut session = session();
    run(&mut session, "create table w (k int primary key, a text)").unwrap();
    run(&mut session, "insert into w values (1, 'a')").unwrap();
    let long = vec!["$1"; 64].join(" || ");
    let list = |item: &str| vec![item; 20].join(", ");
    // Each level holds its text while the next one is computed.
    let mut nested = "'a'".to_string();
    for _ in 0..20 {
        nested = format!("length({long} || {nested})::text");
    }
    let columns: Vec<String> = (0..20).map(|column| format!("c{column} text")).collect();
    run(&mut session, &format!("create table wide ({})", columns.join(", "))).unwrap();
    let keys: Vec<String> = (0..20).map(|key| format!("{long} || g || '{key}'")).collect();
    let assigned: Vec<String> = (0..20).map(|column| format!("c{column} = {long}")).collect();
    run(&mut session, "insert into wide (c0) values ('a')").unwrap();
    for sql in [
        format!("select {nested}"),
        format!("select 1 where {nested} = 'b'"),
        format!("select {}", list(&format!("length({long})"))),
        format!("select g from generate_series(1, 2) g order by {}", keys.join(", ")),
        format!("insert into wide values ({})", list(&long)),
        format!("update wide set {}", assigned.join(", ")),
        format!("delete from wide where {nested} = 'b'"),
    ] {
        let prepared = session.prepare(&sql, &[]).unwrap();
        let value = [rialto::row::Value::Text("x".repeat(1 << 20))];
        let error = session.execute(&prepared, &value, &mut Collected::default()).unwrap_err();
        session.fail(&error).unwrap();
        assert_eq!(error.sqlstate.code(), "54000");
        assert!(error.message.contains("the expressions of one row"), "{}", error.message);
    }
    // The bound is for each row.
    let sql = format!("select count(*) from generate_series(1, 20) g where length({long} || g) > 0");
    let prepared = session.prepare(&sql, &[]).unwrap();
    let value = [rialto::row::Value::Text("x".repeat(1 << 20))];
    session.execute(&prepared, &value, &mut Collected::default()).unwrap();
}

/// Matching a long text against a long pattern takes hours: a request ends it.
#[test]
fn a_request_ends_a_comparison_with_a_pattern() {
    let mut session = session();
    let cancel = session.cancel();
    let prepared = session.prepare("select $1 like $2", &[]).unwrap();
    let text = |text: String| rialto::row::Value::Text(text);
    let values = [text("a".repeat(4 << 20)), text(format!("%{}b", "a".repeat(1 << 20)))];
    let code = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let error = session.execute(&prepared, &values, &mut Collected::default()).unwrap_err();
            session.fail(&error).unwrap();
            error.sqlstate.code()
        });
        while !running.is_finished() {
            cancel.request();
            std::thread::sleep(Duration::from_millis(1));
        }
        running.join().unwrap()
    });
    assert_eq!(code, "57014");
}

/// The parser tries several forms of an expression. What is nested in an expression that it tries twice is not read
/// twice for each level.
#[test]
fn what_is_nested_is_not_read_again_and_again() {
    let mut session = session();
    let nested = |open: &str, inner: &str, close: &str, levels: usize| {
        format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
    };
    for levels in [16, 45] {
        for sql in [
            format!("select {}", nested("position(", "'a'", ", 'b')", levels)),
            format!("select 1 in {}", nested("(values(1 in ", "(1)", "), 2)", levels)),
            format!("create table x (a int check ({}))", nested("a in (values(", "1", "), 2)", levels)),
        ] {
            assert_eq!(run(&mut session, &sql), Err("54001"), "{sql}");
        }
    }
    // Nor is a text that takes long to read and has few expressions, or none.
    let tables = format!("(select * from {})", vec!["t"; 2_000].join(","));
    let derived = format!("(select 1 from (select * from {}) x)", vec!["t"; 2_000].join(","));
    let modifiers = format!("'a'::t({})", vec!["1"; 2_000].join(","));
    let blanks = format!("{}'a'", " \n/* */".repeat(2_000));
    for inner in [tables, derived, modifiers, blanks] {
        let sql = format!("select {}", nested("position(", &inner, ", 'b')", 11));
        assert_eq!(run(&mut session, &sql), Err("54001"), "{}...", &inner[..40]);
    }
    // As deep as people nest such calls.
    assert_eq!(run(&mut session, &format!("select {}", nested("coalesce(", "1", ")", 45))), Ok(1));
    assert_eq!(
        run(&mut session, &format!("select {}", nested("position(", "'a'", ", 'b')", 5))),
        Err("0A000")
    );
}

#[test]
fn a_text_that_is_compared_with_each_item_of_a_list_counts_each_time() {
    let mut session = session();
    let text = "x".repeat(1 << 20);
    let list = |items: usize| vec!["c"; items].join(", ");
    assert_eq!(
        run(&mut session, &format!("select k from t where '{text}' in ({})", list(200))),
        Err("53200")
    );
    assert_eq!(run(&mut session, &format!("select k from t where '{text}' in ({})", list(50))), Ok(0));
}

#[test]
fn savepoints_and_what_they_keep_are_bounded() {
    let mut session = session();
    run(&mut session, "begin").unwrap();
    run(&mut session, "savepoint s").unwrap();
    let refused = (1..=200_000).find_map(|made| Some((made, run(&mut session, "savepoint s").err()?)));
    assert_eq!(refused, Some((100_000, "54000")));
    assert_eq!(run(&mut session, "rollback to s"), Ok(0));
    run(&mut session, "rollback").unwrap();
    // As many characters of a name are significant as in PostgreSQL.
    let long = |last: &str| format!("\"{}{last}\"", "é".repeat(40));
    run(&mut session, "begin").unwrap();
    run(&mut session, &format!("savepoint {}", long("a"))).unwrap();
    assert_eq!(run(&mut session, &format!("rollback to {}", long("b"))), Ok(0));
    assert_eq!(run(&mut session, "rollback to savepoint é"), Err("3B001"));
}

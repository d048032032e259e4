//! Rows: where they lie, and what statements over several partitions give.

use rialto::row::Value;

use crate::in_process::InProcess;
use crate::{code, column, counts, error, run, tag, try_run, value, with_table};

#[test]
fn rows_are_spread_and_found_by_their_key() {
    for count in [1, 2, 4] {
        let (partitions, mut session) = with_table(count, 1_000);
        let counts = counts(&partitions, "t");
        assert_eq!(counts.iter().sum::<u64>(), 1_000);
        assert!(counts.iter().all(|rows| *rows > 1_000 / u64::from(count) * 2 / 3), "{counts:?}");
        for id in [1, 500, 1_000] {
            assert_eq!(run(&mut session, &format!("select c from t where id = {id}")), [[format!("c{id}")]]);
            let by_argument =
                try_run(&mut session, "select c from t where id = $1", Some(&[Value::Int4(id)]));
            assert_eq!(by_argument.unwrap().0, [[format!("c{id}")]]);
        }
        assert_eq!(run(&mut session, "select c from t where id = 1001"), Vec::<Vec<String>>::new());
        assert_eq!(run(&mut session, "select c from t where id = null"), Vec::<Vec<String>>::new());
        assert_eq!(run(&mut session, "select c from t where id = 99999999999"), Vec::<Vec<String>>::new());
        assert_eq!(
            column(&mut session, "select id from t where id in (7, 3, 900, 7) order by id"),
            ["3", "7", "900"]
        );
        let any = try_run(
            &mut session,
            "select id from t where id = any($1::int[]) order by 1 desc",
            Some(&[Value::Text("{1,5,99}".into())]),
        );
        assert_eq!(any.unwrap().0, [["99"], ["5"], ["1"]]);
    }
}

#[test]
fn several_partitions_give_one_result() {
    for count in [1, 2, 4] {
        let (_partitions, mut session) = with_table(count, 1_000);
        assert_eq!(value(&mut session, "select count(*) from t"), "1000");
        assert_eq!(value(&mut session, "select count(*) * 2 + 1 from t where v = 3"), "201");
        assert_eq!(run(&mut session, "select count(*) from t limit 0"), Vec::<Vec<String>>::new());
        assert_eq!(run(&mut session, "select count(*) from t offset 1"), Vec::<Vec<String>>::new());
        assert_eq!(column(&mut session, "select id from t order by id limit 3 offset 5"), ["6", "7", "8"]);
        assert_eq!(column(&mut session, "select id from t order by v desc, id limit 2"), ["9", "19"]);
        assert_eq!(column(&mut session, "select v from t order by -id limit 2"), ["0", "9"]);
        assert_eq!(run(&mut session, "select id from t limit 7").len(), 7);
        assert_eq!(run(&mut session, "select id from t offset 990").len(), 10);
        assert_eq!(run(&mut session, "select id from t limit 0").len(), 0);
        assert_eq!(code(&mut session, "select id from t limit -1"), "22023");
        assert_eq!(tag(&mut session, "update t set v = v + 100 where v < 5"), "UPDATE 500");
        assert_eq!(column(&mut session, "select count(*) from t where v >= 100"), ["500"]);
        assert_eq!(tag(&mut session, "delete from t where v >= 100"), "DELETE 500");
        let mut returned = column(&mut session, "delete from t where id < 10 returning id");
        returned.sort();
        assert_eq!(returned, ["5", "6", "7", "8", "9"]);
        assert_eq!(value(&mut session, "select count(*) from t"), "495");
        assert_eq!(
            run(&mut session, "select id, c from t where v = 7 order by id limit 1 for update"),
            [["17", "c17"]]
        );
    }
}

#[test]
fn nulls_and_text_are_merged_in_their_order() {
    let partitions = InProcess::new(4);
    let mut session = partitions.session();
    run(&mut session, "create table n (id int primary key, v int, c char(5))");
    run(
        &mut session,
        "insert into n values (1, null, 'b'), (2, 5, 'a'), (3, null, null), (4, -5, 'ab'), (5, 7, 'a')",
    );
    assert_eq!(column(&mut session, "select id from n order by v, id"), ["4", "2", "5", "1", "3"]);
    assert_eq!(column(&mut session, "select id from n order by v desc, id"), ["1", "3", "5", "2", "4"]);
    assert_eq!(
        column(&mut session, "select id from n order by v nulls first, id desc"),
        ["3", "1", "4", "2", "5"]
    );
    assert_eq!(
        column(&mut session, "select c from n order by c desc nulls last, id"),
        ["b    ", "ab   ", "a    ", "a    ", "NULL"]
    );
}

#[test]
fn an_insert_is_whole_or_not_at_all_and_its_first_wrong_row_is_told() {
    for count in [1, 2, 4] {
        let (partitions, mut session) = with_table(count, 10);
        let told = error(
            &mut session,
            "insert into t select 16 - n, 1 / (13 - n), 'x' from generate_series(4, 13) n",
        );
        assert_eq!(told.sqlstate.code(), "23505");
        assert_eq!(told.detail.as_deref(), Some("Key (id)=(10) already exists."));
        assert_eq!(told.about.unwrap().constraint.as_deref(), Some("t_pkey"));
        assert_eq!(
            code(&mut session, "insert into t values (11, 1, 'x'), (12, 2147483647 + v_, 'x')"),
            "42703"
        );
        assert_eq!(
            code(&mut session, "insert into t select n, 1 / (15 - n), 'x' from generate_series(11, 20) n"),
            "22012"
        );
        assert_eq!(code(&mut session, "insert into t values (null, 1, 'x')"), "23502");
        assert_eq!(counts(&partitions, "t").iter().sum::<u64>(), 10);
        let rows =
            run(&mut session, "insert into t values (21, 1, 'x'), (22, 2, 'y') returning id * 2, c || '!'");
        assert_eq!(rows, [["42", "x!"], ["44", "y!"]]);
    }
}

#[test]
fn routing_columns_are_not_updated() {
    let (_partitions, mut session) = with_table(2, 10);
    let told = error(&mut session, "update t set id = id + 100");
    assert_eq!(told.sqlstate.code(), "0A000");
    assert!(told.message.contains("\"id\""), "{told}");
    assert_eq!(tag(&mut session, "update t set v = 1 where id = 3"), "UPDATE 1");
}

#[test]
fn a_replicated_table_is_in_all_partitions_and_counts_once() {
    let partitions = InProcess::new(3);
    let mut session = partitions.session();
    run(&mut session, "create table r (id int primary key, name text unique) with (replicated = true)");
    assert_eq!(tag(&mut session, "insert into r values (1, 'a'), (2, 'b'), (3, 'c')"), "INSERT 0 3");
    assert_eq!(counts(&partitions, "r"), [3, 3, 3]);
    assert_eq!(tag(&mut session, "update r set name = 'd' where id = 3"), "UPDATE 1");
    assert_eq!(column(&mut session, "delete from r where id >= 2 returning id"), ["2", "3"]);
    assert_eq!(counts(&partitions, "r"), [1, 1, 1]);
    assert_eq!(value(&mut session, "select count(*) from r"), "1");
    assert_eq!(column(&mut session, "select name from r where id = 1 for update"), ["a"]);
    assert_eq!(code(&mut session, "insert into r values (9, 'x'), (1, 'y')"), "23505");
    assert_eq!(counts(&partitions, "r"), [1, 1, 1]);
}

#[test]
fn a_table_without_a_key_has_its_rows_near_and_is_read_everywhere() {
    let partitions = InProcess::new(4);
    let mut session = partitions.session();
    run(&mut session, "create table h (a int, b text)");
    run(&mut session, "insert into h values (1, 'x'), (2, 'y'), (3, 'z')");
    assert_eq!(counts(&partitions, "h"), [0, 0, 3, 0]);
    assert_eq!(column(&mut session, "select b from h where a = 2"), ["y"]);
    assert_eq!(tag(&mut session, "update h set a = a + 1"), "UPDATE 3");
    assert_eq!(tag(&mut session, "delete from h where a = 2"), "DELETE 1");
}

#[test]
fn rows_lie_by_the_columns_that_the_table_names() {
    let partitions = InProcess::new(4);
    let mut session = partitions.session();
    run(
        &mut session,
        "create table o (w int, d int, o int, primary key (w, d, o)) with (partition_by = 'd')",
    );
    run(&mut session, "insert into o select n % 50, 7, n from generate_series(1, 100) n");
    let rows = counts(&partitions, "o");
    assert_eq!(rows.iter().filter(|rows| **rows == 0).count(), 3, "{rows:?}");
    run(&mut session, "create table p (a int, b text, primary key (a, b)) with (partition_by = 'a, b')");
    run(
        &mut session,
        "insert into p select n % 3, 'x' || n, from generate_series(1, 100) n"
            .replace("n, from", "n from")
            .as_str(),
    );
    assert!(counts(&partitions, "p").iter().all(|rows| *rows > 10));
    assert_eq!(column(&mut session, "select a from p where b = 'x4' and a = 1"), ["1"]);
    assert_eq!(
        column(&mut session, "select b from p where b in ('x4', 'x7', 'y') and a in (1, 2) order by b"),
        ["x4", "x7"]
    );
}

/// Rows that OFFSET passes over may all lie in one partition, or in several.
#[test]
fn a_window_behind_many_rows_is_that_of_one_database() {
    let partitions = InProcess::new(4);
    let mut session = partitions.session();
    run(&mut session, "create table t (id int primary key)");
    run(&mut session, "insert into t select i from generate_series(1, 100) as i");
    for offset in [0, 1, 20, 98, 99, 100] {
        let found = column(&mut session, &format!("select id from t order by id limit 3 offset {offset}"));
        let expected: Vec<String> = (offset + 1..=100).take(3).map(|id: i32| id.to_string()).collect();
        assert_eq!(found, expected, "{offset}");
    }
}

//! ANY, ALL and IN: three-valued logic, and look-ups by keys that find what a scan finds.

use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError, Tag};

fn session() -> Session {
    let database = Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens");
    Session::new(database, "ann", "bank")
}

fn try_run(session: &mut Session, sql: &str, params: &[Value]) -> Result<(Tag, Vec<Vec<Value>>), SqlError> {
    let mut rows = Collected::default();
    let answer = session.prepare(sql, &[]).and_then(|prepared| {
        let tag = session.execute(&prepared, params, &mut rows)?;
        session.finish()?;
        Ok(tag)
    });
    answer.map(|tag| (tag, rows.0)).inspect_err(|error| drop(session.fail(error)))
}

fn run(session: &mut Session, sql: &str, params: &[Value]) -> (Tag, Vec<Vec<Value>>) {
    try_run(session, sql, params).unwrap_or_else(|error| panic!("{sql}\n{} {error}", error.sqlstate.code()))
}

fn text(text: &str) -> Value {
    Value::Text(text.to_string())
}

/// The lines of an EXPLAIN.
fn plan(session: &mut Session, sql: &str, params: &[Value]) -> Vec<String> {
    let (_, rows) = run(session, &format!("explain {sql}"), params);
    rows.iter().map(|row| row[0].to_string()).collect()
}

#[test]
fn nulls_make_answers_unknown() {
    let mut session = session();
    let truth = |value: Option<bool>| value.map_or(Value::Null, Value::Bool);
    for (sql, array, expected) in [
        ("select 1 = any($1::int[])", "{1,2}", Some(true)),
        ("select 3 = any($1::int[])", "{1,2}", Some(false)),
        ("select 1 = any($1::int[])", "{1,NULL}", Some(true)),
        ("select 3 = any($1::int[])", "{1,NULL}", None),
        ("select 3 = any($1::int[])", "{}", Some(false)),
        ("select null::int = any($1::int[])", "{}", Some(false)),
        ("select null::int = any($1::int[])", "{1}", None),
        ("select 3 <> all($1::int[])", "{1,2}", Some(true)),
        ("select 1 <> all($1::int[])", "{1,NULL}", Some(false)),
        ("select 3 <> all($1::int[])", "{1,NULL}", None),
        ("select 3 <> all($1::int[])", "{}", Some(true)),
        ("select 2 < any($1::int[])", "{1,3}", Some(true)),
        ("select 2 < all($1::int[])", "{1,3}", Some(false)),
        ("select 2 >= all($1::int[])", "{1,2}", Some(true)),
        ("select 2 > some($1::int[])", "{2}", Some(false)),
        ("select 'b' = any($1)", "{a,b}", Some(true)),
    ] {
        let (_, rows) = run(&mut session, sql, &[text(array)]);
        assert_eq!(rows, [[truth(expected)]], "{sql} {array}");
        // The same as a literal, in the forms of text and of a list.
        let sql = sql.replace("$1::int[]", &format!("'{array}'::int[]"));
        let sql = sql.replace("$1", &format!("'{array}'"));
        assert_eq!(run(&mut session, &sql, &[]).1, [[truth(expected)]], "{sql}");
        if sql.contains("int[]") {
            let list = array.replace('{', "array[").replace('}', "]");
            let sql = sql.replace(&format!("'{array}'"), &list);
            assert_eq!(run(&mut session, &sql, &[]).1, [[truth(expected)]], "{sql}");
        }
    }
    for sql in ["select 1 = any($1::int[])", "select 1 <> all($1::int[])"] {
        assert_eq!(run(&mut session, sql, &[Value::Null]).1, [[Value::Null]], "{sql}");
    }
    assert_eq!(run(&mut session, "select 1 = any(null)", &[]).1, [[Value::Null]]);
    let (_, rows) = run(&mut session, "select $1::int[] is null, array[1] is not null", &[Value::Null]);
    assert_eq!(rows, [[Value::Bool(true), Value::Bool(true)]]);
}

#[test]
fn errors_of_arrays_have_their_codes() {
    let mut session = session();
    for (sql, expected) in [
        ("select 1 = any(5)", "42809"),
        ("select 1 = any(array['a'])", "42883"),
        ("select 1 = any(array[1, 'x'])", "22P02"),
        ("select 1 = any(array[1, true])", "42804"),
        ("select 1 = any(array[])", "42P18"),
        ("select 1 = any('{1')", "22P02"),
        ("select 1 = any('{{1}}'::int[])", "0A000"),
        ("select 1 = any(array[array[1]])", "0A000"),
        ("select 1 = any('{1}'::int[][])", "0A000"),
        ("select array[1]", "0A000"),
        ("select '{1}'::int[]", "0A000"),
        ("select 1 = any(select 1)", "0A000"),
        ("create table a (a int[])", "0A000"),
        ("select 1 + any(array[1])", "42601"),
    ] {
        let error = try_run(&mut session, sql, &[]).unwrap_err();
        assert_eq!(error.sqlstate.code(), expected, "{sql}: {error}");
    }
}

#[test]
fn a_list_is_looked_up_by_its_keys() {
    let mut session = session();
    run(&mut session, "create table t (a int, b int, c text, d int, primary key (a, b), unique (c))", &[]);
    run(&mut session, "create index t_d on t (d, a)", &[]);
    let array = [text("{1,2}")];
    for (condition, params, expected) in [
        ("c = any($1)", &array[..], ["Index scans on t using t_c_key", "  Key: (c = ANY ($1))"]),
        ("c in ('x', 'y')", &[], ["Index scans on t using t_c_key", "  Key: (c IN ('x', 'y'))"]),
        (
            "a = 1 and b = any($1)",
            &array,
            ["Key lookups on t using t_pkey", "  Key: a = 1 AND (b = ANY ($1))"],
        ),
        ("b = 1 and a in (2, 3)", &[], ["Key lookups on t using t_pkey", "  Key: (a IN (2, 3)) AND b = 1"]),
        ("a in (1, 2)", &[], ["Index scans on t using t_pkey", "  Key: (a IN (1, 2))"]),
        ("d = any('{1,2}')", &[], ["Index scans on t using t_d", "  Key: (d IN (1, 2))"]),
        ("a = 1 and b in (2)", &[], ["Key lookup on t using t_pkey", "  Key: a = 1 AND b = 2"]),
    ] {
        for statement in ["select * from t", "delete from t", "update t set a = 1"] {
            let lines = plan(&mut session, &format!("{statement} where {condition}"), params);
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let shift = usize::from(!statement.starts_with("select"));
            let found: Vec<&str> = lines[shift..].iter().map(|line| &line[2 * shift..]).collect();
            assert_eq!(found, expected, "{statement} {condition}");
        }
    }
    for condition in ["a not in (1, 2)", "a <> all($1)", "a > any($1)", "a in (b, 1)"] {
        let params = if condition.contains('$') { &array[..] } else { &[] };
        let lines = plan(&mut session, &format!("select * from t where {condition}"), params);
        assert_eq!(lines[0], "Table scan on t using t_pkey", "{condition}");
    }
    // One list is enough: with two there would be a key for each pair.
    let lines = plan(&mut session, "select * from t where a in (1, 2) and b in (1, 2)", &[]);
    assert_eq!(lines[1..], ["  Key: (a IN (1, 2))", "  Filter: (b IN (1, 2))"]);
}

/// A list of any numbers, as text, and whether it is a list in parentheses.
fn list(random: &mut Random) -> Vec<String> {
    let item = |random: &mut Random| match random.below(12) {
        0 => "null".to_string(),
        1 => "2147483647".to_string(),
        number => (number / 2).to_string(),
    };
    let length = random.below(6);
    (0..length).map(|_| item(random)).collect()
}

/// Statements by keys of a list change and find the same rows as those of a table without any key.
#[test]
fn rows_are_those_of_a_scan() {
    let mut random = Random::new(Random::seed_from_environment());
    let mut session = session();
    run(&mut session, "create table keyed (a int, b int, c text, d int, primary key (a, b))", &[]);
    run(&mut session, "create index on keyed (d)", &[]);
    run(&mut session, "create index on keyed (c, b)", &[]);
    run(&mut session, "create table plain (a int, b int, c text, d int)", &[]);
    let mut key = 0;
    for _ in 0..2_000 {
        let array = list(&mut random);
        let column = ["a", "b", "c", "d"][random.below(4) as usize];
        let argument = [text(&format!("{{{}}}", array.join(",")))];
        let (mut condition, params) = match random.below(3) {
            0 if !array.is_empty() => {
                let quoted = |item: &String| match (column, item.as_str()) {
                    ("c", "null") | (_, "null") => "null".to_string(),
                    ("c", item) => format!("'{item}'"),
                    (_, item) => item.to_string(),
                };
                let items: Vec<String> = array.iter().map(quoted).collect();
                (format!("{column} in ({})", items.join(", ")), &[][..])
            }
            _ => (format!("{column} = any($1)"), &argument[..]),
        };
        for _ in 0..random.below(3) {
            let other = ["a = 1", "b = 2", "c = '3'", "d > 1", "b in (1, 2, 3)"][random.below(5) as usize];
            condition = format!("{condition} and {other}");
        }
        let statement = match random.below(6) {
            0 | 1 => {
                let (a, b) = (random.below(6), key);
                key += 1;
                let c = random.below(6);
                let d = if random.below(4) == 0 { "null".to_string() } else { random.below(6).to_string() };
                format!("insert into TABLE values ({a}, {b} % 7, '{c}', {d})")
            }
            2 => format!("update TABLE set d = d + 1 where {condition} returning a, b, d"),
            3 => format!("delete from TABLE where {condition} and b = 3 returning a, b"),
            4 => {
                let order = ["a, b", "b, a", "b desc, a", "a desc, b desc"][random.below(4) as usize];
                format!("select * from TABLE where {condition} order by {order}")
            }
            _ => format!("select count(*) from TABLE where {condition}"),
        };
        let params = if statement.contains("$1") { params } else { &[] };
        let mut answers = Vec::new();
        let unique = statement.starts_with("insert");
        for table in ["keyed", "plain"] {
            let answer = try_run(&mut session, &statement.replace("TABLE", table), params);
            if unique && answer.is_err() {
                break;
            }
            let (tag, mut rows) = answer.unwrap_or_else(|error| panic!("{statement}: {error}"));
            if !statement.contains("order by") {
                rows.sort_by_key(|row| format!("{row:?}"));
            }
            answers.push((tag, rows));
        }
        if let [one, other] = &answers[..] {
            assert_eq!(one, other, "{statement} {argument:?}");
        }
    }
}

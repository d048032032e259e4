//! Plans are shared by texts that differ only in their literals. For all statements, a session that shares plans gives
//! the same answers as a session that binds each text as it stands: rows, names and types of columns, errors with their
//! places. `RIALTO_SEED` runs a round again; `RIALTO_TEST_SECONDS` says for how long new ones are tried.

use std::sync::Arc;
use std::time::Instant;

use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::{OutputColumn, Prepared, ReadStatement, Ready, Session, SqlError, SqlState, Tag};

fn session() -> Session {
    let options = Options { memory_bytes: 64 << 20, ..Options::default() };
    let database = Database::open_on(MemoryDisk::new(), options).expect("a new database opens");
    Session::new(database, "ann", "bank")
}

/// The answer to a statement.
#[derive(Debug, PartialEq)]
struct Told {
    columns: Vec<OutputColumn>,
    rows: Vec<Vec<Value>>,
    outcome: Result<Tag, SqlError>,
}

fn told<'t>(
    session: &mut Session,
    text: &'t str,
    prepare: impl FnOnce(&mut Session, &'t str) -> Result<Ready<'t>, SqlError>,
) -> Told {
    let mut rows = Collected::default();
    let mut columns = Vec::new();
    let mut outcome = prepare(session, text).and_then(|ready| {
        if ready.prepared.params.len() > ready.arguments.len() {
            return Err(SqlError::new(SqlState::UndefinedParameter, "a simple query has no parameters"));
        }
        columns.clone_from(&ready.prepared.columns);
        session.execute_ready(&ready, &mut rows)
    });
    if let Ok(tag) = outcome {
        outcome = session.finish().map(|()| tag);
    }
    if let Err(error) = &outcome {
        let _ = session.fail(error);
        // A client is told only of the error, in a simple query too: the rows are taken back.
        (columns, rows.0) = Default::default();
    }
    Told { columns, rows: rows.0, outcome }
}

/// Runs the text as a simple query; whether there was a plan of a text with other literals.
fn shared(session: &mut Session, text: &str) -> (Told, bool) {
    let mut lifted = false;
    let told = told(session, text, |session, text| {
        let read = session.read(text)?;
        lifted = matches!(read, ReadStatement::Lifted(..));
        session.prepare_read(text, read)
    });
    (told, lifted)
}

/// Binds the text as it stands.
fn alone(session: &mut Session, text: &str) -> Told {
    told(session, text, |session, text| session.prepare(text, &[]).map(Ready::of))
}

/// Runs the text in both sessions and compares the answers; whether the plan was another text's.
fn both(one: &mut Session, two: &mut Session, text: &str) -> bool {
    let (found, lifted) = shared(one, text);
    let expected = alone(two, text);
    if matches!(&found.outcome, Err(error) if error.sqlstate == SqlState::UndefinedParameter) {
        // A simple query refuses a parameter where it finds it; a prepared statement may have parameters, and other
        // errors before.
        assert!(expected.outcome.is_err(), "{text} (lifted: {lifted}): {found:?}, {expected:?}");
    } else {
        assert_eq!(found, expected, "{text} (lifted: {lifted})");
    }
    lifted
}

const SET_UP: [&str; 6] = [
    "create table t (a int not null, b smallint, c bigint, d text, e char(5), f numeric(6,2), g double precision, \
     h timestamp, i date, j boolean)",
    "create table u (a int, b smallint, c bigint, d text, e char(5), f numeric(6,2), g double precision, \
     h timestamp, i date, j boolean)",
    "alter table t add primary key (a)",
    "create index on t (c, d)",
    "insert into t select n, 3, n * 5, 'x', 'y', 1.5, 2.5, null, '2026-01-31', true from generate_series(1, 9) n",
    "update t set d = null, b = null where a % 4 = 0",
];

/// A place for a literal, which is filled in later. A template changes it to one of [`KINDS`].
const HOLE: char = '@';
/// The literals of a hole: mostly an integer, mostly a string, anything.
const KINDS: [char; 3] = ['\u{1}', '\u{2}', '\u{3}'];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

fn literal(random: &mut Random, kind: char) -> String {
    let numbers =
        ["0", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "40000", "007"];
    let strings = [
        "'x'",
        "'5'",
        "''",
        "'-3'",
        "'2026-01-31'",
        "'2026-01-31 10:00:00'",
        "'true'",
        "'1.25'",
        "'y  '",
        "'t%'",
    ];
    let others = [
        "1.5",
        "0.001",
        "1e2",
        "99999999.5",
        "null",
        "true",
        "- 3",
        "+4",
        "-2147483648",
        "-9223372036854775808",
        "'it''s'",
        "E'x'",
        "date '2026-01-31'",
        "$$x$$",
        "'5'::int",
        "5::text",
        "(7)",
        "'grö'",
    ];
    match (kind, random.below(20)) {
        ('\u{1}', 0..16) => random.below(11).to_string(),
        ('\u{1}', 16) => format!("-{}", random.below(11)),
        ('\u{1}' | '\u{3}', 0..18) => pick(random, &numbers).to_owned(),
        ('\u{2}', 0..18) => pick(random, &strings).to_owned(),
        _ => pick(random, &others).to_owned(),
    }
}

fn expression(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.chance(1, 4) {
        return match random.below(5) {
            0 | 1 => pick(random, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]).to_owned(),
            _ => HOLE.to_string(),
        };
    }
    let mut inner = || expression(random, depth - 1);
    let (one, two, three) = (inner(), inner(), inner());
    match random.below(16) {
        0..4 => format!("{one} {} {two}", pick(random, &["+", "-", "*", "/", "%"])),
        4 => format!("({one} + {two})"),
        5 => format!("coalesce({one}, {two})"),
        6 => format!("nullif({one}, {two})"),
        7 => format!("abs({one})"),
        8 => format!("-{one}"),
        9 => format!(
            "cast({one} as {})",
            pick(random, &["int", "smallint", "bigint", "text", "numeric(4,1)", "char(2)"])
        ),
        10 => format!("{one} || {two}"),
        11 => format!("{one} in ({two}, {three})"),
        12 => format!("{one} between {two} and {three}"),
        13 => format!("length({one})"),
        14 => format!("{one} {} {two}", pick(random, &["=", "<", ">=", "<>", "like"])),
        _ => format!("{one} is null"),
    }
}

fn condition(random: &mut Random) -> String {
    let column = pick(random, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
    match random.below(8) {
        0..3 => format!("a = {HOLE}"),
        3 => format!("{column} {} {HOLE}", pick(random, &["=", "<", "<=", ">", ">=", "<>"])),
        4 => format!("c = {HOLE} and d >= {HOLE}"),
        5 => format!("a = {HOLE} or {column} in ({HOLE}, {HOLE})"),
        6 => format!("a between {HOLE} and {HOLE}"),
        _ => expression(random, 2),
    }
}

/// A statement with holes for its literals.
fn template(random: &mut Random) -> String {
    let table = if random.chance(1, 5) { "u" } else { "t" };
    let column = pick(random, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "a, b", "d, c"]);
    let mut text = match random.below(10) {
        0..4 => {
            let items = match random.below(3) {
                0 => expression(random, 2),
                1 => format!("{column}, {}", expression(random, 1)),
                _ => column.to_owned(),
            };
            let mut text = format!("select {items} from {table} where {}", condition(random));
            for (chance, more) in [
                (4, " order by @"),
                (6, " order by a + @"),
                (6, " limit @"),
                (6, " offset @"),
                (6, " for update"),
            ] {
                if random.chance(1, chance) {
                    text.push_str(more);
                }
            }
            text
        }
        4 | 5 => {
            let (one, two) = (expression(random, 1), expression(random, 1));
            let column = pick(random, &["b", "c", "d", "e", "f", "g", "h", "i", "j"]);
            match random.below(3) {
                0 => format!("update {table} set {column} = {one} where {}", condition(random)),
                1 => format!("update {table} set {column} = {column} + {HOLE} where a = {HOLE}"),
                _ => format!("update {table} set b = {one}, {column} = {two} where a = {HOLE} returning *"),
            }
        }
        6 | 7 => match random.below(4) {
            0 => format!(
                "insert into {table} (a, {column}) values ({HOLE}, {HOLE}), ({HOLE}, {})",
                expression(random, 1)
            ),
            1 => format!(
                "insert into {table} (a, c, d) select n, @, @ from generate_series(@, @) n where n <> @"
            ),
            2 => format!("insert into {table} values (@, @, @, @, @, @, @, @, @, @) returning a, @"),
            _ => format!("insert into {table} (a, {column}) values ({HOLE}, {HOLE})"),
        },
        8 => format!("delete from {table} where {}", condition(random)),
        _ => format!("select {}, {}", expression(random, 3), expression(random, 1)),
    };
    if random.chance(1, 30) {
        text = text.replacen("from t", "from nowhere", 1);
    }
    if random.chance(1, 30) {
        let mut at = random.below(text.len() as u64) as usize;
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text.insert_str(at, pick(random, &[" -- ", "/*", "\"", " , ", "(", "\n", "é", "$1", " as ", "'"]));
    }
    text.chars()
        .map(|at| if at == HOLE { KINDS[[0, 0, 0, 0, 1, 1, 2][random.below(7) as usize]] } else { at })
        .collect()
}

fn fill(random: &mut Random, template: &str) -> String {
    let mut text = String::new();
    for at in template.chars() {
        match KINDS.contains(&at) {
            true => text.push_str(&literal(random, at)),
            false => text.push(at),
        }
    }
    text
}

/// Statements that change the tables of plans.
const CHANGES: [&str; 6] = [
    "create index t_b on t (b)",
    "drop index if exists t_b",
    "drop table u",
    "create table if not exists u (a bigint, b int, c smallint, d char(3), e text, f int, g numeric(9,3), h date, i timestamp, j text)",
    "create table if not exists u (a int primary key, b smallint, c bigint, d text, e char(5), f numeric(6,2), g double precision, h timestamp, i date, j boolean)",
    "truncate u",
];

fn round(random: &mut Random) -> (u32, u32) {
    let (mut one, mut two) = (session(), session());
    for text in SET_UP {
        both(&mut one, &mut two, text);
    }
    let (mut statements, mut lifted) = (0, 0);
    let mut templates: Vec<String> = Vec::new();
    for _ in 0..150 {
        match random.below(24) {
            0 => {
                let text = pick(random, &CHANGES);
                both(&mut one, &mut two, text);
            }
            1 | 2 => {
                let text = pick(
                    random,
                    &["begin", "commit", "rollback", "rollback", "savepoint s", "rollback to s"],
                );
                both(&mut one, &mut two, text);
            }
            _ => {}
        }
        if templates.is_empty() || random.chance(1, 6) {
            templates.push(template(random));
        }
        let template = &templates[random.below(templates.len() as u64) as usize];
        let text = fill(random, template);
        // A series with such a number may be too long.
        let long = text.split(|at: char| !at.is_ascii_digit()).any(|digits| digits.len() > 3);
        if text.contains("generate_series") && (long || text.contains("1e")) {
            continue;
        }
        statements += 1;
        lifted += u32::from(both(&mut one, &mut two, &text));
    }
    both(&mut one, &mut two, "rollback");
    for table in ["t", "u"] {
        both(&mut one, &mut two, &format!("select * from {table}"));
    }
    (statements, lifted)
}

#[test]
fn a_shared_plan_gives_what_the_statement_alone_gives() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let (mut seed, mut statements, mut lifted) = (base, 0, 0);
    while seed == base || Instant::now() < until {
        println!("seed {seed}: RIALTO_SEED={seed} runs it again");
        let (more, shared) = round(&mut Random::new(seed));
        statements += more;
        lifted += shared;
        seed = seed.wrapping_add(1);
    }
    println!(
        "tally: lifted, {statements} statements, {lifted} of them with another's plan, RIALTO_SEED={base}"
    );
    assert!(lifted * 20 > statements, "{lifted} of {statements} statements shared a plan: it hardly happens");
}

/// Runs a text as a simple query. Gives the plan, and whether it was another text's.
fn plan(session: &mut Session, text: &str) -> (Arc<Prepared>, bool) {
    let read = session.read(text).unwrap();
    let lifted = matches!(read, ReadStatement::Lifted(..));
    let ready = session.prepare_read(text, read).unwrap();
    session.execute_ready(&ready, &mut Collected::default()).unwrap();
    session.finish().unwrap();
    (ready.prepared, lifted)
}

fn rows(session: &mut Session, text: &str) -> Vec<Vec<Value>> {
    let (told, _) = shared(session, text);
    told.outcome.unwrap();
    told.rows
}

#[test]
fn texts_that_differ_in_literals_share_a_plan_until_the_tables_change() {
    let mut one = session();
    for text in SET_UP {
        plan(&mut one, text);
    }
    let texts = ["update t set c = c + -7 where a = 1", "update t set c = c + -80 where a = 22"];
    let (first, lifted) = plan(&mut one, texts[0]);
    assert!(!lifted);
    let (second, lifted) = plan(&mut one, texts[1]);
    assert!(lifted && Arc::ptr_eq(&first, &second));
    assert_eq!(rows(&mut one, "select c from t where a = 1"), [[Value::Int8(-2)]]);

    plan(&mut one, "create index t_b on t (b)");
    let (third, _) = plan(&mut one, texts[0]);
    assert!(!Arc::ptr_eq(&first, &third), "the plan was made for other indexes");
    assert_eq!(rows(&mut one, "select c from t where a = 1"), [[Value::Int8(-9)]]);
    let (fourth, lifted) = plan(&mut one, texts[1]);
    assert!(lifted && Arc::ptr_eq(&third, &fourth));

    plan(&mut one, "drop table t");
    assert_eq!(shared(&mut one, texts[0]).0.outcome.unwrap_err().sqlstate.code(), "42P01");
}

/// A plan is made again between its lookup and its run: with the literals of the statement that runs, not of the one
/// that made it.
#[test]
fn a_plan_that_is_made_anew_keeps_its_arguments() {
    let mut one = session();
    for text in SET_UP {
        plan(&mut one, text);
    }
    plan(&mut one, "delete from t where a = 1");
    let text = "delete from t where a = 2";
    let read = one.read(text).unwrap();
    assert!(matches!(read, ReadStatement::Lifted(..)));
    let ready = one.prepare_read(text, read).unwrap();
    plan(&mut one, "create index t_b on t (b)");
    one.execute_ready(&ready, &mut Collected::default()).unwrap();
    one.finish().unwrap();
    assert_eq!(rows(&mut one, "select count(*) from t where a <= 3"), [[Value::Int8(1)]]);
}

/// If the value of a literal decides something when the statement is bound, it does so whatever plan came before.
#[test]
fn errors_of_literals_have_their_places() {
    let mut one = session();
    for text in SET_UP {
        plan(&mut one, text);
    }
    for (good, bad, code, position) in [
        ("update u set b = 5", "update u set b = 40000", "22003", 18),
        ("select a from u where 4 / 2 = a", "select a from u where 4 / 0 = a", "22012", 23),
        ("select a from t where a = '5'", "select a from t where a = 'x'", "22P02", 27),
        ("select a from t order by 1", "select a from t order by 7", "42P10", 26),
        ("select 2147483647 + a from t where a = 0", "select 2147483647 + 1 from t where a = 0", "22003", 8),
        ("select a from t where h = '2026-01-31'", "select a from t where h = 'soon'", "22007", 27),
    ] {
        assert!(shared(&mut one, good).0.outcome.is_ok(), "{good}");
        let error = shared(&mut one, bad).0.outcome.unwrap_err();
        assert_eq!((error.sqlstate.code(), error.position), (code, Some(position)), "{bad}: {error}");
    }
}

/// A longer text is not kept without its literals, and lifting them would take more than the text.
#[test]
fn texts_up_to_a_length_are_lifted() {
    let mut one = session();
    let text = |bytes: usize| {
        let mut sql = "select n from generate_series(1, 0) n where n in (1".to_string();
        while sql.len() < bytes {
            sql.push_str(", 1");
        }
        sql.push(')');
        sql
    };
    for (bytes, expected) in [(1 << 10, true), (255 << 10, true), (257 << 10, false), (1 << 20, false)] {
        let read = one.read(&text(bytes)).unwrap();
        assert_eq!(matches!(read, ReadStatement::Parsed(_, Some(_))), expected, "{bytes}");
    }
}

//! Random values of all types, stored and compared. Conditions, by an index and by a scan, find what plain arithmetic
//! on numbers, days and characters says, and literals and binary dates have the values that it says. `RIALTO_SEED` runs
//! a round again; `RIALTO_TEST_SECONDS` says for how long new ones are tried.

use std::cmp::Ordering;

use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::values::binary;
use rialto_sql::{Session, SqlType};

use crate::seeds::for_a_while;
use crate::statements::conditions::OPERATORS;

/// A value, without the type in which it is written.
#[derive(Debug, Clone, PartialEq)]
enum Plain {
    /// In hundredths.
    Number(i128),
    Float(f64),
    Text(String),
    /// Of a char: trailing blanks do not count.
    Char(String),
    /// In microseconds since 1970.
    Moment(i128),
}

impl Plain {
    fn compare(&self, other: &Plain) -> Ordering {
        let float = |plain: &Plain| match plain {
            Plain::Number(hundredths) => *hundredths as f64 / 100.0,
            Plain::Float(value) => *value,
            other => panic!("{other:?} is no number"),
        };
        match (self, other) {
            (Plain::Number(one), Plain::Number(other)) => one.cmp(other),
            (Plain::Moment(one), Plain::Moment(other)) => one.cmp(other),
            (Plain::Text(one), Plain::Text(other)) => one.cmp(other),
            // As in PostgreSQL, a char beside a text is a text without its trailing blanks.
            (Plain::Char(one), Plain::Text(other)) => one.trim_end_matches(' ').cmp(other),
            (Plain::Char(one), Plain::Char(other)) => {
                one.trim_end_matches(' ').cmp(other.trim_end_matches(' '))
            }
            _ => float(self).partial_cmp(&float(other)).expect("no value is NaN"),
        }
    }
}

const DAY: i128 = 86_400_000_000;

/// The day from which clients count, the 1st of January 2000.
const DAYS_TO_2000: i64 = 10_957;
/// The first and the last date of clients: the Julian day 0, and the 31st of December 5874897.
const FIRST_DAY: i64 = -2_440_588;
const LAST_DAY: i64 = 2_145_042_905;

/// The date of a day since 1970, and whether it is one before Christ, by the calendar's rule of 400 years.
fn date_of_era(day: i64) -> (String, &'static str) {
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    (format!("{year:04}-{month:02}-{day:02}"), era)
}

/// A date in its text form.
fn date(day: i64) -> String {
    let (date, era) = date_of_era(day);
    format!("{date}{era}")
}

fn one<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.below(all.len() as u64) as usize]
}

/// A day after the year 1, most often near 1970, sometimes beyond all timestamps.
fn any_day(random: &mut Random) -> i64 {
    match random.below(6) {
        0 => 106_751_991 + random.below(2_000_000_000) as i64,
        1 => random.below(100_000_000) as i64,
        _ => random.below(6) as i64 - 3,
    }
}

fn hundredths(value: i128) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", value.unsigned_abs() / 100, value.unsigned_abs() % 100)
}

/// The types of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Small,
    Int,
    Big,
    Numeric,
    Double,
    Text,
    Char,
    Date,
    Timestamp,
}

const TYPES: [(Type, &str); 9] = [
    (Type::Small, "smallint"),
    (Type::Int, "integer"),
    (Type::Big, "bigint"),
    (Type::Numeric, "numeric(20,2)"),
    (Type::Double, "double precision"),
    (Type::Text, "text"),
    (Type::Char, "char(4)"),
    (Type::Date, "date"),
    (Type::Timestamp, "timestamp"),
];

fn any_text(random: &mut Random, longest: u64) -> String {
    (0..random.below(longest + 1)).map(|_| one(random, &["a", "b", " ", "é"])).collect()
}

/// A value that a column can hold, in its text form.
fn stored(random: &mut Random, of: Type) -> (String, Plain) {
    let small = random.below(7) as i128 - 3;
    match of {
        Type::Small | Type::Int | Type::Big => {
            let most = match of {
                Type::Small => i128::from(i16::MAX),
                Type::Int => i128::from(i32::MAX),
                _ => i128::from(i64::MAX),
            };
            let value = [small, most, -most, most - 1]
                [if random.chance(1, 3) { random.below(4) as usize } else { 0 }];
            (value.to_string(), Plain::Number(value * 100))
        }
        Type::Numeric => (hundredths(small * 25), Plain::Number(small * 25)),
        Type::Double => (format!("{}", small as f64 / 4.0), Plain::Float(small as f64 / 4.0)),
        Type::Text => {
            let text = any_text(random, 4);
            (format!("'{text}'"), Plain::Text(text))
        }
        Type::Char => {
            let text = any_text(random, 4);
            (format!("'{text}'"), Plain::Char(text))
        }
        Type::Date => {
            let day = any_day(random);
            (format!("'{}'", date(day)), Plain::Moment(i128::from(day) * DAY))
        }
        Type::Timestamp => {
            let day = any_day(random).min(100_000_000);
            let hour = random.below(2) * 12;
            let moment = i128::from(day) * DAY + i128::from(hour) * DAY / 24;
            (format!("'{} {hour:02}:00:00'", date(day)), Plain::Moment(moment))
        }
    }
}

/// A value for a comparison with a column, in its text form.
fn compared(random: &mut Random, of: Type) -> (String, Plain) {
    match of {
        Type::Text => {
            let text = any_text(random, 5);
            (format!("'{text}'{}", one(random, &["", "::text"])), Plain::Text(text))
        }
        // A value without a type of its own becomes a char beside a char.
        Type::Char => {
            let text = any_text(random, 5);
            match random.below(3) {
                0 => (format!("'{text}'"), Plain::Char(text)),
                1 => (format!("('{text}'::text || '')"), Plain::Text(text)),
                _ => (format!("'{text}'::text"), Plain::Text(text)),
            }
        }
        Type::Date | Type::Timestamp => {
            let (of, word) =
                if random.chance(1, 2) { (Type::Date, "date") } else { (Type::Timestamp, "timestamp") };
            let (text, plain) = stored(random, of);
            (format!("{word} {text}"), plain)
        }
        _ => match random.below(4) {
            0 => stored(random, Type::Big),
            1 => {
                let value = random.below(1_201) as i128 - 600;
                (hundredths(value), Plain::Number(value))
            }
            2 => {
                let value = random.below(9) as f64 / 2.0 - 2.0;
                (format!("'{value}'::float8"), Plain::Float(value))
            }
            _ => {
                let value = random.below(9) as i128 - 4;
                (value.to_string(), Plain::Number(value * 100))
            }
        },
    }
}

type Answer = Result<Vec<Vec<Value>>, &'static str>;

/// Runs a statement as a simple query, or as a prepared statement with these types and arguments.
fn run(session: &mut Session, sql: &str, arguments: Option<(&[SqlType], &[Value])>) -> Answer {
    let mut rows = Collected::default();
    let answer = match arguments {
        None => session.read(sql).and_then(|read| {
            let ready = session.prepare_read(sql, read)?;
            session.execute_ready(&ready, &mut rows)
        }),
        Some((types, values)) => {
            session.prepare(sql, types).and_then(|prepared| session.execute(&prepared, values, &mut rows))
        }
    };
    let answer = answer.and_then(|_| session.finish());
    answer.map(|()| rows.0).map_err(|error| {
        let _ = session.fail(&error);
        error.sqlstate.code()
    })
}

/// Some rows in a table with indexes and in one without; both get the same queries.
fn comparisons(session: &mut Session, random: &mut Random, about: &str) -> u64 {
    let (of, name) = TYPES[random.below(TYPES.len() as u64) as usize];
    let mut kept: Vec<Plain> = Vec::new();
    run(session, "drop table if exists scanned, indexed", None).unwrap();
    for table in ["scanned", "indexed"] {
        run(session, &format!("create table {table} (k int primary key, v {name})"), None).unwrap();
    }
    run(session, "create index on indexed (v)", None).unwrap();
    for key in 0..8 {
        let (text, plain) = stored(random, of);
        for table in ["scanned", "indexed"] {
            let sql = format!("insert into {table} values ({key}, {text})");
            assert_eq!(run(session, &sql, None), Ok(vec![]), "{about}: {sql}");
        }
        kept.push(plain);
    }
    let asked = 30;
    for _ in 0..asked {
        let ((text, value), (operator, holds)) = (compared(random, of), OPERATORS[random.below(6) as usize]);
        let keys = kept.iter().enumerate().filter(|(_, kept)| holds(kept.compare(&value)));
        let expected: Vec<_> = keys.map(|(key, _)| vec![Value::Int4(key as i32)]).collect();
        for table in ["scanned", "indexed"] {
            let sql = format!("select k from {table} where v {operator} {text} order by k");
            assert_eq!(run(session, &sql, None), Ok(expected.clone()), "{about}: {kept:?}: {sql}");
            // As from a client that says that its argument is a text.
            if let Plain::Text(text) = &value {
                let sql = format!("select k from {table} where v {operator} $1 order by k");
                let found = run(session, &sql, Some((&[SqlType::Text], &[Value::Text(text.clone())])));
                assert_eq!(found, Ok(expected.clone()), "{about}: {kept:?}: {sql} of {text:?}");
            }
        }
    }
    asked
}

/// A statement of literals alone, and its result: a text, or an error.
fn literal(random: &mut Random) -> (String, Result<String, &'static str>) {
    match random.below(5) {
        0 => {
            let day = any_day(random);
            // The last timestamp is in the year 294276.
            let is_far = day > 106_751_991;
            let sql = format!("select (date '{}'::timestamp)::text", date(day));
            (sql, if is_far { Err("22008") } else { Ok(format!("{} 00:00:00", date(day))) })
        }
        1 => {
            let exponent = random.below(800) as i64 - 400;
            let sql =
                format!("select ('1e{exponent}'::float8 {} 0)::text", if exponent > 0 { ">" } else { "<>" });
            (sql, if (-323..=308).contains(&exponent) { Ok("true".to_owned()) } else { Err("22003") })
        }
        2 => {
            let (text, pattern) = (any_text(random, 4), any_text(random, 4));
            let with_rest = random.chance(1, 2);
            let padded = format!("{text}{}", " ".repeat(4 - text.chars().count()));
            let is_like = if with_rest { padded.starts_with(&pattern) } else { padded == pattern };
            let rest = if with_rest { "%" } else { "" };
            let sql = format!("select ('{text}'::char(4) like '{pattern}{rest}')::text");
            (sql, Ok(is_like.to_string()))
        }
        3 => {
            let (first, second) = (any_text(random, 3), any_text(random, 3));
            let ends_line = random.chance(2, 3);
            let between =
                if ends_line { one(random, &["\n", " \n ", " -- so\n"]) } else { one(random, &[" ", "  "]) };
            let sql = format!("select '{first}'{between}'{second}' from generate_series(1, 1) n");
            (sql, if ends_line { Ok(format!("{first}{second}")) } else { Err("42601") })
        }
        _ => {
            let value = one(random, &["5", "2024", "true", "1.5"]);
            let word = one(random, &["date", "timestamp"]);
            (format!("select ({word} {value})::text"), Err("42601"))
        }
    }
}

/// A date or a timestamp in binary form, often at the bounds of clients or one of their infinities; and its text, or an
/// error.
fn binary_date(random: &mut Random) -> (SqlType, Vec<u8>, Result<String, &'static str>) {
    let days = [FIRST_DAY, LAST_DAY, 0, any_day(random)];
    let day = days[random.below(4) as usize] + random.below(5) as i64 - 2;
    if random.chance(1, 2) {
        let sent = match random.below(4) {
            0 => [i32::MIN, i32::MAX][random.below(2) as usize],
            _ => i32::try_from(day - DAYS_TO_2000).expect("near a client's day"),
        };
        let day = i64::from(sent) + DAYS_TO_2000;
        let is_date = (FIRST_DAY..=LAST_DAY).contains(&day);
        return (
            SqlType::Date,
            sent.to_be_bytes().into(),
            if is_date { Ok(date(day)) } else { Err("22008") },
        );
    }
    let hour = random.below(24) as i64;
    let sent = match random.below(4) {
        0 => [i64::MIN, i64::MAX, i64::MIN + 1, i64::MAX - 1][random.below(4) as usize],
        1 => ((FIRST_DAY - DAYS_TO_2000) * DAY as i64) - random.below(2) as i64,
        _ => (day.min(100_000_000) - DAYS_TO_2000) * DAY as i64 + hour * (DAY / 24) as i64,
    };
    let moment = i128::from(sent) + i128::from(DAYS_TO_2000) * DAY;
    let is_moment = (i128::from(FIRST_DAY) * DAY..=i128::from(i64::MAX)).contains(&moment);
    let (date, era) = date_of_era(moment.div_euclid(DAY) as i64);
    let text = format!("{date} {:02}:00:00{era}", moment.rem_euclid(DAY) / (DAY / 24));
    (SqlType::Timestamp, sent.to_be_bytes().into(), if is_moment { Ok(text) } else { Err("22008") })
}

/// The answer to a client that sends a binary date, or reads one that it has stored.
fn send_binary_date(session: &mut Session, random: &mut Random, about: &str) {
    let (of, bytes, expected) = binary_date(random);
    let sql = match (random.chance(1, 2), of) {
        (true, _) => "select $1::text",
        (_, SqlType::Date) => "insert into sent (d) values ($1) returning d::text",
        _ => "insert into sent (m) values ($1) returning m::text",
    };
    let value = binary::parse(of, &bytes).map_err(|error| error.sqlstate.code());
    let found = value.and_then(|value| run(session, sql, Some((&[of], &[value]))));
    let expected = expected.map(|text| vec![vec![Value::Text(text)]]);
    assert_eq!(found, expected, "{about}: {sql} of {of:?} {bytes:?}");
}

#[test]
fn the_last_day_of_clients_is_of_their_last_year() {
    assert_eq!(date(LAST_DAY), "5874897-12-31");
    assert_eq!(date(FIRST_DAY), "4714-11-24 BC");
}

#[test]
fn values_compare_as_plain_ones_do() {
    let mut asked = 0;
    let (seed, rounds) = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let mut session = Session::new(Database::open_on(MemoryDisk::new(), options).unwrap(), "ann", "bank");
        let about = format!("RIALTO_SEED={seed}");
        assert_eq!(run(&mut session, "create table sent (d date, m timestamp)", None), Ok(vec![]));
        for _ in 0..6 {
            asked += comparisons(&mut session, &mut random, &about);
            for _ in 0..20 {
                let (sql, expected) = literal(&mut random);
                let found = run(&mut session, &sql, None);
                let expected = expected.map(|text| vec![vec![Value::Text(text)]]);
                assert_eq!(found, expected, "{about}: {sql}");
                send_binary_date(&mut session, &mut random, &about);
                asked += 2;
            }
        }
    });
    println!("tally: values against plain ones, {rounds} rounds, {asked} statements, RIALTO_SEED={seed}");
}

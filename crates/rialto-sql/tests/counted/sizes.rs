//! Random statements of any size, up to their bounds and beyond: chains of operators, nesting, lists, lines, rows, and
//! sorts with a limit. The result of each is plain arithmetic, or the error of the bound that it exceeds. Its cost is
//! proportional to its size: a sort keeps at most twice the rows that are wanted, and a text on many lines takes no
//! longer than the same text on one. `RIALTO_SEED` runs a round again; `RIALTO_TEST_SECONDS` says for how long new ones
//! are tried.

use std::ops::RangeInclusive;

use rialto::io::Random;
use rialto::row::Value;
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError};
use rustix::time::{ClockId, clock_gettime};

use crate::seeds::for_a_while;
use crate::{LIVE, PEAK, database};

const TOO_COMPLEX: &str = "54001";
const TOO_MANY_COLUMNS: &str = "54011";
const NO_COLUMN: &str = "42703";

/// Columns of a result, and entries of ORDER BY.
const RESULT_COLUMNS: usize = 1_664;
/// Operators in a chain, with AND, OR and the operators that these join.
const CHAIN: usize = 32_000;
/// Levels of a tree. Each operator other than AND, OR and `||` is one level.
const HEIGHT: usize = 500;
/// Levels of brackets that are served at least, and the most that can be served.
const NESTED: [usize; 2] = [55, 224];
/// A sort of fewer rows keeps all of them.
const SORTED_AT_LEAST: usize = 1_024;

/// Statements of this many words are measured: enough to tell a linear cost from a quadratic one.
const MANY_WORDS: RangeInclusive<usize> = 2_000..=12_000;

type Rows = Vec<Vec<Value>>;
type Answer = Result<Rows, &'static str>;

/// A statement, and its possible outcome: rows, an error, or either of both, near bounds that depend on how it is kept.
struct Drawn {
    /// Blanks, lines and comments may stand between any two.
    words: Vec<String>,
    rows: Option<Rows>,
    error: Option<&'static str>,
    /// The word that the error is about.
    wrong: Option<usize>,
}

impl Drawn {
    fn new(words: Vec<String>, rows: Rows) -> Drawn {
        Drawn { words, rows: Some(rows), error: None, wrong: None }
    }

    /// Refused if `size` exceeds `most`. A size in the last twentieth before the bound may be served or refused.
    fn up_to(mut self, most: usize, size: usize, code: &'static str) -> Drawn {
        self.error = (size > most - most / 20).then_some(code);
        if size > most {
            self.rows = None;
        }
        self
    }

    /// Refused if `size` exceeds `most`, and served if not.
    fn up_to_exactly(mut self, most: usize, size: usize, code: &'static str) -> Drawn {
        if size > most {
            (self.rows, self.error) = (None, Some(code));
        }
        self
    }
}

/// A size from 1 on: each order of magnitude as often.
fn any_size(random: &mut Random, most: usize) -> usize {
    let scale = (most as f64).ln() * (1.0 + random.below(1_000) as f64) / 1_000.0;
    (scale.exp() as usize).clamp(1, most)
}

/// The same for a list; half of the time a size that is measured.
fn any_length(random: &mut Random, most: usize) -> usize {
    match random.chance(1, 2) {
        true => MANY_WORDS.start() + random.below(2_000) as usize,
        false => any_size(random, most),
    }
}

/// A size; one time in `one_in` near a bound.
fn near(random: &mut Random, one_in: u64, bound: usize, most: usize) -> usize {
    match random.chance(1, one_in) {
        true => (bound + random.below(5) as usize).saturating_sub(2),
        false => any_size(random, most),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn int(value: i64) -> Value {
    Value::Int4(value as i32)
}

/// Sums and differences: a tree as high as the chain is long.
fn sums(random: &mut Random) -> Drawn {
    let links = near(random, 2, HEIGHT, 20_000);
    let (mut all, mut sum) = (words("select n"), 0);
    for _ in 0..links {
        let (term, is_plus) = (random.below(9) as i64, random.chance(1, 2));
        sum += if is_plus { term } else { -term };
        all.extend([if is_plus { "+" } else { "-" }.to_owned(), term.to_string()]);
    }
    all.extend(words("from generate_series(1, 3) n"));
    Drawn::new(all, (1..=3).map(|n| vec![int(n + sum)]).collect()).up_to(HEIGHT, links, TOO_COMPLEX)
}

/// Comparisons joined by AND and OR.
fn conditions(random: &mut Random) -> Drawn {
    let (links, is_or) = (near(random, 4, CHAIN / 2, 24_000), random.below(4));
    let mut all = words("select n from generate_series(1, 20) n where");
    let mut holds: Vec<Vec<[bool; 20]>> = vec![vec![]];
    for link in 0..=links {
        if link > 0 {
            let begins_another = random.below(4) < is_or;
            all.push(if begins_another { "or" } else { "and" }.to_owned());
            if begins_another {
                holds.push(vec![]);
            }
        }
        let (value, operator) = (random.below(30) as i64, ["=", "<", "<>"][random.below(3) as usize]);
        all.extend(["n".to_owned(), operator.to_owned(), value.to_string()]);
        let holds_for = |n: i64| match operator {
            "=" => n == value,
            "<" => n < value,
            _ => n != value,
        };
        holds.last_mut().expect("one at least").push(std::array::from_fn(|at| holds_for(at as i64 + 1)));
    }
    let is_true = |at: usize| holds.iter().any(|joined| joined.iter().all(|each| each[at]));
    let rows = (0..20).filter(|at| is_true(*at)).map(|at| vec![int(at as i64 + 1)]).collect();
    Drawn::new(all, rows).up_to(CHAIN, 2 * links, TOO_COMPLEX)
}

fn concatenations(random: &mut Random) -> Drawn {
    let links = near(random, 4, CHAIN, 48_000);
    let (mut all, mut text) = (words("select 'x'"), "x".to_owned());
    for _ in 0..links {
        let next = ["a", "é", ""][random.below(3) as usize];
        text.push_str(next);
        all.extend(["||".to_owned(), format!("'{next}'")]);
    }
    Drawn::new(all, vec![vec![Value::Text(text)]]).up_to(CHAIN, links, TOO_COMPLEX)
}

fn lists(random: &mut Random) -> Drawn {
    let (items, span) = (any_length(random, 20_000), 1 + random.below(60));
    let values: Vec<i64> = (0..items).map(|_| random.below(span) as i64).collect();
    let is_not = random.chance(1, 3);
    let mut all = words("select n from generate_series(1, 20) n where n");
    all.extend(words(if is_not { "not in (" } else { "in (" }));
    all.extend(values.iter().enumerate().map(|(at, value)| match at {
        0 => value.to_string(),
        _ => format!(", {value}"),
    }));
    all.push(")".to_owned());
    let rows = (1..=20).filter(|n| values.contains(n) != is_not).map(|n| vec![int(n)]).collect();
    Drawn::new(all, rows)
}

fn nested(random: &mut Random) -> Drawn {
    let (levels, is_negated) = (any_size(random, 4_000), random.chance(1, 2));
    let mut all = words("select");
    all.extend((0..levels).map(|_| if is_negated { "- (" } else { "(" }.to_owned()));
    all.push("n".to_owned());
    all.extend((0..levels).map(|_| ")".to_owned()));
    all.extend(words("from generate_series(1, 2) n"));
    let sign = if is_negated && levels % 2 == 1 { -1 } else { 1 };
    let mut drawn = Drawn::new(all, vec![vec![int(sign)], vec![int(2 * sign)]]);
    if levels > NESTED[0] {
        drawn.error = Some(TOO_COMPLEX);
    }
    if levels > NESTED[1] {
        drawn.rows = None;
    }
    drawn
}

/// A select list, in which one name may not exist.
fn columns(random: &mut Random) -> Drawn {
    let count = near(random, 2, RESULT_COLUMNS, 70_000);
    let kinds: Vec<u64> = (0..count).map(|_| random.below(4)).collect();
    let row = |n: i64| {
        kinds.iter().map(move |kind| match kind {
            0 => int(7),
            1 => Value::Text("é".to_owned()),
            _ => int(n),
        })
    };
    let mut all = words("select");
    all.extend(kinds.iter().enumerate().map(|(at, kind)| {
        let item = ["7", "'é'", "n", "*"][*kind as usize];
        if at == 0 { item.to_owned() } else { format!(", {item}") }
    }));
    let wrong = (count <= RESULT_COLUMNS && random.chance(1, 3)).then(|| random.below(count as u64) as usize);
    if let Some(at) = wrong {
        all[1 + at] = if at == 0 { "nosuch" } else { ", nosuch" }.to_owned();
    }
    all.extend(words("from generate_series(1, 2) n"));
    let rows = (1..=2).map(|n| row(n).collect()).collect();
    let drawn = Drawn::new(all, rows).up_to_exactly(RESULT_COLUMNS, count, TOO_MANY_COLUMNS);
    match wrong {
        Some(at) => Drawn { rows: None, error: Some(NO_COLUMN), wrong: Some(1 + at), ..drawn },
        None => drawn,
    }
}

fn orders(random: &mut Random) -> Drawn {
    let count = near(random, 2, RESULT_COLUMNS, 10_000);
    let descends = random.chance(1, 2);
    let mut all = words("select n from generate_series(1, 3) n order by");
    all.push(if descends { "-n" } else { "n" }.to_owned());
    all.extend((1..count).map(|_| [", n", ", -n", ", n * 2"][random.below(3) as usize].to_owned()));
    let mut rows: Rows = (1..=3).map(|n| vec![int(n)]).collect();
    if descends {
        rows.reverse();
    }
    Drawn::new(all, rows).up_to_exactly(RESULT_COLUMNS, count, TOO_MANY_COLUMNS)
}

/// Rows of an INSERT, and the rows that it returns.
fn inserts(random: &mut Random) -> Drawn {
    let count = any_length(random, 4_000);
    let ks: Vec<i64> = (0..count).map(|_| random.below(1_000_000) as i64).collect();
    let mut all = words("insert into kept values");
    all.extend(ks.iter().enumerate().map(|(at, k)| match at {
        0 => format!("({k}, 'é')"),
        _ => format!(", ({k}, 'é')"),
    }));
    all.extend(words("returning k"));
    Drawn::new(all, ks.into_iter().map(|k| vec![int(k)]).collect())
}

/// The statement with this between any two words, or with random separators; and the positions of its words:
/// characters, from 1.
fn text(drawn: &Drawn, mut between: impl FnMut() -> &'static str) -> (String, Vec<usize>) {
    let (mut text, mut places, mut characters) = (String::new(), Vec::new(), 0);
    for word in &drawn.words {
        if !text.is_empty() {
            let between = between();
            text.push_str(between);
            characters += between.chars().count();
        }
        places.push(characters + 1);
        text.push_str(word);
        characters += word.chars().count();
    }
    (text, places)
}

/// Runs a statement by a plan of its own text, or by one that it shares with texts that differ in their literals.
fn run(session: &mut Session, sql: &str, is_shared: bool) -> Result<Rows, SqlError> {
    let mut rows = Collected::default();
    let answer = match is_shared {
        true => session
            .read(sql)
            .and_then(|read| session.prepare_read(sql, read))
            .and_then(|ready| session.execute_ready(&ready, &mut rows)),
        false => session.prepare(sql, &[]).and_then(|prepared| session.execute(&prepared, &[], &mut rows)),
    };
    let answer = answer.and_then(|_| session.finish());
    answer.map(|()| rows.0).inspect_err(|error| drop(session.fail(error)))
}

/// The processor time of this thread so far, in nanoseconds, which other load on the machine does not change.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The same words on one line and on a line each are read and bound in about the same time.
fn on_lines(drawn: &Drawn, about: &str) {
    let prepare = |between: &'static str| {
        let sql = text(drawn, || between).0;
        // A session that has no plan of the statement yet.
        let mut session = session();
        let begin = processor_ns();
        let _ = session.prepare(&sql, &[]);
        processor_ns() - begin
    };
    // The fastest of several, in turn: other programs that share the caches slow down both.
    let all: Vec<_> = (0..3).map(|_| (prepare(" "), prepare("\n"))).collect();
    let one: u64 = all.iter().map(|(one, _)| *one).min().expect("three");
    let many: u64 = all.iter().map(|(_, many)| *many).min().expect("three");
    let words = drawn.words.len();
    assert!(
        many < 3 * one,
        "{about}: {words} words took {one} ns on one line, {many} ns on many: {:?}",
        &drawn.words[..9]
    );
}

/// The first of many rows in an order, equal ones in the order of their arrival. At most twice the wanted rows are
/// kept.
fn sorts(session: &mut Session, random: &mut Random, about: &str) {
    let count = 1 + any_size(random, 20_000);
    let most = ((32 << 20) / count).min(64 << 10);
    let bytes = if random.chance(1, 2) { most } else { any_size(random, most) };
    let (limit, offset) = (any_size(random, 2_000), random.below(50) as usize);
    let (factor, divisor) = (1 + random.below(7_919) as i64, 1 + random.below(500) as i64);
    let descends = random.chance(1, 2);
    let order = if descends { "desc" } else { "" };
    let padding = "x".repeat(bytes);
    let sql = format!(
        "select n, '{padding}' || n from generate_series(1, {count}) n order by n * {factor} % {divisor} {order} limit {limit} offset {offset}"
    );
    let mut expected: Vec<i64> = (1..=count as i64).collect();
    expected.sort_by_key(|n| if descends { -(n * factor % divisor) } else { n * factor % divisor });
    let before = LIVE.get();
    PEAK.set(before);
    let found = run(session, &sql, false).unwrap_or_else(|error| panic!("{about}: {error}"));
    let taken = (PEAK.get() - before) as usize;
    let numbers: Vec<_> = found.iter().map(|row| row[0].clone()).collect();
    let wanted: Vec<_> = expected.into_iter().skip(offset).take(limit).map(int).collect();
    let about = format!("{about}: {} of {count} rows of {bytes} bytes", limit + offset);
    assert_eq!(numbers, wanted, "{about}");
    assert!(found.iter().all(|row| matches!(&row[1], Value::Text(text) if text.len() > bytes)), "{about}");
    // A concatenated text has room for twice as much. There are also the row's own list, its key, and the places of a
    // list that grows.
    let row = 2 * bytes + 512;
    let kept = count.min((2 * (limit + offset)).max(SORTED_AT_LEAST));
    assert!(taken < kept * row + 16 * sql.len() + (1 << 20), "{about}: {taken} bytes");
}

fn session() -> Session {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table kept (k int, c text)", false).unwrap();
    session
}

fn statement(session: &mut Session, random: &mut Random, about: &str) {
    let (chains, flat) = ([sums, conditions, concatenations, nested], [lists, columns, orders, inserts]);
    let (at, is_chain) = (random.below(4) as usize, random.chance(1, 2));
    let drawn = if is_chain { chains[at](random) } else { flat[at](random) };
    // A long chain is parsed on a thread of its own, whose time is not measured.
    if !is_chain && MANY_WORDS.contains(&drawn.words.len()) {
        on_lines(&drawn, about);
    }
    // The cost of lines is measured with shorter statements.
    let style = if drawn.words.len() > *MANY_WORDS.end() { 0 } else { random.below(3) };
    let all = [" ", "\n", "\n\n", " -- é\n", "\t", " /* é */ ", "\r\n"];
    let (sql, places) = text(&drawn, || match style {
        0 => " ",
        1 => "\n",
        _ => all[random.below(all.len() as u64) as usize],
    });
    let is_shared = random.chance(1, 2);
    let found = run(session, &sql, is_shared);
    let beginning: String = sql.chars().take(200).collect();
    let about = format!("{about}: {} words: {beginning}", drawn.words.len());
    let position = found.as_ref().err().and_then(|error| error.position);
    let found: Answer = found.map_err(|error| error.sqlstate.code());
    match &found {
        Ok(rows) => assert!(drawn.rows.as_ref() == Some(rows), "{about}: {:?}", rows.first()),
        Err(code) => assert_eq!(Some(*code), drawn.error, "{about}"),
    }
    if let Some(wrong) = drawn.wrong {
        // A comma stands before the name.
        let comma = if drawn.words[wrong].starts_with(',') { 2 } else { 0 };
        assert_eq!(position, Some(places[wrong] + comma), "{about}");
    }
}

#[test]
fn statements_of_any_size_come_to_what_plain_arithmetic_says_or_to_their_bound() {
    let mut statements = 0;
    let (seed, rounds) = for_a_while(|seed| {
        let (mut random, about) = (Random::new(seed), format!("RIALTO_SEED={seed}"));
        let mut session = session();
        for _ in 0..10 {
            match random.below(6) {
                0 => sorts(&mut session, &mut random, &about),
                _ => statement(&mut session, &mut random, &about),
            }
            statements += 1;
        }
    });
    println!("tally: statements of any size, {rounds} rounds, {statements} statements, RIALTO_SEED={seed}");
}

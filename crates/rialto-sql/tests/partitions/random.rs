//! Random statements, and the examples of docs/sql.md, over partitions and in one database: both give the same answers.

use std::collections::BTreeSet;

use rialto::io::Random;
use rialto::row::Value;
use rialto_sql::parse::CopyDirection;
use rialto_sql::{Session, SqlError, TransactionStatus};

use crate::definitions::copy;
use crate::in_process::{InProcess, new_database};
use crate::seeds::for_a_while;
use crate::{run, try_run};

/// An answer: rows and the tag, or the SQLSTATE.
type Told = Result<(Vec<Vec<String>>, String), &'static str>;

/// What the two answers to a statement have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Alike {
    /// The rows, in their order.
    InOrder,
    /// The rows, in any order.
    AsSets,
    /// The number of rows.
    InNumber,
}

/// A table: over partitions it is made with these options.
struct Table {
    name: &'static str,
    columns: &'static str,
    with: &'static str,
    keys: &'static [&'static str],
    values: &'static [&'static str],
}

const TABLES: [Table; 5] = [
    Table {
        name: "t",
        columns: "k int primary key, v int, c text",
        with: "",
        keys: &["k"],
        values: &["v", "c"],
    },
    Table {
        name: "w",
        columns: "k int, v int, c text, primary key (k, v)",
        with: " with (partition_by = 'v')",
        keys: &["k", "v"],
        values: &["c"],
    },
    Table {
        name: "x",
        columns: "c char(4), k bigint, v numeric(6,2), primary key (c, k)",
        with: " with (partition_by = 'k, c')",
        keys: &["c", "k"],
        values: &["v"],
    },
    Table {
        name: "r",
        columns: "k int primary key, v int, c text",
        with: " with (replicated = true)",
        keys: &["k"],
        values: &["v", "c"],
    },
    Table {
        name: "h",
        columns: "k int not null, v int, c text",
        with: "",
        keys: &["k"],
        values: &["v", "c"],
    },
];

struct Pair {
    random: Random,
    over: Session,
    one: Session,
    partitions: std::sync::Arc<InProcess>,
    is_in_block: bool,
    /// Whether `h` has got its primary key.
    h_is_keyed: bool,
    story: Vec<String>,
    seed: u64,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut random = Random::new(seed);
        let count = [1, 2, 4][random.below(3) as usize];
        let partitions = InProcess::new(count);
        let (over, one) = (partitions.session(), Session::new(new_database(64 << 20), "ann", "bank"));
        let story = vec![format!("RIALTO_SEED={seed}: {count} partitions")];
        let mut pair =
            Pair { random, over, one, partitions, is_in_block: false, h_is_keyed: false, story, seed };
        for table in &TABLES {
            pair.create(table);
        }
        pair
    }

    fn create(&mut self, table: &Table) {
        let Table { name, columns, with, .. } = table;
        run(&mut self.one, &format!("create table {name} ({columns})"));
        run(&mut self.over, &format!("create table {name} ({columns}){with}"));
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// A value for a column, small so that rows meet.
    fn literal(&mut self, table: &Table, column: &str) -> String {
        let number = self.below(24);
        match (table.name, column) {
            (_, "c") if self.below(8) == 0 && !table.keys.contains(&"c") => "null".to_owned(),
            (_, "c") => format!("'{}'", ["a", "b", "ab", "c ", ""][number as usize % 5]),
            ("x", "v") => ["0.5", "1.50", "7", "-3.25"][number as usize % 4].to_owned(),
            (_, "v") if self.below(8) == 0 && !table.keys.contains(&"v") => "null".to_owned(),
            _ => number.to_string(),
        }
    }

    fn condition(&mut self, table: &Table) -> String {
        let columns: Vec<&str> = table.keys.iter().chain(table.values).copied().collect();
        let mut conditions = Vec::new();
        for _ in 0..self.below(4) {
            // Often the key, so that statements concern one partition.
            let column = if self.below(2) == 0 { self.one_of(table.keys) } else { self.one_of(&columns) };
            let value = self.literal(table, column);
            let other = self.literal(table, column);
            conditions.push(match self.below(9) {
                0 => format!("{column} in ({value}, {other})"),
                1 => format!("{column} <> {value}"),
                2 => format!("{column} >= {value}"),
                3 => format!("{column} is not null"),
                4 => format!("({column} = {value} or {column} = {other})"),
                5 => format!("{value} = {column}"),
                _ => format!("{column} = {value}"),
            });
        }
        if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(" and ")) }
    }

    fn select(&mut self, table: &Table) -> (String, Alike) {
        let condition = self.condition(table);
        let name = table.name;
        match self.below(8) {
            0 => return (format!("select count(*), count(*) * 2 from {name}{condition}"), Alike::InOrder),
            1 => return (format!("copy {name} to stdout"), Alike::AsSets),
            _ => {}
        }
        let items = self.one_of(&["*", "c || '!', k", "v, k + 1 as l, c", "k"]);
        let items = if table.name == "x" && items.contains('v') { "*" } else { items };
        let mut sql = format!("select {items} from {name}{condition}");
        let mut alike = Alike::AsSets;
        // All columns decide: rows that are equal in them cannot be told apart.
        let mut order = ["k", "v", "c"];
        if self.below(2) == 0 {
            order.rotate_left(self.below(3) as usize);
            let order = order.iter().map(|column| {
                let way = ["", " desc", " nulls first", " desc nulls last"];
                format!("{column}{}", way[self.random.below(4) as usize])
            });
            sql += &format!(" order by {}", order.collect::<Vec<_>>().join(", "));
            alike = Alike::InOrder;
        }
        if self.below(3) == 0 {
            sql += &format!(" limit {}", self.below(8));
            if self.below(2) == 0 {
                sql += &format!(" offset {}", self.below(5));
            }
            if alike == Alike::AsSets {
                alike = Alike::InNumber;
            }
        }
        if self.below(6) == 0 {
            sql += " for update";
        }
        (sql, alike)
    }

    fn write(&mut self, table: &Table) -> String {
        let name = table.name;
        let columns: Vec<&str> = table.keys.iter().chain(table.values).copied().collect();
        let returning = if self.below(3) == 0 { " returning k, v, c" } else { "" };
        match self.below(6) {
            0..3 => {
                let rows = (0..1 + self.below(5)).map(|_| {
                    let row: Vec<String> = columns.iter().map(|column| self.literal(table, column)).collect();
                    format!("({})", row.join(", "))
                });
                let rows: Vec<String> = rows.collect();
                format!("insert into {name} ({}) values {}{returning}", columns.join(", "), rows.join(", "))
            }
            3 => {
                let first = 30 + self.below(30);
                let c = if table.keys.contains(&"c") { "'z'" } else { "'z' || n" };
                let (last, divisor) = (first + self.below(20), 30 + self.below(60));
                format!(
                    "insert into {name} (k, v, c) select n, {divisor} / (n - {divisor}), {c} \
                     from generate_series({first}, {last}) n{returning}"
                )
            }
            4 => {
                let column = self.one_of(table.values);
                let value = match (self.below(3), column) {
                    (0, "v") => "v + 1".to_owned(),
                    (1, "v") => format!("100 / (k - {})", self.below(24)),
                    _ => self.literal(table, column),
                };
                let condition = self.condition(table);
                format!("update {name} set {column} = {value}{condition}{returning}")
            }
            _ => format!("delete from {name}{}{returning}", self.condition(table)),
        }
    }

    fn block(&mut self) -> String {
        let name = self.one_of(&["a", "b"]);
        match self.below(if self.is_in_block { 7 } else { 2 }) {
            0 | 1 if !self.is_in_block => "begin".to_owned(),
            0 => "commit".to_owned(),
            1 => "rollback".to_owned(),
            2 | 3 => format!("savepoint {name}"),
            4 => format!("release {name}"),
            _ => format!("rollback to {name}"),
        }
    }

    /// Both run a definition. Gives whether it was one that both can run.
    fn define(&mut self) {
        let table = &TABLES[self.below(5) as usize];
        let name = table.name;
        let sql = match self.below(6) {
            0 => format!("create index {name}_v on {name} (v)"),
            1 => format!("drop index if exists {name}_v"),
            2 => format!("truncate {name}"),
            3 if !self.h_is_keyed => {
                let told = self.tell("alter table h add primary key (k)", Alike::InOrder);
                self.h_is_keyed = told.is_ok() && !self.is_in_block;
                return;
            }
            4 if !self.is_in_block => {
                self.story.push(format!("drop and create {name}"));
                for session in [&mut self.one, &mut self.over] {
                    run(session, &format!("drop table {name}"));
                }
                self.create(table);
                self.h_is_keyed &= name != "h";
                return;
            }
            _ => format!("vacuum {name}"),
        };
        let _ = self.tell(&sql, Alike::InOrder);
    }

    fn tell(&mut self, sql: &str, alike: Alike) -> Told {
        let by_argument = self.random.below(4) == 0 && !sql.contains("copy");
        self.story.push(sql.to_owned());
        let told = |session: &mut Session| -> Told {
            let answer = try_run(session, sql, by_argument.then_some(&[][..] as &[Value]));
            answer.map(|(rows, tag)| (rows, tag.to_string())).map_err(|error: SqlError| error.sqlstate.code())
        };
        let (mut expected, mut found) = (told(&mut self.one), told(&mut self.over));
        let exact = found.clone();
        for (rows, _) in [&mut expected, &mut found].into_iter().flatten() {
            match alike {
                Alike::InOrder => {}
                Alike::AsSets => rows.sort(),
                Alike::InNumber => rows.iter_mut().for_each(Vec::clear),
            }
        }
        assert_eq!(found, expected, "{}\n(found, expected)", self.story.join("\n"));
        assert_eq!(self.over.status(), self.one.status(), "{}", self.story.join("\n"));
        self.is_in_block = self.one.status() != TransactionStatus::Idle;
        for session in [&mut self.one, &mut self.over] {
            let _ = (session.take_notices(), session.take_closed_portals());
        }
        exact
    }

    /// The rows of all tables are the same, and lie where they belong: each partition has some of them.
    fn compare(&mut self) {
        for table in &TABLES {
            let columns = "k, v, c";
            let _ =
                self.tell(&format!("select {columns} from {} order by k, v, c", table.name), Alike::InOrder);
            if table.with.contains("replicated") {
                let rows: BTreeSet<u64> = crate::counts(&self.partitions, table.name).into_iter().collect();
                assert_eq!(rows.len(), 1, "{}: a replica has other rows", self.story.join("\n"));
            }
        }
    }
}

/// One run. Gives the number of statements.
fn once(seed: u64) -> u64 {
    let mut pair = Pair::new(seed);
    let statements = 40 + pair.below(80);
    for _ in 0..statements {
        let table = &TABLES[pair.below(5) as usize];
        match pair.below(20) {
            0..8 => {
                let (sql, alike) = pair.select(table);
                let _ = pair.tell(&sql, alike);
            }
            8..14 => {
                let sql = pair.write(table);
                let _ = pair.tell(&sql, Alike::AsSets);
            }
            14..18 => {
                let sql = pair.block();
                let _ = pair.tell(&sql, Alike::InOrder);
            }
            _ => pair.define(),
        }
    }
    if pair.is_in_block {
        let sql = pair.one_of(&["commit", "rollback"]);
        let _ = pair.tell(sql, Alike::InOrder);
    }
    pair.compare();
    assert_eq!(pair.seed, seed);
    statements
}

#[test]
fn random_statements_give_what_one_database_gives() {
    let mut statements = 0;
    let (_, seeds) = for_a_while(|seed| statements += once(seed));
    println!("tally: SQL over partitions, {seeds} seeds, {statements} operations");
}

/// The accepted statements of docs/sql.md.
fn examples() -> Vec<String> {
    let page = include_str!("../../../../docs/sql.md");
    let mut found = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```sql";
        } else if inside {
            found.push(line.trim_end_matches(';').to_owned());
        }
    }
    assert!(found.len() > 40, "docs/sql.md has lost its examples");
    found
}

#[test]
fn the_examples_of_the_sql_page_give_what_one_database_gives() {
    for count in [1, 2, 4] {
        let partitions = InProcess::new(count);
        let (mut over, mut one) = (partitions.session(), Session::new(new_database(64 << 20), "ann", "bank"));
        let (mut refused, mut missing) = (Vec::new(), Vec::new());
        for sql in examples() {
            if missing.iter().any(|name: &String| sql.contains(&**name)) {
                continue;
            }
            let mut both = [&mut over, &mut one].map(|session| {
                let is_copy = session.prepare(&sql, &[]).ok().and_then(|prepared| prepared.copy());
                match is_copy {
                    Some((CopyDirection::FromStdin, _)) => {
                        copy(session, &sql, &[]).map(|tag| (Vec::new(), tag))
                    }
                    _ => try_run(session, &sql, None).map(|(rows, tag)| (rows, tag.to_string())),
                }
            });
            if let [Err(error), Ok(_)] = &both
                && ["0A000", "42P16"].contains(&error.sqlstate.code())
            {
                refused.push(format!("{sql}: {error}"));
                if sql.to_lowercase().starts_with("create table") {
                    let name = sql.split_whitespace().nth(2).unwrap().trim_end_matches('(').to_owned();
                    run(&mut one, &format!("drop table {name}"));
                    missing.push(name);
                }
                continue;
            }
            let is_ordered = sql.contains("order by");
            for (rows, _) in both.iter_mut().flatten() {
                // The time of the run.
                for cell in rows
                    .iter_mut()
                    .flatten()
                    .filter(|cell| (20..=26).contains(&cell.len()) && cell.contains(' '))
                {
                    cell.clear();
                }
                if !is_ordered {
                    rows.sort();
                }
            }
            let tells_the_time = ["current_", "now", "localtime", "timestamp", "raise_stalls"]
                .iter()
                .any(|word| sql.contains(word));
            let [found, expected] =
                both.map(|answer| answer.map_err(|error| (error.sqlstate, error.message)));
            if !tells_the_time {
                assert_eq!(found, expected, "{sql}");
            }
        }
        for sql in &refused {
            println!("over {count} partitions: {sql}");
        }
        assert!(refused.len() <= 12, "{refused:#?}");
    }
}

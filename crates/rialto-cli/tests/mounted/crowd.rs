//! Tables that all clients write to, and definitions beside them.
//!
//! A client that counts a transaction inserts a row with the transaction's number into `crowd` and raises its own row
//! of `counts`. A transaction that empties `crowd`, or makes it anew, notes in `emptied` how far each client had
//! counted. So the contents of `crowd` follow from the other two: of each client, the numbers above that in `emptied`,
//! up to that in `counts`. `emptied` also has the number of the last transaction that emptied `crowd`, so that an
//! acknowledged one can be checked.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rialto::io::Random;

use crate::client::{Answer, Client, Row};
use crate::ledger::CLIENTS;
use crate::work::{Outcome, Work};

const CROWD: &str = "CREATE TABLE crowd (client bigint NOT NULL, number bigint NOT NULL)";
const LAST_EMPTIED: &str = "SELECT nth FROM emptied WHERE client = 0";
/// The error of a second primary key.
const HAS_A_KEY: &str = "42P16";

/// Makes the tables in a new database.
pub fn prepare(client: &mut Client, about: &str) {
    let zeros = (0..CLIENTS).map(|client| format!("({client}, 0)")).collect::<Vec<_>>().join(", ");
    for sql in [
        CROWD.to_owned(),
        "CREATE TABLE counts (client bigint PRIMARY KEY, count bigint)".to_owned(),
        "CREATE TABLE emptied (client bigint PRIMARY KEY, count bigint, nth bigint)".to_owned(),
        format!("INSERT INTO counts VALUES {zeros}"),
        format!("INSERT INTO emptied VALUES {}", zeros.replace("0)", "0, 0)")),
    ] {
        client.query(&sql).rows(about);
    }
}

/// The acknowledged definitions of the crowd, in one life of the server.
#[derive(Debug, Default)]
pub struct Defined {
    all: AtomicU64,
    /// The number of the last one that emptied it.
    emptied: AtomicI64,
}

impl Defined {
    /// How many there are.
    pub fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// They exist: each was of level disk.
    pub fn check(&self, client: &mut Client, about: &str) {
        let (told, found) = (self.emptied.load(Ordering::Relaxed), last_emptied(client, about));
        assert!(found >= told, "{about}: an answer told that number {told} emptied the crowd, found {found}");
    }
}

/// The number of the transaction that emptied the crowd last.
fn last_emptied(client: &mut Client, about: &str) -> i64 {
    let found = rows(client, LAST_EMPTIED).unwrap_or_else(|answer| panic!("{about}: {answer:?}"));
    number(&found[0][0])
}

/// The rows, or the answer that came instead.
fn rows(client: &mut Client, sql: &str) -> Result<Vec<Row>, Answer> {
    match client.query(sql) {
        Answer::Done { rows, .. } => Ok(rows),
        answer => Err(answer),
    }
}

/// How many transactions of each client a table of counts has.
fn counts(client: &mut Client, table: &str, about: &str) -> Result<[i64; CLIENTS], Answer> {
    let rows = rows(client, &format!("SELECT count FROM {table} ORDER BY client"))?;
    let counts = rows.iter().map(|row| number(&row[0])).collect::<Vec<_>>();
    Ok(counts.try_into().unwrap_or_else(|counts| panic!("{about}: {table} has {counts:?}")))
}

fn number(value: &Option<String>) -> i64 {
    value.as_deref().and_then(|text| text.parse().ok()).expect("a number")
}

/// The crowd fits the counts, by each way of reading it.
pub fn check(client: &mut Client, about: &str) {
    compare(client, about).unwrap_or_else(|answer| panic!("{about}: {answer:?}"));
}

/// The same in a transaction of its own, beside others; gives the answer that came instead of rows.
fn compare(client: &mut Client, about: &str) -> Result<(), Answer> {
    rows(client, "BEGIN")?;
    let (counted, emptied) = (counts(client, "counts", about)?, counts(client, "emptied", about)?);
    let expected = |from: usize, to: usize| -> Vec<Row> {
        let of = |client: usize| (emptied[client] + 1..=counted[client]).map(move |number| (client, number));
        (from..to)
            .flat_map(of)
            .map(|(client, number)| vec![Some(client.to_string()), Some(number.to_string())])
            .collect()
    };
    let mut holds = |condition: &str, expected: Vec<Row>| {
        let sql = format!("SELECT client, number FROM crowd{condition} ORDER BY client, number");
        let found = rows(client, &sql)?;
        assert!(
            found == expected,
            "{about}: {sql}, counted {counted:?}, emptied at {emptied:?}: {} rows instead of {}: {found:?}",
            found.len(),
            expected.len()
        );
        Ok(())
    };
    holds("", expected(0, CLIENTS))?;
    holds(" WHERE number > 0", expected(0, CLIENTS))?;
    for client in 0..CLIENTS {
        holds(&format!(" WHERE client = {client}"), expected(client, client + 1))?;
    }
    rows(client, "COMMIT").map(drop)
}

impl Work<'_> {
    /// Runs definitions of the crowd until the clients have ended or the session ends.
    pub fn define(&self, address: &str, random: &mut Random, defined: &Defined, over: &AtomicBool) {
        let Ok(mut client) = Client::connect(address) else { return self.no_connection() };
        let mut next = match self.begin_to_define(&mut client) {
            Ok(last) => last + 1,
            Err(answer) => return self.expect_failure(&answer),
        };
        while !over.load(Ordering::SeqCst) {
            let what = random.below(9);
            let empties = (4..8).contains(&what);
            let outcome = match what {
                0..4 => self.define_one(&mut client, random),
                4..7 => self.empty(&mut client, "TRUNCATE crowd", next),
                7 => self.empty(&mut client, &format!("DROP TABLE crowd; {CROWD}"), next),
                _ => self.compare(&mut client),
            };
            match outcome {
                Outcome::Told => {
                    defined.all.fetch_add(u64::from(what < 8), Ordering::Relaxed);
                    defined.emptied.fetch_max(if empties { next } else { 0 }, Ordering::Relaxed);
                }
                Outcome::Refused => {}
                _ => return,
            }
            next += i64::from(empties);
            thread::sleep(Duration::from_micros(random.below(3_000)));
        }
    }

    /// The number of the transaction that emptied the crowd last.
    fn begin_to_define(&self, client: &mut Client) -> Result<i64, Answer> {
        rows(client, "SET rialto.durability = 'disk'")?;
        Ok(number(&rows(client, LAST_EMPTIED)?[0][0]))
    }

    /// The crowd fits the counts while others count.
    fn compare(&self, client: &mut Client) -> Outcome {
        match compare(client, self.about) {
            Ok(()) => Outcome::Told,
            Err(answer) => self.failed_in_block(client, answer),
        }
    }

    /// An index is made or dropped, or a primary key is added.
    fn define_one(&self, client: &mut Client, random: &mut Random) -> Outcome {
        let (sql, tag) = match random.below(5) {
            0 => ("CREATE INDEX IF NOT EXISTS crowd_number ON crowd (number)", "CREATE INDEX"),
            1 => ("CREATE UNIQUE INDEX IF NOT EXISTS crowd_unique ON crowd (number, client)", "CREATE INDEX"),
            2 => ("DROP INDEX IF EXISTS crowd_number", "DROP INDEX"),
            3 => ("DROP INDEX IF EXISTS crowd_unique, crowd_number", "DROP INDEX"),
            _ => ("ALTER TABLE crowd ADD PRIMARY KEY (client, number)", "ALTER TABLE"),
        };
        match client.query(sql) {
            Answer::Refused { code, .. } if code == HAS_A_KEY && tag == "ALTER TABLE" => Outcome::Refused,
            answer => self.committed(answer, sql, tag),
        }
    }

    /// A transaction, of this number, that leaves the crowd without a row.
    fn empty(&self, client: &mut Client, how: &str, nth: i64) -> Outcome {
        let mut noted = Vec::new();
        for sql in ["BEGIN", how, "SELECT client, count FROM counts", "DELETE FROM emptied"] {
            match client.query(sql) {
                Answer::Done { rows, .. } if !rows.is_empty() => noted = rows,
                Answer::Done { .. } => {}
                answer => return self.failed_in_block(client, answer),
            }
        }
        let values = noted.iter().map(|row| format!("({}, {}, {nth})", number(&row[0]), number(&row[1])));
        let sql = format!("INSERT INTO emptied VALUES {}", values.collect::<Vec<_>>().join(", "));
        match client.query(&sql) {
            Answer::Done { .. } => self.commit(client, "COMMIT", "COMMIT"),
            answer => self.failed_in_block(client, answer),
        }
    }
}

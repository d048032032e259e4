//! Tables that all clients write to, and definitions beside them.
//!
//! A client that counts a transaction puts a row with the transaction's number into `crowd` and raises its own row of `counts`. What
//! empties `crowd`, or makes it anew, notes in `emptied` how far each client had counted. So what `crowd` holds follows from the
//! other two: of each client the numbers behind the one in `emptied`, up to that in `counts`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rialto::io::Random;

use crate::client::{Answer, Client, Row};
use crate::ledger::CLIENTS;
use crate::work::{Outcome, Work};

const CROWD: &str = "CREATE TABLE crowd (client bigint NOT NULL, number bigint NOT NULL)";
/// What a table that has a primary key says to another one.
const HAS_A_KEY: &str = "42P16";

/// Makes them in a new database.
pub fn prepare(client: &mut Client, about: &str) {
    let zeros = (0..CLIENTS).map(|client| format!("({client}, 0)")).collect::<Vec<_>>().join(", ");
    for sql in [
        CROWD.to_owned(),
        "CREATE TABLE counts (client bigint PRIMARY KEY, count bigint)".to_owned(),
        "CREATE TABLE emptied (client bigint PRIMARY KEY, count bigint)".to_owned(),
        format!("INSERT INTO counts VALUES {zeros}"),
        format!("INSERT INTO emptied VALUES {zeros}"),
    ] {
        client.query(&sql).rows(about);
    }
}

/// How many transactions of each client there are, by a table of counts.
fn counts(client: &mut Client, table: &str, about: &str) -> [i64; CLIENTS] {
    let rows = client.query(&format!("SELECT count FROM {table} ORDER BY client")).rows(about);
    let counts = rows.iter().map(|row| number(&row[0])).collect::<Vec<_>>();
    counts.try_into().unwrap_or_else(|counts| panic!("{about}: {table} has {counts:?}"))
}

fn number(value: &Option<String>) -> i64 {
    value.as_deref().and_then(|text| text.parse().ok()).expect("a number")
}

/// The crowd is that of the counts, whichever way it is read.
pub fn check(client: &mut Client, about: &str) {
    let (counted, emptied) = (counts(client, "counts", about), counts(client, "emptied", about));
    let rows = |from: usize, to: usize| -> Vec<Row> {
        let of = |client: usize| (emptied[client] + 1..=counted[client]).map(move |number| (client, number));
        (from..to)
            .flat_map(of)
            .map(|(client, number)| vec![Some(client.to_string()), Some(number.to_string())])
            .collect()
    };
    let mut holds = |condition: &str, expected: Vec<Row>| {
        let sql = format!("SELECT client, number FROM crowd{condition} ORDER BY client, number");
        let found = client.query(&sql).rows(about);
        assert!(
            found == expected,
            "{about}: {sql}, counted {counted:?}, emptied at {emptied:?}: {} rows instead of {}: {found:?}",
            found.len(),
            expected.len()
        );
    };
    holds("", rows(0, CLIENTS));
    holds(" WHERE number > 0", rows(0, CLIENTS));
    (0..CLIENTS).for_each(|client| holds(&format!(" WHERE client = {client}"), rows(client, client + 1)));
}

impl Work<'_> {
    /// Defines the crowd anew again and again, until it is over or the session ends.
    pub fn define(&self, address: &str, random: &mut Random, over: &AtomicBool) {
        let Ok(mut client) = Client::connect(address) else { return self.no_connection() };
        while !over.load(Ordering::SeqCst) {
            let outcome = match random.below(8) {
                0..=3 => self.define_one(&mut client, random),
                4..=6 => self.empty(&mut client, "TRUNCATE crowd"),
                _ => self.empty(&mut client, &format!("DROP TABLE crowd; {CROWD}")),
            };
            if !matches!(outcome, Outcome::Told | Outcome::Refused) {
                return;
            }
            thread::sleep(Duration::from_micros(random.below(3_000)));
        }
    }

    /// An index comes or goes, or a key comes.
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

    /// A transaction that leaves the crowd without a row.
    fn empty(&self, client: &mut Client, how: &str) -> Outcome {
        let mut noted = Vec::new();
        for sql in ["BEGIN", how, "SELECT client, count FROM counts", "DELETE FROM emptied"] {
            match client.query(sql) {
                Answer::Done { rows, .. } if !rows.is_empty() => noted = rows,
                Answer::Done { .. } => {}
                answer => return self.failed_in_block(client, answer),
            }
        }
        let values = noted.iter().map(|row| format!("({}, {})", number(&row[0]), number(&row[1])));
        let sql = format!("INSERT INTO emptied VALUES {}", values.collect::<Vec<_>>().join(", "));
        match client.query(&sql) {
            Answer::Done { .. } => self.commit(client, "COMMIT", "COMMIT"),
            answer => self.failed_in_block(client, answer),
        }
    }
}

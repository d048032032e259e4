//! koda-1, koda-2, koda-3: the phases of a transaction, measured on the real engine with one client.

use std::time::{Duration, Instant};

use rialto::io::{FileDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Error, Options, TableDef};
use rialto_measure::RunError;
use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::{row, say};

use super::point::{Home, machine, ms};
use super::{Figure, FigureError, Lab, markdown};

/// Records in the table.
const RECORDS: i32 = 20_000;
const FILLER: usize = 84;
/// Where nothing is asked for: this long.
const TIME: Duration = ms(1_000);
const PHASES: [&str; 4] = ["start", "data manipulation", "logging", "commit"];

/// The mean times of a transaction's phases.
#[derive(Debug, Clone, Copy, Default)]
struct Phases {
    transactions: u64,
    start: Duration,
    manipulation: Duration,
    logging: Duration,
    commit: Duration,
}

impl Phases {
    fn us(&self) -> [f64; 4] {
        let mean = |time: Duration| time.as_nanos() as f64 / 1e3 / self.transactions.max(1) as f64;
        [self.start, self.manipulation, self.logging, self.commit].map(mean)
    }

    /// The commit's share of the transaction.
    fn commit_share(&self) -> f64 {
        let us = self.us();
        us[3] / us.iter().sum::<f64>().max(1e-9)
    }
}

/// Transactions that each add to the balances of so many records, one after the other.
fn measure(lab: &Lab, records: usize) -> Result<Phases, RunError> {
    let home = Home::new(lab.data.join(format!("figures-{}", std::process::id())));
    let disk = FileDisk::create(&home.0).map_err(|error| {
        RunError::Directory(format!("the directory cannot be used: {error}; choose another with --data DIR"))
    })?;
    let options = Options { memory_bytes: 256 << 20, ..Options::default() };
    let data = home.0.display().to_string();
    let database = Database::open_on(disk, options).map_err(|cause| RunError::Open { data, cause })?;
    let run = || -> Result<Phases, Error> {
        let table = database.transact(|tx| {
            let columns = vec![
                Column::new("id", ColumnType::Int4),
                Column::new("balance", ColumnType::Int8),
                Column::new("filler", ColumnType::Text),
            ];
            let table = tx.create_table(&TableDef::new("account", columns).with_primary_key(&["id"]))?;
            for id in 0..RECORDS {
                tx.insert(&table, &[Value::Int4(id), Value::Int8(0), Value::Text("x".repeat(FILLER))])?;
            }
            Ok(table)
        })?;
        let mut random = Random::new(lab.seed);
        let mut phases = Phases::default();
        let logged =
            || -> u64 { database.metrics().procedures.iter().map(|account| account.time.log_wait_ns).sum() };
        let time = lab.seconds.unwrap_or(TIME);
        let (warmed, mut before) = (Instant::now() + time / 5, logged());
        let end = warmed + time;
        loop {
            let began = Instant::now();
            if began >= end {
                break;
            }
            if began < warmed {
                (phases, before) = (Phases::default(), logged());
            }
            let began = Instant::now();
            let mut tx = database.begin()?;
            let started = Instant::now();
            for _ in 0..records {
                let id = random.below(RECORDS as u64) as i32;
                tx.modify(&table, id, |fields| fields.add_i64(1, 1).map(drop))?;
            }
            let manipulated = Instant::now();
            tx.commit()?;
            let committed = manipulated.elapsed();
            phases.transactions += 1;
            phases.start += started - began;
            phases.manipulation += manipulated - started;
            // Both, until the wait for the log is known.
            phases.logging += committed;
        }
        phases.commit = Duration::from_nanos(logged() - before);
        phases.logging = phases.logging.saturating_sub(phases.commit);
        Ok(phases)
    };
    let phases = run().map_err(RunError::during("running transactions"))?;
    database.close().map_err(RunError::during("closing the database"))?;
    say(&format!(
        "  {records} records: {} transactions, {:.1}% commit",
        phases.transactions,
        phases.commit_share() * 100.0
    ));
    Ok(phases)
}

const WHAT: &str = "*Start* is `begin`. *Data manipulation* is the body: locks, and the write set, which is in the log's format \
                    as it is written. *Logging* is what the commit does until it waits: its place in the log, applying, \
                    releasing locks. *Commit* is the wait for the log (the time account's `log_wait`), which the committer \
                    spends writing it itself. One client, no other load; tables in memory.";

fn rows(profiles: &[(&str, Phases)]) -> Vec<Vec<String>> {
    let mut rows = vec![row([
        "transaction",
        "start us",
        "data manipulation us",
        "logging us",
        "commit us",
        "commit's share",
    ])];
    for (name, phases) in profiles {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(phases.us().map(|us| format!("{us:.2}")));
        cells.push(format!("{:.1}%", phases.commit_share() * 100.0));
        rows.push(cells);
    }
    rows
}

fn bar(name: &str, phases: &Phases) -> Bar {
    let us = phases.us();
    let total = us.iter().sum::<f64>().max(1e-9);
    Bar {
        label: format!("{name}, {total:.0} us"),
        parts: us.map(|us| us * 100.0 / total).to_vec(),
        note: format!("commit {:.1}%", phases.commit_share() * 100.0),
        is_paper: false,
    }
}

fn paper_bar(name: &str, commit: f64) -> Bar {
    let parts = vec![0.0, 100.0 - commit, 0.0, commit];
    let note = format!("commit {commit}% (the rest is not split)");
    Bar { label: format!("{name}, the paper"), parts, note, is_paper: true }
}

fn picture(title: &str, bars: Vec<Bar>) -> Picture {
    Picture::Bars { title: title.to_owned(), parts: PHASES.map(str::to_owned).to_vec(), bars }
}

/// koda-1.
///
/// # Errors
/// Of the database.
pub fn phases(lab: &Lab) -> Result<Figure, FigureError> {
    let mut profiles = Vec::new();
    for (name, records) in [("1 record", 1), ("10 records", 10), ("100 records", 100), ("500 records", 500)] {
        profiles.push((name, measure(lab, records)?));
    }
    let rows = rows(&profiles);
    let bars = profiles.iter().map(|(name, phases)| bar(name, phases)).collect();
    let text = format!(
        "The paper's Figure 1 has four phases: start, data manipulation, logging and commit processing, in this order. {WHAT} On \
         {}:\n\n{}",
        machine(),
        markdown(&rows)
    );
    Ok(Figure { rows, picture: picture("Phases of a transaction, percent of its time", bars), text })
}

/// A profile beside the paper's.
fn profile(lab: &Lab, name: &str, records: usize, theirs: f64, why: &str) -> Result<Figure, FigureError> {
    let phases = measure(lab, records)?;
    let rows = rows(&[(name, phases)]);
    let bars = vec![bar(name, &phases), paper_bar(name, theirs)];
    let text = format!(
        "In the paper commit processing is {theirs}% of a transaction that modifies {name}; here it is {:.1}%. {why} {WHAT} On \
         {}:\n\n{}",
        phases.commit_share() * 100.0,
        machine(),
        markdown(&rows)
    );
    let title = format!("Profile of a transaction that modifies {name}, percent of its time");
    Ok(Figure { rows, picture: picture(&title, bars), text })
}

/// koda-2.
///
/// # Errors
/// Of the database.
pub fn many(lab: &Lab) -> Result<Figure, FigureError> {
    let why = "The paper's transaction fetched its records from disk, at some 30 ms each; ours finds them in memory, in well \
               under a microsecond, so a commit that costs one disk write weighs more.";
    profile(lab, "500 records", 500, 0.2, why)
}

/// koda-3.
///
/// # Errors
/// Of the database.
pub fn one(lab: &Lab) -> Result<Figure, FigureError> {
    let why = "The paper's transaction did other I/O beside the commit's; ours does none, so nearly all of its time is the \
               log write.";
    profile(lab, "one record", 1, 36.0, why)
}

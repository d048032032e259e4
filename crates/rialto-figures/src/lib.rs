//! The papers' experiments, repeated on Rialto. Each writes a table (CSV), a picture (SVG) and a paragraph (Markdown)
//! with the paper's figures beside ours.
//!
//! | module | what |
//! |---|---|
//! | [`commit`] | bare commit sequences, on a disk or in virtual time: KODA's experiments |
//! | [`point`] | one run of commit sequences |
//! | [`rounds`] | a point that is measured in several rounds: medians, and ratios of pairs |
//! | [`phases`] | koda-1, koda-2, koda-3: the phases of a transaction on the real engine |
//! | [`climb`] | koda-t1, koda-t2: the paper's tables, and mountain climbing |
//! | [`curves`] | koda-6, koda-7, koda-8: throughput against servers and waits; koda-formulas |
//! | [`patience`] | koda-patience: transactions of different waits beside each other |
//! | [`designs`] | koda-designs: the most that each design reaches |
//! | [`adaptive`] | koda-adaptive: the design without a setting beside the best of the others |
//! | [`system_m`] | m-4.1 to m-4.4: System M's tables, on the credit cards behind its servers |
//! | [`dora`] | dora-1 to dora-11: DORA's figures, on TM1, TPC-B and TPC-C in memory |
//! | [`charm`] | charm-t1 to charm-t8, charm-2 to charm-5: Charm's tables and figures, on TPC-C in virtual time |
//! | [`smallbase`] | cluster-t1 to cluster-t3, cluster-nagle, cluster-costs, cluster-scp: Smallbase's tables, on clusters of processes; cluster-scale: a simulation of more nodes |
//! | [`steady`] | figures that are the same in every run: what `.ci/run` gates on |

// The object of a commit run has some sixty members in one `json!`.
#![recursion_limit = "512"]

pub mod adaptive;
pub mod charm;
pub mod climb;
pub mod commit;
pub mod curves;
pub mod designs;
pub mod dora;
mod looks;
pub mod patience;
pub mod phases;
pub mod point;
pub mod rounds;
pub mod smallbase;
pub mod steady;
pub mod system_m;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rialto_measure::RunError;
use rialto_measure::chart::{DrawingError, Picture};
use rialto_measure::text::say;

/// An experiment.
type Make = fn(&Lab) -> Result<Figure, FigureError>;

/// The papers' figures and tables that there are: id, what it shows, how it is made.
const FIGURES: [(&str, &str, Make); 44] = [
    ("koda-1", "the phases of a transaction", phases::phases),
    ("koda-2", "the profile of a transaction that modifies 500 records", phases::many),
    ("koda-3", "the profile of a transaction that modifies one record", phases::one),
    ("koda-6", "throughput against servers at a constant stall", curves::servers),
    ("koda-7", "throughput against the commit stall", curves::stall),
    ("koda-8", "throughput against the willing-to-wait time", curves::willing_to_wait),
    ("koda-t1", "Commit-Stall Design performance data, and the climb", climb::commit_stall),
    ("koda-t2", "Willing-to-Wait performance data, and the climb", climb::willing_to_wait),
    ("koda-formulas", "I x G and 1/(G(G+1)) beside what was measured", curves::formulas),
    ("koda-designs", "the most that each design reaches", designs::most),
    ("koda-patience", "transactions of different waits beside each other", patience::mixed),
    ("koda-adaptive", "adaptive beside the best of the others", adaptive::beside),
    ("m-4.1", "throughput and processor time by server", system_m::throughput::by_strategy),
    (
        "m-4.2",
        "lock contention with spooling and non-spooling checkpointers",
        system_m::contention::by_spooling,
    ),
    ("m-4.3", "response times by the length of the request queue", system_m::response::by_queue),
    ("m-4.4", "some basic operations", system_m::basics::operations),
    ("dora-1", "throughput per processor against the load, and where the time goes", dora::by_load::per_cpu),
    ("dora-2", "where the time goes at full load: TM1 and TPC-C order-status", dora::breakdown::at_full_load),
    ("dora-3", "where the time goes inside the lock manager: TPC-B", dora::breakdown::inside),
    ("dora-5", "locks acquired by 100 transactions", dora::locks::by_kind),
    ("dora-6", "throughput against the offered load, past 100%", dora::by_load::offered),
    ("dora-7", "response times of a single client", dora::response::single),
    ("dora-8", "the highest throughput, under perfect admission control", dora::by_load::peak),
    ("dora-10", "record accesses by thread over time", dora::accesses::by_thread),
    ("dora-11", "parallel and serial plans under aborts", dora::aborts::plans),
    ("charm-t1", "lock waits behind others' disk I/O", charm::concurrency::waits_for_disk),
    ("charm-2", "throughput and waits for the disk, by concurrency", charm::concurrency::throughput),
    ("charm-t2", "times of reads and writes, by concurrency", charm::concurrency::disk_times),
    ("charm-3", "waits for locks, by concurrency", charm::concurrency::lock_waits),
    ("charm-t3", "deadlocks, by concurrency", charm::concurrency::deadlocks),
    ("charm-4", "throughput, by the size of the cache", charm::caches::throughput),
    ("charm-t4", "transactions that need the disk, by the size of the cache", charm::caches::shares),
    ("charm-5", "waits for locks and for the disk, by the size of the cache", charm::caches::waits),
    ("charm-t5", "times of reads and writes, by the size of the cache", charm::caches::disk_times),
    ("charm-t6", "misprefetches", charm::strategies::misprefetches),
    ("charm-t7", "the strategies with little and with much computation", charm::strategies::idle_loops),
    ("charm-t8", "memory that a transaction keeps between its stages", charm::strategies::memory),
    ("cluster-t1", "throughput of 1 to 8 nodes, by priority and network", smallbase::scaleup::by_network),
    ("cluster-t2", "throughput of 1 to 8 nodes, by clients", smallbase::scaleup::by_clients),
    ("cluster-t3", "response times of 1 to 8 nodes", smallbase::response::times),
    ("cluster-nagle", "what Nagle's algorithm costs", smallbase::nagle::with_and_without),
    ("cluster-costs", "the costs of single operations", smallbase::costs::operations),
    (
        "cluster-scale",
        "a simulation of 8 to 1,000 nodes, beside measured runs of 1 to 8",
        smallbase::scale::beyond,
    ),
    ("cluster-scp", "the requests of a service control point", smallbase::scp::requests),
];

/// What the experiments run with.
#[derive(Debug, Clone)]
pub struct Lab {
    /// The directory of the runs on the disk.
    pub data: PathBuf,
    /// How long a point on the disk is measured; none for no such points.
    pub seconds: Option<Duration>,
    /// Commits of a point in virtual time.
    pub commits: u64,
    /// In how many rounds each point of System M's and DORA's figures is measured, the windows of each point of Charm's, and the runs of each
    /// of Smallbase's clusters.
    pub rounds: u32,
    /// How large DORA's tables are, in percent of the paper's.
    pub scale: u32,
    /// Where random choices come from.
    pub seed: u64,
    /// What cluster-scale is asked about.
    pub beyond: Beyond,
}

/// The clusters that cluster-scale simulates once it has predicted the measured ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Beyond {
    /// How many nodes they have.
    pub nodes: Vec<u32>,
    /// The cores of each node; `None`: as many as this machine.
    pub cores: Option<usize>,
    /// A message is on its way for so long.
    pub delay: Duration,
    /// What each node can send, in megabits a second.
    pub mbit: f64,
    /// Whether transactions are whole, and wait for standbys.
    pub has_standbys: bool,
    /// Whether they are told even if the simulation has not predicted the measured clusters.
    pub even_if_it_misses: bool,
}

impl Default for Beyond {
    fn default() -> Beyond {
        Beyond {
            nodes: vec![8, 64, 256, 1_000],
            cores: None,
            delay: Duration::from_micros(50),
            mbit: 10_000.0,
            has_standbys: false,
            even_if_it_misses: false,
        }
    }
}

impl Lab {
    /// How long a point that is no simulation is measured.
    ///
    /// # Errors
    /// If there are to be no such points.
    pub(crate) fn on_the_clock(&self) -> Result<Duration, RunError> {
        let none = || {
            let what = "the figures m-…, dora-… and cluster-… are of real runs; give --seconds above zero";
            RunError::Usage(what.to_owned())
        };
        self.seconds.ok_or_else(none)
    }

    /// Whether points are so short that they can only show that all is there: the data is small then, too.
    pub(crate) fn is_small(&self) -> bool {
        self.seconds.is_some_and(|seconds| seconds < SECONDS_MIN)
    }
}

/// Shorter points mean nothing.
const SECONDS_MIN: Duration = Duration::from_millis(100);

/// An experiment's result.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The header and the rows of its table.
    pub rows: Vec<Vec<String>>,
    /// Its picture.
    pub picture: Picture,
    /// Its paragraph.
    pub text: String,
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A run failed.
    #[error("{0}")]
    Run(#[from] RunError),
    /// Its picture could not be drawn.
    #[error(transparent)]
    Drawing(#[from] DrawingError),
}

impl From<FigureError> for RunError {
    fn from(error: FigureError) -> RunError {
        match error {
            FigureError::Run(error) => error,
            drawing @ FigureError::Drawing(_) => RunError::Io {
                during: "drawing a picture",
                cause: std::io::Error::other(drawing.to_string()),
            },
        }
    }
}

fn known() -> String {
    let lines = FIGURES.iter().map(|(id, shows, _)| format!("\n  {id}: {shows}"));
    lines.collect()
}

/// A cell of a table, its quotes doubled where it needs any.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

impl Figure {
    fn csv(&self) -> String {
        let line = |row: &Vec<String>| row.iter().map(|text| cell(text)).collect::<Vec<_>>().join(",") + "\n";
        self.rows.iter().map(line).collect()
    }
}

/// A Markdown table of these rows, of which the first is the header.
pub(crate) fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        text += &format!("| {} |\n", row.join(" | "));
        if number == 0 {
            text += &format!("|{}\n", "---|".repeat(row.len()));
        }
    }
    text
}

/// Runs the experiments and writes them; what was written goes to `out`.
///
/// # Errors
/// An unknown id, a directory that cannot be written to, a run that fails.
pub fn run(ids: &[String], lab: &Lab, directory: &Path, out: &mut dyn Write) -> Result<(), RunError> {
    if let Some(unknown) = ids.iter().find(|id| FIGURES.iter().all(|(known, ..)| known != id)) {
        return Err(RunError::Usage(format!("there is no figure \"{unknown}\"; available:{}", known())));
    }
    std::fs::create_dir_all(directory).map_err(|error| {
        RunError::Directory(format!(
            "{} cannot be made: {error}; choose another with --out DIR",
            directory.display()
        ))
    })?;
    for (id, shows, make) in FIGURES {
        if !ids.is_empty() && !ids.iter().any(|wanted| wanted == id) {
            continue;
        }
        let is_real = ["m-", "dora-", "cluster-"].iter().any(|begin| id.starts_with(begin));
        if ids.is_empty() && lab.seconds.is_none() && is_real {
            say(&format!("{id}: left out, it is of real runs"));
            continue;
        }
        say(&format!("{id}: {shows}"));
        let figure = make(lab)?;
        let text = format!("## {id}: {shows}\n\n![{id}]({id}.svg)\n\n{}", figure.text);
        for (ending, contents) in
            [("csv", figure.csv()), ("svg", figure.picture.svg().map_err(FigureError::from)?), ("md", text)]
        {
            let path = directory.join(format!("{id}.{ending}"));
            write(&path, &contents)?;
            writeln!(out, "{}", path.display())
                .map_err(|cause| RunError::Io { during: "writing the names of files", cause })?;
        }
    }
    Ok(())
}

fn write(path: &Path, contents: &str) -> Result<(), RunError> {
    std::fs::write(path, contents).map_err(|error| {
        RunError::Directory(format!(
            "{} cannot be written: {error}; choose another directory with --out DIR",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use rialto_measure::text::row;

    use super::*;

    #[test]
    fn tables_are_csv_and_markdown() {
        let rows = vec![row(["a", "b"]), row(["1,5", "say \"x\""])];
        assert_eq!(markdown(&rows), "| a | b |\n|---|---|\n| 1,5 | say \"x\" |\n");
        let figure = Figure { rows, picture: Picture::Panels(Vec::new()), text: String::new() };
        assert_eq!(figure.csv(), "a,b\n\"1,5\",\"say \"\"x\"\"\"\n");
    }
}

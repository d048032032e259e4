//! charm-4, charm-5, charm-t4, charm-t5: by the size of the cache.

use rialto::TwoStage;
use rialto_measure::RunError;
use rialto_measure::chart::{Look, Panel, Picture, Series};
use rialto_measure::text::row;
use rialto_workloads::tpcc::Name;

use super::super::rounds::ratio;
use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Runs, Sample, Setting};
use super::sweep::{COMPARED, Point, Sweep};
use super::{STRATEGIES, machine};

/// The cache of the experiments that do not vary it. Under two-phase locking its hit ratio is 99.8%, near that of the paper's default
/// cache of 512 MB, 99.7%.
pub const DEFAULT: u64 = 380_000_000;

/// What varies.
const AXIS: &str = "cache, MB";

/// A cache, and the one of the paper with about as many new orders that need the disk.
struct Cache {
    bytes: u64,
    paper: Option<PaperCache>,
}

/// A cache of the paper.
#[derive(Clone, Copy)]
struct PaperCache {
    megabytes: u32,
    /// Table 4: transactions that need the disk, in percent, by [`TYPES`].
    shares: [f64; 5],
    /// Table 5: milliseconds of a read or write of the file system, under two-phase locking and HTSTE.
    disk_ms: (f64, f64),
}

const CACHES: [Cache; 5] = [
    Cache {
        bytes: 68_000_000,
        paper: Some(PaperCache {
            megabytes: 128,
            shares: [99.8, 71.4, 93.1, 82.3, 98.7],
            disk_ms: (112.42, 146.94),
        }),
    },
    Cache {
        bytes: 180_000_000,
        paper: Some(PaperCache {
            megabytes: 256,
            shares: [75.5, 21.1, 87.5, 48.1, 97.3],
            disk_ms: (114.14, 122.92),
        }),
    },
    Cache { bytes: DEFAULT, paper: None },
    Cache {
        bytes: 440_000_000,
        paper: Some(PaperCache {
            megabytes: 384,
            shares: [22.0, 3.7, 62.0, 18.1, 84.1],
            disk_ms: (34.01, 46.81),
        }),
    },
    Cache {
        bytes: 535_000_000,
        paper: Some(PaperCache {
            megabytes: 512,
            shares: [13.3, 1.3, 51.0, 9.4, 71.7],
            disk_ms: (17.85, 32.22),
        }),
    },
];
/// The types of transactions, in the order of table 4.
const TYPES: [Name; 5] = [Name::NewOrder, Name::Payment, Name::StockLevel, Name::OrderStatus, Name::Delivery];

fn sweep(runs: Runs<'_>) -> Result<Sweep, RunError> {
    let values = CACHES.iter().map(|cache| (megabytes(cache.bytes), cache.bytes));
    Sweep::measure(runs, AXIS, values, |setting, cache_bytes| Setting { cache_bytes, ..setting })
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// charm-4: throughput.
///
/// # Errors
/// A run that fails.
pub fn throughput(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let sweep = sweep(runs)?;
    let table = sweep.throughput(
        "cache MB",
        &[("hit %", Sample::hit_percent, 2), ("disks busy %", Sample::disk_busy_percent, 0)],
    );
    let gain = |point: &Point| {
        let base = point.found.of(TwoStage::TwoPhaseLocking);
        let gain = point.found.of(TwoStage::Htste).against(base, Sample::per_minute);
        format!("{} with {:.0} MB", ratio(gain), point.x)
    };
    let gains: Vec<String> = sweep.points.iter().map(gain).collect();
    let text = format!(
        "Figure 4, with four concurrent transactions. {} The paper prints no numbers beside its picture. It reports a gain of HTSTE \
         where fewer than a quarter of the transactions need the disk, and almost none where the disks are busy. Here the ratio of \
         HTSTE to two-phase locking is {}.\n\n{}",
        machine(runs),
        gains.join(", "),
        markdown(&table)
    );
    let title = ("New orders a minute", "new orders a minute");
    let panels = vec![sweep.panel(title, &STRATEGIES, Sample::per_minute)];
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

/// charm-5: the waits of a new order for locks and for the disk.
///
/// # Errors
/// A run that fails.
pub fn waits(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let sweep = sweep(runs)?;
    let mut table = vec![row(["cache MB", "strategy", "lock wait ms", "disk wait ms"])];
    for point in &sweep.points {
        for (strategy, found) in &point.found.0 {
            table.push(vec![
                format!("{:.0}", point.x),
                strategy.name().to_owned(),
                format!("{:.2}", found.median(Sample::lock_ms)),
                format!("{:.2}", found.median(Sample::io_ms)),
            ]);
        }
    }
    let text = format!(
        "Figure 5: what a new order waits for, with four concurrent transactions. {} The paper prints no figures beside its picture.\
         \n\n{}",
        machine(runs),
        markdown(&table)
    );
    let panels = vec![
        sweep.panel(("Wait of a new order for locks", "ms"), &STRATEGIES, Sample::lock_ms),
        sweep.panel(("Wait of a new order for the disk", "ms"), &STRATEGIES, Sample::io_ms),
    ];
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

/// charm-t4: transactions that need the disk.
///
/// # Errors
/// A run that fails.
pub fn shares(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let mut table = vec![row([
        "cache MB",
        "type",
        "need the disk %",
        "least",
        "most",
        "the paper's",
        "paper's cache MB",
    ])];
    let mut curves: Vec<Vec<(f64, f64)>> = vec![Vec::new(); TYPES.len()];
    for Cache { bytes: cache_bytes, paper } in CACHES {
        let found = runs.of(Setting { cache_bytes, ..Setting::of(TwoStage::Tste) })?;
        for (number, (name, curve)) in TYPES.into_iter().zip(&mut curves).enumerate() {
            let spread = found.spread(|sample| sample.of(name).needed_two_percent());
            let mut cells = vec![format!("{:.0}", megabytes(cache_bytes)), name.as_str().to_owned()];
            cells.extend([spread.median, spread.least, spread.most].map(|percent| format!("{percent:.1}")));
            cells.extend(match paper {
                Some(paper) => [format!("{:.1}", paper.shares[number]), paper.megabytes.to_string()],
                None => [String::new(), String::new()],
            });
            table.push(cells);
            curve.push((megabytes(cache_bytes), spread.median));
        }
    }
    let series = TYPES.into_iter().zip(curves).enumerate();
    let series =
        series.map(|(colour, (name, points))| Series::new(name.as_str(), Look::Measured, colour, points));
    let text = format!(
        "Table 4: transactions that need the disk, under TSTE: those whose fetch stage has read it. Four caches are chosen so \
         that about as many new orders need it as the paper's; the fifth, of {:.0} MB, has nearly the hit ratio of the paper's default, 99.7%. {}\n\n{}",
        megabytes(DEFAULT),
        machine(runs),
        markdown(&table)
    );
    let panels = vec![Panel::new("Transactions that need the disk", AXIS, "%", series.collect())];
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

/// charm-t5: the times of reads and writes.
///
/// # Errors
/// A run that fails.
pub fn disk_times(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let sweep = sweep(runs)?;
    let theirs = CACHES.iter().map(|cache| cache.paper.map(|paper| paper.disk_ms));
    let table = sweep.compared("cache MB", Sample::disk_ms, theirs);
    let text = format!(
        "Table 5: the mean time of a read or a write of the disks with pages, with its wait in their queues, in milliseconds; four \
         concurrent transactions. {}\n\n{}",
        machine(runs),
        markdown(&table)
    );
    let panels = vec![sweep.panel(("A read or write of the disk", "ms"), &COMPARED, Sample::disk_ms)];
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

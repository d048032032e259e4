//! charm-t6 to charm-t8: misprefetches, longer computation, and memory.

use std::time::Duration;

use rialto::TwoStage;
use rialto_measure::chart::{Bar, Look, Panel, Picture, Series};
use rialto_measure::text::row;
use rialto_workloads::tpcc::Name;

use super::super::rounds::{ratios, whole};
use super::super::{Figure, FigureError, Lab, markdown};
use super::caches::DEFAULT;
use super::run::{RUN, Runs, Sample, Setting};
use super::{ByStrategy, WAREHOUSES, machine};

/// Table 6, by concurrent transactions: OTSTE's transactions that read the disk in the operate stage, in percent, with one and five
/// warehouses.
const TABLE_6: [(u32, f64, f64); 5] =
    [(2, 0.9, 1.7), (3, 2.1, 2.1), (4, 2.9, 2.4), (5, 3.8, 3.0), (6, 4.4, 3.3)];
/// Table 7: strategy; new orders a minute, and milliseconds that a new order waits for locks, without an idle loop and with one of 30 ms.
const TABLE_7: [(TwoStage, [(f64, f64); 2]); 4] = [
    (TwoStage::TwoPhaseLocking, [(3_648.0, 58.9), (3_650.0, 56.6)]),
    (TwoStage::Tste, [(9_662.0, 11.8), (7_490.0, 14.7)]),
    (TwoStage::Otste, [(6_869.0, 20.5), (5_787.0, 26.2)]),
    (TwoStage::Htste, [(9_686.0, 11.2), (6_507.0, 16.3)]),
];
/// The idle loops.
const IDLE: [Duration; 2] = [Duration::ZERO, Duration::from_millis(30)];
/// Table 8, by type: kilobytes of a transaction with one and five warehouses.
const TABLE_8: [(Name, f64, f64); 5] = [
    (Name::NewOrder, 184.0, 370.0),
    (Name::Payment, 48.0, 66.0),
    (Name::StockLevel, 1_340.0, 2_305.0),
    (Name::OrderStatus, 64.0, 104.0),
    (Name::Delivery, 344.0, 534.0),
];

/// For a database of so many warehouses: a cache for the same part of it as the default is for [`WAREHOUSES`].
fn cache_of(warehouses: u32) -> u64 {
    DEFAULT / u64::from(WAREHOUSES) * u64::from(warehouses)
}

/// charm-t6: transactions that read the disk in their operate stage.
///
/// # Errors
/// A run that fails.
pub fn misprefetches(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let mut table = vec![row(["warehouses", "clients", "misprefetched %", "least", "most", "the paper's"])];
    let mut series = Vec::new();
    for (colour, warehouses) in [1, WAREHOUSES].into_iter().enumerate() {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for &(clients, one, five) in runs.some_of(&TABLE_6) {
            let setting = Setting {
                warehouses,
                cache_bytes: cache_of(warehouses),
                clients,
                ..Setting::of(TwoStage::Otste)
            };
            let spread = runs.of(setting)?.spread(Sample::misprefetched_percent);
            let paper = if warehouses == 1 { one } else { five };
            let mut cells = vec![warehouses.to_string(), clients.to_string()];
            cells.extend([spread.median, spread.least, spread.most].map(|percent| format!("{percent:.2}")));
            cells.push(format!("{paper:.1}"));
            table.push(cells);
            ours.push((f64::from(clients), spread.median));
            theirs.push((f64::from(clients), paper));
        }
        series.push(Series::new(format!("w = {warehouses}"), Look::Measured, colour, ours));
        series.push(Series::new(format!("w = {warehouses}, the paper's"), Look::Paper, colour, theirs));
    }
    let text = format!(
        "Table 6: executions of OTSTE that read the disk in an operate stage that follows a fetch stage, in percent of all. With one \
         warehouse the cache has 76 MB, a fifth. {}\n\n{}",
        machine(runs),
        markdown(&table)
    );
    let panels = vec![Panel::new("Misprefetches", "concurrent transactions", "% of the executions", series)];
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

/// charm-t7: the strategies beside each other, with little and with much computation.
///
/// # Errors
/// A run that fails.
pub fn idle_loops(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let mut table = vec![row([
        "idle loop ms",
        "strategy",
        "new orders a minute",
        "least",
        "most",
        "ratio to the best of the paper's four",
        "low",
        "high",
        "lock wait ms",
        "the paper's new orders a minute",
        "the paper's lock wait ms",
    ])];
    let mut bars = Vec::new();
    for (number, idle) in IDLE.into_iter().enumerate() {
        let found = ByStrategy::measure(runs, |setting| Setting { run: RUN + idle, ..setting })?;
        let four = found.0.iter().filter(|(strategy, _)| *strategy != TwoStage::Adaptive);
        let best = four.max_by(|one, other| {
            one.1.median(Sample::per_minute).total_cmp(&other.1.median(Sample::per_minute))
        });
        let (_, best) = best.expect("there are four");
        for (strategy, found) in &found.0 {
            let label = format!("{} ms, {}", idle.as_millis(), strategy.name());
            let mut cells = vec![idle.as_millis().to_string(), strategy.name().to_owned()];
            cells.extend(whole(found.spread(Sample::per_minute)));
            cells.extend(ratios(found.against(best, Sample::per_minute)));
            cells.push(format!("{:.1}", found.median(Sample::lock_ms)));
            let per_minute = found.median(Sample::per_minute);
            let bar = |label: String, length: f64, is_paper| Bar {
                label,
                parts: vec![length],
                note: format!("{length:.0}"),
                is_paper,
            };
            bars.push(bar(label.clone(), per_minute, false));
            match TABLE_7.iter().find(|(of, _)| of == strategy) {
                Some((_, paper)) => {
                    let (new_orders, lock_ms) = paper[number];
                    cells.extend([format!("{new_orders:.0}"), format!("{lock_ms:.1}")]);
                    bars.push(bar(format!("{label}, the paper's"), new_orders, true));
                }
                None => cells.extend(vec![String::new(); 2]),
            }
            table.push(cells);
        }
    }
    let text = format!(
        "Table 7: an idle loop lengthens each run of a transaction; four concurrent transactions. {} The paper's loop cannot have taken \
         30 ms of its one processor for each transaction: then two-phase locking would commit no more than 860 new orders a minute, \
         and it reports 3,650. Here it does take 30 ms of each run.\n\n{}",
        machine(runs),
        markdown(&table)
    );
    let picture = Picture::Bars { title: "New orders a minute".to_owned(), parts: Vec::new(), bars };
    Ok(Figure { rows: table, picture, text })
}

/// charm-t8: memory that a transaction keeps between its stages.
///
/// # Errors
/// A run that fails.
pub fn memory(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let mut table = vec![row(["warehouses", "type", "KiB", "the paper's KB"])];
    let mut bars = Vec::new();
    for warehouses in [1, WAREHOUSES] {
        let setting =
            Setting { warehouses, cache_bytes: cache_of(warehouses), ..Setting::of(TwoStage::Tste) };
        let found = runs.of(setting)?;
        for (name, one, five) in TABLE_8 {
            let ours = found.median(|sample| sample.of(name).kept_kb());
            let theirs = if warehouses == 1 { one } else { five };
            table.push(vec![
                warehouses.to_string(),
                name.as_str().to_owned(),
                format!("{ours:.0}"),
                format!("{theirs:.0}"),
            ]);
            for (whose, kilobytes, is_paper) in [("", ours, false), (", the paper's", theirs, true)] {
                bars.push(Bar {
                    label: format!("w = {warehouses}, {}{whose}", name.as_str()),
                    parts: vec![kilobytes],
                    note: format!("{kilobytes:.0}"),
                    is_paper,
                });
            }
        }
    }
    let text = format!(
        "Table 8: the leaves of indexes that a transaction keeps in memory for its operate stage, under TSTE, in KiB; \
         the inner nodes that lead to them stay, too, and are not counted. With one warehouse the cache has 76 MB, a fifth. {}\n\n{}",
        machine(runs),
        markdown(&table)
    );
    let picture = Picture::Bars { title: "Kilobytes of a transaction".to_owned(), parts: Vec::new(), bars };
    Ok(Figure { rows: table, picture, text })
}

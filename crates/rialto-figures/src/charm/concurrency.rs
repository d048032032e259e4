//! charm-2, charm-3, charm-t1 to charm-t3: by the number of concurrent transactions.

use rialto::TwoStage;
use rialto_measure::RunError;
use rialto_measure::chart::{Look, Panel, Picture, Series};
use rialto_measure::text::row;

use super::super::rounds::ratio;
use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Runs, Sample, Setting};
use super::sweep::{COMPARED, Point, Sweep, colour_of};
use super::{ByStrategy, STRATEGIES, machine};

/// What varies.
const AXIS: &str = "concurrent transactions";
/// Concurrent transactions of the paper's figures.
const CLIENTS: [u32; 7] = [1, 2, 4, 6, 8, 10, 12];
/// The paper's highest ratio of HTSTE's throughput to that of two-phase locking, with four concurrent transactions.
const PAPER_BEST: f64 = 2.64;
/// Table 1: concurrent transactions, and the percentage of the lock waits that is the disk I/O of others.
const TABLE_1: [(u32, f64); 5] = [(2, 93.3), (4, 80.9), (6, 54.1), (8, 34.8), (10, 18.4)];
/// Table 2, by [`CLIENTS`]: milliseconds of a read or write of the file system, under two-phase locking and HTSTE.
const TABLE_2: [(f64, f64); 7] = [
    (13.90, 13.35),
    (17.75, 20.74),
    (17.85, 32.22),
    (14.76, 26.30),
    (13.45, 19.63),
    (12.21, 16.86),
    (11.50, 13.55),
];
/// Table 3, by [`CLIENTS`]: aborted transactions in percent, under two-phase locking and HTSTE.
const TABLE_3: [(f64, f64); 7] =
    [(0.0, 0.0), (0.7, 0.1), (1.8, 0.4), (2.8, 1.6), (3.7, 3.2), (4.6, 4.1), (5.4, 5.0)];

fn sweep(runs: Runs<'_>) -> Result<Sweep, RunError> {
    let values = runs.some_of(&CLIENTS).iter().map(|&clients| (f64::from(clients), clients));
    Sweep::measure(runs, AXIS, values, |setting, clients| Setting { clients, ..setting })
}

/// charm-2: throughput, and the wait for the disk of a new order.
///
/// # Errors
/// A run that fails.
pub fn throughput(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let sweep = sweep(runs)?;
    let table = sweep.throughput(
        "clients",
        &[
            ("disk wait ms", Sample::io_ms, 1),
            ("hit %", Sample::hit_percent, 2),
            ("disks busy %", Sample::disk_busy_percent, 0),
            ("disk waits under locks a transaction", Sample::held_io_waits_each, 4),
        ],
    );
    let gain = |point: &Point| {
        let base = point.found.of(TwoStage::TwoPhaseLocking);
        (point.x, point.found.of(TwoStage::Htste).against(base, Sample::per_minute))
    };
    let gains: Vec<_> = sweep.points.iter().map(gain).collect();
    let best =
        gains.iter().max_by(|one, other| one.1.median.total_cmp(&other.1.median)).expect("there are points");
    let listed: Vec<String> = gains.iter().map(|(_, gain)| ratio(*gain)).collect();
    let text = format!(
        "Figure 2. {} The paper prints one number beside its picture: with four concurrent transactions HTSTE commits up to {PAPER_BEST} \
         times as many new orders as two-phase locking. Here the ratio of HTSTE to two-phase locking is {}, in the order of {} clients. \
         The highest is {}, with {} clients. (The hit ratio counts the accesses of all runs, fetch stages included: it does not compare \
         strategies.)\n\n{}",
        machine(runs),
        listed.join(", "),
        gains.iter().map(|(clients, _)| clients.to_string()).collect::<Vec<_>>().join(", "),
        ratio(best.1),
        best.0,
        markdown(&table)
    );
    let panels = vec![
        sweep.rising_panel(("New orders a minute", "new orders a minute"), &STRATEGIES, Sample::per_minute),
        sweep.rising_panel(("Wait of a new order for the disk", "ms"), &COMPARED, Sample::io_ms),
    ];
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

/// charm-3: the wait of a new order for locks.
///
/// # Errors
/// A run that fails.
pub fn lock_waits(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let sweep = sweep(runs)?;
    let mut table = vec![row([
        "clients",
        "strategy",
        "lock wait ms",
        "least",
        "most",
        "2pl's wait / this wait",
        "share of the response time %",
    ])];
    let mut falls = Vec::new();
    for Point { x: clients, found } in &sweep.points {
        let base = found.of(TwoStage::TwoPhaseLocking);
        for (strategy, found) in &found.0 {
            let spread = found.spread(Sample::lock_ms);
            let times = base.median(Sample::lock_ms) / spread.median;
            let mut cells = vec![clients.to_string(), strategy.name().to_owned()];
            cells.extend([spread.median, spread.least, spread.most].map(|ms| format!("{ms:.2}")));
            cells.push(if times.is_finite() { format!("{times:.1}") } else { String::new() });
            cells.push(format!("{:.1}", found.median(Sample::lock_percent)));
            if *strategy == TwoStage::Htste && times.is_finite() {
                falls.push((clients, times));
            }
            table.push(cells);
        }
    }
    let most = falls.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let found = most.map_or_else(String::new, |(clients, times)| {
        format!(" Here it falls by up to a factor of {times:.1}, with {clients} concurrent transactions.")
    });
    let text = format!(
        "Figure 3. {} The paper: under HTSTE the wait of a new order for locks falls by up to a factor of 10, with two concurrent \
         transactions.{found}\n\n{}",
        machine(runs),
        markdown(&table)
    );
    let panels = vec![
        sweep.rising_panel(("Wait of a new order for locks", "ms"), &STRATEGIES, Sample::lock_ms),
        sweep.rising_panel(("Its part of the response time", "%"), &COMPARED, Sample::lock_percent),
    ];
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

/// charm-t1: the part of the waits for locks in which others waited for the disk.
///
/// # Errors
/// A run that fails.
pub fn waits_for_disk(lab: &Lab) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let mut table = vec![row(["clients", "2pl %", "least", "most", "the paper's 2pl %", "htste %"])];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for &(clients, paper) in runs.some_of(&TABLE_1) {
        let point = ByStrategy::measure(runs, |setting| Setting { clients, ..setting })?;
        let spread = point.of(TwoStage::TwoPhaseLocking).spread(Sample::lock_for_disk_percent);
        let mut cells = vec![clients.to_string()];
        cells
            .extend([spread.median, spread.least, spread.most, paper].map(|percent| format!("{percent:.1}")));
        cells.push(format!("{:.1}", point.of(TwoStage::Htste).median(Sample::lock_for_disk_percent)));
        table.push(cells);
        ours.push((f64::from(clients), spread.median));
        theirs.push((f64::from(clients), paper));
    }
    let series =
        vec![Series::new("2pl", Look::Measured, 0, ours), Series::new("the paper's", Look::Paper, 0, theirs)];
    let text = format!(
        "Table 1: of the time that transactions wait for locks, the part in which those that hold them wait for the disk, in percent. \
         {}\n\n{}",
        machine(runs),
        markdown(&table)
    );
    let panels = vec![Panel::new("Lock waits behind others' disk I/O", AXIS, "% of the waits", series)];
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

/// charm-t2: the times of reads and writes.
///
/// # Errors
/// A run that fails.
pub fn disk_times(lab: &Lab) -> Result<Figure, FigureError> {
    let about = "Table 2: the mean time of a read or a write of the disks with pages, with its wait in their queues, in milliseconds.";
    compared(lab, ("A read or write of the disk", "ms"), about, Sample::disk_ms, &TABLE_2)
}

/// charm-t3: transactions that deadlocks abort.
///
/// # Errors
/// A run that fails.
pub fn deadlocks(lab: &Lab) -> Result<Figure, FigureError> {
    let about = "Table 3: runs that ended as a deadlock's victim, in percent of these and of the commits. A victim runs again; the paper counts \
                 aborted transactions.";
    compared(lab, ("Deadlocks", "% of the runs"), about, Sample::deadlock_percent, &TABLE_3)
}

/// A figure of two-phase locking and HTSTE, with the paper's beside each.
fn compared(
    lab: &Lab,
    (title, unit): (&str, &str),
    about: &str,
    figure: fn(&Sample) -> f64,
    paper: &[(f64, f64)],
) -> Result<Figure, FigureError> {
    let runs = Runs(lab);
    let sweep = sweep(runs)?;
    let table = sweep.compared("clients", figure, paper.iter().copied().map(Some));
    let mut panel = sweep.rising_panel((title, unit), &COMPARED, figure);
    for (strategy, theirs) in
        COMPARED.into_iter().zip([|both: &(f64, f64)| both.0, |both: &(f64, f64)| both.1])
    {
        let points = CLIENTS.map(f64::from).into_iter().zip(paper.iter().map(theirs)).collect();
        let name = format!("the paper's {}", strategy.name());
        panel.series.push(Series::new(name, Look::Paper, colour_of(strategy), points));
    }
    let text = format!("{about} {}\n\n{}", machine(runs), markdown(&table));
    Ok(Figure { rows: table, picture: Picture::Panels(vec![panel]), text })
}

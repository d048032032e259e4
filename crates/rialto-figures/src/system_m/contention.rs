//! m-4.2: lock contention with spooling and non-spooling checkpointers (table 4.2).

use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::row;

use super::super::rounds::ratios;
use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Sample, Setting, measure_all};
use super::{Strategy, strategy};
use crate::point::machine;

/// Lock requests and conflicting ones.
type Requests = (u64, u64);

/// Table 4.2: with spooling, and without.
const PAPER: [(Strategy, Option<[Requests; 2]>); 6] = [
    (strategy("FUZZY", "VALUE"), None),
    (strategy("ACBW", "AOPER"), Some([(459_466, 2), (979_309, 222)])),
    (strategy("ACBW", "VALUE"), Some([(459_112, 3), (916_527, 261)])),
    (strategy("ACCOU", "AOPER"), Some([(457_316, 10), (896_807, 211)])),
    (strategy("TCCOU", "TOPER"), Some([(488_704, 5), (957_610, 264)])),
    (strategy("TCBW", "TOPER"), Some([(596_845, 8), (1_344_143, 543)])),
];
/// Beside the paper's: strategies of which it has another log only.
const MORE: [Strategy; 2] = [strategy("ACCOU", "VALUE"), strategy("TCCOU", "VALUE")];
const SPOOLED: [(&str, bool); 2] = [("spooling", true), ("non-spooling", false)];
/// How many times `--seconds` each is measured.
const SECONDS: u32 = 5;

fn percent((requests, conflicting): Requests) -> f64 {
    conflicting as f64 * 100.0 / requests.max(1) as f64
}

/// Table 4.2.
///
/// # Errors
/// A run that fails.
pub fn by_spooling(lab: &Lab) -> Result<Figure, FigureError> {
    let window = lab.on_the_clock()? * SECONDS;
    let more = MORE.map(|strategy| (strategy, None));
    let rows: Vec<(Strategy, usize, Option<Requests>)> = PAPER
        .into_iter()
        .chain(more)
        .flat_map(|(strategy, paper)| [0, 1].map(|number| (strategy, number, paper.map(|both| both[number]))))
        .collect();
    let name = |strategy: &Strategy, number: usize| format!("{}, {}", strategy.name(), SPOOLED[number].0);
    let setting = |(strategy, number, _): &(Strategy, usize, _)| {
        let setting = Setting { spool: SPOOLED[*number].1, ..Setting::of_paper(*strategy) };
        (name(strategy, *number), setting)
    };
    let settings: Vec<_> = rows.iter().map(setting).collect();
    let points = measure_all(lab, &settings, window)?;
    let mut table = vec![row([
        "strategy",
        "checkpointer",
        "lock requests",
        "conflicting",
        "contention %",
        "low",
        "high",
        "contention of the spooling one's",
        "of it, low",
        "of it, high",
        "transactions/s",
        "throughput of the spooling one's",
        "of that, low",
        "of that, high",
        "paper: lock requests",
        "paper: conflicting",
        "paper: contention %",
    ])];
    let mut bars = Vec::new();
    for (position, ((strategy, number, paper), point)) in rows.iter().zip(&points).enumerate() {
        let Some(point) = point else { continue };
        let spooling = points[position - number].as_ref().expect("spooling is refused by no strategy alone");
        let sum = |count: fn(&Sample) -> u64| point.samples().iter().map(count).sum::<u64>().to_string();
        let mut cells = vec![strategy.name(), SPOOLED[*number].0.to_owned()];
        cells.extend([sum(|one| one.lock_requests), sum(|one| one.conflicting)]);
        let found = point.interval(Sample::contention);
        cells.extend([found.median, found.low, found.high].map(|percent| format!("{percent:.4}")));
        cells.extend(ratios(point.against(spooling, Sample::contention)));
        cells.push(format!("{:.0}", point.median(Sample::per_s)));
        cells.extend(ratios(point.against(spooling, Sample::per_s)));
        let label = name(strategy, *number);
        bars.push(Bar {
            label: label.clone(),
            parts: vec![found.median],
            note: format!("{:.4}%", found.median),
            is_paper: false,
        });
        match paper {
            Some(requests) => {
                let (total, conflicts) = *requests;
                let theirs = percent(*requests);
                cells.extend([total.to_string(), conflicts.to_string(), format!("{theirs:.4}")]);
                bars.push(Bar {
                    label: format!("{label}, the paper's"),
                    parts: vec![theirs],
                    note: format!("{theirs:.4}%"),
                    is_paper: true,
                });
            }
            None => cells.extend(vec![String::new(); 3]),
        }
        table.push(cells);
    }
    let seconds = window.as_secs_f64();
    let text = format!(
        "Table 4.2. Ours are the locks on rows and tables that transactions asked for with the latches of segments that sweeps \
         did (the only lock that our checkpointer takes), and how often one was not free: a lock for a transaction, a latch for \
         a commit that a sweep copied the segment of, or, unspooled, wrote it, or a latch for the sweep. Sweeps without a pause, \
         {} rounds of {seconds} s each: requests and conflicts are sums, the other figures medians with intervals by the sign test. \
         The paper's are all lock requests, and those that blocked; its unspooled runs were longer. On {}.\n\n{}",
        lab.rounds,
        machine(),
        markdown(&table)
    );
    let title = "Lock requests that had to wait, in percent".to_owned();
    Ok(Figure { rows: table, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

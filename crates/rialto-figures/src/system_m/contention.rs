//! m-4.2: lock contention with spooling and non-spooling checkpointers (table 4.2).

use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::{row, say};

use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Sample, Setting, measure};
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
    let mut table = vec![row([
        "strategy",
        "checkpointer",
        "lock requests",
        "conflicting",
        "contention %",
        "transactions/s",
        "paper: lock requests",
        "paper: conflicting",
        "paper: contention %",
    ])];
    let mut bars = Vec::new();
    let more = MORE.map(|strategy| (strategy, None));
    for (strategy, paper) in PAPER.into_iter().chain(more) {
        for (number, (name, spool)) in SPOOLED.into_iter().enumerate() {
            let setting = Setting { spool, ..Setting::of_paper(strategy) };
            let Some(sample) = measure(lab, &setting, window)? else { continue };
            let Sample { lock_requests, conflicting, .. } = sample;
            let found = percent((lock_requests, conflicting));
            let per_s = sample.per_s().mean;
            say(&format!("  {}, {name}: {conflicting} of {lock_requests}, {per_s:.0}/s", strategy.name()));
            let mut cells =
                vec![strategy.name(), name.to_owned(), lock_requests.to_string(), conflicting.to_string()];
            cells.push(format!("{found:.4}"));
            cells.push(format!("{per_s:.0}"));
            let label = format!("{}, {name}", strategy.name());
            bars.push(Bar {
                label: label.clone(),
                parts: vec![found],
                note: format!("{found:.4}%"),
                is_paper: false,
            });
            match paper.map(|both| both[number]) {
                Some(requests) => {
                    let (total, conflicts) = requests;
                    let theirs = percent(requests);
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
    }
    let seconds = window.as_secs_f64();
    let text = format!(
        "Table 4.2. Ours are the locks on rows and tables that transactions asked for with the latches of segments that sweeps \
         did (the only lock that our checkpointer takes), and how often one was not free: a lock for a transaction, a latch for \
         a commit that a sweep copied the segment of, or, unspooled, wrote it, or a latch for the sweep. Sweeps without a pause, {seconds} s each. The paper's are all lock requests, and those that \
         blocked; its unspooled runs were longer. On {}.\n\n{}",
        machine(),
        markdown(&table)
    );
    let title = "Lock requests that had to wait, in percent".to_owned();
    Ok(Figure { rows: table, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

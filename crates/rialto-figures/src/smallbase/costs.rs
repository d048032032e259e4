//! cluster-costs: the costs of single operations (the paper's section 5.2).

use rialto_measure::RunError;
use rialto_measure::chart::{Bar, Picture};
use rialto_measure::spread::Spread;
use rialto_measure::text::row;
use rialto_smallbase::costs::Costs;
use rialto_smallbase::outcome::Ran;

use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Setting, common, run};

/// Operations, and what they cost the paper, in microseconds.
const PAPER: [(&str, f64); 5] = [
    ("semaphore operation that lets another thread run", 55.0),
    ("semaphore operation that wakes none", 13.0),
    ("message by TCP", 1_000.0),
    ("local transaction", 300.0),
    ("remote transaction", 1_600.0),
];

/// The operations.
///
/// # Errors
/// A run that fails.
pub fn operations(lab: &Lab) -> Result<Figure, FigureError> {
    let window = lab.on_the_clock()?;
    let failed = |cause| RunError::Io { during: "measuring a message", cause };
    let Costs { wake, no_wake, message } = Costs::measure(window).map_err(failed)?;
    let setting = Setting::of_paper("as the paper");
    let point = run(lab, &setting, 2)?;
    let mean = |of: fn(&Ran) -> f64| Spread::of(point.runs.iter().map(of)).expect("a point has a run");
    let transactions = [mean(|ran| ran.local.mean_us()), mean(|ran| ran.remote.mean_us())];
    let mut table = vec![row(["operation", "us", "least", "most", "paper: us"])];
    let mut bars = Vec::new();
    for ((name, paper), cost) in
        PAPER.into_iter().zip([wake, no_wake, message].into_iter().chain(transactions))
    {
        let mut cells = vec![name.to_owned()];
        cells.extend([cost.median, cost.least, cost.most].map(|us| format!("{us:.3}")));
        cells.push(format!("{paper:.0}"));
        table.push(cells);
        let bar =
            |label, us: f64, is_paper| Bar { label, parts: vec![us], note: format!("{us:.1} us"), is_paper };
        bars.push(bar(name.to_owned(), cost.median, false));
        bars.push(bar(format!("{name}, paper"), paper, true));
    }
    let text = format!(
        "Section 5.2. A semaphore is a lock with a condition variable; a message of 150 bytes goes from thread to thread by the loopback network, \
         half of the time there and back. Transactions are those of two nodes with one client each, as the paper ran them; its remote \
         ones took \"about 1.6 msec\", with both parts at the same time, and without Nagle's algorithm. Of messages and semaphores the median of times of 128 operations. {}\n\n{}",
        common(lab, &[setting], std::slice::from_ref(&point)),
        markdown(&table)
    );
    let title = "Costs of single operations".to_owned();
    Ok(Figure { rows: table, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

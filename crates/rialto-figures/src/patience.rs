//! koda-patience: transactions of different waits beside each other. The paper's experiments left that out: in each run all
//! transactions had one stall, or one willing-to-wait time.

use std::time::Duration;

use rialto::GroupCommitDesign;
use rialto::log::Patience;
use rialto::log::virtual_time::{Load, LoadOutcome, simulate};
use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::{row, say};

use super::point::{koda, ms};
use super::{Figure, FigureError, Lab, markdown};

/// As many clients as three classes of one size have, about the paper's 50.
const CLIENTS: u32 = 51;

/// The wait of each of three classes in milliseconds.
type Waits = [u64; 3];

const fn stalls(waits: Waits) -> [Patience; 3] {
    let [short, middle, long] = waits;
    [stall(short), stall(middle), stall(long)]
}

const fn stall(wait: u64) -> Patience {
    Patience { began: None, stall: Some(ms(wait)), willing_to_wait: None }
}

const fn in_all(waits: Waits) -> [Patience; 3] {
    let [short, middle, long] = waits;
    [willing(short), willing(middle), willing(long)]
}

const fn willing(wait: u64) -> Patience {
    Patience { began: None, stall: None, willing_to_wait: Some(ms(wait)) }
}

/// Stalls and willing-to-wait times: the paper's best for all, then ever more different around it.
const STALLS: [Waits; 3] = [[30, 30, 30], [20, 30, 40], [5, 30, 150]];
const WAITS: [Waits; 3] = [[90, 90, 90], [60, 90, 120], [20, 90, 400]];
const OF_STALLS: [[Patience; 3]; 3] = [stalls(STALLS[0]), stalls(STALLS[1]), stalls(STALLS[2])];
const OF_WAITS: [[Patience; 3]; 3] = [in_all(WAITS[0]), in_all(WAITS[1]), in_all(WAITS[2])];

/// A design, its waits, and what the classes of each of them say.
type Case = (GroupCommitDesign, &'static [Waits; 3], &'static [[Patience; 3]; 3]);

const CASES: [Case; 3] = [
    (GroupCommitDesign::CommitStall, &STALLS, &OF_STALLS),
    (GroupCommitDesign::WillingToWait, &WAITS, &OF_WAITS),
    (GroupCommitDesign::HiberWillingToWait, &WAITS, &OF_WAITS),
];

/// Commits a second, and the mean response time, of the clients of a class.
fn of_class(outcome: &LoadOutcome, class: usize) -> (f64, Duration) {
    let clients = outcome.by_client.iter().skip(class).step_by(3);
    let (count, together) =
        clients.fold((0, Duration::ZERO), |(count, sum), (commits, time)| (count + commits, sum + *time));
    (count as f64 / outcome.time.as_secs_f64(), together / count.max(1) as u32)
}

/// koda-patience.
///
/// # Errors
/// None.
pub fn mixed(lab: &Lab) -> Result<Figure, FigureError> {
    let mut header = row(["design", "waits_ms", "tps", "of one wait", "cpu_percent", "group"]);
    for class in 1..=3 {
        header.extend([format!("class {class}: tps"), format!("class {class}: response_ms")]);
    }
    let (mut rows, mut bars) = (vec![header], Vec::new());
    for (design, waits, mixes) in CASES {
        let mut alike = None;
        for (waits, patience) in waits.iter().zip(mixes) {
            let (warmup_commits, seed) = (lab.commits / 5, lab.seed);
            let commits = lab.commits;
            let load =
                Load { clients: CLIENTS, in_flight: 1, warmup_commits, commits, seed, patience, polls: None };
            let outcome = simulate(koda(), &design.into(), &load);
            let tps = outcome.per_second();
            let ratio = tps / *alike.get_or_insert(tps);
            let waits = waits.map(|wait| wait.to_string()).join(", ");
            say(&format!("  {design}, {waits} ms: {tps:.0}"));
            let mut cells = vec![design.to_string(), waits.clone()];
            cells.extend([format!("{tps:.1}"), format!("{ratio:.3}")]);
            cells.push(format!("{:.0}", outcome.processors_busy * 100.0));
            cells.push(format!("{:.1}", outcome.commits as f64 / outcome.groups.max(1) as f64));
            let classes = [0, 1, 2].map(|class| of_class(&outcome, class));
            for (tps, response) in classes {
                cells.extend([format!("{tps:.1}"), format!("{:.1}", response.as_secs_f64() * 1e3)]);
            }
            rows.push(cells);
            bars.push(Bar {
                label: format!("{design}, {waits} ms"),
                parts: classes.map(|(tps, _)| tps).to_vec(),
                note: format!("{tps:.0} TPS"),
                is_paper: false,
            });
        }
    }
    let text = format!(
        "Three classes of {} clients each on `sim:koda` in virtual time, {} commits a row, seed {}: a class has its own stall, or its \
         own willing-to-wait time. In the first row of a design all have the paper's best. *Of one wait* is the throughput of a row \
         as a share of that one's. The paper expects Willing-to-Wait \"to perform much better than the Commit-Stall Design\" where \
         transactions vary, and says that a long wait of one transaction does not affect the others; its experiments had one wait \
         for all.\n\n{}",
        CLIENTS / 3,
        lab.commits,
        lab.seed,
        markdown(&rows)
    );
    let title = "Commits a second of classes with their own waits, sim:koda".to_owned();
    let parts = ["the shortest waits", "the middle ones", "the longest"].map(str::to_owned).to_vec();
    Ok(Figure { rows, picture: Picture::Bars { title, parts, bars }, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_add_up_to_the_whole() {
        let lab = Lab {
            data: std::path::PathBuf::new(),
            seconds: None,
            commits: 600,
            rounds: 1,
            scale: 1,
            seed: 1,
            beyond: crate::Beyond::default(),
        };
        let figure = mixed(&lab).unwrap();
        assert_eq!(figure.rows.len(), 1 + 9);
        for row in &figure.rows[1..] {
            let number = |at: usize| row[at].parse::<f64>().unwrap();
            let classes = number(6) + number(8) + number(10);
            assert!((classes / number(2) - 1.0).abs() < 0.01, "{row:?}");
        }
    }
}

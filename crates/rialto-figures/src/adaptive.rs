//! koda-adaptive: the design that has no setting, beside the best of the others at their best settings.

use std::time::Duration;

use rialto::log::virtual_time::{REGIMES, Regime};
use rialto::{GroupCommitDesign, GroupCommitOptions};
use rialto_measure::chart::{Look, Panel, Picture, Scale, Series};
use rialto_measure::text::{row, say};

use super::point::{Length, Point, run, with_stall, with_wait};
use super::{Figure, FigureError, Lab, markdown};

/// Clients, and commits that each keeps on their way.
const LOADS: [(u32, u32); 11] = [
    (1, 1),
    (2, 1),
    (4, 1),
    (8, 1),
    (16, 1),
    (32, 1),
    (64, 1),
    (128, 1),
    (256, 1),
    (512, 1),
    // 10,000 tickets from two threads.
    (2, 5_000),
];
/// Groups, about, in which adaptive climbs before it is measured: the more the longer the whole experiment is to be.
const CLIMB_GROUPS: u64 = 3_000;
/// A log write's times that stalls and delays are tried with, in tenths.
const STALLS: [u32; 5] = [2, 5, 8, 12, 20];
const DELAYS: [u32; 3] = [2, 5, 10];
/// The same for waits, of a log write's time and of the response time that hiber has.
const WAITS: [u32; 3] = [15, 20, 30];
const RESPONSES: [u32; 3] = [8, 10, 13];
/// Designs whose best setting is measured again.
const FINALISTS: usize = 4;

/// What each design is tried with: its settings in tenths of the write's time, and of hiber's response time.
fn settings(design: GroupCommitDesign, write: Duration, response: Duration) -> Vec<GroupCommitOptions> {
    use GroupCommitDesign::{Adaptive, CommitStall, Hiber, HiberStall, HiberWillingToWait, WillingToWait};
    let of = |time: Duration, tenths: &[u32]| -> Vec<Duration> {
        tenths.iter().map(|tenths| Duration::from_micros((time * *tenths / 10).as_micros() as u64)).collect()
    };
    match design {
        Adaptive => Vec::new(),
        CommitStall | HiberStall => {
            of(write, &STALLS).into_iter().map(|stall| with_stall(design, stall)).collect()
        }
        WillingToWait | HiberWillingToWait => {
            let waits = of(write, &WAITS).into_iter().chain(of(response, &RESPONSES));
            waits.map(|wait| with_wait(design, wait)).collect()
        }
        Hiber => {
            let delayed = of(write, &DELAYS).into_iter();
            let delayed =
                delayed.map(|delay| GroupCommitOptions { wake_delay: Some(delay), ..design.into() });
            std::iter::once(design.into()).chain(delayed).collect()
        }
        _ => vec![design.into()],
    }
}

/// One load on one regime.
struct Beside {
    /// The bound of the regime's groups.
    group_max: Option<u32>,
    clients: u32,
    in_flight: u32,
    best: GroupCommitOptions,
    at_best: Point,
    adaptive: Point,
    tried: usize,
}

impl Beside {
    /// What adaptive reaches of the best: with one client, whose throughput is its latency, the same.
    fn ratio(&self) -> f64 {
        self.adaptive.tps / self.at_best.tps
    }

    /// Whether most of the clients that wait are left out of the group that forms, and are woken with it all the same.
    fn is_crowded(&self) -> bool {
        self.in_flight == 1 && self.group_max.is_some_and(|most| self.clients > 4 * most)
    }
}

/// The mark of such a cell.
const CROWDED: &str = "¹";

fn compare(lab: &Lab, regime: &Regime, clients: u32, in_flight: u32) -> Beside {
    let outstanding = u64::from(clients) * u64::from(in_flight);
    // Enough to tell the settings from each other, then the best ones again and adaptive over as much, from another
    // seed: the best of many would be the luckiest.
    // Tickets are answered by the thousand: a short window may hold one lot more or less.
    let rounds = if in_flight > 1 { [20, 100] } else { [10, 20] };
    let trial = (lab.commits / 3).max(rounds[0] * outstanding);
    let final_commits = lab.commits.max(rounds[1] * outstanding);
    let (warmup, seed) = ((4 * outstanding).max(trial / 5), lab.seed);
    let try_one = |options: &GroupCommitOptions, length| run(regime, options, clients, in_flight, length);
    let trial = Length { warmup, commits: trial, seed };
    let hiber = try_one(&GroupCommitDesign::Hiber.into(), trial);
    let response = Duration::from_secs_f64(hiber.response_us / 1e6);
    let all = GroupCommitDesign::ALL.into_iter();
    let all: Vec<GroupCommitOptions> =
        all.flat_map(|design| settings(design, regime.write, response)).collect();
    // The best of each design, and of these the best few again: some begin well and end badly.
    let mut tried: Vec<(GroupCommitOptions, f64)> =
        all.iter().map(|options| (*options, try_one(options, trial).tps)).collect();
    tried.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut designs = Vec::new();
    tried.retain(|(options, _)| {
        let is_first = !designs.contains(&options.design);
        designs.push(options.design);
        is_first
    });
    let last = Length { warmup, commits: final_commits, seed: seed.wrapping_add(1) };
    let (best, at_best) = tried
        .iter()
        .take(FINALISTS)
        .map(|(options, _)| (*options, try_one(options, last)))
        .max_by(|a, b| a.1.tps.total_cmp(&b.1.tps))
        .expect("there are settings");
    // Less for a shorter experiment, as the tests run it.
    let groups = CLIMB_GROUPS.min(lab.commits);
    let climb = (groups as f64 * at_best.group.max(1.0)) as u64;
    let adaptive = try_one(&GroupCommitDesign::Adaptive.into(), Length { warmup: climb.max(warmup), ..last });
    let group_max = regime.group_max;
    Beside { group_max, clients, in_flight, best, at_best, adaptive, tried: all.len() }
}

fn load_name(clients: u32, in_flight: u32) -> String {
    match in_flight {
        1 => clients.to_string(),
        _ => format!("{clients} x {in_flight} tickets"),
    }
}

/// koda-adaptive.
///
/// # Errors
/// None.
pub fn beside(lab: &Lab) -> Result<Figure, FigureError> {
    let mut rows = vec![row([
        "regime",
        "clients",
        "in_flight",
        "best",
        "best_tps",
        "adaptive_tps",
        "ratio",
        "best_p50_us",
        "adaptive_p50_us",
        "best_group",
        "adaptive_group",
    ])];
    let mut series = Vec::new();
    let mut columns: Vec<Vec<Beside>> = Vec::new();
    for (number, regime) in REGIMES.iter().enumerate() {
        let mut column = Vec::new();
        for (clients, in_flight) in LOADS {
            let beside = compare(lab, regime, clients, in_flight);
            say(&format!(
                "  sim:{}, {}: {:.3} of {}",
                regime.name,
                load_name(clients, in_flight),
                beside.ratio(),
                beside.best
            ));
            let mut cells = vec![regime.name.to_owned(), clients.to_string(), in_flight.to_string()];
            cells.push(beside.best.to_string());
            let (best, adaptive) = (&beside.at_best, &beside.adaptive);
            cells.extend([best.tps, adaptive.tps].map(|tps| format!("{tps:.1}")));
            cells.push(format!("{:.4}", beside.ratio()));
            cells.extend([best.p50_us, adaptive.p50_us].map(|us| format!("{us:.2}")));
            cells.extend([best.group, adaptive.group].map(|group| format!("{group:.2}")));
            rows.push(cells);
            column.push(beside);
        }
        let blocking = column.iter().filter(|beside| beside.in_flight == 1);
        let points = blocking.map(|beside| (f64::from(beside.clients), beside.ratio())).collect();
        series.push(Series::new(format!("sim:{}", regime.name), Look::Measured, number, points));
        columns.push(column);
    }
    for (share, name) in [(1.0, "the best of the others"), (0.95, "5% below")] {
        series.push(Series::new(name, Look::Formula, 7, vec![(1.0, share), (512.0, share)]));
    }
    let mut shown = vec![
        std::iter::once("clients".to_owned())
            .chain(REGIMES.iter().map(|regime| format!("sim:{}", regime.name)))
            .collect::<Vec<_>>(),
    ];
    for (at, (clients, in_flight)) in LOADS.into_iter().enumerate() {
        let cell = |column: &Vec<Beside>| {
            let beside = &column[at];
            let mark = if beside.is_crowded() { CROWDED } else { "" };
            format!("{:.3}{mark} of {:.0} ({})", beside.ratio(), beside.at_best.tps, beside.best)
        };
        shown.push(std::iter::once(load_name(clients, in_flight)).chain(columns.iter().map(cell)).collect());
    }
    let all = || columns.iter().flatten();
    let least = all().map(Beside::ratio).fold(f64::MAX, f64::min);
    let missed = all().filter(|beside| beside.ratio() < 0.95).count();
    let tried = all().map(|beside| beside.tried).max().unwrap_or(0);
    let lone: Vec<String> = columns
        .iter()
        .zip(&REGIMES)
        .map(|(column, regime)| {
            let (best, adaptive) = (&column[0].at_best, &column[0].adaptive);
            format!("sim:{} {:.1} us, {:.1} us", regime.name, adaptive.p50_us, best.p50_us)
        })
        .collect();
    let text = format!(
        "*adaptive*, without a setting, beside the best of {tried} settings of the other eight designs: stalls of {STALLS:?} and \
         wake delays of {DELAYS:?} tenths of a log write, willing-to-wait times of {WAITS:?} tenths of a log write and \
         {RESPONSES:?} tenths of hiber's mean response. The best settings of the {FINALISTS} best designs are measured again with another seed, \
         as adaptive is, after a climb of about {} groups; at least {} commits a point. Each cell is adaptive's throughput as a \
         share of the best one's.\n\n{}\nThe least is {least:.3}; {missed} of {} are below 0.95. The median response of one \
         client, adaptive's and the best's: {}.\n\n{CROWDED} More than four times as many clients as fit into a group: its \
         wake call wakes all those, too, whom the bound has left out.\n",
        CLIMB_GROUPS.min(lab.commits),
        lab.commits,
        markdown(&shown),
        all().count(),
        lone.join("; ")
    );
    let panel = Panel {
        x_scale: Scale::Doublings,
        y_from: 0.8,
        y_to: Some(1.35),
        ..Panel::new(
            "adaptive over the best hand-tuned design",
            "blocking clients",
            "share of its throughput",
            series,
        )
    };
    Ok(Figure { rows, picture: Picture::Panels(vec![panel]), text })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::point::koda;

    #[test]
    fn every_other_design_is_tried_and_the_best_of_them_is_measured_beside_adaptive() {
        let write = koda().write;
        for design in GroupCommitDesign::ALL {
            let settings = settings(design, write, write * 2);
            assert_eq!(settings.is_empty(), design == GroupCommitDesign::Adaptive, "{design}");
            for options in settings {
                assert_eq!((options.design, options.problem()), (design, None), "{options}");
            }
        }
        let lab = Lab {
            data: PathBuf::new(),
            seconds: None,
            commits: 300,
            rounds: 1,
            scale: 1,
            seed: 1,
            beyond: crate::Beyond::default(),
        };
        let beside = compare(&lab, koda(), 4, 1);
        assert_eq!(beside.tried, 29);
        // Four clients in one group, or nearly, whose write takes a thirtieth of a second.
        assert!((60.0..125.0).contains(&beside.at_best.tps), "{:?}", beside.at_best);
        assert!((0.8..1.5).contains(&beside.ratio()), "{:?} beside {:?}", beside.adaptive, beside.at_best);
        assert_ne!(beside.best.design, GroupCommitDesign::Adaptive);
    }
}

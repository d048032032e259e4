//! dora-11: parallel and serial plans of a transaction that aborts often.

use rialto::Planning;
use rialto_measure::chart::{Look, Panel, Picture, Scale, Series};
use rialto_measure::text::{row, say};
use rialto_workloads::tatp::{self, Name, Plan, update_subscriber_data};

use super::super::rounds::{Rounds, in_order, ratios, whole};
use super::super::{Figure, FigureError, Lab, markdown};
use super::curve::per_s;
use super::run::{Clients, Sample, client_counts, measure};
use super::workload::{Kind, Loaded, Sizes, Way};
use super::{RAN, System, setting};

const KIND: Kind = Kind::Tm1Only(Name::UpdateSubscriberData);

/// A plan of the transaction, and what chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    /// Both actions in one phase, and that is run as it is.
    Parallel,
    /// A phase for each: the paper's serial plan, made by hand.
    Serial,
    /// Both in one phase, which the engine runs as it sees fit.
    Adaptive,
}

impl Chosen {
    /// What there is of a system: only threads run one phase's actions at the same time, so only they have something to choose.
    fn of(system: System) -> &'static [Chosen] {
        match system {
            System::Bound => &[Chosen::Parallel, Chosen::Serial, Chosen::Adaptive],
            _ => &[Chosen::Parallel, Chosen::Serial],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Chosen::Parallel => "parallel",
            Chosen::Serial => "serial",
            Chosen::Adaptive => "adaptive",
        }
    }

    fn way(self) -> Way {
        let plan = if self == Chosen::Serial { Plan::Serial } else { Plan::Parallel };
        let planning = if self == Chosen::Adaptive { Planning::Adaptive } else { Planning::Parallel };
        Way { instead: vec![update_subscriber_data(plan)], executors: None, planning }
    }
}

/// As the paper calls it, if it has it.
fn paper_name(system: System, plan: Chosen) -> &'static str {
    match (system, plan) {
        (System::Central, Chosen::Parallel) => "Baseline",
        (System::Bound, Chosen::Parallel) => "DORA-P",
        (System::Bound, Chosen::Serial) => "DORA-S",
        _ => "",
    }
}

/// A system with a plan, from one client on.
struct Run {
    system: System,
    plan: Chosen,
    points: Vec<Rounds<Sample>>,
    /// What the phase was run by in the end.
    in_force: String,
}

/// How the phase is run now.
fn how_run(loaded: &Loaded) -> String {
    let plans = loaded.database.metrics().plans;
    let plan = plans.iter().find(|plan| plan.procedure == Name::UpdateSubscriberData.as_str());
    plan.map_or_else(String::new, |plan| match plan.plan {
        rialto::Plan::Parallel => "parallel".to_owned(),
        rialto::Plan::Serial { .. } => "serial".to_owned(),
    })
}

/// Figure 11.
///
/// # Errors
/// A run that fails.
pub fn plans(lab: &Lab) -> Result<Figure, FigureError> {
    let window = lab.on_the_clock()?;
    let ways =
        System::ALL.iter().flat_map(|&system| Chosen::of(system).iter().map(move |&plan| (system, plan)));
    let new = |(system, plan)| Run { system, plan, points: Vec::new(), in_force: String::new() };
    let mut runs: Vec<Run> = ways.map(new).collect();
    for round in 0..lab.rounds {
        let order: Vec<usize> = (0..runs.len()).collect();
        for number in in_order(round, &order) {
            let Run { system, plan, points, in_force } = &mut runs[number];
            let mut loaded = Loaded::new(*system, KIND, &Sizes::of(lab), &plan.way())?;
            for (position, count) in client_counts(lab).into_iter().enumerate() {
                let sample = measure(lab, &mut loaded, Clients::blocking(count), window)?;
                let (system, plan, per_s) = (system.name(), plan.name(), sample.per_s());
                say(&format!("  round {}, {system}, {plan} plan, {count} clients: {per_s:.0}/s", round + 1));
                match points.get_mut(position) {
                    Some(point) => point.add(sample),
                    None => points.push(Rounds::begin(sample)),
                }
            }
            *in_force = how_run(&loaded);
            loaded.finish()?;
        }
    }
    Ok(figure(lab, &runs))
}

fn figure(lab: &Lab, runs: &[Run]) -> Figure {
    let mut table = vec![row([
        "system",
        "plan",
        "the paper's",
        "phase run",
        "clients",
        "utilization %",
        "transactions/s",
        "least",
        "most",
        "succeeded %",
        "against the parallel plan",
        "low",
        "high",
    ])];
    let mut series = Vec::new();
    for (number, Run { system, plan, points, in_force }) in runs.iter().enumerate() {
        let parallel = runs.iter().find(|other| other.system == *system && other.plan == Chosen::Parallel);
        for (position, point) in points.iter().enumerate() {
            let base = &parallel.expect("every system has a parallel plan").points[position];
            let succeeded = |sample: &Sample| sample.committed as f64 * 100.0 / sample.ran().max(1) as f64;
            let mut cells = row([system.name(), plan.name(), paper_name(*system, *plan), in_force]);
            cells.extend([
                point.first().clients.to_string(),
                format!("{:.0}", point.median(Sample::utilization)),
            ]);
            cells.extend(whole(point.spread(Sample::per_s)));
            cells.push(format!("{:.1}", point.median(succeeded)));
            cells.extend(ratios(point.against(base, Sample::per_s)));
            table.push(cells);
        }
        let name = match paper_name(*system, *plan) {
            "" => format!("{}, {}", system.name(), plan.name()),
            paper => format!("{}, {} ({paper})", system.name(), plan.name()),
        };
        let points = points.iter().map(|point| (f64::from(point.first().clients), per_s(point))).collect();
        series.push(Series::new(name, Look::Measured, number, points));
    }
    let most = runs.iter().flat_map(|run| &run.points).map(per_s).fold(0.0, f64::max);
    let panel = Panel::new("UpdateSubscriberData, of which 37.5% fail", "clients", "transactions/s", series);
    // Room for a legend of nine.
    let panel = Panel { x_scale: Scale::Doublings, y_to: Some(most * 2.2), ..panel };
    let text = format!(
        "Figure 11: UpdateSubscriberData, whose two actions do not depend on each other; the one on the special facility succeeds for \
         62.5% (the specification's {}%). The parallel plan has both in one phase, the serial one the facility first and the subscriber \
         only if that succeeds. The paper: DORA-P achieves less than the Baseline, DORA-S scales; its resource manager changes to \
         serial plans where abort rates are high; the adaptive series is that one, of the flow with one phase. Only threads that own \
         executors run a phase's actions at the same time: the others run them one after the other, the subscriber first in the \
         parallel plan. All are calls of the registered flow. {RAN} {} {}\n\n{}",
        Name::SUCCESS_PERCENT[tatp::Name::UpdateSubscriberData as usize],
        System::LEGEND,
        setting(lab, &Sizes::of(lab).describe(&[KIND]), lab.seconds.unwrap_or_default().as_secs_f64()),
        markdown(&table)
    );
    Figure { rows: table, picture: Picture::Panels(vec![panel]), text }
}

//! dora-11: parallel and serial plans of a transaction that aborts often.

use rialto::Planning;
use rialto_measure::chart::{Look, Panel, Picture, Scale, Series};
use rialto_measure::text::{row, say};
use rialto_workloads::tatp::{self, Name, Plan, update_subscriber_data};

use super::super::{Figure, FigureError, Lab, markdown};
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
        Way { by_calls: true, instead: vec![update_subscriber_data(plan)], executors: None, planning }
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
    samples: Vec<Sample>,
    /// What the phase was run by in the end.
    in_force: String,
}

/// How the phase is run now.
fn in_force(loaded: &Loaded) -> String {
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
    let mut runs = Vec::new();
    for system in System::AND_BOUND {
        for &plan in Chosen::of(system) {
            let mut loaded = Loaded::new(system, KIND, &Sizes::of(lab), &plan.way())?;
            let mut samples = Vec::new();
            for count in client_counts(lab) {
                let sample = measure(lab, &mut loaded, Clients::blocking(count), window)?;
                let (system, plan, per_s) = (system.name(), plan.name(), sample.per_s());
                say(&format!("  {system}, {plan} plan, {count} clients: {per_s:.0}/s"));
                samples.push(sample);
            }
            let in_force = in_force(&loaded);
            loaded.finish()?;
            runs.push(Run { system, plan, samples, in_force });
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
        "succeeded %",
        "against the parallel plan",
    ])];
    let mut series = Vec::new();
    for (number, Run { system, plan, samples, in_force }) in runs.iter().enumerate() {
        let parallel = runs.iter().find(|other| other.system == *system && other.plan == Chosen::Parallel);
        for (position, sample) in samples.iter().enumerate() {
            let base = parallel.map_or(f64::NAN, |parallel| parallel.samples[position].per_s());
            table.push(vec![
                system.name().to_owned(),
                plan.name().to_owned(),
                paper_name(*system, *plan).to_owned(),
                in_force.clone(),
                sample.clients.to_string(),
                format!("{:.0}", sample.utilization()),
                format!("{:.0}", sample.per_s()),
                format!("{:.1}", sample.committed as f64 * 100.0 / sample.ran().max(1) as f64),
                format!("{:.2}", sample.per_s() / base),
            ]);
        }
        let name = match paper_name(*system, *plan) {
            "" => format!("{}, {}", system.name(), plan.name()),
            paper => format!("{}, {} ({paper})", system.name(), plan.name()),
        };
        let points = samples.iter().map(|sample| (f64::from(sample.clients), sample.per_s())).collect();
        series.push(Series::new(name, Look::Measured, number, points));
    }
    let most = runs.iter().flat_map(|run| &run.samples).map(Sample::per_s).fold(0.0, f64::max);
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
        setting(&Sizes::of(lab).describe(&[KIND]), lab.seconds.unwrap_or_default().as_secs_f64()),
        markdown(&table)
    );
    Figure { rows: table, picture: Picture::Panels(vec![panel]), text }
}

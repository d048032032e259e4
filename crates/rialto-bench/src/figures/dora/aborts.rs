//! dora-11: parallel and serial plans of a transaction that aborts often.

use super::super::chart::{Look, Panel, Picture, Series};
use super::super::{Figure, FigureError, Lab, markdown, row};
use super::run::{Clients, Sample, client_counts, measure};
use super::workload::{Kind, Loaded, Sizes, Way};
use super::{RAN, System, setting};
use crate::session::say;
use crate::tatp::{self, Name, Plan, update_subscriber_data};

const KIND: Kind = Kind::Tm1Only(Name::UpdateSubscriberData);
const PLANS: [(Plan, &str); 2] = [(Plan::Parallel, "parallel"), (Plan::Serial, "serial")];

/// As the paper calls it, if it has it.
fn paper_name(system: System, plan: Plan) -> &'static str {
    match (system, plan) {
        (System::Central, Plan::Parallel) => "Baseline",
        (System::DataOriented, Plan::Parallel) => "DORA-P",
        (System::DataOriented, Plan::Serial) => "DORA-S",
        _ => "",
    }
}

/// A system with a plan, from one client on.
struct Run {
    system: System,
    plan: (Plan, &'static str),
    samples: Vec<Sample>,
}

/// Figure 11.
///
/// # Errors
/// A run that fails.
pub fn plans(lab: &Lab) -> Result<Figure, FigureError> {
    let window = lab.on_the_clock()?;
    let mut runs = Vec::new();
    for system in System::ALL {
        for plan in PLANS {
            let way = Way { by_calls: true, instead: vec![update_subscriber_data(plan.0)], executors: None };
            let mut loaded = Loaded::new(system, KIND, &Sizes::of(lab), &way)?;
            let mut samples = Vec::new();
            for count in client_counts(lab) {
                let sample = measure(lab, &mut loaded, Clients::blocking(count), window)?;
                say(&format!(
                    "  {}, {} plan, {count} clients: {:.0}/s",
                    system.name(),
                    plan.1,
                    sample.per_s()
                ));
                samples.push(sample);
            }
            loaded.finish()?;
            runs.push(Run { system, plan, samples });
        }
    }
    Ok(figure(lab, &runs))
}

fn figure(lab: &Lab, runs: &[Run]) -> Figure {
    let mut table = vec![row([
        "system",
        "plan",
        "the paper's",
        "clients",
        "utilization %",
        "transactions/s",
        "succeeded %",
        "against the parallel plan",
    ])];
    let mut series = Vec::new();
    for (number, Run { system, plan, samples }) in runs.iter().enumerate() {
        let parallel = runs.iter().find(|other| other.system == *system && other.plan.0 == Plan::Parallel);
        for (position, sample) in samples.iter().enumerate() {
            let base = parallel.map_or(f64::NAN, |parallel| parallel.samples[position].per_s());
            table.push(vec![
                system.name().to_owned(),
                plan.1.to_owned(),
                paper_name(*system, plan.0).to_owned(),
                sample.clients.to_string(),
                format!("{:.0}", sample.utilization()),
                format!("{:.0}", sample.per_s()),
                format!("{:.1}", sample.committed as f64 * 100.0 / sample.ran().max(1) as f64),
                format!("{:.2}", sample.per_s() / base),
            ]);
        }
        let name = match paper_name(*system, plan.0) {
            "" => format!("{}, {}", system.name(), plan.1),
            paper => format!("{}, {} ({paper})", system.name(), plan.1),
        };
        let points = samples.iter().map(|sample| (f64::from(sample.clients), sample.per_s())).collect();
        series.push(Series::new(name, Look::Measured, number, points));
    }
    let most = runs.iter().flat_map(|run| &run.samples).map(Sample::per_s).fold(0.0, f64::max);
    let panel = Panel::new("UpdateSubscriberData, of which 37.5% fail", "clients", "transactions/s", series);
    // Room for a legend of six.
    let panel = Panel { is_log: true, y_to: Some(most * 1.8), ..panel };
    let text = format!(
        "Figure 11: UpdateSubscriberData, whose two actions do not depend on each other; the one on the special facility succeeds for \
         62.5% (the specification's {}%). The parallel plan has both in one phase, the serial one the facility first and the subscriber \
         only if that succeeds. The paper: DORA-P achieves less than the Baseline, DORA-S scales; its resource manager changes to \
         serial plans where abort rates are high. The conventional engine runs a phase's actions one after the other, the subscriber \
         first in the parallel plan. All are calls of the registered flow. {RAN} {} {}\n\n{}",
        Name::SUCCESS_PERCENT[tatp::Name::UpdateSubscriberData as usize],
        System::LEGEND,
        setting(&Sizes::of(lab).describe(&[KIND]), lab.seconds.unwrap_or_default().as_secs_f64()),
        markdown(&table)
    );
    Figure { rows: table, picture: Picture::Panels(vec![panel]), text }
}

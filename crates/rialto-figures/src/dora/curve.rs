//! [`Curve`]: a workload on a system under more and more clients; [`measure_all`] measures the curves of a figure.

use std::time::Duration;

use rialto_measure::RunError;
use rialto_measure::profile::Profile;
use rialto_measure::text::say;

use super::super::Lab;
use super::super::rounds::{Rounds, in_order};
use super::System;
use super::run::{Clients, Sample, client_counts, measure};
use super::workload::{Kind, Loaded, Sizes, Way, on_each};

/// One system's points of one workload, from the fewest clients on.
#[derive(Debug)]
pub struct Curve {
    /// What ran it.
    pub system: System,
    /// What was run.
    pub kind: Kind,
    /// From the fewest clients to the most.
    pub points: Vec<Rounds<Sample>>,
}

impl Curve {
    /// The point of the highest throughput, by the medians.
    pub fn peak(&self) -> &Rounds<Sample> {
        let by_throughput = |a: &&Rounds<Sample>, b: &&Rounds<Sample>| {
            a.median(Sample::per_s).total_cmp(&b.median(Sample::per_s))
        };
        self.points.iter().max_by(by_throughput).expect("a curve has a point")
    }

    /// The point of the highest load.
    pub fn last(&self) -> &Rounds<Sample> {
        self.points.last().expect("a curve has a point")
    }
}

/// How many times `--seconds` a point is measured whose time is sampled: samples are few.
pub const PROFILED_WINDOWS: u32 = 3;

/// The median of the transactions a second.
pub fn per_s(point: &Rounds<Sample>) -> f64 {
    point.median(Sample::per_s)
}

/// The stacks sampled in all rounds.
pub fn profile(point: &Rounds<Sample>) -> Profile {
    let mut all = Profile::default();
    point.samples().iter().for_each(|sample| all.add(sample.profile.clone()));
    all
}

/// Points of a curve in the order of the load that was offered, which follows the clients unless others use the machine.
pub fn by_offered<T>(points: &[Rounds<Sample>], point: impl Fn(&Rounds<Sample>) -> T) -> Vec<(f64, T)> {
    let mut points: Vec<_> =
        points.iter().map(|rounds| (rounds.median(Sample::offered), point(rounds))).collect();
    points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    points
}

/// Measures each workload on each system, from one client to eight times the processors.
///
/// # Errors
/// A run that fails.
pub fn curves(lab: &Lab, kinds: &[Kind], profiled: bool) -> Result<Vec<Curve>, RunError> {
    let clients: Vec<Clients> = client_counts(lab)
        .into_iter()
        .map(|count| Clients { profiled, ..Clients::blocking(count) })
        .collect();
    let window = lab.on_the_clock()? * if profiled { PROFILED_WINDOWS } else { 1 };
    measure_all(lab, kinds, &clients, window)
}

/// Measures each workload on each system with each of the numbers of clients, once in each of the lab's rounds. Every
/// round loads the tables anew; every other round takes the systems in the other order.
///
/// # Errors
/// A run that fails.
pub fn measure_all(
    lab: &Lab,
    kinds: &[Kind],
    clients: &[Clients],
    window: Duration,
) -> Result<Vec<Curve>, RunError> {
    let new = |system| move |&kind: &Kind| Curve { system, kind, points: Vec::new() };
    let mut curves: Vec<Curve> =
        System::ALL.into_iter().flat_map(|system| kinds.iter().map(new(system))).collect();
    for round in 0..lab.rounds {
        for system in in_order(round, &System::ALL) {
            on_each(system, kinds, &Sizes::of(lab), &Way::default(), |loaded: &mut Loaded, kind| {
                let curve = curves.iter_mut().find(|curve| curve.system == system && curve.kind == kind);
                let curve = curve.expect("there is a curve for each system and workload");
                for (position, &clients) in clients.iter().enumerate() {
                    let sample = measure(lab, loaded, clients, window)?;
                    say(&format!(
                        "  round {}, {}, {}, {} clients: {:.0}/s at {:.0}% of the processors",
                        round + 1,
                        kind.name(),
                        system.name(),
                        sample.clients,
                        sample.per_s(),
                        sample.utilization()
                    ));
                    match curve.points.get_mut(position) {
                        Some(point) => point.add(sample),
                        None => curve.points.push(Rounds::begin(sample)),
                    }
                }
                Ok(())
            })?;
        }
    }
    Ok(curves)
}

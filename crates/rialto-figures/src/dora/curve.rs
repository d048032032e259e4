//! [`Curve`]: a workload on a system under more and more clients.

use rialto_measure::RunError;
use rialto_measure::text::say;

use super::super::Lab;
use super::System;
use super::run::{Clients, Sample, client_counts, measure};
use super::workload::{Kind, Loaded, Sizes, on_each};

/// One system's samples of one workload, from one client on.
#[derive(Debug)]
pub struct Curve {
    /// What ran it.
    pub system: System,
    /// What was run.
    pub kind: Kind,
    /// From the fewest clients to the most.
    pub samples: Vec<Sample>,
}

impl Curve {
    /// The sample of the highest throughput.
    pub fn peak(&self) -> &Sample {
        let by_throughput = |a: &&Sample, b: &&Sample| a.per_s().total_cmp(&b.per_s());
        self.samples.iter().max_by(by_throughput).expect("a curve has a sample")
    }

    /// The sample of the highest load.
    pub fn last(&self) -> &Sample {
        self.samples.last().expect("a curve has a sample")
    }
}

/// How many times `--seconds` a point is measured whose time is sampled: samples are few.
pub const PROFILED_WINDOWS: u32 = 3;

/// Points of a curve in the order of the load that was offered, which follows the clients unless others use the machine.
pub fn by_offered<T>(samples: &[Sample], point: impl Fn(&Sample) -> T) -> Vec<(f64, T)> {
    let mut points: Vec<_> = samples.iter().map(|sample| (sample.offered(), point(sample))).collect();
    points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    points
}

/// Measures each workload on each system; where time is sampled, not on the bound one: its threads wait where others run.
///
/// # Errors
/// A run that fails.
pub fn curves(lab: &Lab, kinds: &[Kind], profiled: bool) -> Result<Vec<Curve>, RunError> {
    let window = lab.on_the_clock()? * if profiled { PROFILED_WINDOWS } else { 1 };
    let mut curves = Vec::new();
    let systems: &[System] = if profiled { &System::ALL } else { &System::AND_BOUND };
    for &system in systems {
        on_each(system, kinds, &Sizes::of(lab), |loaded: &mut Loaded, kind| {
            let mut samples = Vec::new();
            for count in client_counts(lab) {
                let clients = Clients { profiled, ..Clients::blocking(count) };
                let sample = measure(lab, loaded, clients, window)?;
                say(&format!(
                    "  {}, {}, {count} clients: {:.0}/s at {:.0}% of the processors",
                    kind.name(),
                    system.name(),
                    sample.per_s(),
                    sample.utilization()
                ));
                samples.push(sample);
            }
            curves.push(Curve { system, kind, samples });
            Ok(())
        })?;
    }
    Ok(curves)
}

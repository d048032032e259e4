//! [`Curve`]: latency against offered load, up to saturation (`peers curve`).
//!
//! First each engine's peak in a closed loop, then open loops at loads that grow geometrically, up to the second in
//! succession above the peak that the engine does not keep up with: the first round finds it. Engines take turns at each load, and the loads are gone
//! through once a round, so that a spell of the machine falls on all alike. A figure is the median of its rounds.

use std::path::Path;

use rialto_measure::histogram::Percentiles;
use rialto_measure::machine::Machine;
use rialto_measure::spread::Spread;
use rialto_measure::text::{aligned, row, say, thousands, time};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::args::CurveArgs;
use crate::bank::{Open, Order};
use crate::engine::EngineName;
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::slice::{Offer, Slice, slice};

/// Each default load is so many times the one before.
const STEP: f64 = std::f64::consts::SQRT_2;
/// The highest default load that all engines begin with, unless it is near their peak.
const BEGIN_PER_S: f64 = 1_000.0;
/// An engine that commits less than this share of what is due is saturated.
const KEPT_UP: f64 = 0.95;

/// What one engine did at one load; medians.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Transactions a second that were due.
    pub offered_per_s: f64,
    /// Those that committed.
    pub committed_per_s: f64,
    /// Of all that was due, the share that was done in time.
    pub kept_up: f64,
    /// From the intended start.
    #[serde(flatten)]
    pub latency: Percentiles,
}

impl Point {
    /// Of one load's slices.
    fn of(offered_per_s: f64, slices: &[Slice]) -> Option<Point> {
        let median =
            |figure: fn(&Slice) -> f64| Spread::of(slices.iter().map(figure)).map(|spread| spread.median);
        Some(Point {
            offered_per_s,
            committed_per_s: median(|slice| slice.per_s)?,
            kept_up: median(|slice| slice.kept_up)?,
            latency: Percentiles {
                p50_us: median(|slice| slice.percentiles.p50_us)?,
                p99_us: median(|slice| slice.percentiles.p99_us)?,
                p999_us: median(|slice| slice.percentiles.p999_us)?,
                max_us: median(|slice| slice.percentiles.max_us)?,
            },
        })
    }

    /// Whether the engine did not keep up with the load.
    pub fn is_saturated(&self) -> bool {
        self.kept_up < KEPT_UP
    }
}

/// One engine's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub engine: String,
    /// How it was set.
    pub settings: String,
    /// What it reaches in a closed loop.
    pub peak_per_s: f64,
    /// By load.
    pub points: Vec<Point>,
    /// What does not add up in its bank, if anything.
    pub problem: Option<String>,
}

/// All engines'.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The bank.
    pub shape: String,
    /// What it ran on.
    pub machine: String,
    /// Clients.
    pub clients: u32,
    /// The length of a slice.
    pub seconds: f64,
    /// Slices for each figure.
    pub rounds: u32,
    /// One for each engine, Rialto's first.
    #[serde(rename = "engines")]
    pub lines: Vec<Line>,
}

/// The loads for an engine with this peak, ascending: those `given`, or default ones, which go on for ever.
fn loads<'a>(peak_per_s: f64, given: &'a [f64]) -> Box<dyn Iterator<Item = f64> + 'a> {
    if given.is_empty() {
        let at = |step: i32| three_digits(BEGIN_PER_S * STEP.powi(step));
        // A slow engine begins well below its peak, too.
        let first = (0..40).map(|step| -step).find(|step| at(*step) <= peak_per_s / 4.0).unwrap_or(-40);
        Box::new((first..).map(at))
    } else {
        Box::new(given.iter().copied())
    }
}

/// Whether an engine with this peak has had its last load: it did not keep up with the last two, given with the share that
/// it kept up with, and they were above its peak. One could be a spell of the machine.
fn is_over(peak_per_s: f64, had: &[(f64, f64)]) -> bool {
    had.len() > 1
        && had[had.len() - 2..].iter().all(|(load, kept_up)| *load >= peak_per_s && *kept_up < KEPT_UP)
}

fn three_digits(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor() - 2.0);
    (value / unit).round() * unit
}

/// Seeds that no two slices share.
fn seed(round: u32, step: usize) -> u64 {
    (u64::from(round) << 32) | ((step as u64) << 8) | 1
}

impl Curve {
    /// Loads a bank into each engine, runs all slices, and checks all banks.
    ///
    /// # Errors
    /// If an engine fails. A bank that does not add up is a result.
    pub fn measure(args: &CurveArgs, directory: &Path) -> Result<Curve> {
        let (common, guarantee) = (&args.common, Guarantee::Machine);
        let mut open = Vec::new();
        for name in common.engines() {
            let own = directory.join(name.name());
            Open::load(common, guarantee, name, &own)?;
            open.push(Open::measured(common, guarantee, name, &own)?);
        }
        let mut order = Order::new(open.len());
        let run = |open: &mut Open, rate: Option<f64>, seed: u64| {
            let offer = Offer { clients: args.clients, rate, time: args.seconds, seed };
            let slice = slice(&*open.engine, offer)?;
            open.committed += slice.committed;
            let Percentiles { p50_us, p99_us, p999_us, .. } = slice.percentiles;
            let [p50, p99, p999] = [p50_us, p99_us, p999_us].map(time);
            let load = rate.map_or("closed loop".to_owned(), |rate| format!("{} offered", thousands(rate)));
            let (name, per_s) = (open.name.name(), thousands(slice.per_s));
            say(&format!("  {name}, {load}: {per_s} transactions/s, p50 {p50}, p99 {p99}, p99.9 {p999}"));
            Ok::<Slice, PeerError>(slice)
        };
        let mut peaks = vec![Vec::new(); open.len()];
        for round in 0..args.rounds {
            for &place in order.round() {
                peaks[place].push(run(&mut open[place], None, seed(round, 0))?.per_s);
            }
        }
        let peaks: Vec<f64> =
            peaks.into_iter().map(|peaks| Spread::of(peaks).map_or(0.0, |spread| spread.median)).collect();
        let given = args.loads();
        let mut coming: Vec<_> = peaks.iter().map(|peak| loads(*peak, &given)).collect();
        // By engine, and by load.
        let mut slices: Vec<Vec<(f64, Vec<Slice>)>> = vec![Vec::new(); open.len()];
        for step in 1.. {
            let before = slices.iter().map(Vec::len).sum::<usize>();
            for &place in order.round() {
                let had = slices[place].iter().map(|(load, slices)| (*load, slices[0].kept_up));
                let is_over = is_over(peaks[place], &had.collect::<Vec<_>>());
                if let (false, Some(load)) = (is_over, coming[place].next()) {
                    let slice = run(&mut open[place], Some(load), seed(0, step))?;
                    slices[place].push((load, vec![slice]));
                }
            }
            if slices.iter().map(Vec::len).sum::<usize>() == before {
                break;
            }
        }
        let steps = slices.iter().map(Vec::len).max().unwrap_or(0);
        let all = slices.iter().map(Vec::len).sum::<usize>() as f64;
        for round in 1..args.rounds {
            let minutes = all * args.seconds.as_secs_f64() * 1.1 * f64::from(args.rounds - round) / 60.0;
            say(&format!("round {} of {}; {minutes:.1} minutes to go", round + 1, args.rounds));
            for step in 0..steps {
                for &place in order.round() {
                    if let Some((load, slices)) = slices[place].get_mut(step) {
                        slices.push(run(&mut open[place], Some(*load), seed(round, step + 1))?);
                    }
                }
            }
        }
        let mut lines = Vec::new();
        for (place, open) in open.into_iter().enumerate() {
            let name = open.name;
            let bank = open.finish(common, &directory.join(name.name()))?;
            lines.push(Line {
                engine: name.name().to_owned(),
                settings: name.settings(guarantee).to_owned(),
                peak_per_s: peaks[place],
                points: slices[place].iter().filter_map(|(load, slices)| Point::of(*load, slices)).collect(),
                problem: bank.problem,
            });
        }
        Ok(Curve {
            shape: common.shape()?.to_string(),
            machine: Machine::here().to_string(),
            clients: args.clients,
            seconds: args.seconds.as_secs_f64(),
            rounds: args.rounds,
            lines,
        })
    }

    /// Whether all banks add up.
    pub fn consistent(&self) -> bool {
        self.lines.iter().all(|line| line.problem.is_none())
    }

    /// Rialto and the peer with the highest peak, of those that are there.
    pub fn best(&self) -> Vec<&Line> {
        let (own, peers): (Vec<&Line>, Vec<&Line>) =
            self.lines.iter().partition(|line| line.engine == EngineName::Rialto.name());
        let best = peers.into_iter().max_by(|one, other| one.peak_per_s.total_cmp(&other.peak_per_s));
        own.into_iter().chain(best).collect()
    }

    /// For people.
    pub fn table(&self) -> String {
        let Curve { shape, machine, clients, seconds, rounds, lines } = self;
        let mut text = format!(
            "TPC-B, {shape}; durable: an answered commit is on disk\n{machine}\n{clients} clients in an open loop, each a \
             thread that sleeps until a transaction is due; latency from the intended start\n{rounds} rounds of {seconds} \
             s, engines alternating; medians\n"
        );
        for line in lines {
            let mut rows = vec![row(["offered/s", "committed/s", "p50", "p99", "p99.9", "max", ""])];
            for point in &line.points {
                let Percentiles { p50_us, p99_us, p999_us, max_us } = point.latency;
                let [p50, p99, p999, max] = [p50_us, p99_us, p999_us, max_us].map(time);
                let (offered, committed) = (thousands(point.offered_per_s), thousands(point.committed_per_s));
                let saturated = if point.is_saturated() { "saturated" } else { "" };
                rows.push(row([&offered, &committed, &p50, &p99, &p999, &max, saturated]));
            }
            let (engine, peak) = (&line.engine, thousands(line.peak_per_s));
            text.push_str(&format!(
                "\n== {engine}: {peak} transactions/s in a closed loop\n\n{}",
                aligned(&rows)
            ));
            if let Some(problem) = &line.problem {
                text.push_str(&format!("  INCONSISTENT: {problem}\n"));
            }
        }
        text
    }

    /// For programs; a curve is read back from it.
    ///
    /// # Panics
    /// Never: all names are texts.
    pub fn json(&self) -> Json {
        let mut json = serde_json::to_value(self).expect("its names are texts");
        json["workload"] = "tpcb".into();
        json["consistent"] = self.consistent().into();
        json
    }
}

#[cfg(test)]
pub mod tests {
    use rialto_measure::json;

    use super::*;

    /// An engine that keeps up to its peak.
    pub fn line(engine: EngineName, peak_per_s: f64) -> Line {
        let point = |offered_per_s: f64| {
            let p50_us = if offered_per_s < peak_per_s { 100.0 } else { 1e6 };
            let latency =
                Percentiles { p50_us, p99_us: p50_us * 3.0, p999_us: p50_us * 9.0, max_us: p50_us * 20.0 };
            let committed_per_s = offered_per_s.min(peak_per_s);
            // A part of the thousandths that are printed.
            let kept_up = (committed_per_s / offered_per_s * 1e3).round() / 1e3;
            Point { offered_per_s, committed_per_s, kept_up, latency }
        };
        Line {
            engine: engine.name().to_owned(),
            settings: "all default".to_owned(),
            peak_per_s,
            points: loads(peak_per_s, &[]).take_while(|load| *load < peak_per_s * 2.0).map(point).collect(),
            problem: None,
        }
    }

    pub fn curve() -> Curve {
        Curve {
            shape: "10 branches".to_owned(),
            machine: "a machine".to_owned(),
            clients: 32,
            seconds: 5.0,
            rounds: 3,
            lines: vec![
                line(EngineName::Rialto, 108_000.0),
                line(EngineName::Redb, 2_000.0),
                line(EngineName::Sqlite, 7_000.0),
            ],
        }
    }

    #[test]
    fn loads_grow_by_steps_and_end_above_the_peak_where_the_engine_does_not_keep_up() {
        let default: Vec<f64> = loads(7_000.0, &[]).take(8).collect();
        assert_eq!(default, [1_000.0, 1_410.0, 2_000.0, 2_830.0, 4_000.0, 5_660.0, 8_000.0, 11_300.0]);
        // A slow engine begins lower, so that there is something to see.
        let slow: Vec<f64> = loads(200.0, &[]).take(2).collect();
        assert_eq!(slow, [44.2, 62.5]);
        assert_eq!(loads(7_000.0, &[500.0, 9_000.0]).collect::<Vec<_>>(), [500.0, 9_000.0]);
        // A stall below the peak ends nothing, nor does an engine that does better than in its closed loop.
        assert!(!is_over(7_000.0, &[]) && !is_over(7_000.0, &[(8_000.0, 0.9)]));
        assert!(!is_over(7_000.0, &[(5_000.0, 0.2), (8_000.0, 0.9)]));
        assert!(!is_over(7_000.0, &[(8_000.0, 0.9), (11_300.0, 0.99)]));
        assert!(is_over(7_000.0, &[(5_000.0, 0.99), (8_000.0, 0.9), (11_300.0, 0.7)]));
    }

    #[test]
    fn figures_are_medians_and_saturation_is_told() {
        let slice = |per_s, p50_us| {
            let percentiles = Percentiles { p50_us, p99_us: 2.0, p999_us: 3.0, max_us: 4.0 };
            Slice { per_s, kept_up: per_s / 100.0, percentiles, committed: 1 }
        };
        let point = Point::of(100.0, &[slice(99.0, 7.0), slice(10.0, 900.0), slice(98.0, 8.0)]).unwrap();
        assert_eq!((point.committed_per_s, point.latency.p50_us), (98.0, 8.0));
        assert!(!point.is_saturated());
        assert!(Point { kept_up: 0.94, ..point }.is_saturated());
        assert_eq!(Point::of(100.0, &[]), None);
    }

    #[test]
    fn the_best_peer_is_the_one_with_the_highest_peak() {
        let curve = curve();
        let names: Vec<&str> = curve.best().into_iter().map(|line| line.engine.as_str()).collect();
        assert_eq!(names, ["rialto", "sqlite"]);
    }

    #[test]
    fn what_is_printed_is_read_back_and_a_problem_is_shown() {
        let mut curve = curve();
        curve.lines[1].problem = Some("accounts has 9 rows".to_owned());
        assert_eq!(serde_json::from_str::<Curve>(&json::line(&curve.json())).unwrap(), curve);
        assert!(!curve.consistent());
        let table = curve.table();
        assert!(table.contains("INCONSISTENT: accounts has 9 rows"), "{table}");
        assert!(
            table.contains("== rialto: 108,000 transactions/s") && table.contains("saturated"),
            "{table}"
        );
        let problem = serde_json::from_str::<Curve>("{\"shape\": \"s\"}").unwrap_err().to_string();
        assert!(problem.contains("`machine`"), "{problem}");
    }
}

//! A run against another, as pairs that take turns, and the ratio with its interval.
//!
//! Machines drift, so two runs one after the other compare two moments as much as two programs. Here each pair is two
//! runs next to each other, every other pair in the other order, each run a process of its own; what is reported is the
//! median of the pairs' ratios, with an interval that needs no assumption about how they are spread ([`interval`](crate::interval)).

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use crate::error::RunError;
use crate::interrupt;
use crate::interval::Interval;
use crate::json::number;
use crate::report::{write_json, write_part};
use crate::text::say;

/// Pairs, unless it is said otherwise: the fewest whose extremes are a 95% interval.
pub const PAIRS: u32 = 6;

/// What is compared: its place in the result, what it is, and its unit.
const COMPARED: [(&str, &str); 4] = [
    ("committed_per_s", "transactions/s"),
    ("latency_us.p50", "p50"),
    ("latency_us.p99", "p99"),
    ("instructions_per_txn.user", "user instructions"),
];

/// One side of the comparison.
#[derive(Debug)]
pub struct Side {
    /// This or other.
    pub name: &'static str,
    /// The program, a build of `rialto`.
    pub program: PathBuf,
    /// What it is called with, behind `bench`: a run whose last line is its result.
    pub arguments: Vec<String>,
    results: Vec<Json>,
}

impl Side {
    /// One that has not run yet.
    pub fn new(name: &'static str, program: PathBuf, arguments: Vec<String>) -> Side {
        Side { name, program, arguments, results: Vec::new() }
    }

    /// Runs once and keeps the result.
    fn run(&mut self) -> Result<(), RunError> {
        interrupt::check()?;
        let failed = |code: Option<i32>, text: String| {
            let code = code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0).unwrap_or(4);
            RunError::Versus { side: self.name, text, code }
        };
        let output = Command::new(&self.program)
            .arg("bench")
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| {
                failed(Some(2), format!("{} does not start: {error}", self.program.display()))
            })?;
        // From a terminal that run has heard of it, too.
        interrupt::check()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().rev().find(|line| line.contains("error")).unwrap_or("it said nothing");
            let text = format!("rialto bench {} failed: {said}", self.arguments.join(" "));
            return Err(failed(output.status.code(), text));
        }
        let line = text.lines().last().unwrap_or_default();
        self.results.push(
            serde_json::from_str(line).map_err(|problem| failed(None, format!("its result: {problem}")))?,
        );
        Ok(())
    }

    fn figure(&self, run: usize, path: &str) -> Option<f64> {
        number(&self.results[run], path).filter(|figure| *figure > 0.0)
    }

    fn median(&self, path: &str) -> Option<f64> {
        let figures = (0..self.results.len()).filter_map(|run| self.figure(run, path));
        crate::calibrate::quantile(figures, 0.5)
    }

    /// Noisy slices of all its windows, and all of them.
    fn noisy(&self) -> (f64, f64) {
        let sum = |path| self.results.iter().filter_map(|run| number(run, path)).sum();
        (sum("calibration.noisy"), sum("calibration.slices"))
    }

    /// What its checkpoints came to, if there were any.
    fn sweeps(&self) -> Option<String> {
        let sum = |path| self.results.iter().filter_map(|run| number(run, path)).sum::<f64>();
        let cpu_ms_per_gb = self.median("sweep_cpu_ms_per_gb")?;
        let (checkpoints, bytes) = (sum("checkpoints"), sum("sweep_copied_bytes"));
        let gb = bytes / 1e9;
        Some(format!(
            "{checkpoints} checkpoints, {gb:.1} GB copied, {cpu_ms_per_gb:.0} core-ms a GB (the median run)"
        ))
    }

    fn json(&self) -> Json {
        let medians = COMPARED.map(|(path, _)| (path.to_owned(), self.median(path).into()));
        let (noisy, slices) = self.noisy();
        json!({
            "program": self.program.display().to_string().as_str(),
            "arguments": self.arguments.join(" ").as_str(),
            "median": Json::Object(medians.into_iter().collect()),
            "sweep_cpu_ms_per_gb": self.median("sweep_cpu_ms_per_gb"),
            "slices": slices,
            "noisy": noisy,
        })
    }
}

/// The ratio of this side to the other in each pair, if both have the figure.
fn ratios(this: &Side, other: &Side, path: &str) -> Option<Vec<f64>> {
    (0..this.results.len()).map(|run| Some(this.figure(run, path)? / other.figure(run, path)?)).collect()
}

/// Runs so many pairs of a workload and writes the ratios to `out`, as a JSON object, too, if that is asked for.
///
/// # Errors
/// A side that fails.
pub fn compare(
    [mut this, mut other]: [Side; 2],
    workload: &str,
    pairs: u32,
    wants_json: bool,
    out: &mut dyn Write,
) -> Result<(), RunError> {
    say(&format!("this:  {} bench {}", this.program.display(), this.arguments.join(" ")));
    say(&format!("other: {} bench {}", other.program.display(), other.arguments.join(" ")));
    for pair in 0..pairs {
        // Every other pair in the other order, so that a drift helps neither.
        if pair % 2 == 0 {
            this.run()?;
            other.run()?;
        } else {
            other.run()?;
            this.run()?;
        }
        let [ours, theirs] = [&this, &other].map(|side| side.figure(pair as usize, COMPARED[0].0));
        let (ours, theirs) = (ours.unwrap_or(0.0), theirs.unwrap_or(0.0));
        say(&format!(
            "  pair {} of {pairs}: {ours:.0} and {theirs:.0} transactions/s, ratio {:.3}",
            pair + 1,
            ours / theirs
        ));
    }
    let mut text = format!("{pairs} pairs, this over other\n\n");
    let mut members = serde_json::Map::new();
    for (path, name) in COMPARED {
        let found = ratios(&this, &other, path).and_then(|ratios| Interval::of_median(&ratios));
        let Some(interval) = found else {
            members.insert(path.to_owned(), Json::Null);
            continue;
        };
        let median = |side: &Side| side.median(path).unwrap_or(f64::NAN);
        text += &format!(
            "  {name:18}  {interval}  ({:+.1}%; medians {:.1} and {:.1})\n",
            (interval.median - 1.0) * 100.0,
            median(&this),
            median(&other)
        );
        members.insert(path.to_owned(), interval.json());
    }
    for side in [&this, &other] {
        if let Some(sweeps) = side.sweeps() {
            text += &format!("  {:18}  {sweeps}\n", format!("sweeps, {}", side.name));
        }
        let (noisy, slices) = side.noisy();
        text += &format!("  {:18}  {noisy} of {slices} slices noisy\n", format!("spells, {}", side.name));
    }
    let json = wants_json.then(|| {
        json!({
            "workload": workload,
            "pairs": u64::from(pairs),
            "this": this.json(),
            "other": other.json(),
            "ratio": Json::Object(members),
        })
    });
    write_part(out, text)?;
    write_json(out, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_runs_that_were_next_to_each_other() {
        let side = |figures: &[f64]| Side {
            name: "this",
            program: PathBuf::new(),
            arguments: Vec::new(),
            results: figures.iter().map(|figure| json!({ "committed_per_s": (*figure) })).collect(),
        };
        let (this, other) = (side(&[10.0, 40.0]), side(&[5.0, 10.0]));
        assert_eq!(ratios(&this, &other, "committed_per_s"), Some(vec![2.0, 4.0]));
        assert_eq!(ratios(&this, &other, "latency_us.p50"), None);
    }
}

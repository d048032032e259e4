//! `--versus`: this run against another, as pairs that take turns, and the ratio with its interval.
//!
//! Machines drift, so two runs one after the other compare two moments as much as two programs. Here each pair is two
//! runs next to each other, every other pair in the other order, each run a process of its own; what is reported is the
//! median of the pairs' ratios, with an interval that needs no assumption about how they are spread ([`interval`]).

mod command;
mod interval;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub use self::command::with_options;
pub use self::interval::Interval;
use crate::args::BenchArgs;
use crate::error::BenchError;
use crate::interrupt;
use crate::json::Json;
use crate::report::{write_json, write_part};
use crate::session::say;

/// Pairs, unless `--repeat` says otherwise: the fewest whose extremes are a 95% interval.
const PAIRS: u32 = 6;

/// What is compared: its place in the result, what it is, and its unit.
const COMPARED: [(&str, &str); 4] = [
    ("committed_per_s", "transactions/s"),
    ("latency_us.p50", "p50"),
    ("latency_us.p99", "p99"),
    ("instructions_per_txn.user", "user instructions"),
];

/// One side of the comparison.
#[derive(Debug)]
struct Side {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    results: Vec<Json>,
}

impl Side {
    /// Runs once and keeps the result.
    fn run(&mut self) -> Result<(), BenchError> {
        interrupt::check()?;
        let failed = |code: Option<i32>, text: String| {
            let code = code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0).unwrap_or(4);
            BenchError::Versus { side: self.name, text, code }
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
        self.results
            .push(Json::parse(line).map_err(|problem| failed(None, format!("its result: {problem}")))?);
        Ok(())
    }

    fn figure(&self, run: usize, path: &str) -> Option<f64> {
        self.results[run].at(path).and_then(Json::number).filter(|figure| *figure > 0.0)
    }

    fn median(&self, path: &str) -> Option<f64> {
        let figures = (0..self.results.len()).filter_map(|run| self.figure(run, path));
        crate::calibrate::quantile(figures, 0.5)
    }

    /// Noisy slices of all its windows, and all of them.
    fn noisy(&self) -> (f64, f64) {
        let sum = |path| self.results.iter().filter_map(|run| run.at(path).and_then(Json::number)).sum();
        (sum("calibration.noisy"), sum("calibration.slices"))
    }

    /// What its checkpoints came to, if there were any.
    fn sweeps(&self) -> Option<String> {
        let sum =
            |path| self.results.iter().filter_map(|run| run.at(path).and_then(Json::number)).sum::<f64>();
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
        Json::object([
            ("program", self.program.display().to_string().as_str().into()),
            ("arguments", self.arguments.join(" ").as_str().into()),
            ("median", Json::Object(medians.into())),
            ("sweep_cpu_ms_per_gb", self.median("sweep_cpu_ms_per_gb").into()),
            ("slices", slices.into()),
            ("noisy", noisy.into()),
        ])
    }
}

/// The ratio of this side to the other in each pair, if both have the figure.
fn ratios(this: &Side, other: &Side, path: &str) -> Option<Vec<f64>> {
    (0..this.results.len()).map(|run| Some(this.figure(run, path)? / other.figure(run, path)?)).collect()
}

/// Runs the pairs and writes the ratios to `out`. `line` is the command line behind `bench`.
///
/// # Errors
/// A side that is refused or fails.
pub fn run(args: &BenchArgs, line: &[String], out: &mut dyn Write) -> Result<(), BenchError> {
    let [mut this, mut other] = sides(args, line)?;
    let pairs = if args.repeat > 1 { args.repeat } else { PAIRS };
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
    let mut members = Vec::new();
    for (path, name) in COMPARED {
        let found = ratios(&this, &other, path).and_then(|ratios| Interval::of_median(&ratios));
        let Some(interval) = found else {
            members.push((path.to_owned(), Json::Null));
            continue;
        };
        let median = |side: &Side| side.median(path).unwrap_or(f64::NAN);
        text += &format!(
            "  {name:18}  {interval}  ({:+.1}%; medians {:.1} and {:.1})\n",
            (interval.median - 1.0) * 100.0,
            median(&this),
            median(&other)
        );
        members.push((path.to_owned(), interval.json()));
    }
    for side in [&this, &other] {
        if let Some(sweeps) = side.sweeps() {
            text += &format!("  {:18}  {sweeps}\n", format!("sweeps, {}", side.name));
        }
        let (noisy, slices) = side.noisy();
        text += &format!("  {:18}  {noisy} of {slices} slices noisy\n", format!("spells, {}", side.name));
    }
    let json = args.json.then(|| {
        Json::object([
            ("workload", args.workload.name().into()),
            ("pairs", u64::from(pairs).into()),
            ("this", this.json()),
            ("other", other.json()),
            ("ratio", Json::Object(members)),
        ])
    });
    write_part(out, text)?;
    write_json(out, json)
}

fn sides(args: &BenchArgs, line: &[String]) -> Result<[Side; 2], BenchError> {
    let here = std::env::current_exe()
        .map_err(|cause| BenchError::Io { during: "looking for this program", cause })?;
    let usage = |text: String| BenchError::Usage(format!("--versus: {text}"));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // One run each, with its result as JSON; `--repeat` is how many pairs there are.
    let single = words("--repeat 1 --json");
    let base = command::without(line, &["versus", "versus-binary"]).map_err(usage)?;
    let mut ours = with_options(&base, &single).map_err(usage)?;
    let changes = words(args.versus.as_deref().unwrap_or_default());
    let changed = with_options(&ours, &changes).map_err(usage)?;
    let mut theirs = with_options(&changed, &single).map_err(usage)?;
    let (this_args, other_args) =
        (BenchArgs::read(&ours).map_err(usage)?, BenchArgs::read(&theirs).map_err(usage)?);
    other_args.check()?;
    if other_args.versus.is_some() || other_args.versus_binary.is_some() {
        return Err(usage("the other run cannot be a comparison itself".to_owned()));
    }
    let says_data = command::names(&changes).map_err(usage)?.iter().any(|name| name == "data");
    if let Some(directory) = other_args.directory()
        && !says_data
    {
        // Directories of their own: what one run leaves behind is no burden of the other's.
        let own = this_args.directory().unwrap_or_else(|| directory.clone());
        theirs = with_options(&theirs, &["--data".to_owned(), format!("{}-versus", own.display())])
            .map_err(usage)?;
    }
    if let Some(directory) = this_args.directory() {
        ours = with_options(&ours, &["--data".to_owned(), directory.display().to_string()]).map_err(usage)?;
    }
    let side = |name, program, arguments| Side { name, program, arguments, results: Vec::new() };
    let program = args.versus_binary.clone().unwrap_or_else(|| here.clone());
    Ok([side("this", here, ours), side("other", program, theirs)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn sides_of(text: &str, versus: &str) -> Result<[Side; 2], BenchError> {
        let mut line = line(text);
        let mut args = BenchArgs::read(&line).unwrap();
        args.versus = Some(versus.to_owned());
        line.extend(["--versus".to_owned(), versus.to_owned()]);
        sides(&args, &line)
    }

    #[test]
    fn the_other_side_is_this_one_with_changes_in_a_directory_of_its_own() {
        let [this, other] = sides_of("tpcb --clients 8 --seconds 1 --data /d", "--clients 1").unwrap();
        assert_eq!(this.arguments, line("tpcb --clients 8 --seconds 1 --repeat 1 --json --data /d"));
        assert_eq!(other.arguments, line("tpcb --seconds 1 --clients 1 --repeat 1 --json --data /d-versus"));
        let [_, other] = sides_of("tpcb --disk memory", "--seconds=2").unwrap();
        assert_eq!(other.arguments, line("tpcb --disk memory --seconds=2 --repeat 1 --json"));
        let [_, other] = sides_of("card --disk memory", "--mix BAL=50,PAY=50").unwrap();
        assert_eq!(other.arguments, line("card --disk memory --mix BAL=50,PAY=50 --repeat 1 --json"));
        let [_, other] = sides_of("tpcb", "--data /e").unwrap();
        assert_eq!(other.arguments, line("tpcb --data /e --repeat 1 --json"));
    }

    #[test]
    fn a_side_that_makes_no_sense_is_refused() {
        for (versus, named) in
            [("--clients many", "many"), ("--nonsense 1", "--nonsense"), ("--mix BAL=100", "--mix")]
        {
            let refusal = sides_of("tpcb", versus).unwrap_err();
            assert!(refusal.to_string().contains(named) && refusal.exit_code() == 2, "{versus}: {refusal}");
        }
    }

    #[test]
    fn ratios_are_of_runs_that_were_next_to_each_other() {
        let side = |figures: &[f64]| Side {
            name: "this",
            program: PathBuf::new(),
            arguments: Vec::new(),
            results: figures
                .iter()
                .map(|figure| Json::object([("committed_per_s", (*figure).into())]))
                .collect(),
        };
        let (this, other) = (side(&[10.0, 40.0]), side(&[5.0, 10.0]));
        assert_eq!(ratios(&this, &other, "committed_per_s"), Some(vec![2.0, 4.0]));
        assert_eq!(ratios(&this, &other, "latency_us.p50"), None);
    }
}

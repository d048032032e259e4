//! The workload `commit`: bare commit sequences, on a disk or in virtual time.

use std::io::Write;
use std::time::Duration;

use rialto::GroupCommitOptions;
use rialto::log::virtual_time::{Load as SimulatedLoad, Regime, simulate};
use rialto_figures::commit::real::{Run, window};
use rialto_figures::commit::sequences::Sequences;
use rialto_figures::commit::{About, PACKET_BYTES, Verdict, Window, describe};
use rialto_measure::RunError;
use rialto_measure::calibrate::Calibrator;
use rialto_measure::counters::Counters;
use rialto_measure::driver::Load;
use rialto_measure::limits::{self, Beside};
use rialto_measure::machine::Machine;
use rialto_measure::report::{median, write_json, write_part};
use rialto_measure::text::{say, seconds, thousands};

use super::args::{BenchArgs, DiskName};
use super::session::{PROBE_MAX, PROBE_MIN, Scratch, WARMUP_MIN, absolute};

/// The most commits that are simulated where --seconds does not ask for more.
const COMMITS_MAX: u64 = 200_000;
/// Commits of the run that tells how many there are in a second, for each outstanding one.
const PILOT: u64 = 6;

/// Runs what the command line says and writes the result to `out`. Returns whether the log was consistent at the end.
///
/// # Errors
/// [`RunError`], each with its exit code.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool, RunError> {
    let (about, windows, verdict) = match args.regime() {
        Some(regime) => run_in_virtual_time(args, regime),
        None => run_on_disk(args)?,
    };
    let (window, line) = median(windows, Window::per_s, "commits").expect("at least one window");
    write_part(out, window.table(&about, &verdict) + &line)?;
    write_json(out, args.json.then(|| window.json(&about, verdict.consistent)))?;
    Ok(verdict.consistent)
}

/// Runs on a disk.
fn run_on_disk(args: &BenchArgs) -> Result<(About, Vec<Window>, Verdict), RunError> {
    let counters = Counters::open();
    let directory = args.directory();
    let own = directory.as_ref().map(|path| path.join(format!("commit-{}", std::process::id())));
    let home = Scratch::open(args, own)?;
    let scratch = Scratch::beside(args)?;
    if matches!(args.disk, DiskName::Simulated(_)) {
        say(&format!("simulated disk: {}", home.disk.describe()));
    }
    let device = (args.disk == DiskName::File).then_some(&*scratch.disk);
    let mut calibrator = Calibrator::new(device).map_err(RunError::Directory)?;
    let data = directory.map(|path| absolute(&path));
    let failed = |during| move |cause| RunError::Transaction { during, cause };
    let run = Run::begin(home.disk.clone(), &args.log_options(), args.clients, args.in_flight)
        .map_err(failed("making the log"))?;
    let about = About {
        clients: args.clients,
        in_flight: args.in_flight,
        seed: args.seed,
        group_commit: args.database.group_commit.options(),
        data,
        disk: home.disk.describe(),
        machine: Some(Machine::here()),
        regime: None,
        write_path: Some(run.sequences().log().write_path()),
        uncounted: counters.missing_because().map(str::to_owned),
        windows: args.repeat,
    };
    let measure = |sequences: &Sequences| {
        (0..args.repeat)
            .map(|number| {
                if args.repeat > 1 {
                    say(&format!("window {} of {}", number + 1, args.repeat));
                }
                let load = Load {
                    clients: args.clients,
                    in_flight: args.in_flight as usize,
                    rate: None,
                    warmup: args.warmup.max(WARMUP_MIN),
                    window: args.seconds,
                    seed: args.seed.wrapping_add(u64::from(number) << 32),
                };
                say(&format!("running {} after {} of warm-up", seconds(load.window), seconds(load.warmup)));
                let mut window = window(sequences, &load, &counters, &mut calibrator)?;
                if args.limits {
                    let time = (args.seconds / 2).clamp(PROBE_MIN, PROBE_MAX);
                    say(&format!("measuring what bare code reaches, {} each", seconds(time)));
                    let beside = Beside {
                        clients: args.clients,
                        in_flight: args.in_flight,
                        waits_for_disk: true,
                        log_writes: sequences.log().write_path().caching,
                        log_bytes: window.log_bytes_per_commit().unwrap_or(PACKET_BYTES as f64),
                        bank: None,
                        pages: None,
                        time,
                    };
                    let limits = limits::measure(&*scratch.disk, &beside)
                        .map_err(|problem| RunError::Directory(format!("measuring limits: {problem}")))?;
                    window.limits = Some(limits);
                }
                Ok(window)
            })
            .collect::<Result<Vec<Window>, RunError>>()
    };
    let (windows, oldest) = run.while_freeing(measure).map_err(failed("freeing the log"))?;
    let windows = windows?;
    say("reading the log back");
    let verdict = run.verify(oldest).map_err(failed("closing the log"))?;
    Ok((about, windows, verdict))
}

/// How many commits take this long.
fn commits_in(time: Duration, per_s: f64) -> u64 {
    (time.as_secs_f64() * per_s).ceil().max(1.0) as u64
}

/// Runs in virtual time.
fn run_in_virtual_time(args: &BenchArgs, regime: &'static Regime) -> (About, Vec<Window>, Verdict) {
    say(&format!("virtual time, on {}", describe(regime)));
    let options: GroupCommitOptions = args.database.group_commit.options();
    let outstanding = args.outstanding() as u64;
    let load = |commits, warmup_commits, seed| SimulatedLoad {
        clients: args.clients,
        in_flight: args.in_flight,
        warmup_commits,
        commits,
        seed,
        patience: &[],
        polls: None,
    };
    let pilot =
        simulate(regime, &options, &load((PILOT * outstanding).max(60), PILOT * outstanding, args.seed));
    let per_s = pilot.per_second();
    let most = if args.is_given("seconds") { u64::MAX } else { COMMITS_MAX };
    let (warmup, commits) = (commits_in(args.warmup, per_s), commits_in(args.seconds, per_s));
    let (warmup, commits) = (warmup.min(most / 5), commits.min(most));
    say(&format!(
        "running {} commits after {} of warm-up: about {:.3} s of virtual time",
        thousands(commits as f64),
        thousands(warmup as f64),
        commits as f64 / per_s
    ));
    let windows = (0..args.repeat)
        .map(|number| {
            let seed = args.seed.wrapping_add(u64::from(number) << 32);
            Window::of_outcome(&simulate(regime, &options, &load(commits, warmup, seed)), regime)
        })
        .collect();
    let about = About {
        clients: args.clients,
        in_flight: args.in_flight,
        seed: args.seed,
        group_commit: options,
        data: None,
        disk: describe(regime),
        machine: None,
        regime: Some(regime),
        write_path: None,
        uncounted: Some("it runs in virtual time".to_owned()),
        windows: args.repeat,
    };
    // A commit is answered by the code that is answered on a disk, and a lost wake-up ends the run; no byte is written.
    let text = "every commit was answered by the durable position; there is no log to read back".to_owned();
    (about, windows, Verdict { consistent: true, text })
}

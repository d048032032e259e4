//! Real-time priority, by the program `chrt`, as the paper's `rtprio`.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// The paper's priority, "higher than that of most processes".
const PRIORITY: &str = "10";

/// Why this process may not start others with real-time priority, if so.
pub fn refusal() -> Option<String> {
    let tried = with_real_time("true").stdin(Stdio::null()).output();
    match tried {
        Err(error) => Some(format!("the program chrt (Debian: util-linux) does not run: {error}")),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "SCHED_RR is not allowed (it needs CAP_SYS_NICE): {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// The time in which the kernel lets real-time threads run, and the period of which it is a part, in microseconds; the first is
/// negative if there is no bound.
fn bound() -> Option<(i64, i64)> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/sched_rt_{name}_us")).ok()?;
        text.trim().parse::<i64>().ok()
    };
    Some((read("runtime")?, read("period")?))
}

/// What the kernel takes from real-time threads, in words; none if it takes nothing.
pub fn stops() -> Option<String> {
    bound().and_then(stops_of)
}

fn stops_of((runtime, period): (i64, i64)) -> Option<String> {
    (0..period).contains(&runtime).then(|| {
        format!(
            "the kernel stops real-time threads that use up a core for {} ms in each {} ms (sched_rt_runtime_us {runtime} of {period}): \
             throughput is as much lower, and transactions that meet a stop are as much later",
            (period - runtime) / 1_000,
            period / 1_000
        )
    })
}

/// Refuses so many real-time threads that would leave no core to the rest of the machine.
///
/// # Errors
/// In words, naming the options of the command line.
pub fn check(threads: u32, cores: usize) -> Result<(), String> {
    check_with(bound(), threads, cores)
}

fn check_with(bound: Option<(i64, i64)>, threads: u32, cores: usize) -> Result<(), String> {
    if bound.is_some_and(|(runtime, _)| runtime < 0) && threads as usize >= cores {
        return Err(format!(
            "--real-time: {threads} clients (--nodes times --clients) on {cores} cores, and the kernel does not bound real-time \
             threads (sched_rt_runtime_us is -1): the machine would stand still. Give fewer clients, or set the kernel's bound"
        ));
    }
    Ok(())
}

/// A command that runs a program with real-time priority, under the same process number. Threads of the program inherit it.
pub fn with_real_time(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("chrt");
    command.args(["--rr", PRIORITY]).arg(program);
    command
}

/// Gives the calling thread real-time priority, and those that it starts from now on.
///
/// # Errors
/// In words: as [`refusal`].
pub fn raise_this_thread() -> Result<(), String> {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let output =
        Command::new("chrt").args(["--rr", "--pid", PRIORITY, &thread]).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| format!("the program chrt (Debian: util-linux) does not run: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_takes_is_told_and_a_machine_without_a_bound_keeps_a_core() {
        let told = stops_of((950_000, 1_000_000)).unwrap();
        assert!(told.contains("50 ms in each 1000 ms"), "{told}");
        assert_eq!(stops_of((-1, 1_000_000)), None);
        assert_eq!(stops_of((1_000_000, 1_000_000)), None);
        assert_eq!(check_with(Some((950_000, 1_000_000)), 16, 2), Ok(()));
        assert_eq!(check_with(Some((-1, 1_000_000)), 1, 2), Ok(()));
        let refused = check_with(Some((-1, 1_000_000)), 2, 2).unwrap_err();
        assert!(refused.contains("--real-time"), "{refused}");
    }

    #[test]
    fn a_program_runs_with_real_time_priority_where_that_is_allowed() {
        if let Some(why) = refusal() {
            return println!("skipped: {why}");
        }
        // The 41st field is the policy: 2 is SCHED_RR.
        let output = with_real_time("cut").args(["-d", " ", "-f", "41", "/proc/self/stat"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2");
    }

    #[test]
    fn a_thread_passes_its_priority_on_to_those_that_it_starts() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let behind_the_name = stat.rsplit_once(')').unwrap().1;
            behind_the_name.split_ascii_whitespace().nth(38).unwrap().to_owned()
        };
        std::thread::spawn(move || {
            if raise_this_thread().is_ok() {
                assert_eq!(std::thread::spawn(policy).join().unwrap(), "2");
            }
        })
        .join()
        .unwrap();
    }
}

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
    fn a_program_runs_with_real_time_priority_where_that_is_allowed() {
        if refusal().is_some() {
            return;
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

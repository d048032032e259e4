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
}

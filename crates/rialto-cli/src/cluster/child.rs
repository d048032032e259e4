//! `rialto cluster child`: a program that ends with its parent.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::failed::Failed;

/// Run a program that ends with its parent
#[derive(Debug, Args)]
pub struct ChildArgs {
    /// The parent's pid
    #[arg(long)]
    parent: u32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// A command that runs a program, as a child of this process that is killed when the calling thread ends. The program is
/// in a process group of its own: a terminal's Ctrl-C reaches the parent alone.
pub fn command(program: &OsStr) -> Result<Command, Failed> {
    let own = std::env::current_exe()
        .map_err(|error| Failed::failing(format_args!("this program's own path: {error}")))?;
    let mut command = Command::new(own);
    command.args(["cluster", "child", "--parent", &std::process::id().to_string(), "--"]).arg(program);
    command.process_group(0);
    Ok(command)
}

/// Becomes the program. The request to be killed with the parent outlives the change of the program.
pub fn run(args: &ChildArgs) -> Result<ExitCode, Failed> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failed::failing(format_args!("asking to end with the parent: {error}")))?;
    // The parent may have ended before the request.
    let parent = getppid().map(Pid::as_raw_pid).map(i32::unsigned_abs);
    if parent != Some(args.parent) {
        return Err(Failed::failing("the parent has ended"));
    }
    let (program, arguments) = args.command.split_first().expect("the command line has a program");
    let error = Command::new(program).args(arguments).exec();
    Err(Failed::failing(format_args!("{}: {error}", program.to_string_lossy())))
}

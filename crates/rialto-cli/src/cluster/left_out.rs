//! `rialto cluster` in a program that was built without it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::output::fail;

/// Any command of a cluster.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct ClusterArgs {
    /// This program was built without the cluster: build it with `--features etcd`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Says how to build the program with it.
pub fn run(args: &ClusterArgs) -> ExitCode {
    let command =
        args.command.first().map_or_else(String::new, |word| format!(" {}", word.to_string_lossy()));
    fail(
        format_args!(
            "this program was built without `rialto cluster{command}`. To build it with that: cargo build --release \
             -p rialto-cli --features etcd (the build needs the program protoc; Debian: protobuf-compiler, \
             libprotobuf-dev)"
        ),
        2,
    )
}

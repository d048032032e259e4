//! `rialto bench smallbase` and `rialto bench scp`: clusters of processes on this machine, which this command starts and ends, and
//! clients in each node that call procedures over the partitions.

pub mod args;

use std::io::Write;

use rialto_measure::report::{write_json, write_part};
use rialto_measure::text::say;
use rialto_measure::{RunError, interrupt};
use rialto_smallbase::node::{self, WithoutParent};
use rialto_smallbase::parent::measure;
use rialto_smallbase::report::Report;
use rialto_smallbase::spec::WorkloadName;

pub use self::args::{NodeArgs, SmallbaseArgs};

/// Measures clusters of the sizes that are asked for, and writes the result to `out`; progress goes to stderr. Returns whether
/// the tables hold what clients were told.
///
/// # Errors
/// [`RunError`], each with its exit code.
pub fn run(args: &SmallbaseArgs, workload: WorkloadName, out: &mut dyn Write) -> Result<bool, RunError> {
    let (specs, load) = args.specs(workload)?;
    let mut points = Vec::new();
    for spec in &specs {
        interrupt::check()?;
        say(&format!("{} nodes", spec.shape.nodes));
        points.push(measure(spec, &load, args.repeat)?);
    }
    let report = Report(&points);
    write_part(out, report.text())?;
    write_json(out, args.json.then(|| report.json()))?;
    Ok(report.is_consistent())
}

/// Runs as a node of such a cluster, until the parent ends it.
///
/// # Errors
/// The parent is not there.
pub fn run_node(args: &NodeArgs) -> Result<bool, RunError> {
    let ran = node::run(&args.parent, args.number, WithoutParent::EndProcess);
    ran.map_err(|why| RunError::Io { during: "running a node", cause: std::io::Error::other(why) })?;
    Ok(true)
}

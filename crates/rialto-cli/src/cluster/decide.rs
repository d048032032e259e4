//! `rialto cluster decide`: an operator's decision on a transaction that a forced loss has left undecided.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rialto_cluster::node::admin::{AdminAnswer, AdminRequest, DecidedReport, UndecidedReport};
use rialto_cluster::protocol::transactions::{Decision, TransactionId};

use super::failed::Failed;
use super::view::{NodeView, View};
use crate::output::{print, tell};

/// How long it waits until all branches have ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(200);

/// Decide a transaction whose decision was lost by force-promote; without a transaction, list those that wait for that
#[derive(Debug, Args)]
pub struct DecideArgs {
    /// The directory that has the directories of the nodes on this machine
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The transaction, by the name that the list shows
    #[arg(long, value_name = "NAME", requires = "decision")]
    transaction: Option<String>,
    /// How it ends in all partitions that have a branch of it
    #[arg(long, value_enum, requires = "transaction")]
    decision: Option<Choice>,
}

/// A decision, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// The prepared branches commit
    Commit,
    /// The prepared branches abort
    Abort,
}

impl From<Choice> for Decision {
    fn from(choice: Choice) -> Decision {
        match choice {
            Choice::Commit => Decision::Commit,
            Choice::Abort => Decision::Abort,
        }
    }
}

impl View {
    /// The transactions that wait for an operator, each with the node that leads its deciding partition.
    pub fn undecided(&self) -> impl Iterator<Item = (&NodeView, &UndecidedReport)> {
        let reports = self.nodes.iter().filter_map(|node| Some((node, node.report.as_ref()?)));
        reports.flat_map(|(node, report)| report.undecided.iter().map(move |undecided| (node, undecided)))
    }

    fn decided(&self, name: &str) -> Option<&DecidedReport> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        reports.flat_map(|report| &report.decided).find(|decided| decided.transaction == name)
    }
}

/// Lists what is undecided, or decides one transaction.
pub fn run(args: &DecideArgs) -> Result<ExitCode, Failed> {
    let view = View::of(&args.data)?;
    let (Some(name), Some(choice)) = (&args.transaction, args.decision) else {
        return Ok(print(list(&view, &args.data).trim_end(), ExitCode::SUCCESS));
    };
    if let Err(error) = name.parse::<TransactionId>() {
        return Err(Failed::usage(format_args!("--transaction {name}: {error}")));
    }
    let decision = Decision::from(choice);
    if let Some((node, undecided)) = view.undecided().find(|(_, undecided)| undecided.transaction == *name) {
        tell(consequences(undecided, decision));
        let request =
            AdminRequest::Decide { partition: undecided.partition, transaction: name.clone(), decision };
        if let AdminAnswer::Refused(why) = node.ask(&request)? {
            return Err(Failed::failing(format_args!("{} refuses: {why}", node.name)));
        }
    } else if let Some(decided) = view.decided(name) {
        if decided.decision != decision {
            return Err(Failed::unusable(format_args!(
                "transaction {name} was decided otherwise before: {}. That stays",
                decided.decision
            )));
        }
    } else {
        return Err(Failed::unusable(format_args!(
            "no node on this machine has an undecided transaction {name}. It has ended, or the node that leads its deciding \
             partition is on another machine or down; without --transaction, this command lists those that are undecided here"
        )));
    }
    let began = Instant::now();
    loop {
        let view = View::of(&args.data)?;
        if view.decided(name).is_some_and(|decided| decided.is_over) {
            let text = format!("transaction {name} was decided: {decision}. All its branches have ended so");
            return Ok(print(text, ExitCode::SUCCESS));
        }
        if began.elapsed() > PATIENCE {
            return Err(Failed::failing(format_args!(
                "not all branches of transaction {name} have ended after {} s. If rialto cluster status shows that it is still \
                 undecided, its deciding partition has got another primary meanwhile: run this again. Else the decision \
                 ({decision}) stays, and is told to the other branches once their partitions serve",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// The command that decides a transaction.
pub fn command(undecided: &UndecidedReport, data: &Path) -> String {
    format!(
        "rialto cluster decide --transaction {} --decision commit|abort --data {}",
        undecided.transaction,
        data.display()
    )
}

/// What is undecided, in words.
fn list(view: &View, data: &Path) -> String {
    let mut text = String::new();
    for (_, undecided) in view.undecided() {
        let _ = writeln!(text, "{}\n  {}", in_words(undecided), command(undecided, data));
    }
    if text.is_empty() {
        text += "no transaction waits for an operator, as far as the nodes on this machine know\n";
    }
    text
}

/// An undecided transaction, in words.
pub fn in_words(undecided: &UndecidedReport) -> String {
    let mut text = format!(
        "transaction {}: undecided in partition {} for {} s",
        undecided.transaction,
        undecided.partition,
        undecided.age_ms / 1000
    );
    if !undecided.prepared.is_empty() {
        let _ = write!(text, "; prepared in partitions {}", numbers(&undecided.prepared));
    }
    if !undecided.lost.is_empty() {
        let _ = write!(text, "; lost in partitions {}", numbers(&undecided.lost));
    }
    text
}

/// What a decision does, in words.
fn consequences(undecided: &UndecidedReport, decision: Decision) -> String {
    let UndecidedReport { transaction, partition, .. } = undecided;
    let prepared = numbers(&undecided.prepared);
    let lost: Vec<u32> = std::iter::once(*partition).chain(undecided.lost.iter().copied()).collect();
    match decision {
        Decision::Commit => format!(
            "transaction {transaction}: its changes in partitions {prepared} stay. Those in partitions {} were lost, or were \
             never made: put them right by hand",
            numbers(&lost)
        ),
        Decision::Abort => {
            format!("transaction {transaction}: its changes in partitions {prepared} are undone")
        }
    }
}

fn numbers(partitions: &[u32]) -> String {
    partitions.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_undecided_and_what_a_decision_does() {
        let undecided = UndecidedReport {
            transaction: "0.1760000000000.17".to_owned(),
            partition: 2,
            age_ms: 61_999,
            prepared: vec![1, 3],
            lost: vec![4],
        };
        assert_eq!(
            in_words(&undecided),
            "transaction 0.1760000000000.17: undecided in partition 2 for 61 s; prepared in partitions 1, 3; lost in \
             partitions 4"
        );
        let commits = consequences(&undecided, Decision::Commit);
        assert!(
            commits.contains("in partitions 1, 3 stay") && commits.contains("in partitions 2, 4 were lost")
        );
        assert!(consequences(&undecided, Decision::Abort).contains("in partitions 1, 3 are undone"));
        assert_eq!(
            command(&undecided, Path::new("/d")),
            "rialto cluster decide --transaction 0.1760000000000.17 --decision commit|abort --data /d"
        );
    }
}

//! `rialto cluster decide`: an operator's decision on a transaction that a loss has left undecided.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rialto_cluster::node::DecisionStage;
use rialto_cluster::node::admin::{AdminAnswer, AdminRequest, DecidedReport, UndecidedReport};
use rialto_cluster::protocol::transactions::{Decision, TransactionId};

use super::failed::Failed;
use super::view::{NodeView, View};
use crate::output::{print, tell};

/// How long the command waits until all branches have ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the command looks again.
const POLL: Duration = Duration::from_millis(200);

/// Decide a transaction whose decision was lost; without --transaction, list those that wait for an operator
#[derive(Debug, Args)]
pub struct DecideArgs {
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The transaction's name, as in the list
    #[arg(long, value_name = "NAME", requires = "decision")]
    transaction: Option<String>,
    /// How the transaction ends in all partitions in which it is prepared
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
        let all = reports
            .flat_map(|(node, report)| report.undecided.iter().map(move |undecided| (node, undecided)));
        all.filter(|(_, undecided)| self.is_newest(&undecided.transaction, undecided.opening))
    }

    fn decided(&self, name: &str) -> Option<&DecidedReport> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        let mut all = reports.flat_map(|report| &report.decided);
        all.find(|decided| decided.transaction == name && self.is_newest(name, decided.opening))
    }

    /// Whether no later primary of the deciding partition says something of a transaction. One that another has
    /// followed may not know that yet.
    fn is_newest(&self, name: &str, opening: u64) -> bool {
        self.nodes.iter().filter_map(|node| node.report.as_ref()).all(|report| {
            let undecided = report.undecided.iter().map(|of| (&of.transaction, of.opening));
            let decided = report.decided.iter().map(|of| (&of.transaction, of.opening));
            undecided.chain(decided).all(|(of, other)| of != name || other <= opening)
        })
    }

    /// Whether a partition may have something of a transaction that has not ended everywhere. None if not all
    /// partitions are led by nodes that answer.
    fn knows(&self, name: &str) -> Result<Option<bool>, Failed> {
        if self.partitions.iter().any(|partition| partition.serves.is_none()) {
            return Ok(None);
        }
        for node in self.nodes.iter().filter(|node| node.report.is_some()) {
            match self.ask(node, AdminRequest::Knows { transaction: name.to_owned() })? {
                AdminAnswer::Knows(false) => {}
                _ => return Ok(Some(true)),
            }
        }
        Ok(Some(false))
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
    decide(view, args, name, choice.into())
}

/// Decides a transaction, and waits until all branches have ended so. A primary that fails before the decision is on
/// record loses it: then its successor is told.
fn decide(mut view: View, args: &DecideArgs, name: &str, decision: Decision) -> Result<ExitCode, Failed> {
    let (began, mut told) = (Instant::now(), None);
    loop {
        if let Some(decided) = view.decided(name) {
            match (decided.decision == decision, decided.stage) {
                (true, DecisionStage::Over) => {
                    let text =
                        format!("transaction {name} was decided: {decision}. All its branches have ended so");
                    return Ok(print(text, ExitCode::SUCCESS));
                }
                // It may still be lost.
                (true, DecisionStage::Recording | DecisionStage::Telling)
                | (false, DecisionStage::Recording) => {}
                (false, DecisionStage::Telling | DecisionStage::Over) => {
                    return Err(Failed::unusable(format_args!(
                        "transaction {name} was decided otherwise before: {}. That stays",
                        decided.decision
                    )));
                }
            }
        } else if let Some((node, undecided)) =
            view.undecided().find(|(_, undecided)| undecided.transaction == *name)
        {
            if told != Some(undecided.opening) {
                tell(consequences(undecided, decision));
            }
            let (partition, transaction) = (undecided.partition, name.to_owned());
            let request = AdminRequest::Decide { partition, transaction, decision };
            if let AdminAnswer::Refused(why) = view.ask(node, request)? {
                return Err(Failed::failing(format_args!("{} refuses: {why}", node.name)));
            }
            told = Some(undecided.opening);
        } else {
            match view.knows(name)? {
                Some(false) => {
                    let text = format!(
                        "transaction {name}: no partition has anything of it that waits. It has ended, or there was none of this \
                         name; nothing is to be decided"
                    );
                    return Ok(print(text, ExitCode::SUCCESS));
                }
                None if told.is_none() => {
                    return Err(Failed::unusable(format_args!(
                        "no node that answers has an undecided transaction {name}, and not all partitions are led by nodes that \
                         answer: see rialto cluster status. Without --transaction, this command lists those that are undecided"
                    )));
                }
                Some(true) | None => {}
            }
        }
        if began.elapsed() > PATIENCE {
            return Err(Failed::failing(format_args!(
                "not all branches of transaction {name} have ended after {} s. A decision that is on record stays, and is told to \
                 the other branches once their partitions serve. Run this again with the same decision ({decision}): {}",
                PATIENCE.as_secs(),
                command(name, decision, &args.data)
            )));
        }
        std::thread::sleep(POLL);
        view = View::of(&args.data)?;
    }
}

/// The command that decides a transaction.
pub fn command(transaction: &str, decision: Decision, data: &Path) -> String {
    let data = quoted(&data.display().to_string());
    format!("rialto cluster decide --transaction {transaction} --decision {decision} --data {data}")
}

/// A word of a command, as a shell takes it for one.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@,%=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The commands that decide a transaction one way or the other, on lines of their own.
pub fn commands(undecided: &UndecidedReport, data: &Path) -> String {
    let of = |decision| command(&undecided.transaction, decision, data);
    format!("  {}\n  {}", of(Decision::Commit), of(Decision::Abort))
}

/// What is undecided, in words.
fn list(view: &View, data: &Path) -> String {
    let mut text = String::new();
    for (_, undecided) in view.undecided() {
        let _ = writeln!(text, "{}\n{}", in_words(undecided), commands(undecided, data));
    }
    if text.is_empty() {
        text += "no transaction waits for an operator, as far as the nodes that answer know\n";
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
            opening: 7,
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
            commands(&undecided, Path::new("/d/my nodes")),
            "  rialto cluster decide --transaction 0.1760000000000.17 --decision commit --data '/d/my nodes'\n  \
             rialto cluster decide --transaction 0.1760000000000.17 --decision abort --data '/d/my nodes'"
        );
        assert_eq!(["/d/a-b_1", "it's", ""].map(quoted), ["/d/a-b_1", r"'it'\''s'", "''"]);
    }
}

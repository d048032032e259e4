//! [`Comparing`]: a node that runs compares the replicas of what it leads.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rialto_cluster::node::admin::{AdminAnswer, AdminRequest, Reached, ask};
use rialto_cluster::node::{ComparisonReport, ComparisonStatus, PartitionComparison};

use super::failed::Failed;
use super::say::say;

/// How long a node has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the command looks again.
const POLL: Duration = Duration::from_millis(200);
/// How long a node that compares may be silent.
const SILENT_WITHIN: Duration = Duration::from_secs(60);

/// A comparison that a node was asked for.
pub struct Comparing {
    directory: PathBuf,
    name: String,
    number: u64,
}

/// What a comparison has found.
pub struct Found {
    /// Whether nothing differs.
    pub is_same: bool,
    /// Whether nothing was left out.
    pub is_whole: bool,
}

impl Comparing {
    /// Asks a node for it.
    pub fn begin(directory: PathBuf, name: String) -> Result<Comparing, Failed> {
        let mut comparing = Comparing { directory, name, number: 0 };
        say(format_args!(
            "{}: it runs; it compares the replicas of the partitions that it leads",
            comparing.name
        ))?;
        comparing.number = match comparing.ask(&AdminRequest::Compare)? {
            Some(AdminAnswer::ComparisonBegun(number)) => number,
            Some(AdminAnswer::Refused(why)) => return Err(comparing.failing(&format!("refuses: {why}"))),
            Some(other) => return Err(comparing.failing(&format!("gives no number: {other:?}"))),
            None => return Err(comparing.failing("does not answer")),
        };
        Ok(comparing)
    }

    /// Waits until it has ended, and says what was found.
    pub fn end(self) -> Result<Found, Failed> {
        let mut heard = Instant::now();
        loop {
            match self.ask(&AdminRequest::ComparisonStatus)? {
                Some(AdminAnswer::Comparison(ComparisonStatus::Done(report)))
                    if report.comparison == self.number =>
                {
                    return self.say_all(&report);
                }
                Some(AdminAnswer::Comparison(ComparisonStatus::Runs { comparison }))
                    if comparison == self.number =>
                {
                    heard = Instant::now();
                }
                Some(AdminAnswer::Comparison(_)) => {
                    return Err(self.failing("has started again meanwhile, or compares for another command"));
                }
                Some(other) => return Err(self.failing(&format!("does not tell how far it is: {other:?}"))),
                None if heard.elapsed() > SILENT_WITHIN => {
                    return Err(self.failing("does not answer any more"));
                }
                // It is overloaded, or starts again.
                None => {}
            }
            std::thread::sleep(POLL);
        }
    }

    fn say_all(&self, report: &ComparisonReport) -> Result<Found, Failed> {
        if report.partitions.is_empty() {
            say(format_args!("{}: it leads no partition", self.name))?;
        }
        for partition in &report.partitions {
            say(in_words(&self.name, partition))?;
        }
        let mut differences = report.partitions.iter().flat_map(|partition| &partition.differences);
        let is_same = differences.all(|difference| !difference.is_open);
        Ok(Found {
            is_same,
            is_whole: report.partitions.iter().all(|partition| partition.left_out.is_empty()),
        })
    }

    fn failing(&self, why: &str) -> Failed {
        Failed::failing(format_args!("{} {why}: its replicas are not compared", self.name))
    }

    /// None if it does not answer.
    fn ask(&self, request: &AdminRequest) -> Result<Option<AdminAnswer>, Failed> {
        let reached = ask(&self.directory, request, PATIENCE);
        match reached.map_err(|error| Failed::of_file(&self.directory, &error))? {
            Reached::Answered { answer, .. } => Ok(Some(answer)),
            Reached::Down | Reached::Silent { .. } => Ok(None),
        }
    }
}

/// What was compared of a partition, and what differs.
fn in_words(primary: &str, partition: &PartitionComparison) -> String {
    let PartitionComparison { partition, replicas, tables, rows, entries, left_out, differences } = partition;
    let mut text = match &replicas[..] {
        [] => format!("partition {partition}: nothing is compared with {primary}, which leads"),
        replicas => format!(
            "partition {partition}: {} compared with {primary}, which leads: {tables} tables, {rows} rows, {entries} entries of \
             indexes; {}",
            replicas.join(", "),
            match differences.len() {
                0 => "no difference".to_owned(),
                1 => "1 difference".to_owned(),
                found => format!("{found} differences"),
            }
        ),
    };
    for left_out in left_out {
        text += &format!("\n  not compared: {left_out}");
    }
    for difference in differences {
        text += &format!("\n  {difference}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_compared_is_said() {
        let mut partition = PartitionComparison {
            partition: 3,
            left_out: vec!["no other replica is in sync".to_owned()],
            ..PartitionComparison::default()
        };
        assert_eq!(
            in_words("a", &partition),
            "partition 3: nothing is compared with a, which leads\n  not compared: no other replica is in sync"
        );
        (partition.replicas, partition.rows, partition.tables) = (vec!["b".into(), "c".into()], 70, 6);
        partition.left_out.clear();
        assert_eq!(
            in_words("a", &partition),
            "partition 3: b, c compared with a, which leads: 6 tables, 70 rows, 0 entries of indexes; no difference"
        );
    }
}

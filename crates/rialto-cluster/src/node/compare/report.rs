//! What an operator is shown of comparisons.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that a replica has otherwise than its primary, at the same place of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The partition.
    pub partition: u32,
    /// The table.
    pub table: String,
    /// The index whose entries differ; none if the rows do.
    pub index: Option<String>,
    /// The name of the primary's node.
    pub primary: String,
    /// The name of the replica's node.
    pub replica: String,
    /// The first rows of the smallest range that was found to differ, as the primary has them.
    pub of_primary: Vec<String>,
    /// The same, as the replica has them.
    pub of_replica: Vec<String>,
    /// What is done about it.
    pub action: String,
    /// Whether they may differ still: they were not found to be the same meanwhile.
    pub is_open: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            partition,
            table,
            index,
            primary,
            replica,
            of_primary,
            of_replica,
            action,
            is_open: _,
        } = self;
        match index {
            None => write!(f, "partition {partition}: the rows of the table {table}")?,
            Some(index) => write!(f, "partition {partition}: the entries of {index}, an index of {table},")?,
        }
        write!(f, " differ between {primary}, which leads, and {replica}")?;
        if of_primary.is_empty() && of_replica.is_empty() {
            return write!(f, ". {action}");
        }
        let shown = |rows: &[String]| match rows {
            [] => "none".to_owned(),
            rows => rows.join("; "),
        };
        write!(
            f,
            ". The first: on {primary} {}, on {replica} {}. {action}",
            shown(of_primary),
            shown(of_replica)
        )
    }
}

/// What was compared of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionComparison {
    /// The partition.
    pub partition: u32,
    /// The names of the nodes whose replicas were compared with the primary's.
    pub replicas: Vec<String>,
    /// How many tables, those of the system among them.
    pub tables: u64,
    /// How many rows.
    pub rows: u64,
    /// How many entries of secondary indexes.
    pub entries: u64,
    /// What was not compared, and why.
    pub left_out: Vec<String>,
    /// What differs.
    pub differences: Vec<Difference>,
}

impl PartitionComparison {
    /// Whether everything was compared, and is the same.
    pub fn is_clean(&self) -> bool {
        self.left_out.is_empty() && self.differences.iter().all(|difference| !difference.is_open)
    }
}

/// The last comparison of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastComparison {
    /// When it has ended, in seconds since the beginning of 1970.
    pub ended_at: u64,
    /// What it has found.
    pub found: PartitionComparison,
}

/// A comparison of all partitions that a node leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// Its number.
    pub comparison: u64,
    /// The partitions.
    pub partitions: Vec<PartitionComparison>,
}

/// The progress of the last comparison that a node was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonStatus {
    /// It was asked for none since it started.
    #[default]
    None,
    /// It waits for its turn, or runs.
    Runs {
        /// Its number.
        comparison: u64,
    },
    /// It has ended.
    Done(ComparisonReport),
}

//! [`Bank`]: transfers of money by `rialto bench cluster`, a process of its own.

use std::process::{Child, Stdio};

use serde_json::Value as Json;

use crate::cluster::Cluster;
use crate::common::{json, number, program, text};

/// A run that has begun.
pub struct Bank(Child);

/// What a run has found.
#[derive(Debug)]
pub struct Found {
    pub committed: u64,
    pub unknown: u64,
    /// The longest time without an answered commit of any client, in milliseconds.
    pub longest_pause_ms: f64,
}

impl Bank {
    /// Some clients transfer money for some seconds, over all nodes.
    pub fn begin(cluster: &Cluster, level: &str, seconds: f64) -> Bank {
        let (connect, seconds) = (cluster.sql().join(","), seconds.to_string());
        let line =
            ["bench", "cluster", "--connect", &connect, "--clients", "6", "--accounts", "300", "--seconds"];
        let mut command = program(&line);
        command.args([&*seconds, "--durability", level, "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Bank(child.expect("the program starts"))
    }

    /// Waits for its end. Nothing that was answered is lost, and the money is all there.
    pub fn judge(self, about: &str) -> Found {
        let output = self.0.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{about}: {}", text(&output));
        let found: Json = json(&output);
        assert_eq!(number(&found, "lost_commits"), 0.0, "{about}: {found}");
        assert_eq!(found["consistent"], true, "{about}: {found}");
        Found {
            committed: number(&found, "committed") as u64,
            unknown: number(&found, "unknown_outcomes") as u64,
            longest_pause_ms: number(&found, "longest_pause_ms"),
        }
    }
}

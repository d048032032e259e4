//! Smallbase's experiments (*Achieving Transaction Scaleup on Unix*): a cluster whose nodes are processes of this machine,
//! with clients in each of them that call procedures over the partitions.
//!
//! - [`spec`]: what is run: the cluster, the data, the load.
//! - [`workload`]: TPC-B over partitions, and a service control point's requests: tables, procedures, what clients draw, and
//!   what the tables must add up to. `homes`: which branches lie at which node.
//! - [`node`]: a node's process, which does what the parent orders. `control`: the control store, which the parent serves.
//!   `wire`: what they say to each other.
//! - [`parent`]: the process that starts the nodes, orders a run, and puts together what they have counted ([`outcome`]).
//! - `namespaces`: a network for each node. [`proxy`]: a slow network. [`priority`]: real-time priority.
//! - [`report`]: results for people and as JSON. [`costs`]: the costs of single operations. [`simulation`]: clusters of
//!   more nodes than this machine can run.
//!
//! Invariants:
//!
//! 1. A branch, with its tellers, accounts and history, lies in one partition, whose primary is on the branch's home node
//!    before a run begins.
//! 2. What clients were told is what the tables hold: after each run each node adds up what it serves, and the parent
//!    compares the sums over the cluster.
//! 3. No node outlives the parent: it ends when its connection to the parent does.
//!
//! Reading order: [`spec`], [`workload`], [`node`], [`parent`].

// The macro for a JSON object recurses for each of its members.
#![recursion_limit = "512"]

mod control;
pub mod costs;
mod homes;
mod namespaces;
pub mod node;
pub mod outcome;
pub mod parent;
pub mod priority;
pub mod proxy;
pub mod report;
pub mod simulation;
pub mod spec;
mod wire;
pub mod workload;

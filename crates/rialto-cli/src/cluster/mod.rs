//! `rialto cluster`: a database on several nodes. The crate `rialto-cluster` is what a node does; here is how an operator
//! makes a cluster, runs its nodes, and sees and changes what it does.
//!
//! Each node has a directory with a file `node.json` ([`node_file`]), its certificates, its replicas and its admin socket.
//! A command for a cluster is given the directory that has those of the nodes on this machine. What the cluster is, the
//! control store says (etcd); what a node does, its admin socket says.
//!
//! Invariants:
//! 1. **Told first, done once.** A command that changes something says what it will do, does it, and may be run again: what
//!    is done already stays as it is, and is no error.
//! 2. **Seen with parts away.** What is shown is put together from what answers ([`view`]): the control store, nodes, or
//!    both may be dead. No command waits for one that stands still for longer than a few seconds.
//! 3. **Nothing in the clear by accident.** Nodes talk by mutual TLS, unless the operator has named another choice
//!    ([`node_file::Links`]).
//! 4. **No process is left.** Children of a demo end with it, however it ends ([`child`]).
//!
//! Reading order: `init.rs` (what there is), `node.rs` (a node runs), `sql.rs` (its clients), `demo.rs` (all on one machine),
//! `view.rs` and `status.rs` (what is seen), `switchover.rs`, `force_promote.rs`, `decide.rs`, `join.rs`, `moving.rs` and the
//! commands that use it, `backup.rs`, `restore.rs`, `check.rs`.

mod access;
mod authority;
mod backup;
mod balance;
mod check;
mod child;
mod comparing;
mod control;
mod decide;
mod demo;
mod demo_file;
mod drain;
mod ending;
mod failed;
mod files;
mod force_promote;
mod init;
mod join;
mod leave;
mod moving;
mod node;
mod node_file;
mod processes;
mod replace;
mod restore;
mod say;
mod shares;
mod sql;
mod status;
mod switchover;
mod view;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::output::fail;
use failed::Failed;

/// A command of a cluster.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Make a cluster: its partitions and nodes in the control store, and a directory for each node
    Init(Box<init::InitArgs>),
    /// Run a node in the foreground, until SIGTERM or SIGINT
    ///
    /// --memory-bytes and --log-bytes bound all replicas of the node together; each replica has an equal share of them. The
    /// replicas are counted when the node starts.
    Node(Box<node::NodeArgs>),
    /// Run a cluster on this machine in the foreground, with an etcd of its own, until SIGTERM or SIGINT
    ///
    /// Each node is a process. One that dies is not started again: `rialto cluster node --data DIR/NAME` starts it by
    /// hand.
    /// --memory-bytes and --log-bytes bound all nodes together; each node has an equal share of them.
    Demo(Box<demo::DemoArgs>),
    /// Show the nodes and partitions of a cluster, also if nodes or the control store are dead
    Status(status::StatusArgs),
    /// Make another replica of a partition, one that is in sync, its primary; nothing is lost
    Switchover(switchover::SwitchoverArgs),
    /// Make a replica of a partition lead by force: what only other replicas have is lost
    ForcePromote(force_promote::ForcePromoteArgs),
    /// Decide a transaction whose decision was lost; without --transaction, list those that wait for an operator
    Decide(decide::DecideArgs),
    /// Add a node to a running cluster: put it on the control store's list, and make its directory
    Join(Box<join::JoinArgs>),
    /// Move replicas to nodes that have fewer of them, then primaries, until all nodes have about equally many of both
    Balance(balance::BalanceArgs),
    /// Move all replicas of a node to other nodes; nothing is lost, and the partitions serve meanwhile
    Drain(drain::DrainArgs),
    /// Remove a node without replicas from the cluster
    Leave(leave::LeaveArgs),
    /// Give the replicas of a node that is lost for good to another node, and remove the lost node from the cluster
    Replace(replace::ReplaceArgs),
    /// Back up all partitions as they are at one moment, while the cluster is used
    Backup(backup::BackupArgs),
    /// Make a new cluster as init does, with the data of a backup
    Restore(Box<restore::RestoreArgs>),
    /// Verify a backup; or, for the nodes on this machine: of those that run, compare the replicas of the partitions
    /// that they lead; of those that are stopped, verify the replicas (checksums, log, and that indexes agree with
    /// tables)
    Check(check::CheckArgs),
    /// Run a program that ends with its parent
    #[command(hide = true)]
    Child(child::ChildArgs),
}

/// Runs a command.
pub fn run(args: &ClusterArgs) -> ExitCode {
    let done = match &args.command {
        ClusterCommand::Init(args) => init::run(args),
        ClusterCommand::Node(args) => node::run(args),
        ClusterCommand::Demo(args) => demo::run(args),
        ClusterCommand::Status(args) => status::run(args),
        ClusterCommand::Switchover(args) => switchover::run(args),
        ClusterCommand::ForcePromote(args) => force_promote::run(args),
        ClusterCommand::Decide(args) => decide::run(args),
        ClusterCommand::Join(args) => join::run(args),
        ClusterCommand::Balance(args) => balance::run(args),
        ClusterCommand::Drain(args) => drain::run(args),
        ClusterCommand::Leave(args) => leave::run(args),
        ClusterCommand::Replace(args) => replace::run(args),
        ClusterCommand::Backup(args) => backup::run(args),
        ClusterCommand::Restore(args) => restore::run(args),
        ClusterCommand::Check(args) => check::run(args),
        ClusterCommand::Child(args) => child::run(args),
    };
    match done {
        Ok(code) => code,
        Err(Failed { text, code }) => fail(text, code),
    }
}

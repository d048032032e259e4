//! A node's process: it does what the parent orders, and ends with the parent.
//!
//! - `alone`: the same load on a database without a cluster.
//! - `clients`: the load. `counting`: what the process has done meanwhile. `thread_times`: where a client's time goes.

pub(crate) mod alone;
mod clients;
mod counting;
mod thread_times;

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use rialto::{Database, Durability, Options};
use rialto_cluster::net::{Nagle, Security};
use rialto_cluster::node::{Admitted, LinkOptions, Node, NodeOptions, make_table};
use rialto_cluster::protocol::replication::ReplicationOptions;
use rialto_cluster::protocol::{NodeId, PartitionId};

use self::clients::Site;
pub(crate) use self::clients::{Ended, LONG};
use crate::control::RemoteStore;
use crate::homes::Homes;
use crate::spec::Load;
use crate::wire::{Answer, Hello, NodeRan, NodeSpec, Order, Stand, receive, send};
use crate::workload::{self, Audit, MESSAGES, TRIES_AGAIN, Workload};

/// The log of each replica, and what is gathered of it in memory, in bytes.
const LOG_BYTES: u64 = 256 << 20;
const LOG_BUFFER_BYTES: usize = 4 << 20;

/// The options of a database of this load.
fn database(memory_bytes: u64) -> Options {
    Options {
        durability: Durability::Memory,
        memory_bytes,
        log_bytes_max: LOG_BYTES,
        log_buffer_bytes: LOG_BUFFER_BYTES,
        ..Options::default()
    }
}

/// What a node does when its parent has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutParent {
    /// It ends the process, whatever runs.
    EndProcess,
    /// It ends once what runs has ended.
    Return,
}

/// Runs a node until the parent ends it.
///
/// # Errors
/// In words: the parent is not there.
pub fn run(parent: &Path, number: u32, without_parent: WithoutParent) -> Result<(), String> {
    let failed =
        |error: std::io::Error| format!("node {number}: the parent at {}: {error}", parent.display());
    let mut stream = UnixStream::connect(parent).map_err(failed)?;
    send(&mut stream, &Hello::Node(number)).map_err(failed)?;
    let orders = take_orders(stream.try_clone().map_err(failed)?, without_parent);
    let mut running: Option<Running> = None;
    for order in orders {
        let is_last = matches!(order, Order::Close);
        let answer = match (order, &mut running) {
            (Order::Start(spec), none @ None) => Running::open(parent, number, *spec).map(|opened| {
                *none = Some(opened);
                Answer::Done
            }),
            (Order::Settle, Some(running)) => Ok(Answer::Settled(running.settle())),
            (Order::Stands, Some(running)) => Ok(Answer::Stands(running.stands())),
            (Order::Load, Some(running)) => running.load().map(|()| Answer::Done),
            (Order::Run { load, from_us }, Some(running)) => {
                wait_until(from_us);
                running.run(&load).map(|ran| Answer::Ran(Box::new(ran)))
            }
            (Order::Audit, Some(running)) => running.audit().map(Answer::Audited),
            (Order::Close, _) => {
                if let Some(running) = running.take() {
                    running.node.close();
                }
                Ok(Answer::Done)
            }
            (order, _) => Err(format!("node {number} cannot do this now: {order:?}")),
        };
        send(&mut stream, &answer.unwrap_or_else(Answer::Failed)).map_err(failed)?;
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Waits until a time in microseconds since 1970.
fn wait_until(time_us: u64) {
    let until = SystemTime::UNIX_EPOCH + Duration::from_micros(time_us);
    std::thread::sleep(until.duration_since(SystemTime::now()).unwrap_or_default());
}

/// Takes orders on a thread of its own, which sees at once that the parent has gone.
fn take_orders(stream: UnixStream, without_parent: WithoutParent) -> Receiver<Order> {
    let (sender, orders) = channel();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        while let Ok(Some(order)) = receive::<Order>(&mut stream) {
            let is_last = matches!(order, Order::Close);
            if sender.send(order).is_err() || is_last {
                return;
            }
        }
        if without_parent == WithoutParent::EndProcess {
            std::process::exit(4);
        }
    });
    orders
}

/// Times that a busy machine does not use up: primaries stay where they are.
fn calm() -> ReplicationOptions {
    // The cluster's promise sets the others.
    ReplicationOptions { opening_patience: Duration::from_secs(60), ..ReplicationOptions::default() }
}

/// A node that is open.
struct Running {
    number: u32,
    spec: NodeSpec,
    node: Node,
    workload: Arc<dyn Workload>,
    homes: Homes,
}

impl Running {
    fn open(parent: &Path, number: u32, spec: NodeSpec) -> Result<Running, String> {
        let workload = workload::of(spec.data);
        let tables = workload.clone();
        let make = move |db: &Database| {
            make_table(db)?;
            tables.make(db)
        };
        let options = NodeOptions {
            name: spec.name.clone(),
            directory: spec.directory.clone(),
            takes_over: false,
            database: database(spec.memory_bytes),
            replication: calm(),
            repair_after: None,
            copy_bytes_per_second: None,
            compare_every: None,
            move_patience: Duration::from_secs(300),
            security: if spec.listen.ip().is_loopback() {
                Security::PlainOnLoopback
            } else {
                Security::PlainAnywhere
            },
            links: LinkOptions {
                listen: Some(spec.listen),
                nagle: if spec.nagle { Nagle::On } else { Nagle::Off },
            },
            make: Arc::new(make),
            procedures: workload.procedures(),
        };
        let store = Arc::new(RemoteStore::new(parent.to_owned()));
        let node = Node::open(options, store).map_err(|error| format!("{}: {error}", spec.name))?;
        let homes = Homes::find(spec.shape, spec.data, |branch| {
            node.transactions().partition_of(&[rialto::row::Value::Int4(branch)]).0
        });
        Ok(Running { number, spec, node, workload, homes })
    }

    /// The partitions that have their home here.
    fn own_partitions(&self) -> impl Iterator<Item = u32> {
        let (shape, number) = (self.spec.shape, self.number);
        (0..shape.all_partitions()).filter(move |partition| shape.home(*partition) == number)
    }

    /// Asks for changes of primaries that are not at home. Says what is missing.
    fn settle(&self) -> Result<(), String> {
        for replica in self.node.replicas() {
            let home = self.spec.shape.home(replica.partition().0);
            if home != self.number && replica.status().serves {
                replica.switch_over(NodeId(home));
            }
        }
        for partition in self.own_partitions() {
            let name = || format!("partition {partition} of {}", self.spec.name);
            let replica = self.node.replica(PartitionId(partition)).ok_or_else(|| {
                let trouble = self.node.trouble().unwrap_or_default();
                format!("{} is not open yet {trouble}", name())
            })?;
            let status = replica.status();
            if !status.serves {
                return Err(format!(
                    "{} does not lead here yet {}",
                    name(),
                    status.trouble.unwrap_or_default()
                ));
            }
            let in_sync = status.configuration.map_or(0, |configuration| configuration.in_sync.len());
            if in_sync < self.spec.shape.replicas as usize {
                return Err(format!(
                    "{} has {in_sync} replicas in sync, not {}",
                    name(),
                    self.spec.shape.replicas
                ));
            }
        }
        Ok(())
    }

    fn stands(&self) -> Vec<Stand> {
        let standing = |partition: u32| {
            let status = self.node.replica(PartitionId(partition)).map(|replica| replica.status());
            let serves = status.as_ref().is_some_and(|status| status.serves);
            let configuration = status.and_then(|status| status.configuration);
            let epoch = configuration.as_ref().map_or(0, |of| of.epoch.0);
            let in_sync = configuration.map(|of| of.in_sync.iter().map(|member| member.node.0).collect());
            Stand { partition, serves, epoch, in_sync: in_sync.unwrap_or_default() }
        };
        self.own_partitions().map(standing).collect()
    }

    /// What a partition that is led here has.
    fn admitted(&self, partition: u32) -> Result<Admitted, String> {
        let what =
            |why: &dyn std::fmt::Display| format!("partition {partition} of {}: {why}", self.spec.name);
        let replica = self.node.replica(PartitionId(partition)).ok_or_else(|| what(&"it is not here"))?;
        replica.admit().map_err(|error| what(&error))
    }

    fn load(&self) -> Result<(), String> {
        for partition in self.own_partitions() {
            let admitted = self.admitted(partition)?;
            let loaded = self.workload.load(admitted.database(), self.homes.of_partition(partition));
            loaded
                .map_err(|error| format!("loading partition {partition} of {}: {error}", self.spec.name))?;
        }
        Ok(())
    }

    fn run(&self, load: &Load) -> Result<NodeRan, String> {
        let site = Site {
            workload: &*self.workload,
            homes: &self.homes,
            node: self.number,
            nodes: self.spec.shape.nodes,
            target: &self.node,
        };
        clients::run(site, load).map_err(|why| format!("{}: {why}", self.spec.name))
    }

    fn audit(&self) -> Result<Audit, String> {
        let mut audit = Audit::default();
        let counts = self.node.transactions().transaction_counts();
        audit.add(MESSAGES, counts.messages as i64);
        audit.add(TRIES_AGAIN, counts.calls_again as i64);
        for partition in self.own_partitions() {
            let admitted = self.admitted(partition)?;
            self.workload
                .audit(admitted.database(), &mut audit)
                .map_err(|error| format!("adding up partition {partition} of {}: {error}", self.spec.name))?;
        }
        Ok(audit)
    }
}

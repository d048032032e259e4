//! The parent: it starts the nodes, has them run the load, and compares what clients were told with what the tables hold.
//!
//! - [`Cluster`]: nodes that run, from their start to their end; [`measure`]: some runs on one cluster.
//! - `child`: a node, as the parent sees it. `meeting`: where nodes connect, and ask the control store.

mod child;
mod meeting;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rialto_cluster::control::MemoryStore;
use rialto_cluster::node::{ClusterFacts, NodeFacts, Standing, init};
use rialto_cluster::protocol::replication::Unprotected;
use rialto_measure::RunError;
use rialto_measure::text::say;

use self::child::Child;
use self::meeting::Meeting;
use crate::namespaces::{Networks, NoNetworks};
use crate::node::alone;
use crate::outcome::{Point, Ran};
use crate::priority;
use crate::proxy::{Medium, Proxy};
use crate::spec::{Load, Namespaces, Nodes, Pace, Priority, Spec};
use crate::wire::{Answer, NodeRan, NodeSpec, Order, Stand};
use crate::workload::{self, Audit, Told, Workload};

/// For how long nodes may take until their partitions are led at home, with all replicas in sync.
const SETTLES_WITHIN: Duration = Duration::from_secs(300);
/// How long a promise holds: for so long that a busy machine does not use it up, and primaries stay where they are.
const PROMISE_MS: u32 = 10_000;
/// How long after the first order to run all nodes begin.
const BEGIN_WITHIN: Duration = Duration::from_millis(100);
/// Where a node listens in its namespace.
const PORT: u16 = 7000;

/// Starts a cluster, runs a load on it so often, and ends it. Each run is verified.
///
/// # Errors
/// [`RunError`]; a run whose data are wrong is no error, but told by [`Point::problems`].
pub fn measure(spec: &Spec, load: &Load, runs: u32) -> Result<Point, RunError> {
    if spec.nodes == Nodes::Alone {
        spec.check(load).map_err(RunError::Usage)?;
        make_directory(spec)?;
        let measured = alone::measure(spec, load, runs);
        let _ = fs::remove_dir_all(&spec.directory);
        return measured;
    }
    let mut cluster = Cluster::start(spec, load)?;
    let mut point = Point::new(spec, *load, cluster.has_networks(), cluster.is_real_time());
    let pace = match load.pace {
        Some(Pace::PercentOfPeak(percent)) => {
            let peak = cluster.run(&Load { pace: None, ..*load })?.per_s();
            point.problems.append(&mut cluster.changes);
            point.problems.extend(cluster.problems()?);
            say(&format!("the peak is {peak:.0} transactions a second"));
            Some(Pace::PerSecond(peak * percent / 100.0))
        }
        pace => pace,
    };
    if let Some(Pace::PerSecond(rate)) = pace {
        point.offered_per_s = Some(rate);
    }
    for run in 0..runs {
        let load = Load { seed: load.seed.wrapping_add(u64::from(run)), pace, ..*load };
        point.runs.push(cluster.run(&load)?);
        point.problems.append(&mut cluster.changes);
        point.problems.extend(cluster.problems()?);
    }
    (point.told, point.audit) = (cluster.told.clone(), cluster.audit.clone());
    cluster.close()?;
    Ok(point)
}

/// A cluster that runs.
pub struct Cluster {
    spec: Spec,
    workload: Arc<dyn Workload>,
    children: Vec<Child>,
    /// What clients were told in all runs.
    told: Told,
    /// Partitions that stood otherwise after a run than before it, in words.
    changes: Vec<String>,
    /// What was added up last.
    audit: Audit,
    is_real_time: bool,
    networks: Option<Networks>,
    _proxies: Vec<Proxy>,
    /// The last one to go.
    _meeting: Meeting,
}

impl Cluster {
    /// Starts the nodes, and fills their tables. The directory is removed when the cluster ends.
    ///
    /// # Errors
    /// [`RunError`]: options that make no sense, a directory that is in use, a node that does not start.
    pub fn start(spec: &Spec, load: &Load) -> Result<Cluster, RunError> {
        spec.check(load).map_err(RunError::Usage)?;
        let is_process = matches!(spec.nodes, Nodes::Processes { .. });
        make_directory(spec)?;
        let networks = match spec.network.namespaces {
            Namespaces::IfAllowed if is_process => match Networks::make(spec.shape.nodes) {
                Ok(networks) => Some(networks),
                Err(NoNetworks::MayNot(why)) => {
                    say(&format!("warning: the nodes share the loopback network: {why}"));
                    None
                }
                Err(NoNetworks::Failed(why)) => return Err(failed("making a network of the nodes", why)),
            },
            _ => None,
        };
        let is_real_time = match spec.priority {
            Priority::Normal => false,
            Priority::RealTime => match priority::refusal() {
                None => {
                    let threads = spec.shape.nodes * load.clients;
                    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
                    priority::check(threads, cores).map_err(RunError::Usage)?;
                    if let Some(stops) = priority::stops() {
                        say(&format!("warning: {stops}"));
                    }
                    true
                }
                Some(why) => {
                    say(&format!("warning: the nodes run with normal priority: {why}"));
                    false
                }
            },
        };
        let (addresses, ports) = listen_addresses(spec, networks.as_ref())?;
        let (proxies, seen) = proxies(spec, &addresses, networks.as_ref(), is_real_time)?;
        let store = MemoryStore::new();
        let facts = facts(&seen);
        let cluster = ClusterFacts {
            id: format!("{:032x}", std::process::id()),
            partitions: spec.shape.all_partitions(),
            replicas: spec.shape.replicas,
            unprotected: Unprotected::WhenOnDisk,
            promise_ms: PROMISE_MS,
        };
        init(&store, &cluster, &facts).map_err(|error| failed("making the cluster", error))?;
        let meeting = Meeting::open(store).map_err(|error| failed("opening the parent's socket", error))?;
        let mut children = Vec::new();
        for node in 0..spec.shape.nodes {
            children.push(Child::spawn(spec, node, &meeting, networks.as_ref(), is_real_time)?);
        }
        for child in &mut children {
            child.connect(&meeting)?;
        }
        // From now on each node may have its port.
        drop(ports);
        let workload = workload::of(spec.data);
        let mut cluster = Cluster {
            spec: spec.clone(),
            told: Told::new(workload.kinds().len()),
            changes: Vec::new(),
            audit: Audit::default(),
            workload,
            children,
            is_real_time,
            networks,
            _proxies: proxies,
            _meeting: meeting,
        };
        let replicas = u64::from(spec.shape.all_partitions() * spec.shape.replicas);
        cluster.order(|node| {
            Order::Start(Box::new(NodeSpec {
                shape: spec.shape,
                data: spec.data,
                name: facts[node as usize].name.clone(),
                directory: spec.directory.join(&facts[node as usize].name),
                listen: addresses[node as usize],
                nagle: spec.network.nagle,
                memory_bytes: spec.memory_bytes / replicas,
            }))
        })?;
        cluster.settle()?;
        say("loading");
        cluster.order(|_| Order::Load)?;
        cluster.settle()?;
        Ok(cluster)
    }

    /// Whether each node has a network namespace.
    pub fn has_networks(&self) -> bool {
        self.networks.is_some()
    }

    /// Whether nodes have real-time priority.
    pub fn is_real_time(&self) -> bool {
        self.is_real_time
    }

    /// Runs the load once.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&mut self, load: &Load) -> Result<Ran, RunError> {
        let before = self.stands()?;
        let mut nodes: Vec<NodeRan> = Vec::new();
        // Nodes that were ordered first may leave the parent no core for the orders of the others.
        let begin = SystemTime::now() + BEGIN_WITHIN;
        let from_us = begin.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
        for answer in self.order(|_| Order::Run { load: *load, from_us })? {
            match answer {
                Answer::Ran(ran) => nodes.push(*ran),
                other => return Err(unexpected(&other)),
            }
        }
        for (before, after) in before.iter().zip(self.stands()?) {
            self.changes.extend(changed(before, &after));
        }
        nodes.iter().for_each(|node| self.told.merge(&node.told));
        Ok(Ran::new(nodes))
    }

    /// What the tables do not hold as clients were told, in words; nothing if all is as it must be.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn problems(&mut self) -> Result<Vec<String>, RunError> {
        let mut all = Audit::default();
        for answer in self.order(|_| Order::Audit)? {
            match answer {
                Answer::Audited(audit) => all.merge(audit),
                other => return Err(unexpected(&other)),
            }
        }
        self.audit = all;
        Ok(self.workload.problems(&self.audit, &self.told, self.spec.shape.all_partitions()))
    }

    /// Ends the nodes, and removes their data.
    ///
    /// # Errors
    /// [`RunError`]: a node has failed.
    pub fn close(mut self) -> Result<(), RunError> {
        // A process has nothing to bring to the disk: its data go.
        if self.spec.nodes == Nodes::Threads {
            self.order(|_| Order::Close)?;
        }
        Ok(())
    }

    /// How all partitions stand, in an order that stays.
    fn stands(&mut self) -> Result<Vec<Stand>, RunError> {
        let mut all = Vec::new();
        for answer in self.order(|_| Order::Stands)? {
            match answer {
                Answer::Stands(of_node) => all.extend(of_node),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(all)
    }

    /// Waits until each partition is led at home, with all replicas in sync.
    fn settle(&mut self) -> Result<(), RunError> {
        let began = Instant::now();
        loop {
            let mut missing = None;
            for answer in self.order(|_| Order::Settle)? {
                match answer {
                    Answer::Settled(Ok(())) => {}
                    Answer::Settled(Err(why)) => missing = Some(why),
                    other => return Err(unexpected(&other)),
                }
            }
            let Some(missing) = missing else { return Ok(()) };
            if began.elapsed() > SETTLES_WITHIN {
                return Err(failed("starting the nodes", io::Error::other(missing)));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Gives each node an order, and waits for all answers.
    fn order(&mut self, order: impl Fn(u32) -> Order) -> Result<Vec<Answer>, RunError> {
        for (node, child) in self.children.iter_mut().enumerate() {
            child.send(&order(node as u32))?;
        }
        self.children.iter_mut().map(Child::answer).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.children.clear();
        let _ = fs::remove_dir_all(&self.spec.directory);
    }
}

fn failed(during: &'static str, error: impl ToString) -> RunError {
    RunError::Io { during, cause: io::Error::other(error.to_string()) }
}

/// What is wrong with a run in which a partition has changed: it was not led, or not protected, as was asked for.
fn changed(before: &Stand, after: &Stand) -> Option<String> {
    (before != after).then(|| {
        format!(
            "partition {} had {before} before a run, and {after} after it: its figures are not those of the cluster that was asked \
             for; a machine with less other load, or fewer clients, leaves standbys the time to answer",
            before.partition
        )
    })
}

fn unexpected(answer: &Answer) -> RunError {
    failed("running the nodes", format!("a node has answered {answer:?}"))
}

/// Makes the directory of the nodes' data. Nothing of another program is removed later.
fn make_directory(spec: &Spec) -> Result<(), RunError> {
    let path = spec.directory.display();
    let wrong = |why: &dyn std::fmt::Display| {
        RunError::Directory(format!("{path}: {why}; choose another with --data DIR"))
    };
    match fs::read_dir(&spec.directory).map(|mut entries| entries.next().is_some()) {
        Ok(true) => Err(wrong(&"it is not empty")),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(&spec.directory).map_err(|error| wrong(&error))
        }
        Err(error) => Err(wrong(&error)),
    }
}

/// Where nodes listen; and what holds their ports until they do.
fn listen_addresses(
    spec: &Spec,
    networks: Option<&Networks>,
) -> Result<(Vec<SocketAddr>, Vec<TcpListener>), RunError> {
    if networks.is_some() {
        let of = |node| SocketAddr::new(Networks::address(node), PORT);
        return Ok(((0..spec.shape.nodes).map(of).collect(), Vec::new()));
    }
    let bind = || -> io::Result<(SocketAddr, TcpListener)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok((listener.local_addr()?, listener))
    };
    let bound = (0..spec.shape.nodes).map(|_| bind()).collect::<io::Result<Vec<_>>>();
    Ok(bound.map_err(|error| failed("looking for free ports", error))?.into_iter().unzip())
}

/// A slow network before the nodes, if there is to be one; and where nodes reach each other.
fn proxies(
    spec: &Spec,
    addresses: &[SocketAddr],
    networks: Option<&Networks>,
    is_real_time: bool,
) -> Result<(Vec<Proxy>, Vec<SocketAddr>), RunError> {
    if !spec.network.is_slow() {
        return Ok((Vec::new(), addresses.to_vec()));
    }
    let priority = if is_real_time { Priority::RealTime } else { Priority::Normal };
    let medium = Arc::new(Medium::new(spec.network.mbit, spec.network.delay));
    let at = networks.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |_| Networks::switch_address());
    let start = |to: &SocketAddr| {
        let start = || Proxy::start(at, *to, medium.clone(), priority).map_err(|error| error.to_string());
        networks.map_or_else(start, |networks| networks.in_switch(start))
    };
    let proxies: Vec<Proxy> = addresses
        .iter()
        .map(start)
        .collect::<Result<_, _>>()
        .map_err(|why| failed("starting a proxy", why))?;
    let seen = proxies.iter().map(Proxy::address).collect();
    Ok((proxies, seen))
}

fn facts(seen: &[SocketAddr]) -> Vec<NodeFacts> {
    let facts = |(node, address): (usize, &SocketAddr)| NodeFacts {
        node: node as u32,
        name: format!("node{node}"),
        address: address.to_string(),
        sql: "127.0.0.1:0".to_owned(),
        standing: Standing::Member,
        directory: None,
    };
    seen.iter().enumerate().map(facts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_loses_its_standby_or_its_primary_is_told() {
        let standing =
            |epoch, in_sync: &[u32]| Stand { partition: 3, serves: true, epoch, in_sync: in_sync.to_vec() };
        let whole = standing(4, &[0, 1]);
        assert_eq!(changed(&whole, &standing(4, &[0, 1])), None);
        let lost = changed(&whole, &standing(4, &[0])).unwrap();
        assert!(
            lost.contains("partition 3") && lost.contains("[0, 1]") && lost.contains("[0] after"),
            "{lost}"
        );
        assert!(changed(&whole, &standing(6, &[0, 1])).is_some());
        let away = changed(&whole, &Stand { serves: false, ..standing(6, &[0, 1]) }).unwrap();
        assert!(away.contains("not led here"), "{away}");
    }
}

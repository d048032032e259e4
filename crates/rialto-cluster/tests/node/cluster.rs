//! [`Cluster`]: some nodes in this process.

use std::net::TcpListener;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rialto::TableDef;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Durability, Options};
use rialto_cluster::control::MemoryStore;
use rialto_cluster::net::Security;
use rialto_cluster::node::{
    Admitted, ClusterFacts, HostedReplica, Joined, LinkOptions, Manifest, Node, NodeFacts, NodeOptions,
    NotServing, Outcome, Standing, first_primary, init, init_restored, make_table, restore_partition,
};
use rialto_cluster::protocol::replication::{ReplicationOptions, Unprotected};
use rialto_cluster::protocol::transactions::Level;
use rialto_cluster::protocol::{NodeId, PartitionId};

/// How long a test waits for what has to come about. It is never asserted that something takes less. With bugs put back it may never
/// come: `RIALTO_PATIENCE_S` gives a number of seconds for what one step takes, and a cluster takes several.
pub fn patience() -> Duration {
    let seconds = std::env::var("RIALTO_PATIENCE_S").ok();
    let seconds = seconds.map(|text| text.parse::<u64>().expect("a number of seconds"));
    Duration::from_secs(seconds.map_or(120, |seconds| 4 * seconds))
}

/// A directory that goes with the test.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("rialto-node-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Nodes in this process, by number; those that are down are missing.
pub struct Cluster {
    pub store: MemoryStore,
    /// Each node's client of the store.
    pub clients: Vec<Arc<MemoryStore>>,
    pub nodes: Vec<Option<Node>>,
    pub replication: ReplicationOptions,
    /// That of the nodes that are started from now on.
    pub repair_after: Option<Duration>,
    pub copy_bytes_per_second: Option<NonZeroU64>,
    /// The same.
    pub move_patience: Duration,
    /// The same.
    pub compare_every: Option<Duration>,
    directory: Directory,
    /// Those of nodes that were not started yet: until then nothing else gets their ports.
    listeners: Vec<Option<TcpListener>>,
}

impl Cluster {
    /// A cluster whose nodes all run. When one stops, others soon take over from it; on a busy machine they may do so
    /// although none has stopped.
    pub fn new(name: &str, nodes: u32, partitions: u32, replicas: u32) -> Cluster {
        Cluster::made(name, (nodes, partitions, replicas), Unprotected::WhenOnDisk, None, (quick(), None))
    }

    /// The same for tests in which primaries and the replicas in sync are to stay, whatever else the machine does.
    pub fn calm(name: &str, nodes: u32, partitions: u32, replicas: u32) -> Cluster {
        Cluster::calm_with(name, nodes, (partitions, replicas), Unprotected::WhenOnDisk)
    }

    /// A calm one, in which the redo waits for this long for transactions that read at a replica.
    pub fn calm_and_yielding(name: &str, nodes: u32, redo_waits_max: Duration) -> Cluster {
        let replication = ReplicationOptions { redo_waits_max, ..calm() };
        Cluster::made(name, (nodes, 1, nodes), Unprotected::WhenOnDisk, None, (replication, None))
    }

    /// A calm one, with an operator's choice for unprotected partitions.
    pub fn calm_with(
        name: &str,
        nodes: u32,
        (partitions, replicas): (u32, u32),
        unprotected: Unprotected,
    ) -> Cluster {
        Cluster::made(name, (nodes, partitions, replicas), unprotected, None, (calm(), None))
    }

    /// A calm one of two nodes, which compare replicas in the background.
    pub fn comparing(name: &str, partitions: u32, every: Duration) -> Cluster {
        let unprotected = Unprotected::WhenOnDisk;
        Cluster::made(name, (2, partitions, 2), unprotected, None, (calm(), Some(every)))
    }

    /// A calm one that is made of a backup.
    pub fn restored(name: &str, nodes: u32, replicas: u32, backup: &Path) -> Cluster {
        let partitions = Manifest::verify(backup).unwrap().partitions.len() as u32;
        let unprotected = Unprotected::WhenOnDisk;
        Cluster::made(name, (nodes, partitions, replicas), unprotected, Some(backup), (calm(), None))
    }

    fn made(
        name: &str,
        (nodes, partitions, replicas): (u32, u32, u32),
        unprotected: Unprotected,
        backup: Option<&Path>,
        (replication, compare_every): (ReplicationOptions, Option<Duration>),
    ) -> Cluster {
        let store = MemoryStore::new();
        // A port is given back when its node starts.
        let listeners: Vec<_> = (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let facts: Vec<_> = (0..nodes)
            .zip(&listeners)
            .map(|(node, listener)| NodeFacts {
                node,
                name: format!("node-{node}"),
                address: listener.local_addr().unwrap().to_string(),
                sql: "127.0.0.1:0".to_owned(),
                standing: Standing::Member,
                directory: None,
            })
            .collect();
        let promise_ms = replication.promise.as_millis() as u32;
        let cluster =
            ClusterFacts { id: format!("{:032x}", 77), partitions, replicas, unprotected, promise_ms };
        let directory = Directory::new(name);
        match backup {
            None => init(&store, &cluster, &facts).unwrap(),
            Some(backup) => {
                let manifest = Manifest::verify(backup).unwrap();
                for of in &manifest.partitions {
                    let node = first_primary(&facts, PartitionId(of.partition));
                    restore_partition(backup, of, &directory.path().join(&node.name)).unwrap();
                }
                init_restored(&store, &cluster, &facts, &manifest).unwrap();
            }
        }
        let nodes = (0..nodes).map(|_| None).collect::<Vec<_>>();
        let listeners = listeners.into_iter().map(Some).collect();
        let clients = nodes.iter().map(|_| Arc::new(store.another_client())).collect();
        let mut cluster = Cluster {
            store,
            clients,
            nodes,
            replication,
            repair_after: None,
            copy_bytes_per_second: None,
            move_patience: Duration::from_secs(120),
            compare_every,
            directory,
            listeners,
        };
        for node in 0..cluster.nodes.len() {
            cluster.start(node);
        }
        cluster
    }

    pub fn start(&mut self, node: usize) {
        let name = format!("node-{node}");
        let options = NodeOptions {
            directory: self.directory.path().join(&name),
            takes_over: false,
            name,
            database: small(),
            replication: self.replication,
            repair_after: self.repair_after,
            copy_bytes_per_second: self.copy_bytes_per_second,
            move_patience: self.move_patience,
            compare_every: self.compare_every,
            security: Security::PlainOnLoopback,
            links: LinkOptions::default(),
            make: Arc::new(make),
            procedures: crate::calls::procedures(node),
        };
        drop(self.listeners[node].take());
        self.clients[node] = Arc::new(self.store.another_client());
        self.nodes[node] = Some(Node::open(options, self.clients[node].clone()).unwrap());
    }

    /// Adds a node, which does not run yet. Gives its number.
    pub fn enter(&mut self) -> usize {
        let number = self.nodes.len();
        let name = format!("node-{number}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let joined = NodeFacts::join(&self.store, &name, &address, "127.0.0.1:0").unwrap();
        assert!(matches!(&joined, Joined::New(node) if node.node == number as u32), "{joined:?}");
        let again = NodeFacts::join(&self.store, &name, &address, "127.0.0.1:0").unwrap();
        assert!(matches!(again, Joined::Before(_)), "{again:?}");
        self.nodes.push(None);
        self.clients.push(Arc::new(self.store.another_client()));
        self.listeners.push(Some(listener));
        number
    }

    /// Adds a node, and starts it. Gives its number.
    pub fn join(&mut self) -> usize {
        let number = self.enter();
        self.start(number);
        number
    }

    /// Where a node has its replica of a partition, if it has one.
    pub fn directory_of(&self, node: usize, partition: u32) -> PathBuf {
        self.directory.path().join(format!("node-{node}/partition-{partition}"))
    }

    /// Whether a node has a directory for a replica of a partition.
    pub fn has_directory(&self, node: usize, partition: u32) -> bool {
        self.directory_of(node, partition).exists()
    }

    pub fn stop(&mut self, node: usize) {
        self.nodes[node].take().unwrap().close();
    }

    pub fn node(&self, node: usize) -> &Node {
        self.nodes[node].as_ref().unwrap()
    }

    pub fn replica(&self, node: usize, partition: u32) -> Arc<HostedReplica> {
        let mut found = None;
        soon("the replica is there", || {
            found = self.node(node).replica(PartitionId(partition));
            found.is_some()
        });
        found.unwrap()
    }

    /// The node that serves a partition.
    pub fn primary(&self, partition: u32) -> usize {
        let mut found = None;
        soon("a replica serves", || {
            found = (0..self.nodes.len()).find(|node| {
                let node = self.nodes[*node].as_ref();
                let replica = node.and_then(|node| node.replica(PartitionId(partition)));
                replica.is_some_and(|replica| replica.admit().is_ok())
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until so many replicas of a partition are in sync.
    pub fn in_sync(&self, partition: u32, replicas: usize) {
        soon("the replicas are in sync", || {
            let primary = self.primary(partition);
            let status = self.replica(primary, partition).status();
            status.configuration.is_some_and(|configuration| configuration.in_sync.len() >= replicas)
        });
    }

    /// Writes a row at a level, wherever the primary is. Gives whether it was answered.
    pub fn write(&self, partition: u32, id: i64, level: Level) -> bool {
        let primary = self.primary(partition);
        match self.replica(primary, partition).admit() {
            Ok(db) => insert(&db, id, level).is_ok(),
            Err(_) => false,
        }
    }

    /// The numbers of the rows that a partition's primary has.
    pub fn rows(&self, partition: u32) -> Vec<i64> {
        let mut rows = None;
        soon("the rows are read", || {
            let primary = self.primary(partition);
            let replica = self.replica(primary, partition);
            if let Ok(db) = replica.admit() {
                let (read, ticket) = read_all(db.database());
                if db.answer(ticket, Level::Standby).is_ok() {
                    rows = Some(read);
                }
            }
            rows.is_some()
        });
        rows.unwrap()
    }

    pub fn switch_over(&self, partition: u32, to: usize) {
        let primary = self.primary(partition);
        self.replica(primary, partition).switch_over(NodeId(to as u32));
    }

    /// Asks for a planned change of the primary until this node serves: one that is not in sync at the moment, say, is
    /// not changed to.
    pub fn change_primary(&self, partition: u32, to: usize) {
        let mut asked: Option<Instant> = None;
        soon("the node serves the partition", || {
            if self.primary(partition) == to {
                return true;
            }
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
                self.switch_over(partition, to);
                asked = Some(Instant::now());
            }
            false
        });
    }
}

/// Times with which tests that stop nodes need not wait for long.
fn quick() -> ReplicationOptions {
    ReplicationOptions {
        promise: Duration::from_millis(1500),
        drift_margin: Duration::from_millis(150),
        heartbeat: Duration::from_millis(150),
        silent_after: Duration::from_millis(700),
        retry: Duration::from_millis(200),
        ..ReplicationOptions::default()
    }
}

/// Times that a busy machine does not use up.
fn calm() -> ReplicationOptions {
    ReplicationOptions {
        promise: Duration::from_secs(10),
        silent_after: Duration::from_secs(5),
        lag_max: Duration::from_secs(30),
        opening_patience: Duration::from_secs(60),
        redo_waits_max: Duration::from_secs(600),
        ..quick()
    }
}

/// Small databases, whose log is durable at level 1 unless a commit asks for more.
fn small() -> Options {
    Options {
        durability: Durability::Memory,
        memory_bytes: 64 << 20,
        log_bytes_max: 64 << 20,
        log_buffer_bytes: 1 << 20,
        ..Options::default()
    }
}

fn make(db: &Database) -> rialto::Result<()> {
    make_table(db)?;
    let columns = vec![Column::new("id", ColumnType::Int8)];
    let def = TableDef::new("numbers", columns).with_primary_key(&["id"]);
    db.transact(|tx| tx.create_table(&def).map(drop))
}

/// Inserts a row, and waits until that may be answered.
pub fn insert(db: &Admitted, id: i64, level: Level) -> Result<(), NotServing> {
    let ran = db.database().submit(|tx| {
        let table = tx.table("numbers")?;
        tx.insert(&table, &[Value::Int8(id)])
    });
    let unknown = |_| NotServing { primary: None, outcome: Outcome::Unknown };
    let ((), ticket) = ran.map_err(unknown)?;
    db.answer(ticket.lsn(), level)
}

pub fn read_all(db: &Database) -> (Vec<i64>, rialto::Lsn) {
    let ran = db.submit(|tx| {
        let table = tx.table("numbers")?;
        let mut ids = Vec::new();
        tx.scan(&table, &rialto::Scan::all(), |_, row| {
            ids.push(row.get_i64(0)?);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(ids)
    });
    let (ids, ticket) = ran.unwrap();
    (ids, ticket.lsn())
}

pub fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < patience(), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

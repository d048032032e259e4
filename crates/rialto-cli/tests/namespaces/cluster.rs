//! [`Cluster`]: nodes and members of etcd, each on a machine of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::common::{Directory, json, run, succeeds, text};
use crate::network::Network;
use crate::tunnel::Tunnel;

/// How long a test waits for what has to come about. It is never asserted that something takes less.
const PATIENCE: Duration = Duration::from_secs(120);
/// The machines of nodes.
pub const NODES: [&str; 3] = ["a", "b", "c"];
/// The machines of members of etcd.
pub const MEMBERS: [&str; 3] = ["e1", "e2", "e3"];
/// A number from the environment.
pub fn number(name: &str, usual: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return usual };
    text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number"))
}

/// How long a promise holds: `RIALTO_PROMISE_MS`, 600 unless set. A machine that does much else needs a longer one.
pub fn promise() -> Duration {
    Duration::from_millis(number("RIALTO_PROMISE_MS", 600))
}

/// One cluster at a time: each has six processes.
static ONE: Mutex<()> = Mutex::new(());

/// A process on a machine.
struct Process {
    machine: &'static str,
    child: Option<Child>,
}

/// Three nodes with three partitions of two replicas each, which talk by TLS, and three members of etcd.
pub struct Cluster {
    // In this order they end.
    nodes: Vec<Process>,
    members: Vec<Process>,
    tunnels: Vec<Tunnel>,
    pub network: Network,
    directory: Directory,
    _one: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Makes one, and starts it; none, which is said, where that is not possible. `prepare` is given the directory in which
    /// the nodes' directories will be.
    pub fn start(name: &str, prepare: impl FnOnce(&Directory)) -> Option<Cluster> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        if Command::new("etcd").arg("--version").output().is_err() {
            return skipped("etcd is not installed (Debian: etcd-server)");
        }
        let machines: Vec<&str> = NODES.into_iter().chain(MEMBERS).collect();
        let network = match Network::new(&machines) {
            Ok(network) => network,
            Err(why) => return skipped(&format!("no network namespaces: {}", why.0)),
        };
        let directory = Directory::new(name);
        std::fs::create_dir_all(directory.path()).expect("a directory");
        prepare(&directory);
        let tunnels = NODES.map(|node| Tunnel::new(&network.namespace_file(node))).into();
        let process = |machine| Process { machine, child: None };
        let (nodes, members) = (NODES.map(process).into(), MEMBERS.map(process).into());
        let mut cluster = Cluster { nodes, members, tunnels, network, directory, _one: one };
        (0..MEMBERS.len()).for_each(|member| cluster.start_member(member));
        cluster.init();
        (0..NODES.len()).for_each(|node| cluster.start_node(node));
        cluster.wait_until_whole();
        Some(cluster)
    }

    fn init(&self) {
        let promise = promise().as_millis().to_string();
        let control = MEMBERS.map(|member| format!("http://{}:2379", self.network.address(member)));
        let mut arguments: Vec<String> =
            ["cluster", "init", "--partitions", "3", "--replicas", "2", "--promise-ms", &promise]
                .map(str::to_owned)
                .into();
        arguments.extend(["--control".to_owned(), control.join(",")]);
        arguments.extend(["--data".to_owned(), self.directory.name().to_owned()]);
        for (node, sql) in NODES.iter().zip(self.sql()) {
            let address = self.network.address(node);
            arguments.extend(["--node".to_owned(), format!("{node}={address}:7000,sql={sql}")]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let began = Instant::now();
        // etcd's members find each other first.
        loop {
            let made = run(&arguments);
            if made.status.success() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{}", text(&made));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Where clients reach the nodes.
    pub fn sql(&self) -> Vec<String> {
        self.tunnels.iter().map(|tunnel| format!("127.0.0.1:{}", tunnel.port())).collect()
    }

    /// The directory of a node.
    pub fn directory(&self, node: usize) -> PathBuf {
        self.directory.path().join(NODES[node])
    }

    fn output(&self, machine: &str) -> [Stdio; 2] {
        let path = self.directory.path().join(format!("{machine}.log"));
        let file = File::options().create(true).append(true).open(path).expect("a file");
        [file.try_clone().expect("a file").into(), file.into()]
    }

    pub fn start_node(&mut self, node: usize) {
        let command = self.network.command(NODES[node], env!("CARGO_BIN_EXE_rialto"));
        self.run_node(node, command);
    }

    /// Starts a node by another program than the one that is tested.
    pub fn start_node_by(&mut self, node: usize, program: &str) {
        let command = self.network.command(NODES[node], program);
        self.run_node(node, command);
    }

    /// Starts a node on a machine that was started again since: what was only in its memory is lost.
    pub fn start_node_after_a_boot(&mut self, node: usize) {
        let mut command = self.network.command(NODES[node], "sh");
        // This is seen on that machine alone.
        let shows_boot =
            "mount --bind /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id && exec \"$@\"";
        command.args(["-c", shows_boot, "sh", env!("CARGO_BIN_EXE_rialto")]);
        self.run_node(node, command);
    }

    fn run_node(&mut self, node: usize, mut command: Command) {
        command.args(["cluster", "node", "--memory-bytes", "200000000", "--log-bytes", "67108864", "--data"]);
        let [out, err] = self.output(NODES[node]);
        let child = command.arg(self.directory(node)).stdout(out).stderr(err).spawn();
        self.nodes[node].child = Some(child.expect("the program starts"));
    }

    /// Ends a node by SIGTERM, as an operator does.
    pub fn end_node(&mut self, node: usize) {
        self.nodes[node].signal("TERM");
        let ended = self.nodes[node].child.take().expect("it runs").wait();
        assert_eq!(ended.expect("it ends").code(), Some(0), "{}", NODES[node]);
    }

    /// Runs a node from a directory until it ends by itself; what it says, and its exit code.
    pub fn node_in(&self, machine: &str, directory: &Path) -> (String, Option<i32>) {
        let mut command = self.network.command(machine, env!("CARGO_BIN_EXE_rialto"));
        let ran =
            command.args(["cluster", "node", "--data"]).arg(directory).output().expect("the program starts");
        (text(&ran), ran.status.code())
    }

    /// The directory of a member of etcd.
    pub fn member_directory(&self, member: usize) -> PathBuf {
        self.directory.path().join(MEMBERS[member])
    }

    pub fn start_member(&mut self, member: usize) {
        let name = MEMBERS[member];
        let own = self.network.address(name);
        let peers = MEMBERS.map(|other| format!("{other}=http://{}:2380", self.network.address(other)));
        let mut command = self.network.command(name, "etcd");
        command.args(["--name", name, "--data-dir"]).arg(self.directory.path().join(name));
        for option in ["--listen-client-urls", "--advertise-client-urls"] {
            command.args([option, &format!("http://{own}:2379")]);
        }
        for option in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            command.args([option, &format!("http://{own}:2380")]);
        }
        command.args(["--initial-cluster-state", "new", "--initial-cluster", &peers.join(",")]);
        let [out, err] = self.output(name);
        self.members[member].child = Some(command.stdout(out).stderr(err).spawn().expect("etcd starts"));
    }

    /// A process is killed, and nothing of it goes on.
    pub fn kill_node(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// The same of a member of etcd.
    pub fn kill_member(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Sends a signal, such as `STOP`.
    pub fn signal_node(&self, node: usize, signal: &str) {
        self.nodes[node].signal(signal);
    }

    /// The same for a member of etcd.
    pub fn signal_member(&self, member: usize, signal: &str) {
        self.members[member].signal(signal);
    }

    /// A command of a cluster, with the directory that has those of the nodes.
    pub fn command(&self, arguments: &[&str]) -> Output {
        let line = ["cluster"].into_iter().chain(arguments.iter().copied());
        run(&line.chain(["--data", self.directory.name()]).collect::<Vec<_>>())
    }

    /// What `rialto cluster status` says.
    pub fn status(&self) -> Json {
        json(&succeeds(self.command(&["status", "--json"])))
    }

    /// Waits until the status is so.
    pub fn wait(&self, what: &str, mut is_so: impl FnMut(&Json) -> bool) -> Json {
        let began = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: this has not come: {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until all partitions serve with both replicas in sync, and nothing is in doubt.
    pub fn wait_until_whole(&self) -> Json {
        self.wait("all are in sync", |status| {
            let whole = |partition: &Json| {
                partition["serves"] == true
                    && partition["in_sync"].as_array().is_some_and(|all| all.len() == 2)
            };
            status["in_doubt"] == 0 && partitions(status).iter().all(whole)
        })
    }

    /// Decides what waits for an operator, until nothing is in doubt: these decisions in turn. Gives how many there were.
    pub fn decide_all(&self, decisions: &[&str]) -> usize {
        let mut decided = 0;
        loop {
            let status = self.wait("all is decided, or waits for an operator", |status| {
                serves(status) && (status["in_doubt"] == 0 || !undecided(status).is_empty())
            });
            if undecided(&status).is_empty() {
                return decided;
            }
            for transaction in undecided(&status) {
                let id = transaction["id"].as_str().expect("a name");
                let decision = decisions[decided % decisions.len()];
                // It may be run again.
                for _ in 0..2 {
                    let done = self.command(&["decide", "--transaction", id, "--decision", decision]);
                    assert!(done.status.success(), "{}", text(&done));
                }
                decided += 1;
            }
        }
    }

    /// The node that leads a partition.
    pub fn primary(&self, partition: usize) -> usize {
        let status = self.status();
        let name = partitions(&status)[partition]["primary"].as_str().expect("a primary").to_owned();
        NODES.iter().position(|node| *node == name).expect("a node")
    }
}

/// Whether all partitions serve.
pub fn serves(status: &Json) -> bool {
    partitions(status).iter().all(|partition| partition["serves"] == true)
}

/// The transactions that wait for an operator.
fn undecided(status: &Json) -> &[Json] {
    status["undecided"].as_array().expect("a list")
}

/// The partitions of a status.
pub fn partitions(status: &Json) -> &[Json] {
    status["partitions"].as_array().expect("partitions")
}

/// Says that the test is left out, and why. With `CI=true` that is a failure.
fn skipped<T>(what: &str) -> Option<T> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{what}, and CI=true is set");
    println!("skipped: {what}");
    None
}

impl Process {
    fn signal(&self, signal: &str) {
        if let Some(child) = &self.child {
            let pid = child.id().to_string();
            let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
            assert!(sent.expect("kill runs").success(), "{}: {signal}", self.machine);
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for node in NODES {
            let path = self.directory.path().join(format!("{node}.log"));
            println!("{node}:\n{}", std::fs::read_to_string(path).unwrap_or_default());
        }
    }
}

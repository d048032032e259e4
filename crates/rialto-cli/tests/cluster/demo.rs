//! [`Demo`]: a cluster by `rialto cluster demo`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::common::{Directory, json, program, run, succeeds};

/// How long a test waits for what has to come about. It is never asserted that something takes less.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// One demo at a time: each has several processes.
static ONE: Mutex<()> = Mutex::new(());

/// A cluster of three nodes and three partitions, each with two replicas.
pub struct Demo {
    child: Child,
    pub directory: Directory,
    pub ready: String,
    _one: MutexGuard<'static, ()>,
}

/// Whether etcd is installed. Where it is not, a test that needs it is left out, and says so; with `CI=true` it fails.
pub fn is_installed() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "etcd is not installed (Debian: etcd-server), and CI=true is set"
    );
    println!("left out: etcd is not installed (Debian: etcd-server)");
    false
}

impl Demo {
    /// Starts it, and waits for its ready line.
    pub fn start(name: &str, options: &[&str]) -> Demo {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = Directory::new(name);
        let (child, ready) = start(&directory, options);
        Demo { child, directory, ready, _one: one }
    }

    /// Starts it again, in the same directory.
    pub fn start_again(&mut self, options: &[&str]) {
        (self.child, self.ready) = start(&self.directory, options);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What `rialto cluster status` says.
    pub fn status(&self) -> Json {
        json(&succeeds(run(&["cluster", "status", "--data", self.directory.name(), "--json"])))
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
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until all nodes are up, and all replicas in sync.
    pub fn wait_until_whole(&self) -> Json {
        self.wait("all are in sync", |status| {
            nodes(status).iter().all(|node| node["state"] == "up")
                && partitions(status).iter().all(|partition| {
                    partition["serves"] == true && partition["in_sync"].as_array().unwrap().len() == 2
                })
        })
    }

    /// A command of a cluster with the demo's directory.
    pub fn command(&self, arguments: &[&str]) -> std::process::Output {
        command(self.directory.name(), arguments)
    }

    /// A command of a cluster with the directory of one node, as on a machine that has only that.
    pub fn command_at(&self, node: &str, arguments: &[&str]) -> std::process::Output {
        command(self.directory.path().join(node).to_str().unwrap(), arguments)
    }

    /// Starts a node by hand.
    pub fn start_node(&self, name: &str) -> Child {
        let directory = self.directory.path().join(name);
        let mut command = program(&["cluster", "node", "--memory-bytes", "300000000", "--data"]);
        command.arg(directory).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the program starts")
    }

    /// The pids of all processes of the demo but its own: those whose command lines name its directory.
    pub fn processes(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let is_one = String::from_utf8_lossy(&line).contains(self.directory.name());
            if is_one && pid != self.pid() {
                found.push(pid);
            }
        }
        found
    }

    /// The pid of the demo's etcd.
    pub fn etcd(&self) -> u32 {
        let is_etcd = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "etcd")
        };
        self.processes().into_iter().find(is_etcd).expect("etcd runs")
    }

    /// Ends it by a signal, and waits until none of its processes is there. Gives the exit code.
    pub fn end_by(&mut self, signal: &str) -> Option<i32> {
        send(signal, self.pid());
        let code = self.child.wait().expect("it ends").code();
        let began = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return code;
            }
            assert!(began.elapsed() < PATIENCE, "these are left: {left:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // The logs say why.
            for entry in std::fs::read_dir(self.directory.path()).into_iter().flatten().flatten() {
                let path = entry.path();
                let is_of_a_node =
                    path.extension().is_some_and(|of| of == "log") && !path.ends_with("etcd.log");
                if is_of_a_node {
                    println!("{}:\n{}", path.display(), std::fs::read_to_string(&path).unwrap_or_default());
                }
            }
        }
        // Those that a test has started by hand.
        for pid in self.processes() {
            send("KILL", pid);
        }
    }
}

fn start(directory: &Directory, options: &[&str]) -> (Child, String) {
    let mut command = program(&["cluster", "demo", "--memory-bytes", "900000000", "--data"]);
    command.arg(directory.path()).args(options).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line comes");
    if !line.starts_with("ready sql=127.0.0.1:") {
        let _ = child.kill();
        panic!("it is not ready: {line:?}");
    }
    (child, line.trim_end().to_owned())
}

/// Sends a signal, such as `KILL`.
fn command(data: &str, arguments: &[&str]) -> std::process::Output {
    let all: Vec<&str> =
        ["cluster"].into_iter().chain(arguments.iter().copied()).chain(["--data", data]).collect();
    run(&all)
}

pub fn send(signal: &str, pid: u32) {
    let _ = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().expect("kill runs");
}

pub fn nodes(status: &Json) -> &[Json] {
    status["nodes"].as_array().expect("nodes")
}

pub fn partitions(status: &Json) -> &[Json] {
    status["partitions"].as_array().expect("partitions")
}

/// The node of a name.
pub fn node<'a>(status: &'a Json, name: &str) -> &'a Json {
    nodes(status).iter().find(|node| node["name"] == name).expect("the node")
}

/// The name of the node that leads a partition.
pub fn primary(status: &Json, partition: usize) -> String {
    partitions(status)[partition]["primary"].as_str().expect("a primary").to_owned()
}

/// The pid of the node of a name.
pub fn pid(status: &Json, name: &str) -> u32 {
    u32::try_from(node(status, name)["pid"].as_u64().expect("a pid")).expect("a pid")
}

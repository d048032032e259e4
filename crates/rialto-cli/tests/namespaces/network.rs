//! [`Network`]: machines in network namespaces, on one bridge, and what can be wrong with their links.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the names of all namespaces of these tests begin with; then come the process that has made it, and the machine.
const NAMES: &str = "rialto-r";
/// The machine that has the bridge. This process's own network has nothing of these tests.
const SWITCH: &str = "switch";
/// The first three numbers of all addresses.
const SUBNET: &str = "10.77.0";

/// Machines, each a network namespace with one link to a bridge, which is in a namespace of its own. All of it goes when this is
/// dropped; what a process has left that was killed goes when the next one begins.
pub struct Network {
    machines: Vec<&'static str>,
}

/// Why a network cannot be made here: this process has no right to, or a program is missing.
#[derive(Debug)]
pub struct NotHere(pub String);

/// Runs a command to its end.
///
/// # Panics
/// If it fails otherwise than [`NotHere`] says.
fn run(line: &str) -> Result<(), NotHere> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a command"));
    let output = match command.args(words).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(NotHere(format!("`{line}`: {error}")));
        }
        Err(error) => panic!("`{line}`: {error}"),
    };
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let may_not =
        ["Operation not permitted", "Permission denied"].iter().any(|why_not| why.contains(why_not));
    assert!(may_not, "`{line}`: {why}");
    Err(NotHere(format!("`{line}`: {}", why.trim())))
}

/// Runs a command that has run here before with another machine.
fn must(line: &str) {
    run(line).expect("the network was made by such commands");
}

/// The name of a machine's namespace.
fn namespace(machine: &str) -> String {
    format!("{NAMES}{}-{machine}", std::process::id())
}

/// Removes the namespaces of processes that are gone.
fn remove_left_overs() {
    let Ok(names) = std::fs::read_dir("/run/netns") else { return };
    for name in names.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let pid = name.strip_prefix(NAMES).and_then(|rest| rest.split('-').next());
        if let Some(pid) = pid
            && !Path::new("/proc").join(pid).exists()
        {
            println!("{name} is left of a process that is gone: removed");
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}

impl Network {
    /// Makes the machines.
    ///
    /// # Errors
    /// [`NotHere`].
    pub fn new(machines: &[&'static str]) -> Result<Network, NotHere> {
        run("nft --version")?;
        run("ip -Version")?;
        remove_left_overs();
        let network = Network { machines: machines.to_vec() };
        let switch = namespace(SWITCH);
        run(&format!("ip netns add {switch}"))?;
        run(&format!("ip -n {switch} link add bridge type bridge"))?;
        // Commands of an operator run here.
        run(&format!("ip -n {switch} addr add {SUBNET}.254/24 dev bridge"))?;
        run(&format!("ip -n {switch} link set lo up"))?;
        run(&format!("ip -n {switch} link set bridge up"))?;
        for machine in machines {
            let space = namespace(machine);
            run(&format!("ip netns add {space}"))?;
            run(&format!("ip -n {switch} link add name {machine} type veth peer name eth0 netns {space}"))?;
            run(&format!("ip -n {switch} link set dev {machine} master bridge up"))?;
            run(&format!("ip -n {space} addr add {}/24 dev eth0", network.address(machine)))?;
            run(&format!("ip -n {space} link set eth0 up"))?;
            run(&format!("ip -n {space} link set lo up"))?;
            // Rules that drop what comes from an address are added here.
            run(&format!("ip netns exec {space} nft add table ip cut"))?;
            let chain = "{ type filter hook input priority 0 ; }";
            run(&format!("ip netns exec {space} nft add chain ip cut in {chain}"))?;
        }
        Ok(network)
    }

    /// The file by which a thread enters a machine's namespace.
    pub fn namespace_file(&self, machine: &str) -> PathBuf {
        PathBuf::from("/run/netns").join(namespace(machine))
    }

    /// The address of a machine.
    pub fn address(&self, machine: &str) -> String {
        let at = self.machines.iter().position(|name| *name == machine).expect("a machine");
        format!("{SUBNET}.{}", at + 1)
    }

    /// A program that runs on a machine, in the same process as the command; it is killed when the calling thread ends.
    pub fn command(&self, machine: &str, program: &str) -> Command {
        let parent = std::process::id().to_string();
        let space = namespace(machine);
        let mut command = crate::common::program(&["cluster", "child", "--parent", &parent, "--"]);
        command.args(["ip", "netns", "exec", &space, program]);
        command
    }

    /// A program of an operator: it reaches all machines.
    pub fn operator(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace(SWITCH), program]);
        command
    }

    /// A machine's link goes down: nothing comes, and nothing leaves.
    pub fn cut(&self, machine: &str) {
        must(&format!("ip -n {} link set dev {machine} down", namespace(SWITCH)));
    }

    /// The link is up again.
    pub fn join(&self, machine: &str) {
        must(&format!("ip -n {} link set dev {machine} up", namespace(SWITCH)));
    }

    /// From now on, what some machines send to this one is lost. What it sends to them arrives.
    pub fn lose(&self, machine: &str, from: &[&str]) {
        for other in from {
            let rule = format!("ip saddr {} drop", self.address(other));
            must(&format!("ip netns exec {} nft add rule ip cut in {rule}", namespace(machine)));
        }
    }

    /// Nothing is lost any more.
    pub fn lose_nothing(&self, machine: &str) {
        must(&format!("ip netns exec {} nft flush chain ip cut in", namespace(machine)));
    }

    /// What a machine sends leaves at a megabit in a second: it waits in a queue, for up to 400 ms, and what finds no
    /// place in the queue is lost.
    pub fn slow(&self, machine: &str) {
        let space = namespace(machine);
        must(&format!("tc -n {space} qdisc replace dev eth0 root tbf rate 1mbit burst 4kb latency 400ms"));
    }

    /// It leaves at once again.
    pub fn fast(&self, machine: &str) {
        must(&format!("tc -n {} qdisc del dev eth0 root", namespace(machine)));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The links go with their namespaces.
        for machine in self.machines.iter().copied().chain([SWITCH]) {
            if self.namespace_file(machine).exists() {
                let _ = Command::new("ip").args(["netns", "del", &namespace(machine)]).output();
            }
        }
    }
}

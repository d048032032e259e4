//! [`Network`]: machines in network namespaces, on one bridge, and what can be wrong with their links.

use std::path::PathBuf;
use std::process::Command;

/// Machines, each a network namespace with one link to a bridge. This process has an address on the bridge, too. All of it
/// goes when this is dropped.
pub struct Network {
    /// What the names of its namespaces and links begin with.
    tag: String,
    /// The first three numbers of its addresses.
    subnet: String,
    machines: Vec<&'static str>,
}

/// Why a network cannot be made here.
#[derive(Debug)]
pub struct NotHere(pub String);

/// Runs a command to its end.
fn run(line: &str) -> Result<(), NotHere> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a command"));
    let output = command.args(words).output().map_err(|error| NotHere(format!("`{line}`: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(NotHere(format!("`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

/// Runs a command that has run here before with another machine.
fn must(line: &str) {
    run(line).expect("the network was made by such commands");
}

impl Network {
    /// Makes the machines.
    ///
    /// # Errors
    /// [`NotHere`] if this process has no right to, or a program is missing.
    pub fn new(machines: &[&'static str]) -> Result<Network, NotHere> {
        let pid = std::process::id();
        let subnet = format!("10.{}.{}", 64 + (pid >> 8) % 64, pid % 256);
        // Names of links have 15 letters at most.
        let network = Network { tag: format!("r{pid}"), subnet, machines: machines.to_vec() };
        let (bridge, tag) = (network.bridge(), &network.tag);
        run("nft --version")?;
        run(&format!("ip link add {bridge} type bridge"))?;
        run(&format!("ip addr add {}.254/24 dev {bridge}", network.subnet))?;
        run(&format!("ip link set {bridge} up"))?;
        for machine in machines {
            let (space, outer) = (network.namespace(machine), network.outer(machine));
            run(&format!("ip netns add {space}"))?;
            run(&format!("ip link add {outer} type veth peer name {tag}{machine}e netns {space}"))?;
            run(&format!("ip link set {outer} master {bridge} up"))?;
            run(&format!("ip -n {space} link set {tag}{machine}e name eth0"))?;
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

    fn bridge(&self) -> String {
        format!("{}br", self.tag)
    }

    fn outer(&self, machine: &str) -> String {
        format!("{}{machine}", self.tag)
    }

    fn namespace(&self, machine: &str) -> String {
        format!("rialto-{}-{machine}", self.tag)
    }

    /// The file by which a thread enters a machine's namespace.
    pub fn namespace_file(&self, machine: &str) -> PathBuf {
        PathBuf::from("/run/netns").join(self.namespace(machine))
    }

    /// The address of a machine.
    pub fn address(&self, machine: &str) -> String {
        let at = self.machines.iter().position(|name| *name == machine).expect("a machine");
        format!("{}.{}", self.subnet, at + 1)
    }

    /// A program that runs on a machine, in the same process as the command; it is killed when the calling thread ends.
    pub fn command(&self, machine: &str, program: &str) -> Command {
        let parent = std::process::id().to_string();
        let space = self.namespace(machine);
        let mut command = crate::common::program(&["cluster", "child", "--parent", &parent, "--"]);
        command.args(["ip", "netns", "exec", &space, program]);
        command
    }

    /// A machine's link goes down: nothing comes, and nothing leaves.
    pub fn cut(&self, machine: &str) {
        must(&format!("ip link set {} down", self.outer(machine)));
    }

    /// The link is up again.
    pub fn join(&self, machine: &str) {
        must(&format!("ip link set {} up", self.outer(machine)));
    }

    /// From now on, what some machines send to this one is lost. What it sends to them arrives.
    pub fn lose(&self, machine: &str, from: &[&str]) {
        for other in from {
            let rule = format!("ip saddr {} drop", self.address(other));
            must(&format!("ip netns exec {} nft add rule ip cut in {rule}", self.namespace(machine)));
        }
    }

    /// Nothing is lost any more.
    pub fn lose_nothing(&self, machine: &str) {
        must(&format!("ip netns exec {} nft flush chain ip cut in", self.namespace(machine)));
    }

    /// What a machine sends leaves at a megabit in a second: it waits in a queue, for up to 400 ms, and what finds no
    /// place in the queue is lost.
    pub fn slow(&self, machine: &str) {
        let space = self.namespace(machine);
        must(&format!("tc -n {space} qdisc replace dev eth0 root tbf rate 1mbit burst 4kb latency 400ms"));
    }

    /// It leaves at once again.
    pub fn fast(&self, machine: &str) {
        must(&format!("tc -n {} qdisc del dev eth0 root", self.namespace(machine)));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in &self.machines {
            let _ = run(&format!("ip netns del {}", self.namespace(machine)));
            // The other end of a link goes later than its namespace.
            let _ = run(&format!("ip link del {}", self.outer(machine)));
        }
        let _ = run(&format!("ip link del {}", self.bridge()));
    }
}

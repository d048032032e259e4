//! [`Networks`]: a network namespace for each node, and one for the switch between them.
//!
//! The namespaces have no names: they end with the last process, thread or file handle that has them, however the program
//! ends. A thread moves into one, and what it starts is there, too.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The networks of some nodes.
pub struct Networks {
    switch: File,
    nodes: Vec<File>,
}

/// The addresses: the nodes' begin at `.1`.
const NETWORK: [u8; 3] = [10, 77, 0];
const SWITCH: u8 = 254;

impl Networks {
    /// Makes namespaces for so many nodes, at most 250, and connects them by a switch.
    ///
    /// # Errors
    /// In words: this process may not, or `ip` is missing.
    pub fn make(nodes: u32) -> Result<Networks, String> {
        let new = || new_namespace().map_err(|error| format!("a network namespace cannot be made: {error}"));
        let networks =
            Networks { switch: new()?, nodes: (0..nodes).map(|_| new()).collect::<Result<_, _>>()? };
        networks.in_switch(|| {
            ip("link set lo up")?;
            ip("link add switch type bridge")?;
            ip(&format!("addr add {}/24 dev switch", Networks::switch_address()))?;
            ip("link set switch up")
        })?;
        for (node, namespace) in networks.nodes.iter().enumerate() {
            // The file is one of this process.
            let there = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
            networks.in_switch(|| {
                ip(&format!("link add port{node} type veth peer name net0 netns {there}"))?;
                ip(&format!("link set port{node} master switch up"))
            })?;
            let address = Networks::address(node as u32);
            networks.in_node(node as u32, || {
                ip("link set lo up")?;
                ip(&format!("addr add {address}/24 dev net0"))?;
                ip("link set net0 up")
            })?;
        }
        Ok(networks)
    }

    /// A node's address.
    pub fn address(node: u32) -> IpAddr {
        let [a, b, c] = NETWORK;
        IpAddr::V4(Ipv4Addr::new(a, b, c, node as u8 + 1))
    }

    /// The switch's own address, where proxies are.
    pub fn switch_address() -> IpAddr {
        let [a, b, c] = NETWORK;
        IpAddr::V4(Ipv4Addr::new(a, b, c, SWITCH))
    }

    /// Does something in a node's namespace.
    ///
    /// # Errors
    /// Its own; or this process may not enter it.
    pub fn in_node<T: Send>(
        &self,
        node: u32,
        what: impl FnOnce() -> Result<T, String> + Send,
    ) -> Result<T, String> {
        inside(&self.nodes[node as usize], what)
    }

    /// Does something in the switch's namespace.
    ///
    /// # Errors
    /// Its own; or this process may not enter it.
    pub fn in_switch<T: Send>(&self, what: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
        inside(&self.switch, what)
    }
}

fn new_namespace() -> io::Result<File> {
    let unshare = || {
        #[allow(deprecated, reason = "the flag that it warns of, for tables of file handles, is not given")]
        rustix::thread::unshare(UnshareFlags::NEWNET)?;
        File::open("/proc/thread-self/ns/net")
    };
    on_a_thread(unshare)
}

fn inside<T: Send>(namespace: &File, what: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    on_a_thread(|| {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), network)
            .map_err(|error| format!("a network namespace: {error}"))?;
        what()
    })
}

/// A thread that has moved is not used for anything else.
fn on_a_thread<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(what).join().expect("it does not panic"))
}

/// Runs `ip` of iproute2.
fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| format!("the program ip (Debian: iproute2) does not run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn nodes_reach_each_other_and_nothing_else() {
        let Ok(networks) = Networks::make(2) else { return };
        let listen = |node: u32| {
            let bind = || TcpListener::bind((Networks::address(node), 0)).map_err(|error| error.to_string());
            networks.in_node(node, bind).unwrap()
        };
        let port = listen(1).local_addr().unwrap().port();
        let listener = listen(1);
        let address = listener.local_addr().unwrap();
        assert!(port > 0);
        let connect = move || TcpStream::connect(address).map(drop).map_err(|error| error.to_string());
        assert_eq!(networks.in_node(0, connect), Ok(()));
        assert_eq!(networks.in_switch(connect), Ok(()));
        // Each has a loopback network of its own.
        let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let connect = move || TcpStream::connect(own).map(drop).map_err(|error| error.to_string());
        assert!(networks.in_node(0, connect).is_err());
    }
}

//! [`Tunnel`]: how clients outside reach a node, which takes them only at the loopback address of its machine.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How often the tunnel looks for a new connection.
const LOOK: Duration = Duration::from_millis(2);

/// A port of this process's loopback address that leads to the same port of a machine's.
pub struct Tunnel {
    port: u16,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnel {
    /// Opens one to the machine of a namespace, at a free port.
    pub fn new(namespace: &Path) -> Tunnel {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket takes it");
        let port = listener.local_addr().expect("an address").port();
        let (ends, namespace) = (Arc::new(AtomicBool::new(false)), namespace.to_owned());
        let thread = thread::spawn({
            let ends = ends.clone();
            move || takes(&listener, port, &namespace, &ends)
        });
        Tunnel { port, ends, thread: Some(thread) }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes connections until the tunnel ends. Those that it has taken go on.
fn takes(listener: &TcpListener, port: u16, namespace: &Path, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((client, _)) => {
                let namespace = namespace.to_owned();
                thread::spawn(move || leads(&client, port, &namespace));
            }
            Err(_) => thread::sleep(LOOK),
        }
    }
}

/// Leads one connection, until either end closes it.
fn leads(client: &TcpStream, port: u16, namespace: &Path) {
    let Ok(node) = connect(port, namespace) else { return };
    for stream in [client, &node] {
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_nodelay(true);
    }
    thread::scope(|scope| {
        scope.spawn(|| copy(client, &node));
        copy(&node, client);
    });
}

/// Connects on the machine. The thread is on that machine from then on: its sockets are.
fn connect(port: u16, namespace: &Path) -> io::Result<TcpStream> {
    let namespace = File::open(namespace)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
}

/// Copies one direction. At its end both ends are closed, as by a machine that does not forward any more.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut bytes = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

//! A proxy between a client and a server, which a test tells what to let through.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Bytes go both ways.
    Both,
    /// Bytes go to the server; its answers are swallowed.
    ToServer,
    /// No bytes go; they wait.
    Stalled,
    /// Connections are ended, and new ones at once.
    Cut,
}

/// A proxy in front of one address.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: Mutex<SocketAddr>,
    /// How often connections were frozen.
    freezes: AtomicU64,
    passes: Mutex<Passes>,
    sockets: Mutex<Vec<TcpStream>>,
    is_closed: AtomicBool,
}

impl Proxy {
    /// A proxy in front of an address, through which bytes go both ways. Connections go on until it is dropped.
    pub fn before(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            freezes: AtomicU64::new(0),
            passes: Mutex::new(Passes::Both),
            sockets: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        let taking = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if taking.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                taking.connect(client);
            }
        });
        Proxy { address, shared }
    }

    /// Where it takes connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, new connections go to another address.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock().expect("no panic") = server;
    }

    /// From now on, nothing goes by the connections that there are, and they do not end, as if a link was cut. New ones
    /// are not concerned.
    pub fn freeze(&self) {
        self.shared.freezes.fetch_add(1, Ordering::SeqCst);
    }

    /// From now on, what it lets through.
    pub fn pass(&self, passes: Passes) {
        *self.shared.passes.lock().expect("no panic") = passes;
        if passes == Passes::Cut {
            self.shared.cut();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.pass(Passes::Cut);
        // The thread that takes connections sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn connect(self: &Arc<Shared>, client: TcpStream) {
        if *self.passes.lock().expect("no panic") == Passes::Cut {
            return;
        }
        let (server, freezes) = (*self.server.lock().expect("no panic"), self.freezes.load(Ordering::SeqCst));
        let Ok(server) = TcpStream::connect(server) else { return };
        for (from, to, way) in [(&client, &server, Way::ToServer), (&server, &client, Way::ToClient)] {
            let (from, to) = (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
            self.sockets.lock().expect("no panic").push(from.try_clone().expect("a handle"));
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.copy(from, to, way, freezes));
        }
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, way: Way, freezes: u64) {
        let mut bytes = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let passes = loop {
                match *self.passes.lock().expect("no panic") {
                    Passes::Cut => break Passes::Cut,
                    Passes::Stalled => {}
                    _ if self.freezes.load(Ordering::SeqCst) > freezes => {}
                    passes => break passes,
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            // A connection that was made while all others were cut.
            if passes == Passes::Cut {
                break;
            }
            let passes = passes == Passes::Both || passes == Passes::ToServer && way == Way::ToServer;
            if passes && to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn cut(&self) {
        for socket in self.sockets.lock().expect("no panic").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

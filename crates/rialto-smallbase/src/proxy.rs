//! [`Proxy`]: a slow network in front of a node: a [`Medium`] that all nodes share, with a bandwidth and a delay.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::priority::raise_this_thread;
use crate::spec::Priority;

/// What a packet has beside its bytes: the headers of TCP and IP, and an Ethernet's frame with its gap.
const HEADER_BYTES: u64 = 78;
/// The bytes that are read at once: those of a packet of an Ethernet.
const PACKET_BYTES: usize = 1_460;
/// Packets of one direction of a connection on their way; then its sender waits.
const PACKETS: usize = 64;

/// What all proxies share: one packet after the other, as on an Ethernet of one wire.
pub struct Medium {
    mbit: Option<u32>,
    delay: Duration,
    /// When it has sent what it was given.
    free_at: Mutex<Instant>,
}

impl Medium {
    /// With a bandwidth in megabits a second, if there is a bound, and a delay of each packet.
    pub fn new(mbit: Option<u32>, delay: Duration) -> Medium {
        Medium { mbit, delay, free_at: Mutex::new(Instant::now()) }
    }

    /// Sends a packet of so many bytes. Gives the time at which it arrives.
    pub fn send(&self, bytes: usize) -> Instant {
        let now = Instant::now();
        let Some(mbit) = self.mbit else { return now + self.delay };
        let bits = (bytes as u64 + HEADER_BYTES) * 8;
        let takes = Duration::from_nanos(bits * 1_000 / u64::from(mbit));
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(now) + takes;
        *free_at + self.delay
    }
}

/// A proxy in front of one address, until it is dropped. Its threads run in the network namespace of the caller.
pub struct Proxy {
    address: SocketAddr,
    listener: TcpListener,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Takes connections at a free port of an address, and leads them to another address by the medium. Its threads have this priority:
    /// below that of the nodes they would not run while these do.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub fn start(at: IpAddr, to: SocketAddr, medium: Arc<Medium>, priority: Priority) -> io::Result<Proxy> {
        let listener = TcpListener::bind((at, 0))?;
        let proxy = Proxy {
            address: listener.local_addr()?,
            listener: listener.try_clone()?,
            sockets: Arc::default(),
        };
        let sockets = proxy.sockets.clone();
        thread::spawn(move || {
            if priority == Priority::RealTime {
                // Nodes that have it were allowed to.
                let _ = raise_this_thread();
            }
            // It ends once the listener is shut down.
            while let Ok((client, _)) = listener.accept() {
                // The node is not there yet: its neighbours connect again.
                let _ = connect(client, to, &medium, &sockets);
            }
        });
        Ok(proxy)
    }

    /// Where it takes connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It fails only if there is nothing to end.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for socket in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn connect(
    client: TcpStream,
    to: SocketAddr,
    medium: &Arc<Medium>,
    sockets: &Mutex<Vec<TcpStream>>,
) -> io::Result<()> {
    let node = TcpStream::connect(to)?;
    let mut all = sockets.lock().unwrap_or_else(PoisonError::into_inner);
    for socket in [&client, &node] {
        socket.set_nodelay(true)?;
        all.push(socket.try_clone()?);
    }
    for (from, to) in [(client.try_clone()?, node.try_clone()?), (node, client)] {
        let (packets, arriving) = sync_channel(PACKETS);
        let medium = medium.clone();
        thread::spawn(move || read(from, &medium, &packets));
        thread::spawn(move || write(to, &arriving));
    }
    Ok(())
}

fn read(mut from: TcpStream, medium: &Medium, packets: &SyncSender<(Instant, Vec<u8>)>) {
    let mut bytes = [0; PACKET_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if packets.send((medium.send(count), bytes[..count].to_vec())).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Read);
}

fn write(mut to: TcpStream, arriving: &Receiver<(Instant, Vec<u8>)>) {
    for (at, bytes) in arriving {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (mut from, mut to) = (client.as_ref().unwrap(), client.as_ref().unwrap());
                let _ = io::copy(&mut from, &mut to);
            }
        });
        address
    }

    /// How long it takes to send bytes and to get them back; they are the same.
    fn round(proxy: &Proxy, bytes: usize) -> Duration {
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let sent: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        let began = Instant::now();
        let mut writer = stream.try_clone().unwrap();
        let writing = sent.clone();
        let writing = thread::spawn(move || writer.write_all(&writing).unwrap());
        let mut received = vec![0; bytes];
        stream.read_exact(&mut received).unwrap();
        writing.join().unwrap();
        assert!(received == sent);
        began.elapsed()
    }

    #[test]
    fn a_delay_is_there_in_both_directions() {
        let delay = Duration::from_millis(20);
        let medium = Arc::new(Medium::new(None, delay));
        let proxy = Proxy::start(IpAddr::from([127, 0, 0, 1]), echo(), medium, Priority::Normal).unwrap();
        assert!(round(&proxy, 10) >= 2 * delay);
    }

    #[test]
    fn all_connections_share_the_bandwidth() {
        let medium = Arc::new(Medium::new(Some(10), Duration::ZERO));
        let to = echo();
        let at = IpAddr::from([127, 0, 0, 1]);
        let proxies = [(); 2].map(|()| Proxy::start(at, to, medium.clone(), Priority::Normal).unwrap());
        // 50,000 bytes each way are 80 ms of 10 Mbit/s, and twice as much for two at once.
        let began = Instant::now();
        thread::scope(|scope| {
            for proxy in &proxies {
                scope.spawn(|| assert!(round(proxy, 50_000) >= Duration::from_millis(80)));
            }
        });
        assert!(began.elapsed() >= Duration::from_millis(160));
        // One medium, whichever proxy sends.
        let medium = Medium::new(Some(10), Duration::ZERO);
        let (began, bytes) = (Instant::now(), 1_250_000 - HEADER_BYTES as usize);
        assert!(medium.send(bytes) >= began + Duration::from_secs(1));
        assert!(medium.send(bytes) >= began + Duration::from_secs(2));
    }

    #[test]
    fn a_proxy_that_is_dropped_ends_its_connections() {
        let medium = Arc::new(Medium::new(None, Duration::ZERO));
        let proxy = Proxy::start(IpAddr::from([127, 0, 0, 1]), echo(), medium, Priority::Normal).unwrap();
        round(&proxy, 10);
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        stream.write_all(b"a").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        drop(proxy);
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    }
}

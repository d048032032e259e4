//! [`SqlListener`]: where clients reach a node.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rialto_cluster::node::Node;

/// After an error that all connections may have, so long until the next one is taken.
const PAUSE: Duration = Duration::from_millis(100);

/// The listener for a node's clients, until this is dropped.
pub struct SqlListener {
    address: SocketAddr,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SqlListener {
    /// Takes connections of clients.
    pub fn start(listener: TcpListener, node: Arc<Node>) -> io::Result<SqlListener> {
        let address = listener.local_addr()?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = is_closed.clone();
        let thread = std::thread::Builder::new().name("rialto-sql".to_owned()).spawn(move || {
            for connection in listener.incoming() {
                if closed.load(Ordering::Acquire) {
                    return;
                }
                match connection {
                    Ok(connection) => serve(&node, connection),
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        })?;
        Ok(SqlListener { address, is_closed, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// THE PLACE OF THE SQL SERVER: here a node's client is served. The crate `rialto-cluster` runs no statements yet, so the
/// connection is closed.
fn serve(_node: &Arc<Node>, connection: TcpStream) {
    drop(connection);
}

impl Drop for SqlListener {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        // The thread takes this connection, and ends.
        if TcpStream::connect(self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic there has told of itself.
            let _ = thread.join();
        }
    }
}

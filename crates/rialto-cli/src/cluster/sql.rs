//! [`SqlServer`]: where clients reach a node.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::thread::JoinHandle;

use rialto_cluster::node::Node;
use rialto_server::{ServeOptions, Server};
use tokio::sync::oneshot;

use super::failed::Failed;

/// The server for a node's clients, until this is dropped.
pub struct SqlServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SqlServer {
    /// Serves sessions over the cluster's partitions. It returns once clients can connect; statements wait for the primaries
    /// of their partitions.
    pub fn start(node: &Node, sql: &str, data: &Path) -> Result<SqlServer, Failed> {
        let no_clients = |why: &dyn std::fmt::Display| {
            Failed::unusable(format_args!("no clients can be taken at {sql}: {why}"))
        };
        let mut addresses = sql.to_socket_addrs().map_err(|error| no_clients(&error))?;
        let listen = addresses.next().ok_or_else(|| no_clients(&"it is no address of this machine"))?;
        let data_label = data.display().to_string();
        let options = ServeOptions { listen: Some(listen), data_label, ..ServeOptions::default() };
        let runtime = rialto_server::runtime().map_err(|error| no_clients(&error))?;
        let partitions = node.transactions().partitions();
        let server = runtime
            .block_on(Server::bind_over_partitions(partitions, &options))
            .map_err(|error| no_clients(&error))?;
        let address = server.tcp().ok_or_else(|| no_clients(&"it has no TCP socket"))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            let stop = async {
                // The sender's end stops it, too.
                let _ = stopped.await;
            };
            // Each connection has told its client.
            let _ = runtime.block_on(server.run(stop));
        };
        let thread = std::thread::Builder::new().name("rialto-sql".to_owned()).spawn(serve);
        let thread = thread.map_err(|error| no_clients(&error))?;
        Ok(SqlServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SqlServer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has told of itself.
            let _ = thread.join();
        }
    }
}

//! The start of a transaction server.

use super::Database;
use crate::engine::servers::{KeptOpen, TransactionServer, TransactionServerOptions};
use crate::error::Result;

impl TransactionServer {
    /// Starts a server of the database, which stays open until the server is closed, or it is closed itself.
    ///
    /// # Errors
    /// [`Error::BadDefinition`](crate::Error::BadDefinition) for options that make no sense;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the system has no threads left.
    pub fn start(database: &Database, options: &TransactionServerOptions) -> Result<TransactionServer> {
        let open: KeptOpen = database.running.clone();
        TransactionServer::start_on(database.runtime(), &open, options)
    }
}

//! The start of a transaction server.

use super::Database;
use crate::engine::servers::{KeptOpen, TransactionServer, TransactionServerOptions};
use crate::error::{Error, Result};
use crate::options::Background;

impl TransactionServer {
    /// Starts a transaction server of the database. The database stays open until the server is closed, or until it is
    /// closed itself.
    ///
    /// # Errors
    /// [`Error::BadDefinition`](crate::Error::BadDefinition) for options that make no sense;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the system has no threads left, and for a database without
    /// threads ([`Background::Driven`](crate::Background::Driven)).
    pub fn start(database: &Database, options: &TransactionServerOptions) -> Result<TransactionServer> {
        if database.running.options().background == Background::Driven {
            let what =
                "a transaction server of a database without threads (Options::background Driven)".to_owned();
            return Err(Error::Unsupported { what });
        }
        let open: KeptOpen = database.running.clone();
        TransactionServer::start_on(database.runtime(), &open, options)
    }
}

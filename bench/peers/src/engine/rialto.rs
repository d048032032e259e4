//! Rialto, by the bank of `rialto bench tpcb` itself.

use std::path::Path;
use std::time::{Duration, Instant};

use rialto::{Database, Durability, Options, Residence};
use rialto_measure::driver::Workload;
use rialto_workloads::data::ShapeError;
use rialto_workloads::tpcb::{Client as BankClient, Tpcb};
use serde_json::{Value as Json, json};

use super::{Client, Engine};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::tpcb::{Shape, Sums};

pub const NAME: &str = "rialto";

pub const fn settings(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::Machine => {
            "level 3, all defaults: value logging, fuzzy checkpoints, record locks, serializable; group commit is the \
             engine's own"
        }
        Guarantee::Process => {
            "level 1 (the log ring outlives the process), all else default: value logging, fuzzy checkpoints, record \
             locks, serializable"
        }
    }
}

/// What is open.
pub struct Rialto {
    database: Database,
    bank: Tpcb,
}

fn at<E: std::fmt::Display>(during: &'static str) -> impl FnOnce(E) -> PeerError {
    PeerError::engine(NAME, during)
}

impl Rialto {
    pub fn open(directory: &Path, guarantee: Guarantee, shape: Shape) -> Result<Rialto> {
        let durability = match guarantee {
            Guarantee::Machine => Durability::Disk,
            Guarantee::Process => Durability::Memory,
        };
        let options = Options { durability, ..Options::default() };
        let database = Database::open_with(directory, options).map_err(at("opening"))?;
        let bank = match Tpcb::open_or_load(&database, Residence::Memory, shape, &mut |_| ()) {
            Ok((bank, _)) => bank,
            Err(ShapeError::Failed(cause)) => return Err(at("loading")(cause)),
            Err(ShapeError::OtherShape { found, expected }) => {
                return Err(at("opening the bank")(format!("found {found}, expected {expected}")));
            }
        };
        Ok(Rialto { database, bank })
    }
}

impl Engine for Rialto {
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Client + 'a>> {
        // The seed is of one client.
        Ok(Box::new(RialtoClient { bank: &self.bank, client: self.bank.client(0, seed) }))
    }

    fn audit(&self) -> Result<Sums> {
        let audit = self.bank.audit().map_err(at("reading"))?;
        Ok(Sums {
            balances: [audit.branches.iter().sum(), audit.tellers.iter().sum(), audit.accounts],
            rows: [audit.branches.len() as u64, audit.tellers_count, audit.accounts_count],
            deltas: audit.history.iter().sum(),
            history_rows: audit.history_count,
        })
    }

    fn checkpoint_now_and_not_again(&self) -> Result<()> {
        // The next one in the background begins half a minute after it, unless the log has grown by 2 GiB.
        self.database.checkpoint().map_err(at("making a checkpoint")).map(drop)
    }

    fn recovery(&self) -> Option<Json> {
        let report = self.database.recovery()?;
        let millis = |time: Duration| Json::from(time.as_secs_f64() * 1e3);
        Some(json!({
            "load_ms": millis(report.load_time),
            "loaded_bytes": report.loaded_bytes,
            "record_bytes": report.record_bytes,
            "predicted_ms": report.predicted.map_or(Json::Null, millis),
            "index_ms": millis(report.primary_time + report.secondary_time),
            "redo_ms": millis(report.redo_time),
            "took_ms": millis(report.took()),
            "packets": report.packets,
        }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.close().map_err(at("closing"))
    }
}

struct RialtoClient<'a> {
    bank: &'a Tpcb,
    client: BankClient,
}

impl Client for RialtoClient<'_> {
    fn transact(&mut self, now: Instant) -> Result<()> {
        self.bank.run_one(&mut self.client, now).map_err(at("running a transaction")).map(drop)
    }
}

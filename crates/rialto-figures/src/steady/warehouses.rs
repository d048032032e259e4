//! [`Warehouses`]: TPC-C's transactions, some alone and all in their mix.

use std::time::Instant;

use rialto::{Database, Error, Residence, Result};
use rialto_measure::driver::Workload;
use rialto_workloads::mix::Mix;
use rialto_workloads::tpcc::{Client, Shape, Tpcc};

use super::{Kind, Kinds, loaded};

/// Small enough to be loaded by a program that runs slowly, with new orders enough for the deliveries.
const SHAPE: Shape = Shape { warehouses: 2, items: 5_000, customers: 150 };

/// Two small warehouses.
pub(super) struct Warehouses {
    tpcc: Tpcc,
    client: Client,
}

impl Warehouses {
    pub fn new(database: &Database) -> Result<Warehouses> {
        let tpcc =
            loaded(Tpcc::open_or_load(database, Residence::Memory, SHAPE, Mix::default(), &mut |_| ()))?;
        let client = tpcc.client(0, 1);
        Ok(Warehouses { tpcc, client })
    }
}

impl Kinds for Warehouses {
    fn begin(&mut self, kind: Kind) {
        self.tpcc.set_mix(match kind.not_called() {
            Kind::Tpcc(name) => Mix::only(name),
            _ => Mix::default(),
        });
    }

    #[inline]
    fn run_one(&mut self, _: Kind) -> Result<()> {
        match self.tpcc.run_one(&mut self.client, Instant::now()) {
            // Of an item that there is not.
            Ok(_) | Err(Error::Aborted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

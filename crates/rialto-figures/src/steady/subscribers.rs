//! [`Subscribers`]: TATP's transactions, each alone and all in their mix. Those that do not succeed are counted, too.

use std::time::Instant;

use rialto::{Database, Error, Residence, Result};
use rialto_measure::driver::Workload;
use rialto_workloads::tatp::{Client, Mix, SUBSCRIBERS_PER_SCALE, Shape, Tatp};

use super::{Kind, Kinds, loaded};

/// A tenth of the specification's smallest population.
const SHAPE: Shape = Shape { subscribers: SUBSCRIBERS_PER_SCALE };

pub(super) struct Subscribers {
    tatp: Tatp,
    client: Client,
}

impl Subscribers {
    pub fn new(database: &Database, called: bool) -> Result<Subscribers> {
        let tatp =
            loaded(Tatp::open_or_load(database, Residence::Memory, SHAPE, Mix::default(), &mut |_| ()))?
                .by_calls(called);
        let client = tatp.client(0, 1);
        Ok(Subscribers { tatp, client })
    }
}

impl Kinds for Subscribers {
    fn begin(&mut self, kind: Kind) {
        self.tatp.set_mix(match kind.not_called() {
            Kind::Tatp(name) => Mix::only(name),
            _ => Mix::default(),
        });
    }

    #[inline]
    fn run_one(&mut self, _: Kind) -> Result<()> {
        match self.tatp.run_one(&mut self.client, Instant::now()) {
            Ok(_) | Err(Error::Aborted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

//! [`Cards`]: System M's transactions, each alone and all in their mix.

use std::time::Instant;

use rialto::{Database, Residence, Result};
use rialto_measure::driver::Workload;
use rialto_workloads::card::{Card, Client, Mix, Name, Request, Shape, TODAY};

use super::{Kind, Kinds, loaded};

/// Accounts that the loaded hot cards are apart.
const HOT_EVERY: i32 = 400;

/// The cards of the paper's sizes.
pub(super) struct Cards {
    card: Card,
    client: Client,
    /// A time that no card transaction looks at.
    began: Instant,
    /// The accounts whose cards were last lost and found: every one is lost once, then found once.
    lost: i32,
    found: i32,
}

impl Cards {
    pub fn new(database: &Database) -> Result<Cards> {
        let card = loaded(Card::open_or_load(
            database,
            Residence::Memory,
            Shape::of_scale(1),
            Mix::default(),
            &mut |_| (),
        ))?;
        let client = card.client(0, 1);
        Ok(Cards { card, client, began: Instant::now(), lost: 0, found: 0 })
    }
}

/// The next account after one whose card is not hot from the start.
fn next(account: &mut i32) -> i32 {
    *account += if (*account + 1) % HOT_EVERY == 0 { 2 } else { 1 };
    *account
}

impl Kinds for Cards {
    fn begin(&mut self, kind: Kind) {
        self.card.set_mix(match kind {
            Kind::Card(name) => Mix::only(name),
            _ => Mix::default(),
        });
    }

    #[inline]
    fn run_one(&mut self, kind: Kind) -> Result<()> {
        let Cards { card, client, began, lost, found } = self;
        match kind {
            // Drawn, about half of them would find nothing to do.
            Kind::Card(Name::Lost) => {
                card.run(&Request::Lost { account: next(lost), today: TODAY }, client).map(drop)
            }
            Kind::CardDrawn => {
                card.draw_one(client);
                Ok(())
            }
            Kind::Card(Name::Found) => card.run(&Request::Found { account: next(found) }, client).map(drop),
            _ => card.run_one(client, *began).map(drop),
        }
    }
}

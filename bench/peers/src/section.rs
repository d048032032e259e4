//! [`Section`]: all engines under one guarantee.

use std::path::Path;

use rialto_measure::text::say;

use crate::args::Args;
use crate::bank::{Bank, Open, Order};
use crate::engine::EngineName;
use crate::error::Result;
use crate::guarantee::Guarantee;
use crate::slice::{Offer, Slice, slice};

/// The slices of one engine with one number of clients.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Which engine.
    pub engine: EngineName,
    /// How many clients.
    pub clients: u32,
    /// One for each round.
    pub slices: Vec<Slice>,
}

/// All engines under one guarantee.
#[derive(Debug, Clone)]
pub struct Section {
    /// Which.
    pub guarantee: Guarantee,
    /// Each engine's bank.
    pub banks: Vec<Bank>,
    /// By clients, then by engine.
    pub cells: Vec<Cell>,
}

impl Section {
    /// Loads a bank into each engine, runs all slices, and checks all banks. Engines alternate, in another order in each
    /// round: what an engine still does in the background falls on no other one alone.
    ///
    /// # Errors
    /// If an engine fails. A bank that does not add up is a result.
    pub fn measure(args: &Args, guarantee: Guarantee, directory: &Path) -> Result<Section> {
        let mut open = Vec::new();
        for name in args.common.engines() {
            let own = directory.join(name.name());
            Open::load(&args.common, guarantee, name, &own)?;
            open.push(Open::measured(&args.common, guarantee, name, &own)?);
        }
        let mut cells = Vec::new();
        let mut order = Order::new(open.len());
        for &clients in &args.clients {
            let mut these: Vec<Cell> =
                open.iter().map(|open| Cell { engine: open.name, clients, slices: Vec::new() }).collect();
            for round in 0..args.rounds {
                for &place in order.round() {
                    let seed = (u64::from(clients) << 40) | (u64::from(round) << 8) | 1;
                    let offer = Offer { clients, rate: None, time: args.seconds, seed };
                    let measured = slice(&*open[place].engine, offer)?;
                    say(&format!(
                        "  {}, {clients} clients, round {} of {}: {:>9.0} transactions/s",
                        open[place].name.name(),
                        round + 1,
                        args.rounds,
                        measured.per_s
                    ));
                    open[place].committed += measured.committed;
                    these[place].slices.push(measured);
                }
            }
            cells.append(&mut these);
        }
        let mut banks = Vec::new();
        for open in open {
            let own = directory.join(open.name.name());
            banks.push(open.finish(&args.common, &own)?);
        }
        Ok(Section { guarantee, banks, cells })
    }
}

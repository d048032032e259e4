//! [`Report`]: the table, and the JSON object.

use std::fmt::Write;

use rialto_measure::machine::Machine;
use rialto_measure::spread::Spread;
use rialto_measure::text::{aligned, row, thousands};
use serde_json::{Value as Json, json};

use crate::args::Args;
use crate::bank::Bank;
use crate::engine::EngineName;
use crate::error::Result;
use crate::section::{Cell, Section};
use crate::slice::Slice;
use crate::tpcb::Shape;

/// What a run found.
pub struct Report<'a> {
    args: &'a Args,
    shape: Shape,
    machine: Machine,
    sections: Vec<Section>,
}

/// Rialto against the peer with the highest median.
#[derive(Debug, Clone, Copy)]
struct Ratio {
    peer: EngineName,
    /// Of the slices of the same round.
    spread: Spread,
}

fn per_s(cell: &Cell) -> Option<Spread> {
    Spread::of(cell.slices.iter().map(|slice| slice.per_s))
}

fn ratio(cells: &[Cell], clients: u32) -> Option<Ratio> {
    let of = |cell: &&Cell| cell.clients == clients;
    let own = cells.iter().filter(of).find(|cell| cell.engine == EngineName::Rialto)?;
    let peers = cells.iter().filter(of).filter(|cell| cell.engine != EngineName::Rialto);
    let median = |cell: &Cell| per_s(cell).map_or(0.0, |spread| spread.median);
    let best = peers.max_by(|one, other| median(one).total_cmp(&median(other)))?;
    let rounds = own.slices.iter().zip(&best.slices);
    let spread = Spread::of(rounds.map(|(own, peer)| own.per_s / peer.per_s))?;
    Some(Ratio { peer: best.engine, spread })
}

impl<'a> Report<'a> {
    /// Of these sections, on this machine.
    ///
    /// # Errors
    /// As [`Common::shape`](crate::args::Common::shape).
    pub fn new(args: &'a Args, sections: Vec<Section>) -> Result<Report<'a>> {
        Ok(Report { args, shape: args.common.shape()?, machine: Machine::here(), sections })
    }

    /// Whether all banks add up.
    pub fn consistent(&self) -> bool {
        self.sections.iter().flat_map(|section| &section.banks).all(|bank| bank.problem.is_none())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "TPC-B, {}\n{}\n{} rounds of {} s for each engine and number of clients, engines alternating; medians \
             (least to most)\n",
            self.shape,
            &self.machine.to_string(),
            self.args.rounds,
            self.args.seconds.as_secs_f64(),
        );
        for section in &self.sections {
            text.push('\n');
            text.push_str(&self.section(section));
        }
        text
    }

    fn section(&self, section: &Section) -> String {
        let mut rates = vec![self.heading("transactions/s")];
        let mut latencies = vec![self.heading("p50 / p99, us")];
        for bank in &section.banks {
            let cells: Vec<&Cell> = section.cells.iter().filter(|cell| cell.engine == bank.engine).collect();
            let name = || vec![bank.engine.name().to_owned()];
            let line = |rows: &mut Vec<Vec<String>>, show: &dyn Fn(&Cell) -> Option<String>| {
                let shown = cells.iter().map(|cell| show(cell).unwrap_or_default());
                rows.push(name().into_iter().chain(shown).collect());
            };
            line(&mut rates, &|cell| {
                let Spread { median, least, most } = per_s(cell)?;
                Some(format!("{} ({} to {})", thousands(median), thousands(least), thousands(most)))
            });
            line(&mut latencies, &|cell| {
                let middle = |of: fn(&Slice) -> f64| Spread::of(cell.slices.iter().map(of));
                let (p50, p99) =
                    (middle(|slice| slice.percentiles.p50_us)?, middle(|slice| slice.percentiles.p99_us)?);
                Some(format!("{:.1} / {:.1}", p50.median, p99.median))
            });
        }
        let ratios = self.args.clients.iter().map(|&clients| match ratio(&section.cells, clients) {
            None => String::new(),
            Some(Ratio { peer, spread: Spread { median, least, most } }) => {
                format!("{median:.2} ({least:.2} to {most:.2}) of {}", peer.name())
            }
        });
        rates.push(["rialto : best peer".to_owned()].into_iter().chain(ratios).collect());
        let mut text = format!(
            "== {}\n\n{}\n{}\n{}\n",
            section.guarantee,
            aligned(&rates),
            aligned(&latencies),
            aligned(&sizes(&section.banks)),
        );
        for bank in &section.banks {
            let settings = bank.engine.settings(section.guarantee);
            writeln!(text, "  {}: {settings}", bank.engine.name()).expect("a string takes all");
            if let Some(problem) = &bank.problem {
                writeln!(text, "  {}: INCONSISTENT: {problem}", bank.engine.name())
                    .expect("a string takes all");
            }
        }
        text
    }

    fn heading(&self, what: &str) -> Vec<String> {
        let clients = self.args.clients.iter().map(|clients| match clients {
            1 => "1 client".to_owned(),
            n => format!("{n} clients"),
        });
        [what.to_owned()].into_iter().chain(clients).collect()
    }

    /// For programs.
    pub fn json(&self) -> Json {
        json!({
            "workload": "tpcb",
            "branches": u64::from(self.shape.branches),
            "accounts": u64::from(self.shape.accounts),
            "seconds": self.args.seconds.as_secs_f64(),
            "rounds": u64::from(self.args.rounds),
            "machine": self.machine.json(),
            "consistent": self.consistent(),
            "sections": Json::Array(self.sections.iter().map(|section| self.section_json(section)).collect()),
        })
    }

    fn section_json(&self, section: &Section) -> Json {
        let engine = |bank: &Bank| {
            let cells = section.cells.iter().filter(|cell| cell.engine == bank.engine);
            json!({
                "engine": bank.engine.name(),
                "settings": bank.engine.settings(section.guarantee),
                "loaded_rows": bank.loaded_rows,
                "resident_bytes": bank.resident_bytes,
                "loaded_disk_bytes": bank.loaded_disk_bytes,
                "rows": bank.rows,
                "disk_bytes": bank.disk_bytes,
                "problem": bank.problem.as_deref(),
                "runs": Json::Array(cells.map(cell_json).collect()),
            })
        };
        let ratios = self.args.clients.iter().filter_map(|&clients| {
            let Ratio { peer, spread } = ratio(&section.cells, clients)?;
            Some(json!({
                "clients": u64::from(clients),
                "best_peer": peer.name(),
                "ratio": spread.json(),
            }))
        });
        json!({
            "guarantee": section.guarantee.name(),
            "engines": Json::Array(section.banks.iter().map(engine).collect()),
            "ratios": Json::Array(ratios.collect()),
        })
    }
}

fn cell_json(cell: &Cell) -> Json {
    let slice = |slice: &Slice| {
        json!({
            "per_s": slice.per_s,
            "p50_us": slice.percentiles.p50_us,
            "p99_us": slice.percentiles.p99_us,
            "p999_us": slice.percentiles.p999_us,
        })
    };
    json!({
        "clients": u64::from(cell.clients),
        "per_s": per_s(cell).map_or(Json::Null, |spread| spread.json()),
        "slices": Json::Array(cell.slices.iter().map(slice).collect()),
    })
}

fn sizes(banks: &[Bank]) -> Vec<Vec<String>> {
    let mut rows = vec![row([
        "bytes",
        "resident a row, loaded",
        "disk a row, loaded",
        "disk a row, at the end",
        "adds up",
    ])];
    for bank in banks {
        let each = |bytes: u64, rows: u64| format!("{:.0}", bytes as f64 / rows.max(1) as f64);
        rows.push(row([
            bank.engine.name(),
            &each(bank.resident_bytes, bank.loaded_rows),
            &each(bank.loaded_disk_bytes, bank.loaded_rows),
            &each(bank.disk_bytes, bank.rows),
            if bank.problem.is_none() { "yes" } else { "NO" },
        ]));
    }
    rows
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rialto_measure::histogram::Percentiles;

    use super::*;
    use crate::guarantee::Guarantee;

    fn cell(engine: EngineName, rates: [f64; 3]) -> Cell {
        let percentiles = Percentiles { p50_us: 10.0, p99_us: 20.0, p999_us: 30.0, max_us: 40.0 };
        let slice = |per_s| Slice { per_s, kept_up: 1.0, percentiles, committed: 1 };
        Cell { engine, clients: 8, slices: rates.map(slice).to_vec() }
    }

    fn bank(engine: EngineName) -> Bank {
        Bank {
            engine,
            loaded_rows: 10,
            resident_bytes: 1_700,
            loaded_disk_bytes: 2_500,
            rows: 100,
            disk_bytes: 30_000,
            problem: None,
        }
    }

    #[test]
    fn rialto_is_compared_with_the_best_peer_round_by_round() {
        let cells = vec![
            cell(EngineName::Rialto, [200.0, 300.0, 1_000_000.0]),
            cell(EngineName::Sqlite, [1.0, 2.0, 100_000.0]),
            cell(EngineName::Redb, [50.0, 100.0, 100.0]),
        ];
        let banks = [EngineName::Rialto, EngineName::Sqlite, EngineName::Redb].map(bank).to_vec();
        let args = Args::parse_from(["peers", "--clients", "8"]);
        let mut section = Section { guarantee: Guarantee::Machine, banks, cells };
        let report = Report::new(&args, vec![section.clone()]).unwrap();
        let table = report.table();
        assert!(table.contains("4.00 (3.00 to 10000.00) of redb"), "{table}");
        assert!(table.contains("300 (200 to 1,000,000)"), "{table}");
        assert!(table.contains("10.0 / 20.0") && table.contains("170") && table.contains("250"), "{table}");
        let json = report.json();
        assert_eq!(json.get("consistent"), Some(&Json::Bool(true)));
        let Some(Json::Array(sections)) = json.get("sections") else { panic!("{json}") };
        let Some(Json::Array(ratios)) = sections[0].get("ratios") else { panic!("{json}") };
        assert_eq!(ratios[0].pointer("/ratio/median").and_then(Json::as_f64), Some(4.0));

        section.banks[1].problem = Some("accounts has 9 rows".to_owned());
        let report = Report::new(&args, vec![section]).unwrap();
        assert!(!report.consistent());
        assert!(report.table().contains("sqlite: INCONSISTENT: accounts has 9 rows"));
    }
}

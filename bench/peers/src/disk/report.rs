//! The table and the JSON object of a [`Measurement`].

use std::fmt::Write;

use rialto_measure::spread::Spread;
use rialto_measure::text::{aligned, bytes, row, thousands, time};
use serde_json::{Value as Json, json};

use super::measurement::{Measured, Measurement};
use super::protocol::Sliced;
use super::table::{DiskEngine, Mix};

const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;

/// A figure that may be missing.
fn shown<T>(figure: Option<T>, show: impl FnOnce(T) -> String) -> String {
    figure.map_or("-".to_owned(), show)
}

fn median(slices: &[Sliced], figure: fn(&Sliced) -> f64) -> Option<f64> {
    Measured::spread(slices, figure).map(|spread| spread.median)
}

/// p99.9 over p50, of each slice of an open loop.
fn tail_over_middle(measured: &Measured) -> Option<Spread> {
    Measured::spread(&measured.open, |slice| slice.latency.p999_us / slice.latency.p50_us)
}

impl Measurement {
    /// Rialto's throughput over each other engine's, of slices of the same round.
    fn ratios(&self) -> Vec<(DiskEngine, Spread)> {
        let Some(own) = self.engines.iter().find(|measured| measured.engine == DiskEngine::Rialto) else {
            return Vec::new();
        };
        let others = self.engines.iter().filter(|measured| measured.engine != DiskEngine::Rialto);
        let ratio = |other: &Measured| {
            let rounds = own.closed.iter().zip(&other.closed).map(|(own, other)| own.per_s / other.per_s);
            Some((other.engine, Spread::of(rounds)?))
        };
        others.filter_map(ratio).collect()
    }

    /// For people.
    pub fn table(&self) -> String {
        let args = &self.args;
        let mut text = format!(
            "a table of {} rows of 100 bytes; a transaction adds to the balance of one row, each as likely\n{}\nnot durable: \
             an answered commit survives SIGKILL of the process only\neach engine in a process of its own with {} of memory, \
             page cache included\n{} clients, {} rounds of {} s, engines alternating; medians (least to most)\n\n{}\n{}\n{}\n",
            thousands(f64::from(args.rows)),
            self.machine,
            bytes(args.memory_bytes),
            args.clients,
            args.rounds,
            args.seconds.as_secs_f64(),
            aligned(&self.peaks()),
            aligned(&self.ratio_rows()),
            aligned(&self.halves()),
        );
        for measured in &self.engines {
            let name = measured.engine.name();
            if let (Some(reads), Some(hits)) = (measured.reads_per_miss(), measured.hit_ratio()) {
                writeln!(text, "  {name}: {:.2}% of accesses hit, {reads:.3} reads a miss", hits * 100.0)
                    .expect("a string takes all");
            }
            if measured.engine == DiskEngine::Bare {
                let Mix { reads, writes } = self.mix;
                writeln!(text, "  {name}: {reads:.3} pages read and {writes:.3} written for a transaction")
                    .expect("a string takes all");
            }
            writeln!(text, "  {name}: {}", measured.engine.settings()).expect("a string takes all");
            if let Some(problem) = &measured.problem {
                writeln!(text, "  {name}: INCONSISTENT: {problem}").expect("a string takes all");
            }
        }
        text
    }

    /// The closed loops.
    fn peaks(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row([
            "closed loop",
            "transactions/s",
            "p50 / p99",
            "read a transaction",
            "written",
            "peak memory",
            "of it no page cache",
            "files",
            "adds up",
        ])];
        for measured in &self.engines {
            let kib =
                |figure| shown(median(&measured.closed, figure), |bytes| format!("{:.2} KiB", bytes / KIB));
            let mib = |bytes: Option<u64>| shown(bytes, |bytes| format!("{:.0} MiB", bytes as f64 / MIB));
            let per_s = Measured::spread(&measured.closed, |slice| slice.per_s);
            let p50 = median(&measured.closed, |slice| slice.latency.p50_us);
            let p99 = median(&measured.closed, |slice| slice.latency.p99_us);
            rows.push(row([
                measured.engine.name(),
                &shown(per_s, |Spread { median, least, most }| {
                    format!("{} ({} to {})", thousands(median), thousands(least), thousands(most))
                }),
                &format!("{} / {}", shown(p50, time), shown(p99, time)),
                &kib(Sliced::read_bytes),
                &kib(Sliced::written_bytes),
                &mib(measured.peak_bytes),
                &mib(measured.anonymous_bytes),
                &mib(Some(measured.disk_bytes)),
                match (&measured.problem, measured.engine) {
                    (Some(_), _) => "NO",
                    (None, DiskEngine::Bare) => "-",
                    (None, _) => "yes",
                },
            ]));
        }
        rows
    }

    fn ratio_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["ratio", "of slices of the same round"])];
        for (other, Spread { median, least, most }) in self.ratios() {
            rows.push(row([
                &format!("rialto : {}", other.name()),
                &format!("{median:.2} ({least:.2} to {most:.2})"),
            ]));
        }
        rows
    }

    /// The open loops.
    fn halves(&self) -> Vec<Vec<String>> {
        let mut rows =
            vec![row(["at half", "offered/s", "committed/s", "p50", "p99", "p99.9", "p99.9 : p50"])];
        for measured in &self.engines {
            let figure = |figure| shown(median(&measured.open, figure), time);
            let committed = median(&measured.open, |slice| slice.per_s);
            rows.push(row([
                measured.engine.name(),
                &thousands(measured.half_per_s),
                &shown(committed, thousands),
                &figure(|slice| slice.latency.p50_us),
                &figure(|slice| slice.latency.p99_us),
                &figure(|slice| slice.latency.p999_us),
                &shown(tail_over_middle(measured), |Spread { median, least, most }| {
                    format!("{median:.1} ({least:.1} to {most:.1})")
                }),
            ]));
        }
        rows
    }

    /// For programs.
    ///
    /// # Panics
    /// Never: all names are texts.
    pub fn json(&self) -> Json {
        let slices = |slices: &[Sliced]| serde_json::to_value(slices).expect("its names are texts");
        let spread = |spread: Option<Spread>| spread.map_or(Json::Null, |spread| spread.json());
        let engine = |measured: &Measured| {
            json!({
                "engine": measured.engine.name(),
                "settings": measured.engine.settings(),
                "load_s": measured.load_s,
                "per_s": spread(Measured::spread(&measured.closed, |slice| slice.per_s)),
                "device_read_bytes": median(&measured.closed, Sliced::read_bytes),
                "device_written_bytes": median(&measured.closed, Sliced::written_bytes),
                "hit_ratio": measured.hit_ratio(),
                "reads_per_miss": measured.reads_per_miss(),
                "peak_bytes": measured.peak_bytes,
                "anonymous_bytes": measured.anonymous_bytes,
                "disk_bytes": measured.disk_bytes,
                "problem": measured.problem.as_deref(),
                "slices": slices(&measured.closed),
                "half": {
                    "offered_per_s": measured.half_per_s,
                    "p999_over_p50": spread(tail_over_middle(measured)),
                    "slices": slices(&measured.open),
                },
            })
        };
        let ratio =
            |(other, spread): (DiskEngine, Spread)| json!({ "engine": other.name(), "ratio": spread.json() });
        json!({
            "workload": "disk",
            "rows": self.args.rows,
            "memory_bytes": self.args.memory_bytes,
            "clients": self.args.clients,
            "seconds": self.args.seconds.as_secs_f64(),
            "rounds": self.args.rounds,
            "machine": self.machine.json(),
            "consistent": self.consistent(),
            "bare_mix": serde_json::to_value(self.mix).expect("its names are texts"),
            "engines": Json::Array(self.engines.iter().map(engine).collect()),
            "ratios": Json::Array(self.ratios().into_iter().map(ratio).collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rialto_measure::machine::Machine;

    use super::super::protocol::tests::sliced;
    use super::*;
    use crate::args::{Args, Command};

    fn measured(engine: DiskEngine, rates: [f64; 3]) -> Measured {
        Measured {
            engine,
            load_s: 1.5,
            closed: rates.map(sliced).to_vec(),
            half_per_s: rates[1] / 2.0,
            open: vec![sliced(rates[1] / 2.0)],
            disk_bytes: 3 << 20,
            peak_bytes: Some(256 << 20),
            anonymous_bytes: Some(130 << 20),
            problem: None,
        }
    }

    fn measurement() -> Measurement {
        let Some(Command::Disk(args)) = Args::parse_from(["peers", "disk", "--rounds", "3"]).command else {
            panic!("a table on disk was asked for");
        };
        let mix = Mix { reads: 0.95, writes: 0.8 };
        let engines = vec![
            measured(DiskEngine::Rialto, [200.0, 300.0, 400.0]),
            measured(DiskEngine::Lmdb, [100.0, 100.0, 100.0]),
            measured(DiskEngine::Bare, [400.0, 300.0, 500.0]),
        ];
        Measurement { args, machine: Machine::here(), mix, engines }
    }

    #[test]
    fn ratios_are_of_the_same_round_and_the_tail_is_over_the_middle() {
        let measurement = measurement();
        let table = measurement.table();
        for found in [
            "13,000,000 rows",
            "300 (200 to 400)",
            "3.00 (2.00 to 4.00)",
            "0.80 (0.50 to 1.00)",
            "4.00 KiB",
            "2.00 KiB",
            "256 MiB",
            "7.0 (7.0 to 7.0)",
            "rialto: 10.00% of accesses hit, 1.010 reads a miss",
            "bare: 0.950 pages read and 0.800 written",
        ] {
            assert!(table.contains(found), "{found}: {table}");
        }
        let json = measurement.json();
        assert_eq!(json.pointer("/ratios/0/ratio/median").and_then(Json::as_f64), Some(3.0));
        assert_eq!(json.pointer("/engines/0/half/p999_over_p50/median").and_then(Json::as_f64), Some(7.0));
        assert_eq!(json.pointer("/consistent"), Some(&Json::Bool(true)));
        assert_eq!(json.pointer("/engines/0/slices/2/per_s").and_then(Json::as_f64), Some(400.0));
    }

    #[test]
    fn a_table_that_does_not_add_up_is_a_result() {
        let mut measurement = measurement();
        measurement.engines[1].problem = Some("the table has 2 rows, expected 3".to_owned());
        assert!(!measurement.consistent());
        let table = measurement.table();
        assert!(table.contains("lmdb: INCONSISTENT: the table has 2 rows, expected 3"), "{table}");
        assert!(table.contains("NO"), "{table}");
        assert_eq!(measurement.json().get("consistent"), Some(&Json::Bool(false)));
    }
}

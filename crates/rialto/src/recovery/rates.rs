//! What a recovery measures for [`RecoveryRates`], and what an estimate by them rests on.

use std::time::Duration;

use super::RecoveryReport;
use super::progress::bytes;
use crate::checkpoint::recovery_rates::Cost;
use crate::checkpoint::{RecoveryRates, RecoveryWork};
use crate::io::Disk;

/// A part that takes less time than this does not show its speed.
const TIME_MIN: Duration = Duration::from_millis(50);
/// Fewer packets than this do not show their speed.
const PACKETS_MIN: u64 = 10_000;

impl RecoveryRates {
    /// Takes over what a recovery measured. Returns whether it measured anything.
    pub fn learn(&mut self, report: &RecoveryReport) -> bool {
        let before = *self;
        let a_byte = |time: Duration, bytes: u64| time.as_nanos() as f64 / bytes.max(1) as f64;
        if report.load_time >= TIME_MIN {
            self.load.learn(a_byte(report.load_time, report.loaded_bytes));
            // However short this is, it took so long for so many bytes.
            self.primary.learn(a_byte(report.primary_time, report.loaded_bytes));
        }
        if report.load_time + report.redo_time >= TIME_MIN && report.memory_bytes > 0 {
            self.secondary.learn(a_byte(report.secondary_time, report.memory_bytes));
        }
        if report.bulk_time >= TIME_MIN {
            self.bulk.learn(a_byte(report.bulk_time, report.bulk_bytes));
        }
        let redo_time = report.redo_time.saturating_sub(report.bulk_time);
        if redo_time >= TIME_MIN && report.packets >= PACKETS_MIN {
            self.log.learn(a_byte(report.read_time, report.log_bytes));
            let doing = redo_time.saturating_sub(report.read_time);
            self.packet.learn(doing.as_nanos() as f64 / report.packets as f64);
        }
        *self != before
    }

    /// The rates after a recovery, recorded if it has measured anything. On a disk in memory times mean nothing. If the
    /// record cannot be written, for instance because the disk is full, the next recovery measures again.
    pub(crate) fn after(report: &RecoveryReport, disk: &dyn Disk) -> RecoveryRates {
        let mut rates = RecoveryRates::recorded(disk).unwrap_or_default();
        if disk.has_speed() && rates.learn(report) {
            let _ = rates.record(disk);
        }
        rates
    }
}

/// What an estimate rests on, in words: how much there is to do, and how fast each part is.
pub(super) fn explain(work: &RecoveryWork, rates: &RecoveryRates) -> Vec<String> {
    let how = |cost: Cost| if cost.is_measured { "measured" } else { "assumed, not measured yet" };
    let per_second = |cost: Cost| match cost.ns {
        ns if ns < 1e-3 => "no time".to_owned(),
        ns => format!("{}/s", bytes((1e9 / ns) as u64)),
    };
    let of_bytes = |what: &str, amount: u64, cost: Cost| {
        (amount > 0).then(|| format!("{what} {} at {} ({})", bytes(amount), per_second(cost), how(cost)))
    };
    let packets = (work.packets > 0).then(|| {
        format!(
            "redo of {} transactions at {:.0} transactions/s ({})",
            work.packets,
            1e9 / rates.packet.ns.max(1.0),
            how(rates.packet)
        )
    });
    [
        of_bytes("load of", work.copy_bytes, rates.load),
        of_bytes("primary indexes of", work.copy_bytes, rates.primary),
        of_bytes("reading log of", work.log_bytes, rates.log),
        packets,
        of_bytes("redo of bulk loads of", work.bulk_bytes, rates.bulk),
        of_bytes("secondary indexes of", work.memory_bytes, rates.secondary),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> RecoveryReport {
        let ms = Duration::from_millis;
        RecoveryReport {
            loaded_bytes: 1_000_000,
            memory_bytes: 2_000_000,
            load_time: ms(400),
            primary_time: ms(100),
            redo_time: ms(1_300),
            secondary_time: ms(60),
            log_bytes: 10_000_000,
            read_time: ms(100),
            packets: 20_000,
            bulk_bytes: 500_000,
            bulk_time: ms(200),
            ..RecoveryReport::default()
        }
    }

    #[test]
    fn what_a_recovery_measured_predicts_the_same_recovery() {
        let mut rates = RecoveryRates::default();
        assert!(rates.learn(&report()));
        let costs = rates.named().map(|(_, cost)| cost);
        assert_eq!(costs.map(|cost| cost.ns), [400.0, 100.0, 30.0, 10.0, 50_000.0, 400.0]);
        assert!(costs.iter().all(|cost| cost.is_measured));
        let work = RecoveryWork {
            copy_bytes: 1_000_000,
            memory_bytes: 2_000_000,
            log_bytes: 10_000_000,
            packets: 20_000,
            bulk_bytes: 500_000,
        };
        let estimate = rates.estimate(&work);
        assert_eq!(estimate.total(), report().took());
        assert_eq!(estimate.to_string(), "1.860 s: load 0.400 s, indexes 0.160 s, redo 1.300 s");
        // Lone commits: three times the bytes for each packet.
        assert_eq!(rates.redo(30_000_000, 20_000), Duration::from_millis(1_300));
        // Another recovery that was twice as slow counts half.
        let slower = RecoveryReport { load_time: report().load_time * 2, ..report() };
        assert!(rates.learn(&slower));
        assert_eq!((rates.load.ns, rates.primary.ns), (600.0, 100.0));
        let told = explain(&work, &rates);
        assert_eq!(told[0], "load of 1 MB at 2 MB/s (measured)");
        assert_eq!(told[3], "redo of 20000 transactions at 20000 transactions/s (measured)");
    }

    #[test]
    fn a_recovery_with_little_to_do_measures_nothing() {
        let mut rates = RecoveryRates::default();
        let none = RecoveryReport {
            load_time: Duration::from_millis(20),
            redo_time: Duration::from_millis(20),
            ..report()
        };
        assert!(!rates.learn(&RecoveryReport { bulk_time: Duration::ZERO, ..none }));
        assert_eq!(rates, RecoveryRates::default());
        // Few packets, which something else held up.
        let few = RecoveryReport { packets: 100, ..report() };
        assert!(rates.learn(&few));
        assert!(!rates.packet.is_measured && !rates.log.is_measured && rates.load.is_measured);
    }
}

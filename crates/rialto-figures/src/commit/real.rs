//! Commit sequences on a disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto::io::Disk;
use rialto::log::{Log, LogOptions, LogStats, recover};
use rialto::{Error, Lsn};
use rialto_measure::RunError;
use rialto_measure::calibrate::{Calibrator, Slice, Spells};
use rialto_measure::counters::{Counters, Counts};
use rialto_measure::driver::{Load, Observer, drive};
use rialto_measure::text::{say, seconds, thousands};

use super::Verdict;
use super::result::Window;
use super::sequences::{Sequences, read_packet};

/// The part of the log that is kept to be read back; what lies before it is freed, for reuse.
pub const KEPT_BYTES: u64 = 256 << 20;
/// How often that is looked after.
const FREE_EVERY: Duration = Duration::from_millis(20);
/// Bytes of a log file, and how many are kept behind its end.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    file_bytes: u64,
    kept_bytes: u64,
}

const SIZES: Sizes = Sizes { file_bytes: 64 << 20, kept_bytes: KEPT_BYTES };
const FILES_MAX: u64 = 32;
const SPARE_FILES: usize = 8;
/// Whose log it is.
const DATABASE: u128 = 0x5249_414c_544f_2063_6f6d_6d69_7400_0001;
/// Packet slots beyond those that the clients may fill.
const PACKETS_SPARE: usize = 1_024;

/// A log with clients that commit.
pub struct Run {
    disk: Arc<dyn Disk>,
    sequences: Sequences,
    sizes: Sizes,
}

impl Run {
    /// A new log on a disk that holds none: the designs and ways of writing of `choices`, its sizes made to fit.
    ///
    /// # Errors
    /// Of the disk, or of the options.
    pub fn begin(
        disk: Arc<dyn Disk>,
        choices: &LogOptions,
        clients: u32,
        in_flight: u32,
    ) -> Result<Run, Error> {
        Run::of_sizes(disk, choices, [clients, in_flight], SIZES)
    }

    fn of_sizes(
        disk: Arc<dyn Disk>,
        choices: &LogOptions,
        [clients, in_flight]: [u32; 2],
        sizes: Sizes,
    ) -> Result<Run, Error> {
        let outstanding = clients as usize * in_flight as usize;
        let options = LogOptions {
            first_file_bytes: sizes.file_bytes,
            file_bytes: sizes.file_bytes,
            bytes_max: FILES_MAX * sizes.file_bytes,
            spare_files_max: SPARE_FILES,
            packet_slots: LogOptions::default().packet_slots.max(outstanding + PACKETS_SPARE),
            ..choices.clone()
        };
        let log = Log::create(&disk, DATABASE, &options)?;
        Ok(Run { disk, sequences: Sequences::new(log, clients), sizes })
    }

    /// The workload.
    pub fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// Frees all but the end of the log until `over`; the place that the rest begins with.
    fn free_behind(&self, over: &AtomicBool) -> Result<Lsn, Error> {
        let (log, Sizes { file_bytes, kept_bytes }) = (self.sequences.log(), self.sizes);
        // Durable positions and where in the stream they were, about a file apart.
        let mut passed: VecDeque<(Lsn, u64)> = VecDeque::new();
        let mut oldest = Lsn(1);
        while !over.load(Ordering::Relaxed) {
            let (lsn, bytes) = (log.durable_position(), log.durable_bytes().0);
            if passed.back().is_none_or(|last| last.1 + file_bytes / 2 <= bytes) {
                passed.push_back((lsn, bytes));
            }
            while passed.get(1).is_some_and(|next| next.1 + kept_bytes <= bytes) {
                passed.pop_front();
                let from = passed.front().expect("there is a next one").0;
                log.free_before(from)?;
                oldest = from;
            }
            std::thread::sleep(FREE_EVERY);
        }
        Ok(oldest)
    }

    /// Runs while the log is kept short. What `run` gives, and the place that the log begins with.
    ///
    /// # Errors
    /// Of a log file that cannot be freed.
    pub fn while_freeing<T>(&self, run: impl FnOnce(&Sequences) -> T) -> Result<(T, Lsn), Error> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let freeing = scope.spawn(|| self.free_behind(&over));
            // Also if `run` panics: the scope waits for its threads.
            let end = EndOnDrop(&over);
            let outcome = run(&self.sequences);
            drop(end);
            let oldest = freeing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((outcome, oldest))
        })
    }

    /// Closes the log and reads it back from place `oldest`, which nothing behind was freed of.
    ///
    /// # Errors
    /// Of a log that cannot be closed or read.
    pub fn verify(self, oldest: Lsn) -> Result<Verdict, Error> {
        let Run { disk, sequences, .. } = self;
        let (answered, durable) = (sequences.answered(), sequences.log().durable_position());
        let packets = sequences.packets();
        sequences.log().close()?;
        drop(sequences);
        Ok(judge(&disk, oldest, answered, durable, &packets)
            .unwrap_or_else(|text| Verdict { consistent: false, text }))
    }
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads the log back; an error says what is wrong with it.
fn judge(
    disk: &Arc<dyn Disk>,
    oldest: Lsn,
    answered: Lsn,
    durable: Lsn,
    packets: &[u64],
) -> Result<Verdict, String> {
    if durable < answered {
        return Err(format!("place {answered} was answered, but the durable position was {durable}"));
    }
    let unreadable = |error: Error| format!("the log cannot be read back: {error}");
    let mut reader = recover(disk, DATABASE, oldest).map_err(unreadable)?;
    let (mut next, mut read) = (oldest, 0u64);
    // The next packet of each client; not known before its first one here, unless the log begins here.
    let mut expected: Vec<Option<u64>> = vec![(oldest == Lsn(1)).then_some(1); packets.len()];
    while let Some(packet) = reader.next_packet().map_err(unreadable)? {
        let lsn = packet.lsn;
        if lsn != next {
            return Err(format!("the log has place {lsn} where {next} was expected"));
        }
        let Some((client, number)) = read_packet(packet.bytes) else {
            return Err(format!("place {lsn} holds bytes that no client wrote"));
        };
        let Some(expected) = expected.get_mut(client as usize) else {
            return Err(format!("place {lsn} is of client {client}, which there is not"));
        };
        if expected.is_some_and(|expected| expected != number) {
            return Err(format!(
                "place {lsn} holds packet {number} of client {client}, expected {expected:?}"
            ));
        }
        *expected = Some(number + 1);
        next = Lsn(lsn.0 + 1);
        read += 1;
    }
    let all: u64 = packets.iter().sum();
    if next <= answered || next.0 != all + 1 {
        return Err(format!(
            "the log ends at place {}, but {all} packets were written and place {answered} was answered",
            next.0 - 1
        ));
    }
    for (client, (expected, written)) in expected.iter().zip(packets).enumerate() {
        if expected.is_some_and(|expected| expected != written + 1) {
            return Err(format!("client {client} wrote {written} packets, and its last is not in the log"));
        }
    }
    let text = format!(
        "every place up to {answered} was answered, the durable position was {durable}, and the log's last {} packets \
         are there, whole and in order",
        thousands(read as f64)
    );
    Ok(Verdict { consistent: true, text })
}

/// Watches one window.
struct Watch<'a> {
    log: &'a Log,
    counters: &'a Counters,
    calibrator: &'a mut Calibrator,
    begin: Option<(LogStats, Counts)>,
    end: Option<(LogStats, Counts)>,
    slices: Vec<Slice>,
    uncalibrated: Option<String>,
}

impl Watch<'_> {
    fn counts(&self) -> Counts {
        self.counters.read_beside(self.calibrator)
    }
}

impl Observer for Watch<'_> {
    fn window_begins(&mut self, _committed: u64, _warmed_up: Duration) -> Result<(), String> {
        self.begin = Some((self.log.stats(), self.counts()));
        Ok(())
    }

    fn window_ends(&mut self) {
        self.end = Some((self.log.stats(), self.counts()));
    }

    fn slice(&mut self, took: Duration, committed: u64) {
        match self.calibrator.sample() {
            Ok(sample) => self.slices.push(Slice { took, committed, sample }),
            Err(problem) => self.uncalibrated = Some(problem),
        }
    }

    fn tick(&mut self, open: Option<Duration>, committed_per_s: f64) {
        let when = open.map_or_else(|| "warm-up".to_owned(), seconds);
        say(&format!("  {when:>8}  {:>12} commits/s", thousands(committed_per_s)));
    }
}

/// One warm-up and window.
///
/// # Errors
/// Clients that failed, or a machine that could not be calibrated.
pub fn window(
    sequences: &Sequences,
    load: &Load,
    counters: &Counters,
    calibrator: &mut Calibrator,
) -> Result<Window, RunError> {
    let log: &Log = sequences.log();
    let mut watch =
        Watch { log, counters, calibrator, begin: None, end: None, slices: Vec::new(), uncalibrated: None };
    let ended = drive(sequences, load, &mut watch);
    let spells = Spells::judge(&watch.slices);
    if let Some(problem) = watch.uncalibrated.take() {
        return Err(RunError::Directory(format!("calibrating the machine: {problem}")));
    }
    let outcome = ended.map_err(RunError::of_clients("running commits"))?;
    let (stats, counts) = watch
        .begin
        .zip(watch.end)
        .map_or_else(Default::default, |(begin, end)| (end.0.since(&begin.0), end.1.since(&begin.1)));
    let latencies = outcome.all_latencies();
    Ok(Window {
        committed: outcome.committed(),
        time: outcome.window,
        latency: latencies.percentiles(),
        latency_mean_us: latencies.mean_us(),
        stats,
        group_size_max: None,
        counts,
        client_switches: outcome.client_switches,
        spells: Some(spells),
        limits: None,
        processors_busy: counts.cpu.map(|cpu| cpu.as_secs_f64() / outcome.window.as_secs_f64().max(1e-9)),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rialto::GroupCommitDesign;
    use rialto::io::MemoryDisk;

    use super::*;
    use rialto_measure::driver::Workload;

    fn of(design: GroupCommitDesign) -> LogOptions {
        LogOptions { group_commit: design.into(), ..LogOptions::default() }
    }

    fn commits(clients: u32, each: u32) -> (Arc<dyn Disk>, Run) {
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let run = Run::begin(disk.clone(), &of(GroupCommitDesign::Hiber), clients, 1).unwrap();
        for number in 0..clients {
            let mut client = run.sequences().client(number, 1);
            for _ in 0..each {
                run.sequences().run_one(&mut client, Instant::now()).unwrap();
            }
        }
        (disk, run)
    }

    #[test]
    fn what_was_answered_is_read_back_and_counted() {
        let (_, run) = commits(3, 5);
        let verdict = run.verify(Lsn(1)).unwrap();
        let all = ["every place up to 15 was answered", "the log's last 15 packets"];
        assert!(
            verdict.consistent && all.iter().all(|words| verdict.text.contains(words)),
            "{}",
            verdict.text
        );
    }

    #[test]
    fn a_log_that_lacks_what_was_answered_is_not_consistent() {
        let (disk, run) = commits(2, 4);
        let packets = run.sequences().packets();
        run.sequences().log().close().unwrap();
        let judge = |oldest, answered, durable, packets: &[u64]| {
            judge(&disk, Lsn(oldest), Lsn(answered), Lsn(durable), packets)
        };
        assert!(judge(1, 8, 8, &packets).unwrap().consistent);
        assert!(judge(3, 8, 8, &packets).unwrap().consistent);
        assert!(judge(1, 9, 9, &packets).unwrap_err().contains("ends at place 8"));
        assert!(judge(1, 8, 7, &packets).unwrap_err().contains("durable position was 7"));
        assert!(judge(1, 8, 8, &[4, 5]).unwrap_err().contains("9 packets"));
        assert!(judge(1, 8, 8, &[5, 3]).unwrap_err().contains("client 0 wrote 5"));
        assert!(judge(1, 8, 8, &[8]).unwrap_err().contains("which there is not"));
    }

    #[test]
    fn tickets_are_answered_once_their_place_is_durable() {
        use rialto_measure::driver::Pending;
        let run = Run::begin(MemoryDisk::new(), &of(GroupCommitDesign::LogServer), 1, 10).unwrap();
        let mut client = run.sequences().client(0, 1);
        let tickets: Vec<_> =
            (0..10).map(|_| run.sequences().submit_one(&mut client, Instant::now()).unwrap().1).collect();
        for ticket in tickets {
            ticket.wait().unwrap();
        }
        assert_eq!(run.sequences().answered(), Lsn(10));
        assert!(run.verify(Lsn(1)).unwrap().consistent);
    }

    #[test]
    fn a_long_run_needs_no_more_room_than_the_end_of_its_log() {
        use rialto_measure::driver::Pending;
        let sizes = Sizes { file_bytes: 1 << 20, kept_bytes: 2 << 20 };
        let disk: Arc<dyn Disk> = MemoryDisk::new();
        let run = Run::of_sizes(disk.clone(), &of(GroupCommitDesign::LogServer), [1, 2_000], sizes).unwrap();
        let commit = |sequences: &Sequences| {
            let mut client = sequences.client(0, 1);
            // More than ten files.
            for _ in 0..30 {
                let submit = |_| sequences.submit_one(&mut client, Instant::now()).unwrap().1;
                let tickets: Vec<_> = (0..2_000).map(submit).collect();
                tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
                std::thread::sleep(FREE_EVERY);
            }
        };
        let ((), oldest) = run.while_freeing(commit).unwrap();
        assert!(oldest > Lsn(20_000), "{oldest}: most of it was freed");
        let verdict = run.verify(oldest).unwrap();
        assert!(verdict.consistent && verdict.text.contains("up to 60000"), "{}", verdict.text);
        assert!(recover(&disk, DATABASE, Lsn(1)).is_err(), "the first file is another by now");
    }
}

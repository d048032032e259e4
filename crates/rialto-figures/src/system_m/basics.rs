//! m-4.4: what basic operations take (table 4.4).

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use rialto::io::{AlignedBuffer, Caching, Disk, File, FileDisk, MemoryDisk, Open};
use rialto::isolate::{LockManager, LockOptions, LockPolicy, RecordMode, Wait};
use rialto::log::{Durability, Log, LogOptions, LogThreads, PacketKind};
use rialto::store::Budget;
use rialto::store::memory::{SEGMENT_BYTES, Segments};
use rialto::{HeapId, IndexId};
use rialto_measure::RunError;
use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::row;
use rialto_measure::usage;

use super::super::point::{Home, machine};
use super::super::{Figure, FigureError, Lab, markdown};

/// An operation: what it is here, and the paper's microseconds, from and to.
struct Basic {
    name: &'static str,
    what: &'static str,
    paper: Option<(f64, f64)>,
    us: f64,
}

/// How often the cheap ones are done in a batch; of some batches the fastest counts, as the machine's guests slow the others.
const TIMES: u32 = 2_000;
const BATCHES: u32 = 25;
/// I/O requests.
const WRITES: u32 = 200;
/// A log page, as the paper has one: what a commit block is filled with.
const PAGE: usize = 4_096;

fn microseconds(time: Duration, times: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(times)
}

/// The least time of `once` over batches.
fn least(mut once: impl FnMut()) -> f64 {
    let batch = |_| {
        let began = Instant::now();
        (0..TIMES).for_each(|_| once());
        microseconds(began.elapsed(), TIMES)
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}

fn segment_allocation() -> Result<f64, RunError> {
    let budget = Arc::new(Budget::new(64 << 20));
    let segments = Segments::reserve(budget)
        .map_err(|cause| RunError::Io { during: "reserving address space", cause })?;
    Ok(least(|| {
        let segment = segments.allocate(HeapId(1)).expect("there is room");
        segments.free(black_box(segment));
    }))
}

fn lock_request() -> f64 {
    let locks = LockManager::new(LockOptions::default());
    let mut owner = locks.begin().expect("no other owner has one");
    let cancelled = AtomicBool::new(false);
    let (policy, since) = (LockPolicy::Wait, Cell::new(None));
    let wait = Wait { policy, since, timeout: None, deadline: None, cancelled: &cancelled };
    let mut key = 0u64;
    let took = least(|| {
        key += 1;
        let bytes = key.to_be_bytes();
        let name = locks.name(IndexId(1), &bytes);
        locks.record(&mut owner, name, &bytes, RecordMode::Exclusive, &wait).expect("it is free");
        locks.release_all(&mut owner);
    });
    locks.end(owner);
    took
}

fn thin_lock_request() -> f64 {
    let locks = LockManager::new(LockOptions::default());
    let mut owner = locks.begin().expect("no other owner has one");
    let word = AtomicU64::new(0);
    let took = least(|| {
        assert!(locks.record_if_free(&mut owner, &word, 8, RecordMode::Exclusive), "it is free");
        locks.release_thin_early(&mut owner, &word, 8);
    });
    locks.end(owner);
    took
}

/// A packet of this size through the commit queue: borrowed, written, reserved, pushed, given back.
fn place(log: &Log, bytes: usize) -> rialto::Result<rialto::Lsn> {
    let mut packet = log.borrow_packet()?;
    packet.bytes_mut().resize(bytes, 7);
    log.reserve(&mut packet, 0)?;
    let lsn = log.push(&mut packet, PacketKind::Commit);
    log.applied(packet);
    Ok(lsn)
}

/// A place in the log, a look whether it is on disk, and a commit block of a page.
fn log_operations() -> rialto::Result<[f64; 3]> {
    let disk: Arc<dyn Disk> = MemoryDisk::new();
    let log = Log::create(&disk, 1, &LogOptions { threads: LogThreads::None, ..LogOptions::default() })?;
    let mut took = [f64::INFINITY; 3];
    for _ in 0..BATCHES {
        let began = Instant::now();
        for _ in 0..TIMES / 2 {
            place(&log, 200)?;
        }
        took[0] = took[0].min(microseconds(began.elapsed(), TIMES / 2));
        log.sync()?;
        log.free_before(log.place())?;
    }
    let last = log.place();
    took[1] = least(|| assert!(black_box(log.is_done(black_box(last), Durability::Disk)).is_some()));
    for _ in 0..BATCHES {
        let blocks = 100;
        let began = Instant::now();
        for _ in 0..blocks {
            place(&log, PAGE - 100)?;
            log.sync()?;
        }
        took[2] = took[2].min(microseconds(began.elapsed(), blocks));
        log.free_before(log.place())?;
    }
    log.close()?;
    Ok(took)
}

/// Processor time of a write of a segment.
fn io_request(lab: &Lab) -> Result<f64, RunError> {
    let unusable = |error: rialto::io::DiskError| {
        RunError::Directory(format!("the directory cannot be used: {error}; choose another with --data DIR"))
    };
    let home = Home::new(lab.data.join(format!("figures-{}", std::process::id())));
    let disk = FileDisk::create(&home.0).map_err(unusable)?;
    let file: Arc<dyn File> = disk.open("segments", Open::Create, Caching::Direct).map_err(unusable)?;
    let buffer = AlignedBuffer::zeroed(SEGMENT_BYTES);
    let write =
        |number: u32| file.write_at(&buffer, u64::from(number) * SEGMENT_BYTES as u64).map_err(unusable);
    (0..WRITES).try_for_each(write)?;
    let before = usage::thread_cpu();
    (0..WRITES).try_for_each(write)?;
    let used = usage::thread_cpu().zip(before).map_or(Duration::ZERO, |(after, before)| after - before);
    Ok(microseconds(used, WRITES))
}

/// Table 4.4.
///
/// # Errors
/// Of the directory.
pub fn operations(lab: &Lab) -> Result<Figure, FigureError> {
    lab.on_the_clock()?;
    let failed = |cause| RunError::Transaction { during: "measuring the log", cause };
    let [place, look, block] = log_operations().map_err(failed)?;
    let basics = [
        Basic {
            name: "segment allocation",
            what: "a segment of 64 KiB taken and given back",
            paper: Some((267.0, 267.0)),
            us: segment_allocation()?,
        },
        Basic {
            name: "log page allocation",
            what: "a commit block of 4 KiB: its packet gathered, sealed with its checksum, handed to a disk in memory",
            paper: Some((1050.0, 1050.0)),
            us: block,
        },
        Basic {
            name: "log sequence number",
            what: "a look whether a place is safely on disk",
            paper: Some((81.0, 148.0)),
            us: look,
        },
        Basic {
            name: "place in the log",
            what: "a packet of 200 bytes borrowed, reserved, pushed, given back; the paper has no such figure",
            paper: None,
            us: place,
        },
        Basic {
            name: "lock request",
            what: "lock and unlock of a record's name that no other owner wants, in a lock head",
            paper: Some((285.0, 285.0)),
            us: lock_request(),
        },
        Basic {
            name: "lock request, thin",
            what: "the same in the record's own word, the default",
            paper: Some((285.0, 285.0)),
            us: thin_lock_request(),
        },
        Basic {
            name: "I/O request",
            what: "processor time of a direct write of 64 KiB",
            paper: Some((5200.0, 5200.0)),
            us: io_request(lab)?,
        },
    ];
    let header = row(["operation", "us", "paper: us", "paper over ours", "what it is here"]);
    let mut table = vec![header];
    let mut bars = Vec::new();
    for Basic { name, what, paper, us } in &basics {
        let theirs = paper.map_or_else(String::new, |(from, to)| {
            if from == to { format!("{from}") } else { format!("{from}-{to}") }
        });
        let ratio = paper.map(|(from, to)| f64::midpoint(from, to) / us.max(1e-4));
        let times = ratio.map_or_else(String::new, |ratio| format!("{ratio:.0}"));
        table.push(vec![(*name).to_owned(), format!("{us:.4}"), theirs.clone(), times, (*what).to_owned()]);
        if let Some(ratio) = ratio {
            bars.push(Bar {
                label: format!("{name}, {us:.4} us"),
                parts: vec![ratio.max(1.0).log10()],
                note: format!("{ratio:.0} times"),
                is_paper: false,
            });
        }
    }
    let text = format!(
        "Table 4.4. Ours are the least of {BATCHES} batches of {TIMES} (the log's: fewer), on one thread; the I/O request is the \
         processor time of {WRITES} writes. The paper's VAX is \"roughly a one MIP machine\", and its 5,200 us of an I/O \
         request are mostly Mach's. On {}.\n\n{}",
        machine(),
        markdown(&table)
    );
    let title = "The paper's time over ours, by powers of ten".to_owned();
    Ok(Figure { rows: table, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

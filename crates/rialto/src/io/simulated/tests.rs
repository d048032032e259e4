//! What the models guarantee: a paper's rate, the cost of a missed revolution, queues.

use std::time::Duration;

use super::super::{AlignedBuffer, MemoryDisk, VirtualClock};
use super::*;

fn simulated(name: &str) -> (Arc<SimulatedDisk>, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new());
    (SimulatedDisk::named(name, MemoryDisk::new(), clock.clone().into()).unwrap(), clock)
}

fn direct(disk: &SimulatedDisk, name: &str) -> (Arc<dyn File>, AlignedBuffer) {
    let file = disk.open(name, Open::Create, Caching::Direct).unwrap();
    file.set_length(1 << 24).unwrap();
    (file, AlignedBuffer::zeroed(4096))
}

/// How long `call` takes on the clock.
fn time(clock: &Clock, call: impl FnOnce()) -> Duration {
    let start = clock.now();
    call();
    clock.now() - start
}

#[test]
fn kodas_disk_does_thirty_commit_writes_a_second() {
    let (disk, clock) = simulated("sim:koda");
    let log = disk.open("log", Open::Create, Caching::Buffered).unwrap();
    let mut writes = 0;
    while clock.now() < Duration::from_secs(10) {
        log.write_at(&[1; 4096], writes * 4096).unwrap();
        log.sync().unwrap();
        writes += 1;
    }
    assert_eq!(writes, 301, "30 a second");
    assert_eq!(disk.works()[0].writes, writes);
    assert!(disk.describe().contains("sim:koda (spindle: request 31.8ms"), "{}", disk.describe());
}

#[test]
fn a_buffered_write_costs_at_its_sync_and_neighbours_are_one_request() {
    let (disk, clock) = simulated("hdd");
    let file = disk.open("f", Open::Create, Caching::Buffered).unwrap();
    let writing = time(&clock.clone().into(), || {
        for block in [3, 1, 0, 2, 100] {
            file.write_at(&[1; 4096], block * 4096).unwrap();
        }
    });
    assert_eq!(writing, Duration::ZERO);
    assert!(time(&clock.clone().into(), || file.sync().unwrap()) > Duration::ZERO);
    assert_eq!(
        (disk.works()[0].writes, disk.works()[0].written_bytes, disk.works()[0].flushes),
        (2, 5 * 4096, 1)
    );
    assert_eq!(time(&clock.clone().into(), || file.sync().unwrap()), Duration::ZERO, "nothing is dirty");
}

#[test]
fn a_spindle_waits_for_its_sector_and_for_its_arm() {
    let (disk, clock) = simulated("hdd");
    let (near, mut buffer) = direct(&disk, "near");
    near.read_at(&mut buffer, 0).unwrap();
    // The next sector, requested too late: nearly a revolution.
    clock.advance(Duration::from_micros(200));
    let missed = time(&clock.clone().into(), || near.read_at(&mut buffer, 4096).unwrap());
    assert!((7.5..8.6).contains(&(missed.as_secs_f64() * 1e3)), "{missed:?}");
    // The same sector again: exactly one revolution.
    let again = time(&clock.clone().into(), || near.read_at(&mut buffer, 4096).unwrap());
    assert!((8.3..8.4).contains(&(again.as_secs_f64() * 1e3)), "{again:?}");

    let spindle = match &disk.timings[0].device.lock().model {
        DiskModel::Spindle(spindle) => spindle.clone(),
        DiskModel::Ssd(_) => unreachable!("hdd is a spindle"),
    };
    assert_eq!(spindle.seek(0, 1000), Duration::ZERO);
    let (third, full) = (spindle.seek(0, spindle.bytes / 3), spindle.seek(spindle.bytes, 0));
    assert!(third > spindle.seek_track && third < full && full == spindle.seek_full, "{third:?} {full:?}");
}

#[test]
fn a_spindle_serves_one_at_a_time_and_an_ssd_several() {
    for (name, expected) in [("koda", 8.0..8.1), ("ssd", 1.0..1.6)] {
        let (disk, _) = simulated(name);
        let mut device = disk.timings[0].device.lock();
        let one = device.submit(Duration::ZERO, Request::Read, 0, 4096);
        let mut last = one;
        for request in 1..8 {
            last = device.submit(Duration::ZERO, Request::Read, request << 20, 4096);
        }
        let ratio = last.as_secs_f64() / one.as_secs_f64();
        assert!(expected.contains(&ratio), "{name}: {ratio}");
        // All came at once, so those that waited for others took longer than the device was busy with them.
        let (busy, taken) = (device.work.busy, device.work.taken);
        assert!(taken >= busy && (name == "ssd" || taken > 4 * busy), "{name}: {busy:?} {taken:?}");
    }
}

#[test]
fn presets_are_named_and_others_are_not() {
    let clock = || Arc::new(VirtualClock::new()).into();
    for (name, meaning) in SimulatedDisk::names() {
        let disk = SimulatedDisk::named(name, MemoryDisk::new(), clock()).unwrap();
        assert!(disk.describe().starts_with(&format!("sim:{name} (")) && !meaning.is_empty());
    }
    assert!(SimulatedDisk::named("floppy", MemoryDisk::new(), clock()).is_none());
}

#[test]
fn takes_its_time_on_the_system_clock_too() {
    let clock = Clock::System;
    let disk = SimulatedDisk::named("ssd", MemoryDisk::new(), clock.clone()).unwrap();
    let file = disk.open("f", Open::Create, Caching::Buffered).unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    let (asked, took) = (Duration::from_micros(98), time(&clock, || file.sync().unwrap()));
    assert!(took >= asked, "{took:?}");
}

#[test]
fn handles_of_one_file_share_what_is_dirty() {
    let (disk, _) = simulated("hdd");
    let one = disk.open("f", Open::Create, Caching::Buffered).unwrap();
    let other = disk.open("f", Open::Existing, Caching::Buffered).unwrap();
    one.write_at(&[1; 4096], 0).unwrap();
    other.sync().unwrap();
    assert_eq!(disk.works()[0].writes, 1);
}

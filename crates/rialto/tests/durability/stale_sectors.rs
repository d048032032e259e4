//! Sectors that a disk reports as written but has not written, or has written to another place. Nothing in them is
//! torn, and each has a right checksum of its own. A database that lacks some is refused, or opens without them; it is
//! never mixed from two times.

use std::sync::Arc;

use crate::common::quiet::{count, open, options, put, things};
use crate::common::seeds::for_a_while_until;
use rialto::Database;
use rialto::io::{Caching, Disk, FaultyDisk, Open, Random};
use rialto::recovery::check::check;

const SECTOR: usize = 512;
/// Rows of a transaction.
const ROWS: i32 = 20;

/// A database after some of its transactions, with the number of its rows.
struct Moment {
    disk: Arc<FaultyDisk>,
    rows: u64,
}

fn bytes_of(disk: &dyn Disk, name: &str) -> Vec<u8> {
    let file = disk.open(name, Open::ReadOnly, Caching::Buffered).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn overwrite(disk: &dyn Disk, name: &str, sector: usize, bytes: &[u8]) {
    let file = disk.open(name, Open::Existing, Caching::Buffered).unwrap();
    file.write_at(bytes, (sector * SECTOR) as u64).unwrap();
}

fn files(disk: &dyn Disk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| disk.shared_bytes(name).is_err());
    names
}

/// The moments of a database's life; at the last one it is closed.
fn live(random: &mut Random) -> Vec<Moment> {
    let disk = FaultyDisk::new(random.next());
    let db = open(disk.clone());
    things(&db);
    let mut moments = Vec::new();
    let mut next = 0;
    for _ in 0..12 + random.below(12) {
        put(&db, next..next + ROWS);
        next += ROWS;
        if random.chance(1, 5) {
            db.checkpoint().unwrap();
        }
        moments.push(Moment { disk: disk.copied(), rows: next as u64 });
    }
    db.close().unwrap();
    moments.push(Moment { disk: disk.copied(), rows: next as u64 });
    moments
}

/// The sectors of a file that differ between two moments.
fn changed(now: &[u8], before: &[u8]) -> Vec<usize> {
    let both = now.chunks(SECTOR).zip(before.chunks(SECTOR)).enumerate();
    both.filter(|(_, (now, before))| now.len() == before.len() && now != before).map(|(at, _)| at).collect()
}

/// What was done, for the tally.
#[derive(Default)]
struct Tally {
    refused: u64,
    opened: u64,
}

fn stale(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let moments = live(&mut random);
    let (last, earlier) = moments.split_last().unwrap();
    for _ in 0..40 {
        let before = &earlier[random.below(earlier.len() as u64) as usize];
        let mut names = files(&*last.disk);
        // There are more files of the log than others, and each of the others matters by itself.
        if random.chance(1, 2) {
            names.retain(|name| !name.starts_with("log-"));
        }
        let name = &names[random.below(names.len() as u64) as usize];
        if !files(&*before.disk).contains(name) {
            continue;
        }
        let (now, old) = (bytes_of(&*last.disk, name), bytes_of(&*before.disk, name));
        let sectors = changed(&now, &old);
        if sectors.is_empty() {
            continue;
        }
        let disk = last.disk.copied();
        let first = random.below(sectors.len() as u64) as usize;
        let many = 1 + random.below(8) as usize;
        // The whole file in some cases: then each image in it has a right checksum. (An older log is the log of an
        // earlier crash.)
        let stale = match !name.starts_with("log-") && random.chance(1, 4) {
            true => &sectors[..],
            false => &sectors[first..(first + many).min(sectors.len())],
        };
        for &sector in stale {
            overwrite(&*disk, name, sector, &old[sector * SECTOR..(sector + 1) * SECTOR]);
        }
        let misdirected = random.chance(1, 3);
        if misdirected {
            let sector = random.below((now.len() / SECTOR) as u64) as usize;
            overwrite(&*disk, name, sector, &now[stale[0] * SECTOR..(stale[0] + 1) * SECTOR]);
        }
        disk.open(name, Open::Existing, Caching::Buffered).unwrap().sync().unwrap();
        let disk = if random.chance(1, 2) {
            disk.crash();
            disk.restart()
        } else {
            disk
        };
        let about = format!(
            "RIALTO_SEED={seed}, {name}: sectors {stale:?} of {} as of {} rows, misdirected: {misdirected}",
            now.len() / SECTOR,
            before.rows
        );
        let report = check(&(disk.clone() as Arc<dyn Disk>), 64 << 20, 2);
        let is_sound = report.as_ref().is_ok_and(|report| report.is_sound());
        match Database::open_on(disk, options()) {
            Err(error) => {
                assert!(!is_sound, "{about}: it is called sound, and not opened: {error}");
                tally.refused += 1;
            }
            Ok(db) => {
                let rows = count(&db);
                // Nothing tells that the last block of a log was there.
                let least = if name.starts_with("log-") { last.rows - ROWS as u64 } else { last.rows };
                assert!(rows == last.rows || rows == least, "{about}: {rows} of {} rows", last.rows);
                tally.opened += 1;
            }
        }
    }
}

#[test]
fn a_stale_sector_is_found_or_does_no_harm() {
    let mut tally = Tally::default();
    let (seed, databases) = for_a_while_until(|seed| {
        stale(seed, &mut tally);
        tally.refused > 0 && tally.opened > 0
    });
    let Tally { refused, opened } = tally;
    println!(
        "tally: stale sectors, {databases} databases, {refused} refused, {opened} opened, RIALTO_SEED={seed}"
    );
    assert!(refused > 0 && opened > 0, "{refused} refused, {opened} opened");
}

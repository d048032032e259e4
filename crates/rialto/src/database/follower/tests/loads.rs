//! Load files: which ones a follower takes, and how long they stay.

use super::bases::*;
use super::*;
use crate::log::LogCursor;
use crate::txn::redone::tests::contents::copy_of;

/// A table that a load has made.
fn load(db: &Database, name: &str, n: i64) {
    db.transact(|tx| {
        let table = tx.create_table(&two_columns(name))?;
        (0..2_000).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(n)]))
    })
    .unwrap();
}

/// A cursor for the follower, and how it takes the next blocks.
fn cursor_for(follower: &Follower, primary: &Database) -> LogCursor {
    primary.log_cursor(Some(follower.point()), u64::MAX).unwrap()
}

/// The number of the load file that was missing.
fn missing(refused: Result<()>) -> u64 {
    match refused {
        Err(Error::LoadFileMissing { number }) => number,
        other => panic!("{other:?}"),
    }
}

fn give(primary: &Database, follower: &Follower, number: u64) {
    follower.take_load_file(number, &mut primary.load_file(number).unwrap()).unwrap();
}

fn name_of(number: u64) -> String {
    format!("load-{number:010}")
}

fn has(disk: &dyn Disk, number: u64) -> bool {
    disk.list().unwrap().contains(&name_of(number))
}

fn bytes_of(disk: &dyn Disk, name: &str) -> Vec<u8> {
    let file = disk.open(name, Open::ReadOnly, Caching::Buffered).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Between the file and the blocks that name it the follower is opened anew, and finds a file that nothing names. Each
/// checkpoint has something to do: a commit before the load.
#[test]
fn a_load_file_stays_until_its_packet_is_redone() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), with_a_row);
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    (0..3).for_each(|_| count(&primary, 1));
    load(&primary, "loaded", 1);
    let mut cursor = cursor_for(&follower, &primary);
    let blocks = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap().unwrap();
    let number = missing(follower.append(&blocks));
    give(&primary, &follower, number);
    follower.close().unwrap();
    drop(follower);
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    let mut place = follower.redone();
    follower.redo_up_to(place);
    follower.append(&blocks).unwrap();
    for _ in 0..3 {
        place = place.next();
        follower.redo_up_to(place);
        assert!(follower.wait_redone(place, SOON).unwrap());
        assert!(!follower.database().checkpoint().unwrap().skipped);
        assert!(has(&*to, number), "{:?}", to.list());
    }
    follower.redo_up_to(Lsn::MAX);
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_same(&all(follower.database()), &all(&primary), "the follower");
    follower.close().unwrap();
    drop(follower);
    let follower = Follower::open_on(to, options()).unwrap();
    assert_same(&all(follower.database()), &all(&primary), "the follower, opened again");
}

/// Two lives of one database give different loads the same number. The digest in the packet tells them apart.
#[test]
fn the_load_file_of_another_life_is_not_taken_for_this_ones() {
    let base = base(&options(), |_| {});
    let [primary, other] = [1, 2].map(|_| Database::open_on(copy_of(&base), options()).unwrap());
    load(&primary, "loaded", 1);
    load(&other, "loaded", 2);
    let to = copy_of(&base);
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    follower.redo_up_to(follower.redone());
    let (before, mut cursor) = (follower.point(), cursor_for(&follower, &primary));
    let blocks = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap().unwrap();
    let number = missing(follower.append(&blocks));
    for _ in 0..2 {
        give(&other, &follower, number);
        assert_eq!(missing(follower.append(&blocks)), number);
        assert_eq!(follower.point(), before);
    }
    give(&primary, &follower, number);
    follower.append(&blocks).unwrap();
    // It is whole, and of this number: yet the log names the one that is there.
    let right = bytes_of(&*to, &name_of(number));
    give(&other, &follower, number);
    assert!(bytes_of(&*to, &name_of(number)) == right, "it was replaced");
    follower.redo_up_to(Lsn::MAX);
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_same(&all(follower.database()), &all(&primary), "the follower");
    give(&other, &follower, number);
    follower.close().unwrap();
    drop(follower);
    let follower = Follower::open_on(to, options()).unwrap();
    assert_same(&all(follower.database()), &all(&primary), "the follower, opened again");
}

/// The file came, and the primary ended before the blocks.
#[test]
fn a_load_file_that_no_packet_names_goes_and_keeps_its_number() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), |_| {});
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    load(&primary, "loaded", 1);
    let mut cursor = cursor_for(&follower, &primary);
    let blocks = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap().unwrap();
    let number = missing(follower.append(&blocks));
    give(&primary, &follower, number);
    let before = bytes_of(&*to, &name_of(number));
    let db = follower.lead(SOON).unwrap();
    load(&db, "own", 2);
    assert!(bytes_of(&*to, &name_of(number)) == before, "another load has its number");
    for n in 0..3 {
        db.transact(|tx| tx.create_table(&two_columns(&format!("t{n}")))).unwrap();
        db.checkpoint().unwrap();
    }
    assert!(!has(&*to, number), "{:?}", to.list());
    let expected = all(&db);
    db.close().unwrap();
    drop(follower);
    let db = Database::open_on(to, options()).unwrap();
    assert_same(&all(&db), &expected, "opened again");
}

//! The memory that a recovery allocates for the calls that it runs again is bounded, however large their arguments in
//! the log are. A program by itself, because its allocator counts what the whole process allocates.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Action, Checkpointing, Database, Logging, Options, Procedure, TableDef};

/// The bytes that are allocated and not given back.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The most that there were at one time.
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise is the allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DOCUMENT_BYTES: usize = 256 << 10;
const CALLS: i32 = 400;

/// More arguments than there is room for at once, and one call whose arguments alone are more.
#[test]
fn calls_of_large_arguments_are_run_again_in_bounded_memory() {
    // A body that takes longer than reading the call.
    let store = Action::exclusive("t", |tx, arguments, _| {
        let Value::Bytes(bytes) = &arguments.values()[1] else { unreachable!("its type") };
        let sum = (0..8).flat_map(|_| bytes).fold(0i32, |sum, &byte| sum.wrapping_mul(31) + i32::from(byte));
        tx.insert(arguments.table()?, &[arguments.values()[0].clone(), Value::Int4(sum)])
    });
    let types = [ColumnType::Int4, ColumnType::Bytes];
    let options = Options {
        memory_bytes: 64 << 20,
        logging: Logging::Transaction,
        checkpoint: Checkpointing::None,
        procedures: vec![Procedure::new("store", types, store.by_argument(0)).deterministic(1)],
        recovery_threads: 3,
        ..Options::default()
    };
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    db.transact(|tx| {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("sum", ColumnType::Int4)];
        tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"])).map(drop)
    })
    .unwrap();
    let store = |id, bytes| db.call("store", &[Value::Int4(id), Value::Bytes(vec![7; bytes])]).map(drop);
    (0..CALLS).try_for_each(|id| store(id, DOCUMENT_BYTES)).unwrap();
    store(CALLS, 12 << 20).unwrap();
    db.close().unwrap();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let db = Database::open_on(disk, options).unwrap();
    assert_eq!(db.recovery().unwrap().calls, CALLS as u64 + 1);
    let most = PEAK.load(Ordering::Relaxed) - before;
    let all = CALLS as usize * DOCUMENT_BYTES;
    println!("{} of {} MiB", most >> 20, all >> 20);
    assert!(most < all * 2 / 3, "{most} bytes were allocated at once for calls of {all} bytes");
}

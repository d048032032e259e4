//! What calls allocate, counted for the whole process: a node's own threads allocate now and then, so the cheapest of many
//! batches counts.

mod bank;

use std::alloc::System;

use bank::{Bank, Transfer, direct_options, directly, soon};
use parking_lot::Mutex;
use rialto::Durability;
use rialto_cluster::node::{Call, CallLevel, Outputs};
use rialto_measure::alloc::{CountingAllocator, allocations_apart};

#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator::new(System);

const BATCHES: usize = 200;
/// Few, so that most batches lie between two ticks of the node's own threads.
const CALLS: i64 = 10;
/// So many allocations of the cheapest batch may be those of the node's own threads: far fewer than one a call.
const OF_THE_NODE: u64 = CALLS as u64 / 3;

/// The allocations of the cheapest batch of calls. Those by which a database grows are left out.
fn allocations(bank: &Bank, level: CallLevel, transfer: impl Fn(i64) -> Transfer) -> u64 {
    let mut call: Call = transfer(0).call(level);
    let mut outputs = Outputs::new();
    let mut batch = |_| {
        soon("nothing is left of the last batch", || bank.is_quiet());
        let before = allocations_apart().expect("they are counted").other;
        for nth in 0..CALLS {
            transfer(nth).put(&mut call);
            bank.run(0, &call, &mut outputs);
        }
        let counted = allocations_apart().expect("they are counted").other - before;
        assert_eq!(outputs[0].len(), 8, "the new balance");
        counted
    };
    (0..BATCHES).map(&mut batch).min().expect("a batch")
}

/// A program's thread has its buffers, and the transaction's are the kernel's own.
#[test]
fn a_call_in_a_partition_of_its_node_allocates_nothing() {
    let _alone = ALONE.lock();
    let bank = Bank::open("allocations", 1, 1, 1);
    let counted = allocations(&bank, CallLevel::Memory, |nth| bank.transfer(0, 0, nth));
    assert!(counted <= OF_THE_NODE, "{counted} for {CALLS} calls");
    // It is the same transaction: the account has what both have added.
    let (mut call, mut outputs) = (bank.transfer(0, 0, 50).call(CallLevel::Memory), Outputs::new());
    bank.run(0, &call, &mut outputs);
    let balance = i64::from_le_bytes(outputs[0][..].try_into().expect("eight bytes"));
    let db = bank.database(0);
    let options = direct_options(&db, Durability::Memory);
    let transfer = bank.transfer(0, 0, 50);
    assert_eq!(directly(&db, &transfer, &options).expect("a transaction"), balance + transfer.amount);
    transfer.put(&mut call);
    bank.run(0, &call, &mut outputs);
    assert_eq!(outputs[0][..], (balance + 2 * transfer.amount).to_le_bytes());
}

/// A call in a partition of another node: its two messages, and its branch there.
#[test]
fn a_call_in_a_partition_of_another_node_allocates_little() {
    let _alone = ALONE.lock();
    let bank = Bank::open("allocations-of-two", 2, 2, 1);
    let counted = allocations(&bank, CallLevel::Memory, |nth| bank.transfer(1, 1, nth));
    println!("{counted} for {CALLS} calls");
    assert!(counted <= 40 * CALLS as u64 + OF_THE_NODE, "{counted} for {CALLS} calls");
}

/// The counts are those of the process.
static ALONE: Mutex<()> = Mutex::new(());

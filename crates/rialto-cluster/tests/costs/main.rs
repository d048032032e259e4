//! What calls allocate, counted for the whole process: a node's own threads allocate now and then, so the cheapest of many
//! batches counts.

mod bank;

use std::alloc::System;

use bank::{Bank, Transfer, soon};
use rialto_cluster::node::{Call, CallLevel, Outputs};
use rialto_measure::alloc::{CountingAllocator, allocations_apart};

#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator::new(System);

const BATCHES: usize = 60;
const CALLS: i64 = 50;

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
    let bank = Bank::open("allocations", 1, 2, 1);
    let counted = allocations(&bank, CallLevel::Memory, |nth| bank.transfer(0, 0, nth));
    assert_eq!(counted, 0, "for {CALLS} calls");
    println!(
        "over two partitions: {}",
        allocations(&bank, CallLevel::Memory, |nth| bank.transfer(1, 0, nth))
    );
}

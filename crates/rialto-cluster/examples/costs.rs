//! What a transaction takes on a cluster's node, next to the same one in a database alone: a TPC-B transaction in each of
//! the ways that it can run, by turns, all nodes in this process.
//!
//! ```text
//! cargo run --release -p rialto-cluster --example costs [BATCHES [TRANSACTIONS [CLIENTS [WAY]]]]
//! ```
//!
//! For each way it prints, per transaction and as the median of the batches: processor time of the process, time of the
//! clock and its ratio to the first way of its group, allocations, times that a thread slept, messages between nodes.

#[path = "../tests/costs/bank.rs"]
mod bank;

use std::alloc::System;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bank::{Bank, direct_options, directly, soon};
use rialto::Durability;
use rialto_cluster::node::{Call, CallLevel, CallNumbers, Outputs};
use rialto_measure::alloc::{CountingAllocator, allocations};
use rialto_measure::usage::{Usage, process_cpu};
use rialto_sql::Session;
use rialto_sql::parse::READING_ROOM_BYTES;
use rialto_sql::room::Room;
use rialto_sql::run::Collected;

#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator::new(System);

/// A way in which a client runs one transaction after the other.
struct Way<'b> {
    name: &'static str,
    begin: Box<dyn Fn() -> Box<dyn FnMut(i64) + 'b> + Sync + 'b>,
}

/// What a batch took per transaction.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    cpu_us: f64,
    time_us: f64,
    p50_us: f64,
    allocations: f64,
    sleeps: f64,
    messages: f64,
    jobs: f64,
}

static NEXT: AtomicI64 = AtomicI64::new(0);

fn messages(bank: &Bank) -> (u64, u64) {
    let of = |node: &rialto_cluster::node::Node| {
        (node.links().counts().messages_sent, node.transactions().transaction_counts().jobs)
    };
    bank.nodes.iter().map(of).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}

fn batch(bank: &Bank, way: &Way<'_>, clients: usize, transactions: i64) -> Taken {
    soon("nothing is left of the last batch", || bank.is_quiet());
    let before = (messages(bank), allocations(), Usage::of_process(), process_cpu());
    let began = Instant::now();
    let mut latencies: Vec<Duration> = std::thread::scope(|scope| {
        let client = |_| {
            scope.spawn(|| {
                let mut run = (way.begin)();
                let mut latencies = Vec::with_capacity(transactions as usize);
                for _ in 0..transactions {
                    let began = Instant::now();
                    run(NEXT.fetch_add(1, Ordering::Relaxed));
                    latencies.push(began.elapsed());
                }
                latencies
            })
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    let time = began.elapsed();
    soon("nothing is left of this batch", || bank.is_quiet());
    let after = (messages(bank), allocations(), Usage::of_process(), process_cpu());
    latencies.sort_unstable();
    let count = (transactions * clients as i64) as f64;
    let each = |before: u64, after: u64| (after - before) as f64 / count;
    let (Some(sleeps), Some(cpu)) = (
        after.2.zip(before.2).map(|(after, before)| after.since(before).voluntary),
        after.3.zip(before.3).map(|(after, before)| after - before),
    ) else {
        panic!("the system tells what the process uses")
    };
    Taken {
        cpu_us: cpu.as_secs_f64() * 1e6 / count,
        time_us: time.as_secs_f64() * 1e6 / count,
        p50_us: latencies[latencies.len() / 2].as_secs_f64() * 1e6,
        allocations: each(before.1.unwrap_or(0), after.1.unwrap_or(0)),
        sleeps: sleeps as f64 / count,
        messages: each(before.0.0, after.0.0),
        jobs: each(before.0.1, after.0.1),
    }
}

fn median(of: &[Taken], what: fn(&Taken) -> f64) -> f64 {
    let mut all: Vec<f64> = of.iter().map(what).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Runs the ways of a group by turns.
fn compare(
    group: &str,
    bank: &Bank,
    ways: &[Way<'_>],
    (batches, transactions, clients): (usize, i64, usize),
) {
    println!("\n{group}; {clients} clients");
    println!(
        "{:<34}{:>9}{:>7}{:>9}{:>7}{:>9}{:>8}{:>8}{:>6}{:>6}",
        "", "cpu us", "x", "us", "x", "p50 us", "allocs", "sleeps", "msgs", "jobs"
    );
    let mut taken: Vec<Vec<Taken>> = ways.iter().map(|_| Vec::new()).collect();
    // The first batch warms up.
    for nth in 0..=batches {
        for (way, taken) in ways.iter().zip(&mut taken) {
            let batch = batch(bank, way, clients, transactions);
            if nth > 0 {
                taken.push(batch);
            }
        }
    }
    let first = (median(&taken[0], |of| of.cpu_us), median(&taken[0], |of| of.time_us));
    for (way, taken) in ways.iter().zip(&taken) {
        let of = |what| median(taken, what);
        let (cpu, time) = (of(|of| of.cpu_us), of(|of| of.time_us));
        println!(
            "{:<34}{:>9.2}{:>7.2}{:>9.2}{:>7.2}{:>9.1}{:>8.2}{:>8.3}{:>6.2}{:>6.2}",
            way.name,
            cpu,
            cpu / first.0,
            time,
            time / first.1,
            of(|of| of.p50_us),
            of(|of| of.allocations),
            of(|of| of.sleeps),
            of(|of| of.messages),
            of(|of| of.jobs),
        );
    }
}

/// Calls at node 0, of the account's and the branch's partition.
fn calls<'b>(
    name: &'static str,
    bank: &'b Bank,
    (account_in, branch_in): (usize, usize),
    level: CallLevel,
    is_numbered: bool,
) -> Way<'b> {
    let begin = move || -> Box<dyn FnMut(i64) + 'b> {
        let mut call: Call = bank.transfer(account_in, branch_in, 0).call(level);
        let (mut outputs, mut numbers) = (Outputs::new(), CallNumbers::new());
        Box::new(move |nth| {
            bank.transfer(account_in, branch_in, nth).put(&mut call);
            match is_numbered {
                true => bank.run(0, &call.clone().numbered(numbers.next_number()), &mut outputs),
                false => bank.run(0, &call, &mut outputs),
            }
        })
    };
    Way { name, begin: Box::new(begin) }
}

/// The kernel's database of a partition alone.
fn alone<'b>(name: &'static str, bank: &'b Bank, partition: usize, durability: Durability) -> Way<'b> {
    let begin = move || -> Box<dyn FnMut(i64) + 'b> {
        let db = bank.database(partition as u32);
        let options = direct_options(&db, durability);
        Box::new(move |nth| {
            let transfer = bank.transfer(partition, partition, nth);
            directly(&db, &transfer, &options).expect("a transaction");
        })
    };
    Way { name, begin: Box::new(begin) }
}

fn run(session: &mut Session, sql: &str) {
    let mut rows = Collected::default();
    let read = session.read(sql).expect(sql);
    let ready = session.prepare_read(sql, read).expect(sql);
    session.announce_end();
    session.execute_ready(&ready, &mut rows).expect(sql);
    session.finish().expect(sql);
}

/// One statement of SQL in the partition of a branch.
fn statements<'b>(
    name: &'static str,
    session: impl Fn() -> Session + Sync + 'b,
    branch: i64,
    text: fn(i64, i64) -> String,
) -> Way<'b> {
    let begin = move || -> Box<dyn FnMut(i64) + 'b> {
        let mut session = session();
        run(&mut session, "SET rialto.durability = 'memory'");
        Box::new(move |nth| run(&mut session, &text(branch, nth)))
    };
    Way { name, begin: Box::new(begin) }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: i64| {
        arguments.get(at).map_or(default, |text| text.parse().expect("a number is expected"))
    };
    let of = (number(0, 15) as usize, number(1, 400), number(2, 1) as usize);
    let wants = |group: &str| arguments.get(3).is_none_or(|way| way == group);
    if wants("local") {
        let bank = Bank::open("costs-local", 1, 1, 1);
        let ways = [
            alone("a database alone", &bank, 0, Durability::Memory),
            calls("a call", &bank, (0, 0), CallLevel::Memory, false),
            calls("a call with a number", &bank, (0, 0), CallLevel::Memory, true),
        ];
        compare("one node, one replica, level 1", &bank, &ways, of);
    }
    if wants("levels") {
        let bank = Bank::open("costs-levels", 2, 1, 2);
        let ways = [
            alone("a database alone, at level 3", &bank, 0, Durability::Disk),
            calls("a call at level 1", &bank, (0, 0), CallLevel::Memory, false),
            calls("a call at level 2", &bank, (0, 0), CallLevel::Standby, false),
            calls("a call at level 3", &bank, (0, 0), CallLevel::Disk, false),
        ];
        compare("two replicas", &bank, &ways, of);
    }
    if wants("over") {
        let bank = Bank::open("costs-over", 2, 4, 2);
        let ways = [
            calls("a call in a partition here", &bank, (0, 0), CallLevel::Standby, false),
            calls("a call in one of another node", &bank, (1, 1), CallLevel::Standby, false),
            calls("a call over two nodes", &bank, (1, 0), CallLevel::Standby, false),
            calls("a call over two partitions here", &bank, (2, 0), CallLevel::Standby, false),
        ];
        compare("two nodes, two replicas", &bank, &ways, of);
    }
    if wants("sql") {
        let bank = Bank::open("costs-sql", 1, 1, 1);
        let branch = bank.branches[0];
        let db = bank.database(0);
        let single = || Session::new(db.clone(), "ann", "bank");
        let over = || {
            let partitions = bank.nodes[0].transactions().partitions();
            Session::over_partitions(partitions, "ann", "bank", Room::new(READING_ROOM_BYTES))
        };
        let update: fn(i64, i64) -> String =
            |branch, nth| format!("UPDATE branches SET balance = balance + {nth} WHERE id = {branch}");
        let select: fn(i64, i64) -> String =
            |branch, _| format!("SELECT balance FROM branches WHERE id = {branch}");
        let ways = [
            statements("UPDATE, one database", single, branch, update),
            statements("UPDATE, over partitions", over, branch, update),
        ];
        compare("statements", &bank, &ways, of);
        let ways = [
            statements("SELECT, one database", single, branch, select),
            statements("SELECT, over partitions", over, branch, select),
        ];
        compare("statements", &bank, &ways, of);
    }
}

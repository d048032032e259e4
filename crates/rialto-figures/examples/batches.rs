//! How much faster it is to send calls in batches (`PreparedCall::send_all`) than one by one: short calls of TATP and
//! TPC-B, by keys drawn uniformly from large tables, one thread, level 1, log and data in memory. The ways take turns
//! in one process; ratios are of neighbours, and the median of each is printed.
//!
//! `cargo run --release -p rialto-figures --example batches -- [ROWS] [PAIRS]`

use std::time::Instant;

use mimalloc::MiMalloc;
use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{Checkpointing, Database, Durability, Engine, Options, PreparedCall, Residence, TxOptions};
use rialto_measure::interval::Interval;
use rialto_workloads::mix::Mix;
use rialto_workloads::tatp::{self, Name, Tatp};
use rialto_workloads::tpcb::{self, TELLERS_PER_BRANCH, Tpcb};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Calls between two readings of the clock: few, so that what else the machine runs meets few of the measurements.
const CALLS: usize = 4_096;
/// TPC-B's branches.
const BRANCHES: u64 = 16;

/// How a client makes its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `submit`, and then the tickets are waited for, so many at a time.
    Submit,
    /// The same by `send`.
    Send,
    /// `send_all`.
    SendAll,
}

const WAYS: [Way; 3] = [Way::Submit, Way::Send, Way::SendAll];

impl Way {
    fn make(self, call: &mut PreparedCall, batch: &[Vec<Value>]) {
        // Some of TATP's calls find nothing and abort.
        match self {
            Way::Submit => {
                let tickets: Vec<_> =
                    batch.iter().map(|arguments| Some(call.submit(arguments).ok()?.1)).collect();
                tickets.into_iter().flatten().for_each(|ticket| ticket.wait().expect("the log is written"));
            }
            Way::Send => {
                let sent: Vec<_> = batch.iter().map(|arguments| call.send(arguments)).collect();
                sent.into_iter().flatten().for_each(|sent| drop(sent.wait()));
            }
            Way::SendAll => call.send_all(batch).into_iter().flatten().for_each(|sent| drop(sent.wait())),
        }
    }
}

/// Nanoseconds a call.
fn measure(way: Way, call: &mut PreparedCall, batch: usize, mut draw: impl FnMut() -> Vec<Value>) -> f64 {
    let calls: Vec<_> = (0..CALLS).map(|_| draw()).collect();
    let began = Instant::now();
    calls.chunks(batch).for_each(|batch| way.make(call, batch));
    began.elapsed().as_nanos() as f64 / CALLS as f64
}

fn compare(name: &str, call: &mut PreparedCall, pairs: usize, mut draw: impl FnMut() -> Vec<Value>) {
    for batch in [1, 4, 16, 64] {
        let mut times: [Vec<f64>; 3] = Default::default();
        for pair in 0..=pairs {
            for nth in 0..WAYS.len() {
                let at = if pair % 2 == 0 { nth } else { WAYS.len() - 1 - nth };
                let took = measure(WAYS[at], call, batch, &mut draw);
                // The first round only warms up.
                if pair > 0 {
                    times[at].push(took);
                }
            }
        }
        let median = |of: &[f64]| Interval::of_median(of).expect("there are pairs").median;
        let [submit, send, send_all] = times.each_ref().map(|times| median(times));
        let ratio = |one: usize| {
            let ratios: Vec<f64> = times[one].iter().zip(&times[2]).map(|(one, all)| one / all).collect();
            Interval::of_median(&ratios).expect("there are pairs")
        };
        println!(
            "{name:<20} batches of {batch:>2}: submit {submit:>5.0} ns, send {send:>5.0}, send_all {send_all:>5.0}; times as many as by submit {}, by send {}",
            ratio(0),
            ratio(1)
        );
    }
}

fn prepared(database: &Database, name: &str, read_only: bool) -> PreparedCall {
    let options = TxOptions { read_only, ..TxOptions::default() };
    database.prepare_call_with(&options, name).expect("it is registered")
}

fn run(engine: Engine, rows: u32, pairs: usize) {
    let options = || Options {
        memory_bytes: 8 << 30,
        durability: Durability::Memory,
        checkpoint: Checkpointing::None,
        procedures: tatp::procedures().into_iter().chain(tpcb::procedures()).collect(),
        engine,
        ..Options::default()
    };
    let mut random = Random::new(7);
    let mut below = |end: u64| random.below(end) as i32;
    let database = Database::open_on(MemoryDisk::new(), options()).expect("it opens");
    let shape = tatp::Shape { subscribers: rows };
    Tatp::open_or_load(&database, Residence::Memory, shape, Mix::default(), &mut |_| ())
        .expect("the subscribers are loaded");
    for name in [Name::GetSubscriberData, Name::GetAccessData, Name::UpdateSubscriberData] {
        compare(name.as_str(), &mut prepared(&database, name.as_str(), name.only_reads()), pairs, || {
            let mut arguments = vec![Value::Int4(1 + below(u64::from(rows)))];
            if name != Name::GetSubscriberData {
                arguments.push(Value::Int2(1 + below(4) as i16));
            }
            if name == Name::UpdateSubscriberData {
                arguments.extend([Value::Bool(true), Value::Int2(below(256) as i16)]);
            }
            arguments
        });
    }
    drop(database);
    let database = Database::open_on(MemoryDisk::new(), options()).expect("it opens");
    let shape = tpcb::Shape { branches: BRANCHES as u32, accounts: rows };
    Tpcb::open_or_load(&database, Residence::Memory, shape, &mut |_| ()).expect("the bank is loaded");
    compare("tpcb", &mut prepared(&database, "tpcb", false), pairs, || {
        let (account, teller) = (below(u64::from(rows)), below(BRANCHES * u64::from(TELLERS_PER_BRANCH)));
        let branch = teller / TELLERS_PER_BRANCH as i32;
        let numbers = [account, teller, branch].map(Value::Int4);
        numbers.into_iter().chain([Value::Int8(1), Value::Timestamp(0)]).collect()
    });
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>().expect("a number"));
    let (rows, pairs) = (arguments.next().unwrap_or(2_000_000), arguments.next().unwrap_or(101));
    for (name, engine) in
        [("thin locks", Engine::thin()), ("data-oriented, in place", Engine::data_oriented())]
    {
        println!("{name}, {rows} rows, {pairs} pairs");
        run(engine, rows, pairs as usize);
    }
}

//! Tickets: one thread keeps many commits in progress, and an async task awaits two tickets.
//!
//! `cargo run -p rialto --example tickets`

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, TableDef, Ticket};

const TRANSACTIONS: i64 = 2_000;
const IN_FLIGHT: usize = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("rialto-tickets-{}", std::process::id()));
    let db = Database::open(&directory)?;
    let columns = vec![Column::new("id", ColumnType::Int8), Column::new("what", ColumnType::Text)];
    let events = db.transact(|tx| {
        tx.create_table(&TableDef::new("events", columns.clone()).with_primary_key(&["id"]))
    })?;
    let submit = |id: i64| {
        let row = [Value::Int8(id), Value::Text(format!("event {id}"))];
        db.submit(|tx| tx.insert(&events, &row)).map(|((), ticket)| ticket)
    };

    // Blocking: each commit waits for a log write of its own.
    let started = Instant::now();
    for id in 0..TRANSACTIONS / 10 {
        submit(id)?.wait()?;
    }
    println!("one at a time:   {:>8.0} transactions/s", per_second(TRANSACTIONS / 10, started));

    // In flight: a transaction's locks are free once it has its place in the log, and one write makes many durable. A
    // ticket is done when its transaction is durable, and so is all that it read.
    let started = Instant::now();
    let mut ring: VecDeque<Ticket> = VecDeque::with_capacity(IN_FLIGHT);
    for id in TRANSACTIONS..2 * TRANSACTIONS {
        if ring.len() == IN_FLIGHT
            && let Some(oldest) = ring.pop_front()
        {
            oldest.wait()?;
        }
        ring.push_back(submit(id)?);
    }
    ring.into_iter().try_for_each(Ticket::wait)?;
    println!("{IN_FLIGHT} in flight:   {:>8.0} transactions/s", per_second(TRANSACTIONS, started));

    // A ticket is a future, too, for any executor. Dropping one cancels nothing.
    block_on(async {
        let (first, second) = (submit(-1)?, submit(-2)?);
        first.await?;
        second.await
    })?;
    drop(submit(-3)?);
    db.sync()?;

    let rows = db.read(|tx| tx.count(&events))?;
    assert_eq!(rows as i64, TRANSACTIONS / 10 + TRANSACTIONS + 3);
    println!("{rows} rows");
    db.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

fn per_second(transactions: i64, started: Instant) -> f64 {
    transactions as f64 / started.elapsed().as_secs_f64()
}

/// The smallest executor: one future, this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

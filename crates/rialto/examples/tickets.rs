//! Tickets: one thread keeps many transactions on their way to the disk, and learns of each when it is durable.
//!
//! `cargo run -p rialto --example tickets`

use std::time::Instant;

use rialto::{Database, Durability, Record, TxOptions};

#[derive(Record)]
#[record(table = "events")]
struct Event {
    #[record(key)]
    id: i64,
    text: String,
}

const EVENTS: i64 = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("rialto-tickets-{}", std::process::id()));
    let db = Database::open(&directory)?;
    let events = db.records::<Event>()?;

    let since = Instant::now();
    let mut tickets = Vec::new();
    for id in 0..EVENTS {
        let event = Event { id, text: format!("event {id}") };
        let ((), ticket) = db.submit(|tx| events.insert(tx, &event))?;
        tickets.push(ticket);
    }
    let submitted = since.elapsed();
    let on_their_way = tickets.iter().filter(|ticket| ticket.poll_done().is_none()).count();
    for ticket in tickets {
        ticket.wait()?;
    }
    let groups = db.metrics().log.groups;
    println!(
        "{EVENTS} transactions submitted by one thread in {submitted:.1?}, {on_their_way} still on their way;"
    );
    println!("all durable after {:.1?}, in {groups} groups", since.elapsed());

    // A transaction may choose to be done before it is on disk, where it follows within milliseconds.
    let quick = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    let event = Event { id: EVENTS, text: "the last".to_owned() };
    let ((), ticket) = db.submit_with(&quick, |tx| events.insert(tx, &event))?;
    println!("transaction {} at level 1 is done: {:?}", ticket.lsn(), ticket.poll_done());
    ticket.wait()?;

    let last = db.read(|tx| events.get(tx, EVENTS))?;
    assert_eq!(last.map(|event| (event.id, event.text)), Some((EVENTS, "the last".to_owned())));
    assert_eq!(db.read(|tx| tx.count(events.table()))?, EVENTS as u64 + 1);
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

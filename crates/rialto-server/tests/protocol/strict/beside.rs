//! What goes on beside the clients: definitions, cancel requests, changes of the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto::io::Random;
use rialto::{Database, Options};

use super::engines::change_engine;
use super::line::Line;
use super::observed::TABLES;
use super::statements::changes;
use super::worker::Site;
use crate::common::Client;

/// Changes indexes by SQL, and the engine by the database's handle, until it is over.
pub fn change(
    site: &Site<'_>,
    database: &Database,
    options: &Options,
    mut random: Random,
    over: &AtomicBool,
) {
    let mut line = Line::open(site.address);
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(6_000)));
        if random.chance(1, 2) {
            change_engine(database, options, &mut random);
        } else if let Some(line) = line.as_mut() {
            let lists = changes(random.below(TABLES as u64) as usize);
            let list = &lists[random.below(lists.len() as u64) as usize];
            // An index may be there already, the tables are in much use, and the server may be gone.
            if list.iter().any(|sql| line.run(sql).is_err()) {
                let _ = line.run("rollback");
            }
        }
    }
}

/// Sends cancel requests now and then until it is over.
pub fn cancel(site: &Site<'_>, mut random: Random, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(6_000)));
        if let Some((process, secret)) = site.cancellable.lock().unwrap().pop() {
            Client::cancel(site.address, process, secret);
        }
    }
}

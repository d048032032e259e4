//! Work beside the clients: definitions, cancel requests, changes of the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto::io::Random;
use rialto::{Database, Error, Options};

use super::engines::change_engine;
use super::line::Line;
use super::observed::TABLES;
use super::statements::changes;
use super::worker::Site;
use crate::common::Client;

/// Changes indexes by SQL, and the engine by the database's handle, until the clients have ended.
pub fn change(
    site: &Site<'_>,
    database: &Database,
    options: &Options,
    mut random: Random,
    over: &AtomicBool,
) {
    let mut line = Line::open(site.address);
    assert!(line.is_some() || site.may_end, "{}: no connection", site.about);
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(6_000)));
        if random.chance(1, 2) {
            match change_engine(database, options, &mut random) {
                Ok(()) => {}
                // A server that ends closes the database.
                Err(Error::Closed) if site.may_end => {}
                Err(error) => panic!("{}: {error}", site.about),
            }
        } else if let Some(open) = line.as_mut() {
            let lists = changes(random.below(TABLES as u64) as usize);
            let list = &lists[random.below(lists.len() as u64) as usize];
            if !define(open, list, site) {
                line = None;
            }
        }
    }
}

/// Runs definitions that are one transaction; false if the connection is unusable.
fn define(line: &mut Line, list: &[String], site: &Site<'_>) -> bool {
    let Some(refused) = list.iter().find_map(|sql| line.run(sql).err()) else { return true };
    // The index that is made and dropped may exist already.
    if !refused.is("42P07") {
        refused.check(site.may_end, site.about);
    }
    if refused.is_end() {
        return false;
    }
    match line.run("rollback") {
        Ok(_) => true,
        Err(refused) => {
            refused.check(site.may_end, site.about);
            !refused.is_end()
        }
    }
}

/// Sends cancel requests from time to time until the clients have ended.
pub fn cancel(site: &Site<'_>, mut random: Random, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(6_000)));
        if let Some((process, secret)) = site.cancellable.lock().pop() {
            Client::cancel(site.address, process, secret);
        }
    }
}

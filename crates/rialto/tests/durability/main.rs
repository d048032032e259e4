//! The log: when an answer is given, what is durable by then, and disks that hang, lie or lose power.

mod answers;
mod at_rest;
#[path = "../common/mod.rs"]
mod common;
mod disk_tables;
mod driven;
mod group_commit;
mod hung_disk;
mod interleavings;
mod log_cursor;
mod logging;
mod page_space;
mod prepared;
mod random_hangs;
mod stale_sectors;
mod virtual_time;
mod wakers;

//! The connections between nodes: their frames, and nodes in one process that talk over loopback.

mod certificates;
mod cuts;
mod delivery;
mod frames;
mod handlers;
mod handshakes;
mod nodes;
#[path = "../common/proxy.rs"]
mod proxy;
mod refusals;
mod threads;

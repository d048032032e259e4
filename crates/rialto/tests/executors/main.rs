//! The data-oriented engine: executors, the threads that own them, routing, and slow bodies.

mod backoff;
#[path = "../common/mod.rs"]
mod common;
mod ends_beside_bodies;
mod executions;
mod executors;
mod parts_at_bounds;
mod routing;
mod slow_bodies;
mod slow_bodies_on_threads;
mod visits;

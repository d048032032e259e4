//! PostgreSQL's own programs, unmodified: psql and pgbench against the server, and PostgreSQL beside it.

#[path = "../common/mod.rs"]
mod common;
mod copies_beside_postgres;
mod docs_beside_postgres;
mod pgbench;
mod postgres;
mod psql;

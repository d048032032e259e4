//! PostgreSQL's own programs, unmodified: psql and pgbench against the server, and PostgreSQL beside it.

#[path = "../common/mod.rs"]
mod common;
mod copies_beside_postgres;
mod docs_beside_postgres;
#[path = "../../../rialto-sql/tests/common/in_process.rs"]
mod in_process;
mod pgbench;
mod postgres;
mod psql;

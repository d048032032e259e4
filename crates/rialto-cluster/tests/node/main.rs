//! Nodes in one process, over loopback connections, real databases in directories, and a control store in memory.

mod cluster;
mod replication;
mod sql;
mod undecided;
mod unprotected;

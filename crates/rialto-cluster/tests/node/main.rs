//! Nodes in one process, over loopback connections, real databases in directories, and a control store in memory.

mod calls;
mod cluster;
mod replication;
mod sql;

//! Nodes in one process, over loopback connections, real databases in directories, and a control store in memory.

mod backups;
mod cluster;
mod replication;
mod sql;

//! Nodes in one process, over loopback connections, real databases in directories, and a control store in memory.

mod backups;
mod calls;
mod cluster;
mod comparing;
mod late_reads;
mod members;
mod reads;
mod relayed;
mod replication;
mod sql;
mod undecided;
mod unprotected;

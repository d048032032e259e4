//! Control stores: one suite that each of them passes ([`conformance`]), and what is each one's own.

mod conformance;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_process;
mod memory;
#[cfg(feature = "etcd")]
#[path = "../common/proxy.rs"]
mod proxy;

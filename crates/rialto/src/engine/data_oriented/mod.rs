//! The data-oriented engine (the DORA paper): threads own data, transactions travel. Its parts that there are:
//!
//! - local lock tables, one an executor, and the routing rules that say whose the keys of an index are: in
//!   [`lock`](crate::lock), as [`LockForm::Local`](crate::LockForm::Local);
//! - `resource_manager`: keeps the rules in step with how the tables grow.
//!
//! A flow's actions run on the thread that called, each under the local lock that its identifier names
//! ([`conventional`](super::conventional)). Executors that are threads, with inboxes, are not built yet.

mod resource_manager;
mod routing;

pub(crate) use resource_manager::ResourceManager;

//! Stores, and the tables that lie in them.

mod catalog;
mod material;
pub mod memory;
mod storage;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use catalog::{Catalog, CatalogChange};
pub(crate) use material::Material;
pub(crate) use storage::Storage;
#[cfg(test)]
pub(crate) use table::AFTER_FOLLOWING;
pub use table::Table;
pub(crate) use table::{Followed, ROW_NUMBER_BYTES, TableParts, TableVersion};

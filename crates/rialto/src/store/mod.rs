//! Stores, and the tables that lie in them.

pub(crate) mod budget;
mod catalog;
mod material;
pub mod memory;
mod painting;
mod storage;
mod table;
#[cfg(test)]
mod tests;

pub use budget::Budget;
pub(crate) use catalog::{Catalog, CatalogChange};
pub(crate) use material::Material;
pub use memory::SegmentId;
pub use painting::{Consistency, Paint, Painting};
pub(crate) use storage::Storage;
#[cfg(test)]
pub(crate) use table::AFTER_FOLLOWING;
pub use table::Table;
pub(crate) use table::{Followed, ROW_NUMBER_BYTES, TableParts, TableVersion};

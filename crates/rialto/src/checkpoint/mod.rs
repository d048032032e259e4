//! (see ARCHITECTURE.md)
pub(crate) mod image;

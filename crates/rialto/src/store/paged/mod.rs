//! The disk-resident store: trees whose nodes are pages, in a pool of frames.
//!
//! It is being built; no table uses it yet. The note `docs/decisions/2026-11-28-pages-are-nodes-of-the-index-tree.md` has
//! the plan, and the reasons.
//!
//! - [`pool`]: the pages in memory, and how they come and go; [`frames`]: their memory; [`replacement`]: which of them
//!   leaves; [`page_map`]: where each page is; [`cut`]: the pages as they were at a moment.
//! - [`page_file`]: the file of pages; [`file_space`]: which of its addresses are free; [`image`]: a page's form there.
//! - [`paged_tree`]: a tree of pages, whose operations fetch what is missing.
#![allow(dead_code, reason = "no table uses it yet")]

mod bits;
mod cut;
mod file_space;
mod frames;
mod image;
mod page_file;
mod page_map;
mod paged_tree;
mod pool;
mod replacement;
#[cfg(test)]
mod tests;

//! [`KeyAhead`]: keys that are known before they are looked up; [`fetch_together`] reads their pages side by side.

use super::page_access::PageAccess;
use super::paged_tree::RowTree;
use crate::error::Result;

/// A key that is going to be looked up.
pub(crate) struct KeyAhead<'a> {
    tree: &'a dyn RowTree,
    key: &'a [u8],
}

impl<'a> KeyAhead<'a> {
    pub(super) fn of(tree: &'a dyn RowTree, key: &'a [u8]) -> KeyAhead<'a> {
        KeyAhead { tree, key }
    }
}

/// Reads what is missing on the ways to these keys, side by side. A long body is not read.
///
/// # Errors
/// Those of the disk; and if the access gives up, because it may not keep so many pages.
pub(crate) fn fetch_together<'a>(by: &PageAccess, keys: impl Iterator<Item = KeyAhead<'a>>) -> Result<()> {
    let mut keys: Vec<KeyAhead<'_>> = keys.collect();
    let (mut is_first, mut missing) = (true, Vec::new());
    loop {
        missing.clear();
        let mut still = Vec::new();
        for ahead in keys {
            if let Some(page) = ahead.tree.missing(by, ahead.key)? {
                if !missing.contains(&page) {
                    missing.push(page);
                }
                still.push(ahead);
            }
        }
        keys = still;
        let Some(KeyAhead { tree, .. }) = keys.first() else { return Ok(()) };
        let reads = tree.fetch_each(by, &missing)?;
        by.count_ahead(if is_first { missing.len() } else { 0 }, reads);
        is_first = false;
    }
}

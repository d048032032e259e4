//! [`Fingers`]: where a transaction's operations have found keys.
//!
//! An update finds its row, reads it, claims it, gives it room and, at the commit, changes it: five operations on one key. The
//! first descends. It leaves a *finger* there, at which the others begin (a finger search). A finger is a hint: the tree
//! looks whether the leaf is unchanged and has the key (`Tree::try_entry`), and descends if not.

use std::cell::{Cell, OnceCell};

use crate::fault_injection;
use crate::store::tree::Finger;

/// One transaction's fingers on all trees, at most so many. Later ones replace earlier ones.
const FINGERS: usize = 64;

/// A finger in the tree of a root.
#[derive(Clone, Copy)]
struct FingerInTree {
    root: u32,
    finger: Finger,
}

/// See the [module's documentation](self).
#[derive(Default)]
pub(crate) struct Fingers {
    are_kept: bool,
    places: OnceCell<Box<[Cell<Option<FingerInTree>>; FINGERS]>>,
}

impl Fingers {
    /// No fingers, ever: of operations on keys that no other operation follows.
    pub fn none() -> Fingers {
        Fingers::default()
    }

    /// No fingers yet.
    pub fn new() -> Fingers {
        Fingers { are_kept: true, places: OnceCell::new() }
    }

    /// Where an earlier operation may have found the key in the tree of this root.
    #[inline]
    pub fn find(&self, root: u32, key: &[u8]) -> Option<Finger> {
        let kept = self.places.get()?[place(root, key)].get()?;
        let is_of_tree = kept.root == root || fault_injection::is_on("finger-on-another-tree");
        is_of_tree.then_some(kept.finger)
    }

    /// An operation has found the key there, in the tree of this root.
    #[inline]
    pub fn put(&self, root: u32, key: &[u8], finger: Finger) {
        if self.are_kept {
            let places = self.places.get_or_init(|| Box::new([const { Cell::new(None) }; FINGERS]));
            places[place(root, key)].set(Some(FingerInTree { root, finger }));
        }
    }
}

/// The place of the finger on a key. Different keys may have the same.
#[inline]
fn place(root: u32, key: &[u8]) -> usize {
    // The last bytes of keys differ most.
    let last = match key.last_chunk::<8>() {
        Some(last) => u64::from_be_bytes(*last),
        None => key.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    let word = last ^ u64::from(root) << 48 ^ key.len() as u64;
    // Fibonacci hashing.
    (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - FINGERS.ilog2())) as usize
}

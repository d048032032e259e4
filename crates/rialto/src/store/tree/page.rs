//! Nodes as pages: their bytes in a file.

use std::sync::atomic::Ordering;

use super::node::{Control, HEADER_BYTES, LatchedNode, Node};
use crate::fault_injection;

/// Of the image's header (`paged/image.rs`).
const CONTROL: std::ops::Range<usize> = 8..16;
const REMOVAL: std::ops::Range<usize> = 16..24;
const LINK: std::ops::Range<usize> = 24..32;

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

impl<const W: usize> Node<W> {
    /// The bytes of a node, with its header.
    pub(crate) const BYTES: usize = HEADER_BYTES + 8 * W;

    /// What is wrong with an image whose checksum is right, if anything is: its control word describes no layout (I9).
    pub(crate) fn damage(image: &[u8]) -> Option<String> {
        let control = Control::<W>::of_word(word(&image[CONTROL]));
        (!control.is_sound())
            .then(|| format!("a page with control word {:016x} makes no sense", control.word()))
    }

    /// Whether its children are leaves.
    pub(crate) fn leads_to_leaves(&self) -> bool {
        self.control().level() == 1
    }

    /// Writes the node's image into `out`, without its checksum. It may be torn, unless the node is latched or its version
    /// is validated afterwards.
    pub(crate) fn save(&self, out: &mut [u8]) {
        out[..HEADER_BYTES].fill(0);
        out[CONTROL].copy_from_slice(&self.control().word().to_ne_bytes());
        out[REMOVAL].copy_from_slice(&self.removal.load(Ordering::Relaxed).to_ne_bytes());
        out[LINK].copy_from_slice(&self.link.load(Ordering::Relaxed).to_ne_bytes());
        for (word, bytes) in self.body.iter().zip(out[HEADER_BYTES..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
    }
}

impl<const W: usize> LatchedNode<'_, W> {
    /// Makes the node what an image of it says. A leaf is guarded then: its guard may have been set after the image was
    /// made. A page with a claim stays in memory, so a claim in an image is of a transaction that has ended with an earlier
    /// opening.
    pub(crate) fn load(&mut self, image: &[u8]) {
        self.removal.store(word(&image[REMOVAL]), Ordering::Relaxed);
        self.link.store(word(&image[LINK]), Ordering::Relaxed);
        for (at, bytes) in image[HEADER_BYTES..].chunks_exact(8).enumerate() {
            self.put(at, word(bytes));
        }
        self.set_control(Control::of_word(word(&image[CONTROL])));
        if self.control().level() == 0 {
            self.guard();
            if self.has_claims() && !fault_injection::is_on("claims-outlive-their-opening") {
                self.end_claims();
            }
        }
    }
}

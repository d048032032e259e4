//! The bytes of a file that lives in memory: sparse, and cheap to share.

use std::sync::Arc;

use crate::growth::Growing;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// A file's bytes as shared pages; a page that is all zeros may be absent. Clones share pages, and so do images between
/// which pages were copied. A write copies a page only while it is shared.
///
/// Bytes of present pages behind the length are zero.
#[derive(Debug, Clone, Default)]
pub(super) struct FileImage {
    pages: Vec<Option<Arc<Page>>>,
    length: u64,
}

impl FileImage {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Fills `buffer` from `offset`; `false` if the image ends before the buffer is full.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> bool {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.length) {
            return false;
        }
        for (page, within, part) in pieces(offset, buffer.len()) {
            let to = &mut buffer[part];
            match &self.pages[page] {
                Some(bytes) => to.copy_from_slice(&bytes[within..within + to.len()]),
                None => to.fill(0),
            }
        }
        true
    }

    /// Writes `bytes` at `offset`, growing the image if it ends before.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let _growing = Growing::begin();
        self.grow(offset + bytes.len() as u64);
        for (page, within, part) in pieces(offset, bytes.len()) {
            let from = &bytes[part];
            match &mut self.pages[page] {
                // Zeros onto zeros: log files are preallocated, zeroed, and in a test mostly never touched.
                None if is_zero(from) => {}
                Some(old) => Arc::make_mut(old)[within..within + from.len()].copy_from_slice(from),
                empty => {
                    *empty = Some(match from.first_chunk::<PAGE_BYTES>() {
                        Some(whole) => Arc::new(*whole),
                        None => {
                            let mut new = [0; PAGE_BYTES];
                            new[within..within + from.len()].copy_from_slice(from);
                            Arc::new(new)
                        }
                    });
                }
            }
        }
    }

    /// Writes `length` zeros at `offset`.
    pub(super) fn write_zeros(&mut self, offset: u64, length: usize) {
        if length == 0 {
            return;
        }
        self.grow(offset + length as u64);
        for (page, within, part) in pieces(offset, length) {
            if part.len() == PAGE_BYTES {
                self.pages[page] = None;
            } else if let Some(old) = &mut self.pages[page] {
                Arc::make_mut(old)[within..within + part.len()].fill(0);
            }
        }
    }

    /// Cuts or extends with zeros.
    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.pages.truncate(length.div_ceil(PAGE_BYTES as u64) as usize);
            let within = (length % PAGE_BYTES as u64) as usize;
            if within != 0
                && let Some(Some(last)) = self.pages.last_mut()
            {
                Arc::make_mut(last)[within..].fill(0);
            }
            self.length = length;
        } else {
            self.grow(length);
        }
    }

    /// Extends with zeros to at least `length`.
    pub(super) fn grow(&mut self, length: u64) {
        if length > self.length {
            let pages = length.div_ceil(PAGE_BYTES as u64) as usize;
            if pages > self.pages.len() {
                self.pages.resize(pages, None);
            }
            self.length = length;
        }
    }

    /// Takes the pages of `from` that `offset..offset + length` touches, as far as both images reach.
    pub(super) fn share(&mut self, from: &FileImage, offset: u64, length: usize) {
        for (page, ..) in pieces(offset, length) {
            if let (Some(to), Some(from)) = (self.pages.get_mut(page), from.pages.get(page)) {
                to.clone_from(from);
            }
        }
    }
}

/// The pages that `length` bytes at `offset` touch: page, first byte within it, range within the buffer.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset as usize + done;
        let within = at % PAGE_BYTES;
        let part = done..length.min(done + PAGE_BYTES - within);
        done = part.end;
        Some((at / PAGE_BYTES, within, part))
    })
}

/// Whether all bytes are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks_exact(64);
    chunks.all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0)
        && bytes.chunks_exact(64).remainder().iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(image: &FileImage) -> Vec<u8> {
        let mut bytes = vec![1; image.length() as usize];
        assert!(image.read(&mut bytes, 0));
        bytes
    }

    #[test]
    fn behaves_like_a_vector_of_bytes() {
        let mut random = super::super::Random::new(7);
        let mut image = FileImage::default();
        let mut model: Vec<u8> = Vec::new();
        for round in 0..2000 {
            let offset = random.below(20_000) as usize;
            let length = random.below(9_000) as usize + 1;
            match random.below(5) {
                0 => {
                    image.set_length(offset as u64);
                    model.resize(offset, 0);
                }
                1 => {
                    image.write_zeros(offset as u64, length);
                    model.resize(model.len().max(offset + length), 0);
                    model[offset..offset + length].fill(0);
                }
                2 => {
                    image.write(&[], offset as u64);
                    image.write_zeros(offset as u64, 0);
                }
                _ => {
                    let bytes = vec![(round % 3) as u8; length];
                    image.write(&bytes, offset as u64);
                    model.resize(model.len().max(offset + length), 0);
                    model[offset..offset + length].copy_from_slice(&bytes);
                }
            }
            assert_eq!(contents(&image), model, "round {round}");
        }
        assert!(!image.read(&mut [0], image.length()));
        assert!(!image.read(&mut [0], u64::MAX));
    }

    #[test]
    fn a_clone_does_not_see_later_writes() {
        let mut image = FileImage::default();
        image.write(&[5; 10_000], 0);
        let before = image.clone();
        image.write(&[6; 10], 4090);
        assert_eq!(contents(&before), vec![5; 10_000]);
        let mut caught_up = before.clone();
        caught_up.share(&image, 4090, 10);
        assert_eq!(contents(&caught_up), contents(&image));
    }

    #[test]
    fn zeros_cost_no_pages() {
        let mut image = FileImage::default();
        image.write(&vec![0; 1 << 20], 100);
        image.grow(1 << 22);
        assert!(image.pages.iter().all(Option::is_none));
        assert!(is_zero(&[0; 130]) && !is_zero(&[[0; 129].as_slice(), &[1]].concat()));
    }
}

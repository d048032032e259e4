//! Keys as the nodes see them: runs of big-endian words, so that comparing numbers compares the bytes.
//!
//! A key in a node is the node's common prefix and a *suffix*. The suffix's first eight bytes, padded with zeroes, are
//! its *head*, which lies in the entry; the rest is its *tail*, in the node's heap: one word of six bytes and the
//! length of the suffix, then words of eight bytes, padded with zeroes. Heads and tail words that are equal leave the
//! order to the lengths, because the shorter suffix can then only be the longer one less some zero bytes at its end.

/// The longest key that an index takes, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The bytes of a suffix that lie in its head.
pub(super) const HEAD_BYTES: usize = 8;
/// The bytes of a suffix that lie in the first word of its tail, beside the length.
pub(super) const FIRST_TAIL_BYTES: usize = 6;

/// The first eight bytes of `bytes`, padded with zeros, as a number in the same order.
#[inline(always)]
pub(super) fn be_word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => be_word_short(bytes),
    }
}

#[inline]
fn be_word_short(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        // The two halves overlap, and agree where they do.
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        u64::from(first) << 32 | u64::from(last) << (8 * (8 - len))
    } else {
        bytes.iter().enumerate().fold(0, |word, (at, &byte)| word | u64::from(byte) << (56 - 8 * at))
    }
}

/// The words that the tail of a suffix of `len` bytes takes.
#[inline]
pub(super) const fn tail_words(len: usize) -> usize {
    if len <= HEAD_BYTES { 0 } else { 1 + len.saturating_sub(HEAD_BYTES + FIRST_TAIL_BYTES).div_ceil(8) }
}

/// Word `at` of the tail of `suffix`, which is longer than a head.
#[inline]
pub(super) fn tail_word(suffix: &[u8], at: usize) -> u64 {
    if at == 0 {
        be_word(&suffix[HEAD_BYTES..]) & !0xffff | suffix.len() as u64 & 0xffff
    } else {
        be_word(&suffix[HEAD_BYTES + FIRST_TAIL_BYTES + 8 * (at - 1)..])
    }
}

/// The length of the common prefix of two byte strings.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (words_of_a, words_of_b) = (a.chunks_exact(8), b.chunks_exact(8));
    let mut same = 0;
    for (a, b) in words_of_a.zip(words_of_b) {
        let differs = be_word(a) ^ be_word(b);
        if differs != 0 {
            return same + differs.leading_zeros() as usize / 8;
        }
        same += 8;
    }
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

/// The shortest byte string `s` with `left < s <= right`: a prefix of `right`. `left < right`.
pub(super) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    debug_assert!(left < right);
    &right[..common_prefix(left, right) + 1]
}

/// A key that is looked for.
#[derive(Clone, Copy)]
pub(super) struct SearchKey<'k> {
    pub(super) key: &'k [u8],
    /// A key of up to eight bytes, padded; of a longer key its last eight bytes.
    edge: u64,
}

impl<'k> SearchKey<'k> {
    #[inline(always)]
    pub(super) fn new(key: &'k [u8]) -> SearchKey<'k> {
        // A key of four bytes is an int4.
        let edge = match (<&[u8; 4]>::try_from(key), key.last_chunk::<8>()) {
            (Ok(four), _) => u64::from(u32::from_be_bytes(*four)) << 32,
            (_, Some(chunk)) => u64::from_be_bytes(*chunk),
            _ => be_word_short(key),
        };
        SearchKey { key, edge }
    }

    /// The head of the key behind a prefix of `prefix` bytes.
    #[inline(always)]
    pub(super) fn head(&self, prefix: usize) -> u64 {
        let len = self.key.len();
        if self.is_short() {
            return self.head_of_short(prefix);
        }
        if let Some(chunk) = self.key.get(prefix..prefix + 8) {
            return be_word(chunk);
        }
        let left = len.saturating_sub(prefix);
        if left == 0 { 0 } else { self.edge << (8 * (8 - left)) }
    }

    /// Whether the key is no longer than a head.
    #[inline(always)]
    pub(super) fn is_short(&self) -> bool {
        self.key.len() <= HEAD_BYTES
    }

    /// As [`SearchKey::head`], for a key that is no longer than a head.
    #[inline(always)]
    pub(super) fn head_of_short(&self, prefix: usize) -> u64 {
        if prefix < HEAD_BYTES { self.edge << (8 * prefix) } else { 0 }
    }

    /// The key behind a prefix of `prefix` bytes.
    #[inline]
    pub(super) fn suffix(&self, prefix: usize) -> &'k [u8] {
        self.key.get(prefix..).unwrap_or(&[])
    }
}

/// Room for one key, written word by word.
pub(super) struct KeyBuf {
    len: usize,
    bytes: [u8; MAX_KEY_BYTES + 16],
}

impl KeyBuf {
    pub(super) fn new() -> KeyBuf {
        KeyBuf { len: 0, bytes: [0; MAX_KEY_BYTES + 16] }
    }

    pub(super) fn set(&mut self, key: &[u8]) {
        self.bytes[..key.len()].copy_from_slice(key);
        self.len = key.len();
    }

    /// Puts `word`'s bytes at `at`, if that lies inside; a torn read may ask for more.
    #[inline]
    pub(super) fn put_word(&mut self, at: usize, word: u64) {
        if let Some(into) = self.bytes.get_mut(at..at + 8) {
            into.copy_from_slice(&word.to_be_bytes());
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(MAX_KEY_BYTES);
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_order_as_bytes() {
        assert_eq!(be_word(b""), 0);
        assert_eq!(be_word(b"a"), 0x61 << 56);
        assert_eq!(be_word(b"abc"), 0x616263 << 40);
        for len in 0..=9 {
            let bytes = &b"abcdefghi"[..len];
            let mut padded = [0; 8];
            padded[..len.min(8)].copy_from_slice(&bytes[..len.min(8)]);
            assert_eq!(be_word(bytes), u64::from_be_bytes(padded), "length {len}");
        }
    }

    #[test]
    fn a_probes_head_is_its_suffixs_first_word() {
        let key: Vec<u8> = (1..=40).collect();
        for len in 0..key.len() {
            let probe = SearchKey::new(&key[..len]);
            for prefix in 0..len + 3 {
                assert_eq!(probe.head(prefix), be_word(probe.suffix(prefix)), "length {len} prefix {prefix}");
            }
        }
    }

    #[test]
    fn common_prefixes_end_where_bytes_differ_first() {
        let key: Vec<u8> = (1..=40).collect();
        for len in 0..key.len() {
            assert_eq!(common_prefix(&key[..len], &key), len);
            for at in 0..len {
                let mut other = key.clone();
                other[at] ^= 0x80;
                assert_eq!(
                    (common_prefix(&key[..len], &other), common_prefix(&other, &key[..len])),
                    (at, at)
                );
            }
        }
    }

    #[test]
    fn separators_are_short_and_in_between() {
        assert_eq!(separator(b"abc", b"abz"), b"abz");
        assert_eq!(separator(b"abc", b"b234"), b"b");
        assert_eq!(separator(b"ab", b"ab\0\0"), b"ab\0");
        assert_eq!(separator(b"", b"x"), b"x");
    }

    #[test]
    fn tails_take_the_words_they_need() {
        assert_eq!(tail_words(0), 0);
        assert_eq!(tail_words(8), 0);
        assert_eq!(tail_words(9), 1);
        assert_eq!(tail_words(14), 1);
        assert_eq!(tail_words(15), 2);
        assert_eq!(tail_words(22), 2);
        assert_eq!(tail_words(23), 3);
        assert_eq!(tail_words(MAX_KEY_BYTES), 128);
    }
}

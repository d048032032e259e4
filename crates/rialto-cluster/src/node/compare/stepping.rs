//! Keys after a row that cannot be locked.

/// How many keys are tried at most.
pub const STEPS_MAX: usize = 128;
/// The width of a number: keys that are shorter are taken for one.
const WIDTH: usize = 8;

/// Looks, by halves, for a key after which the next row can be locked, as near as possible to one after which it
/// cannot.
pub struct Stepping {
    /// After this key it cannot.
    below: Vec<u8>,
    /// After this one it can.
    above: Vec<u8>,
}

impl Stepping {
    /// After this key the next row cannot be locked. The first key to try is [`Stepping::last`].
    pub fn new(after: &[u8]) -> Stepping {
        let mut below = after.to_vec();
        // Longer than the key, so that there are keys between this one and the next.
        below.resize(after.len().max(WIDTH) + 1, 0);
        Stepping { above: vec![0xFF; below.len()], below }
    }

    /// The nearest key after which the next row can be locked: at first the last one of all.
    pub fn last(&self) -> Vec<u8> {
        self.above.clone()
    }

    /// The next key to try, half way; none if the nearest one is found.
    pub fn next(&self) -> Option<Vec<u8>> {
        let (mut sum, mut carry) = (vec![0; self.below.len()], 0);
        for at in (0..sum.len()).rev() {
            let both = u16::from(self.below[at]) + u16::from(self.above[at]) + carry;
            (sum[at], carry) = (both as u8, both >> 8);
        }
        for byte in &mut sum {
            let both = (carry << 8) | u16::from(*byte);
            (*byte, carry) = ((both >> 1) as u8, both & 1);
        }
        (sum != self.below).then_some(sum)
    }

    /// After the key that was tried, the next row can be locked, or not.
    pub fn tried(&mut self, key: Vec<u8>, can_be_locked: bool) {
        match can_be_locked {
            true => self.above = key,
            false => self.below = key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key after which a comparison goes on if its next row, the first of these, is locked.
    fn found(after: &[u8], locked: &[u8]) -> Vec<u8> {
        let mut stepping = Stepping::new(after);
        let mut steps = 0;
        while let Some(key) = stepping.next() {
            assert!(&key[..] > after, "{key:?}");
            let can_be_locked = &key[..] >= locked;
            stepping.tried(key, can_be_locked);
            steps += 1;
        }
        assert!(steps <= STEPS_MAX, "{steps} steps");
        stepping.last()
    }

    #[test]
    fn the_row_whose_lock_is_not_to_be_had_is_stepped_over_alone() {
        let number = |number: i64| ((number as u64) ^ (1 << 63)).to_be_bytes().to_vec();
        for locked in [i64::MIN, -1, 0, 1, 150, i64::MAX - 1] {
            for after in [Vec::new(), number(locked.saturating_sub(3))] {
                let key = found(&after, &number(locked));
                assert!(key >= number(locked) && key < number(locked + 1), "{locked}: {key:?}");
            }
        }
        let key = found(b"note 149", b"note 15");
        assert!(key[..] >= b"note 15"[..] && key[..] < b"note 150"[..], "{key:?}");
    }
}

//! Keys behind a row that cannot be locked.

/// How many steps there are at most: from the last bits of a key of 64 bytes to the first ones.
pub const STEPS_MAX: u32 = 256;
/// Bytes behind those of the key, so that the first steps stay before keys that begin with this one.
const FINER: usize = 4;
/// A key without bytes is taken for this many zeros: the width of a number.
const WIDTH: usize = 8;

/// A key behind this one: each step goes four times as far as the one before, so at most four times as far as is needed. None
/// if there is no such key.
pub fn stepped(key: &[u8], step: u32) -> Option<Vec<u8>> {
    let mut stepped = if key.is_empty() { vec![0; WIDTH] } else { key.to_vec() };
    stepped.resize(stepped.len() + FINER, 0);
    let (bytes, bits) = ((step / 4) as usize, 2 * (step % 4));
    let mut at = stepped.len().checked_sub(1 + bytes)?;
    let mut carry = 1_u16 << bits;
    loop {
        let sum = u16::from(stepped[at]) + carry;
        stepped[at] = sum as u8;
        carry = sum >> 8;
        match carry {
            0 => return Some(stepped),
            _ => at = at.checked_sub(1)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_behind_the_one_before_until_no_key_is() {
        for key in [&b""[..], b"a", b"note 150", &7_u64.to_be_bytes(), &[0xFF, 0xFE, 0xFF]] {
            let mut before = key.to_vec();
            let mut steps = 0;
            while let Some(behind) = stepped(key, steps) {
                assert!(behind > before, "{key:?}, step {steps}");
                (before, steps) = (behind, steps + 1);
            }
            assert!((20..STEPS_MAX).contains(&steps), "{key:?}: {steps} steps");
        }
    }

    #[test]
    fn a_number_is_stepped_over_alone() {
        let key = |number: u64| number.to_be_bytes().to_vec();
        let first = (0..STEPS_MAX).find_map(|step| stepped(&key(255), step).filter(|to| *to >= key(256)));
        let first = first.unwrap();
        assert!(first >= key(256) && first < key(257), "{first:?}");
    }
}

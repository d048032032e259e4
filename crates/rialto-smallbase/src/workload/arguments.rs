//! The arguments of calls: whole numbers, one after the other.

use rialto::{Error, Result};

/// The bytes of some numbers.
pub fn bytes<const N: usize>(numbers: [i64; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The numbers of a call's arguments.
///
/// # Errors
/// If they are not as many.
pub fn numbers<const N: usize>(bytes: &[u8]) -> Result<[i64; N]> {
    let mut numbers = [0; N];
    let chunks = bytes.as_chunks::<8>();
    if chunks.0.len() != N || !chunks.1.is_empty() {
        return Err(Error::aborted(format!(
            "the call has {} bytes of arguments, expected {}",
            bytes.len(),
            8 * N
        )));
    }
    for (number, chunk) in numbers.iter_mut().zip(chunks.0) {
        *number = i64::from_le_bytes(*chunk);
    }
    Ok(numbers)
}

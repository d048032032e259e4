//! Reads and writes of whole buffers, by system calls that may be interrupted (`EINTR`) or move fewer bytes than asked
//! for.

use std::io;

use rustix::io::Errno;

/// A transfer that failed, and how many of its bytes had been moved before.
#[derive(Debug)]
pub(super) struct PartialTransfer {
    pub(super) done: usize,
    pub(super) error: io::Error,
}

/// Fills a buffer by `read`, which is given the rest of the buffer and the number of bytes read before. An
/// `UnexpectedEof` error if the file ends before. In a file opened for direct access, a read that stops within a block
/// of `block` bytes counts as the file's end: a read of the rest would not be aligned.
pub(super) fn read_all(
    buffer: &mut [u8],
    block: Option<usize>,
    mut read: impl FnMut(&mut [u8], usize) -> Result<usize, Errno>,
) -> Result<(), PartialTransfer> {
    let mut done = 0;
    while done < buffer.len() {
        let bytes = match read(&mut buffer[done..], done) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(PartialTransfer { done, error: error.into() }),
            Ok(bytes) => bytes,
        };
        done += bytes;
        let is_within_block = block.is_some_and(|block| !done.is_multiple_of(block));
        if bytes == 0 || done < buffer.len() && is_within_block {
            return Err(PartialTransfer { done, error: io::ErrorKind::UnexpectedEof.into() });
        }
    }
    Ok(())
}

/// Writes `length` bytes by `write`, which is given the number of bytes written before. A `WriteZero` error if it
/// writes none and returns no error: repeated attempts might never end.
pub(super) fn write_all(
    length: usize,
    mut write: impl FnMut(usize) -> Result<usize, Errno>,
) -> Result<(), PartialTransfer> {
    let mut done = 0;
    while done < length {
        match write(done) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(PartialTransfer { done, error: error.into() }),
            Ok(0) => {
                let what = format!("the system wrote none of {} bytes, without an error", length - done);
                return Err(PartialTransfer { done, error: io::Error::new(io::ErrorKind::WriteZero, what) });
            }
            Ok(bytes) => done += bytes,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Random;
    use super::*;

    const BLOCK: usize = 4096;

    /// A file of a system that interrupts calls and moves as few bytes as it likes.
    struct Reluctant {
        bytes: Vec<u8>,
        random: Random,
        block: usize,
        interrupted: u32,
        short: u32,
    }

    impl Reluctant {
        fn new(seed: u64, length: usize, block: usize) -> Reluctant {
            let mut random = Random::new(seed);
            let bytes = (0..length).map(|_| random.next() as u8).collect();
            Reluctant { bytes, random, block, interrupted: 0, short: 0 }
        }

        /// How many of this many bytes a call moves: whole blocks, at least one.
        fn moves(&mut self, bytes: usize) -> Result<usize, Errno> {
            if self.random.chance(1, 3) {
                self.interrupted += 1;
                return Err(Errno::INTR);
            }
            let blocks = 1 + self.random.below(bytes.div_ceil(self.block).max(1) as u64) as usize;
            let moved = bytes.min(blocks * self.block);
            self.short += u32::from(moved < bytes);
            Ok(moved)
        }

        fn read(&mut self, buffer: &mut [u8], offset: usize) -> Result<usize, Errno> {
            let length = self.moves(buffer.len())?.min(self.bytes.len() - offset);
            buffer[..length].copy_from_slice(&self.bytes[offset..offset + length]);
            Ok(length)
        }

        fn write(&mut self, buffer: &[u8], offset: usize) -> Result<usize, Errno> {
            let length = self.moves(buffer.len())?;
            self.bytes[offset..offset + length].copy_from_slice(&buffer[..length]);
            Ok(length)
        }
    }

    #[test]
    fn all_is_moved_by_calls_that_move_little_or_are_interrupted() {
        let seed = Random::seed_from_environment();
        println!("RIALTO_SEED={seed}");
        let (mut interrupted, mut short) = (0, 0);
        for (nth, block) in [1, 512, BLOCK].into_iter().enumerate() {
            for length in [0, BLOCK, 20 * BLOCK] {
                let mut file = Reluctant::new(seed.wrapping_add(nth as u64), length, block);
                let mut read = vec![0; length];
                let direct = (block == BLOCK).then_some(BLOCK);
                read_all(&mut read, direct, |rest, done| file.read(rest, done)).unwrap();
                assert_eq!(read, file.bytes, "{block}");
                let other = vec![7; length];
                write_all(length, |done| file.write(&other[done..], done)).unwrap();
                assert_eq!(file.bytes, other, "{block}");
                (interrupted, short) = (interrupted + file.interrupted, short + file.short);
            }
        }
        assert!(interrupted > 0 && short > 0, "{interrupted} interrupted, {short} short");
    }

    #[test]
    fn a_file_that_ends_is_an_error_whichever_call_meets_its_end() {
        for (length, block) in [(0, None), (100, None), (BLOCK, Some(BLOCK)), (BLOCK + 512, Some(BLOCK))] {
            let mut file = Reluctant::new(1, length, BLOCK);
            let mut buffer = vec![0; 2 * BLOCK];
            let cut = read_all(&mut buffer, block, |rest, done| file.read(rest, done)).unwrap_err();
            assert_eq!((cut.done, cut.error.kind()), (length, io::ErrorKind::UnexpectedEof));
        }
    }

    #[test]
    fn a_system_that_writes_nothing_is_no_endless_loop() {
        let answers = [Err(Errno::INTR), Ok(5), Err(Errno::INTR), Ok(0)];
        let mut next = answers.into_iter();
        let cut = write_all(8, |_| next.next().expect("no call behind the one that wrote nothing"));
        let cut = cut.unwrap_err();
        assert_eq!((cut.done, cut.error.kind()), (5, io::ErrorKind::WriteZero));
        assert!(cut.error.to_string().contains("none of 3 bytes"), "{}", cut.error);
    }

    #[test]
    fn an_error_ends_the_transfer_where_it_is() {
        let mut answers = [Ok(5), Err(Errno::NOSPC), Ok(3)].into_iter();
        let cut = write_all(8, |_| answers.next().expect("a call")).unwrap_err();
        assert_eq!((cut.done, cut.error.raw_os_error()), (5, Some(Errno::NOSPC.raw_os_error())));
        assert_eq!(answers.len(), 1, "nothing is tried again");
        let mut answers = [Ok(5), Err(Errno::IO), Ok(3)].into_iter();
        let cut = read_all(&mut [0; 8], None, |_, _| answers.next().expect("a call")).unwrap_err();
        assert_eq!((cut.done, cut.error.raw_os_error()), (5, Some(Errno::IO.raw_os_error())));
    }
}

//! [`Corpus`]: the inputs of a target that are kept in the repository, in the file `fuzz/corpus/TARGET`.
//!
//! A file is a sequence of inputs. Each is a byte that says why the input is kept, its length in four bytes, the lowest
//! first, and its bytes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{fs, io};

/// The most bytes of the inputs that are kept for what they cover.
const BYTES_MAX: usize = 200 << 10;
/// The kinds of inputs in a file.
const COVERS: u8 = 0;
const FAILED: u8 = 1;

/// The kept inputs of a target.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Corpus {
    /// Inputs that once showed a fault. They stay for good.
    pub failed: BTreeSet<Vec<u8>>,
    /// Inputs kept for what they cover: the shortest of a smallest set that covers everything found, as far as the
    /// bounds allow. A run of the fuzzer replaces them.
    pub covering: Vec<Vec<u8>>,
}

impl Corpus {
    /// The file of a target's corpus.
    pub fn path(target: &str) -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", target].iter().collect()
    }

    /// Reads a target's file.
    ///
    /// # Errors
    /// Those of reading it; [`io::ErrorKind::InvalidData`] if it is no corpus.
    pub fn load(target: &str) -> io::Result<Corpus> {
        let path = Corpus::path(target);
        let located = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Corpus::decode(&fs::read(&path).map_err(located)?).map_err(located)
    }

    /// Writes a target's file.
    ///
    /// # Errors
    /// Those of writing it.
    pub fn store(&self, target: &str) -> io::Result<()> {
        fs::write(Corpus::path(target), self.encode())
    }

    /// Replaces the inputs that are kept for what they cover by the shortest of these, at most `most`, and at most 200
    /// KiB in all.
    pub fn cover_by(&mut self, mut inputs: Vec<Vec<u8>>, most: usize) {
        inputs.sort_unstable_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
        inputs.dedup();
        let mut bytes = 0;
        let fitting = inputs.into_iter().filter(|input| !self.failed.contains(input)).take(most);
        self.covering = fitting
            .take_while(|input| {
                bytes += input.len();
                bytes <= BYTES_MAX
            })
            .collect();
    }

    fn encode(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let failed = self.failed.iter().map(|input| (FAILED, input));
        for (kind, input) in failed.chain(self.covering.iter().map(|input| (COVERS, input))) {
            file.push(kind);
            file.extend_from_slice(&(input.len() as u32).to_le_bytes());
            file.extend_from_slice(input);
        }
        file
    }

    fn decode(mut file: &[u8]) -> io::Result<Corpus> {
        let mut corpus = Corpus::default();
        let length = file.len();
        while !file.is_empty() {
            let at = length - file.len();
            let cut = || io::Error::new(io::ErrorKind::InvalidData, format!("no input begins at byte {at}"));
            let (head, rest) = file.split_first_chunk::<5>().ok_or_else(cut)?;
            let [kind, length @ ..] = *head;
            let (input, rest) = rest.split_at_checked(u32::from_le_bytes(length) as usize).ok_or_else(cut)?;
            match kind {
                COVERS => corpus.covering.push(input.to_vec()),
                FAILED => drop(corpus.failed.insert(input.to_vec())),
                _ => return Err(cut()),
            }
            file = rest;
        }
        Ok(corpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Corpus {
        let mut corpus = Corpus { failed: [b"long and failed".to_vec(), vec![]].into(), covering: vec![] };
        corpus.cover_by(vec![b"abc".to_vec(), b"b".to_vec(), vec![], b"a".to_vec(), b"b".to_vec()], 3);
        corpus
    }

    #[test]
    fn the_shortest_are_kept_and_what_failed_in_any_case() {
        let mut corpus = some();
        assert_eq!(corpus.covering, [b"a".to_vec(), b"b".to_vec(), b"abc".to_vec()]);
        corpus.cover_by(vec![vec![7; 150 << 10], vec![8; 150 << 10], vec![9; 2]], 3);
        assert_eq!(corpus.covering, [vec![9; 2], vec![7; 150 << 10]]);
        corpus.cover_by(vec![vec![1], vec![2]], 1);
        assert_eq!((corpus.covering, corpus.failed.len()), (vec![vec![1]], 2));
    }

    #[test]
    fn a_file_is_read_as_it_was_written_or_refused() {
        let file = some().encode();
        assert_eq!(Corpus::decode(&file).unwrap(), some());
        let is_whole = |length: usize| Corpus::decode(&file[..length]).is_ok();
        let ends: Vec<usize> = (0..=file.len()).filter(|length| is_whole(*length)).collect();
        assert_eq!(ends, [0, 5, 25, 31, 37, 45]);
        assert!(Corpus::decode(&[2, 0, 0, 0, 0]).is_err(), "an unknown kind");
    }
}

//! Messages that wait to be written to one node, in a lane for each class.

use std::collections::VecDeque;

use super::frame::{self, Kind};

/// Bytes of one write at most, if no single message is longer. A message of the protocol waits for one write of others.
pub(super) const WRITE_MAX: usize = 64 << 10;

/// What a message is for, and therefore how much room it may take, and when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Votes, decisions, promises: they are written before all that is queued.
    Protocol,
    /// Requests and answers: their senders have a way to wait.
    Work,
    /// Blocks of a log, and copies of replicas: their senders have a way to wait. They and work are written by turns.
    Blocks,
}

/// The number of classes.
pub(super) const CLASSES: usize = 3;

/// A number for each class.
pub(super) type PerClass = [usize; CLASSES];

impl Class {
    pub(super) fn index(self) -> usize {
        match self {
            Class::Protocol => 0,
            Class::Work => 1,
            Class::Blocks => 2,
        }
    }
}

/// Messages of one class, as frames, in their order.
#[derive(Default)]
struct Lane {
    bytes: VecDeque<u8>,
    /// The length of each frame.
    lengths: VecDeque<usize>,
}

/// The messages of all classes.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: [Lane; CLASSES],
    /// Bytes of work that were taken while blocks waited, less those of blocks that were taken while work waited.
    ahead: isize,
}

/// What was taken for one write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub messages: u64,
    /// Bytes of each class.
    pub bytes: PerClass,
}

impl Lanes {
    pub(super) fn push(&mut self, class: Class, payload: &[u8]) {
        let lane = &mut self.lanes[class.index()];
        frame::append(&mut lane.bytes, Kind::Message, payload);
        lane.lengths.push_back(frame::HEADER + payload.len());
    }

    /// Appends the messages of other lanes to these, class by class.
    pub(super) fn append(&mut self, others: &mut Lanes) {
        for (lane, other) in self.lanes.iter_mut().zip(&mut others.lanes) {
            lane.bytes.append(&mut other.bytes);
            lane.lengths.append(&mut other.lengths);
        }
    }

    pub(super) fn clear(&mut self) {
        for lane in &mut self.lanes {
            lane.bytes.clear();
            lane.lengths.clear();
        }
        self.ahead = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.lengths.is_empty())
    }

    /// Bytes of each class.
    pub(super) fn bytes(&self) -> PerClass {
        std::array::from_fn(|index| self.lanes[index].bytes.len())
    }

    /// Takes what goes by the next write into an empty buffer: up to [`WRITE_MAX`] bytes, or one longer message.
    pub(super) fn take(&mut self, into: &mut Vec<u8>) -> Taken {
        debug_assert!(into.is_empty());
        let mut taken = Taken::default();
        while let Some(class) = self.next() {
            let lane = &mut self.lanes[class.index()];
            let length = lane.lengths[0];
            if !into.is_empty() && into.len() + length > WRITE_MAX {
                break;
            }
            lane.lengths.pop_front();
            let (first, second) = lane.bytes.as_slices();
            let from_first = length.min(first.len());
            into.extend_from_slice(&first[..from_first]);
            into.extend_from_slice(&second[..length - from_first]);
            lane.bytes.drain(..length);
            self.count_turn(class, length);
            taken.messages += 1;
            taken.bytes[class.index()] += length;
        }
        taken
    }

    /// The class of the message that is written next.
    fn next(&self) -> Option<Class> {
        let waits = |class: Class| !self.lanes[class.index()].lengths.is_empty();
        if rialto::fault_injection::is_on("protocol-behind-work") && waits(Class::Work) {
            return Some(Class::Work);
        }
        if rialto::fault_injection::is_on("blocks-before-work")
            && waits(Class::Blocks)
            && !waits(Class::Protocol)
        {
            return Some(Class::Blocks);
        }
        if waits(Class::Protocol) {
            return Some(Class::Protocol);
        }
        match (waits(Class::Work), waits(Class::Blocks)) {
            (true, true) if self.ahead <= 0 => Some(Class::Work),
            (_, true) => Some(Class::Blocks),
            (true, false) => Some(Class::Work),
            (false, false) => None,
        }
    }

    /// Work and blocks take turns by bytes while both wait; a class that did not wait has no claim on earlier turns.
    fn count_turn(&mut self, class: Class, length: usize) {
        let length = isize::try_from(length).expect("a frame is shorter than memory");
        match class {
            Class::Protocol => {}
            Class::Work => self.ahead += length,
            Class::Blocks => self.ahead -= length,
        }
        let waits = |class: Class| !self.lanes[class.index()].lengths.is_empty();
        if !(waits(Class::Work) && waits(Class::Blocks)) {
            self.ahead = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Instant;

    use rialto::io::Random;

    use super::{Class, Lanes, WRITE_MAX};
    use crate::net::frame::{Decoder, HEADER};

    const LONGEST: usize = 100_000;
    const CLASSES: [Class; 3] = [Class::Protocol, Class::Work, Class::Blocks];

    /// What is queued, by class: the number and the length of each message.
    #[derive(Default)]
    struct Model {
        queued: [VecDeque<(u64, usize)>; 3],
        next: u64,
    }

    impl Model {
        fn push(&mut self, lanes: &mut Lanes, class: Class, length: usize) {
            let mut payload = vec![class.index() as u8; length];
            payload[1..9].copy_from_slice(&self.next.to_le_bytes());
            lanes.push(class, &payload);
            self.queued[class.index()].push_back((self.next, length));
            self.next += 1;
        }

        fn waits(&self, class: Class) -> bool {
            !self.queued[class.index()].is_empty()
        }

        /// A message that was written: it is the oldest one of its class.
        fn written(&mut self, payload: &[u8]) -> Class {
            let class = CLASSES[usize::from(payload[0])];
            let number = u64::from_le_bytes(payload[1..9].try_into().expect("eight bytes"));
            assert_eq!(self.queued[class.index()].pop_front(), Some((number, payload.len())), "{class:?}");
            class
        }
    }

    /// Messages of a class keep their order; those of the protocol go first; work and blocks take turns, so that
    /// neither gets ahead of the other by more than one message while both wait; a write is bounded.
    #[test]
    fn the_protocol_goes_first_and_work_and_blocks_go_by_turns_each_in_order() {
        let first = Random::seed_from_environment();
        println!("RIALTO_SEED={first}");
        let (began, mut seed) = (Instant::now(), first);
        while seed == first || began.elapsed() < Random::test_time_from_environment() {
            follow(&mut Random::new(seed));
            seed = seed.wrapping_add(1);
        }
    }

    fn follow(random: &mut Random) {
        let mut below = |bound: usize| random.next() as usize % bound;
        let (mut lanes, mut turn, mut model) = (Lanes::default(), Lanes::default(), Model::default());
        // What work is ahead of blocks, in bytes, since both wait.
        let (mut ahead, mut written) = (0_isize, Vec::new());
        for _ in 0..200 {
            for _ in 0..below(12) {
                let bound = [10, 1_000, 20_000, LONGEST - 8][below(4)];
                let length = 9 + below(bound);
                let class = CLASSES[below(3)];
                if below(2) == 0 {
                    lanes.append(&mut turn);
                    model.push(&mut lanes, class, length);
                } else {
                    model.push(&mut turn, class, length);
                }
            }
            lanes.append(&mut turn);
            assert!(turn.is_empty());
            written.clear();
            let before = lanes.bytes();
            let taken = lanes.take(&mut written);
            assert_eq!(taken.bytes.iter().sum::<usize>(), written.len());
            for ((before, taken), left) in before.into_iter().zip(taken.bytes).zip(lanes.bytes()) {
                assert_eq!(before, taken + left);
            }
            assert!(written.len() <= WRITE_MAX || taken.messages == 1, "{} bytes at once", written.len());
            let mut decoder = Decoder::new(LONGEST);
            let mut rest = &written[..];
            let mut messages = 0;
            loop {
                let protocol_waits = model.waits(Class::Protocol);
                let both_wait = model.waits(Class::Work) && model.waits(Class::Blocks);
                let Some(found) = decoder.next_frame().expect("frames") else {
                    if rest.is_empty() {
                        break;
                    }
                    let room = decoder.room();
                    let bytes = room.len().min(rest.len());
                    room[..bytes].copy_from_slice(&rest[..bytes]);
                    decoder.filled(bytes);
                    rest = &rest[bytes..];
                    continue;
                };
                let length = (HEADER + found.payload.len()) as isize;
                let class = model.written(found.payload);
                messages += 1;
                assert!(class == Class::Protocol || !protocol_waits, "{class:?} before the protocol");
                match class {
                    Class::Protocol => {}
                    Class::Work if both_wait => ahead += length,
                    Class::Blocks if both_wait => ahead -= length,
                    Class::Work | Class::Blocks => ahead = 0,
                }
                let longest = (HEADER + LONGEST) as isize;
                assert!(ahead.abs() <= longest, "one of work and blocks is {ahead} bytes ahead");
                if !(model.waits(Class::Work) && model.waits(Class::Blocks)) {
                    ahead = 0;
                }
            }
            assert_eq!(messages, taken.messages);
            assert!(!decoder.is_inside_a_frame(), "frames are whole");
            assert_eq!(lanes.is_empty(), CLASSES.iter().all(|&class| !model.waits(class)));
            assert!(taken.messages > 0 || lanes.is_empty());
        }
    }
}

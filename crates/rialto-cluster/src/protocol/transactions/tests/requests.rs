//! What the clients of the simulation ask for.

use rialto::io::Random;

use super::model::{KEYS, Op, writes};
use super::world::{Faults, World};
use crate::protocol::transactions::{Level, Pace};

/// What a request does.
#[derive(Debug, Clone)]
pub struct Spec {
    /// For each phase, what it does in which partition.
    pub phases: Vec<Vec<(usize, Vec<Op>)>>,
    pub level: Level,
    /// With [`Pace::Statements`] a phase is a statement, and branches become known as they come.
    pub pace: Pace,
    /// The client rolls back at the end.
    pub rolls_back: bool,
    /// Whether votes ride on replies, where an action is known to be the last one.
    pub rides: bool,
    /// It fails for a reason of its own, after its actions.
    pub fails: bool,
    /// The client numbers its requests.
    pub is_numbered: bool,
}

impl Spec {
    fn ops(&self) -> impl Iterator<Item = (usize, &Vec<Op>)> {
        self.phases.iter().flatten().map(|(of, ops)| (*of, ops))
    }

    pub fn writes_in(&self, of: usize) -> bool {
        self.ops().any(|(at, ops)| at == of && writes(ops))
    }

    pub fn writes(&self) -> bool {
        self.ops().any(|(at, _)| self.writes_in(at))
    }

    pub fn partitions(&self) -> Vec<usize> {
        let mut partitions: Vec<_> = self.ops().map(|(of, _)| of).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    /// The client sends it statement by statement. Some of them fail; their transaction goes on.
    fn become_statements(&mut self, random: &mut Random) {
        self.pace = Pace::Statements;
        self.rolls_back = random.chance(1, 6);
        (self.rides, self.fails, self.is_numbered) = (false, false, false);
        if random.chance(2, 3) {
            self.phases = self.ops().map(|(of, ops)| vec![(of, ops.clone())]).collect();
        }
        if random.chance(1, 3) {
            let failed = vec![Op::Add(0, 1_000), Op::Read(1), Op::Add(2, 1_000), Op::Fail];
            let (of, _) = self.phases[random.below(self.phases.len() as u64) as usize][0];
            let at = random.below(self.phases.len() as u64 + 1) as usize;
            self.phases.insert(at, vec![(of, failed)]);
        }
    }

    /// The deciding partition: a function of the request.
    pub fn deciding(&self) -> usize {
        self.ops().next().expect("it does something").0
    }

    pub fn is_whole(&self) -> bool {
        self.pace == Pace::Call && self.phases.len() == 1 && self.phases[0].len() == 1
    }

    /// Whether what was answered is kept in each failover.
    pub fn is_kept(&self) -> bool {
        self.partitions().len() > 1 || self.level > Level::Memory
    }
}

impl World {
    pub fn draw_spec(&mut self) -> Spec {
        let random = &mut self.random;
        let count = self.partitions.len();
        let mut partitions: Vec<_> = (0..count).collect();
        random.shuffle(&mut partitions);
        let levels = [Level::Memory, Level::Memory, Level::Standby, Level::Disk];
        let level = levels[random.below(4) as usize];
        let mut phases: Vec<Vec<(usize, Vec<Op>)>> = vec![Vec::new()];
        let key = |random: &mut Random| random.below(u64::from(KEYS)) as u8;
        let two_keys = |random: &mut Random| {
            let first = key(random);
            [first, (first + 1 + random.below(u64::from(KEYS) - 1) as u8) % KEYS]
        };
        let delta = 1 + random.below(9) as i64;
        // With every other seed: reads that others' writes may overtake.
        let kind =
            if self.reads_more { [0, 1, 4, 4, 5, 6][random.below(6) as usize] } else { random.below(10) };
        let is_forced = self.faults == Faults::ForcedLosses;
        let kind = if is_forced && random.chance(3, 4) { 9 } else { kind };
        match kind {
            // In one partition.
            0 | 1 => {
                let [from, to] = two_keys(random);
                phases[0].push((partitions[0], vec![Op::Add(from, -delta), Op::Add(to, delta)]));
            }
            2 => phases[0].push((partitions[0], (0..KEYS).map(Op::Read).collect())),
            // Everything is read.
            3 => {
                let reads = partitions.iter().map(|of| (*of, (0..KEYS).map(Op::Read).collect()));
                phases[0].extend(reads);
            }
            4 => {
                let cut = random.below(count as u64) as usize;
                let read = |of: &usize| (*of, (0..KEYS).map(Op::Read).collect());
                let (first, last) = partitions.split_at(cut);
                phases = [first, last].iter().map(|part| part.iter().map(read).collect()).collect();
                phases.retain(|phase: &Vec<_>| !phase.is_empty());
            }
            // Some are read, then others written.
            5 | 6 => {
                let [from, to] = two_keys(random);
                phases[0].push((partitions[0], vec![Op::Read(key(random))]));
                phases[0].push((partitions[1], vec![Op::Read(key(random))]));
                let last = partitions[count - 1];
                phases.push(vec![(last, vec![Op::Add(from, -delta), Op::Add(to, delta)])]);
                if random.chance(1, 2) {
                    phases.swap(0, 1);
                }
            }
            // A transfer; perhaps with reads of a third partition.
            _ => {
                let (from, to) = (key(random), key(random));
                phases[0].push((partitions[0], vec![Op::Add(from, -delta)]));
                let second = (partitions[1], vec![Op::Add(to, delta)]);
                if random.chance(1, 2) {
                    phases[0].push(second);
                } else {
                    phases.push(vec![second]);
                }
                let third = key(random);
                match if is_forced { 1 } else { random.below(4) } {
                    0 if count > 2 => phases[0].push((partitions[2], vec![Op::Read(third)])),
                    1 | 2 if count > 2 => {
                        phases[0].push((partitions[2], vec![Op::Add(third, delta)]));
                        phases[0][0].1[0] = Op::Add(from, -2 * delta);
                    }
                    _ => {}
                }
            }
        }
        let mut spec = Spec {
            phases,
            level,
            pace: Pace::Call,
            rolls_back: false,
            rides: random.chance(1, 2),
            fails: random.chance(1, 12),
            is_numbered: random.chance(6, 7),
        };
        if random.chance(1, 4) || self.only_statements {
            spec.become_statements(random);
        }
        spec
    }
}

//! The keys of a history: either so few that each index is one leaf, or enough for several leaves, with the same few
//! hot keys.

use rialto::io::Random;

use super::observed::{Found, KEYS, Key, PARTS, State, TABLES, TAGS, Values};

/// In a wide space the hot identifiers are this far apart. A leaf takes about 250 entries, so it has some of them.
pub const WIDE: i32 = 64;

/// The identifiers, parts and tags. All three have the same domain, in which the hot ones are evenly spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// The distance of two hot identifiers.
    stride: i32,
}

impl Space {
    pub fn any(random: &mut Random) -> Space {
        Space { stride: if random.chance(2, 3) { WIDE } else { 1 } }
    }

    pub fn is_wide(self) -> bool {
        self.stride > 1
    }

    /// Identifiers, parts and tags are below this.
    pub fn end(self) -> i32 {
        KEYS * self.stride
    }

    /// The nth of `of` hot values.
    pub fn hot(self, nth: i32, of: i32) -> i32 {
        nth * self.end() / of
    }

    pub fn any_hot(self, of: i32, random: &mut Random) -> i32 {
        self.hot(random.below(of as u64) as i32, of)
    }

    /// An identifier: mostly a hot one.
    pub fn id(self, random: &mut Random) -> i32 {
        if self.is_wide() && random.chance(1, 8) {
            return random.below(self.end() as u64) as i32;
        }
        self.any_hot(KEYS, random)
    }

    /// A key of any table.
    pub fn key(self, random: &mut Random) -> Key {
        let table = random.below(TABLES as u64) as usize;
        Key { table, id: self.id(random) }
    }

    /// A row's values: a hot part, and a hot tag with this chance.
    pub fn values(self, random: &mut Random, (of, per): (u64, u64)) -> Values {
        let part = self.any_hot(PARTS, random);
        let tag = random.chance(of, per).then(|| self.any_hot(TAGS, random));
        Values { part, tag }
    }

    /// The first contents of the tables. In a narrow space every other key has a row. In a wide one the keys in three
    /// of four stretches between hot keys have one, and rows between the hot keys have parts and tags between the hot
    /// ones.
    pub fn first(self) -> State {
        let keys = (0..TABLES).flat_map(|table| (0..self.end()).map(move |id| Key { table, id }));
        let found = |key: Key| {
            let is_hot = key.id % self.stride == 0;
            let (nth, is_there) = match self.is_wide() {
                true => (key.id / self.stride, key.id / self.stride % 4 != 3),
                false => (key.id, key.id % 2 == 0),
            };
            let values = match is_hot {
                true => Values { part: self.hot(nth % PARTS, PARTS), tag: None },
                false => Values { part: key.id, tag: Some(key.id) },
            };
            let version = 1 + key.table as u64 * u64::from(self.end().unsigned_abs()) + key.id as u64;
            match is_there {
                true => Found { versions: vec![version], values: Some(values), in_grave: 0 },
                false => Found::default(),
            }
        };
        keys.map(|key| (key, found(key))).collect()
    }
}

//! Scans as they are requested, and the rows that they promise to give.

use std::ops::Bound;

use rialto::io::Random;

use super::observed::{KEYS, PARTS, Row, TABLES, TAGS, Values};
use super::space::Space;

/// The column of a scan's bounds, whose index it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Id,
    Part,
    /// A unique index in the first table. NULL comes last.
    Tag,
}

impl By {
    /// The number of hot values of the column.
    fn hot(self) -> i32 {
        match self {
            By::Id => KEYS,
            By::Part => PARTS,
            By::Tag => TAGS,
        }
    }

    /// The position of a row in the order of the index.
    fn place(self, id: i32, values: Values) -> (i32, i32) {
        let first = match self {
            By::Id => id,
            By::Part => values.part,
            By::Tag => values.tag.unwrap_or(i32::MAX),
        };
        (first, id)
    }
}

/// The rows that a scan has to give: those whose value, followed by the identifier, is between these, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicate {
    pub by: By,
    pub low: (i32, i32),
    pub high: (i32, i32),
}

impl Predicate {
    /// The rows with values from the first to the second, both included.
    pub fn between(by: By, low: i32, high: i32) -> Predicate {
        Predicate { by, low: (low, i32::MIN), high: (high, i32::MAX) }
    }

    pub fn keys(low: i32, high: i32) -> Predicate {
        Predicate::between(By::Id, low, high)
    }

    pub fn tag(tag: i32) -> Predicate {
        Predicate::between(By::Tag, tag, tag)
    }

    /// Whether the predicate includes this key at all, whatever the row has.
    pub fn covers(self, id: i32) -> bool {
        self.by != By::Id || (self.low..=self.high).contains(&(id, id))
    }

    pub fn matches(self, id: i32, row: Option<Values>) -> bool {
        row.is_some_and(|row| (self.low..=self.high).contains(&self.by.place(id, row)))
    }
}

/// A scan as a transaction requests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeScan {
    pub table: usize,
    pub by: By,
    pub lower: Bound<i32>,
    pub upper: Bound<i32>,
    pub backward: bool,
    pub to_change: bool,
    /// The number of rows after which the scan stops.
    pub limit: Option<usize>,
    /// Whether the visitor of its rows stops it, not a limit; over the wire, whether its rows come in pieces.
    pub breaks: bool,
}

fn any_bound(value: i32, may_be_open: bool, random: &mut Random) -> Bound<i32> {
    match random.below(6) {
        0 if may_be_open => Bound::Unbounded,
        0..3 => Bound::Excluded(value),
        _ => Bound::Included(value),
    }
}

impl RangeScan {
    /// The rows with values from the first to the second, both included.
    pub fn between(table: usize, by: By, low: i32, high: i32) -> RangeScan {
        let (lower, upper) = (Bound::Included(low), Bound::Included(high));
        let (backward, to_change, limit, breaks) = (false, false, None, false);
        RangeScan { table, by, lower, upper, backward, to_change, limit, breaks }
    }

    /// The rows with this value.
    pub fn of(table: usize, by: By, value: i32) -> RangeScan {
        RangeScan::between(table, by, value, value)
    }

    /// All rows that have a value.
    pub fn all(table: usize, by: By) -> RangeScan {
        RangeScan::between(table, by, 0, i32::MAX - 1)
    }

    /// A random one: one value, or a range that begins and ends at hot values or not far from them.
    pub fn any(space: Space, random: &mut Random) -> RangeScan {
        let by = [By::Id, By::Id, By::Part, By::Tag][random.below(4) as usize];
        let (table, hot) = (random.below(TABLES as u64) as usize, by.hot());
        let nth = random.below(hot as u64) as i32;
        let mut scan = RangeScan::of(table, by, space.hot(nth, hot));
        if by == By::Id || random.chance(1, 2) {
            let low = match random.chance(1, 4) {
                true => random.below(space.end() as u64) as i32,
                false => space.hot(nth, hot),
            };
            let steps = random.below(if by == By::Id { 6 } else { 3 }) as i32;
            let high = (low + space.hot(steps, hot)).min(space.end() - 1);
            scan.lower = any_bound(low, nth < 4, random);
            // An open end would include NULL, for which SQL's condition is a different one.
            scan.upper = any_bound(high, by != By::Tag && nth + 4 >= hot, random);
            // The bounds of an empty range may not both be excluded at one value.
            if low == high && random.chance(3, 4) {
                (scan.lower, scan.upper) = (Bound::Included(low), Bound::Included(high));
            }
        }
        if random.chance(1, 4) {
            scan.limit = Some(1 + random.below(if space.is_wide() { 200 } else { 4 }) as usize);
        }
        (scan.backward, scan.breaks) = (random.chance(1, 2), random.chance(1, 2));
        scan
    }

    /// The one requested value, if there is only one.
    pub fn value(&self) -> Option<i32> {
        match (self.lower, self.upper) {
            (Bound::Included(low), Bound::Included(high)) if low == high => Some(low),
            _ => None,
        }
    }

    /// What a scan that has given these rows promises: all that match, up to the last of them if it stopped there.
    pub fn promises(&self, seen: &[(i32, Row)]) -> Predicate {
        let low = match self.lower {
            Bound::Unbounded => i32::MIN,
            Bound::Included(low) => low,
            Bound::Excluded(low) => low + 1,
        };
        let high = match self.upper {
            Bound::Unbounded => i32::MAX,
            Bound::Included(high) => high,
            Bound::Excluded(high) => high - 1,
        };
        let mut predicate = Predicate::between(self.by, low, high);
        if let Some((id, row)) = seen.last().filter(|_| self.limit == Some(seen.len())) {
            let end = if self.backward { &mut predicate.low } else { &mut predicate.high };
            *end = self.by.place(*id, row.values);
        }
        predicate
    }

    /// The error in the order, or the number, of the rows that a scan with a limit gave.
    pub fn refuses(&self, seen: &[(i32, Row)]) -> Option<String> {
        let limit = self.limit?;
        let places =
            seen.windows(2).map(|two| [&two[0], &two[1]].map(|(id, row)| self.by.place(*id, row.values)));
        let mut disordered =
            places.filter(|[one, other]| if self.backward { one < other } else { one > other });
        let is_wrong = seen.len() > limit || disordered.next().is_some();
        is_wrong.then(|| format!("{self:?} gave {seen:?}"))
    }
}

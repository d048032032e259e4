//! [`ReplicaReads`]: what a transaction that only reads accepts of replicas; [`Positions`]: places of partitions' logs, as a
//! client keeps them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::message::{Level, PartitionNumber};

/// What a transaction that only reads accepts of a replica that is not a partition's primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaReads {
    /// A replica has everything that was answered longer ago than this.
    pub staleness: Duration,
    /// It has everything up to these positions.
    pub after: Positions,
}

/// A place in a partition's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The partition.
    pub partition: PartitionNumber,
    /// The opening of the partition in which the place was told. After a loss of what was answered, places of openings before
    /// it mean nothing.
    pub opening: u64,
    /// The place.
    pub place: u64,
}

/// Places in the logs of several partitions of a cluster, at most one for each. As text:
/// `CLUSTER:PARTITION.OPENING.PLACE`, and further places, separated by commas. Another cluster, one that was restored
/// from this one's backup, say, has other logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Positions {
    /// The cluster's number; empty if there are no places.
    cluster: String,
    places: Vec<Position>,
}

/// A text that is no [`Positions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPositions;

/// The most positions in a text.
const POSITIONS_MAX: usize = 4096;

impl Positions {
    /// These places in the logs of the cluster with this number, of letters and digits. Of several places for one partition the
    /// last one counts.
    pub fn new(cluster: &str, positions: impl IntoIterator<Item = Position>) -> Positions {
        let mut places: Vec<Position> = Vec::new();
        for position in positions {
            match places.iter_mut().find(|before| before.partition == position.partition) {
                Some(before) => *before = position,
                None => places.push(position),
            }
        }
        Positions { cluster: cluster.to_owned(), places }
    }

    /// The number of the cluster whose logs they are of.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The place in a partition's log.
    pub fn of(&self, partition: PartitionNumber) -> Option<Position> {
        self.places.iter().find(|position| position.partition == partition).copied()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Position> {
        self.places.iter()
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, Position { partition, opening, place }) in self.places.iter().enumerate() {
            match nth {
                0 => write!(f, "{}:", self.cluster)?,
                _ => f.write_str(",")?,
            }
            write!(f, "{}.{opening}.{place}", partition.0)?;
        }
        Ok(())
    }
}

impl FromStr for Positions {
    type Err = NoPositions;

    fn from_str(text: &str) -> Result<Positions, NoPositions> {
        if text.trim().is_empty() {
            return Ok(Positions::default());
        }
        let (cluster, places) = text.trim().split_once(':').ok_or(NoPositions)?;
        if cluster.is_empty() || !cluster.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(NoPositions);
        }
        let mut found = Vec::new();
        for part in places.split(',') {
            let mut numbers = part.trim().split('.');
            let mut next = || numbers.next().ok_or(NoPositions);
            let (partition, opening, place) = (next()?, next()?, next()?);
            let position = Position {
                partition: PartitionNumber(number(partition)?.try_into().map_err(|_| NoPositions)?),
                opening: number(opening)?,
                place: number(place)?,
            };
            let is_twice = found.iter().any(|other: &Position| other.partition == position.partition);
            if numbers.next().is_some() || is_twice || found.len() == POSITIONS_MAX {
                return Err(NoPositions);
            }
            found.push(position);
        }
        Ok(Positions { cluster: cluster.to_owned(), places: found })
    }
}

/// Digits alone: no sign.
fn number(text: &str) -> Result<u64, NoPositions> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().map_err(|_| NoPositions),
        false => Err(NoPositions),
    }
}

/// A partition in which the last transaction of a session has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The partition.
    pub partition: PartitionNumber,
    /// The opening of the partition in which it was written, if that is known.
    pub opening: Option<u64>,
    /// The level of the commit; `None` for the default.
    pub level: Option<Level>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_written() {
        for text in ["", "a7:3.17.12345", "07:0.1.0,7.2.18446744073709551615"] {
            assert_eq!(text.parse::<Positions>().map(|read| read.to_string()), Ok(text.to_owned()));
        }
        let read: Positions = " a7:3.17.5 , 4.1.2 ".parse().unwrap();
        assert_eq!(read.cluster(), "a7");
        assert_eq!(read.of(PartitionNumber(4)).map(|position| position.place), Some(2));
        assert_eq!(read.of(PartitionNumber(5)), None);
        for places in [
            "",
            "3",
            "3.4",
            "3.4.5.6",
            "3.4.-5",
            "3.4.+5",
            "x.4.5",
            "3.4.5,",
            "3.4.5,3.4.6",
            "4294967296.1.1",
        ] {
            assert_eq!(format!("a7:{places}").parse::<Positions>(), Err(NoPositions), "{places}");
        }
        for text in ["3.4.5", ":3.4.5", "a-7:3.4.5", "a7:a7:3.4.5"] {
            assert_eq!(text.parse::<Positions>(), Err(NoPositions), "{text}");
        }
    }
}

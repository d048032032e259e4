//! How kernel types look in messages: serde's adapters for them.

use rialto::Lsn;
use rialto::log::{LogPoint, LogPosition};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Serialize, Deserialize)]
struct Point {
    lsn: u64,
    position: u64,
    checksum: u64,
}

/// For fields of the type [`LogPoint`].
pub mod log_point {
    use super::*;

    pub fn serialize<S: Serializer>(point: &LogPoint, serializer: S) -> Result<S::Ok, S::Error> {
        let LogPoint { lsn, position, checksum } = *point;
        Point { lsn: lsn.0, position: position.0, checksum }.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LogPoint, D::Error> {
        let Point { lsn, position, checksum } = Point::deserialize(deserializer)?;
        if lsn > Lsn::MAX.0 {
            return Err(de::Error::custom("the place of a transaction is at most 2^48 - 1"));
        }
        Ok(LogPoint { lsn: Lsn(lsn), position: LogPosition(position), checksum })
    }
}

/// For fields of the type [`Option<LogPoint>`].
pub mod optional_log_point {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Some(#[serde(with = "log_point")] LogPoint);

    pub fn serialize<S: Serializer>(point: &Option<LogPoint>, serializer: S) -> Result<S::Ok, S::Error> {
        point.map(Some).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LogPoint>, D::Error> {
        Ok(Option::<Some>::deserialize(deserializer)?.map(|Some(point)| point))
    }
}

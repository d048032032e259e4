//! The four tables: how they are created and loaded, and how existing ones are recognised.
//!
//! Columns are the specification's, under its names. What it calls bits is bool, a tinyint or smallint an int2, the two
//! locations (up to 2^32 - 1) int8, varchar(15) text.

use std::fmt;

use rialto::row::{Column, ColumnType, Row, Value, ValueRef, WhichIndex};
use rialto::{Database, Error, Residence, Result, Table, TableDef};

use super::population::{self, Access, Facility, Family, PER_SUBSCRIBER, Subscriber};
use super::request::{Forwarding, Number};
use crate::data::{Data, IndexOf, Loader, ShapeError};

/// The size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Subscribers.
    pub subscribers: u32,
}

/// Subscribers for each unit of `--scale`: ten of them are the specification's smallest population.
pub const SUBSCRIBERS_PER_SCALE: u32 = 10_000;

impl Shape {
    /// The specification's constant A, by which subscribers are chosen.
    #[inline]
    pub fn a(self) -> u64 {
        match self.subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} subscribers", self.subscribers)
    }
}

/// The columns of subscribers.
pub(super) mod subscriber {
    use super::PER_SUBSCRIBER;

    pub const ID: usize = 0;
    pub const NUMBER: usize = 1;
    pub const BITS: usize = 2;
    pub const HEXES: usize = BITS + PER_SUBSCRIBER;
    pub const BYTES: usize = HEXES + PER_SUBSCRIBER;
    pub const MSC_LOCATION: usize = BYTES + PER_SUBSCRIBER;
    pub const VLR_LOCATION: usize = MSC_LOCATION + 1;
    pub const COLUMNS: usize = VLR_LOCATION + 1;
}

/// The columns of access data.
pub(super) mod access {
    pub const TYPE: usize = 1;
    pub const DATA1: usize = 2;
    pub const DATA2: usize = 3;
    pub const DATA3: usize = 4;
    pub const DATA4: usize = 5;
}

/// The columns of special facilities.
pub(super) mod facility {
    pub const TYPE: usize = 1;
    pub const IS_ACTIVE: usize = 2;
    pub const ERROR_CNTRL: usize = 3;
    pub const DATA_A: usize = 4;
    pub const DATA_B: usize = 5;
}

/// The columns of call forwardings.
pub(super) mod forwarding {
    pub const TYPE: usize = 1;
    pub const START_TIME: usize = 2;
    pub const END_TIME: usize = 3;
    pub const NUMBER: usize = 4;
}

pub(super) const SUBSCRIBER: &str = "subscriber";
pub(super) const ACCESS_INFO: &str = "access_info";
pub(super) const SPECIAL_FACILITY: &str = "special_facility";
pub(super) const CALL_FORWARDING: &str = "call_forwarding";

/// The unique index of subscribers by their numbers, and its place among their indexes: it is the only one.
pub(super) const NUMBER_INDEX: &str = "subscriber_sub_nbr";
pub(super) const BY_NUMBER: WhichIndex = WhichIndex::Secondary(0);

/// How many subscribers are loaded between two words of progress.
const PROGRESS_ROWS: i32 = 100_000;

fn text(letters: &[u8]) -> Value {
    Value::Text(letters.iter().map(|&letter| char::from(letter)).collect())
}

fn subscriber_row(s_id: i32, subscriber: &Subscriber) -> Vec<Value> {
    let Subscriber { bits, hexes, bytes, msc_location, vlr_location } = *subscriber;
    let mut row = Vec::with_capacity(subscriber::COLUMNS);
    row.extend([Value::Int4(s_id), Value::Text(Number::of(s_id).as_str().to_owned())]);
    row.extend(bits.map(Value::Bool));
    row.extend(hexes.map(Value::Int2));
    row.extend(bytes.map(Value::Int2));
    row.extend([msc_location, vlr_location].map(Value::Int8));
    row
}

fn access_row(s_id: i32, access: &Access) -> [Value; 6] {
    let Access { ai_type, data1, data2, data3, data4 } = access;
    let [ai_type, data1, data2] = [ai_type, data1, data2].map(|number| Value::Int2(*number));
    [Value::Int4(s_id), ai_type, data1, data2, text(data3), text(data4)]
}

fn facility_row(s_id: i32, facility: &Facility) -> [Value; 6] {
    let Facility { sf_type, is_active, error_cntrl, data_a, data_b } = facility;
    let [sf_type, error_cntrl, data_a] = [sf_type, error_cntrl, data_a].map(|number| Value::Int2(*number));
    [Value::Int4(s_id), sf_type, Value::Bool(*is_active), error_cntrl, data_a, text(data_b)]
}

/// The row of a call forwarding.
pub(super) fn forwarding_row(s_id: i32, forwarding: &Forwarding) -> [ValueRef<'_>; 5] {
    let Forwarding { sf_type, start_time, end_time, numberx } = forwarding;
    let [sf_type, start_time, end_time] =
        [sf_type, start_time, end_time].map(|number| ValueRef::Int2(*number));
    [ValueRef::Int4(s_id), sf_type, start_time, end_time, ValueRef::Text(numberx.as_str())]
}

/// The open tables.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub subscriber: Table,
    pub access_info: Table,
    pub special_facility: Table,
    pub call_forwarding: Table,
}

impl Tables {
    /// The tables in the database, if they are of this shape; loaded, if the database is empty. The second is whether they
    /// were there already.
    pub fn open_or_load(
        database: &Database,
        residence: Residence,
        shape: Shape,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Tables, bool), ShapeError> {
        let sizes = Sizes { shape, population: population::VERSION };
        let ([subscriber, access_info, special_facility, call_forwarding], there) =
            sizes.open_or_load(database, residence, progress)?;
        let tables = Tables { subscriber, access_info, special_facility, call_forwarding };
        if tables.subscriber.schema().index_named(NUMBER_INDEX)? != BY_NUMBER {
            let found = format!("a TATP population with another index before \"{NUMBER_INDEX}\"");
            return Err(ShapeError::OtherShape {
                found,
                expected: format!("one of {shape} as it is loaded"),
            });
        }
        Ok((tables, there))
    }

    /// A row of a subscriber, to be read into.
    pub fn subscriber_row(&self) -> Row {
        let values = subscriber_row(0, &Subscriber::default());
        Row::from_values(self.subscriber.schema(), &values)
            .expect("the columns are those that it was created with")
    }
}

/// What the table of one row says.
#[derive(PartialEq)]
struct Sizes {
    shape: Shape,
    population: u32,
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (population {})", self.shape, self.population)
    }
}

impl Data<4, 2> for Sizes {
    const NAME: &'static str = "a TATP population";
    const TABLE: &'static str = "tatp";
    const KIND: &'static str = "tatp";
    const SIZES: [&'static str; 2] = ["subscribers", "population"];

    fn of_sizes([subscribers, population]: [u32; 2]) -> Sizes {
        Sizes { shape: Shape { subscribers }, population }
    }

    fn sizes(&self) -> [u32; 2] {
        [self.shape.subscribers, self.population]
    }

    fn tables() -> [TableDef; 4] {
        let column = |name: &str, ty| Column::new(name, ty);
        let (int2, int4, text) = (ColumnType::Int2, ColumnType::Int4, ColumnType::Text);
        let mut subscriber = vec![column("s_id", int4), column("sub_nbr", text)];
        for (name, ty) in [("bit", ColumnType::Bool), ("hex", int2), ("byte2", int2)] {
            subscriber.extend((1..=PER_SUBSCRIBER).map(|nth| Column::new(format!("{name}_{nth}"), ty)));
        }
        subscriber.extend(["msc_location", "vlr_location"].map(|name| column(name, ColumnType::Int8)));
        let access = vec![
            column("s_id", int4),
            column("ai_type", int2),
            column("data1", int2),
            column("data2", int2),
            column("data3", ColumnType::Char(3)),
            column("data4", ColumnType::Char(5)),
        ];
        let facility = vec![
            column("s_id", int4),
            column("sf_type", int2),
            column("is_active", ColumnType::Bool),
            column("error_cntrl", int2),
            column("data_a", int2),
            column("data_b", ColumnType::Char(5)),
        ];
        let forwarding = vec![
            column("s_id", int4),
            column("sf_type", int2),
            column("start_time", int2),
            column("end_time", int2),
            column("numberx", text),
        ];
        [
            TableDef::new(SUBSCRIBER, subscriber).with_primary_key(&["s_id"]),
            TableDef::new(ACCESS_INFO, access).with_primary_key(&["s_id", "ai_type"]),
            TableDef::new(SPECIAL_FACILITY, facility).with_primary_key(&["s_id", "sf_type"]),
            TableDef::new(CALL_FORWARDING, forwarding).with_primary_key(&["s_id", "sf_type", "start_time"]),
        ]
    }

    fn indexes() -> Vec<IndexOf> {
        vec![IndexOf { table: SUBSCRIBER, name: NUMBER_INDEX, columns: &["sub_nbr"], is_unique: true }]
    }

    fn fill(
        &self,
        loader: &mut Loader<'_>,
        [subscriber, access_info, special_facility, call_forwarding]: &[Table; 4],
    ) -> Result<()> {
        let subscribers = self.shape.subscribers;
        let count = i32::try_from(subscribers).map_err(|_| {
            Error::aborted(format!("{subscribers} subscribers are more than their identifiers"))
        })?;
        for s_id in 1..=count {
            let family = Family::of(s_id);
            loader.insert(subscriber, &subscriber_row(s_id, &family.subscriber))?;
            for access in &family.access {
                loader.insert(access_info, &access_row(s_id, access))?;
            }
            for facility in &family.facilities {
                loader.insert(special_facility, &facility_row(s_id, facility))?;
            }
            for forwarding in &family.forwardings {
                loader.insert_borrowed(call_forwarding, &forwarding_row(s_id, forwarding))?;
            }
            if s_id % PROGRESS_ROWS == 0 {
                loader.tell(&format!("{s_id} of {count} subscribers loaded"));
            }
        }
        Ok(())
    }
}

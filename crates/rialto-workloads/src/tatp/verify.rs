//! The consistency condition, on the real tables.
//!
//! - What no transaction changes is what the [population](super::population) has: every column of every subscriber but its
//!   first bit and its location, all access data, every column of every special facility but its data, no row more or less.
//! - The index on numbers gives every subscriber once, in the order of their identifiers.
//! - Every call forwarding is of a special facility that there is, and its values are in their ranges.
//! - What the clients were told is added up beside the run ([`Totals::count`]), and the tables have changed by just that:
//!   the bits, data and locations by what was set less what was there before, the call forwardings by those inserted and
//!   deleted, each by its key.

use rialto::row::RowView;
use rialto::{Result, Scan, Transaction};

use super::population::{Access, Facility, Family, PER_SUBSCRIBER, Subscriber};
use super::request::{END_TIME_MAX, LOCATION_MAX, Number, Request, Response, START_TIMES};
use super::tables::{BY_NUMBER, Shape, Tables, access, facility, forwarding, subscriber};
use crate::verify::{self, Problems, each};
use crate::workload::Verdict;

/// What transactions add up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// The first bits of all subscribers.
    pub bits: i64,
    /// The data of all special facilities.
    pub data: i64,
    /// The locations of all subscribers.
    pub locations: i64,
    /// Call forwardings.
    pub forwardings: i64,
    /// Their keys, each as one number.
    pub forwarding_keys: i64,
}

/// A key of a call forwarding as a number.
#[inline]
fn key_number(s_id: i32, sf_type: i16, start_time: i16) -> i64 {
    (i64::from(s_id) * 8 + i64::from(sf_type)) * 32 + i64::from(start_time)
}

impl Totals {
    /// Adds what a client was told.
    #[inline]
    pub fn count(&mut self, request: &Request, response: &Response) {
        match (request, response) {
            (
                Request::UpdateSubscriberData { bit, data_a, .. },
                Response::Updated { bit_before, data_a_before },
            ) => {
                self.bits += i64::from(*bit) - i64::from(*bit_before);
                self.data += i64::from(*data_a) - i64::from(*data_a_before);
            }
            (Request::UpdateLocation { vlr_location, .. }, Response::Located { before }) => {
                self.locations += vlr_location - before;
            }
            (Request::InsertCallForwarding { forwarding, .. }, Response::Inserted { s_id }) => {
                self.forwardings += 1;
                self.forwarding_keys += key_number(*s_id, forwarding.sf_type, forwarding.start_time);
            }
            (Request::DeleteCallForwarding { sf_type, start_time, .. }, Response::Deleted { s_id }) => {
                self.forwardings -= 1;
                self.forwarding_keys -= key_number(*s_id, *sf_type, *start_time);
            }
            _ => {}
        }
    }
}

impl verify::Totals<5> for Totals {
    fn each_mut(&mut self) -> [(&'static str, &mut i64); 5] {
        [
            ("first bits of subscribers", &mut self.bits),
            ("data of special facilities", &mut self.data),
            ("locations of subscribers", &mut self.locations),
            ("call forwardings", &mut self.forwardings),
            ("keys of call forwardings", &mut self.forwarding_keys),
        ]
    }
}

/// What a pass over all tables found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// What the tables add up to.
    pub totals: Totals,
    /// Subscribers.
    pub subscribers: u64,
    /// Special facilities.
    pub facilities: u64,
    /// Rows, and entries of the index on numbers, that are not as they have to be.
    pub wrong: u64,
    /// What is wrong with the first of them.
    pub first_wrong: Option<String>,
}

impl Audit {
    fn expect(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.wrong += 1;
            self.first_wrong.get_or_insert_with(problem);
        }
    }
}

/// The rows that a table has by the population, in order: `of` a family, one or several.
struct Expected<T> {
    family: Family,
    of: fn(&Family) -> &[T],
    given: usize,
    last: i32,
}

impl<T: Copy> Expected<T> {
    fn new(shape: Shape, of: fn(&Family) -> &[T]) -> Expected<T> {
        Expected { family: Family::default(), of, given: 0, last: shape.subscribers as i32 }
    }
}

impl<T: Copy> Iterator for Expected<T> {
    type Item = (i32, T);

    fn next(&mut self) -> Option<(i32, T)> {
        while self.given == (self.of)(&self.family).len() {
            if self.family.s_id == self.last {
                return None;
            }
            (self.family, self.given) = (Family::of(self.family.s_id + 1), 0);
        }
        self.given += 1;
        Some((self.family.s_id, (self.of)(&self.family)[self.given - 1]))
    }
}

/// The columns of a subscriber's row, as it is populated.
fn read_subscriber(row: RowView<'_>) -> Result<(i32, Option<Number>, Subscriber)> {
    let mut read = Subscriber::default();
    for nth in 0..PER_SUBSCRIBER {
        read.bits[nth] = row.get_bool(subscriber::BITS + nth)?;
        read.hexes[nth] = row.get_i16(subscriber::HEXES + nth)?;
        read.bytes[nth] = row.get_i16(subscriber::BYTES + nth)?;
    }
    read.msc_location = row.get_i64(subscriber::MSC_LOCATION)?;
    read.vlr_location = row.get_i64(subscriber::VLR_LOCATION)?;
    Ok((row.get_i32(0)?, Number::parse(row.get_str(subscriber::NUMBER)?), read))
}

fn is_access(row: RowView<'_>, s_id: i32, expected: &Access) -> Result<bool> {
    Ok(row.get_i32(0)? == s_id
        && row.get_i16(access::TYPE)? == expected.ai_type
        && row.get_i16(access::DATA1)? == expected.data1
        && row.get_i16(access::DATA2)? == expected.data2
        && row.get_str(access::DATA3)?.as_bytes() == expected.data3
        && row.get_str(access::DATA4)?.as_bytes() == expected.data4)
}

fn is_facility(row: RowView<'_>, s_id: i32, expected: &Facility) -> Result<bool> {
    Ok(row.get_i32(0)? == s_id
        && row.get_i16(facility::TYPE)? == expected.sf_type
        && row.get_bool(facility::IS_ACTIVE)? == expected.is_active
        && row.get_i16(facility::ERROR_CNTRL)? == expected.error_cntrl
        && row.get_str(facility::DATA_B)?.as_bytes() == expected.data_b)
}

impl Tables {
    /// Reads all tables.
    pub fn audit(&self, transaction: &mut Transaction, shape: Shape) -> Result<Audit> {
        let mut audit = Audit::default();
        self.audit_subscribers(transaction, shape, &mut audit)?;
        let mut expected = Expected::new(shape, |family| &family.access);
        each(transaction, &self.access_info, &Scan::all(), |row| {
            let is_it = match expected.next() {
                Some((s_id, access)) => is_access(row, s_id, &access)?,
                None => false,
            };
            audit.expect(is_it, || format!("access data {:?} is not as it is loaded", row.values()));
            Ok(())
        })?;
        audit.expect(expected.next().is_none(), || "access data is missing at the end".to_owned());
        let mut expected = Expected::new(shape, |family| &family.facilities);
        each(transaction, &self.special_facility, &Scan::all(), |row| {
            let data = row.get_i16(facility::DATA_A)?;
            let is_it = match expected.next() {
                Some((s_id, facility)) => is_facility(row, s_id, &facility)? && (0..256).contains(&data),
                None => false,
            };
            audit.expect(is_it, || format!("special facility {:?} is not as it is loaded", row.values()));
            audit.totals.data += i64::from(data);
            audit.facilities += 1;
            Ok(())
        })?;
        audit.expect(expected.next().is_none(), || "special facilities are missing at the end".to_owned());
        self.audit_forwardings(transaction, shape, &mut audit)?;
        Ok(audit)
    }

    fn audit_subscribers(
        &self,
        transaction: &mut Transaction,
        shape: Shape,
        audit: &mut Audit,
    ) -> Result<()> {
        let mut s_id = 0;
        each(transaction, &self.subscriber, &Scan::all(), |row| {
            s_id += 1;
            let (found_id, number, mut found) = read_subscriber(row)?;
            let (bit, location) = (found.bits[0], found.vlr_location);
            let expected = Family::of(s_id).subscriber;
            // The two that transactions change.
            (found.bits[0], found.vlr_location) = (expected.bits[0], expected.vlr_location);
            let is_it = found_id == s_id && number == Some(Number::of(s_id)) && found == expected;
            let is_located = (1..=LOCATION_MAX as i64).contains(&location);
            audit.expect(is_it && is_located, || {
                format!("subscriber {s_id}, found {:?}, is not as it is loaded", row.values())
            });
            audit.totals.bits += i64::from(bit);
            audit.totals.locations += location;
            Ok(())
        })?;
        audit.subscribers = s_id as u64;
        let (mut entries, by_number) = (0, Scan { index: BY_NUMBER, ..Scan::all() });
        each(transaction, &self.subscriber, &by_number, |row| {
            entries += 1;
            let found = row.get_i32(0)?;
            audit.expect(found == entries, || {
                format!("entry {entries} of the index on numbers is of subscriber {found}")
            });
            Ok(())
        })?;
        audit.expect(entries as u32 == shape.subscribers, || {
            format!("the index on numbers has {entries} entries for {} subscribers", shape.subscribers)
        });
        Ok(())
    }

    fn audit_forwardings(
        &self,
        transaction: &mut Transaction,
        shape: Shape,
        audit: &mut Audit,
    ) -> Result<()> {
        let mut family = Family::default();
        each(transaction, &self.call_forwarding, &Scan::all(), |row| {
            let s_id = row.get_i32(0)?;
            if family.s_id != s_id {
                family = Family::of(s_id);
            }
            let (sf_type, start_time) =
                (row.get_i16(forwarding::TYPE)?, row.get_i16(forwarding::START_TIME)?);
            let is_child = (1..=i64::from(shape.subscribers)).contains(&s_id.into()) && family.has(sf_type);
            let is_sound = START_TIMES.contains(&start_time)
                && (1..=END_TIME_MAX).contains(&row.get_i16(forwarding::END_TIME)?)
                && Number::parse(row.get_str(forwarding::NUMBER)?).is_some();
            audit.expect(is_child && is_sound, || {
                let what = if is_child { "out of range" } else { "of no special facility" };
                format!("call forwarding {:?} is {what}", row.values())
            });
            audit.totals.forwardings += 1;
            audit.totals.forwarding_keys += key_number(s_id, sf_type, start_time);
            Ok(())
        })?;
        Ok(())
    }
}

impl Audit {
    /// Judges what was found; `before` is what was there before the clients were told what `done` adds up to.
    pub fn judge(&self, shape: Shape, before: &Totals, done: &Totals) -> Verdict {
        let mut problems = Problems::default();
        problems.equal("subscribers", self.subscribers as i64, shape.subscribers.into());
        problems.expect("rows", self.wrong == 0, || {
            let first = self.first_wrong.as_deref().unwrap_or_default();
            format!("{} are not as they have to be, the first: {first}", self.wrong)
        });
        problems.told(&self.totals, before, done);
        problems.verdict(|| {
            format!(
                "{} subscribers, their index, access data and {} special facilities are as they were loaded, the {} call \
                 forwardings are of them, and all changed by what the clients were told",
                self.subscribers, self.facilities, self.totals.forwardings
            )
        })
    }
}

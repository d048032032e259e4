//! The steps of the seven transactions, each on one table, and their order.
//!
//! A transaction uses its request and what its earlier steps have found, and nothing else. So it can be run again from
//! its arguments, and its steps are the actions of its [flow](super::flows).
//!
//! The order of tables is the same in all transactions: subscriber, special facility, call forwarding. A transaction
//! that finds a subscriber by number in order to change it takes the lock of the change at once. So no two of them can
//! deadlock.

use std::ops::ControlFlow;

use rialto::row::{Row, RowView, Value};
use rialto::{Error, KeyBound, Result, Scan, ScanMode, Table, Transaction};

use super::request::{Forwarding, Number, Request, Response, START_TIMES};
use super::tables::{BY_NUMBER, Tables, access, facility, forwarding, forwarding_row, subscriber};

#[cold]
fn no_subscriber(s_id: i32) -> Error {
    Error::aborted(format!("there is no subscriber {s_id}"))
}

/// What does not succeed, as the benchmark has it.
fn failed(reason: &'static str) -> Error {
    Error::aborted(reason)
}

/// Memory for the ranges that a client's transactions scan.
#[derive(Debug, Clone)]
pub(super) struct Scans {
    pub facilities: Scan,
    pub forwardings: Scan,
}

impl Scans {
    pub fn new() -> Scans {
        let one_subscriber = KeyBound::Included(vec![Value::Int4(0)]);
        let facilities = Scan { lower: one_subscriber.clone(), upper: one_subscriber, ..Scan::all() };
        let lower = KeyBound::Included(vec![Value::Int4(0), Value::Int2(0)]);
        let upper = KeyBound::Included(vec![Value::Int4(0), Value::Int2(0), Value::Int2(0)]);
        Scans { facilities, forwardings: Scan { lower, upper, ..Scan::all() } }
    }
}

/// Makes these the first values of both bounds, in the memory that is there.
fn set_bounds(scan: &mut Scan, values: &[Value]) {
    for bound in [&mut scan.lower, &mut scan.upper] {
        if let KeyBound::Included(bound) = bound {
            bound.iter_mut().zip(values).for_each(|(bound, value)| bound.clone_from(value));
        }
    }
}

/// Subscribers: copies one to `row`.
#[inline]
pub(super) fn read_subscriber(
    transaction: &mut Transaction,
    subscribers: &Table,
    s_id: i32,
    row: &mut Row,
) -> Result<()> {
    if transaction.get_into(subscribers, s_id, row)? { Ok(()) } else { Err(no_subscriber(s_id)) }
}

/// Access data: reads a row.
#[inline]
pub(super) fn read_access(
    transaction: &mut Transaction,
    access_info: &Table,
    s_id: i32,
    ai_type: i16,
) -> Result<Response> {
    let read = |row: RowView<'_>| -> Result<Response> {
        Ok(Response::Access {
            data1: row.get_i16(access::DATA1)?,
            data2: row.get_i16(access::DATA2)?,
            data3: letters(row, access::DATA3)?,
            data4: letters(row, access::DATA4)?,
        })
    };
    let found = transaction.look(access_info, (s_id, ai_type), read)?;
    found.ok_or_else(|| failed("the subscriber has no access data of this type"))?
}

#[inline]
fn letters<const N: usize>(row: RowView<'_>, column: usize) -> Result<[u8; N]> {
    let mut letters = [b' '; N];
    letters.iter_mut().zip(row.get_str(column)?.bytes()).for_each(|(letter, read)| *letter = read);
    Ok(letters)
}

/// Special facilities: finds out that one is there and active.
#[inline]
pub(super) fn find_active(
    transaction: &mut Transaction,
    facilities: &Table,
    s_id: i32,
    sf_type: i16,
) -> Result<()> {
    let found = transaction.look(facilities, (s_id, sf_type), |row| row.get_bool(facility::IS_ACTIVE))?;
    match found.transpose()? {
        Some(true) => Ok(()),
        Some(false) => Err(failed("the special facility is not active")),
        None => Err(failed("there is no such special facility")),
    }
}

/// Call forwardings: where calls go at this time. `scan` is memory.
#[inline]
pub(super) fn find_destinations(
    transaction: &mut Transaction,
    forwardings: &Table,
    (s_id, sf_type): (i32, i16),
    (start_time, end_time): (i16, i16),
    scan: &mut Scan,
) -> Result<[Option<Number>; START_TIMES.len()]> {
    set_bounds(scan, &[Value::Int4(s_id), Value::Int2(sf_type), Value::Int2(start_time)]);
    let mut found = [None; START_TIMES.len()];
    let mut count = 0;
    transaction.scan(forwardings, scan, |_, row| {
        if end_time < row.get_i16(forwarding::END_TIME)? && count < found.len() {
            found[count] = Number::parse(row.get_str(forwarding::NUMBER)?);
            count += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if count > 0 { Ok(found) } else { Err(failed("no call forwarding is in force then")) }
}

/// Subscribers: sets the first bit. What it was.
#[inline]
pub(super) fn set_bit(
    transaction: &mut Transaction,
    subscribers: &Table,
    s_id: i32,
    bit: bool,
) -> Result<bool> {
    let mut before = false;
    let found = transaction.modify(subscribers, s_id, |fields| {
        before = fields.get(subscriber::BITS) == Value::Bool(true);
        fields.set(subscriber::BITS, &Value::Bool(bit))
    })?;
    if found { Ok(before) } else { Err(no_subscriber(s_id)) }
}

/// Special facilities: sets the data of one. What it was.
#[inline]
pub(super) fn set_data(
    transaction: &mut Transaction,
    facilities: &Table,
    s_id: i32,
    sf_type: i16,
    data_a: i16,
) -> Result<i16> {
    let mut before = 0;
    let found = transaction.modify(facilities, (s_id, sf_type), |fields| {
        if let Value::Int2(value) = fields.get(facility::DATA_A) {
            before = value;
        }
        fields.set(facility::DATA_A, &Value::Int2(data_a))
    })?;
    if found { Ok(before) } else { Err(failed("there is no such special facility")) }
}

/// Subscribers, by their numbers: finds one, locked for a change or not.
#[inline]
pub(super) fn find_subscriber(
    transaction: &mut Transaction,
    subscribers: &Table,
    sub_nbr: &Number,
    mode: ScanMode,
) -> Result<i32> {
    let found = transaction
        .probe(subscribers, BY_NUMBER, sub_nbr.as_str(), mode, |entry| entry.get_i32(subscriber::ID))?;
    found.ok_or_else(|| Error::aborted(format!("there is no subscriber with number {sub_nbr:?}")))?
}

/// Subscribers: sets where one is. Where it was.
#[inline]
pub(super) fn set_location(
    transaction: &mut Transaction,
    subscribers: &Table,
    s_id: i32,
    vlr_location: i64,
) -> Result<i64> {
    let mut before = 0;
    let found = transaction.modify(subscribers, s_id, |fields| {
        before = fields.get_i64(subscriber::VLR_LOCATION)?;
        fields.set_i64(subscriber::VLR_LOCATION, vlr_location)
    })?;
    if found { Ok(before) } else { Err(no_subscriber(s_id)) }
}

/// Special facilities: reads the types of all that a subscriber has, and finds this one among them. `scan` is memory.
#[inline]
pub(super) fn find_facility(
    transaction: &mut Transaction,
    facilities: &Table,
    s_id: i32,
    sf_type: i16,
    scan: &mut Scan,
) -> Result<()> {
    set_bounds(scan, &[Value::Int4(s_id)]);
    let mut is_there = false;
    transaction.scan(facilities, scan, |_, row| {
        is_there |= row.get_i16(facility::TYPE)? == sf_type;
        Ok(ControlFlow::Continue(()))
    })?;
    if is_there { Ok(()) } else { Err(failed("there is no such special facility")) }
}

/// Call forwardings: inserts one.
#[inline]
pub(super) fn insert_forwarding(
    transaction: &mut Transaction,
    forwardings: &Table,
    s_id: i32,
    forwarding: &Forwarding,
) -> Result<()> {
    match transaction.insert_borrowed(forwardings, &forwarding_row(s_id, forwarding)) {
        Err(Error::DuplicateKey { .. }) => Err(failed("there is a call forwarding from this hour on")),
        other => other,
    }
}

/// Call forwardings: deletes one.
#[inline]
pub(super) fn delete_forwarding(
    transaction: &mut Transaction,
    forwardings: &Table,
    s_id: i32,
    sf_type: i16,
    start_time: i16,
) -> Result<()> {
    match transaction.delete(forwardings, (s_id, sf_type, start_time))? {
        true => Ok(()),
        false => Err(failed("there is no call forwarding from this hour on")),
    }
}

/// Changes where a subscriber is.
#[inline]
pub(super) fn update_location(
    transaction: &mut Transaction,
    subscribers: &Table,
    sub_nbr: &Number,
    vlr_location: i64,
) -> Result<Response> {
    let s_id = find_subscriber(transaction, subscribers, sub_nbr, ScanMode::Update)?;
    Ok(Response::Located { before: set_location(transaction, subscribers, s_id, vlr_location)? })
}

/// Inserts a call forwarding of the subscriber with this number.
#[inline]
pub(super) fn insert_call_forwarding(
    transaction: &mut Transaction,
    [subscribers, facilities, forwardings]: [&Table; 3],
    sub_nbr: &Number,
    forwarding: &Forwarding,
    facilities_scan: &mut Scan,
) -> Result<Response> {
    let s_id = find_subscriber(transaction, subscribers, sub_nbr, ScanMode::Share)?;
    find_facility(transaction, facilities, s_id, forwarding.sf_type, facilities_scan)?;
    insert_forwarding(transaction, forwardings, s_id, forwarding)?;
    Ok(Response::Inserted { s_id })
}

/// Deletes one.
#[inline]
pub(super) fn delete_call_forwarding(
    transaction: &mut Transaction,
    [subscribers, forwardings]: [&Table; 2],
    sub_nbr: &Number,
    (sf_type, start_time): (i16, i16),
) -> Result<Response> {
    let s_id = find_subscriber(transaction, subscribers, sub_nbr, ScanMode::Share)?;
    delete_forwarding(transaction, forwardings, s_id, sf_type, start_time)?;
    Ok(Response::Deleted { s_id })
}

impl Tables {
    /// Runs the transaction that a request is for. A subscriber that it reads goes to `row`.
    ///
    /// # Errors
    /// [`Error::Aborted`] for what does not succeed; what operations can meet.
    #[inline]
    pub fn run(
        &self,
        transaction: &mut Transaction,
        request: &Request,
        scans: &mut Scans,
        row: &mut Row,
    ) -> Result<Response> {
        let Tables { subscriber, access_info, special_facility, call_forwarding } = self;
        match *request {
            Request::GetSubscriberData { s_id } => {
                read_subscriber(transaction, subscriber, s_id, row)?;
                Ok(Response::Subscriber)
            }
            Request::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                find_active(transaction, special_facility, s_id, sf_type)?;
                let (facility, hours) = ((s_id, sf_type), (start_time, end_time));
                let scan = &mut scans.forwardings;
                find_destinations(transaction, call_forwarding, facility, hours, scan)
                    .map(Response::Destinations)
            }
            Request::GetAccessData { s_id, ai_type } => read_access(transaction, access_info, s_id, ai_type),
            Request::UpdateSubscriberData { s_id, sf_type, bit, data_a } => Ok(Response::Updated {
                bit_before: set_bit(transaction, subscriber, s_id, bit)?,
                data_a_before: set_data(transaction, special_facility, s_id, sf_type, data_a)?,
            }),
            Request::UpdateLocation { ref sub_nbr, vlr_location } => {
                update_location(transaction, subscriber, sub_nbr, vlr_location)
            }
            Request::InsertCallForwarding { ref sub_nbr, ref forwarding } => {
                let tables = [subscriber, special_facility, call_forwarding];
                insert_call_forwarding(transaction, tables, sub_nbr, forwarding, &mut scans.facilities)
            }
            Request::DeleteCallForwarding { ref sub_nbr, sf_type, start_time } => {
                let (tables, forwarding) = ([subscriber, call_forwarding], (sf_type, start_time));
                delete_call_forwarding(transaction, tables, sub_nbr, forwarding)
            }
        }
    }
}

//! The five transactions, each written once as a registered procedure, which any engine can run and a log of calls can
//! keep: no clock and no random number, the dates are arguments.
//!
//! The routing fields, and so the identifiers, of all tables but the items are the warehouse, then the district. What
//! a transaction does at another warehouse (the stock of a line, the customer of a payment) is an action of its own. A
//! secondary index begins with the same columns, so a search in it stays within the identifier of the rows that it
//! finds.
//!
//! **No deadlocks between executors.** Tables are in two classes: first warehouses, districts, customers, items and
//! stocks; second new orders, orders, order lines and the history. Every flow visits all that it uses of the first
//! class in one phase, and then, in one phase, all that it uses of the second; a later phase uses only what has been
//! visited. If a transaction knows only later what it does there, it [claims](rialto::Action::claim) the identifier in
//! that phase. (The conventional engine locks rows, not identifiers. There a delivery and a new order of one district
//! can deadlock; the victim runs again.)
//!
//! The outputs are what the specification shows on the terminal. A text may hold several fields that are shown in one
//! line.

pub(super) mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

use std::fmt;
use std::ops::ControlFlow;

use rialto::row::{ColumnType, RowView, Value};
use rialto::{Error, Flow, Procedure, Result, Scan, ScanMode, Table, Transaction};

pub use self::new_order::INVALID_ITEM;
use super::request::Name;
use super::tables::{BY_LAST_NAME, customer};

/// The argument that each begins with.
const WAREHOUSE: usize = 0;

/// All five, under their names.
pub fn procedures() -> Vec<Procedure> {
    Name::ALL.into_iter().map(procedure).collect()
}

fn procedure(name: Name) -> Procedure {
    let (arguments, flow) = match name {
        Name::NewOrder => new_order::flow(),
        Name::Payment => payment::flow(|_, _| {}),
        Name::OrderStatus => order_status::flow(),
        Name::Delivery => delivery::flow(),
        Name::StockLevel => stock_level::flow(),
    };
    registered(name, arguments, flow)
}

fn registered(name: Name, arguments: &[ColumnType], flow: Flow) -> Procedure {
    Procedure::new(name.as_str(), arguments.iter().copied(), flow).deterministic(1)
}

/// The payment, which also tells `see` of each district that it pays at, with its warehouse.
pub fn seen_payment(see: impl Fn(i16, i16) + Send + Sync + 'static) -> Procedure {
    let (arguments, flow) = payment::flow(see);
    registered(Name::Payment, arguments, flow)
}

#[cold]
fn missing(table: &str, key: impl fmt::Debug) -> Error {
    Error::aborted(format!("row {key:?} of table \"{table}\" is missing: this is no TPC-C database any more"))
}

/// Two streets, city, state and zip, as a terminal shows them; `street_1` is the column of the first.
fn address(row: RowView<'_>, street_1: usize) -> Result<String> {
    let [first, second, city, state, zip] = [0, 1, 2, 3, 4].map(|nth| row.get_str(street_1 + nth));
    joined([first?, second?, city?, state?, zip?], ", ")
}

fn joined<const N: usize>(parts: [&str; N], between: &str) -> Result<String> {
    let mut all = String::with_capacity(parts.iter().map(|part| part.len() + between.len()).sum());
    for (position, part) in parts.into_iter().enumerate() {
        if position > 0 {
            all.push_str(between);
        }
        all.push_str(part);
    }
    Ok(all)
}

/// First, middle and last name of a customer.
fn full_name(row: RowView<'_>) -> Result<String> {
    let [first, middle, last] =
        [customer::FIRST, customer::MIDDLE, customer::LAST].map(|column| row.get_str(column));
    joined([first?, middle?, last?], " ")
}

/// The customer of a district that a request names by last name: of the customers that have it, in the order of their first names, the
/// one in the middle, rounded up (clause 2.5.2.2).
fn customer_by_name(
    transaction: &mut Transaction,
    table: &Table,
    (warehouse, district, last): (i16, i16, &str),
    mode: ScanMode,
) -> Result<i32> {
    let prefix = vec![Value::Int2(warehouse), Value::Int2(district), Value::Text(last.to_owned())];
    let scan = Scan { mode, ..Scan::prefix(BY_LAST_NAME, prefix) };
    let mut found = Vec::with_capacity(16);
    transaction.scan(table, &scan, |_, row| {
        found.push(row.get_i32(customer::ID)?);
        Ok(ControlFlow::Continue(()))
    })?;
    match found.len() {
        0 => Err(no_customer(warehouse, district, last)),
        count => Ok(found[count.div_ceil(2) - 1]),
    }
}

#[cold]
fn no_customer(warehouse: i16, district: i16, last: &str) -> Error {
    Error::aborted(format!("district {district} of warehouse {warehouse} has no customer named {last}"))
}

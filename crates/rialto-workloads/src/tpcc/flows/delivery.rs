//! Delivery (clause 2.7): the oldest new order of each district of a warehouse is delivered. It is one transaction for all
//! ten districts, and runs at once, as the others do: the specification also lets it be queued and run later. Its phases:
//!
//! 1. a claim on the customers; 2. the new orders, and claims on orders and lines; 3. the orders; the lines; 4. the
//!    customers.
//!
//! The outputs are the order of each district, or NULL if the district has no new order; then the customer of each
//! order, and the amount.

use std::ops::ControlFlow;

use rialto::row::ColumnType::{self, Int2, Int4, Timestamp};
use rialto::row::{Value, WhichIndex};
use rialto::{Action, ActionMode, Error, Flow, Outputs, Result, Scan, ScanMode};

use super::super::tables::{DISTRICTS, customer, new_order, order, order_line};
use super::{WAREHOUSE, missing};

const CARRIER: usize = 1;
const DATE: usize = 2;

/// Outputs, each for every district.
const ORDERS: usize = 0;
const CUSTOMERS: usize = DISTRICTS as usize;
const AMOUNTS: usize = 2 * DISTRICTS as usize;

pub(super) fn flow() -> (&'static [ColumnType], Flow) {
    let of_warehouse = |actions: Vec<Action>| actions.into_iter().map(|action| action.by_argument(WAREHOUSE));
    let claimed = |table: &str| Action::claim(table, ActionMode::Exclusive);
    let flow = Flow::new()
        .phase(of_warehouse(vec![claimed("customer")]))
        .phase(of_warehouse(vec![take_orders(), claimed("orders"), claimed("order_line")]))
        .phase(of_warehouse(vec![assign_orders(), deliver_lines()]))
        .phase(of_warehouse(vec![bill_customers()]));
    (&[Int2, Int4, Timestamp], flow)
}

/// The districts with what was found of each, from an output on.
fn found(outputs: &Outputs, from: usize) -> impl Iterator<Item = (i16, &Value)> + Clone {
    (1..).zip(outputs.earlier().iter().skip(from).take(DISTRICTS as usize))
}

/// The districts in which an order was found, with its number.
fn orders(outputs: &Outputs) -> impl Iterator<Item = (i16, i32)> {
    found(outputs, ORDERS).filter_map(|(district, order)| match *order {
        Value::Int4(order) => Some((district, order)),
        _ => None,
    })
}

fn take_orders() -> Action {
    Action::exclusive("new_order", |transaction, arguments, outputs| {
        let (table, warehouse) = (arguments.table()?, arguments.get::<i16>(WAREHOUSE)?);
        for district in 1..=DISTRICTS as i16 {
            let prefix = [warehouse, district].map(Value::Int2).to_vec();
            let oldest =
                Scan { limit: Some(1), mode: ScanMode::Update, ..Scan::prefix(WhichIndex::Primary, prefix) };
            let mut order = None;
            transaction.scan(table, &oldest, |_, row| {
                order = Some(row.get_i32(new_order::ORDER)?);
                Ok(ControlFlow::Break(()))
            })?;
            if let Some(order) = order {
                transaction.delete(table, (warehouse, district, order))?;
            }
            outputs.push(order.map_or(Value::Null, Value::Int4));
        }
        Ok(())
    })
}

fn assign_orders() -> Action {
    Action::exclusive("orders", |transaction, arguments, outputs| {
        let (table, warehouse) = (arguments.table()?, arguments.get::<i16>(WAREHOUSE)?);
        let carrier = Value::Int2(arguments.get::<i32>(CARRIER)? as i16);
        let mut customers = [const { Value::Null }; DISTRICTS as usize];
        let found_orders = orders(outputs).map(|(district, order)| (warehouse, district, order));
        transaction.prefetch(table, found_orders);
        for ((district, order), customer) in found(outputs, ORDERS).zip(&mut customers) {
            let Value::Int4(order) = *order else { continue };
            let there = transaction.modify(table, (warehouse, district, order), |fields| {
                *customer = Value::Int4(fields.get_i32(order::CUSTOMER)?);
                fields.set(order::CARRIER, &carrier)
            })?;
            if !there {
                return Err(missing("orders", (warehouse, district, order)));
            }
        }
        customers.into_iter().for_each(|customer| outputs.push(customer));
        Ok(())
    })
}

fn deliver_lines() -> Action {
    Action::exclusive("order_line", |transaction, arguments, outputs| {
        let (table, warehouse) = (arguments.table()?, arguments.get::<i16>(WAREHOUSE)?);
        let date = arguments.values()[DATE].clone();
        // The others of an order lie behind its first line.
        let first_lines = orders(outputs).map(|(district, order)| (warehouse, district, order, 1_i16));
        transaction.prefetch(table, first_lines);
        let mut amounts = [const { Value::Null }; DISTRICTS as usize];
        for ((district, order), amount) in found(outputs, ORDERS).zip(&mut amounts) {
            let Value::Int4(order) = *order else { continue };
            let mut cents = 0;
            // Lines are numbered without a gap.
            for line in 1_i16.. {
                let there = transaction.modify(table, (warehouse, district, order, line), |fields| {
                    cents += i64::from(fields.get_i32(order_line::AMOUNT)?);
                    fields.set(order_line::DELIVERY_DATE, &date)
                })?;
                if !there {
                    break;
                }
            }
            *amount = Value::Int8(cents);
        }
        amounts.into_iter().for_each(|amount| outputs.push(amount));
        Ok(())
    })
}

fn bill_customers() -> Action {
    Action::exclusive("customer", |transaction, arguments, outputs| {
        let (table, warehouse) = (arguments.table()?, arguments.get::<i16>(WAREHOUSE)?);
        let billed = found(outputs, CUSTOMERS).zip(found(outputs, AMOUNTS));
        let billed = billed.filter_map(|((district, number), (_, cents))| match (number, cents) {
            (Value::Int4(number), Value::Int8(cents)) => Some((district, *number, *cents)),
            _ => None,
        });
        transaction
            .prefetch(table, billed.clone().map(|(district, number, _)| (warehouse, district, number)));
        for (district, number, cents) in billed {
            let there = transaction.modify(table, (warehouse, district, number), |fields| {
                fields.add_i64(customer::BALANCE, cents)?;
                fields.add_i32(customer::DELIVERY_CNT, 1).map(drop)
            })?;
            if !there {
                return Err(missing("customer", (warehouse, district, number)));
            }
        }
        Ok(())
    })
}

/// How many orders a call has delivered, by its outputs.
///
/// # Errors
/// If they are not its outputs.
pub(in super::super) fn delivered(outputs: &[Value]) -> Result<i64> {
    let orders = outputs.get(ORDERS..CUSTOMERS);
    let orders = orders.ok_or_else(|| Error::aborted("a delivery gave no orders"))?;
    Ok(orders.iter().filter(|order| !order.is_null()).count() as i64)
}

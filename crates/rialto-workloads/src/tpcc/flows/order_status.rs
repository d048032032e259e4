//! Order-Status (clause 2.6): the state of a customer's last order. Its phases:
//!
//! 1. the customer, by number or by last name; 2. the last order, and a claim on its lines; 3. the lines.

use std::ops::ControlFlow;

use rialto::row::ColumnType::{self, Int2, Int4, Text};
use rialto::row::{Value, WhichIndex};
use rialto::{
    Action, ActionMode, Arguments, Direction, Error, Flow, Outputs, Result, Scan, ScanMode, Transaction,
};

use super::super::tables::{BY_CUSTOMER, customer, order, order_line};
use super::{WAREHOUSE, customer_by_name, full_name, missing};

const DISTRICT: usize = 1;
/// The customer's number, or NULL and the last name.
const CUSTOMER: usize = 2;
const LAST_NAME: usize = 3;

/// Outputs: the customer's number, name and balance; then the order's number, date and carrier; then of each line item,
/// warehouse, quantity, amount and date.
const CUSTOMER_NUMBER: usize = 0;
const ORDER: usize = 3;

pub(super) fn flow() -> (&'static [ColumnType], Flow) {
    let of_district = |action: Action| action.by_argument(WAREHOUSE).by_argument(DISTRICT);
    let lines = of_district(Action::claim("order_line", ActionMode::Shared));
    let flow = Flow::new()
        .phase([by_number(), of_district(by_name())])
        .phase([of_district(find_order()), lines])
        .phase([of_district(read_lines())]);
    (&[Int2, Int2, Int4, Text], flow)
}

fn place(arguments: &Arguments<'_>) -> Result<(i16, i16)> {
    Ok((arguments.get(WAREHOUSE)?, arguments.get(DISTRICT)?))
}

fn by_number() -> Action {
    let read = Action::shared("customer", |transaction, arguments, outputs| {
        let number = arguments.get::<i32>(CUSTOMER)?;
        read_customer(transaction, arguments, outputs, number)
    });
    read.by_argument(WAREHOUSE)
        .by_argument(DISTRICT)
        .by_argument(CUSTOMER)
        .when(|arguments| !arguments[CUSTOMER].is_null())
}

fn by_name() -> Action {
    let read = Action::shared("customer", |transaction, arguments, outputs| {
        let (warehouse, district) = place(arguments)?;
        let name = (warehouse, district, arguments.get_str(LAST_NAME)?);
        let number = customer_by_name(transaction, arguments.table()?, name, ScanMode::Share)?;
        read_customer(transaction, arguments, outputs, number)
    });
    read.when(|arguments| arguments[CUSTOMER].is_null())
}

fn read_customer(
    transaction: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
    number: i32,
) -> Result<()> {
    let (warehouse, district) = place(arguments)?;
    let found = transaction.look(arguments.table()?, (warehouse, district, number), |row| {
        outputs.push(number);
        outputs.push(full_name(row)?);
        outputs.push(row.get_i64(customer::BALANCE)?);
        Ok(())
    })?;
    found.ok_or_else(|| missing("customer", (warehouse, district, number)))?
}

fn find_order() -> Action {
    Action::shared("orders", |transaction, arguments, outputs| {
        let (warehouse, district) = place(arguments)?;
        let customer = outputs.get::<i32>(CUSTOMER_NUMBER);
        let customer = customer.ok_or_else(|| Error::aborted("the first phase gave no customer"))?;
        let prefix = vec![Value::Int2(warehouse), Value::Int2(district), Value::Int4(customer)];
        let last =
            Scan { direction: Direction::Backward, limit: Some(1), ..Scan::prefix(BY_CUSTOMER, prefix) };
        let mut found = false;
        transaction.scan(arguments.table()?, &last, |_, row| {
            found = true;
            outputs.push(row.get_i32(order::ID)?);
            outputs.push(row.get(order::ENTRY_DATE));
            outputs.push(row.get(order::CARRIER));
            Ok(ControlFlow::Break(()))
        })?;
        if found { Ok(()) } else { Err(missing("orders", (warehouse, district, customer))) }
    })
}

fn read_lines() -> Action {
    Action::shared("order_line", |transaction, arguments, outputs| {
        let (warehouse, district) = place(arguments)?;
        let order = outputs.get::<i32>(ORDER).ok_or_else(|| Error::aborted("no order was found"))?;
        let prefix = vec![Value::Int2(warehouse), Value::Int2(district), Value::Int4(order)];
        transaction.scan(arguments.table()?, &Scan::prefix(WhichIndex::Primary, prefix), |_, row| {
            outputs.push(row.get_i32(order_line::ITEM)?);
            outputs.push(row.get(order_line::SUPPLY_WAREHOUSE));
            outputs.push(row.get(order_line::QUANTITY));
            outputs.push(row.get_i32(order_line::AMOUNT)?);
            outputs.push(row.get(order_line::DELIVERY_DATE));
            Ok(ControlFlow::Continue(()))
        })
    })
}

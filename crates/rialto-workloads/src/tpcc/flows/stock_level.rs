//! Stock-Level (clause 2.8): how many of the items in the last 20 orders of a district are below a threshold in the home
//! warehouse's stock. It is serializable, more than the specification asks. Its phases:
//!
//! 1. the district's next order, and a claim on the stocks; 2. the items of the lines; 3. their stocks.

use std::ops::ControlFlow;

use rialto::row::ColumnType::{self, Int2, Int4};
use rialto::row::{Value, WhichIndex};
use rialto::{Action, ActionMode, Error, Flow, KeyBound, Result, Scan};

use super::super::tables::{district, order_line, stock};
use super::{WAREHOUSE, missing};

const DISTRICT: usize = 1;
const THRESHOLD: usize = 2;

/// Outputs: the next order; behind it the items, each once, and last how many of them are below the threshold.
const NEXT_ORDER: usize = 0;
const ITEMS: usize = 1;

/// The orders whose lines are looked at.
const LAST_ORDERS: i32 = 20;

pub(super) fn flow() -> (&'static [ColumnType], Flow) {
    let of_district = |action: Action| action.by_argument(WAREHOUSE).by_argument(DISTRICT);
    let flow = Flow::new()
        .phase([
            of_district(read_district()),
            Action::claim("stock", ActionMode::Shared).by_argument(WAREHOUSE),
        ])
        .phase([of_district(read_items())])
        .phase([count_low_stocks().by_argument(WAREHOUSE)]);
    (&[Int2, Int2, Int4], flow)
}

fn read_district() -> Action {
    Action::shared("district", |transaction, arguments, outputs| {
        let key = (arguments.get::<i16>(WAREHOUSE)?, arguments.get::<i16>(DISTRICT)?);
        let next = transaction.look(arguments.table()?, key, |row| row.get_i32(district::NEXT_O_ID))?;
        outputs.push(next.ok_or_else(|| missing("district", (key.0, key.1)))??);
        Ok(())
    })
}

fn read_items() -> Action {
    Action::shared("order_line", |transaction, arguments, outputs| {
        let next = outputs.get::<i32>(NEXT_ORDER);
        let next = next.ok_or_else(|| Error::aborted("the district gave no order number"))?;
        let place = [arguments.get(WAREHOUSE)?, arguments.get(DISTRICT)?].map(Value::Int2);
        let bound = |order: i32| [place.as_slice(), &[Value::Int4(order)]].concat();
        let last = Scan {
            index: WhichIndex::Primary,
            lower: KeyBound::Included(bound(next - LAST_ORDERS)),
            upper: KeyBound::Excluded(bound(next)),
            ..Scan::all()
        };
        let mut items = Vec::with_capacity(256);
        transaction.scan(arguments.table()?, &last, |_, row| {
            items.push(row.get_i32(order_line::ITEM)?);
            Ok(ControlFlow::Continue(()))
        })?;
        items.sort_unstable();
        items.dedup();
        items.into_iter().for_each(|item| outputs.push(item));
        Ok(())
    })
}

fn count_low_stocks() -> Action {
    Action::shared("stock", |transaction, arguments, outputs| {
        let (table, warehouse) = (arguments.table()?, arguments.get::<i16>(WAREHOUSE)?);
        let threshold = arguments.get::<i32>(THRESHOLD)?;
        let items = outputs.earlier().get(ITEMS..).unwrap_or_default().iter();
        let items = items.filter_map(|item| if let Value::Int4(item) = *item { Some(item) } else { None });
        transaction.prefetch(table, items.clone().map(|item| (warehouse, item)));
        let mut low = 0;
        for item in items {
            let quantity = transaction.look(table, (warehouse, item), |row| row.get_i32(stock::QUANTITY))?;
            let quantity: Result<i32> = quantity.ok_or_else(|| missing("stock", (warehouse, item)))?;
            low += i32::from(quantity? < threshold);
        }
        outputs.push(low);
        Ok(())
    })
}

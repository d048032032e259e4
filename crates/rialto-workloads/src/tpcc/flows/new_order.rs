//! New-Order (clause 2.4): enters an order of 5 to 15 lines. Its phases:
//!
//! 1. the warehouse's tax; the district's tax, and its next order number; the customer; each line's item; the stocks: those
//!    of the home warehouse as one action, each stock of another warehouse as an action there;
//! 2. the order, the new order and the order lines, by what the first phase found.
//!
//! In one order of a hundred the last item does not exist. Everything else is done for such an order as for others
//! (clause 2.4.2.3), and then it is rolled back.

use rialto::row::ColumnType::{self, Bytes, Int2, Int4, Timestamp};
use rialto::row::{Value, ValueRef};
use rialto::{Action, Arguments, Error, Flow, Outputs, Result, Transaction};

use super::super::lines::{Line, Lines};
use super::super::random::ORIGINAL;
use super::super::tables::{DISTRICTS, customer, district, item, stock, warehouse};
use super::{WAREHOUSE, missing};

const DISTRICT: usize = 1;
const CUSTOMER: usize = 2;
const ENTRY_DATE: usize = 3;
const LINES: usize = 4;

/// Outputs of the first phase.
const WAREHOUSE_TAX: usize = 0;
const DISTRICT_TAX: usize = 1;
const ORDER: usize = 2;
const DISCOUNT: usize = 3;
/// Of each line: price, name, whether it is an original; from here on.
const ITEMS: usize = 6;
const ITEM_OUTPUTS: usize = 3;
/// Of each line, those of the home warehouse first: what is left, and brand and district information. Behind the items.
const STOCK_OUTPUTS: usize = 2;

/// What a rolled back order is answered (clause 2.4.3.5).
pub const INVALID_ITEM: &str = "Item number is not valid";

/// What the percentages of taxes and discounts are parts of.
const WHOLE: i64 = 10_000;

/// The line's own of an action for each line that there can be.
macro_rules! of_each_line {
    ($action:ident) => {
        [
            $action::<0>(),
            $action::<1>(),
            $action::<2>(),
            $action::<3>(),
            $action::<4>(),
            $action::<5>(),
            $action::<6>(),
            $action::<7>(),
            $action::<8>(),
            $action::<9>(),
            $action::<10>(),
            $action::<11>(),
            $action::<12>(),
            $action::<13>(),
            $action::<14>(),
        ]
    };
}

pub(super) fn flow() -> (&'static [ColumnType], Flow) {
    let first = [read_warehouse(), take_number(), read_customer()].into_iter();
    let first = first.chain(of_each_line!(read_item)).chain([take_home_stocks()]);
    let first = first.chain(of_each_line!(take_remote_stock));
    let flow = Flow::new().phase(first).phase([enter_order(), enter_new_order(), enter_lines()]);
    (&[Int2, Int2, Int4, Timestamp, Bytes], flow)
}

fn lines(arguments: &[Value]) -> Lines<'_> {
    Lines::of(arguments.get(LINES))
}

fn home(arguments: &[Value]) -> Option<i16> {
    match arguments.first() {
        Some(Value::Int2(warehouse)) => Some(*warehouse),
        _ => None,
    }
}

/// The warehouse and the district.
fn place(arguments: &Arguments<'_>) -> Result<(i16, i16)> {
    Ok((arguments.get(WAREHOUSE)?, arguments.get(DISTRICT)?))
}

fn read_warehouse() -> Action {
    let read = Action::shared("warehouse", |transaction, arguments, outputs| {
        let number = arguments.get::<i16>(WAREHOUSE)?;
        let found = transaction.look(arguments.table()?, number, |row| row.get_i32(warehouse::TAX))?;
        outputs.push(found.ok_or_else(|| missing("warehouse", number))??);
        Ok(())
    });
    read.by_argument(WAREHOUSE)
}

fn take_number() -> Action {
    let take = Action::exclusive("district", |transaction, arguments, outputs| {
        if let Some(problem) = lines(arguments.values()).problem() {
            return Err(Error::aborted(problem));
        }
        let key = place(arguments)?;
        let mut taken = (0, 0);
        let found = transaction.modify(arguments.table()?, key, |fields| {
            taken = (fields.get_i32(district::TAX)?, fields.get_i32(district::NEXT_O_ID)?);
            fields.set_i32(district::NEXT_O_ID, taken.1 + 1)
        })?;
        if !found {
            return Err(missing("district", (key.0, key.1)));
        }
        outputs.push(taken.0);
        outputs.push(taken.1);
        Ok(())
    });
    take.by_argument(WAREHOUSE).by_argument(DISTRICT)
}

fn read_customer() -> Action {
    let read = Action::shared("customer", |transaction, arguments, outputs| {
        let (place, number) = (place(arguments)?, arguments.get::<i32>(CUSTOMER)?);
        let found = transaction.look(arguments.table()?, (place.0, place.1, number), |row| {
            outputs.push(row.get_i32(customer::DISCOUNT)?);
            outputs.push(row.get_str(customer::LAST)?.to_owned());
            outputs.push(row.get_str(customer::CREDIT)?.to_owned());
            Ok(())
        })?;
        found.ok_or_else(|| missing("customer", (place.0, place.1, number)))?
    });
    read.by_argument(WAREHOUSE).by_argument(DISTRICT).by_argument(CUSTOMER)
}

/// Whether the data of an item or a stock says so: it has at most 50 bytes, so the words of a search are not worth it.
#[inline]
fn is_original(data: &str) -> bool {
    data.as_bytes().windows(ORIGINAL.len()).any(|window| window == ORIGINAL.as_bytes())
}

fn read_item<const LINE: usize>() -> Action {
    let read = Action::shared("item", |transaction, arguments, outputs| {
        let Some(line) = lines(arguments.values()).get(LINE) else { return Ok(()) };
        let found = transaction.look(arguments.table()?, line.item, |row| {
            outputs.push(row.get_i32(item::PRICE)?);
            outputs.push(row.get_str(item::NAME)?.to_owned());
            outputs.push(is_original(row.get_str(item::DATA)?));
            Ok(())
        })?;
        found.unwrap_or_else(|| {
            (0..ITEM_OUTPUTS).for_each(|_| outputs.push(Value::Null));
            Ok(())
        })
    });
    let number =
        |arguments: &[Value]| lines(arguments).get(LINE).map_or(Value::Null, |line| Value::Int4(line.item));
    read.by(number).when(|arguments| lines(arguments).get(LINE).is_some())
}

fn take_home_stocks() -> Action {
    let take = Action::exclusive("stock", |transaction, arguments, outputs| {
        let home = arguments.get::<i16>(WAREHOUSE)?;
        let of_home = || lines(arguments.values()).iter().filter(|line| line.supply_warehouse == home);
        transaction.prefetch(arguments.table()?, of_home().map(|line| (home, line.item)));
        of_home().try_for_each(|line| take_stock(transaction, arguments, outputs, line, false))
    });
    take.by_argument(WAREHOUSE)
}

/// The line, if there is one that another warehouse supplies.
fn remote<const LINE: usize>(arguments: &[Value]) -> Option<Line> {
    lines(arguments).get(LINE).filter(|line| Some(line.supply_warehouse) != home(arguments))
}

fn take_remote_stock<const LINE: usize>() -> Action {
    let take = Action::exclusive("stock", |transaction, arguments, outputs| {
        match remote::<LINE>(arguments.values()) {
            Some(line) => take_stock(transaction, arguments, outputs, line, true),
            None => Ok(()),
        }
    });
    take.by(|arguments| {
        remote::<LINE>(arguments).map_or(Value::Null, |line| Value::Int2(line.supply_warehouse))
    })
    .by(|arguments| remote::<LINE>(arguments).map_or(Value::Null, |line| Value::Int4(line.item)))
    .when(|arguments| remote::<LINE>(arguments).is_some())
}

/// Takes a line's quantity out of its stock.
fn take_stock(
    transaction: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
    line: Line,
    is_remote: bool,
) -> Result<()> {
    let district = arguments.get::<i16>(DISTRICT)?;
    let Some(info) = (1..=DISTRICTS as i16).position(|number| number == district) else {
        return Err(missing("district", (arguments.get::<i16>(WAREHOUSE)?, district)));
    };
    let ordered = i32::from(line.quantity);
    let mut left = 0;
    let mut brand_and_info = String::new();
    let found = transaction.modify(arguments.table()?, (line.supply_warehouse, line.item), |fields| {
        let row = fields.row();
        let info = row.get_str(stock::DISTRICT_1 + info)?;
        brand_and_info.reserve_exact(1 + info.len());
        brand_and_info.push(if is_original(row.get_str(stock::DATA)?) { 'B' } else { 'G' });
        brand_and_info.push_str(info);
        let quantity = row.get_i32(stock::QUANTITY)?;
        left = if quantity >= ordered + 10 { quantity - ordered } else { quantity - ordered + 91 };
        fields.set_i32(stock::QUANTITY, left)?;
        fields.add_i32(stock::YTD, ordered)?;
        fields.add_i32(stock::ORDER_CNT, 1)?;
        if is_remote {
            fields.add_i32(stock::REMOTE_CNT, 1)?;
        }
        Ok(())
    })?;
    // An item that there is not has no stock.
    outputs.push(if found { Value::Int4(left) } else { Value::Null });
    outputs.push(if found { Value::Text(brand_and_info) } else { Value::Null });
    Ok(())
}

/// The number that the order was given.
fn order_number(outputs: &Outputs) -> Result<i32> {
    outputs.get(ORDER).ok_or_else(|| Error::aborted("the district gave no order number"))
}

fn enter_order() -> Action {
    let enter = Action::exclusive("orders", |transaction, arguments, outputs| {
        use ValueRef::{Int2, Int4, Null, Timestamp};
        let ((warehouse, district), order) = (place(arguments)?, order_number(outputs)?);
        let rialto::row::Timestamp(entered) = arguments.get(ENTRY_DATE)?;
        let lines = lines(arguments.values());
        let is_local = lines.iter().all(|line| line.supply_warehouse == warehouse);
        let row = [
            Int2(warehouse),
            Int2(district),
            Int4(order),
            Int4(arguments.get(CUSTOMER)?),
            Timestamp(entered),
            Null,
            Int2(lines.count() as i16),
            Int2(i16::from(is_local)),
        ];
        transaction.insert_borrowed(arguments.table()?, &row)
    });
    enter.by_argument(WAREHOUSE).by_argument(DISTRICT)
}

fn enter_new_order() -> Action {
    let enter = Action::exclusive("new_order", |transaction, arguments, outputs| {
        let (warehouse, district) = place(arguments)?;
        let row =
            [ValueRef::Int2(warehouse), ValueRef::Int2(district), ValueRef::Int4(order_number(outputs)?)];
        transaction.insert_borrowed(arguments.table()?, &row)
    });
    enter.by_argument(WAREHOUSE).by_argument(DISTRICT)
}

fn enter_lines() -> Action {
    let enter = Action::exclusive("order_line", |transaction, arguments, outputs| {
        use ValueRef::{Int2, Int4, Null, Text};
        let ((warehouse, district), order) = (place(arguments)?, order_number(outputs)?);
        let (lines, found) = (lines(arguments.values()), outputs.earlier());
        let stocks = ITEMS + ITEM_OUTPUTS * lines.count();
        let of_home = lines.iter().filter(|line| line.supply_warehouse == warehouse).count();
        let (mut next_home, mut next_remote) = (0, of_home);
        let (mut cents, mut is_invalid) = (0, false);
        for (position, line) in lines.iter().enumerate() {
            let next = if line.supply_warehouse == warehouse { &mut next_home } else { &mut next_remote };
            let at_stock = stocks + STOCK_OUTPUTS * *next;
            *next += 1;
            let price = outputs.get::<i32>(ITEMS + ITEM_OUTPUTS * position);
            let (Some(price), Some(Value::Text(info))) = (price, found.get(at_stock + 1)) else {
                is_invalid = true;
                continue;
            };
            let amount = price * i32::from(line.quantity);
            cents += i64::from(amount);
            let row = [
                Int2(warehouse),
                Int2(district),
                Int4(order),
                Int2(position as i16 + 1),
                Int4(line.item),
                Int2(line.supply_warehouse),
                Null,
                Int2(i16::from(line.quantity)),
                Int4(amount),
                // Behind the brand.
                Text(&info[1..]),
            ];
            transaction.insert_borrowed(arguments.table()?, &row)?;
        }
        if is_invalid {
            return Err(Error::aborted(INVALID_ITEM));
        }
        let percent = |position| outputs.get::<i32>(position).map_or(0, i64::from);
        let taxed = WHOLE + percent(WAREHOUSE_TAX) + percent(DISTRICT_TAX);
        let total = cents * (WHOLE - percent(DISCOUNT)) * taxed / (WHOLE * WHOLE);
        outputs.push(total);
        Ok(())
    });
    enter.by_argument(WAREHOUSE).by_argument(DISTRICT)
}

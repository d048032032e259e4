//! The transactions by name, and the input of each at a terminal (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1): the
//! arguments of its procedure, in their order.
//!
//! The specification gives each terminal a home warehouse. Here a client stands for many terminals, so the warehouse
//! of each request is drawn at random, and so is the district of a stock-level.

use std::fmt;

use rialto::io::Random;
use rialto::row::Value;

use super::lines::{LINE_BYTES, LINES_MAX, Line};
use super::random::{customer, item, last_name, last_name_asked_for, within};
use super::tables::{DISTRICTS, Shape};
use crate::mix::Names;

/// The name of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// An order of 5 to 15 lines is entered.
    NewOrder,
    /// A customer pays.
    Payment,
    /// The last order of a customer is looked up.
    OrderStatus,
    /// The oldest new order of each district of a warehouse is delivered.
    Delivery,
    /// Which of the items that a district sold last are nearly out of stock.
    StockLevel,
}

impl Name {
    /// All.
    pub const ALL: [Name; 5] =
        [Name::NewOrder, Name::Payment, Name::OrderStatus, Name::Delivery, Name::StockLevel];
    /// Their names, in this order.
    pub const NAMES: [&str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        Name::NAMES[self as usize]
    }

    /// Whether it changes nothing.
    pub fn only_reads(self) -> bool {
        matches!(self, Name::OrderStatus | Name::StockLevel)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Names for Name {
    const ALL: &'static [Name] = &Name::ALL;
    /// The least that clause 5.2.3 asks of the four, and new orders for the rest.
    const PERCENT: &'static [u32] = &[45, 43, 4, 4, 4];

    #[inline]
    fn position(self) -> usize {
        self as usize
    }
}

/// One new order of a hundred ends with an item that there is not (clause 2.4.1.4).
const UNUSED_ITEM_PERCENT: u64 = 1;
/// One line of a hundred is supplied by another warehouse (clause 2.4.1.5).
const REMOTE_LINE_PERCENT: u64 = 1;
/// 15 payments of a hundred are of a customer of another warehouse (clause 2.5.1.2).
const REMOTE_CUSTOMER_PERCENT: u64 = 15;
/// 60 customers of a hundred are asked for by their last name (clauses 2.5.1.2 and 2.6.1.2).
const BY_NAME_PERCENT: u64 = 60;

/// Draws requests.
#[derive(Debug)]
pub(super) struct Requests {
    pub shape: Shape,
    pub random: Random,
}

impl Requests {
    fn within(&mut self, low: u32, high: u32) -> i32 {
        within(&mut self.random, low, high) as i32
    }

    fn warehouse(&mut self) -> i16 {
        self.within(1, self.shape.warehouses) as i16
    }

    fn district(&mut self) -> i16 {
        self.within(1, DISTRICTS) as i16
    }

    /// Any other warehouse, each as likely; there are some.
    fn other_warehouse(&mut self, home: i16) -> i16 {
        let other = self.within(1, self.shape.warehouses - 1) as i16;
        if other < home { other } else { other + 1 }
    }

    fn has_others(&self) -> bool {
        self.shape.warehouses > 1
    }

    /// A customer by number or by last name: the other is NULL.
    fn customer(&mut self) -> [Value; 2] {
        if self.random.chance(BY_NAME_PERCENT, 100) {
            let name = last_name_asked_for(&mut self.random, self.shape.last_names());
            return [Value::Null, Value::Text(last_name(name))];
        }
        [Value::Int4(customer(&mut self.random, self.shape.customers) as i32), Value::Null]
    }

    /// Replaces `arguments` by those of the next request for this transaction, made at a time.
    pub fn draw(&mut self, name: Name, now_us: i64, arguments: &mut Vec<Value>) {
        arguments.clear();
        let warehouse = self.warehouse();
        arguments.push(Value::Int2(warehouse));
        let now = Value::Timestamp(now_us);
        match name {
            Name::NewOrder => {
                let district = self.district();
                let customer = customer(&mut self.random, self.shape.customers) as i32;
                let lines = self.lines(warehouse);
                arguments.extend([Value::Int2(district), Value::Int4(customer), now, Value::Bytes(lines)]);
            }
            Name::Payment => {
                let district = self.district();
                let of = match self.has_others() && self.random.chance(REMOTE_CUSTOMER_PERCENT, 100) {
                    true => [self.other_warehouse(warehouse), self.district()],
                    false => [warehouse, district],
                };
                let [number, last] = self.customer();
                let cents = self.within(100, 500_000);
                arguments.extend([district, of[0], of[1]].map(Value::Int2));
                arguments.extend([number, last, Value::Int4(cents), now]);
            }
            Name::OrderStatus => {
                arguments.push(Value::Int2(self.district()));
                arguments.extend(self.customer());
            }
            Name::Delivery => arguments.extend([Value::Int4(self.within(1, 10)), now]),
            Name::StockLevel => {
                let (district, threshold) = (self.district(), self.within(10, 20));
                arguments.extend([Value::Int2(district), Value::Int4(threshold)]);
            }
        }
    }

    /// The lines of a new order of a warehouse.
    fn lines(&mut self, home: i16) -> Vec<u8> {
        let count = self.within(5, LINES_MAX as u32);
        let mut lines = Vec::with_capacity(LINE_BYTES * count as usize);
        let is_rolled_back = self.random.chance(UNUSED_ITEM_PERCENT, 100);
        for number in 1..=count {
            let item = match is_rolled_back && number == count {
                true => self.shape.items + 1,
                false => item(&mut self.random, self.shape.items),
            };
            let is_remote = self.has_others() && self.random.chance(REMOTE_LINE_PERCENT, 100);
            let supply_warehouse = if is_remote { self.other_warehouse(home) } else { home };
            let quantity = self.within(1, 10) as u8;
            Line { item: item as i32, supply_warehouse, quantity }.append_to(&mut lines);
        }
        lines
    }
}

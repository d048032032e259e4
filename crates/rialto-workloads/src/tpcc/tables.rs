//! The nine tables (clause 1.3), and how existing ones are recognised.
//!
//! Amounts are whole cents, taxes and discounts ten-thousandths; a column that the specification gives by a number of
//! digits is an integer type that holds them. The numbers of warehouses and districts take two bytes each, so that the
//! first eight bytes of a key, which an index compares first, differ for different orders and customers. In each table
//! the columns of the key come first, followed by the columns that are changed, side by side. A history row has no
//! key; its first columns say where the payment was made.

use std::fmt;

use rialto::row::{Column, ColumnType, WhichIndex};
use rialto::{Table, TableDef};

use crate::data::IndexOf;

use super::random::LAST_NAMES;

/// The sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Warehouses.
    pub warehouses: u32,
    /// Items, and stocks of each warehouse; the specification's are [`ITEMS`].
    pub items: u32,
    /// Customers of each district, and the orders that it is loaded with; the specification's are [`CUSTOMERS`].
    pub customers: u32,
}

/// Items, and stocks of each warehouse.
pub const ITEMS: u32 = 100_000;
/// Customers of each district.
pub const CUSTOMERS: u32 = 3_000;
/// The most warehouses.
pub const WAREHOUSES_MAX: u32 = i16::MAX as u32;
/// Districts of each warehouse.
pub const DISTRICTS: u32 = 10;
/// Memory for tables, in bytes, about: that of the items, of a warehouse's stocks, and of its customers with their orders; what
/// has been measured, and a tenth.
const ITEMS_BYTES: u64 = 14_000_000;
const STOCKS_BYTES: u64 = 40_000_000;
const CUSTOMERS_BYTES: u64 = 64_000_000;

impl Shape {
    /// The specification's, of so many warehouses.
    pub fn of_warehouses(warehouses: u32) -> Shape {
        Shape { warehouses, items: ITEMS, customers: CUSTOMERS }
    }

    /// Whether the sizes are the specification's.
    pub fn is_specified(&self) -> bool {
        *self == Shape::of_warehouses(self.warehouses)
    }

    /// The orders of each district that are loaded as delivered: seven of ten. The others are new.
    pub fn delivered(&self) -> u32 {
        (u64::from(self.customers) * 7 / 10) as u32
    }

    /// The last names that customers have: all, unless there are fewer customers.
    pub fn last_names(&self) -> u32 {
        self.customers.min(LAST_NAMES)
    }

    /// What the customers of a district have paid when they are loaded, in cents: 10.00 each.
    pub fn district_ytd(&self) -> i64 {
        i64::from(self.customers) * 1_000
    }

    /// The memory for tables that it is loaded into, in bytes, about.
    pub fn memory_bytes(&self) -> u64 {
        let of_items = |bytes: u64| bytes / u64::from(ITEMS) * u64::from(self.items);
        let of_customers = |bytes: u64| bytes / u64::from(CUSTOMERS) * u64::from(self.customers);
        let warehouse = of_items(STOCKS_BYTES) + of_customers(CUSTOMERS_BYTES);
        of_items(ITEMS_BYTES) + u64::from(self.warehouses) * warehouse
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { warehouses, items, customers } = self;
        write!(f, "{warehouses} warehouses, {items} items, {customers} customers a district")?;
        if self.is_specified() { Ok(()) } else { f.write_str(" (not the specification's sizes)") }
    }
}

/// The columns of warehouses.
pub(super) mod warehouse {
    pub const TAX: usize = 1;
    pub const YTD: usize = 2;
    pub const NAME: usize = 3;
    pub const STREET_1: usize = 4;
}

/// The columns of districts.
pub(super) mod district {
    pub const TAX: usize = 2;
    pub const NEXT_O_ID: usize = 3;
    pub const YTD: usize = 4;
    pub const NAME: usize = 5;
    pub const STREET_1: usize = 6;
}

/// The columns of customers.
pub(super) mod customer {
    pub const ID: usize = 2;
    pub const PAYMENT_CNT: usize = 3;
    pub const DELIVERY_CNT: usize = 4;
    pub const BALANCE: usize = 5;
    pub const YTD_PAYMENT: usize = 6;
    pub const CREDIT_LIM: usize = 7;
    pub const DISCOUNT: usize = 8;
    pub const SINCE: usize = 9;
    pub const FIRST: usize = 10;
    pub const MIDDLE: usize = 11;
    pub const LAST: usize = 12;
    pub const STREET_1: usize = 13;
    pub const PHONE: usize = 18;
    pub const CREDIT: usize = 19;
    pub const DATA: usize = 20;
}

/// The columns of the history.
pub(super) mod history {
    pub const WAREHOUSE: usize = 0;
    pub const AMOUNT: usize = 6;
}

/// The columns of new orders.
pub(super) mod new_order {
    pub const WAREHOUSE: usize = 0;
    pub const DISTRICT: usize = 1;
    pub const ORDER: usize = 2;
}

/// The columns of orders.
pub(super) mod order {
    pub const WAREHOUSE: usize = 0;
    pub const DISTRICT: usize = 1;
    pub const ID: usize = 2;
    pub const CUSTOMER: usize = 3;
    pub const ENTRY_DATE: usize = 4;
    pub const CARRIER: usize = 5;
    pub const LINES: usize = 6;
}

/// The columns of order lines.
pub(super) mod order_line {
    pub const WAREHOUSE: usize = 0;
    pub const DISTRICT: usize = 1;
    pub const ITEM: usize = 4;
    pub const SUPPLY_WAREHOUSE: usize = 5;
    pub const DELIVERY_DATE: usize = 6;
    pub const QUANTITY: usize = 7;
    pub const AMOUNT: usize = 8;
}

/// The columns of items.
pub(super) mod item {
    pub const PRICE: usize = 2;
    pub const NAME: usize = 3;
    pub const DATA: usize = 4;
}

/// The columns of stocks.
pub(super) mod stock {
    pub const QUANTITY: usize = 2;
    pub const YTD: usize = 3;
    pub const ORDER_CNT: usize = 4;
    pub const REMOTE_CNT: usize = 5;
    /// That of the first district; those of the others follow.
    pub const DISTRICT_1: usize = 6;
    pub const DATA: usize = 16;
}

/// The one secondary index of customers: by last name.
pub(super) const BY_LAST_NAME: WhichIndex = WhichIndex::Secondary(0);
/// The one secondary index of orders: by customer.
pub(super) const BY_CUSTOMER: WhichIndex = WhichIndex::Secondary(0);

fn int2(name: &str) -> Column {
    Column::new(name, ColumnType::Int2)
}

fn int4(name: &str) -> Column {
    Column::new(name, ColumnType::Int4)
}

fn int8(name: &str) -> Column {
    Column::new(name, ColumnType::Int8)
}

fn text(name: &str) -> Column {
    Column::new(name, ColumnType::Text)
}

fn char(name: &str, length: u16) -> Column {
    Column::new(name, ColumnType::Char(length))
}

fn time(name: &str) -> Column {
    Column::new(name, ColumnType::Timestamp)
}

/// Two streets, city, state and zip.
fn address(of: &str) -> [Column; 5] {
    let name = |part| format!("{of}_{part}");
    [
        text(&name("street_1")),
        text(&name("street_2")),
        text(&name("city")),
        char(&name("state"), 2),
        char(&name("zip"), 9),
    ]
}

/// The open tables.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub warehouse: Table,
    pub district: Table,
    pub customer: Table,
    pub history: Table,
    pub new_order: Table,
    pub orders: Table,
    pub order_line: Table,
    pub item: Table,
    pub stock: Table,
}

impl Tables {
    /// In the order of their [definitions](definitions).
    pub fn new(tables: [Table; 9]) -> Tables {
        let [warehouse, district, customer, new_order, orders, order_line, item, stock, history] = tables;
        Tables { warehouse, district, customer, history, new_order, orders, order_line, item, stock }
    }
}

/// The secondary indexes: customers by last name, in the order of their first names, and orders by customer.
pub(super) fn indexes() -> [IndexOf; 2] {
    let of = |table, name, columns| IndexOf { table, name, columns, is_unique: false };
    [
        of("customer", "customer_by_last_name", &["c_w_id", "c_d_id", "c_last", "c_first"]),
        // Those of one customer come in the order of the primary key: the last is the newest.
        of("orders", "orders_by_customer", &["o_w_id", "o_d_id", "o_c_id"]),
    ]
}

/// What the tables are, in the order of [`Tables::new`].
pub(super) fn definitions() -> [TableDef; 9] {
    let mut warehouse = vec![int2("w_id"), int4("w_tax"), int8("w_ytd"), text("w_name")];
    warehouse.extend(address("w"));
    let mut district =
        vec![int2("d_w_id"), int2("d_id"), int4("d_tax"), int4("d_next_o_id"), int8("d_ytd"), text("d_name")];
    district.extend(address("d"));
    let mut customer = vec![
        int2("c_w_id"),
        int2("c_d_id"),
        int4("c_id"),
        int4("c_payment_cnt"),
        int4("c_delivery_cnt"),
        int8("c_balance"),
        int8("c_ytd_payment"),
        int8("c_credit_lim"),
        int4("c_discount"),
        time("c_since"),
        text("c_first"),
        char("c_middle", 2),
        text("c_last"),
    ];
    customer.extend(address("c"));
    customer.extend([char("c_phone", 16), char("c_credit", 2), text("c_data")]);
    let mut stock = vec![
        int2("s_w_id"),
        int4("s_i_id"),
        int4("s_quantity"),
        int4("s_ytd"),
        int4("s_order_cnt"),
        int4("s_remote_cnt"),
    ];
    stock.extend((1..=DISTRICTS).map(|district| char(&format!("s_dist_{district:02}"), 24)));
    stock.push(text("s_data"));
    let orders = vec![
        int2("o_w_id"),
        int2("o_d_id"),
        int4("o_id"),
        int4("o_c_id"),
        time("o_entry_d"),
        Column::nullable("o_carrier_id", ColumnType::Int2),
        int2("o_ol_cnt"),
        int2("o_all_local"),
    ];
    let order_line = vec![
        int2("ol_w_id"),
        int2("ol_d_id"),
        int4("ol_o_id"),
        int2("ol_number"),
        int4("ol_i_id"),
        int2("ol_supply_w_id"),
        Column::nullable("ol_delivery_d", ColumnType::Timestamp),
        int2("ol_quantity"),
        int4("ol_amount"),
        char("ol_dist_info", 24),
    ];
    let item = vec![int4("i_id"), int4("i_im_id"), int4("i_price"), text("i_name"), text("i_data")];
    let new_order = vec![int2("no_w_id"), int2("no_d_id"), int4("no_o_id")];
    let history = vec![
        int2("h_w_id"),
        int2("h_d_id"),
        int2("h_c_w_id"),
        int2("h_c_d_id"),
        int4("h_c_id"),
        time("h_date"),
        int4("h_amount"),
        text("h_data"),
    ];
    let keyed =
        |name: &str, columns: Vec<Column>, key: &[&str]| TableDef::new(name, columns).with_primary_key(key);
    [
        keyed("warehouse", warehouse, &["w_id"]),
        keyed("district", district, &["d_w_id", "d_id"]),
        keyed("customer", customer, &["c_w_id", "c_d_id", "c_id"]),
        keyed("new_order", new_order, &["no_w_id", "no_d_id", "no_o_id"]),
        keyed("orders", orders, &["o_w_id", "o_d_id", "o_id"]),
        keyed("order_line", order_line, &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number"]),
        keyed("item", item, &["i_id"]),
        keyed("stock", stock, &["s_w_id", "s_i_id"]),
        TableDef::new("history", history),
    ]
}

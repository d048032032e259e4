//! The four sets: their records, how they are created and loaded, and how existing ones are recognised.
//!
//! | set | record | bytes with the header of 16 |
//! |---|---|---|
//! | accounts | number, credit limit, used credit, what was paid, expiration, purchases, whether reported lost | 52 |
//! | customers | account, changes of address, misuses, name, social security number, address | 200 |
//! | hot_cards | account, attempted uses, day of the report, note | 80 |
//! | stores | number, what was sold, checks, limit checks, sales, declined, uses of hot cards, name | 80 |
//!
//! Amounts are cents. Texts are filled up with blanks, so that every record has its set's size.

use std::fmt;

use rialto::row::{Column, ColumnType, Date, Value};
use rialto::{Result, Table, TableDef};

use super::request::pad;
use crate::data::{Data, Loader};

/// The sizes of the sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// 1 is the paper's sizes.
    pub scale: u32,
    /// Accounts, and customers.
    pub accounts: u32,
}

/// The paper's sizes.
pub const ACCOUNTS: u32 = 40_000;
const STORES: u32 = 5_000;
const HOT_CARDS: u32 = 100;
/// Of the cards that get lost every other one is lost at first.
const CARELESS_PER_HOT_CARD: u32 = 2;

impl Shape {
    /// The paper's, so many times.
    pub fn of_scale(scale: u32) -> Shape {
        Shape { scale, accounts: ACCOUNTS * scale }
    }

    /// Stores.
    pub fn stores(&self) -> u32 {
        STORES * self.scale
    }

    /// Hot cards that are loaded.
    pub fn hot_cards(&self) -> u32 {
        HOT_CARDS * self.scale
    }

    /// Cards that are lost and found when requests are drawn: about half of them are hot at any time.
    pub fn careless_count(&self) -> u32 {
        self.hot_cards() * CARELESS_PER_HOT_CARD
    }

    /// The account of one of them.
    #[inline]
    pub fn careless(&self, position: u32) -> i32 {
        (u64::from(position) * u64::from(self.accounts) / u64::from(self.careless_count())) as i32
    }

    /// The fewest accounts at this scale: one for each card that gets lost.
    pub fn accounts_min(scale: u32) -> u32 {
        HOT_CARDS * CARELESS_PER_HOT_CARD * scale
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { accounts, .. } = self;
        write!(f, "{accounts} accounts, {accounts} customers, {} stores", self.stores())
    }
}

/// The columns of accounts.
pub(super) mod account {
    pub const LIMIT: usize = 1;
    pub const USED: usize = 2;
    pub const PAID: usize = 3;
    pub const EXPIRES: usize = 4;
    pub const PURCHASES: usize = 5;
    pub const LOST: usize = 6;
}

/// The columns of customers.
pub(super) mod customer {
    pub const MOVES: usize = 1;
    pub const MISUSES: usize = 2;
    pub const NAME: usize = 3;
    pub const ADDRESS: usize = 5;
}

/// The columns of hot cards.
pub(super) mod hot_card {
    pub const ATTEMPTS: usize = 1;
}

/// The columns of stores.
pub(super) mod store {
    pub const SOLD: usize = 1;
    pub const CHECKS: usize = 2;
    pub const LIMIT_CHECKS: usize = 3;
    pub const SALES: usize = 4;
    pub const DECLINED: usize = 5;
    pub const HOT_USES: usize = 6;
}

const NAME_BYTES: usize = 40;
const SSN_BYTES: usize = 11;
/// The bytes of an address.
pub const ADDRESS_BYTES: usize = 115;
const NOTE_BYTES: usize = 50;
const STORE_NAME_BYTES: usize = 30;
/// The day on which the cards that are loaded as hot were reported.
const LOADED_ON: Date = Date(49 * 365);
/// How many accounts are loaded between two words of progress.
const PROGRESS_ROWS: u32 = 250_000;

/// The used credit that an account is loaded with, in cents.
pub(super) fn opening_cents(account: u32) -> i64 {
    i64::from(account % 1_000) * 100
}

fn text(mut text: String, bytes: usize) -> Value {
    pad(&mut text, bytes);
    Value::Text(text)
}

fn account_row(account: u32, is_lost: bool) -> [Value; 7] {
    // From 5,000 to 14,000 in whole thousands.
    let limit_cents = (5_000 + account as i32 % 10 * 1_000) * 100;
    [
        Value::Int4(account as i32),
        Value::Int4(limit_cents),
        Value::Int8(opening_cents(account)),
        Value::Int8(0),
        // From the year 2030 on, spread over five years.
        Value::Date(60 * 365 + (account % 1_825) as i32),
        Value::Int4(0),
        Value::Int4(i32::from(is_lost)),
    ]
}

fn customer_row(account: u32) -> [Value; 6] {
    let ssn =
        format!("{:03}-{:02}-{:04}", account / 1_000_000 % 1_000, account / 10_000 % 100, account % 10_000);
    [
        Value::Int4(account as i32),
        Value::Int4(0),
        Value::Int4(0),
        text(format!("Customer {account}"), NAME_BYTES),
        text(ssn, SSN_BYTES),
        text(format!("{} First Street, Town {}", account % 1_000 + 1, account / 1_000), ADDRESS_BYTES),
    ]
}

/// The row of a hot card.
pub(super) fn hot_card_row(account: i32, reported: Date) -> [Value; 4] {
    [
        Value::Int4(account),
        Value::Int4(0),
        Value::Date(reported.0),
        text("reported lost".to_owned(), NOTE_BYTES),
    ]
}

fn store_row(store: u32) -> [Value; 8] {
    let zero = || Value::Int4(0);
    let name = text(format!("Store {store}"), STORE_NAME_BYTES);
    [Value::Int4(store as i32), Value::Int8(0), zero(), zero(), zero(), zero(), zero(), name]
}

/// The open tables.
#[derive(Debug, Clone)]
pub(super) struct Sets {
    pub accounts: Table,
    pub customers: Table,
    pub hot_cards: Table,
    pub stores: Table,
}

impl Data<4, 2> for Shape {
    const NAME: &'static str = "a card portfolio";
    const TABLE: &'static str = "card";
    const KIND: &'static str = "card";
    const SIZES: [&'static str; 2] = ["scale", "accounts"];

    fn of_sizes([scale, accounts]: [u32; 2]) -> Shape {
        Shape { scale, accounts }
    }

    fn sizes(&self) -> [u32; 2] {
        [self.scale, self.accounts]
    }

    fn tables() -> [TableDef; 4] {
        let int4 = |name| Column::new(name, ColumnType::Int4);
        let int8 = |name| Column::new(name, ColumnType::Int8);
        let date = |name| Column::new(name, ColumnType::Date);
        let text = |name| Column::new(name, ColumnType::Text);
        let account = vec![
            int4("account"),
            int4("credit_limit"),
            int8("used"),
            int8("paid"),
            date("expires"),
            int4("purchases"),
            int4("lost"),
        ];
        let customer =
            vec![int4("account"), int4("moves"), int4("misuses"), text("name"), text("ssn"), text("address")];
        let hot_card = vec![int4("account"), int4("attempts"), date("reported"), text("note")];
        let store = vec![
            int4("store"),
            int8("sold"),
            int4("checks"),
            int4("limit_checks"),
            int4("sales"),
            int4("declined"),
            int4("hot_uses"),
            text("name"),
        ];
        [
            TableDef::new("accounts", account).with_primary_key(&["account"]),
            TableDef::new("customers", customer).with_primary_key(&["account"]),
            TableDef::new("hot_cards", hot_card).with_primary_key(&["account"]),
            TableDef::new("stores", store).with_primary_key(&["store"]),
        ]
    }

    fn fill(
        &self,
        loader: &mut Loader<'_>,
        [accounts, customers, hot_cards, stores]: &[Table; 4],
    ) -> Result<()> {
        let mut lost = LostAtFirst::new(*self);
        for account in 0..self.accounts {
            loader.insert(accounts, &account_row(account, lost.is(account)))?;
            loader.insert(customers, &customer_row(account))?;
            if (account + 1) % PROGRESS_ROWS == 0 {
                loader.tell(&format!("{} of {} accounts and customers loaded", account + 1, self.accounts));
            }
        }
        for position in 0..self.hot_cards() {
            let account = self.careless(position * CARELESS_PER_HOT_CARD);
            loader.insert(hot_cards, &hot_card_row(account, LOADED_ON))?;
        }
        for store in 0..self.stores() {
            loader.insert(stores, &store_row(store))?;
        }
        Ok(())
    }
}

/// Tells, for accounts in order, which are loaded as lost.
struct LostAtFirst {
    shape: Shape,
    next: u32,
}

impl LostAtFirst {
    fn new(shape: Shape) -> LostAtFirst {
        LostAtFirst { shape, next: 0 }
    }

    fn is(&mut self, account: u32) -> bool {
        let is_lost = self.next < self.shape.hot_cards()
            && self.shape.careless(self.next * CARELESS_PER_HOT_CARD) == account as i32;
        self.next += u32::from(is_lost);
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use rialto::row::{Schema, encode};

    use super::super::request::TODAY;
    use super::*;

    /// What the system adds to a record.
    const HEADER_BYTES: usize = 16;

    #[test]
    fn records_have_the_papers_sizes() {
        let bytes = |table: usize, values: &[Value]| {
            let schema = Schema::new("t", Shape::tables()[table].columns.clone(), None, vec![]).unwrap();
            let mut row = Vec::new();
            encode(&schema, values, &mut row).unwrap();
            row.len() + HEADER_BYTES
        };
        for number in [0, 7, 39_999, 1_999_999_999] {
            assert_eq!(bytes(0, &account_row(number, true)), 52);
            assert_eq!(bytes(1, &customer_row(number)), 200);
            assert_eq!(bytes(2, &hot_card_row(number as i32, TODAY)), 80);
            assert_eq!(bytes(3, &store_row(number)), 80);
        }
    }

    #[test]
    fn scale_1_is_the_paper() {
        let shape = Shape::of_scale(1);
        assert_eq!((shape.accounts, shape.stores(), shape.hot_cards()), (40_000, 5_000, 100));
        assert_eq!(shape.to_string(), "40000 accounts, 40000 customers, 5000 stores");
    }

    #[test]
    fn cards_that_get_lost_are_different_ones_spread_over_all() {
        for shape in
            [Shape::of_scale(1), Shape { scale: 2, accounts: 400 }, Shape { scale: 1, accounts: 777 }]
        {
            let cards: Vec<i32> =
                (0..shape.careless_count()).map(|position| shape.careless(position)).collect();
            assert!(cards.windows(2).all(|pair| pair[0] < pair[1]), "{shape}");
            assert!(cards.iter().all(|&card| (card as u32) < shape.accounts), "{shape}");
            let mut lost = LostAtFirst::new(shape);
            let marked = (0..shape.accounts).filter(|&account| lost.is(account)).count();
            assert_eq!(marked as u32, shape.hot_cards(), "{shape}");
        }
    }
}

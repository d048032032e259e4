//! The steps of the eight transactions, each on one table, and their order.
//!
//! A transaction uses its request and what its earlier steps have found, and nothing else: no clock, no random number.
//! So it can be run again from its arguments, and its steps are the actions of its [flow](super::flows).
//!
//! The order of tables is the same in all transactions: accounts, hot cards, stores, customers. So no two of them can
//! deadlock. Whether a card is hot is also a column of its account, so a transaction that has locked the account need
//! not read the hot cards.

use rialto::row::{Date, RowView, Value};
use rialto::{Error, Result, Table, Transaction};

use super::request::{Request, Response, pad};
use super::tables::{ADDRESS_BYTES, Sets, account, customer, hot_card, hot_card_row, store};

/// What an account says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub limit_cents: i64,
    pub used_cents: i64,
    pub expires: Date,
    pub is_lost: bool,
}

/// What a store counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtStore {
    /// A check of a card.
    Check { is_lost: bool },
    /// A check of its limit.
    LimitCheck { is_lost: bool },
    /// A purchase.
    Sale { cents: i64 },
    /// A purchase that was not made.
    Declined,
}

#[cold]
fn missing(what: &str, number: i32) -> Error {
    Error::aborted(format!("there is no {what} {number}"))
}

/// The most that a purchase or a payment may be, in cents.
const CENTS_MAX: i64 = 100_000_000_000;

/// Refuses what is no amount: the caller of the procedures may have made a mistake.
#[inline]
fn check_amount(cents: i64) -> Result<()> {
    if (1..=CENTS_MAX).contains(&cents) { Ok(()) } else { Err(no_amount(cents)) }
}

#[cold]
fn no_amount(cents: i64) -> Error {
    Error::aborted(format!("{cents} cents are no amount, expected 1 to {CENTS_MAX}"))
}

/// Accounts: reads one.
#[inline(always)]
pub(super) fn read_account(transaction: &mut Transaction, accounts: &Table, number: i32) -> Result<Account> {
    let read = |row: RowView<'_>| -> Result<Account> {
        Ok(Account {
            limit_cents: i64::from(row.get_i32(account::LIMIT)?),
            used_cents: row.get_i64(account::USED)?,
            expires: row.get_date(account::EXPIRES)?,
            is_lost: row.get_i32(account::LOST)? != 0,
        })
    };
    transaction.look(accounts, number, read)?.ok_or_else(|| missing("account", number))?
}

/// Accounts: makes a purchase, if the card is not lost and its credit suffices. What is left of it then.
#[inline]
pub(super) fn buy(
    transaction: &mut Transaction,
    accounts: &Table,
    number: i32,
    cents: i64,
) -> Result<Option<i64>> {
    check_amount(cents)?;
    let mut left_cents = None;
    let found = transaction.modify(accounts, number, |fields| {
        let left = i64::from(fields.get_i32(account::LIMIT)?) - fields.get_i64(account::USED)? - cents;
        left_cents = (left >= 0 && fields.get_i32(account::LOST)? == 0).then_some(left);
        if left_cents.is_some() {
            fields.add_i64(account::USED, cents)?;
            fields.add_i32(account::PURCHASES, 1)?;
        }
        Ok(())
    })?;
    if found { Ok(left_cents) } else { Err(missing("account", number)) }
}

/// Accounts: takes a payment. The used credit then.
#[inline]
pub(super) fn pay(transaction: &mut Transaction, accounts: &Table, number: i32, cents: i64) -> Result<i64> {
    check_amount(cents)?;
    let mut used_cents = 0;
    let found = transaction.modify(accounts, number, |fields| {
        used_cents = fields.add_i64(account::USED, -cents)?;
        fields.add_i64(account::PAID, cents).map(drop)
    })?;
    if found { Ok(used_cents) } else { Err(missing("account", number)) }
}

/// Accounts: marks one as lost, or takes the mark away. False if it was so already.
#[inline]
pub(super) fn mark(
    transaction: &mut Transaction,
    accounts: &Table,
    number: i32,
    is_lost: bool,
) -> Result<bool> {
    let (mark, mut changed) = (i32::from(is_lost), false);
    let found = transaction.modify(accounts, number, |fields| {
        changed = fields.get_i32(account::LOST)? != mark;
        if changed { fields.set_i32(account::LOST, mark) } else { Ok(()) }
    })?;
    if found { Ok(changed) } else { Err(missing("account", number)) }
}

/// Hot cards: counts an attempted use. How many there are then.
#[inline]
pub(super) fn attempt(transaction: &mut Transaction, hot_cards: &Table, number: i32) -> Result<i32> {
    let mut attempts = 0;
    let found = transaction.modify(hot_cards, number, |fields| {
        attempts = fields.add_i32(hot_card::ATTEMPTS, 1)?;
        Ok(())
    })?;
    if found { Ok(attempts) } else { Err(missing("hot card", number)) }
}

/// Hot cards: puts one on the list.
#[inline]
pub(super) fn report(
    transaction: &mut Transaction,
    hot_cards: &Table,
    number: i32,
    today: Date,
) -> Result<()> {
    transaction.insert(hot_cards, &hot_card_row(number, today))
}

/// Hot cards: takes one off the list. How often its use was attempted.
#[inline]
pub(super) fn recover(transaction: &mut Transaction, hot_cards: &Table, number: i32) -> Result<i32> {
    let mut attempts = 0;
    // Locks it as the delete will.
    transaction.modify(hot_cards, number, |fields| {
        attempts = fields.get_i32(hot_card::ATTEMPTS)?;
        Ok(())
    })?;
    if transaction.delete(hot_cards, number)? { Ok(attempts) } else { Err(missing("hot card", number)) }
}

/// Stores: counts.
#[inline]
pub(super) fn count_at_store(
    transaction: &mut Transaction,
    stores: &Table,
    number: i32,
    what: AtStore,
) -> Result<()> {
    let found = transaction.modify(stores, number, |fields| {
        let (column, is_lost) = match what {
            AtStore::Check { is_lost } => (store::CHECKS, is_lost),
            AtStore::LimitCheck { is_lost } => (store::LIMIT_CHECKS, is_lost),
            AtStore::Sale { cents } => {
                fields.add_i64(store::SOLD, cents)?;
                (store::SALES, false)
            }
            AtStore::Declined => (store::DECLINED, false),
        };
        if is_lost {
            fields.add_i32(store::HOT_USES, 1)?;
        }
        fields.add_i32(column, 1).map(drop)
    })?;
    if found { Ok(()) } else { Err(missing("store", number)) }
}

/// Customers: copies the name of one to `name`.
#[inline]
pub(super) fn read_name(
    transaction: &mut Transaction,
    customers: &Table,
    number: i32,
    name: &mut String,
) -> Result<()> {
    name.clear();
    let found = transaction
        .look(customers, number, |row| row.get_str(customer::NAME).map(|text| name.push_str(text)))?;
    found.ok_or_else(|| missing("customer", number))?
}

/// Customers: changes the address of one.
#[inline]
pub(super) fn change_address(
    transaction: &mut Transaction,
    customers: &Table,
    number: i32,
    address: &str,
) -> Result<()> {
    let found = transaction.modify(customers, number, |fields| {
        fields.add_i32(customer::MOVES, 1)?;
        let mut text = String::with_capacity(ADDRESS_BYTES);
        text.push_str(address);
        pad(&mut text, ADDRESS_BYTES);
        fields.set(customer::ADDRESS, &Value::Text(text))
    })?;
    if found { Ok(()) } else { Err(missing("customer", number)) }
}

/// Customers: keeps how often the use of a card was attempted that was lost and is found.
#[inline]
pub(super) fn keep_misuses(
    transaction: &mut Transaction,
    customers: &Table,
    number: i32,
    attempts: i32,
) -> Result<()> {
    let found = transaction
        .modify(customers, number, |fields| fields.add_i32(customer::MISUSES, attempts).map(drop))?;
    if found { Ok(()) } else { Err(missing("customer", number)) }
}

/// What is said of a card that is not hot.
pub(super) fn validity(account: Account, today: Date) -> Response {
    if account.expires < today { Response::Expired } else { Response::Valid }
}

/// What is said of its credit.
pub(super) fn credit(account: Account, cents: i64) -> Response {
    let left = account.limit_cents - account.used_cents;
    match left >= cents {
        true => Response::Enough { left_cents: left.saturating_sub(cents) },
        false => Response::NotEnough { left_cents: left },
    }
}

impl Sets {
    /// Runs the transaction that a request is for. The name of a customer that it reads goes to `name`.
    ///
    /// # Errors
    /// [`Error::Aborted`] for an account or store that there is not; what operations can meet.
    #[inline]
    pub fn run(
        &self,
        transaction: &mut Transaction,
        request: &Request<'_>,
        name: &mut String,
    ) -> Result<Response> {
        let Sets { accounts, customers, hot_cards, stores } = self;
        match *request {
            Request::Balance { account } => {
                let Account { used_cents, limit_cents, .. } = read_account(transaction, accounts, account)?;
                read_name(transaction, customers, account, name)?;
                Ok(Response::Balance { used_cents, limit_cents })
            }
            Request::CardCheck { account, store, today } => {
                let found = read_account(transaction, accounts, account)?;
                let is_lost = found.is_lost;
                let response = match is_lost {
                    true => Response::Hot { attempts: attempt(transaction, hot_cards, account)? },
                    false => validity(found, today),
                };
                count_at_store(transaction, stores, store, AtStore::Check { is_lost })?;
                Ok(response)
            }
            Request::LimitCheck { account, store, cents } => {
                let found = read_account(transaction, accounts, account)?;
                let is_lost = found.is_lost;
                let response = match is_lost {
                    true => Response::Hot { attempts: attempt(transaction, hot_cards, account)? },
                    false => credit(found, cents),
                };
                count_at_store(transaction, stores, store, AtStore::LimitCheck { is_lost })?;
                Ok(response)
            }
            Request::Debit { account, store, cents } => match buy(transaction, accounts, account, cents)? {
                Some(left_cents) => {
                    count_at_store(transaction, stores, store, AtStore::Sale { cents })?;
                    Ok(Response::Bought { left_cents })
                }
                None => {
                    count_at_store(transaction, stores, store, AtStore::Declined)?;
                    Ok(Response::Declined)
                }
            },
            Request::Payment { account, cents } => {
                Ok(Response::Paid { used_cents: pay(transaction, accounts, account, cents)? })
            }
            Request::Move { account, address } => {
                change_address(transaction, customers, account, address)?;
                Ok(Response::Moved)
            }
            Request::Lost { account, today } => {
                if !mark(transaction, accounts, account, true)? {
                    return Ok(Response::ReportedBefore);
                }
                report(transaction, hot_cards, account, today)?;
                Ok(Response::Reported)
            }
            Request::Found { account } => {
                if !mark(transaction, accounts, account, false)? {
                    return Ok(Response::NotReported);
                }
                let attempts = recover(transaction, hot_cards, account)?;
                if attempts > 0 {
                    keep_misuses(transaction, customers, account, attempts)?;
                }
                Ok(Response::Recovered { attempts })
            }
        }
    }
}

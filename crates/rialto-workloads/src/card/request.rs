//! Requests, with their arguments, and responses.

use std::fmt;
use std::str::FromStr;

use rialto::io::Random;
use rialto::row::Date;

use super::tables::{ADDRESS_BYTES, Shape};
use crate::mix::Names;

/// The name of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Balance check: the customer's name, the used credit and the limit of an account.
    Bal,
    /// Credit card check: whether an account is valid; counted at the store, and with the hot card if it is one.
    Ccck,
    /// Credit limit check: whether there is credit for a purchase; counted as the check of a card is.
    Clck,
    /// Account debit: a purchase, in the account and at the store.
    Debit,
    /// Payment on an account.
    Pay,
    /// Change of a customer's address.
    Move,
    /// Report of a lost card: it becomes a hot card.
    Lost,
    /// A hot card that was found again: it is one no more.
    Found,
}

impl Name {
    /// How many there are.
    pub const COUNT: usize = 8;
    /// All: the five of the paper, and ours.
    pub const ALL: [Name; Name::COUNT] =
        [Name::Bal, Name::Ccck, Name::Clck, Name::Debit, Name::Pay, Name::Move, Name::Lost, Name::Found];
    /// Their names, in this order.
    pub const NAMES: [&str; Name::COUNT] = ["BAL", "CCCK", "CLCK", "DEBIT", "PAY", "MOVE", "LOST", "FOUND"];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        Name::NAMES[self as usize]
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Names for Name {
    const ALL: &'static [Name] = &Name::ALL;
    /// The paper's five, and a hundredth for each of the three that it does not number.
    const PERCENT: &'static [u32] = &[17, 20, 20, 20, 20, 1, 1, 1];

    #[inline]
    fn position(self) -> usize {
        self as usize
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        Name::named(text)
    }
}

/// A transaction's arguments: all that it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// [`Name::Bal`].
    Balance {
        /// The account's number.
        account: i32,
    },
    /// [`Name::Ccck`].
    CardCheck {
        /// The account's number.
        account: i32,
        /// The store's.
        store: i32,
        /// The day of the check: later than the account's expiration it is not valid.
        today: Date,
    },
    /// [`Name::Clck`].
    LimitCheck {
        /// The account's number.
        account: i32,
        /// The store's.
        store: i32,
        /// The price of the purchase, in cents.
        cents: i64,
    },
    /// [`Name::Debit`].
    Debit {
        /// The account's number.
        account: i32,
        /// The store's.
        store: i32,
        /// The price of the purchase, in cents.
        cents: i64,
    },
    /// [`Name::Pay`].
    Payment {
        /// The account's number.
        account: i32,
        /// What is paid, in cents.
        cents: i64,
    },
    /// [`Name::Move`].
    Move {
        /// The customer's account.
        account: i32,
        /// The new address, at most [`ADDRESS_BYTES`](super::ADDRESS_BYTES).
        address: &'a str,
    },
    /// [`Name::Lost`].
    Lost {
        /// The card's account.
        account: i32,
        /// The day of the report.
        today: Date,
    },
    /// [`Name::Found`].
    Found {
        /// The card's account.
        account: i32,
    },
}

/// The largest purchase and payment of those that are drawn, in cents.
const CENTS_MAX: u64 = 10_000;
/// The day on which drawn requests are made: no account has expired by then, and no clock is asked.
pub const TODAY: Date = Date(50 * 365);

impl<'a> Request<'a> {
    /// The transaction that it is a request for.
    #[inline]
    pub fn name(&self) -> Name {
        match self {
            Request::Balance { .. } => Name::Bal,
            Request::CardCheck { .. } => Name::Ccck,
            Request::LimitCheck { .. } => Name::Clck,
            Request::Debit { .. } => Name::Debit,
            Request::Payment { .. } => Name::Pay,
            Request::Move { .. } => Name::Move,
            Request::Lost { .. } => Name::Lost,
            Request::Found { .. } => Name::Found,
        }
    }

    /// The same request without the address that it may name: what is left to know when it is answered.
    pub(super) fn without_text(self) -> Request<'static> {
        match self {
            Request::Balance { account } => Request::Balance { account },
            Request::CardCheck { account, store, today } => Request::CardCheck { account, store, today },
            Request::LimitCheck { account, store, cents } => Request::LimitCheck { account, store, cents },
            Request::Debit { account, store, cents } => Request::Debit { account, store, cents },
            Request::Payment { account, cents } => Request::Payment { account, cents },
            Request::Move { account, .. } => Request::Move { account, address: "" },
            Request::Lost { account, today } => Request::Lost { account, today },
            Request::Found { account } => Request::Found { account },
        }
    }

    /// The number of its account.
    pub fn account(&self) -> i32 {
        match *self {
            Request::Balance { account }
            | Request::CardCheck { account, .. }
            | Request::LimitCheck { account, .. }
            | Request::Debit { account, .. }
            | Request::Payment { account, .. }
            | Request::Move { account, .. }
            | Request::Lost { account, .. }
            | Request::Found { account } => account,
        }
    }

    /// A request for this transaction, at random: accounts and stores each as likely, lost and found cards among those
    /// that get lost ([`Shape::careless`]). `address` is memory for one.
    #[inline]
    pub fn draw(name: Name, shape: &Shape, random: &mut Random, address: &'a mut String) -> Request<'a> {
        let account = |random: &mut Random| random.below(u64::from(shape.accounts)) as i32;
        let store = |random: &mut Random| random.below(u64::from(shape.stores())) as i32;
        let cents = |random: &mut Random| random.below(CENTS_MAX) as i64 + 1;
        let careless =
            |random: &mut Random| shape.careless(random.below(u64::from(shape.careless_count())) as u32);
        match name {
            Name::Bal => Request::Balance { account: account(random) },
            Name::Ccck => Request::CardCheck { account: account(random), store: store(random), today: TODAY },
            Name::Clck => {
                Request::LimitCheck { account: account(random), store: store(random), cents: cents(random) }
            }
            Name::Debit => {
                Request::Debit { account: account(random), store: store(random), cents: cents(random) }
            }
            Name::Pay => Request::Payment { account: account(random), cents: cents(random) },
            Name::Move => {
                let account = account(random);
                write_address(random, address);
                Request::Move { account, address }
            }
            Name::Lost => Request::Lost { account: careless(random), today: TODAY },
            Name::Found => Request::Found { account: careless(random) },
        }
    }
}

fn write_address(random: &mut Random, address: &mut String) {
    use fmt::Write as _;
    address.clear();
    let (house, street, town) =
        (random.below(9_999) + 1, random.below(900) + 100, random.below(90_000) + 10_000);
    write!(address, "{house} Street {street}, Town {town}").expect("a string takes everything");
}

/// Fills a text up with blanks, so that records keep their size.
pub(super) fn pad(text: &mut String, bytes: usize) {
    const BLANKS: &str = match str::from_utf8(&[b' '; ADDRESS_BYTES]) {
        Ok(blanks) => blanks,
        Err(_) => unreachable!(),
    };
    text.push_str(&BLANKS[..bytes.saturating_sub(text.len())]);
}

/// What a transaction says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// The account's used credit and limit, in cents; the customer's name is beside it.
    Balance {
        /// Used credit.
        used_cents: i64,
        /// The limit.
        limit_cents: i64,
    },
    /// The account is valid.
    Valid,
    /// The account has expired.
    Expired,
    /// The card is on the list of hot cards.
    Hot {
        /// How often its use was attempted since it was reported.
        attempts: i32,
    },
    /// There is credit for the purchase.
    Enough {
        /// What would be left of it, in cents.
        left_cents: i64,
    },
    /// There is not.
    NotEnough {
        /// What is left, in cents.
        left_cents: i64,
    },
    /// The purchase is made.
    Bought {
        /// What is left of the credit, in cents.
        left_cents: i64,
    },
    /// The purchase is not made: the card is hot, or its credit does not suffice.
    Declined,
    /// The payment is made.
    Paid {
        /// The used credit, in cents.
        used_cents: i64,
    },
    /// The address is changed.
    Moved,
    /// The card is on the list of hot cards now.
    Reported,
    /// It was already.
    ReportedBefore,
    /// The card is off the list.
    Recovered {
        /// How often its use was attempted meanwhile.
        attempts: i32,
    },
    /// It was not on the list.
    NotReported,
}

/// Cents as people write them.
pub(super) struct Cents(pub i64);

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:02}", self.0.unsigned_abs() / 100, self.0.unsigned_abs() % 100)
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Response::Balance { used_cents, limit_cents } => {
                write!(f, "used credit {} of {}", Cents(used_cents), Cents(limit_cents))
            }
            Response::Valid => f.write_str("the account is valid"),
            Response::Expired => f.write_str("the account has expired"),
            Response::Hot { attempts } => {
                write!(f, "the card is reported lost; attempted uses since then: {attempts}")
            }
            Response::Enough { left_cents } => {
                write!(f, "there is enough credit; {} would be left", Cents(left_cents))
            }
            Response::NotEnough { left_cents } => {
                write!(f, "there is not enough credit; {} is left", Cents(left_cents))
            }
            Response::Bought { left_cents } => {
                write!(f, "bought; {} of the credit is left", Cents(left_cents))
            }
            Response::Declined => {
                f.write_str("declined: the card is reported lost, or its credit does not suffice")
            }
            Response::Paid { used_cents } => write!(f, "paid; used credit {}", Cents(used_cents)),
            Response::Moved => f.write_str("the address is changed"),
            Response::Reported => f.write_str("the card is on the list of hot cards"),
            Response::ReportedBefore => f.write_str("the card was on the list of hot cards already"),
            Response::Recovered { attempts } => {
                write!(f, "the card is off the list of hot cards; attempted uses meanwhile: {attempts}")
            }
            Response::NotReported => f.write_str("the card was not on the list of hot cards"),
        }
    }
}

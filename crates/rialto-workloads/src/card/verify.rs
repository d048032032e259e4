//! The consistency condition, on the real tables.
//!
//! The responses to the clients are added up beside the run ([`Totals::count`]), and the tables must have changed by
//! exactly these sums. What a transaction writes to two tables must agree there, whichever client ran it:
//!
//! - the used credit of all accounts is what they were loaded with, and what the stores sold, less what was paid;
//! - the accounts have as many purchases as the stores have sales;
//! - the attempted uses of hot cards and the misuses that customers keep of former ones are those that the stores counted;
//! - the hot cards are exactly the accounts that are marked as lost.

use rialto::{Result, Scan, Transaction};

use super::request::{Request, Response};
use super::tables::{Sets, Shape, account, customer, hot_card, opening_cents, store};
use crate::verify::{self, Problems, Totals as _, each};
use crate::workload::Verdict;

/// What transactions add up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Checks of cards that stores counted.
    pub checks: i64,
    /// Checks of limits.
    pub limit_checks: i64,
    /// Uses of hot cards.
    pub hot_uses: i64,
    /// Purchases.
    pub sales: i64,
    /// What they came to, in cents.
    pub sold_cents: i64,
    /// Purchases that were not made.
    pub declined: i64,
    /// What was paid, in cents.
    pub paid_cents: i64,
    /// Changes of address.
    pub moves: i64,
    /// Hot cards.
    pub hot_cards: i64,
}

impl Totals {
    /// Adds what a client was told.
    #[inline]
    pub fn count(&mut self, request: &Request<'_>, response: &Response) {
        match (request, response) {
            (Request::CardCheck { .. }, said) => {
                self.checks += 1;
                self.hot_uses += i64::from(matches!(said, Response::Hot { .. }));
            }
            (Request::LimitCheck { .. }, said) => {
                self.limit_checks += 1;
                self.hot_uses += i64::from(matches!(said, Response::Hot { .. }));
            }
            (Request::Debit { .. }, Response::Declined) => self.declined += 1,
            (Request::Debit { cents, .. }, _) => {
                self.sales += 1;
                self.sold_cents += cents;
            }
            (Request::Payment { cents, .. }, _) => self.paid_cents += cents,
            (Request::Move { .. }, _) => self.moves += 1,
            (Request::Lost { .. }, Response::Reported) => self.hot_cards += 1,
            (Request::Found { .. }, Response::Recovered { .. }) => self.hot_cards -= 1,
            (Request::Balance { .. } | Request::Lost { .. } | Request::Found { .. }, _) => {}
        }
    }
}

impl verify::Totals<9> for Totals {
    fn each_mut(&mut self) -> [(&'static str, &mut i64); 9] {
        [
            ("checks of cards", &mut self.checks),
            ("checks of limits", &mut self.limit_checks),
            ("uses of hot cards", &mut self.hot_uses),
            ("sales", &mut self.sales),
            ("cents sold", &mut self.sold_cents),
            ("declined purchases", &mut self.declined),
            ("cents paid", &mut self.paid_cents),
            ("changes of address", &mut self.moves),
            ("hot cards", &mut self.hot_cards),
        ]
    }
}

/// What a pass over all tables found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// What the tables add up to.
    pub totals: Totals,
    /// The accounts' used credit, less what they were loaded with, in cents.
    pub used_cents: i64,
    /// The accounts' purchases.
    pub purchases: i64,
    /// Attempted uses of the cards that are hot.
    pub attempts: i64,
    /// Those of cards that were, as the customers keep them.
    pub misuses: i64,
    /// Accounts that are marked as lost.
    pub lost: Vec<i32>,
    /// Hot cards.
    pub hot: Vec<i32>,
    /// Rows of accounts, customers and stores.
    pub rows: [u64; 3],
    /// Rows that contradict themselves: money without a purchase, more uses of hot cards than checks.
    pub contradictions: u64,
}

impl Sets {
    /// Reads all tables.
    pub fn audit(&self, transaction: &mut Transaction) -> Result<Audit> {
        let mut audit = Audit::default();
        let accounts = each(transaction, &self.accounts, &Scan::all(), |row| {
            let (number, purchases) = (row.get_i32(0)?, row.get_i32(account::PURCHASES)?);
            let (used, paid) = (row.get_i64(account::USED)?, row.get_i64(account::PAID)?);
            let used = used - opening_cents(number as u32);
            audit.used_cents += used;
            audit.totals.paid_cents += paid;
            audit.purchases += i64::from(purchases);
            // Each purchase is of a cent at least.
            let bought = used + paid;
            let is_sound = bought >= i64::from(purchases) && (bought == 0) == (purchases == 0);
            audit.contradictions += u64::from(!is_sound);
            if row.get_i32(account::LOST)? != 0 {
                audit.lost.push(number);
            }
            Ok(())
        })?;
        let customers = each(transaction, &self.customers, &Scan::all(), |row| {
            audit.totals.moves += i64::from(row.get_i32(customer::MOVES)?);
            audit.misuses += i64::from(row.get_i32(customer::MISUSES)?);
            Ok(())
        })?;
        each(transaction, &self.hot_cards, &Scan::all(), |row| {
            audit.hot.push(row.get_i32(0)?);
            audit.attempts += i64::from(row.get_i32(hot_card::ATTEMPTS)?);
            Ok(())
        })?;
        audit.totals.hot_cards = audit.hot.len() as i64;
        let stores = each(transaction, &self.stores, &Scan::all(), |row| {
            let sold_cents = row.get_i64(store::SOLD)?;
            let count = |column| row.get_i32(column).map(i64::from);
            let (checks, limit_checks) = (count(store::CHECKS)?, count(store::LIMIT_CHECKS)?);
            let (sales, hot_uses) = (count(store::SALES)?, count(store::HOT_USES)?);
            let is_sound =
                sold_cents >= sales && (sold_cents == 0) == (sales == 0) && hot_uses <= checks + limit_checks;
            audit.contradictions += u64::from(!is_sound);
            let declined = count(store::DECLINED)?;
            let one =
                Totals { checks, limit_checks, hot_uses, sales, sold_cents, declined, ..Totals::default() };
            audit.totals.add(&one);
            Ok(())
        })?;
        audit.rows = [accounts, customers, stores];
        Ok(audit)
    }
}

impl Audit {
    /// Judges what was found; `before` is what was there before the clients were told what `done` adds up to.
    pub fn judge(&self, shape: Shape, before: &Totals, done: &Totals) -> Verdict {
        let mut problems = Problems::default();
        let totals = &self.totals;
        problems.equal(
            "used credit, in cents more than at first",
            self.used_cents,
            totals.sold_cents - totals.paid_cents,
        );
        problems.equal("purchases of accounts, by the sales of stores", self.purchases, totals.sales);
        problems.equal(
            "attempted uses and misuses, by the stores' uses of hot cards",
            self.attempts + self.misuses,
            totals.hot_uses,
        );
        problems.equal("rows that contradict themselves", self.contradictions as i64, 0);
        let [accounts, customers, stores] = self.rows.map(|rows| rows as i64);
        problems.equal("accounts", accounts, shape.accounts.into());
        problems.equal("customers", customers, shape.accounts.into());
        problems.equal("stores", stores, shape.stores().into());
        problems.told(totals, before, done);
        problems.expect("lost cards", self.lost == self.hot, || {
            let differs = |all: &[i32], others: &[i32]| {
                let mut differing = all.iter().filter(|card| others.binary_search(card).is_err());
                differing.next().map_or("none".to_owned(), ToString::to_string)
            };
            format!(
                "{} accounts are marked as lost and {} cards are hot: marked and not hot is {}, hot and not marked {}",
                self.lost.len(),
                self.hot.len(),
                differs(&self.lost, &self.hot),
                differs(&self.hot, &self.lost)
            )
        });
        problems.verdict(|| {
            format!(
                "used credit is what stores sold less what was paid, the {} hot cards are the accounts marked lost, their \
                 {} attempted uses are those that stores counted, and all changed by what the clients were told",
                self.hot.len(),
                self.attempts + self.misuses
            )
        })
    }
}

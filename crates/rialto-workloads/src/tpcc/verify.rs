//! The consistency conditions (clauses 3.3.2.1 to 3.3.2.4), on the real tables:
//!
//! 1. a warehouse's W_YTD is the sum of its districts' D_YTD;
//! 2. a district's D_NEXT_O_ID, less one, is the number of its last order, and of its last new order, if it has any;
//! 3. the numbers of a district's new orders have no gap;
//! 4. a district has as many order lines as its orders say.
//!
//! And the responses to the clients are added up beside the run ([`Done`]): the tables must have changed by exactly
//! these sums. The history must add up to the warehouses' W_YTD as well (clause 3.3.2.8), because the sum of the
//! payments is computed from it.

use rialto::row::RowView;
use rialto::{Result, Scan, Transaction};

use super::tables::{DISTRICTS, Shape, Tables, district, history, new_order, order, order_line, warehouse};
use crate::verify::{Problems, Totals, each};
use crate::workload::Verdict;

/// What transactions add up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Orders entered.
    pub orders: i64,
    /// Lines of those.
    pub lines: i64,
    /// Orders delivered.
    pub delivered: i64,
    /// Payments.
    pub payments: i64,
    /// What they came to, in cents.
    pub paid_cents: i64,
}

impl Totals<5> for Done {
    fn each_mut(&mut self) -> [(&'static str, &mut i64); 5] {
        let Done { orders, lines, delivered, payments, paid_cents } = self;
        [
            ("orders entered", orders),
            ("order lines", lines),
            ("orders delivered", delivered),
            ("payments", payments),
            ("cents paid", paid_cents),
        ]
    }
}

/// What was found of a warehouse, in cents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfWarehouse {
    /// W_YTD.
    pub ytd: i64,
    /// The sum of its districts' D_YTD.
    pub districts_ytd: i64,
    /// The sum of the history.
    pub history: i64,
}

/// What was found of a district.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfDistrict {
    /// D_NEXT_O_ID.
    pub next_order: i32,
    /// The number of its last order; 0 if it has none.
    pub last_order: i32,
    /// Its orders.
    pub orders: i64,
    /// The sum of their O_OL_CNT.
    pub lines_said: i64,
    /// Its order lines.
    pub lines: i64,
    /// The numbers of its first and its last new order.
    pub new_orders: Option<(i32, i32)>,
    /// Its new orders.
    pub new_orders_count: i64,
}

/// What a pass over all tables found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// By number, from 1.
    pub warehouses: Vec<OfWarehouse>,
    /// By warehouse and number.
    pub districts: Vec<OfDistrict>,
    /// Rows of a warehouse or district that there is not.
    pub strays: i64,
    /// What the tables add up to.
    pub done: Done,
}

impl Audit {
    fn warehouse(&mut self, number: i16) -> Option<&mut OfWarehouse> {
        let found = self.warehouses.get_mut((number as usize).wrapping_sub(1));
        self.strays += i64::from(found.is_none());
        found
    }

    fn district(&mut self, row: RowView<'_>, columns: [usize; 2]) -> Result<Option<&mut OfDistrict>> {
        let (warehouse, number) = (row.get_i16(columns[0])?, row.get_i16(columns[1])?);
        let is_one = (1..=DISTRICTS as i16).contains(&number);
        let at = (warehouse as usize).wrapping_sub(1).wrapping_mul(DISTRICTS as usize);
        let at = at.wrapping_add(number as usize).wrapping_sub(1);
        let found = self.districts.get_mut(at).filter(|_| is_one);
        self.strays += i64::from(found.is_none());
        Ok(found)
    }
}

impl Tables {
    /// Reads all that the conditions are about.
    pub fn audit(&self, transaction: &mut Transaction, shape: Shape) -> Result<Audit> {
        let warehouses = shape.warehouses as usize;
        let mut audit = Audit {
            warehouses: vec![OfWarehouse::default(); warehouses],
            districts: vec![OfDistrict::default(); warehouses * DISTRICTS as usize],
            ..Audit::default()
        };
        each(transaction, &self.warehouse, &Scan::all(), |row| {
            let ytd = row.get_i64(warehouse::YTD)?;
            if let Some(of) = audit.warehouse(row.get_i16(0)?) {
                of.ytd = ytd;
            }
            Ok(())
        })?;
        each(transaction, &self.district, &Scan::all(), |row| {
            let ytd = row.get_i64(district::YTD)?;
            if let Some(of) = audit.warehouse(row.get_i16(0)?) {
                of.districts_ytd += ytd;
            }
            if let Some(of) = audit.district(row, [0, 1])? {
                of.next_order = row.get_i32(district::NEXT_O_ID)?;
            }
            Ok(())
        })?;
        each(transaction, &self.history, &Scan::all(), |row| {
            let cents = i64::from(row.get_i32(history::AMOUNT)?);
            audit.done.payments += 1;
            if let Some(of) = audit.warehouse(row.get_i16(history::WAREHOUSE)?) {
                of.history += cents;
            }
            Ok(())
        })?;
        each(transaction, &self.orders, &Scan::all(), |row| {
            let lines = i64::from(row.get_i16(order::LINES)?);
            audit.done.delivered += i64::from(!row.is_null(order::CARRIER));
            if let Some(of) = audit.district(row, [order::WAREHOUSE, order::DISTRICT])? {
                of.orders += 1;
                of.lines_said += lines;
                of.last_order = of.last_order.max(row.get_i32(order::ID)?);
            }
            Ok(())
        })?;
        each(transaction, &self.order_line, &Scan::all(), |row| {
            if let Some(of) = audit.district(row, [order_line::WAREHOUSE, order_line::DISTRICT])? {
                of.lines += 1;
            }
            Ok(())
        })?;
        each(transaction, &self.new_order, &Scan::all(), |row| {
            let number = row.get_i32(new_order::ORDER)?;
            if let Some(of) = audit.district(row, [new_order::WAREHOUSE, new_order::DISTRICT])? {
                let (first, last) = of.new_orders.unwrap_or((number, number));
                of.new_orders = Some((first.min(number), last.max(number)));
                of.new_orders_count += 1;
            }
            Ok(())
        })?;
        audit.done.orders = audit.districts.iter().map(|of| of.orders).sum();
        audit.done.lines = audit.districts.iter().map(|of| of.lines).sum();
        audit.done.paid_cents = audit.warehouses.iter().map(|of| of.history).sum();
        Ok(audit)
    }
}

impl Audit {
    /// Judges what was found; `before` is what was there before the clients were told what `done` adds up to.
    pub fn judge(&self, before: &Done, done: &Done) -> Verdict {
        let mut problems = Problems::default();
        for (number, of) in (1..).zip(&self.warehouses) {
            let OfWarehouse { ytd, districts_ytd, history } = *of;
            problems.expect("condition 1", ytd == districts_ytd, || {
                format!("warehouse {number} has W_YTD {ytd}, its districts {districts_ytd} (cents)")
            });
            problems.expect("history", ytd == history, || {
                format!("warehouse {number} has W_YTD {ytd}, its history {history} (cents)")
            });
        }
        for (position, of) in self.districts.iter().enumerate() {
            let (warehouse, number) = (position / DISTRICTS as usize + 1, position % DISTRICTS as usize + 1);
            let place = format!("district {number} of warehouse {warehouse}");
            let last = of.next_order - 1;
            problems.expect("condition 2", last == of.last_order, || {
                format!("{place} has D_NEXT_O_ID {}, its last order is {}", of.next_order, of.last_order)
            });
            if let Some((first_new, last_new)) = of.new_orders {
                problems.expect("condition 2", last == last_new, || {
                    format!("{place} has D_NEXT_O_ID {}, its last new order is {last_new}", of.next_order)
                });
                let span = i64::from(last_new) - i64::from(first_new) + 1;
                problems.expect("condition 3", span == of.new_orders_count, || {
                    let count = of.new_orders_count;
                    format!("{place} has {count} new orders from {first_new} to {last_new}, expected {span}")
                });
            }
            problems.expect("condition 4", of.lines == of.lines_said, || {
                format!("{place} has {} order lines, its orders have {}", of.lines, of.lines_said)
            });
        }
        problems.expect("strays", self.strays == 0, || {
            format!("{} rows are of a warehouse or district that there is not", self.strays)
        });
        problems.told(&self.done, before, done);
        problems.verdict(|| {
            format!(
                "conditions 1 to 4 hold in {} warehouses and {} districts, W_YTD is what the history says; by what the \
                 clients were told, {} orders entered, {} delivered, {} payments",
                self.warehouses.len(),
                self.districts.len(),
                done.orders,
                done.delivered,
                done.payments
            )
        })
    }
}

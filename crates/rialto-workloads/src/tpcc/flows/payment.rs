//! Payment (clause 2.5), as in figure 4 of the DORA paper: in the first phase the amount is added to the warehouse,
//! the district and the customer; the second phase enters it into the history.
//!
//! The customer is found by number or by last name. These are two actions, of which a call runs one; by number the
//! identifier is the whole key.

use rialto::row::ColumnType::{self, Int2, Int4, Text, Timestamp};
use rialto::row::{Value, ValueRef};
use rialto::{Action, Arguments, Error, Fields, Flow, Outputs, Result, ScanMode, Transaction};

use super::super::tables::{customer, district, warehouse};
use super::{WAREHOUSE, address, customer_by_name, full_name, missing};

const DISTRICT: usize = 1;
/// Where the customer is, which may be elsewhere.
const CUSTOMER_WAREHOUSE: usize = 2;
const CUSTOMER_DISTRICT: usize = 3;
/// The customer's number, or NULL and the last name.
const CUSTOMER: usize = 4;
const LAST_NAME: usize = 5;
const AMOUNT: usize = 6;
const DATE: usize = 7;

/// Outputs of the first phase: names and addresses, then the customer.
const WAREHOUSE_NAME: usize = 0;
const DISTRICT_NAME: usize = 2;
const CUSTOMER_NUMBER: usize = 4;

/// The most characters of a customer's data.
const DATA_MAX: usize = 500;
/// How much of it is on the terminal.
const DATA_SHOWN: usize = 200;
const BAD_CREDIT: &str = "BC";

/// The flow; `see` is told of each district that is paid at, with its warehouse, by the thread that does it.
pub(super) fn flow(see: impl Fn(i16, i16) + Send + Sync + 'static) -> (&'static [ColumnType], Flow) {
    let first = [pay_warehouse(), pay_district(see), pay_by_number(), pay_by_name()];
    let flow = Flow::new().phase(first).phase([enter_history()]);
    (&[Int2, Int2, Int2, Int2, Int4, Text, Int4, Timestamp], flow)
}

fn amount(arguments: &Arguments<'_>) -> Result<i64> {
    arguments.get::<i32>(AMOUNT).map(i64::from)
}

fn pay_warehouse() -> Action {
    let pay = Action::exclusive("warehouse", |transaction, arguments, outputs| {
        let (number, cents) = (arguments.get::<i16>(WAREHOUSE)?, amount(arguments)?);
        let found = transaction.modify(arguments.table()?, number, |fields| {
            outputs.push(fields.row().get_str(warehouse::NAME)?.to_owned());
            outputs.push(address(fields.row(), warehouse::STREET_1)?);
            fields.add_i64(warehouse::YTD, cents).map(drop)
        })?;
        if found { Ok(()) } else { Err(missing("warehouse", number)) }
    });
    pay.by_argument(WAREHOUSE)
}

fn pay_district(see: impl Fn(i16, i16) + Send + Sync + 'static) -> Action {
    let pay = Action::exclusive("district", move |transaction, arguments, outputs| {
        let key = (arguments.get::<i16>(WAREHOUSE)?, arguments.get::<i16>(DISTRICT)?);
        see(key.0, key.1);
        let cents = amount(arguments)?;
        let found = transaction.modify(arguments.table()?, key, |fields| {
            outputs.push(fields.row().get_str(district::NAME)?.to_owned());
            outputs.push(address(fields.row(), district::STREET_1)?);
            fields.add_i64(district::YTD, cents).map(drop)
        })?;
        if found { Ok(()) } else { Err(missing("district", (key.0, key.1))) }
    });
    pay.by_argument(WAREHOUSE).by_argument(DISTRICT)
}

fn pay_by_number() -> Action {
    let pay = Action::exclusive("customer", |transaction, arguments, outputs| {
        let number = arguments.get::<i32>(CUSTOMER)?;
        pay_customer(transaction, arguments, outputs, number)
    });
    pay.by_argument(CUSTOMER_WAREHOUSE)
        .by_argument(CUSTOMER_DISTRICT)
        .by_argument(CUSTOMER)
        .when(|arguments| !arguments[CUSTOMER].is_null())
}

fn pay_by_name() -> Action {
    let pay = Action::exclusive("customer", |transaction, arguments, outputs| {
        let (warehouse, district) =
            (arguments.get::<i16>(CUSTOMER_WAREHOUSE)?, arguments.get::<i16>(CUSTOMER_DISTRICT)?);
        let name = (warehouse, district, arguments.get_str(LAST_NAME)?);
        // At once as they will be changed: two payments of one name would wait for each other to change theirs.
        let number = customer_by_name(transaction, arguments.table()?, name, ScanMode::Update)?;
        pay_customer(transaction, arguments, outputs, number)
    });
    pay.by_argument(CUSTOMER_WAREHOUSE)
        .by_argument(CUSTOMER_DISTRICT)
        .when(|arguments| arguments[CUSTOMER].is_null())
}

fn pay_customer(
    transaction: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
    number: i32,
) -> Result<()> {
    let (warehouse, district) =
        (arguments.get::<i16>(CUSTOMER_WAREHOUSE)?, arguments.get::<i16>(CUSTOMER_DISTRICT)?);
    let cents = amount(arguments)?;
    let found = transaction.modify(arguments.table()?, (warehouse, district, number), |fields| {
        let row = fields.row();
        outputs.push(number);
        outputs.push(full_name(row)?);
        outputs.push(address(row, customer::STREET_1)?);
        outputs.push(row.get_str(customer::PHONE)?.to_owned());
        outputs.push(row.get(customer::SINCE));
        let credit = row.get_str(customer::CREDIT)?;
        outputs.push(credit.to_owned());
        outputs.push(row.get_i64(customer::CREDIT_LIM)?);
        outputs.push(row.get_i32(customer::DISCOUNT)?);
        let is_bad = credit == BAD_CREDIT;
        outputs.push(fields.add_i64(customer::BALANCE, -cents)?);
        fields.add_i64(customer::YTD_PAYMENT, cents)?;
        fields.add_i32(customer::PAYMENT_CNT, 1)?;
        outputs.push(if is_bad { note(fields, arguments, number)? } else { Value::Null });
        Ok(())
    })?;
    if found { Ok(()) } else { Err(missing("customer", (warehouse, district, number))) }
}

/// Puts the payment before what the data of a customer of bad credit says already, of which the end goes (clause 2.5.2.2).
/// What is shown of it.
fn note(fields: &mut Fields<'_>, arguments: &Arguments<'_>, number: i32) -> Result<Value> {
    let number_of = |position| arguments.get::<i16>(position);
    let cents = amount(arguments)?;
    let mut data = format!(
        "{number} {} {} {} {} {}.{:02} ",
        number_of(CUSTOMER_DISTRICT)?,
        number_of(CUSTOMER_WAREHOUSE)?,
        number_of(DISTRICT)?,
        number_of(WAREHOUSE)?,
        cents / 100,
        cents % 100
    );
    data.push_str(fields.row().get_str(customer::DATA)?);
    // All of it are characters of one byte.
    data.truncate(DATA_MAX);
    let shown = Value::Text(data[..data.len().min(DATA_SHOWN)].to_owned());
    fields.set(customer::DATA, &Value::Text(data))?;
    Ok(shown)
}

fn enter_history() -> Action {
    let enter = Action::exclusive("history", |transaction, arguments, outputs| {
        use ValueRef::{Int2, Int4, Text, Timestamp};
        let place = |position| arguments.get::<i16>(position).map(Int2);
        let [Some(Value::Text(warehouse)), Some(Value::Text(district)), Some(Value::Int4(customer))] =
            [WAREHOUSE_NAME, DISTRICT_NAME, CUSTOMER_NUMBER].map(|position| outputs.earlier().get(position))
        else {
            return Err(Error::aborted("the first phase gave no names and no customer"));
        };
        let rialto::row::Timestamp(paid) = arguments.get(DATE)?;
        let data = [warehouse.as_str(), district].join("    ");
        let row = [
            place(WAREHOUSE)?,
            place(DISTRICT)?,
            place(CUSTOMER_WAREHOUSE)?,
            place(CUSTOMER_DISTRICT)?,
            Int4(*customer),
            Timestamp(paid),
            Int4(arguments.get(AMOUNT)?),
            Text(&data),
        ];
        transaction.insert_borrowed(arguments.table()?, &row)
    });
    enter.by_argument(WAREHOUSE)
}

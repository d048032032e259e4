//! The transaction as a registered procedure: a flow of four actions, in the same order as in the closure that clients
//! run. All that a client draws, the time included, is an argument, so a log of calls can run the transaction again.

use rialto::row::{ColumnType, Value, ValueRef};
use rialto::{Action, Arguments, Flow, Outputs, Procedure, Result, Transaction};

use super::history::FILLER;
use super::{BALANCE, BRANCH_BALANCE, PROCEDURE, missing};

/// The arguments, in their order: those of a history row, but for its filler.
const ACCOUNT: usize = 0;
const TELLER: usize = 1;
const BRANCH: usize = 2;
const DELTA: usize = 3;

/// The procedures that a log of this workload may call.
pub fn procedures() -> Vec<Procedure> {
    let history = Action::exclusive("history", |transaction, arguments, _| {
        let [account, teller, branch, delta, time] = arguments.values() else {
            unreachable!("the procedure has five arguments")
        };
        let [account, teller, branch, delta, time] =
            [account, teller, branch, delta, time].map(Value::borrow);
        let row = [account, teller, branch, delta, time, ValueRef::Text(FILLER)];
        transaction.insert_borrowed(arguments.table()?, &row)
    });
    let flow = Flow::new().phase([
        change("accounts", ACCOUNT, BALANCE),
        history.by_argument(ACCOUNT),
        change("tellers", TELLER, BALANCE),
        change("branches", BRANCH, BRANCH_BALANCE),
    ]);
    let int4 = ColumnType::Int4;
    let arguments = [int4, int4, int4, ColumnType::Int8, ColumnType::Timestamp];
    vec![Procedure::new(PROCEDURE, arguments, flow).deterministic(1)]
}

/// Adds the delta to the balance of the row that an argument names.
fn change(table: &'static str, key: usize, balance: usize) -> Action {
    let body =
        move |transaction: &mut Transaction, arguments: &Arguments<'_>, _: &mut Outputs| -> Result<()> {
            let (number, delta) = (arguments.get::<i32>(key)?, arguments.get::<i64>(DELTA)?);
            let add = |fields: &mut rialto::Fields<'_>| fields.add_i64(balance, delta).map(drop);
            match transaction.modify(arguments.table()?, number, add)? {
                true => Ok(()),
                false => Err(missing(table, number)),
            }
        };
    Action::exclusive(table, body).by_argument(key)
}

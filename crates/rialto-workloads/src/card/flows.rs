//! The transactions as registered procedures: flows of the same steps, each an action on its table. Any engine can run
//! them, and a log of procedures and arguments can hold them.
//!
//! A step passes what it has found to later steps as an output. A step whose outputs show that there is nothing to do
//! does nothing.

use rialto::row::{ColumnType, Date, Value};
use rialto::{Action, Database, Error, Flow, Procedure, Result};

use super::request::{Name, Request, Response};
use super::transactions::{
    Account, AtStore, attempt, buy, change_address, count_at_store, credit, keep_misuses, mark, pay,
    read_account, read_name, recover, report, validity,
};

/// The argument that each begins with.
const ACCOUNT: usize = 0;
/// The second of those that happen at a store.
const STORE: usize = 1;
/// The third of those that have a price.
const PRICE: usize = 2;

/// All eight, under their names.
pub fn procedures() -> Vec<Procedure> {
    Name::ALL.into_iter().map(procedure).collect()
}

/// Registers those that are not yet.
pub(super) fn register(database: &Database) -> Result<()> {
    let missing = |name: &Name| database.registered_version(name.as_str()).is_none();
    Name::ALL.into_iter().filter(missing).try_for_each(|name| database.register(procedure(name)))
}

/// Gives the arguments of a call, in the order of its procedure.
pub(super) fn each_argument(request: &Request<'_>, mut give: impl FnMut(Value)) {
    let day = |day: Date| Value::Date(day.0);
    give(Value::Int4(request.account()));
    match *request {
        Request::Balance { .. } | Request::Found { .. } => {}
        Request::CardCheck { store, today, .. } => {
            give(Value::Int4(store));
            give(day(today));
        }
        Request::LimitCheck { store, cents, .. } | Request::Debit { store, cents, .. } => {
            give(Value::Int4(store));
            give(Value::Int8(cents));
        }
        Request::Payment { cents, .. } => give(Value::Int8(cents)),
        Request::Move { address, .. } => give(Value::Text(address.to_owned())),
        Request::Lost { today, .. } => give(day(today)),
    }
}

/// The request that has these arguments.
///
/// # Errors
/// If they are none of it.
pub(super) fn request(name: Name, arguments: &[Value]) -> Result<Request<'_>> {
    use Value::{Int4, Int8, Text};
    match (name, arguments) {
        (Name::Bal, &[Int4(account)]) => Ok(Request::Balance { account }),
        (Name::Ccck, &[Int4(account), Int4(store), Value::Date(today)]) => {
            Ok(Request::CardCheck { account, store, today: Date(today) })
        }
        (Name::Clck, &[Int4(account), Int4(store), Int8(cents)]) => {
            Ok(Request::LimitCheck { account, store, cents })
        }
        (Name::Debit, &[Int4(account), Int4(store), Int8(cents)]) => {
            Ok(Request::Debit { account, store, cents })
        }
        (Name::Pay, &[Int4(account), Int8(cents)]) => Ok(Request::Payment { account, cents }),
        (Name::Move, [Int4(account), Text(address)]) => Ok(Request::Move { account: *account, address }),
        (Name::Lost, &[Int4(account), Value::Date(today)]) => {
            Ok(Request::Lost { account, today: Date(today) })
        }
        (Name::Found, &[Int4(account)]) => Ok(Request::Found { account }),
        _ => {
            let reason = format!("its arguments are {arguments:?}, which are none of its own");
            Err(Error::Procedure { name: name.as_str().to_owned(), reason })
        }
    }
}

fn procedure(name: Name) -> Procedure {
    use ColumnType::{Date, Int4, Int8, Text};
    let (arguments, flow): (&[ColumnType], Flow) = match name {
        Name::Bal => (&[Int4], balance()),
        Name::Ccck => (&[Int4, Int4, Date], check(|is_lost| AtStore::Check { is_lost })),
        Name::Clck => (&[Int4, Int4, Int8], check(|is_lost| AtStore::LimitCheck { is_lost })),
        Name::Debit => (&[Int4, Int4, Int8], debit()),
        Name::Pay => (&[Int4, Int8], payment()),
        Name::Move => (&[Int4, Text], change()),
        Name::Lost => (&[Int4, Date], lost()),
        Name::Found => (&[Int4], found()),
    };
    Procedure::new(name.as_str(), arguments.iter().copied(), flow).deterministic(1)
}

fn balance() -> Flow {
    let account = Action::shared("accounts", |transaction, arguments, outputs| {
        let found = read_account(transaction, arguments.table()?, arguments.get(ACCOUNT)?)?;
        outputs.push(found.used_cents);
        outputs.push(found.limit_cents);
        Ok(())
    });
    let customer = Action::shared("customers", |transaction, arguments, outputs| {
        let mut name = String::new();
        read_name(transaction, arguments.table()?, arguments.get(ACCOUNT)?, &mut name)?;
        outputs.push(name);
        Ok(())
    });
    Flow::new().phase([account.by_argument(ACCOUNT), customer.by_argument(ACCOUNT)])
}

/// The check of a card, or of its limit.
fn check(at_store: fn(bool) -> AtStore) -> Flow {
    let account = Action::shared("accounts", |transaction, arguments, outputs| {
        let Account { limit_cents, used_cents, expires, is_lost } =
            read_account(transaction, arguments.table()?, arguments.get(ACCOUNT)?)?;
        outputs.push(is_lost);
        outputs.push(limit_cents);
        outputs.push(used_cents);
        outputs.push(expires);
        Ok(())
    });
    // The first output of the account.
    let is_lost = |outputs: &rialto::Outputs| outputs.get::<bool>(0).unwrap_or(false);
    let hot_card = Action::exclusive("hot_cards", move |transaction, arguments, outputs| {
        let attempts = match is_lost(outputs) {
            true => Some(attempt(transaction, arguments.table()?, arguments.get(ACCOUNT)?)?),
            false => None,
        };
        outputs.push(attempts.map_or(Value::Null, Value::Int4));
        Ok(())
    });
    let store = Action::exclusive("stores", move |transaction, arguments, outputs| {
        let what = at_store(is_lost(outputs));
        count_at_store(transaction, arguments.table()?, arguments.get(STORE)?, what)
    });
    let second = [hot_card.by_argument(ACCOUNT), store.by_argument(STORE)];
    Flow::new().phase([account.by_argument(ACCOUNT)]).phase(second)
}

fn debit() -> Flow {
    let account = Action::exclusive("accounts", |transaction, arguments, outputs| {
        let left = buy(transaction, arguments.table()?, arguments.get(ACCOUNT)?, arguments.get(PRICE)?)?;
        outputs.push(left.map_or(Value::Null, Value::Int8));
        Ok(())
    });
    let store = Action::exclusive("stores", |transaction, arguments, outputs| {
        let what = match outputs.get::<i64>(0) {
            Some(_) => AtStore::Sale { cents: arguments.get(PRICE)? },
            None => AtStore::Declined,
        };
        count_at_store(transaction, arguments.table()?, arguments.get(STORE)?, what)
    });
    Flow::new().phase([account.by_argument(ACCOUNT)]).phase([store.by_argument(STORE)])
}

fn payment() -> Flow {
    let account = Action::exclusive("accounts", |transaction, arguments, outputs| {
        outputs.push(pay(transaction, arguments.table()?, arguments.get(ACCOUNT)?, arguments.get(1)?)?);
        Ok(())
    });
    Flow::from(account.by_argument(ACCOUNT))
}

fn change() -> Flow {
    let customer = Action::exclusive("customers", |transaction, arguments, _| {
        change_address(transaction, arguments.table()?, arguments.get(ACCOUNT)?, arguments.get_str(1)?)
    });
    Flow::from(customer.by_argument(ACCOUNT))
}

fn lost() -> Flow {
    let account = Action::exclusive("accounts", |transaction, arguments, outputs| {
        outputs.push(mark(transaction, arguments.table()?, arguments.get(ACCOUNT)?, true)?);
        Ok(())
    });
    let hot_card =
        Action::exclusive("hot_cards", |transaction, arguments, outputs| match outputs.get::<bool>(0) {
            Some(true) => report(transaction, arguments.table()?, arguments.get(ACCOUNT)?, arguments.get(1)?),
            _ => Ok(()),
        });
    Flow::new().phase([account.by_argument(ACCOUNT)]).phase([hot_card.by_argument(ACCOUNT)])
}

fn found() -> Flow {
    let account = Action::exclusive("accounts", |transaction, arguments, outputs| {
        outputs.push(mark(transaction, arguments.table()?, arguments.get(ACCOUNT)?, false)?);
        Ok(())
    });
    let hot_card = Action::exclusive("hot_cards", |transaction, arguments, outputs| {
        let attempts = match outputs.get::<bool>(0) {
            Some(true) => Some(recover(transaction, arguments.table()?, arguments.get(ACCOUNT)?)?),
            _ => None,
        };
        outputs.push(attempts.map_or(Value::Null, Value::Int4));
        Ok(())
    });
    let customer = Action::exclusive("customers", |transaction, arguments, outputs| {
        match outputs.get::<i32>(1).filter(|attempts| *attempts > 0) {
            Some(attempts) => {
                keep_misuses(transaction, arguments.table()?, arguments.get(ACCOUNT)?, attempts)
            }
            None => Ok(()),
        }
    });
    Flow::new()
        .phase([account.by_argument(ACCOUNT)])
        .phase([hot_card.by_argument(ACCOUNT)])
        .phase([customer.by_argument(ACCOUNT)])
}

/// What a call gave.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer<'a> {
    pub response: Response,
    /// The name of a balance check's customer.
    pub name: Option<&'a str>,
}

/// What the outputs of a request's procedure say.
///
/// # Errors
/// If they are not its outputs.
pub(super) fn answer<'a>(request: &Request<'_>, outputs: &'a [Value]) -> Result<Answer<'a>> {
    use Value::{Bool, Int4, Int8, Null, Text};
    let response = match (request, outputs) {
        (Request::Balance { .. }, [Int8(used_cents), Int8(limit_cents), Text(name)]) => {
            let response = Response::Balance { used_cents: *used_cents, limit_cents: *limit_cents };
            return Ok(Answer { response, name: Some(name) });
        }
        (
            Request::CardCheck { .. } | Request::LimitCheck { .. },
            [Bool(true), Int8(_), Int8(_), Value::Date(_), Int4(attempts)],
        ) => Response::Hot { attempts: *attempts },
        (_, [Bool(false), Int8(limit_cents), Int8(used_cents), Value::Date(expires), Null]) => {
            let (limit_cents, used_cents) = (*limit_cents, *used_cents);
            let account = Account { limit_cents, used_cents, expires: Date(*expires), is_lost: false };
            match request {
                Request::CardCheck { today, .. } => validity(account, *today),
                Request::LimitCheck { cents, .. } => credit(account, *cents),
                _ => return Err(unexpected(request, outputs)),
            }
        }
        (Request::Debit { .. }, [Int8(left_cents)]) => Response::Bought { left_cents: *left_cents },
        (Request::Debit { .. }, [Null]) => Response::Declined,
        (Request::Payment { .. }, [Int8(used_cents)]) => Response::Paid { used_cents: *used_cents },
        (Request::Move { .. }, []) => Response::Moved,
        (Request::Lost { .. }, [Bool(true)]) => Response::Reported,
        (Request::Lost { .. }, [Bool(false)]) => Response::ReportedBefore,
        (Request::Found { .. }, [Bool(true), Int4(attempts)]) => Response::Recovered { attempts: *attempts },
        (Request::Found { .. }, [Bool(false), Null]) => Response::NotReported,
        _ => return Err(unexpected(request, outputs)),
    };
    Ok(Answer { response, name: None })
}

#[cold]
fn unexpected(request: &Request<'_>, outputs: &[Value]) -> Error {
    let reason = format!("its outputs are {outputs:?}, which are none of its flow's");
    Error::Procedure { name: request.name().as_str().to_owned(), reason }
}

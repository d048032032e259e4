//! The transactions as registered procedures: flows of the same steps. Any engine can run them, and a log of
//! procedures and arguments can hold them.
//!
//! The four transactions whose request names a subscriber's identifier consist of actions on tables, routed by the
//! identifier. The three whose request names a subscriber's *number* have a phase before: an action on the index on
//! `sub_nbr` finds the identifier, by which the actions of the second phase are routed.

use std::cell::RefCell;

use rialto::row::{ColumnType, Value};
use rialto::{Action, Arguments, Error, Flow, Outputs, Procedure, Result, ScanMode, Transaction};

use super::request::{Forwarding, Name, Number, Request, Response};
use super::tables::{ACCESS_INFO, CALL_FORWARDING, NUMBER_INDEX, SPECIAL_FACILITY, SUBSCRIBER};
use super::transactions::{
    Scans, delete_forwarding, find_active, find_destinations, find_facility, find_subscriber,
    insert_forwarding, read_access, set_bit, set_data, set_location,
};

/// The argument that each begins with: the subscriber, or its number.
const S_ID: usize = 0;
const SUB_NBR: usize = 0;
/// The second of those that are about one kind of data.
const TYPE: usize = 1;
/// The output of those that begin with a number: the subscriber.
const FOUND: usize = 0;

/// All seven, under their names.
pub fn procedures() -> Vec<Procedure> {
    Name::ALL.into_iter().map(procedure).collect()
}

/// Gives the arguments of a call, in the order of its procedure.
pub(super) fn each_argument(request: &Request, mut give: impl FnMut(Value)) {
    let number = |number: &Number| Value::Text(number.as_str().to_owned());
    match request {
        Request::GetSubscriberData { s_id } => give(Value::Int4(*s_id)),
        Request::GetNewDestination { s_id, sf_type, start_time, end_time } => {
            give(Value::Int4(*s_id));
            [sf_type, start_time, end_time].into_iter().for_each(|value| give(Value::Int2(*value)));
        }
        Request::GetAccessData { s_id, ai_type } => {
            give(Value::Int4(*s_id));
            give(Value::Int2(*ai_type));
        }
        Request::UpdateSubscriberData { s_id, sf_type, bit, data_a } => {
            give(Value::Int4(*s_id));
            give(Value::Int2(*sf_type));
            give(Value::Bool(*bit));
            give(Value::Int2(*data_a));
        }
        Request::UpdateLocation { sub_nbr, vlr_location } => {
            give(number(sub_nbr));
            give(Value::Int8(*vlr_location));
        }
        Request::InsertCallForwarding { sub_nbr, forwarding } => {
            let Forwarding { sf_type, start_time, end_time, numberx } = forwarding;
            give(number(sub_nbr));
            [sf_type, start_time, end_time].into_iter().for_each(|value| give(Value::Int2(*value)));
            give(number(numberx));
        }
        Request::DeleteCallForwarding { sub_nbr, sf_type, start_time } => {
            give(number(sub_nbr));
            [sf_type, start_time].into_iter().for_each(|value| give(Value::Int2(*value)));
        }
    }
}

fn procedure(name: Name) -> Procedure {
    use ColumnType::{Int2, Int4, Int8, Text};
    let (arguments, flow): (&[ColumnType], Flow) = match name {
        Name::GetSubscriberData => (&[Int4], get_subscriber_data()),
        Name::GetNewDestination => (&[Int4, Int2, Int2, Int2], get_new_destination()),
        Name::GetAccessData => (&[Int4, Int2], get_access_data()),
        Name::UpdateSubscriberData => return update_subscriber_data(Plan::Parallel),
        Name::UpdateLocation => (&[Text, Int8], location()),
        Name::InsertCallForwarding => (&[Text, Int2, Int2, Int2, Text], insert()),
        Name::DeleteCallForwarding => (&[Text, Int2, Int2], delete()),
    };
    Procedure::new(name.as_str(), arguments.iter().copied(), flow).deterministic(1)
}

/// Gives the row as the table has it, in one value.
fn get_subscriber_data() -> Flow {
    let subscriber = Action::shared(SUBSCRIBER, |transaction, arguments, outputs| {
        let s_id: i32 = arguments.get(S_ID)?;
        let row = transaction.look(arguments.table()?, s_id, |row| row.bytes().to_vec())?;
        let row = row.ok_or_else(|| Error::aborted(format!("there is no subscriber {s_id}")))?;
        outputs.push(Value::Bytes(row));
        Ok(())
    });
    Flow::from(subscriber.by_argument(S_ID))
}

/// The forwardings are read in a phase of their own: they are asked for only if the facility is active.
fn get_new_destination() -> Flow {
    let facility = Action::shared(SPECIAL_FACILITY, |transaction, arguments, _| {
        find_active(transaction, arguments.table()?, arguments.get(S_ID)?, arguments.get(TYPE)?)
    });
    let forwardings = Action::shared(CALL_FORWARDING, |transaction, arguments, outputs| {
        let facility = (arguments.get(S_ID)?, arguments.get(TYPE)?);
        let hours = (arguments.get(2)?, arguments.get(3)?);
        let table = arguments.table()?;
        let found = with_scans(|scans| {
            find_destinations(transaction, table, facility, hours, &mut scans.forwardings)
        })?;
        found.iter().flatten().for_each(|number| push_number(outputs, number));
        Ok(())
    });
    Flow::new()
        .phase([facility.by_argument(S_ID).by_argument(TYPE)])
        .phase([forwardings.by_argument(S_ID).by_argument(TYPE)])
}

/// With the ranges that this thread scanned last, whose memory is used again.
fn with_scans<T>(scan: impl FnOnce(&mut Scans) -> T) -> T {
    thread_local! {
        static SCANS: RefCell<Scans> = RefCell::new(Scans::new());
    }
    SCANS.with_borrow_mut(scan)
}

fn push_number(outputs: &mut Outputs, number: &Number) {
    outputs.push(number.as_str().to_owned());
}

fn get_access_data() -> Flow {
    let access = Action::shared(ACCESS_INFO, |transaction, arguments, outputs| {
        let found = read_access(transaction, arguments.table()?, arguments.get(S_ID)?, arguments.get(TYPE)?)?;
        if let Response::Access { data1, data2, data3, data4 } = found {
            outputs.push(data1);
            outputs.push(data2);
            outputs.push(Value::Bytes(data3.to_vec()));
            outputs.push(Value::Bytes(data4.to_vec()));
        }
        Ok(())
    });
    Flow::from(access.by_argument(S_ID).by_argument(TYPE))
}

/// How `UpdateSubscriberData` is put into phases (the paper's figure 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Both changes in one phase: the one that fails may have company.
    Parallel,
    /// The facility, which fails for 37.5 of a hundred, and only then the subscriber.
    Serial,
}

/// `UpdateSubscriberData` by a plan; [`procedures`] has it in parallel. The outputs are in the order of the plan.
pub fn update_subscriber_data(plan: Plan) -> Procedure {
    use ColumnType::{Bool, Int2, Int4};
    let subscriber = Action::exclusive(SUBSCRIBER, |transaction, arguments, outputs| {
        outputs.push(set_bit(transaction, arguments.table()?, arguments.get(S_ID)?, arguments.get(2)?)?);
        Ok(())
    });
    let facility = Action::exclusive(SPECIAL_FACILITY, |transaction, arguments, outputs| {
        let (s_id, sf_type) = (arguments.get(S_ID)?, arguments.get(TYPE)?);
        outputs.push(set_data(transaction, arguments.table()?, s_id, sf_type, arguments.get(3)?)?);
        Ok(())
    });
    let (subscriber, facility) = (subscriber.by_argument(S_ID), facility.by_argument(S_ID).by_argument(TYPE));
    let flow = match plan {
        Plan::Parallel => Flow::new().phase([subscriber, facility]),
        Plan::Serial => Flow::new().phase([facility]).phase([subscriber]),
    };
    Procedure::new(Name::UpdateSubscriberData.as_str(), [Int4, Int2, Bool, Int2], flow).deterministic(1)
}

/// A number among the arguments; another text is no subscriber's.
fn number(text: &str) -> Result<Number> {
    Number::parse(text).ok_or_else(|| Error::aborted(format!("\"{text}\" is no number of 15 digits")))
}

/// Gives the subscriber that has the number.
fn by_number(
    transaction: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
    mode: ScanMode,
) -> Result<()> {
    let sub_nbr = number(arguments.get_str(SUB_NBR)?)?;
    outputs.push(find_subscriber(transaction, arguments.table()?, &sub_nbr, mode)?);
    Ok(())
}

/// The probe of those that do not change the subscriber itself.
fn probe() -> Action {
    let probe = Action::shared(SUBSCRIBER, |transaction, arguments, outputs| {
        by_number(transaction, arguments, outputs, ScanMode::Share)
    });
    probe.on_index(NUMBER_INDEX).by_argument(SUB_NBR)
}

/// What the first phase has found.
fn found(outputs: &Outputs) -> Result<i32> {
    outputs.get(FOUND).ok_or_else(|| Error::aborted("the first phase gave no subscriber"))
}

fn location() -> Flow {
    let probe = Action::exclusive(SUBSCRIBER, |transaction, arguments, outputs| {
        by_number(transaction, arguments, outputs, ScanMode::Update)
    });
    let set = Action::exclusive(SUBSCRIBER, |transaction, arguments, outputs| {
        let before = set_location(transaction, arguments.table()?, found(outputs)?, arguments.get(1)?)?;
        outputs.push(before);
        Ok(())
    });
    Flow::new().phase([probe.on_index(NUMBER_INDEX).by_argument(SUB_NBR)]).phase([set.by_output(FOUND)])
}

fn insert() -> Flow {
    let facility = Action::shared(SPECIAL_FACILITY, |transaction, arguments, outputs| {
        let (table, s_id, sf_type) = (arguments.table()?, found(outputs)?, arguments.get(TYPE)?);
        with_scans(|scans| find_facility(transaction, table, s_id, sf_type, &mut scans.facilities))
    });
    let insert = Action::exclusive(CALL_FORWARDING, |transaction, arguments, outputs| {
        let forwarding = Forwarding {
            sf_type: arguments.get(TYPE)?,
            start_time: arguments.get(2)?,
            end_time: arguments.get(3)?,
            numberx: number(arguments.get_str(4)?)?,
        };
        insert_forwarding(transaction, arguments.table()?, found(outputs)?, &forwarding)
    });
    let insert = insert.by_output(FOUND).by_argument(TYPE).by_argument(2);
    Flow::new().phase([probe()]).phase([facility.by_output(FOUND), insert])
}

fn delete() -> Flow {
    let delete = Action::exclusive(CALL_FORWARDING, |transaction, arguments, outputs| {
        let (sf_type, start_time) = (arguments.get(TYPE)?, arguments.get(2)?);
        delete_forwarding(transaction, arguments.table()?, found(outputs)?, sf_type, start_time)
    });
    let delete = delete.by_output(FOUND).by_argument(TYPE).by_argument(2);
    Flow::new().phase([probe()]).phase([delete])
}

/// What the outputs of a request's procedure say.
///
/// # Errors
/// If they are not its outputs.
pub(super) fn response(request: &Request, outputs: &[Value]) -> Result<Response> {
    use Value::{Bool, Bytes, Int2, Int4, Int8, Text};
    let read = match (request, outputs) {
        (Request::GetSubscriberData { .. }, [Bytes(_)]) => Some(Response::Subscriber),
        (Request::GetNewDestination { .. }, [Text(_), ..]) => {
            let mut numbers = [None; 3];
            for (number, output) in numbers.iter_mut().zip(outputs) {
                *number = if let Text(text) = output { Number::parse(text) } else { None };
            }
            Some(Response::Destinations(numbers))
        }
        (Request::GetAccessData { .. }, [Int2(data1), Int2(data2), Bytes(data3), Bytes(data4)]) => {
            let letters = data3.as_slice().try_into().ok().zip(data4.as_slice().try_into().ok());
            letters.map(|(data3, data4)| Response::Access { data1: *data1, data2: *data2, data3, data4 })
        }
        (
            Request::UpdateSubscriberData { .. },
            &[Bool(bit_before), Int2(data_a_before)] | &[Int2(data_a_before), Bool(bit_before)],
        ) => Some(Response::Updated { bit_before, data_a_before }),
        (Request::UpdateLocation { .. }, &[Int4(_), Int8(before)]) => Some(Response::Located { before }),
        (Request::InsertCallForwarding { .. }, &[Int4(s_id)]) => Some(Response::Inserted { s_id }),
        (Request::DeleteCallForwarding { .. }, &[Int4(s_id)]) => Some(Response::Deleted { s_id }),
        _ => None,
    };
    read.ok_or_else(|| {
        let reason = format!("its outputs are {outputs:?}, which are none of its flow's");
        Error::Procedure { name: request.name().as_str().to_owned(), reason }
    })
}

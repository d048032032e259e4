use std::ops::ControlFlow;

use rialto::engine::{ActionMode, IdentifierPart};
use rialto::io::MemoryDisk;
use rialto::row::Value;
use rialto::{Error, Options, Residence, Scan};
use rialto_measure::driver::Pending;

use super::*;

/// As few subscribers as can be, so that clients meet.
const SHAPE: Shape = Shape { subscribers: 150 };

fn database() -> Database {
    Database::open_on(MemoryDisk::new(), Options { memory_bytes: 64 << 20, ..Options::default() }).unwrap()
}

fn tatp(database: &Database, mix: Mix) -> Tatp {
    Tatp::open_or_load(database, Residence::Memory, SHAPE, mix, &mut |_| ()).unwrap().0
}

/// Every transaction about as likely as the others.
fn even() -> Mix {
    let shares =
        Name::ALL.map(|name| format!("{name}={}", if name == Name::UpdateLocation { 16 } else { 14 }));
    shares.join(",").parse().unwrap()
}

fn verdict(tatp: &Tatp, before: &Audit) -> Verdict {
    tatp.verdict(before, &tatp.audit().unwrap(), 0..=0)
}

/// Runs one. Whether it succeeded.
fn ran(tatp: &Tatp, request: &Request, client: &mut Client) -> bool {
    match tatp.run(request, client) {
        Ok(_) => true,
        Err(Error::Aborted { .. }) => false,
        Err(error) => panic!("{request:?}: {error}"),
    }
}

/// What is expected of a share of so many, within six times its deviation.
fn near(found: u32, percent: f64, of: u32) -> bool {
    let share = percent / 100.0;
    let deviation = (f64::from(of) * share * (1.0 - share)).sqrt();
    (f64::from(found) - f64::from(of) * share).abs() <= 6.0 * deviation
}

#[test]
fn transactions_keep_the_tables_consistent_and_succeed_as_often_as_specified() {
    let database =
        Database::open_on(MemoryDisk::new(), Options { memory_bytes: 256 << 20, ..Options::default() })
            .unwrap();
    // Enough that the draw of subscribers, which is not even, meets the population's mean.
    let shape = Shape { subscribers: 20_000 };
    let tatp = Tatp::open_or_load(&database, Residence::Memory, shape, even(), &mut |_| ()).unwrap().0;
    let before = tatp.audit().unwrap();
    assert!(verdict(&tatp, &before).consistent, "{}", verdict(&tatp, &before).text);
    assert_eq!((before.subscribers, before.wrong), (20_000, 0));
    let mut client = tatp.client(0, 5);
    const EACH: u32 = 2_000;
    for name in Name::ALL {
        let succeeded = (0..EACH).filter(|_| {
            let request = Request::draw(name, shape, &mut client.random.clone());
            client.random.next();
            ran(&tatp, &request, &mut client)
        });
        let succeeded = succeeded.count() as u32;
        let percent = match name {
            // By the rules of population and choice; see the module's text.
            Name::GetNewDestination => 14.8,
            // Each of the three hours is there half of the time; the other half inserts.
            _ => Name::SUCCESS_PERCENT[name as usize],
        };
        assert!(near(succeeded, percent, EACH), "{name}: {succeeded} of {EACH}, expected {percent}%");
    }
    let untold = verdict(&tatp, &before);
    assert!(!untold.consistent && untold.text.contains("by what the clients were told"), "{}", untold.text);
    tatp.retire(client);
    let told = verdict(&tatp, &before);
    assert!(told.consistent, "{}", told.text);
    assert_ne!(tatp.audit().unwrap().totals, before.totals);
}

#[test]
fn blocking_clients_and_tickets_are_counted_by_type() {
    let database = database();
    let tatp = tatp(&database, even());
    let before = tatp.audit().unwrap();
    let mut client = tatp.client(0, 1);
    let (mut done, mut aborted) = ([0; Name::COUNT], 0);
    for number in 0..3_000 {
        let outcome = match number % 2 {
            0 => tatp.run_one(&mut client, Instant::now()),
            _ => tatp
                .submit_one(&mut client, Instant::now())
                .and_then(|(name, ticket)| tatp.settle(&mut client, ticket.wait()).map(|()| name)),
        };
        match outcome {
            Ok(name) => done[name] += 1,
            Err(Error::Aborted { .. }) => aborted += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(done.iter().all(|count| *count > 20) && aborted > 700, "{done:?}, {aborted}");
    let accounts = database.metrics().procedures;
    for name in Name::ALL {
        let account = accounts.iter().find(|account| account.name == name.as_str()).unwrap();
        assert_eq!(account.committed, done[name as usize], "{name}");
    }
    let by_themselves: u64 = accounts.iter().map(|account| account.aborted).sum();
    assert_eq!(by_themselves, aborted);
    tatp.retire(client);
    let told = verdict(&tatp, &before);
    assert!(told.consistent, "{}", told.text);
}

/// Clients at the same time, and then the verdict.
fn meet(tatp: &Tatp, each: u32) -> Verdict {
    let before = tatp.audit().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let mut client = tatp.client(number, 7);
                for _ in 0..each {
                    match tatp.run_one(&mut client, Instant::now()) {
                        Ok(_) | Err(Error::Aborted { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                tatp.retire(client);
            });
        }
    });
    verdict(tatp, &before)
}

#[test]
fn clients_that_meet_lose_nothing_and_never_deadlock() {
    let database = database();
    let verdict = meet(&tatp(&database, even()), 2_000);
    assert!(verdict.consistent, "{}", verdict.text);
    assert_eq!(database.metrics().aborted_deadlock, 0, "tables are visited in one order");
}

/// A transaction that finds a subscriber to change it locks it so at once: two that share it could not go on.
#[test]
fn clients_that_change_one_subscriber_never_deadlock() {
    let database = database();
    let one = Shape { subscribers: 1 };
    let opened =
        Tatp::open_or_load(&database, Residence::Memory, one, Mix::only(Name::UpdateLocation), &mut |_| ());
    let verdict = meet(&opened.unwrap().0, 2_000);
    assert!(verdict.consistent, "{}", verdict.text);
    assert_eq!(database.metrics().aborted_deadlock, 0);
}

/// A row's column is made another.
fn set(database: &Database, table: &str, key: &[Value], column: usize, value: Value) -> Value {
    let table = database.table(table).unwrap();
    let mut before = Value::Null;
    let found = database.transact(|transaction| {
        transaction.modify(&table, key, |fields| {
            before = fields.get(column);
            fields.set(column, &value)
        })
    });
    assert!(found.unwrap(), "{key:?} of {}", table.name());
    before
}

#[test]
fn a_column_that_is_changed_outside_of_a_transaction_is_found() {
    let database = database();
    let tatp = tatp(&database, even());
    let before = tatp.audit().unwrap();
    let family = population::Family::of(7);
    let (s_id, ai) = (Value::Int4(7), Value::Int2(family.access[0].ai_type));
    let sf = Value::Int2(family.facilities[0].sf_type);
    let mut of_forwarding = None;
    let table = database.table(tables::CALL_FORWARDING).unwrap();
    let mut read = |transaction: &mut rialto::Transaction| {
        transaction.scan(&table, &Scan::all(), |_, row| {
            of_forwarding = Some(row.values());
            Ok(ControlFlow::Break(()))
        })
    };
    database.read(&mut read).unwrap();
    let of_forwarding = of_forwarding.unwrap();
    let keys = [
        (tables::SUBSCRIBER, vec![s_id.clone()], tables::subscriber::COLUMNS),
        (tables::ACCESS_INFO, vec![s_id.clone(), ai], 6),
        (tables::SPECIAL_FACILITY, vec![s_id, sf], 6),
    ];
    for (table, key, columns) in keys {
        for column in key.len()..columns {
            let now = database
                .read(|transaction| {
                    let handle = transaction.table(table)?;
                    transaction.get(&handle, &key[..])
                })
                .unwrap()
                .unwrap()
                .values();
            let other = match &now[column] {
                Value::Bool(value) => Value::Bool(!value),
                Value::Int2(value) => Value::Int2((value + 1) % 16),
                Value::Int8(value) => Value::Int8(value % 1_000 + 1),
                Value::Text(value) if value.len() == 15 => Value::Text("000000000099999".to_owned()),
                Value::Text(value) => Value::Text("Q".repeat(value.len())),
                other => panic!("{other:?}"),
            };
            assert_ne!(other, now[column]);
            let was = set(&database, table, &key, column, other);
            let damaged = verdict(&tatp, &before);
            assert!(!damaged.consistent, "{table} column {column}: {}", damaged.text);
            set(&database, table, &key, column, was);
            assert!(verdict(&tatp, &before).consistent, "{table} column {column}");
        }
    }
    let key = &of_forwarding[..3];
    for (column, value, named) in [
        (tables::forwarding::END_TIME, Value::Int2(25), "out of range"),
        (tables::forwarding::END_TIME, Value::Int2(0), "out of range"),
        (tables::forwarding::NUMBER, Value::Text("1".to_owned()), "out of range"),
    ] {
        let was = set(&database, tables::CALL_FORWARDING, key, column, value);
        let damaged = verdict(&tatp, &before);
        assert!(!damaged.consistent && damaged.text.contains(named), "{}", damaged.text);
        set(&database, tables::CALL_FORWARDING, key, column, was);
    }
    assert!(verdict(&tatp, &before).consistent);
}

#[test]
fn rows_that_are_gone_or_belong_to_nothing_are_found() {
    for table in [tables::SUBSCRIBER, tables::ACCESS_INFO, tables::SPECIAL_FACILITY, tables::CALL_FORWARDING]
    {
        for last in [false, true] {
            let database = database();
            let tatp = tatp(&database, even());
            let before = tatp.audit().unwrap();
            let handle = database.table(table).unwrap();
            let direction = if last { rialto::Direction::Backward } else { rialto::Direction::Forward };
            let scan = Scan { direction, limit: Some(1), ..Scan::all() };
            database
                .transact(|transaction| {
                    let mut key = None;
                    transaction.scan(&handle, &scan, |found, _| {
                        key = Some(found.clone());
                        Ok(ControlFlow::Break(()))
                    })?;
                    transaction.delete_at(&handle, &key.unwrap())
                })
                .unwrap();
            let gone = verdict(&tatp, &before);
            assert!(!gone.consistent, "{table}: {}", gone.text);
        }
    }
    let database = database();
    let tatp = tatp(&database, even());
    let before = tatp.audit().unwrap();
    let orphan = (1..).map(population::Family::of).find(|family| !family.has(1)).unwrap();
    let forwarding = request::Forwarding { sf_type: 1, start_time: 0, end_time: 5, numberx: Number::of(1) };
    let row = tables::forwarding_row(orphan.s_id, &forwarding);
    database.transact(|transaction| transaction.insert_borrowed(&tatp.tables.call_forwarding, &row)).unwrap();
    let orphaned = verdict(&tatp, &before);
    assert!(!orphaned.consistent && orphaned.text.contains("of no special facility"), "{}", orphaned.text);
}

#[test]
fn a_lost_or_doubled_transaction_of_each_kind_is_found() {
    for name in Name::ALL.into_iter().filter(|name| !name.only_reads()) {
        let database = database();
        let tatp = tatp(&database, Mix::only(name));
        let before = tatp.audit().unwrap();
        let mut client = tatp.client(0, 1);
        (0..50).for_each(|_| _ = tatp.run_one(&mut client, Instant::now()));
        tatp.retire(client);
        assert!(verdict(&tatp, &before).consistent, "{name}");
        // Untold, until it has changed something.
        let mut untold = tatp.client(0, 2);
        while untold.done == Totals::default() {
            _ = tatp.run_one(&mut untold, Instant::now());
        }
        let doubled = verdict(&tatp, &before);
        assert!(
            !doubled.consistent && doubled.text.contains("clients were told"),
            "{name}: {}",
            doubled.text
        );
        let done = untold.done;
        tatp.retire(untold);
        assert!(verdict(&tatp, &before).consistent, "{name}");
        // Told once more than it ran.
        tatp.done.lock().unwrap().add(&done);
        assert!(!verdict(&tatp, &before).consistent, "{name}");
    }
}

/// All rows of all tables.
fn rows(database: &Database) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for table in [tables::SUBSCRIBER, tables::ACCESS_INFO, tables::SPECIAL_FACILITY, tables::CALL_FORWARDING]
    {
        let table = database.table(table).unwrap();
        let mut of_table = Vec::new();
        database
            .read(|transaction| {
                of_table.clear();
                transaction.scan(&table, &Scan::all(), |_, row| {
                    of_table.push(row.bytes().to_vec());
                    Ok(ControlFlow::Continue(()))
                })
            })
            .unwrap();
        rows.append(&mut of_table);
    }
    rows
}

#[test]
fn registered_procedures_do_and_say_the_same() {
    let own = database();
    let options = Options {
        memory_bytes: 64 << 20,
        procedures: procedures(),
        check_determinism: true,
        ..Options::default()
    };
    let called = Database::open_on(MemoryDisk::new(), options).unwrap();
    let (tatp, by_calls) = (tatp(&own, even()), tatp(&called, even()).by_calls(true));
    let mut random = Random::new(11);
    let (mut client, mut caller) = (tatp.client(0, 1), by_calls.client(0, 1));
    let mut aborted = 0;
    for number in 0..2_000 {
        let request = Request::draw(even().draw(&mut random), SHAPE, &mut random);
        let direct = tatp.run(&request, &mut client);
        assert_eq!(by_calls.run(&request, &mut caller), direct, "{number}: {request:?}");
        aborted += u32::from(direct.is_err());
        if let Request::GetSubscriberData { s_id } = request {
            let outputs = called.call(request.name().as_str(), &[Value::Int4(s_id)]).unwrap();
            assert_eq!(outputs, [Value::Bytes(client.row.bytes().to_vec())]);
        }
    }
    assert!((400..1_400).contains(&aborted), "{aborted}");
    assert_eq!(client.done, caller.done);
    assert!(rows(&own) == rows(&called));
    for (request, named) in [
        ("UpdateLocation", "\"7\" is no number of 15 digits"),
        ("DeleteCallForwarding", "\"7\" is no number of 15 digits"),
    ] {
        let arguments = match request {
            "UpdateLocation" => vec![Value::Text("7".to_owned()), Value::Int8(1)],
            _ => vec![Value::Text("7".to_owned()), Value::Int2(1), Value::Int2(0)],
        };
        let refused = called.call(request, &arguments).unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
}

/// An engine that routes actions finds the subscriber in each of them.
#[test]
fn actions_are_identified_by_the_subscriber_first() {
    for procedure in procedures() {
        assert!(procedure.deterministic, "{}", procedure.name);
        let of_number = procedure.arguments[0] == rialto::row::ColumnType::Text;
        for (phase, actions) in procedure.flow.phases().iter().enumerate() {
            for action in actions {
                let (first, named) = (action.identifier()[0], &procedure.name);
                assert_eq!(action.index().is_some(), of_number && phase == 0, "{named}");
                match of_number && phase > 0 {
                    true => assert!(matches!(first, IdentifierPart::Output(0)), "{named}"),
                    false => assert!(matches!(first, IdentifierPart::Argument(0)), "{named}"),
                }
            }
        }
        let writes = procedure.flow.phases().iter().flatten().any(|it| it.mode() == ActionMode::Exclusive);
        let name = Name::ALL.into_iter().find(|name| name.as_str() == procedure.name).unwrap();
        assert_eq!(writes, !name.only_reads(), "{name}");
    }
}

#[test]
fn what_there_is_not_is_named_and_nothing_is_changed() {
    let database = database();
    let tatp = tatp(&database, even());
    let before = rows(&database);
    let mut client = tatp.client(0, 1);
    let lacking = (1..).map(population::Family::of).find(|family| !family.has(1)).unwrap();
    let forwarding = request::Forwarding { sf_type: 1, start_time: 0, end_time: 5, numberx: Number::of(1) };
    let there = (1..).map(population::Family::of).find(|family| !family.forwardings.is_empty()).unwrap();
    for (request, named) in [
        (Request::GetSubscriberData { s_id: 151 }, "there is no subscriber 151"),
        (Request::UpdateLocation { sub_nbr: Number::of(0), vlr_location: 1 }, "with number 000000000000000"),
        (
            Request::UpdateSubscriberData { s_id: lacking.s_id, sf_type: 1, bit: true, data_a: 1 },
            "there is no such special facility",
        ),
        (
            Request::InsertCallForwarding { sub_nbr: Number::of(lacking.s_id), forwarding },
            "there is no such special facility",
        ),
        (
            Request::InsertCallForwarding {
                sub_nbr: Number::of(there.s_id),
                forwarding: there.forwardings[0],
            },
            "there is a call forwarding from this hour on",
        ),
        (
            Request::DeleteCallForwarding { sub_nbr: Number::of(lacking.s_id), sf_type: 1, start_time: 0 },
            "there is no call forwarding",
        ),
    ] {
        let refused = tatp.run(&request, &mut client).unwrap_err();
        assert!(
            matches!(&refused, Error::Aborted { .. }) && refused.to_string().contains(named),
            "{request:?}: {refused}"
        );
    }
    assert!(rows(&database) == before);
}

#[test]
fn a_population_is_used_again_and_anything_else_is_refused() {
    let database = database();
    tatp(&database, even());
    let open = |shape| Tatp::open_or_load(&database, Residence::Memory, shape, Mix::default(), &mut |_| ());
    assert!(open(SHAPE).unwrap().1);
    let refused = |shape| match open(shape) {
        Err(ShapeError::OtherShape { found, expected }) => (found, expected),
        other => panic!("{other:?}"),
    };
    let (found, expected) = refused(Shape { subscribers: 151 });
    assert!(
        found.contains("population of 150 subscribers") && expected.contains("one of 151"),
        "{found}, {expected}"
    );
    database
        .transact(|transaction| {
            transaction.drop_index("subscriber_sub_nbr")?;
            transaction.create_index("subscriber", "by_location", &["vlr_location"], false)?;
            transaction.create_index("subscriber", "subscriber_sub_nbr", &["sub_nbr"], true)
        })
        .unwrap();
    let (found, _) = refused(SHAPE);
    assert!(found.contains("another index before"), "{found}");
    database.transact(|transaction| transaction.drop_table("call_forwarding")).unwrap();
    let (found, _) = refused(SHAPE);
    assert!(found.contains("other tables (access_info, special_facility"), "{found}");
}

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use rialto::io::MemoryDisk;
use rialto::row::RowView;
use rialto::{ActionMode, Engine, Options, Residence, Scan, Table, Transaction};
use rialto_measure::driver::Pending;

use super::lines::Line;
use super::tables::{DISTRICTS, customer, district, history, new_order, order, order_line, stock, warehouse};
use super::*;

const SHAPE: Shape = Shape { warehouses: 2, items: 200, customers: 30 };

fn options() -> Options {
    Options { memory_bytes: 128 << 20, ..Options::default() }
}

fn open_with(options: Options) -> Tpcc {
    let database = Database::open_on(MemoryDisk::new(), options).unwrap();
    Tpcc::open_or_load(&database, Residence::Memory, SHAPE, Mix::default(), &mut |_| ()).unwrap().0
}

fn open() -> Tpcc {
    open_with(options())
}

impl Tpcc {
    fn call(&self, name: Name, arguments: &[Value]) -> Result<Vec<Value>> {
        self.database.call_with(&self.options[name as usize], name.as_str(), arguments)
    }

    /// All rows of a table, by what is taken of each.
    fn rows<T>(&self, table: &Table, take: impl Fn(RowView<'_>) -> T) -> Vec<T> {
        let read = |transaction: &mut Transaction| {
            let mut rows = Vec::new();
            transaction.scan(table, &Scan::all(), |_, row| {
                rows.push(take(row));
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(rows)
        };
        self.database.read(read).unwrap()
    }

    fn judged(&self, before: &Audit) -> Verdict {
        self.verdict(before, &self.audit().unwrap(), 0..=0)
    }
}

fn int4(row: RowView<'_>, column: usize) -> i32 {
    row.get_i32(column).unwrap()
}

/// A warehouse or district.
fn int2(row: RowView<'_>, column: usize) -> i32 {
    i32::from(row.get_i16(column).unwrap())
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

const NOW: Value = Value::Timestamp(1_000_000);

/// The arguments of a new order of the first customer of district 1 of warehouse 1.
fn new_order_of(lines: &[(i32, i16, u8)]) -> Vec<Value> {
    let mut bytes = Vec::new();
    for &(item, supply_warehouse, quantity) in lines {
        Line { item, supply_warehouse, quantity }.append_to(&mut bytes);
    }
    vec![Value::Int2(1), Value::Int2(1), Value::Int4(1), NOW, Value::Bytes(bytes)]
}

#[test]
fn the_population_is_the_specifications() {
    let tpcc = open();
    let Shape { warehouses, items, customers } = SHAPE;
    let districts = warehouses * DISTRICTS;
    let count = |table| tpcc.rows(table, |_| ()).len() as u32;
    let tables = &tpcc.tables;
    assert_eq!((count(&tables.warehouse), count(&tables.district)), (warehouses, districts));
    assert_eq!((count(&tables.item), count(&tables.stock)), (items, warehouses * items));
    for table in [&tables.customer, &tables.history, &tables.orders] {
        assert_eq!(count(table), districts * customers, "{}", table.name());
    }
    // 900 of 3000.
    assert_eq!(count(&tables.new_order), districts * customers * 3 / 10);
    let audit = tpcc.audit().unwrap();
    assert!(tpcc.judged(&audit).consistent);
    assert_eq!(audit.done.delivered, i64::from(districts * customers * 7 / 10));
    assert!(audit.districts.iter().all(|of| (150..=450).contains(&of.lines) && of.next_order == 31));

    // The orders of a district are of its customers in a random order, each once.
    let of_first = |row: RowView<'_>| (int2(row, 0), int2(row, 1)) == (1, 1);
    let ordered = tpcc.rows(&tables.orders, |row| of_first(row).then(|| int4(row, order::CUSTOMER)));
    let ordered: Vec<i32> = ordered.into_iter().flatten().collect();
    assert!(ordered.iter().copied().collect::<BTreeSet<_>>().into_iter().eq(1..=30));
    assert!(!ordered.is_sorted());
    // Undelivered lines have an amount and no date.
    let lines = tpcc.rows(&tables.order_line, |row| {
        (int4(row, 2) <= 21, row.is_null(order_line::DELIVERY_DATE), int4(row, order_line::AMOUNT) == 0)
    });
    assert!(lines.iter().all(|&(delivered, undated, free)| (delivered, delivered) == (!undated, free)));
    // The first thousand customers have the first last names, in order.
    let names = tpcc.rows(&tables.customer, |row| row.get_str(customer::LAST).unwrap().to_owned());
    assert!((0..30).all(|number| names[number] == random::last_name(number as u32)));
    let bad = tpcc.rows(&tables.customer, |row| row.get_str(customer::CREDIT).unwrap() == "BC");
    let bad = bad.into_iter().filter(|bad| *bad).count();
    assert!((30..100).contains(&bad), "{bad} of 600 customers have bad credit, expected a tenth");
    let ytd = tpcc.rows(&tables.warehouse, |row| row.get_i64(warehouse::YTD).unwrap());
    assert_eq!(ytd, [300_000; 2]);
}

#[test]
fn a_new_order_takes_stock_here_and_elsewhere_and_its_total_is_taxed() {
    let tpcc = open();
    let stocks =
        |column: usize| tpcc.rows(&tpcc.tables.stock, |row| (int2(row, 0), int4(row, 1), int4(row, column)));
    let before = stocks(stock::QUANTITY);
    let lines = [(7, 1, 3), (8, 2, 10), (7, 1, 1), (200, 1, 5)];
    let outputs = tpcc.call(Name::NewOrder, &new_order_of(&lines)).unwrap();
    let [tax, district_tax, number, discount] = [0, 1, 2, 3].map(|at| match outputs[at] {
        Value::Int4(value) => i64::from(value),
        ref other => panic!("{other:?}"),
    });
    assert_eq!(number, 31);
    let prices = tpcc.rows(&tpcc.tables.item, |row| i64::from(int4(row, 2)));
    let sum: i64 = lines.iter().map(|line| prices[line.0 as usize - 1] * i64::from(line.2)).sum();
    let total = sum * (10_000 - discount) * (10_000 + tax + district_tax) / 100_000_000;
    assert_eq!(outputs.last(), Some(&Value::Int8(total)));

    let changed = |column, expected: &[(i32, i32, i32)]| {
        let found: Vec<_> = stocks(column).into_iter().filter(|(.., value)| *value != 0).collect();
        assert_eq!(found, expected, "column {column}");
    };
    changed(stock::YTD, &[(1, 7, 4), (1, 200, 5), (2, 8, 10)]);
    changed(stock::ORDER_CNT, &[(1, 7, 2), (1, 200, 1), (2, 8, 1)]);
    changed(stock::REMOTE_CNT, &[(2, 8, 1)]);
    for (before, after) in before.into_iter().zip(stocks(stock::QUANTITY)) {
        let ordered: Vec<i32> = lines
            .iter()
            .filter(|line| (i32::from(line.1), line.0) == (before.0, before.1))
            .map(|line| i32::from(line.2))
            .collect();
        let left = ordered.iter().fold(before.2, |left, ordered| match left - ordered {
            left if left >= 10 => left,
            left => left + 91,
        });
        assert_eq!(after, (before.0, before.1, left));
    }
    let entered = tpcc.rows(&tpcc.tables.order_line, |row| {
        let info = row.get_str(9).unwrap().to_owned();
        (int4(row, 2), int4(row, 4), row.get_i16(5).unwrap(), row.get_i16(7).unwrap(), int4(row, 8), info)
    });
    let infos = tpcc.rows(&tpcc.tables.stock, |row| row.get_str(stock::DISTRICT_1).unwrap().to_owned());
    let entered: Vec<_> = entered.into_iter().filter(|line| line.0 == 31).collect();
    assert_eq!(entered.len(), lines.len());
    for (line, entered) in lines.iter().zip(entered) {
        let amount = prices[line.0 as usize - 1] as i32 * i32::from(line.2);
        let info = infos[(line.1 as usize - 1) * 200 + line.0 as usize - 1].clone();
        assert_eq!(entered, (31, line.0, line.1, i16::from(line.2), amount, info));
    }
    let local = tpcc.rows(&tpcc.tables.orders, |row| (int4(row, 2), row.get_i16(7).unwrap()));
    assert!(local.contains(&(31, 0)));

    // What the last order of the customer is.
    let status = [Value::Int2(1), Value::Int2(1), Value::Int4(1), Value::Null];
    let status = tpcc.call(Name::OrderStatus, &status).unwrap();
    assert_eq!((&status[3], &status[5], status.len()), (&Value::Int4(31), &Value::Null, 6 + 5 * lines.len()));
}

#[test]
fn an_order_of_an_item_that_there_is_not_leaves_nothing() {
    let tpcc = open();
    let before = tpcc.audit().unwrap();
    let refused = tpcc.call(Name::NewOrder, &new_order_of(&[(1, 1, 1), (2, 2, 1), (201, 1, 1)]));
    assert_eq!(refused, Err(Error::aborted(INVALID_ITEM)));
    assert_eq!(tpcc.audit().unwrap(), before);
    assert!(tpcc.rows(&tpcc.tables.stock, |row| int4(row, stock::YTD)).into_iter().all(|ytd| ytd == 0));
    let mut malformed = new_order_of(&[]);
    assert!(
        matches!(tpcc.call(Name::NewOrder, &malformed), Err(Error::Aborted { reason }) if reason.contains("0 bytes"))
    );
    malformed[4] = Value::Null;
    assert!(tpcc.call(Name::NewOrder, &malformed).is_err());
    assert_eq!(tpcc.audit().unwrap(), before);
}

#[test]
fn a_payment_by_name_is_of_the_customer_in_the_middle() {
    let tpcc = open();
    // Three of one name, whose first names are told apart.
    tpcc.database
        .transact(|transaction| {
            for (number, first) in [(4, "c"), (9, "a"), (11, "b"), (12, "d")] {
                let changes = [(customer::LAST, text("SAME")), (customer::FIRST, text(first))];
                assert!(transaction.update(&tpcc.tables.customer, (2_i16, 3_i16, number), &changes)?);
            }
            Ok(())
        })
        .unwrap();
    let of = |customer: Value, last: Value| {
        let [home, place] = [[1, 1], [2, 3]].map(|pair| pair.map(Value::Int2));
        let cents = Value::Int4(12_345);
        [home.to_vec(), place.to_vec(), vec![customer, last, cents, NOW]].concat()
    };
    let balances = || {
        let all = tpcc.rows(&tpcc.tables.customer, |row| {
            (
                int2(row, 0),
                int2(row, 1),
                int4(row, 2),
                row.get_i64(customer::BALANCE).unwrap(),
                int4(row, customer::PAYMENT_CNT),
            )
        });
        all.into_iter().filter(|row| row.4 != 1).collect::<Vec<_>>()
    };
    // Of a, b, c and d it is b: four halves are two.
    let outputs = tpcc.call(Name::Payment, &of(Value::Null, text("SAME"))).unwrap();
    assert_eq!(outputs[4], Value::Int4(11));
    assert_eq!(balances(), [(2, 3, 11, -1_000 - 12_345, 2)]);
    tpcc.call(Name::Payment, &of(Value::Int4(12), Value::Null)).unwrap();
    assert_eq!(balances(), [(2, 3, 11, -13_345, 2), (2, 3, 12, -13_345, 2)]);
    let ytd = tpcc.rows(&tpcc.tables.district, |row| row.get_i64(district::YTD).unwrap());
    assert_eq!((ytd[0], ytd[12]), (30_000 + 2 * 12_345, 30_000));
    let paid = tpcc.rows(&tpcc.tables.history, |row| {
        let data = row.get_str(7).unwrap().to_owned();
        (
            int2(row, 0),
            int2(row, 1),
            int2(row, 2),
            int2(row, 3),
            int4(row, 4),
            int4(row, history::AMOUNT),
            data,
        )
    });
    let names =
        |table: &Table, column: usize| tpcc.rows(table, |row| row.get_str(column).unwrap().to_owned());
    let (warehouses, districts) =
        (names(&tpcc.tables.warehouse, warehouse::NAME), names(&tpcc.tables.district, district::NAME));
    let data = format!("{}    {}", warehouses[0], districts[0]);
    assert_eq!(
        paid[paid.len() - 2..],
        [(1, 1, 2, 3, 11, 12_345, data.clone()), (1, 1, 2, 3, 12, 12_345, data)]
    );
    let nobody = tpcc.call(Name::Payment, &of(Value::Null, text("NOBODY")));
    assert!(matches!(nobody, Err(Error::Aborted { reason }) if reason.contains("no customer named NOBODY")));

    // One of bad credit keeps a note, in front of what is there.
    let set = |credit: &str| {
        let changes = [(customer::CREDIT, text(credit)), (customer::DATA, text(&"x".repeat(490)))];
        let table = &tpcc.tables.customer;
        assert!(
            tpcc.database
                .transact(|transaction| transaction.update(table, (2_i16, 3_i16, 5), &changes))
                .unwrap()
        );
    };
    for (credit, expected) in
        [("GC", "x".repeat(490)), ("BC", format!("5 3 2 1 1 123.45 {}", "x".repeat(483)))]
    {
        set(credit);
        let outputs = tpcc.call(Name::Payment, &of(Value::Int4(5), Value::Null)).unwrap();
        let shown = if credit == "BC" { text(&expected[..200]) } else { Value::Null };
        assert_eq!(outputs.last(), Some(&shown));
        let data = tpcc.rows(&tpcc.tables.customer, |row| row.get_str(customer::DATA).unwrap().to_owned());
        assert_eq!(data[12 * 30 + 4], expected);
    }
}

#[test]
fn a_delivery_takes_the_oldest_order_of_each_district_once() {
    let tpcc = open();
    let arguments = [Value::Int2(2), Value::Int4(7), NOW];
    // One district has no new order left.
    tpcc.database
        .transact(|transaction| {
            (22..=30).try_for_each(|number| {
                transaction.delete(&tpcc.tables.new_order, (2_i16, 4_i16, number)).map(drop)
            })
        })
        .unwrap();
    let balances = || tpcc.rows(&tpcc.tables.customer, |row| row.get_i64(customer::BALANCE).unwrap());
    let before: i64 = balances().iter().sum();
    let amounts = || {
        let lines = tpcc.rows(&tpcc.tables.order_line, |row| {
            let is_it = (int2(row, 0), int4(row, 2)) == (2, 22) && int2(row, 1) != 4;
            is_it.then(|| (int4(row, order_line::AMOUNT), row.get(order_line::DELIVERY_DATE)))
        });
        lines.into_iter().flatten().collect::<Vec<_>>()
    };
    assert!(amounts().iter().all(|(_, date)| date.is_null()));
    let outputs = tpcc.call(Name::Delivery, &arguments).unwrap();
    assert_eq!(flows::delivery::delivered(&outputs), Ok(9));
    assert_eq!((&outputs[0], &outputs[3]), (&Value::Int4(22), &Value::Null));
    assert!(amounts().iter().all(|(_, date)| *date == NOW));
    let sum: i64 = amounts().iter().map(|(cents, _)| i64::from(*cents)).sum();
    assert_eq!(balances().iter().sum::<i64>(), before + sum);
    let delivered = tpcc.rows(&tpcc.tables.orders, |row| {
        (int2(row, order::WAREHOUSE), int4(row, order::ID), row.get(order::CARRIER) == Value::Int2(7))
    });
    assert_eq!(delivered.iter().filter(|order| (order.0, order.1, order.2) == (2, 22, true)).count(), 9);
    let counted = tpcc.rows(&tpcc.tables.customer, |row| int4(row, customer::DELIVERY_CNT));
    assert_eq!(counted.iter().sum::<i32>(), 9);
    let outputs = tpcc.call(Name::Delivery, &arguments).unwrap();
    assert_eq!(outputs[0], Value::Int4(23));
    let first = tpcc.rows(&tpcc.tables.new_order, |row| {
        [int2(row, new_order::WAREHOUSE), int2(row, new_order::DISTRICT), int4(row, new_order::ORDER)]
    });
    assert_eq!(first.into_iter().find(|row| row[0] == 2), Some([2, 1, 24]));
}

#[test]
fn a_stock_level_counts_each_low_item_of_the_last_twenty_orders_once() {
    let tpcc = open();
    let lines = tpcc.rows(&tpcc.tables.order_line, |row| {
        ((int2(row, 0), int2(row, 1)) == (1, 2) && int4(row, 2) > 10).then(|| int4(row, order_line::ITEM))
    });
    let sold: BTreeSet<i32> = lines.into_iter().flatten().collect();
    let stocks =
        tpcc.rows(&tpcc.tables.stock, |row| (int2(row, 0), int4(row, 1), int4(row, stock::QUANTITY)));
    for threshold in [10, 15, 20, 60, 101] {
        let low =
            stocks.iter().filter(|stock| stock.0 == 1 && sold.contains(&stock.1) && stock.2 < threshold);
        let outputs =
            tpcc.call(Name::StockLevel, &[Value::Int2(1), Value::Int2(2), Value::Int4(threshold)]).unwrap();
        assert_eq!(outputs.last(), Some(&Value::Int4(low.count() as i32)), "below {threshold}");
        assert_eq!(outputs.len(), sold.len() + 2);
    }
}

#[test]
fn clients_leave_the_warehouses_consistent_with_locks_of_any_form() {
    for engine in Engine::ALL {
        let tpcc = open_with(Options { engine, ..options() });
        let before = tpcc.audit().unwrap();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let tpcc = &tpcc;
                scope.spawn(move || {
                    let mut client = tpcc.client(number, 1);
                    let mut aborted = 0;
                    for transaction in 0..400 {
                        let ran = match transaction % 2 {
                            0 => tpcc.run_one(&mut client, Instant::now()).map(drop),
                            _ => {
                                let (_, ticket) = tpcc.submit_one(&mut client, Instant::now()).unwrap();
                                tpcc.settle(&mut client, ticket.wait())
                            }
                        };
                        match ran {
                            Ok(()) => {}
                            Err(Error::Aborted { reason }) if reason == INVALID_ITEM => aborted += 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    assert!(
                        aborted < 20,
                        "{aborted} of about 180 new orders were rolled back, expected one of a hundred"
                    );
                    tpcc.retire(client);
                });
            }
        });
        let verdict = tpcc.judged(&before);
        assert!(verdict.consistent, "{}", verdict.text);
        let done = *tpcc.done.lock().unwrap();
        assert!(done.orders > 500 && done.payments > 500 && done.delivered > 200, "{done:?}");
    }
}

#[test]
fn a_row_that_is_missing_ends_a_run() {
    let tpcc = open();
    let delete = |transaction: &mut Transaction| transaction.delete(&tpcc.tables.warehouse, 1_i16);
    assert!(tpcc.database.transact(delete).unwrap());
    let mut client = tpcc.client(0, 1);
    let ended = (0..100).find_map(|_| match tpcc.run_one(&mut client, Instant::now()) {
        Ok(_) | Err(Error::Aborted { .. }) => None,
        Err(error) => Some(error.to_string()),
    });
    let ended = ended.expect("a warehouse is missing");
    assert!(ended.contains("row 1 of table \"warehouse\" is missing"), "{ended}");
}

#[test]
fn the_five_are_deterministic() {
    let tpcc = open_with(Options { check_determinism: true, ..options() });
    let mut client = tpcc.client(0, 5);
    for _ in 0..300 {
        match tpcc.run_one(&mut client, Instant::now()) {
            Ok(_) | Err(Error::Aborted { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Damages the tables by `damage`, and gives what is said of it.
fn damaged(damage: impl Fn(&Tables, &mut Transaction) -> Result<bool>) -> String {
    let tpcc = open();
    let before = tpcc.audit().unwrap();
    assert!(tpcc.judged(&before).consistent);
    assert!(tpcc.database.transact(|transaction| damage(&tpcc.tables, transaction)).unwrap());
    let verdict = tpcc.judged(&before);
    assert!(!verdict.consistent, "{}", verdict.text);
    verdict.text
}

#[test]
fn each_condition_sees_what_violates_it() {
    let add = |table: fn(&Tables) -> &Table, key: (i16, i16), column: usize| {
        damaged(|tables, transaction| {
            transaction.modify(table(tables), key, |fields| fields.add(column, 1).map(drop))
        })
    };
    let ytd = add(|tables| &tables.district, (2, 3), district::YTD);
    assert!(ytd.contains("condition 1: warehouse 2 has W_YTD 300000, its districts 300001"), "{ytd}");
    let next = add(|tables| &tables.district, (2, 3), district::NEXT_O_ID);
    assert!(
        next.contains("condition 2: district 3 of warehouse 2 has D_NEXT_O_ID 32, its last order is 30"),
        "{next}"
    );
    let last = damaged(|tables, transaction| transaction.delete(&tables.new_order, (1_i16, 10_i16, 30)));
    assert!(
        last.contains("condition 2: district 10 of warehouse 1 has D_NEXT_O_ID 31, its last new order is 29"),
        "{last}"
    );
    let gap = damaged(|tables, transaction| transaction.delete(&tables.new_order, (1_i16, 4_i16, 25)));
    assert!(
        gap.contains("condition 3: district 4 of warehouse 1 has 8 new orders from 22 to 30, expected 9"),
        "{gap}"
    );
    let line =
        damaged(|tables, transaction| transaction.delete(&tables.order_line, (1_i16, 1_i16, 1, 1_i16)));
    assert!(line.contains("condition 4: district 1 of warehouse 1 has"), "{line}");
    let paid = damaged(|tables, transaction| {
        let row = [1, 1, 1, 1].map(Value::Int2).to_vec();
        let row = [row, vec![Value::Int4(1), NOW, Value::Int4(0), text("")]].concat();
        transaction.insert(&tables.history, &row).map(|()| true)
    });
    assert!(paid.contains("payments, by what the clients were told: 601, expected 600"), "{paid}");
    let all = damaged(|tables, transaction| {
        (1..=9).try_for_each(|number| transaction.delete(&tables.district, (1_i16, number)).map(drop))?;
        Ok(true)
    });
    assert!(all.contains("condition 2: district 1") && all.contains(", and 15 more"), "{all}");
}

#[test]
fn every_flow_visits_a_class_of_tables_in_one_phase() {
    let classes = [
        &["warehouse", "district", "customer", "item", "stock"][..],
        &["new_order", "orders", "order_line", "history"],
    ];
    for procedure in procedures() {
        let phases = procedure.flow.phases();
        let mut begins_after = None;
        for class in classes {
            let visits = |phase: usize| -> Vec<(&str, ActionMode, usize)> {
                let of_class = phases[phase].iter().filter(|action| class.contains(&action.table().unwrap()));
                of_class
                    .map(|action| (action.table().unwrap(), action.mode(), action.identifier().len()))
                    .collect()
            };
            let Some(first) = (0..phases.len()).find(|phase| !visits(*phase).is_empty()) else { continue };
            assert!(begins_after.is_none_or(|before| first > before), "{}: {class:?}", procedure.name);
            begins_after = Some(first);
            for (table, mode, parts) in (first + 1..phases.len()).flat_map(visits) {
                // Identifiers begin alike: fewer parts are more rows.
                let is_claimed = visits(first).into_iter().any(|(claimed, claimed_mode, claimed_parts)| {
                    claimed == table
                        && claimed_parts <= parts
                        && (claimed_mode == mode || claimed_mode == ActionMode::Exclusive)
                });
                assert!(is_claimed, "{} visits {table} later than its class", procedure.name);
            }
        }
    }
}

#[test]
fn warehouses_are_used_again_and_anything_else_is_refused() {
    let tpcc = open();
    let again =
        |shape| Tpcc::open_or_load(&tpcc.database, Residence::Memory, shape, Mix::default(), &mut |_| ());
    assert!(again(SHAPE).unwrap().1);
    match again(Shape { items: 300, ..SHAPE }) {
        Err(ShapeError::OtherShape { found, expected }) => {
            assert!(found.contains("2 warehouses, 200 items, 30 customers a district"), "{found}");
            assert!(
                expected.contains("300 items") && expected.contains("not the specification's"),
                "{expected}"
            );
        }
        other => panic!("{other:?}"),
    }
}

use rialto::io::MemoryDisk;
use rialto::{Database, Options, Residence};
use rialto_measure::driver::Pending;

use super::*;
use crate::data::ShapeError;

const SHAPE: Shape = Shape { branches: 3, accounts: 100 };

fn database() -> Database {
    Database::open_on(MemoryDisk::new(), Options { memory_bytes: 64 << 20, ..Options::default() }).unwrap()
}

fn bank(database: &Database) -> Tpcb {
    Tpcb::open_or_load(database, Residence::Memory, SHAPE, &mut |_| ()).unwrap().0
}

#[test]
fn a_movement_stays_in_the_bank_and_is_mostly_local() {
    let mut random = Random::new(3);
    let (mut local, mut seen) = (0, [false; 100]);
    for _ in 0..20_000 {
        let movement = Movement::draw(&SHAPE, &mut random);
        assert!((0..30).contains(&movement.teller) && movement.branch == movement.teller / 10);
        assert!((-999_999..=999_999).contains(&movement.delta));
        local += u32::from(SHAPE.accounts_of(movement.branch as u32).contains(&(movement.account as u32)));
        seen[movement.account as usize] = true;
    }
    assert!((16_700..17_300).contains(&local), "{local} of 20000 local, expected 85 of 100");
    assert!(seen.iter().all(|seen| *seen));
    let one = Shape { branches: 1, accounts: 5 };
    (0..100).for_each(|_| assert!(Movement::draw(&one, &mut random).account < 5));
}

#[test]
fn transactions_keep_the_bank_consistent() {
    let database = database();
    let bank = bank(&database);
    let mut client = bank.client(0, 1);
    for number in 0..200 {
        match number % 2 {
            0 => bank.run_one(&mut client, Instant::now()).map(drop).unwrap(),
            _ => {
                let answer = bank.submit_one(&mut client, Instant::now()).unwrap().1.wait();
                bank.settle(&mut client, answer).unwrap();
            }
        }
    }
    let audit = bank.audit().unwrap();
    assert_eq!((audit.history_count, audit.accounts_count, audit.tellers_count), (200, 100, 30));
    assert!(audit.accounts != 0);
    let verdict = bank.judge(&audit, 200..=200);
    assert!(verdict.consistent, "{}", verdict.text);
}

#[test]
fn lost_or_invented_money_and_rows_are_found() {
    let database = database();
    let bank = bank(&database);
    let mut client = bank.client(0, 1);
    (0..10).for_each(|_| bank.run_one(&mut client, Instant::now()).map(drop).unwrap());
    let audit = bank.audit().unwrap();
    assert!(bank.judge(&audit, 9..=11).consistent);
    let lost = bank.judge(&audit, 11..=11);
    assert!(!lost.consistent && lost.text.contains("10 rows, expected 11"), "{}", lost.text);
    for (table, column) in [("branches", BRANCH_BALANCE), ("tellers", BALANCE), ("accounts", BALANCE)] {
        let table = database.table(table).unwrap();
        let add = |delta| {
            database
                .transact(|transaction| {
                    transaction.modify(&table, 1, |fields| fields.add_i64(column, delta).map(drop))
                })
                .unwrap()
        };
        assert!(add(1));
        let verdict = bank.judge(&bank.audit().unwrap(), 10..=10);
        assert!(!verdict.consistent, "money in {} came from nowhere", table.name());
        add(-1);
    }
    let history = database.table("history").unwrap();
    let stray = Movement { account: 1, teller: 1, branch: 77, delta: 0 };
    let mut row = HistoryRow::new(history.schema());
    row.set(&stray, 0).unwrap();
    database.transact(|transaction| transaction.insert_row(&history, row.row())).unwrap();
    let verdict = bank.judge(&bank.audit().unwrap(), 11..=11);
    assert!(!verdict.consistent && verdict.text.contains("1 rows name a branch"), "{}", verdict.text);
}

#[test]
fn a_bank_is_used_again_and_anything_else_is_refused() {
    let database = database();
    bank(&database);
    assert!(Tpcb::open_or_load(&database, Residence::Memory, SHAPE, &mut |_| ()).unwrap().1);
    let other = Shape { branches: 4, accounts: 100 };
    match Tpcb::open_or_load(&database, Residence::Memory, other, &mut |_| ()) {
        Err(ShapeError::OtherShape { found, expected }) => {
            assert!(found.contains("3 branches, 30 tellers, 100 accounts"), "{found}");
            assert!(expected.contains("4 branches, 40 tellers, 100 accounts"), "{expected}");
        }
        other => panic!("{other:?}"),
    }
    database.transact(|transaction| transaction.drop_table("history")).unwrap();
    let refused = Tpcb::open_or_load(&database, Residence::Memory, SHAPE, &mut |_| ());
    assert!(matches!(refused, Err(ShapeError::OtherShape { .. })), "{refused:?}");
}

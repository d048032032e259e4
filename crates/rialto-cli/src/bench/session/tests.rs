//! A run is called consistent only if its tables are.

mod meddled;

use rialto::Residence;
use rialto::row::Value;
use rialto_workloads::card::{self, Card};
use rialto_workloads::mix::Mix;
use rialto_workloads::tatp::{self, Tatp};
use serde_json::Value as Json;

use self::meddled::Meddled;
use super::*;

/// The last line of a result that says whether the data is consistent, as it is expected to.
fn judged(outcome: Result<bool, RunError>, out: Vec<u8>, consistent: bool) -> String {
    let text = String::from_utf8(out).unwrap();
    assert_eq!(outcome.unwrap(), consistent, "{text}");
    let json: Json = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(json["consistent"], consistent, "{text}");
    text
}

fn args(line: &str) -> BenchArgs {
    let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
    BenchArgs::read(&line).unwrap()
}

/// Changes a column of the row with this key.
fn change(database: &Database, table: &str, key: i32, column: &str, change: impl Fn(Value) -> Value) {
    let table = database.table(table).unwrap();
    let column = table.schema().columns().iter().position(|one| one.name == column).unwrap();
    let found = database.transact(|transaction| {
        transaction.modify(&table, key, |fields| fields.set(column, &change(fields.get(column))))
    });
    assert!(found.unwrap(), "row {key} of {}", table.name());
}

#[test]
fn a_run_in_which_one_transaction_did_more_than_it_said_is_called_inconsistent() {
    let args = args(
        "card --disk memory --accounts 200 --clients 2 --warmup 0.2 --seconds 0.2 --memory-bytes 100000000 --json",
    );
    let shape = card::Shape { scale: 1, accounts: 200 };
    let even: Mix<card::Name> =
        "BAL=12.5,CCCK=12.5,CLCK=12.5,DEBIT=12.5,PAY=12.5,MOVE=12.5,LOST=12.5,FOUND=12.5".parse().unwrap();
    for (left, consistent) in [(100, false), (u64::MAX, true)] {
        let mut out = Vec::new();
        let outcome = run_on_tables(&args, &mut out, |database, progress| {
            let (card, there) = Card::open_or_load(database, Residence::Memory, shape, even, progress)?;
            let database = database.clone();
            let more = |checks| match checks {
                Value::Int4(checks) => Value::Int4(checks + 1),
                other => panic!("{other:?} is no count"),
            };
            Ok((Meddled::new(card, left, move || change(&database, "stores", 7, "checks", more)), there))
        });
        let text = judged(outcome, out, consistent);
        let is_told = text.contains("NO: checks of cards, by what the clients were told");
        assert_eq!(is_told, !consistent, "{text}");
    }
}

#[test]
fn a_run_in_which_a_row_was_damaged_is_called_inconsistent() {
    let args = args(
        "tatp --disk memory --subscribers 150 --clients 2 --warmup 0.2 --seconds 1 --memory-bytes 100000000 --json",
    );
    let shape = tatp::Shape { subscribers: 150 };
    for (left, consistent) in [(100, false), (u64::MAX, true)] {
        let mut out = Vec::new();
        let outcome = run_on_tables(&args, &mut out, |database, progress| {
            let (tatp, there) =
                Tatp::open_or_load(database, Residence::Memory, shape, Mix::default(), progress)?;
            let database = database.clone();
            let other = |bit| match bit {
                Value::Bool(bit) => Value::Bool(!bit),
                other => panic!("{other:?} is no bit"),
            };
            Ok((Meddled::new(tatp, left, move || change(&database, "subscriber", 7, "bit_2", other)), there))
        });
        let text = judged(outcome, out, consistent);
        assert_eq!(text.contains("subscriber 7, found"), !consistent, "{text}");
        assert!(text.contains("GetAccessData: ") && text.contains("(specified: 62.5%)"), "{text}");
    }
}

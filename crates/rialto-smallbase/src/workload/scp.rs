//! [`Scp`]: requests to a service control point, the paper's intended use (its section 2), which it did not run.
//!
//! A call that needs special processing becomes a request: of an 800 number the number that it stands for is looked up
//! (`translate`, 85 of 100), a credit card call is validated and counted (`validate`, 13). The operations support system
//! installs services (`install`, 2): it changes a subscriber, and the mapping of a number that lies at another node. The
//! paper has no shares but "read-intensive", and "relatively infrequently" for updates.
//!
//! Numbers, cards and subscribers lie in areas; an area lies in one partition, as a branch of TPC-B does.
//!
//! Consistency: the cards have counted as many calls as clients were answered, and the mappings have been changed as often as
//! services were installed, over the whole cluster.

use std::sync::Arc;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Fields, Result, TableDef, Transaction};
use rialto_cluster::node::{Call, Procedure, ProcedureAction, Procedures};

use super::arguments::{bytes, numbers};
use super::{Audit, Drawn, Place, Told, Workload, each, load_rows, missing};
use crate::spec::Data;

/// The types of requests, and how many of 100 are of each.
const KINDS: [&str; 3] = ["translate", "validate", "install"];
const PERCENT: [u64; 3] = [85, 13, 2];
/// Of so many cards one caller gives a wrong number.
const WRONG_PINS: u64 = 100;
/// What a number stands for in the beginning.
const FIRST_ROUTE: i64 = 2_000_000_000;

/// The workload.
pub struct Scp {
    data: Data,
    procedures: [Arc<str>; 3],
}

impl Scp {
    /// With these sizes.
    pub fn new(data: Data) -> Scp {
        Scp { data, procedures: KINDS.map(Arc::from) }
    }
}

/// The personal number of a card.
fn pin_of(card: i64) -> i64 {
    (card * 7_919 + 13) % 10_000
}

/// Looks up what a number stands for.
fn translate(tx: &mut Transaction<'_>, arguments: &[u8]) -> Result<Vec<u8>> {
    let [area, number] = numbers(arguments)?;
    let (table, key) = (tx.table("numbers")?, (area as i32, number as i32));
    let row = tx.get(&table, key)?.ok_or_else(|| missing("numbers", key.0, key.1))?;
    Ok(row.read::<i64>(2)?.to_le_bytes().to_vec())
}

/// Compares the personal number of a card, and counts the call. Gives 1 if it may be made, else 0.
fn validate(tx: &mut Transaction<'_>, arguments: &[u8]) -> Result<Vec<u8>> {
    let [area, card, pin] = numbers(arguments)?;
    let mut is_valid = false;
    change(tx, "cards", (area, card), |row| {
        is_valid = i64::from(row.get_i32(2)?) == pin;
        row.add_i64(if is_valid { 3 } else { 4 }, 1).map(drop)
    })?;
    Ok(vec![u8::from(is_valid)])
}

/// Adds a service to a subscriber.
fn subscribe(tx: &mut Transaction<'_>, arguments: &[u8]) -> Result<Vec<u8>> {
    let [area, subscriber, ..]: [i64; 5] = numbers(arguments)?;
    change(tx, "subscribers", (area, subscriber), |row| row.add_i64(2, 1).map(drop))?;
    Ok(Vec::new())
}

/// Has a number stand for another one.
fn map(tx: &mut Transaction<'_>, arguments: &[u8]) -> Result<Vec<u8>> {
    let [_, _, area, number, route] = numbers(arguments)?;
    change(tx, "numbers", (area, number), |row| {
        row.set_i64(2, route)?;
        row.add_i64(3, 1).map(drop)
    })?;
    Ok(Vec::new())
}

/// Changes a row, which is to be there.
fn change(
    tx: &mut Transaction<'_>,
    name: &'static str,
    (area, number): (i64, i64),
    edit: impl FnMut(&mut Fields<'_>) -> Result<()>,
) -> Result<()> {
    let (table, key) = (tx.table(name)?, (area as i32, number as i32));
    if tx.modify(&table, key, edit)? { Ok(()) } else { Err(missing(name, key.0, key.1)) }
}

impl Workload for Scp {
    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn procedures(&self) -> Procedures {
        let translate = ProcedureAction::reads(|tx, input| translate(tx, input.arguments));
        let validate = ProcedureAction::writes(|tx, input| validate(tx, input.arguments));
        let subscribe = ProcedureAction::writes(|tx, input| subscribe(tx, input.arguments));
        let map = ProcedureAction::writes(|tx, input| map(tx, input.arguments));
        let [translates, validates, installs] = self.procedures.clone();
        Procedures::new()
            .with(Procedure::new(translates).phase([translate]))
            .with(Procedure::new(validates).phase([validate]))
            .with(Procedure::new(installs).phase([subscribe, map.by_key(1)]))
    }

    fn make(&self, db: &Database) -> Result<()> {
        let int4 = |name: &str| Column::new(name, ColumnType::Int4);
        let int8 = |name: &str| Column::new(name, ColumnType::Int8);
        let tables = [
            TableDef::new("numbers", vec![int4("area"), int4("number"), int8("route"), int8("changes")])
                .with_primary_key(&["area", "number"]),
            TableDef::new(
                "cards",
                vec![int4("area"), int4("card"), int4("pin"), int8("calls"), int8("refused")],
            )
            .with_primary_key(&["area", "card"]),
            TableDef::new("subscribers", vec![int4("area"), int4("subscriber"), int8("services")])
                .with_primary_key(&["area", "subscriber"]),
        ];
        db.transact(|tx| tables.iter().try_for_each(|table| tx.create_table(table).map(drop)))
    }

    fn load(&self, db: &Database, branches: &[i32]) -> Result<()> {
        for area in branches {
            load_rows(db, self.data.accounts, |tx, number| {
                let (area, key) = (Value::Int4(*area), Value::Int4(number as i32));
                let route = Value::Int8(FIRST_ROUTE + i64::from(number));
                let pin = Value::Int4(pin_of(i64::from(number)) as i32);
                let zero = Value::Int8(0);
                for (table, row) in [
                    ("numbers", vec![area.clone(), key.clone(), route, zero.clone()]),
                    ("cards", vec![area.clone(), key.clone(), pin, zero.clone(), zero.clone()]),
                    ("subscribers", vec![area, key, zero]),
                ] {
                    let table = tx.table(table)?;
                    tx.insert(&table, &row)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn writes(&self, kind: usize) -> bool {
        kind > 0
    }

    fn run(&self, tx: &mut Transaction<'_>, kind: usize, arguments: &[u8]) -> Result<()> {
        match kind {
            0 => translate(tx, arguments).map(drop),
            1 => validate(tx, arguments).map(drop),
            _ => {
                subscribe(tx, arguments)?;
                map(tx, arguments).map(drop)
            }
        }
    }

    fn draw(&self, random: &mut Random, place: &Place<'_>) -> Drawn {
        let one = |random: &mut Random| random.below(u64::from(self.data.accounts)) as i64;
        let (here, elsewhere) = place.draw(random);
        let share = random.below(100);
        let kind = match share {
            _ if share < PERCENT[0] => 0,
            _ if share < PERCENT[0] + PERCENT[1] => 1,
            _ => 2,
        };
        let area = elsewhere.unwrap_or(here);
        let number = one(random);
        let (keys, arguments, is_remote) = match kind {
            0 => (vec![area], bytes([i64::from(area), number]), elsewhere.is_some()),
            1 => {
                let pin = pin_of(number) + i64::from(random.chance(1, WRONG_PINS));
                (vec![area], bytes([i64::from(area), number, pin]), elsewhere.is_some())
            }
            // The mapping lies at another node, if there is one.
            _ => {
                let other = place.homes.draw_elsewhere(random, place.node);
                let area = other.unwrap_or(here);
                let (mapped, route) = (one(random), FIRST_ROUTE + one(random));
                let arguments = bytes([i64::from(here), number, i64::from(area), mapped, route]);
                (vec![here, area], arguments, other.is_some())
            }
        };
        let call = Call::new(self.procedures[kind].clone(), arguments.clone());
        let call = keys.into_iter().fold(call, |call, area| call.key([Value::Int4(area)]));
        Drawn { calls: vec![call], arguments, is_remote, kind }
    }

    fn audit(&self, db: &Database, audit: &mut Audit) -> Result<()> {
        let (mut sums, mut counts) = ([0; 4], [0; 3]);
        db.read(|tx| {
            sums = [0; 4];
            let [changes, calls, refused, services] = &mut sums;
            counts = [
                each(tx, "numbers", |row| row.get_i64(3).map(|count| *changes += count))?,
                each(tx, "cards", |row| {
                    *calls += row.get_i64(3)?;
                    row.get_i64(4).map(|count| *refused += count)
                })?,
                each(tx, "subscribers", |row| row.get_i64(2).map(|count| *services += count))?,
            ];
            Ok(())
        })?;
        for (name, sum) in ["changes of mappings", "calls", "calls refused", "services"].into_iter().zip(sums)
        {
            audit.add(name, sum);
        }
        for (name, count) in ["numbers", "cards", "subscribers"].into_iter().zip(counts) {
            audit.add(&format!("rows of {name}"), count);
        }
        Ok(())
    }

    fn problems(&self, audit: &Audit, told: &Told, partitions: u32) -> Vec<String> {
        let mut problems = audit.problems.clone();
        let (changes, services) = (audit.sum("changes of mappings"), audit.sum("services"));
        if changes != services {
            problems.push(format!("{services} services were installed, and {changes} mappings changed"));
        }
        audit.expect("services", told.effects(2), &mut problems);
        let (counted, expected) = (audit.sum("calls") + audit.sum("calls refused"), told.effects(1));
        if !expected.contains(&counted) {
            problems.push(format!("the cards have counted {counted} calls, expected {expected:?}"));
        }
        let rows = i64::from(self.data.branches) * i64::from(partitions) * i64::from(self.data.accounts);
        for name in ["rows of numbers", "rows of cards", "rows of subscribers"] {
            audit.expect(name, rows..=rows, &mut problems);
        }
        problems
    }
}

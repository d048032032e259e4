//! A whole database whose files were damaged.

use std::sync::{Arc, OnceLock};

use super::edit::{Edit, Files, disk_of, edit, files_of};
use super::script::Script;
use super::tables::{State, create, load, loaded, options, state_of};
use crate::io::{Disk, MemoryDisk, Random};
use crate::row::Value;
use crate::{Database, Logging, OpenError, Options};

/// A database with two checkpoints, a bulk load after the second, and transactions before, between and after.
struct Base {
    files: Files,
    /// The files between the checkpoints.
    earlier: Files,
    /// The state after each transaction, from the empty directory on.
    states: Vec<State>,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let disk = MemoryDisk::new();
        let mut random = Random::new(7);
        let mut states = vec![State::default()];
        let mut state = State::default();
        let actions = Options { logging: Logging::Action, ..options() };
        let db = Database::open_on(disk.clone(), actions).unwrap();
        db.transact(create).unwrap();
        states.push(state.clone());
        let work = |db: &Database, state: &mut State, states: &mut Vec<State>, random: &mut Random| {
            let table = db.table("things").unwrap();
            for _ in 0..12 {
                let mut next = state.clone();
                db.transact(|tx| {
                    for _ in 0..1 + random.below(12) {
                        let id = random.below(60) as i32;
                        let number = random.next() as i64;
                        let text = "x".repeat(random.below(400) as usize);
                        match next.things.get(&id) {
                            None => {
                                let row = [Value::Int4(id), Value::Int8(number), Value::Text(text.clone())];
                                tx.insert(&table, &row)?;
                                next.things.insert(id, (number, text));
                            }
                            Some((before, text)) if random.chance(2, 3) => {
                                assert!(tx.modify(
                                    &table,
                                    id,
                                    |fields| match number.checked_sub(*before) {
                                        Some(delta) => fields.add(1, delta).map(drop),
                                        None => fields.set_i64(1, number),
                                    }
                                )?);
                                let text = text.clone();
                                next.things.insert(id, (number, text));
                            }
                            Some(_) => {
                                assert!(tx.delete(&table, id)?);
                                next.things.remove(&id);
                            }
                        }
                    }
                    Ok(())
                })
                .unwrap();
                *state = next;
                states.push(state.clone());
            }
        };
        work(&db, &mut state, &mut states, &mut random);
        db.checkpoint().unwrap();
        work(&db, &mut state, &mut states, &mut random);
        let earlier = files_of(&*disk);
        db.checkpoint().unwrap();
        work(&db, &mut state, &mut states, &mut random);
        db.transact(load).unwrap();
        state.loaded = loaded();
        states.push(state.clone());
        work(&db, &mut state, &mut states, &mut random);
        db.close().unwrap();
        let files = files_of(&*disk);
        for file in ["home", "backup-0", "backup-1", "load-", "log-0000000001"] {
            assert!(files.keys().any(|name| name.starts_with(file)), "{file} is among {:?}", files.keys());
        }
        let base = Base { files, earlier, states };
        let whole = Database::open_on(disk_of(&base.files), options()).unwrap();
        assert_eq!(&state_of(&whole), base.states.last().unwrap());
        base
    })
}

/// Checks that the error names a file and an offset in it, or says which file is missing or of another kind.
fn is_fine(error: &OpenError, files: &Files, edits: &[Edit]) {
    match error {
        OpenError::Corrupt { file, offset, what } => {
            let known = ["home", "backup-0", "backup-1", "load-", "log-"];
            assert!(known.iter().any(|name| file.starts_with(name)), "{error}: {edits:?}");
            let length = files.get(file).map_or(0, |bytes| bytes.len() as u64);
            let end = length.max(base().files.get(file).map_or(4096, |bytes| bytes.len() as u64));
            assert!(*offset <= end && !what.is_empty(), "{error}: the file has {length} bytes, {edits:?}");
        }
        // A home file that is gone, while logs or copies exist.
        OpenError::Unsupported { what } if !files.contains_key("home") => assert!(what.contains("home")),
        error => panic!("expected Corrupt, found {error:?}: {edits:?}"),
    }
}

/// Edits the files of a database: it opens as it was after one of its transactions, or an error says which file is
/// damaged, and where. Only a changed log file can lead to a transaction before the last.
pub fn database_files(data: &[u8]) {
    let base = base();
    let mut script = Script::of(data);
    let thorough = script.byte() < 32;
    let mut files = base.files.clone();
    let edits = edit(&mut files, &base.earlier, &mut script);
    let disk: Arc<dyn Disk> = disk_of(&files);
    let db = match Database::open_on(disk.clone(), options()) {
        Err(error) => {
            assert!(!edits.is_empty(), "{error}");
            return is_fine(&error, &files, &edits);
        }
        Ok(db) => db,
    };
    let state = state_of(&db);
    let complete = state == *base.states.last().expect("there are many");
    assert!(complete || base.states.contains(&state), "not what any transaction left: {edits:?}");
    let log_was_edited = edits.iter().any(|edit| edit.file.starts_with("log-"));
    assert!(complete || log_was_edited, "committed rows are missing: {edits:?}");
    if thorough {
        goes_on(db, &disk, state, &edits);
    }
}

/// Checks that the opened database can be written to, checkpointed and opened again.
fn goes_on(db: Database, disk: &Arc<dyn Disk>, mut state: State, edits: &[Edit]) {
    let Ok(table) = db.table("things") else { return };
    let row = [Value::Int4(1_000_000), Value::Int8(5), Value::Text("after".to_owned())];
    db.transact(|tx| tx.insert(&table, &row)).unwrap();
    state.things.insert(1_000_000, (5, "after".to_owned()));
    assert!(!db.checkpoint().unwrap().skipped, "{edits:?}");
    db.transact(|tx| tx.delete(&table, 1_000_000)).unwrap();
    state.things.remove(&1_000_000);
    db.close().unwrap();
    let db = Database::open_on(disk.clone(), options()).unwrap_or_else(|error| panic!("{error}: {edits:?}"));
    assert_eq!(state_of(&db), state, "{edits:?}");
}

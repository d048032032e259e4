//! Forged calls under right checksums.

use std::sync::{Arc, OnceLock};

use super::edit::{Files, disk_of, files_of};
use super::forged_rows::{log_of, mutate};
use super::script::Script;
use super::tables::options;
use crate::checkpoint::home::read_home;
use crate::io::{Disk, MemoryDisk};
use crate::log::recover;
use crate::recovery::check::check;
use crate::row::{Column, ColumnType, Value};
use crate::{Action, Database, Logging, Lsn, OpenError, Options, Procedure, TableDef};

fn procedures() -> Vec<Procedure> {
    let put = Action::exclusive("things", |tx, arguments, _| {
        let [id, text] = arguments.values() else { unreachable!("two arguments") };
        match tx.update(arguments.table()?, arguments.get::<i32>(0)?, &[(1, text.clone())])? {
            true => Ok(()),
            false => tx.insert(arguments.table()?, &[id.clone(), text.clone()]),
        }
    });
    let note = Action::exclusive("notes", |tx, arguments, _| {
        (0..arguments.get::<i32>(0)? % 5).try_for_each(|_| tx.insert(arguments.table()?, arguments.values()))
    });
    let types = [ColumnType::Int4, ColumnType::Text];
    vec![
        Procedure::new("put", types, put.by_argument(0)).deterministic(1),
        Procedure::new("note", types, note.by_argument(0)).deterministic(1),
    ]
}

fn with_procedures() -> Options {
    Options { logging: Logging::Transaction, procedures: procedures(), ..options() }
}

struct Base {
    files: Files,
    database: u128,
    /// The log's packets with their kinds, from the first one.
    packets: Vec<(u8, Vec<u8>)>,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let disk = MemoryDisk::new();
        let db = Database::open_on(disk.clone(), with_procedures()).unwrap();
        db.transact(|tx| {
            let columns = || vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
            tx.create_table(&TableDef::new("things", columns()).with_primary_key(&["id"]))?;
            tx.create_index("things", "things_text", &["text"], false)?;
            tx.create_table(&TableDef::new("notes", columns())).map(drop)
        })
        .unwrap();
        for id in 0..12 {
            let arguments = [Value::Int4(id % 5), Value::Text("x".repeat(id as usize * 9))];
            db.call(if id % 3 == 0 { "note" } else { "put" }, &arguments).unwrap();
        }
        db.close().unwrap();
        let files = files_of(&*disk);
        let shared: Arc<dyn Disk> = disk_of(&files);
        let database = read_home(&*shared).unwrap().1.database_id;
        let mut reader = recover(&shared, database, Lsn(1)).unwrap();
        let mut packets = Vec::new();
        while let Some(packet) = reader.next_packet().unwrap() {
            packets.push((packet.kind as u8, packet.bytes.to_vec()));
        }
        assert!(packets.iter().filter(|(kind, _)| *kind == 5).count() >= 8, "the calls are in the log");
        Base { files, database, packets }
    })
}

/// Calls of any bytes: the database opens if they happen to come to the results that they claim, or an error says what
/// is wrong.
pub fn forged_calls(data: &[u8]) {
    let mut script = Script::of(data);
    let base = base();
    let mut packets = base.packets.clone();
    for _ in 0..1 + script.below(2) {
        let chosen = script.below(packets.len());
        match script.byte() % 8 {
            0 => packets[chosen].0 = [1, 5][script.below(2)],
            1 => packets.swap(chosen, base.packets.len() - 1),
            _ => mutate(&mut packets[chosen].1, &mut script),
        }
    }
    let mut files = base.files.clone();
    files.retain(|name, _| !name.starts_with("log-"));
    files.insert("log-0000000001".to_owned(), log_of(base.database, packets));
    match Database::open_on(disk_of(&files), with_procedures()) {
        Ok(db) => db.close().unwrap(),
        Err(
            OpenError::Corrupt { .. }
            | OpenError::Unsupported { .. }
            | OpenError::Replay { .. }
            | OpenError::Memory { .. },
        ) => {}
        Err(error) => panic!("{error:?}"),
    }
    // A check runs no calls.
    let shared: Arc<dyn Disk> = disk_of(&files);
    let _ = check(&shared, 64 << 20, 1);
}

//! Recovery: a process is killed while it commits. Every commit that was acknowledged as durable is there afterwards.
//!
//! `cargo run -p rialto --example recovery`

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Options, TableDef};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const KILL_AFTER: i64 = 500;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(word), Some(directory)) if word == "write" => write_until_killed(directory.as_ref()),
        _ => kill_and_recover(),
    }
}

/// Inserts 1, 2, 3, …, and prints each number once it is durable.
fn write_until_killed(directory: &Path) -> Result<()> {
    let db = Database::open(directory)?;
    let definition =
        TableDef::new("numbers", vec![Column::new("n", ColumnType::Int8)]).with_primary_key(&["n"]);
    let numbers = db.transact(|tx| tx.create_table(&definition))?;
    for n in 1.. {
        db.transact(|tx| tx.insert(&numbers, &[Value::Int8(n)]))?;
        println!("{n}");
        std::io::stdout().flush()?;
        if n == KILL_AFTER / 2 {
            // From here on recovery needs only the log that comes after. In the background this happens by itself.
            let checkpoint = db.checkpoint()?;
            eprintln!("checkpoint of {} bytes", checkpoint.written_bytes);
        }
    }
    Ok(())
}

fn kill_and_recover() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("rialto-recovery-{}", std::process::id()));
    let mut child =
        Command::new(std::env::current_exe()?).arg("write").arg(&directory).stdout(Stdio::piped()).spawn()?;
    let mut acknowledged = 0;
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
        acknowledged = line?.parse()?;
        if acknowledged == KILL_AFTER {
            // SIGKILL: no goodbye.
            child.kill()?;
        }
    }
    child.wait()?;
    println!("killed; it had said that 1 to {acknowledged} are durable");

    let options = Options { progress: Some(Arc::new(|text| eprintln!("  {text}"))), ..Options::default() };
    let db = Database::open_with(&directory, options)?;
    if let Some(recovery) = db.recovery() {
        println!("recovered in {:?} from checkpoint {}", recovery.took(), recovery.checkpoint);
    }
    let numbers = db.table("numbers")?;
    let (rows, first_missing) = db.read(|tx| {
        let mut missing = None;
        for n in 1..=acknowledged {
            if missing.is_none() && tx.get(&numbers, n)?.is_none() {
                missing = Some(n);
            }
        }
        Ok((tx.count(&numbers)?, missing))
    })?;
    assert_eq!(first_missing, None, "an acknowledged transaction is lost");
    // The last commit may have become durable before it was acknowledged. Then it is there, whole.
    println!("{rows} rows; every acknowledged one is among them");
    db.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

//! What "committed" means: a child process commits, says so, and is killed; what it said is there.
//!
//! `cargo run -p rialto --example recovery`

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, TableDef};

/// Set for the child, to the directory.
const DIRECTORY: &str = "RIALTO_EXAMPLE_RECOVERY";
/// Commits that are said to be done before the child is killed.
const ACKNOWLEDGED: i64 = 500;

type Done<T> = Result<T, Box<dyn std::error::Error>>;

/// Commits without end, and says each commit's number once it is durable.
fn commit_until_killed(directory: &Path) -> Done<()> {
    let db = Database::open(directory)?;
    let columns = vec![Column::new("id", ColumnType::Int8), Column::new("text", ColumnType::Text)];
    let table = db.transact(|tx| {
        tx.create_table(&TableDef::new("commits", columns.clone()).with_primary_key(&["id"]))
    })?;
    let mut out = std::io::stdout().lock();
    for id in 0.. {
        let row = [Value::Int8(id), Value::Text(format!("commit {id}"))];
        db.transact(|tx| tx.insert(&table, &row))?;
        writeln!(out, "{id}")?;
        out.flush()?;
    }
    Ok(())
}

/// The number of the last commit that the child said was durable before it was killed.
fn kill_after_commits(directory: &Path) -> Done<i64> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut last = -1;
    for line in lines {
        last = line?.parse()?;
        if last + 1 == ACKNOWLEDGED {
            // SIGKILL: it cannot be caught, so nothing is closed or flushed.
            child.kill()?;
            break;
        }
    }
    println!("the child ended with {}", child.wait()?);
    Ok(last)
}

/// Whether all commits up to `last` are there, and nothing but a run of commits.
fn is_all_there(directory: &Path, last: i64) -> Done<bool> {
    let db = Database::open(directory)?;
    if let Some(report) = db.recovery() {
        println!("recovery: {report:?}");
    }
    let table = db.table("commits")?;
    let (rows, found) = db.read(|tx| {
        let mut found = 0;
        while let Some(row) = tx.get(&table, found)? {
            if row.read::<String>("text")? != format!("commit {found}") {
                break;
            }
            found += 1;
        }
        Ok((tx.count(&table)?, found))
    })?;
    println!("{} commits were acknowledged, {found} are there", last + 1);
    db.close()?;
    Ok(found > last && rows == found as u64)
}

fn main() -> Done<ExitCode> {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        commit_until_killed(Path::new(&directory))?;
        return Ok(ExitCode::SUCCESS);
    }
    let directory = std::env::temp_dir().join(format!("rialto-recovery-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let last = kill_after_commits(&directory)?;
    let all_there = last + 1 == ACKNOWLEDGED && is_all_there(&directory, last)?;
    std::fs::remove_dir_all(&directory)?;
    println!("{}", if all_there { "nothing was lost" } else { "SOMETHING WAS LOST" });
    Ok(if all_there { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

//! `rialto backup --socket` and `--connect` while clients write: restored and served, the database is that of one
//! moment.

use std::net::TcpStream;
use std::path::Path;

use crate::common::progress::while_clients_commit;
use crate::common::wire::{query, runs, session};
use crate::common::{Directory, Serving, program, run, stderr, succeeds};

const WRITERS: usize = 2;

/// How many entries of a writer are in a table. They are the first ones, without a gap.
fn entries(client: &mut TcpStream, table: &str, writer: usize, most: u64) -> u64 {
    let count = |client: &mut TcpStream, condition: &str| {
        let said = query(client, &format!("select n from {table} where writer = {writer}{condition}"));
        let (_, rest) = said.split_once("SELECT ").unwrap_or_else(|| panic!("{said}"));
        rest.split(' ')
            .next()
            .and_then(|number| number.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{said}"))
    };
    let all = count(client, "");
    assert_eq!(
        count(client, &format!(" and n between 1 and {all}")),
        all,
        "{table}, writer {writer}, of {most}"
    );
    all
}

/// Restores the backups and serves the result: of each writer a number in this interval, and of each transaction
/// everything or nothing.
fn is_as_of_one_moment(backups: &[&Directory], least: &[u64], most: &[u64]) {
    let restored = Directory::new(&format!("online-restored-{}", backups.len()));
    let mut arguments = vec!["restore", "--data", restored.name(), "--from", backups[0].name()];
    backups[1..].iter().for_each(|increment| arguments.extend(["--incremental", increment.name()]));
    succeeds(run(&arguments));
    let serving = Serving::start(restored.path());
    let mut client = session(&serving);
    for writer in 0..WRITERS {
        let [a, b] = ["a", "b"].map(|table| entries(&mut client, table, writer, most[writer]));
        assert_eq!(a, b, "writer {writer}");
        assert!((least[writer]..=most[writer]).contains(&a), "writer {writer}: {a} of {least:?} to {most:?}");
        println!("writer {writer} had {a} of {} to {}", least[writer], most[writer]);
    }
    drop(client);
    assert_eq!(serving.end_by("-TERM"), Some(0));
}

#[test]
fn backups_over_both_kinds_of_sockets_are_of_one_moment_while_clients_write() {
    let [data, sockets, full, increment] =
        ["data", "sockets", "full", "increment"].map(|name| Directory::new(&format!("online-{name}")));
    std::fs::create_dir(sockets.path()).expect("it can be made");
    let serving =
        Serving::start_by(program(&["serve", "--socket-dir", sockets.name(), "--port", "5432"]), data.path());
    assert_eq!(Path::new(&serving.socket), sockets.path().join(".s.PGSQL.5432"));
    let mut client = session(&serving);
    // These rows make the backup take a while.
    runs(
        &mut client,
        "create table a (writer int, n int, primary key (writer, n)); insert into a values (-1, 0)",
    );
    runs(&mut client, "create table filling (n int primary key, long text)");
    let long = "x".repeat(8_000);
    for from in (1..=4_000).step_by(500) {
        let rows =
            format!("insert into filling select n, '{long}' from generate_series({from}, {}) n", from + 499);
        runs(&mut client, &rows);
    }
    runs(
        &mut client,
        "create table b (writer int, n int, primary key (writer, n)); insert into b values (-1, 0)",
    );
    // One entry in each of two tables, in one transaction, again and again.
    let writer = |writer: usize| {
        let mut client = session(&serving);
        move |n| {
            let entry = format!("insert into a values ({writer}, {n}); insert into b values ({writer}, {n})");
            runs(&mut client, &entry);
        }
    };
    let taken = while_clients_commit((0..WRITERS).map(writer).collect(), |progress| {
        let ways = [
            ("--socket", &*serving.socket, &full, &[][..]),
            ("--connect", &*serving.tcp, &increment, &["--incremental"]),
        ];
        ways.map(|(way, server, to, more)| {
            let least = progress.told();
            let taken = succeeds(run(&[&["backup", way, server, "--to", to.name()], more].concat()));
            let said = stderr(&taken);
            assert_eq!(said.contains(", an increment on "), !more.is_empty(), "{said}");
            println!("{way}: {least:?} before the backup, {:?} behind it", progress.told());
            let most = progress.asked();
            progress.wait_for(1);
            (least, most)
        })
    });
    drop(client);
    assert_eq!(serving.end_by("-TERM"), Some(0));
    let [(least, most), (least_later, most_later)] = &taken;
    is_as_of_one_moment(&[&full], least, most);
    is_as_of_one_moment(&[&full, &increment], least_later, most_later);
}

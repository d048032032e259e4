//! A backup over a socket while clients write. Restored, it has what each of them had committed up to one place. A
//! reader that disconnects in the middle ends the backup and nothing else.

use std::io::{Cursor, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::progress::{Progress, while_clients_commit};
use crate::common::*;
use rialto::backup::{Backup, Restore, RestoreReport, restore};
use rialto::io::{Disk, MemoryDisk};
use rialto::{BackupKind, BackupReport, Error, Options};

const WRITERS: usize = 3;
/// More than the buffers of a socket hold.
const FILLING_ROWS: usize = 4_000;

/// A server with a table that fills the backup, and one row of `counters` for each writer.
fn server() -> TestServer {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table filling (a int primary key, b text)");
    let long = "x".repeat(8_000);
    for from in (1..=FILLING_ROWS).step_by(500) {
        let to = from + 499;
        client.run(&format!("insert into filling select n, '{long}' from generate_series({from}, {to}) n"));
    }
    client.run("create table counters (writer int primary key, n int not null)");
    client.run("create table entries (writer int, n int, primary key (writer, n))");
    client.run(&format!("insert into counters select n, 0 from generate_series(0, {}) n", WRITERS - 1));
    server
}

/// Runs this while clients write entries and count them, one entry in each transaction.
fn while_clients_write<T>(server: &TestServer, run: impl FnOnce(&Progress) -> T) -> T {
    // Starts again from an empty table.
    server.connect().run("update counters set n = 0 where n > 0; delete from entries");
    let writer = |writer: usize| {
        let mut client = server.connect();
        move |n| {
            client.run(&format!(
                "begin; update counters set n = n + 1 where writer = {writer}; insert into entries values ({writer}, {n}); commit"
            ));
        }
    };
    while_clients_commit((0..WRITERS).map(writer).collect(), run)
}

/// Restores a stream as it arrives. After its first bytes it pauses until each client has committed more.
fn restored(mut stream: TcpStream, progress: &Progress) -> (Arc<MemoryDisk>, RestoreReport) {
    let mut first = vec![0; 1 << 20];
    stream.read_exact(&mut first).expect("so much comes");
    progress.wait_for(3);
    let disk = MemoryDisk::new();
    let whole = Cursor::new(first).chain(stream);
    let report = restore(Restore::new(vec![Backup::stream("the socket", whole)]), disk.clone());
    (disk, report.expect("it is whole"))
}

/// Streams a backup of the server's database over a socket to this reader.
fn streamed<T: Send>(
    server: &TestServer,
    read: impl FnOnce(TcpStream) -> T + Send,
) -> (rialto::Result<BackupReport>, T) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    thread::scope(|scope| {
        let reads = scope.spawn(move || read(listener.accept().expect("it connects").0));
        let mut stream = TcpStream::connect(address).expect("it listens");
        let report = server.database.backup_to(&mut stream, BackupKind::Full);
        drop(stream);
        (report, reads.join().expect("it reads"))
    })
}

/// Checks what a restored database has: of each writer as much as it had committed at one moment in this interval, and
/// of each transaction everything or nothing.
fn is_as_of_one_moment(disk: Arc<dyn Disk>, least: &[u64], most: &[u64]) -> Vec<u64> {
    let server = TestServer::on(disk, Options::default(), 4);
    let mut client = server.connect();
    let number = |rows: Vec<Vec<Option<String>>>| rows[0][0].as_ref().unwrap().parse::<u64>().unwrap();
    let filling = number(rows(&client.run("select count(*) from filling where length(b) = 8000")));
    assert_eq!(filling, FILLING_ROWS as u64);
    (0..WRITERS)
        .map(|writer| {
            let counted =
                number(rows(&client.run(&format!("select n from counters where writer = {writer}"))));
            let entries =
                rows(&client.run(&format!("select n from entries where writer = {writer} order by n")))
                    .concat();
            let expected: Vec<_> = (1..=counted).map(|n| Some(n.to_string())).collect();
            assert_eq!(entries, expected, "writer {writer}");
            let (least, most) = (least[writer], most[writer]);
            assert!((least..=most).contains(&counted), "writer {writer}: {counted} of {least} to {most}");
            counted
        })
        .collect()
}

#[test]
fn a_stream_that_is_taken_while_clients_write_is_the_database_of_one_moment() {
    let server = server();
    let (disk, least, most) = while_clients_write(&server, |progress| {
        let least = progress.told();
        let (report, (disk, restored)) = streamed(&server, |stream| restored(stream, progress));
        let report = report.expect("it is taken");
        assert_eq!(restored.place, report.place);
        let most = progress.asked();
        // The clients go on.
        progress.wait_for(3);
        (disk, least, most)
    });
    let found = is_as_of_one_moment(disk, &least, &most);
    println!("{least:?} at the beginning of the backup, {found:?} in it, {most:?} at its end");
}

#[test]
fn a_reader_that_goes_away_ends_the_backup_and_nothing_else() {
    let server = server();
    let (disk, least, most) = while_clients_write(&server, |progress| {
        for bytes in [0, 1, 100_000, 2_000_000] {
            let (report, ()) = streamed(&server, |mut stream| {
                stream.read_exact(&mut vec![0; bytes]).expect("so much comes");
            });
            let error = report.expect_err("its reader has gone");
            assert!(matches!(&error, Error::Io { operation, .. } if operation == "write"), "{error:?}");
            let says = error.to_string();
            assert!(
                says.contains("Broken pipe") || says.contains("Connection reset"),
                "after {bytes} bytes: {says}"
            );
            progress.wait_for(3);
        }
        // The next backup is whole.
        let least = progress.told();
        let (report, (disk, _)) = streamed(&server, |stream| restored(stream, progress));
        report.expect("it is taken");
        (disk, least, progress.asked())
    });
    is_as_of_one_moment(disk, &least, &most);
}

/// For the server the backup is taken; only the client is not told.
#[test]
fn a_client_that_goes_away_behind_its_backup_leaves_a_whole_one_and_the_server_goes_on() {
    let server = server();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gone-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let [full, increment] = ["full", "increment"].map(|name| directory.join(name));
    let (disk, least, most) = while_clients_write(&server, |progress| {
        let least = progress.told();
        let mut gone = server.connect();
        gone.send(&query(&format!("backup to '{}'", full.display())));
        drop(gone);
        let began = Instant::now();
        while !full.join("backup.rialto").exists() {
            assert!(began.elapsed() < PATIENCE, "no backup is there");
            thread::sleep(Duration::from_millis(1));
        }
        progress.wait_for(3);
        let mut client = server.connect();
        let said = client.run(&format!("backup incremental to '{}'", increment.display()));
        let notices: String = said.iter().map(|(_, body)| String::from_utf8_lossy(body)).collect();
        assert!(notices.contains(", an increment on "), "{notices}");
        let most = progress.asked();
        let disk = MemoryDisk::new();
        let backups = [&full, &increment].map(|path| Backup::in_directory(path).expect("it is there"));
        restore(Restore::new(backups.into()), disk.clone()).expect("they go together");
        (disk, least, most)
    });
    is_as_of_one_moment(disk, &least, &most);
    std::fs::remove_dir_all(&directory).unwrap();
}

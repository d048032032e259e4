//! Each SQLSTATE of docs/sql.md that a client can cause, as a client receives it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use rialto::io::{FaultKind, FaultyDisk};
use rialto::{Checkpointing, Metrics, Options};
use rialto_sql::SqlState;

#[test]
fn every_error_that_a_client_can_bring_about_has_its_code() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, b smallint not null, c char(3))");
    client.run("insert into t values (1, 1, 'abc')");
    for (sql, code) in [
        ("select 1 from t join t u on true", "0A000"),
        ("insert into t values (2, 1, 'abcd')", "22001"),
        ("insert into t values (2, 99999, 'abc')", "22003"),
        ("select a + 2147483647 from t", "22003"),
        ("select 'x'::date", "22007"),
        ("select 1 / 0", "22012"),
        ("select 'x'::int", "22P02"),
        ("insert into t values (2, null, 'abc')", "23502"),
        ("insert into t values (1, 1, 'abc')", "23505"),
        ("savepoint s", "25P01"),
        ("selec", "42601"),
        ("select * from nope", "42P01"),
        ("select nope from t", "42703"),
        ("drop index nope", "42704"),
        ("create table t (a int)", "42P07"),
        ("insert into t values (true, 1, 'abc')", "42804"),
        ("select 1 + true", "42883"),
        ("select 1 = any(5)", "42809"),
        ("set timezone = 'Mars/Olympus'", "55P02"),
        ("select date '2026-01-31'::int", "42846"),
        ("select true::date", "42846"),
        ("select timestamp '2026-01-31 12:00:00'::boolean", "42846"),
        ("select date '5874898-01-01'", "22008"),
        ("select a from t limit -1", "22023"),
        ("insert into t (a, a) values (1, 2)", "42701"),
        ("select a as x, b as x from t order by x", "42702"),
        ("select a, count(*) from t", "42803"),
        ("select a from t order by 3", "42P10"),
        ("create table u (a int primary key, primary key (a))", "42P16"),
    ] {
        assert_eq!(error_code(&client.query(sql)).as_deref(), Some(code), "{sql}");
    }
    client.run("begin read only");
    assert_eq!(error_code(&client.query("delete from t")).as_deref(), Some("25006"));
    assert_eq!(error_code(&client.query("select 1")).as_deref(), Some("25P02"));
    client.run("rollback");
    client.run("begin");
    assert_eq!(error_code(&client.query("rollback to nope")).as_deref(), Some("3B001"));
    client.run("rollback");
    client.send(&[parse("", "select $1::text"), bind("", "", &["a\0b"]), sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("22021"));
    let high = format!("select a{} from t", " isnull".repeat(40_000));
    assert_eq!(error_code(&client.query(&high)).as_deref(), Some("54001"));
    client.send(&[parse("", "select a from t where $1 in (a, '5')"), sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("42P08"));
    // None of them has changed any row.
    assert_eq!(rows(&client.run("select a from t")), [[Some("1".to_string())]]);
}

/// A Bind with one argument in binary format, and text results.
fn bind_binary(portal: &str, statement: &str, argument: &[u8]) -> Vec<u8> {
    let mut body = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0"].concat();
    body.extend_from_slice(&[0, 1, 0, 1, 0, 1]);
    body.extend_from_slice(&(argument.len() as u32).to_be_bytes());
    body.extend_from_slice(argument);
    body.extend_from_slice(&[0, 0]);
    message(b'B', &body)
}

#[test]
fn a_binary_argument_that_is_no_value_of_its_type_is_22p03_and_names_its_parameter() {
    let server = TestServer::start();
    let mut client = server.connect();
    for (sql_type, good, value, wrong) in [
        ("int2", &[0, 7][..], "7", &[&[7][..], &[0, 0, 7], &[]][..]),
        ("int4", &[0, 0, 0, 7], "7", &[&[0, 0, 7], &[0, 0, 0, 0, 7], &[]]),
        ("int8", &[0, 0, 0, 0, 0, 0, 0, 7], "7", &[&[0, 0, 0, 7], &[]]),
        ("float8", &[0x3f, 0xf8, 0, 0, 0, 0, 0, 0], "1.5", &[&[0x3f, 0xf8, 0], &[]]),
        ("bool", &[1], "t", &[&[2], &[0, 1], &[]]),
        // One base-10000 digit, 7. The wrong ones lack their digits, have a digit of 10,000, or have an unknown sign.
        (
            "numeric",
            &[0, 1, 0, 0, 0, 0, 0, 0, 0, 7],
            "7",
            &[
                &[0, 1, 0, 0, 0, 0, 0, 0],
                &[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10],
                &[0, 1, 0, 0, 0x12, 0x34, 0, 0, 0, 7],
                &[],
            ],
        ),
        ("date", &[0, 0, 0, 0], "2000-01-01", &[&[0, 0, 0], &[]]),
        ("timestamp", &[0; 8], "2000-01-01 00:00:00", &[&[0; 4], &[]]),
    ] {
        client.send(&[parse("s", &format!("select $1::{sql_type}")), sync()].concat());
        assert_eq!(error_code(&client.answer()), None, "{sql_type}");
        for bytes in wrong {
            client.send(&[bind_binary("", "s", bytes), execute("", 0), sync()].concat());
            let answer = client.answer();
            assert_eq!(error_code(&answer).as_deref(), Some("22P03"), "{sql_type} {bytes:?}");
            assert!(error_text(&answer).contains("Parameter $1"), "{}", error_text(&answer));
            assert_eq!(tags(&answer), "EZ", "{sql_type} {bytes:?}");
        }
        client.send(&[bind_binary("", "s", good), execute("", 0), message(b'C', b"Ss\0"), sync()].concat());
        let answer = client.answer();
        assert_eq!(rows(&answer), [[Some(value.to_string())]], "{sql_type}: {}", error_text(&answer));
    }
}

#[test]
fn a_name_of_a_portal_that_is_taken_is_42p03_until_the_portal_is_closed() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("begin");
    client.send(&[parse("s", "select 1"), bind("p", "s", &[]), sync()].concat());
    assert_eq!(error_code(&client.answer()), None);
    client.run("savepoint a");
    client.send(&[bind("p", "s", &[]), sync()].concat());
    let answer = client.answer();
    assert_eq!(error_code(&answer).as_deref(), Some("42P03"));
    assert!(error_text(&answer).contains("\"p\" already exists"), "{}", error_text(&answer));
    client.run("rollback to a");
    // The unnamed one is always free, and the named one once it is closed.
    let closed = [
        bind("", "s", &[]),
        bind("", "s", &[]),
        message(b'C', b"Pp\0"),
        bind("p", "s", &[]),
        execute("p", 0),
        sync(),
    ];
    client.send(&closed.concat());
    let answer = client.answer();
    assert_eq!(rows(&answer), [[Some("1".to_string())]], "{}", error_text(&answer));
    client.run("rollback");
}

/// A black/white checkpoint sweeps slowly through memory, again and again, and transactions change the first row and
/// the last: those that come early in a sweep straddle it. The session cannot run a block of statements again, so the
/// commit waits for the checkpoint.
#[test]
fn a_transaction_that_straddles_a_checkpoint_commits() {
    let options = Options {
        checkpoint: Checkpointing::TransactionBlackWhite,
        checkpoint_interval: Duration::ZERO,
        sweep_bytes_per_s: Some(2 << 20),
        ..Options::default()
    };
    let server = TestServer::with(options, 4);
    let mut client = server.connect();
    client.run("create table t (a int primary key, b int not null, c text)");
    let long = "x".repeat(4_000);
    client.run(&format!("insert into t select n, 0, '{long}' from generate_series(1, 300) n"));
    let until = Instant::now() + PATIENCE;
    let waited = |metrics: &Metrics| {
        metrics.procedures.iter().map(|procedure| procedure.latch_wait.count()).sum::<u64>()
    };
    let sweeps = |metrics: &Metrics| metrics.checkpoints.completed;
    let before = server.database.metrics();
    let mut commits = 0;
    // A commit straddles a sweep once, because the sweep then copies the segments in question at once. The wait is as
    // short as one for a latch.
    loop {
        let metrics = server.database.metrics();
        if sweeps(&metrics) >= sweeps(&before) + 3 && waited(&metrics) >= waited(&before) + 3 {
            break;
        }
        assert!(
            Instant::now() < until,
            "{commits} transactions committed, and too few waited for a checkpoint"
        );
        commits += 1;
        client.run("begin");
        client.run("update t set b = b + 1 where a = 1");
        client.run("update t set b = b + 1 where a = 300");
        client.run("commit");
        // A statement alone, in an implicit block.
        client.run("update t set b = b + 1 where a = 1 or a = 300");
    }
    let expected = [[Some((2 * commits).to_string())], [Some((2 * commits).to_string())]];
    assert_eq!(rows(&client.run("select b from t where a = 1 or a = 300")), expected);
    assert_eq!(server.database.metrics().aborted_straddling, 0);
}

/// Codes that no client receives, with the reason.
const UNHEARD: [(&str, &str); 6] = [
    ("00000", "it is that of notices"),
    ("40001", "it is that of a plan for a table that has changed, and the session plans again"),
    ("53000", "it is that of a commit in a cluster"),
    ("57P03", "it is that of a partition without a primary"),
    ("XX000", "it is that of a bug"),
    ("XX001", "a server whose files are damaged does not start"),
];

/// The texts of the tests in a folder and its folders, without the suites whose models have codes that may not come.
fn texts_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the tests are there");
    let is_model = |path: &Path| ["strict", "messages"].iter().any(|name| path.ends_with(name));
    let texts_at = |path: PathBuf| match path.is_dir() {
        true if is_model(&path) => Vec::new(),
        true => texts_in(&path),
        false => vec![std::fs::read_to_string(path).expect("it is text")],
    };
    entries.flat_map(|entry| texts_at(entry.expect("an entry").path())).collect()
}

/// Each code of the table, but for those of `UNHEARD`, is received here, or named by another test of the protocol.
#[test]
fn each_code_of_the_table_is_heard() {
    every_error_that_a_client_can_bring_about_has_its_code();
    a_binary_argument_that_is_no_value_of_its_type_is_22p03_and_names_its_parameter();
    a_name_of_a_portal_that_is_taken_is_42p03_until_the_portal_is_closed();
    a_server_that_ends_is_57p01();
    a_statement_that_runs_long_is_57014_when_it_is_cancelled();
    let texts = texts_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    let is_named = |code: &str| {
        texts.iter().any(|text| text.contains(&format!("\"{code}\"")) || text.contains(&format!(" {code}: ")))
    };
    let is_told = |code: &&str| !UNHEARD.iter().any(|(unheard, _)| unheard == code);
    let codes: Vec<_> = SqlState::ALL.iter().map(|state| state.code()).filter(is_told).collect();
    let rest: Vec<_> = codes.iter().filter(|code| !has_heard(code)).collect();
    assert!(rest.len() * 2 < codes.len(), "of {} codes so many are not heard here: {rest:?}", codes.len());
    let missing: Vec<_> = rest.into_iter().filter(|code| !is_named(code)).collect();
    assert!(missing.is_empty(), "no test hears {missing:?}");
}

#[test]
fn a_full_memory_is_53200_and_a_long_write_set_54000() {
    let options = Options { memory_bytes: 64 << 20, write_set_bytes_max: 1 << 20, ..Options::default() };
    let server = TestServer::with(options, 4);
    let mut client = server.connect();
    client.run("create table t (a int primary key, b text)");
    let long = "x".repeat(1_000);
    let answer = client.query(&format!("insert into t select n, '{long}' from generate_series(1, 100000) n"));
    assert_eq!(error_code(&answer).as_deref(), Some("54000"), "{}", error_text(&answer));
    let mut code = None;
    for batch in 0..1_000 {
        let (from, to) = (batch * 500, batch * 500 + 499);
        let answer =
            client.query(&format!("insert into t select n, '{long}' from generate_series({from}, {to}) n"));
        code = error_code(&answer);
        if code.is_some() {
            break;
        }
    }
    assert_eq!(code.as_deref(), Some("53200"));
    // The database goes on.
    client.run("delete from t where a < 100");
    client.run("select count(*) from t");
}

/// A server on a disk that can be broken, and a client of it with a table.
fn on_a_disk(options: Options) -> (Arc<FaultyDisk>, TestServer, Client) {
    let disk = FaultyDisk::new(1);
    let server = TestServer::on(disk.clone(), options, 8);
    let mut client = server.connect();
    client.run("create table t (a int primary key, b text)");
    (disk, server, client)
}

/// A database that stops. The writer is told that its outcome is unknown; every client, and the process that started
/// the server, is told that the server ends and why. What was acknowledged is there after a restart.
fn stops(kind: FaultKind, code: &str, write: fn(&mut Client) -> Vec<Message>) {
    let (disk, server, mut client) = on_a_disk(Options::default());
    let (mut idle, mut open) = (server.connect(), server.connect());
    client.run("insert into t values (0, 'acknowledged')");
    open.run("begin");
    open.run("select * from t where a = 5");
    disk.fail_always(kind, "log", 0);
    let mut answer = write(&mut client);
    // A server that ends may say so before it comes to the Sync.
    let is_farewell = |message: &Message| error_text(std::slice::from_ref(message)).contains("FATAL");
    let early = answer.iter().position(is_farewell).map(|at| answer.split_off(at));
    assert_eq!(error_code(&answer).as_deref(), Some("08007"), "{kind:?}: {}", error_text(&answer));
    assert!(error_text(&answer).contains("Restart the server"), "{}", error_text(&answer));
    let clients =
        [("writer", &mut client, early), ("idle", &mut idle, None), ("in a transaction", &mut open, None)];
    for (about, client, early) in clients {
        let farewell = early.unwrap_or_else(|| client.answer());
        let text = error_text(&farewell);
        assert_eq!(error_code(&farewell).as_deref(), Some(code), "{kind:?}, {about}: {text}");
        assert!(text.contains("FATAL") && text.contains("the database has stopped"), "{about}: {text}");
        assert!(client.read().is_none(), "the connection of the {about} client ends");
    }
    let error = server.wait().expect_err("the server says how it ended");
    assert_eq!(error.exit_code(), 4, "{error}");
    assert!(error.to_string().contains("the database has stopped"), "{error}");
    disk.crash();
    let server = TestServer::on(disk.restart(), Options::default(), 4);
    let answer = server.connect().run("select b from t where a = 0");
    assert_eq!(rows(&answer), [[Some("acknowledged".to_string())]]);
}

#[test]
fn a_log_that_fails_is_08007_then_58030_and_the_server_ends() {
    let ways: [fn(&mut Client) -> Vec<Message>; 4] = [
        |client| client.query("insert into t values (1, 'unknown')"),
        |client| {
            client.run("begin");
            client.run("insert into t values (1, 'unknown')");
            client.query("commit")
        },
        // Nothing is answered until the Sync, at which the transaction is committed.
        |client| {
            let insert = |key: i32| {
                [
                    parse("", &format!("insert into t values ({key}, 'unknown')")),
                    bind("", "", &[]),
                    execute("", 0),
                ]
            };
            client.send(&[insert(1).concat(), insert(2).concat(), sync()].concat());
            client.answer()
        },
        |client| {
            client.run("begin");
            client.run("insert into t values (1, 'unknown')");
            client.send(&[parse("", "commit"), bind("", "", &[]), execute("", 0), sync()].concat());
            client.answer()
        },
    ];
    for write in ways {
        stops(FaultKind::Sync, "58030", write);
        stops(FaultKind::Write, "58030", write);
    }
}

#[test]
fn a_log_that_fails_without_a_waiter_ends_the_server_too() {
    let (disk, server, mut client) = on_a_disk(Options::default());
    disk.fail_always(FaultKind::Sync, "log", 0);
    // The commit is acknowledged from memory; only the log's own thread meets the error.
    client.run("set rialto.durability = memory; insert into t values (1, 'in memory')");
    let farewell = client.answer();
    assert_eq!(error_code(&farewell).as_deref(), Some("58030"), "{}", error_text(&farewell));
    assert_eq!(server.wait().expect_err("the server says how it ended").exit_code(), 4);
}

#[test]
fn a_load_that_cannot_be_written_is_58030_or_53100_and_the_server_goes_on() {
    let (disk, server, mut client) = on_a_disk(Options::default());
    for (kind, code) in [(FaultKind::Write, "58030"), (FaultKind::Sync, "58030"), (FaultKind::Full, "53100")]
    {
        let load = "begin; truncate t; insert into t select n, 'x' from generate_series(1, 1000) n; commit";
        disk.fail_always(kind, "load", 0);
        let answer = client.query(load);
        assert_eq!(error_code(&answer).as_deref(), Some(code), "{kind:?}: {}", error_text(&answer));
        assert!(error_text(&answer).contains("load"), "it names the file: {}", error_text(&answer));
        disk.mend();
        client.run("rollback");
        client.run(load);
        assert_eq!(rows(&client.run("select count(*) from t")), [[Some("1000".to_string())]]);
    }
    drop(client);
    server.wait().unwrap();
}

#[test]
fn a_full_disk_is_53100_and_the_server_goes_on_once_there_is_room() {
    let options = Options { log_wait_max: Duration::from_millis(50), ..Options::default() };
    let (disk, server, mut client) = on_a_disk(options);
    disk.fail_always(FaultKind::Full, "", 0);
    let long = "x".repeat(1_000);
    let mut code = None;
    let mut acknowledged = 0;
    while code.is_none() && acknowledged < 200 {
        let from = acknowledged * 1_000;
        let sql = format!("insert into t select n, '{long}' from generate_series({from}, {}) n", from + 999);
        let answer = client.query(&sql);
        code = error_code(&answer);
        acknowledged += i64::from(code.is_none());
    }
    assert_eq!(code.as_deref(), Some("53100"), "after {acknowledged} inserts");
    assert_eq!(rows(&client.run("select count(*) from t")), [[Some((acknowledged * 1_000).to_string())]]);
    disk.mend();
    // The thread that prepares the log's next file needs a moment.
    let again = |_| error_code(&client.query("insert into t values (-1, 'there is room again')")).is_none();
    assert!((0..1_000).any(again), "it goes on");
    drop(client);
    server.wait().unwrap();
}

/// XX001 is not tested here: everything is read when a database is opened, so corruption keeps a server from starting
/// (crates/rialto-cli/tests/administration/serve.rs).
#[test]
fn a_server_that_ends_is_57p01() {
    let mut server = TestServer::start();
    let mut client = server.connect();
    client.run("select 1");
    server.ask_to_stop();
    assert_eq!(error_code(&client.answer()).as_deref(), Some("57P01"));
}

#[test]
fn a_statement_that_runs_long_is_57014_when_it_is_cancelled() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, b text)");
    client.run("insert into t select n, 'x' from generate_series(1, 100) n");
    let (process, secret) = (client.process, client.secret);
    client.send(&query("select count(*) from generate_series(1, 1000000000000)"));
    // A request that comes before the statement runs does nothing, so requests are repeated until the statement is
    // answered.
    let answered = AtomicBool::new(false);
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !answered.load(Ordering::SeqCst) {
                let mut canceller = Client::raw(server.address);
                canceller.send_startup(&[80_877_102, process, secret].map(u32::to_be_bytes).concat());
                assert!(canceller.read().is_none(), "the end says that it was done");
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let answer = client.answer();
        answered.store(true, Ordering::SeqCst);
        answer
    });
    assert_eq!(error_code(&answer).as_deref(), Some("57014"));
    client.run("select 1");
}

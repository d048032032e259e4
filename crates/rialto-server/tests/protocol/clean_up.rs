//! What pools and rollbacks send before a connection is used again: DEALLOCATE, CLOSE, DISCARD, RESET, UNLISTEN.

use crate::common::*;

fn run_prepared(client: &mut Client, statement: &str) -> Vec<Message> {
    client.send(&[bind("", statement, &[]), execute("", 0), sync()].concat());
    client.answer()
}

fn prepare(client: &mut Client, name: &str, sql: &str) {
    client.send(&[parse(name, sql), sync()].concat());
    let answer = client.answer();
    assert_eq!(error_code(&answer), None, "{name}: {}", error_text(&answer));
}

/// The tags of completed statements.
fn completed(answer: &[Message]) -> Vec<String> {
    let done = answer.iter().filter(|(tag, _)| *tag == b'C');
    done.map(|(_, body)| String::from_utf8_lossy(&body[..body.len() - 1]).into_owned()).collect()
}

fn code(answer: &[Message]) -> Option<String> {
    error_code(answer)
}

const GONE: Option<&str> = Some("26000");

#[test]
fn deallocate_drops_prepared_statements() {
    let server = TestServer::start();
    let mut client = server.connect();
    for (sql, tag, kept) in [
        ("deallocate s1", "DEALLOCATE", &["s2", "S1", "prepare"][..]),
        ("deallocate prepare S1", "DEALLOCATE", &["s2", "S1", "prepare"]),
        ("DEALLOCATE PREPARE \"S1\"", "DEALLOCATE", &["s1", "s2", "prepare"]),
        ("deallocate prepare", "DEALLOCATE", &["s1", "s2", "S1"]),
        ("deallocate all", "DEALLOCATE ALL", &[]),
        ("DEALLOCATE PREPARE ALL", "DEALLOCATE ALL", &[]),
        ("begin; deallocate all; rollback", "DEALLOCATE ALL", &[]),
        ("discard all", "DISCARD ALL", &[]),
    ] {
        client.run("deallocate all");
        let names = ["s1", "s2", "S1", "prepare"];
        names.iter().for_each(|name| prepare(&mut client, name, "select 1"));
        let answer = client.run(sql);
        assert!(completed(&answer).iter().any(|done| done == tag), "{sql}: {:?}", completed(&answer));
        for name in names {
            let expected = if kept.contains(&name) { None } else { GONE };
            assert_eq!(code(&run_prepared(&mut client, name)).as_deref(), expected, "{name} after {sql}");
        }
    }
    assert_eq!(code(&client.query("deallocate s1")).as_deref(), GONE);
    client.run("begin");
    assert_eq!(code(&client.query("deallocate s1")).as_deref(), GONE);
    let refused = [
        "deallocate all",
        "close all",
        "discard plans",
        "discard all",
        "unlisten *",
        "reset all",
        "select pg_advisory_unlock_all()",
    ];
    for sql in refused {
        assert_eq!(code(&client.query(sql)).as_deref(), Some("25P02"), "{sql} in a failed block");
    }
    assert_eq!(state(&client.run("rollback")), 'I');
}

/// psycopg sends this behind its ROLLBACK once it has prepared a statement.
#[test]
fn deallocate_all_runs_as_a_prepared_statement_and_leaves_the_unnamed() {
    let server = TestServer::start();
    let mut client = server.connect();
    prepare(&mut client, "s", "select 1");
    prepare(&mut client, "all", "deallocate all");
    let messages = [parse("", "select 7"), bind("p", "all", &[]), execute("p", 0), bind("", "", &[])];
    client.send(&[messages.concat(), execute("", 0), sync()].concat());
    let answer = client.answer();
    assert_eq!(completed(&answer), ["DEALLOCATE ALL", "SELECT 1"], "{}", error_text(&answer));
    for name in ["s", "all"] {
        assert_eq!(code(&run_prepared(&mut client, name)).as_deref(), GONE);
    }
}

#[test]
fn close_closes_portals() {
    let server = TestServer::start();
    let mut client = server.connect();
    prepare(&mut client, "rows", "select n from generate_series(1, 5) n");
    for (sql, tag, kept) in [
        ("close p", "CLOSE CURSOR", &["q"][..]),
        ("close all", "CLOSE CURSOR ALL", &[]),
        ("discard plans", "DISCARD PLANS", &["p", "q"]),
        ("discard temp", "DISCARD TEMP", &["p", "q"]),
        ("discard temporary", "DISCARD TEMP", &["p", "q"]),
        ("discard sequences", "DISCARD SEQUENCES", &["p", "q"]),
        ("unlisten *", "UNLISTEN", &["p", "q"]),
        ("unlisten channel", "UNLISTEN", &["p", "q"]),
    ] {
        client.run("begin");
        let open = ["p", "q"].map(|portal| [bind(portal, "rows", &[]), execute(portal, 2)].concat());
        client.send(&[open.concat(), sync()].concat());
        assert_eq!(tags(&client.answer()), "2DDs2DDsZ");
        assert_eq!(completed(&client.run(sql)), [tag], "{sql}");
        for portal in kept {
            client.send(&[execute(portal, 0), sync()].concat());
            assert_eq!(completed(&client.answer()), ["SELECT 3"], "{portal} after {sql}");
        }
        if kept.len() < 2 {
            client.send(&[execute("p", 0), sync()].concat());
            assert_eq!(code(&client.answer()).as_deref(), Some("34000"), "{sql}");
        }
        client.run("rollback");
    }
    assert_eq!(code(&client.query("close p")).as_deref(), Some("34000"));
}

/// The portal that runs the statement stays.
#[test]
fn close_does_not_close_its_own_portal() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("begin");
    prepare(&mut client, "all", "close all");
    let again = [bind("p", "all", &[]), execute("p", 0), execute("p", 0), sync()].concat();
    client.send(&again);
    let answer = client.answer();
    assert_eq!(
        (completed(&answer), code(&answer).as_deref()),
        (vec!["CLOSE CURSOR ALL".into()], Some("55000"))
    );
    client.run("rollback");
    prepare(&mut client, "p", "close p");
    client.send(&[bind("p", "p", &[]), execute("p", 0), sync()].concat());
    assert_eq!(code(&client.answer()).as_deref(), Some("24000"));
}

#[test]
fn discard_all_resets_settings_and_stands_alone() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("set application_name = 'one'; set statement_timeout = '1h'; set lock_timeout = '2h'");
    let answer = client.run("discard all");
    assert_eq!(completed(&answer), ["DISCARD ALL"]);
    let status = answer.iter().find(|(tag, _)| *tag == b'S').map(|(_, body)| &body[..]);
    assert_eq!(status, Some(&b"application_name\0\0"[..]), "the client is told");
    assert_eq!(rows(&client.run("show statement_timeout")), [[Some("0".to_owned())]]);
    assert_eq!(rows(&client.run("show lock_timeout")), [[Some("10s".to_owned())]]);
    client.run("set application_name = 'two'");
    for sql in ["begin; discard all", "select 1; discard all", "discard all; select 1"] {
        assert_eq!(code(&client.query(sql)).as_deref(), Some("25001"), "{sql}");
        client.query("rollback");
    }
    assert_eq!(rows(&client.run("show application_name")), [[Some("two".to_owned())]]);
    let wrong =
        ["discard", "discard nothing", "deallocate", "deallocate all all", "close", "unlisten", "close $1"];
    for sql in wrong {
        assert_eq!(code(&client.query(sql)).as_deref(), Some("42601"), "{sql}");
    }
}

/// What asyncpg's pool sends when a connection comes back, as one query string.
#[test]
fn the_reset_query_of_asyncpg_runs() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("set application_name = 'mine'");
    prepare(&mut client, "s", "select 1");
    let sql = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;";
    let answer = client.run(sql);
    assert_eq!(completed(&answer), ["SELECT 1", "CLOSE CURSOR ALL", "UNLISTEN", "RESET"]);
    let (_, description) = answer.iter().find(|(tag, _)| *tag == b'T').unwrap();
    let name = b"pg_advisory_unlock_all\0";
    assert_eq!(description[2..2 + name.len()], name[..]);
    let type_at = 2 + name.len() + 6;
    assert_eq!(description[type_at..type_at + 6], [0, 0, 8, 230, 0, 4], "void, of 4 bytes");
    assert_eq!(rows(&answer), [[Some(String::new())]]);
    assert_eq!(rows(&client.run("show application_name")), [[Some(String::new())]]);
    assert_eq!(code(&run_prepared(&mut client, "s")), None, "it deallocates nothing");
}

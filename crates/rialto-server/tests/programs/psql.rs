//! psql 15 as people use it: errors with their SQLSTATE and position, strings of several statements, blocks, COPY.

use std::io::Write;
use std::process::Stdio;

use crate::common::{TestServer, has, texts};

#[test]
fn errors_come_with_sqlstate_and_place() {
    if !has("psql") {
        return;
    }
    let server = TestServer::start();
    let (_, stderr) = server.psql(&["select 1,\n  nope from t"]);
    assert!(stderr.contains("ERROR:  42P01: relation \"t\" does not exist"), "{stderr}");
    assert!(stderr.contains("LINE 2:   nope from t\n                    ^"), "{stderr}");
    let (_, stderr) = server.psql(&["selec 1"]);
    assert!(stderr.contains("ERROR:  42601: syntax error at or near \"selec\""), "{stderr}");
    assert!(stderr.contains("LINE 1: selec 1\n        ^"), "{stderr}");
    let (_, stderr) = server.psql(&["select 1; select sum(1)"]);
    assert!(stderr.contains("ERROR:  0A000: function sum() is not supported"), "{stderr}");
    assert!(stderr.contains("LINE 1: select 1; select sum(1)\n                         ^"), "{stderr}");
}

#[test]
fn a_string_of_statements_is_one_transaction() {
    if !has("psql") {
        return;
    }
    let server = TestServer::start();
    server.psql(&["create table t (a int primary key)"]);
    let (stdout, stderr) = server.psql(&["insert into t values (1); insert into t values (1); select 7"]);
    assert_eq!(stdout, "INSERT 0 1\n");
    assert!(stderr.contains("ERROR:  23505: duplicate key"), "{stderr}");
    assert_eq!(server.psql(&["select count(*) from t"]).0, "0\n");
    // As in PostgreSQL, a BEGIN takes the statements before it into its block.
    let (stdout, _) =
        server.psql(&["insert into t values (1); select a + 1 from t; begin; rollback; select a from t"]);
    assert_eq!(stdout, "INSERT 0 1\n2\nBEGIN\nROLLBACK\n");
    server.psql(&["insert into t values (1); select 1"]);
    // With a syntax error anywhere, nothing runs.
    let (stdout, stderr) = server.psql(&["delete from t; selec 1"]);
    assert_eq!(stdout, "");
    assert!(stderr.contains("42601"), "{stderr}");
    assert_eq!(server.psql(&["select count(*) from t"]).0, "1\n");
}

#[test]
fn a_failed_block_lasts_until_its_end() {
    if !has("psql") {
        return;
    }
    let server = TestServer::start();
    let (stdout, stderr) =
        server.psql(&["create table t (a int)", "begin", "select nope", "select 1", "end", "select 2"]);
    assert_eq!(stdout, "CREATE TABLE\nBEGIN\nROLLBACK\n2\n");
    assert!(stderr.contains("ERROR:  42703: column \"nope\" does not exist"), "{stderr}");
    assert!(stderr.contains("ERROR:  25P02: current transaction is aborted"), "{stderr}");
    let (stdout, stderr) = server.psql(&["commit", "begin", "begin", "rollback"]);
    assert_eq!(stdout, "COMMIT\nBEGIN\nBEGIN\nROLLBACK\n");
    assert!(stderr.contains("WARNING:  25P01: there is no transaction in progress"), "{stderr}");
    assert!(stderr.contains("WARNING:  25001: there is already a transaction in progress"), "{stderr}");
}

#[test]
fn copy_goes_both_ways() {
    if !has("psql") {
        return;
    }
    let server = TestServer::start();
    let script = "create table t (a int primary key, b text, c numeric(5,1));\n\
                  copy t from stdin;\n1\ttab\\there\t1.25\n2\t\\N\t\\N\n3\t\\\\N\t0\n\\.\n\
                  copy t (b, a) from stdin (delimiter ',', null 'nil');\nx,4\nnil,5\n\\.\n\
                  copy t to stdout;\n\
                  copy t (a, b) to stdout (null '-');\n\
                  copy t from stdin;\n9\tx\n\\.\n\
                  copy t from stdin;\n1\tx\t1\n\\.\n\
                  select count(*) from t;\n\\q\n";
    let mut psql = server.program("psql");
    let mut child = psql
        .args(["-X", "-A", "-t", "-q", "-v", "VERBOSITY=verbose"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let (stdout, stderr) = texts(child.wait_with_output().unwrap());
    let expected = "1\ttab\\there\t1.3\n2\t\\N\t\\N\n3\t\\\\N\t0.0\n4\tx\t\\N\n5\t\\N\t\\N\n\
                    1\ttab\\there\n2\t-\n3\t\\\\N\n4\tx\n5\t-\n5\n";
    assert_eq!(stdout, expected, "{stderr}");
    assert!(stderr.contains("ERROR:  22P04: missing data for column \"c\""), "{stderr}");
    assert!(stderr.contains("CONTEXT:  COPY t, line 1: \"9\tx\""), "{stderr}");
    assert!(stderr.contains("ERROR:  23505"), "{stderr}");
}

#[test]
fn notices_settings_and_the_prompt_of_psql() {
    if !has("psql") {
        return;
    }
    let server = TestServer::start();
    let (stdout, stderr) = server.psql(&[
        "drop table if exists nope",
        "vacuum",
        "show server_version",
        "set rialto.durability = memory",
        "show rialto.durability",
        "select current_user, current_database()",
        "\\echo :SERVER_VERSION_NUM",
    ]);
    assert_eq!(stdout, "DROP TABLE\nVACUUM\n15.0 (Rialto 0.1.0)\nSET\nmemory\nann|bank\n150000\n");
    assert!(stderr.contains("NOTICE:  00000: table \"nope\" does not exist, skipping"), "{stderr}");
    assert!(stderr.contains("NOTICE:  00000: VACUUM has nothing to do"), "{stderr}");
}

/// As in dumps and loaders: everything in one transaction, the key last; its columns become NOT NULL.
#[test]
fn a_key_is_added_where_the_table_was_made_and_filled() {
    if !has("psql") {
        return;
    }
    let server = TestServer::start();
    let script = "begin;\ncreate table t (a int, b text);\ncopy t from stdin;\n1\tone\n2\ttwo\n\\.\n\
                  insert into t select n, 'more' from generate_series(3, 1000) n;\n\
                  alter table t add primary key (a);\ninsert into t values (1001, 'last');\ncommit;\n\
                  insert into t values (null, 'none');\ninsert into t values (2, 'twice');\n\
                  create table u (a int, b int);\ninsert into u values (1, 1), (null, 2);\n\
                  alter table u add primary key (b, a);\n\
                  select count(*) from t where a > 0;\n\\q\n";
    let mut psql = server.program("psql");
    let mut child = psql
        .args(["-X", "-A", "-t", "-q", "-v", "VERBOSITY=verbose"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let (stdout, stderr) = texts(child.wait_with_output().unwrap());
    assert_eq!(stdout, "1001\n", "{stderr}");
    assert!(stderr.contains("ERROR:  23502: null value in column \"a\""), "{stderr}");
    assert!(stderr.contains("ERROR:  23505: duplicate key"), "{stderr}");
    assert_eq!(stderr.matches("ERROR:").count(), 3, "{stderr}");
    assert_eq!(stderr.matches("23502").count(), 2, "{stderr}");
}

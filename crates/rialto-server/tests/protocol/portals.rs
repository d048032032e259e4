//! Portals and prepared statements: they end with their transaction or savepoint, describe their results, and are
//! bounded.

use crate::common::*;

/// Bind without arguments, with these result formats.
fn bind_formats(portal: &str, statement: &str, formats: &[u8]) -> Vec<u8> {
    let mut body = [portal, "\0", statement, "\0\0\0\0\0"].concat().into_bytes();
    body.extend_from_slice(&[0, formats.len() as u8]);
    body.extend(formats.iter().flat_map(|format| [0, *format]));
    message(b'B', &body)
}

fn close(kind: u8, name: &str) -> Vec<u8> {
    message(b'C', &[&[kind], name.as_bytes(), b"\0"].concat())
}

/// A session with a table of the rows 1 to 9.
fn session(server: &TestServer) -> Client {
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    client.run("insert into t select n from generate_series(1, 9) n");
    client
}

fn exchange(client: &mut Client, messages: &[Vec<u8>]) -> Vec<Message> {
    client.send(&[messages.concat(), sync()].concat());
    client.answer()
}

fn code(client: &mut Client, messages: &[Vec<u8>]) -> Option<String> {
    error_code(&exchange(client, messages))
}

#[test]
fn a_describe_tells_the_formats_of_a_portal_that_has_begun() {
    let server = TestServer::start();
    let mut client = session(&server);
    for (formats, expected) in [(&[1, 0][..], [1, 0]), (&[1], [1, 1]), (&[], [0, 0])] {
        let answer = exchange(
            &mut client,
            &[
                parse("", "select a, a from t order by a"),
                bind_formats("", "", formats),
                execute("", 1),
                describe(b'P', ""),
                execute("", 1),
            ],
        );
        assert_eq!(tags(&answer), "12DsTDsZ", "{}", error_text(&answer));
        // Each column's description ends with its format.
        let columns = &answer[4].1;
        let width = (columns.len() - 2) / 2;
        let told = [columns[2 + width - 1], columns[2 + 2 * width - 1]];
        assert_eq!(told, expected, "{formats:?}");
    }
}

#[test]
fn a_portal_gives_nothing_in_a_failed_block_and_ends_with_its_savepoint() {
    let server = TestServer::start();
    let mut client = session(&server);
    client.run("begin");
    let open = |name: &str| {
        [parse("", "select a from t order by a"), bind(name, "", &[]), execute(name, 2)].concat()
    };
    assert_eq!(tags(&exchange(&mut client, &[open("outer")])), "12DDsZ");
    client.run("savepoint s");
    client.run("insert into t values (10)");
    assert_eq!(tags(&exchange(&mut client, &[open("inner")])), "12DDsZ");
    assert_eq!(error_code(&client.query("select 1 / 0")).as_deref(), Some("22012"));
    for name in ["outer", "inner"] {
        assert_eq!(code(&mut client, &[execute(name, 1)]).as_deref(), Some("25P02"), "{name}");
        assert_eq!(code(&mut client, &[describe(b'P', name)]).as_deref(), Some("25P02"), "{name}");
    }
    assert_eq!(code(&mut client, &[parse("", ""), bind("", "", &[]), execute("", 0)]), None);
    client.run("rollback to s");
    assert_eq!(tags(&exchange(&mut client, &[execute("outer", 1)])), "DsZ", "it is older than the savepoint");
    assert_eq!(code(&mut client, &[execute("inner", 1)]).as_deref(), Some("34000"));
    client.run("rollback to s");
    assert_eq!(tags(&exchange(&mut client, &[open("inner")])), "12DDsZ", "its name is free");
    client.run("release s");
    client.run("savepoint u");
    client.run("rollback to u");
    assert_eq!(tags(&exchange(&mut client, &[execute("inner", 0)])), "DDDDDDDCZ");
    client.run("rollback");
    assert_eq!(code(&mut client, &[execute("outer", 1)]).as_deref(), Some("34000"));
}

/// A portal reads its rows at its first Execute, which may be behind a savepoint that is newer than the portal.
#[test]
fn a_portal_hands_out_no_rows_that_a_rollback_to_a_savepoint_has_undone() {
    let server = TestServer::start();
    let mut client = session(&server);
    for portal in ["p", ""] {
        client.run("begin");
        let messages = [parse("s", "select a from t order by a desc"), bind(portal, "s", &[])];
        client.send(&[messages.concat(), message(b'H', &[])].concat());
        // The savepoint is made in the same pipeline: a simple query ends the unnamed portal.
        let run = |sql: &str| {
            [parse("u", sql), bind("u", "u", &[]), execute("u", 0), close(b'S', "u"), close(b'P', "u")]
                .concat()
        };
        let answer = exchange(
            &mut client,
            &[
                run("savepoint x"),
                run("insert into t values (10), (11)"),
                execute(portal, 1),
                run("rollback to x"),
                execute(portal, 1),
            ],
        );
        assert_eq!(rows(&answer), [[Some("11".to_string())]], "{portal}");
        assert_eq!(error_code(&answer).as_deref(), Some("34000"), "{portal}");
        client.run("rollback");
        assert_eq!(code(&mut client, &[close(b'S', "s")]), None);
    }
    // A portal that ran before the savepoint has read nothing behind it.
    client.run("begin");
    let answer = exchange(
        &mut client,
        &[parse("s", "select a from t order by a"), bind("p", "s", &[]), execute("p", 1)],
    );
    assert_eq!(tags(&answer), "12DsZ");
    client.run("savepoint x");
    assert_eq!(tags(&exchange(&mut client, &[execute("p", 1)])), "DsZ");
    client.run("rollback to x");
    assert_eq!(tags(&exchange(&mut client, &[execute("p", 1)])), "DsZ");
}

#[test]
fn a_portal_ends_with_its_transaction_also_within_a_pipeline() {
    let server = TestServer::start();
    let mut client = session(&server);
    for end in ["commit", "rollback"] {
        client.run("begin");
        let run = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
        let answer = exchange(
            &mut client,
            &[
                parse("s", "select a from t order by a"),
                bind("p", "s", &[]),
                execute("p", 1),
                run(end),
                run("begin"),
                execute("p", 1),
            ],
        );
        assert_eq!(tags(&answer), "12Ds12C12CEZ", "{end}");
        assert_eq!(error_code(&answer).as_deref(), Some("34000"), "{end}");
        client.run("rollback");
        assert_eq!(code(&mut client, &[close(b'S', "s")]), None);
    }
}

/// The tags of all CommandCompletes.
fn completed(answer: &[Message]) -> Vec<String> {
    let bodies = answer.iter().filter(|(tag, _)| *tag == b'C').map(|(_, body)| body);
    bodies.map(|body| String::from_utf8_lossy(body).trim_end_matches('\0').to_string()).collect()
}

#[test]
fn portals_that_are_open_together_keep_their_own_arguments() {
    let server = TestServer::start();
    let mut client = session(&server);
    client.run("create table v (id int primary key, n int)");
    client.run("insert into v values (1, 0), (2, 0), (3, 0)");
    // In either order.
    for order in [["p", ""], ["", "p"]] {
        let answer = exchange(
            &mut client,
            &[
                parse("s", "update v set n = n + 1 where id = $1"),
                bind("", "s", &["1"]),
                bind("p", "s", &["2"]),
                execute(order[0], 0),
                execute(order[1], 0),
                close(b'S', "s"),
            ],
        );
        assert_eq!(completed(&answer), ["UPDATE 1"; 2], "{order:?}: {}", error_text(&answer));
    }
    let found: String =
        rows(&client.run("select n from v order by id")).concat().into_iter().flatten().collect();
    assert_eq!(found, "220", "each changed the row of its own argument");
    // Portals of statements with other numbers of parameters.
    let answer = exchange(
        &mut client,
        &[
            parse("two", "update v set n = n + $2 where id = $1"),
            parse("none", "select 1"),
            bind("", "two", &["3", "5"]),
            bind("p", "none", &[]),
            execute("p", 0),
            execute("", 0),
        ],
    );
    assert_eq!(completed(&answer), ["SELECT 1", "UPDATE 1"], "{}", error_text(&answer));
    let found: String =
        rows(&client.run("select n from v order by id")).concat().into_iter().flatten().collect();
    assert_eq!(found, "225");
}

#[test]
fn what_has_given_all_its_rows_gives_none_again_and_a_change_is_not_made_twice() {
    let server = TestServer::start();
    let mut client = session(&server);
    let run = |client: &mut Client, sql: &str, limits: &[u32], portal: &str| {
        let executes: Vec<_> = limits.iter().map(|limit| execute(portal, *limit)).collect();
        let answer = exchange(client, &[parse("", sql), bind(portal, "", &[]), executes.concat()]);
        (completed(&answer), error_code(&answer))
    };
    for portal in ["", "p"] {
        for (sql, word) in [
            ("select a from t", "SELECT"),
            ("update t set a = a returning a", "UPDATE"),
            ("delete from t where a < 100 returning a", "DELETE"),
            ("insert into t select n from generate_series(1, 9) n returning a", "INSERT 0"),
        ] {
            let tags = |counts: &[u32]| counts.iter().map(|count| format!("{word} {count}")).collect();
            assert_eq!(run(&mut client, sql, &[0, 0], portal), (tags(&[9, 0]), None), "{sql}");
            if word == "DELETE" || word == "INSERT 0" {
                continue;
            }
            assert_eq!(run(&mut client, sql, &[2, 2, 0, 0, 1], portal), (tags(&[5, 0, 0]), None), "{sql}");
            assert_eq!(run(&mut client, sql, &[100, 1], portal), (tags(&[9, 0]), None), "{sql}");
            assert_eq!(run(&mut client, sql, &[9, 1], portal), (tags(&[0]), None), "{sql}");
        }
        for (sql, word) in [("show application_name", "SHOW"), ("explain select 1", "EXPLAIN")] {
            assert_eq!(run(&mut client, sql, &[0, 0], portal), (vec![word.to_string(); 2], None), "{sql}");
        }
        for sql in ["update t set a = a", "begin", "set application_name = x", "copy t to stdout"] {
            let (done, error) = run(&mut client, sql, &[0, 0], portal);
            assert_eq!((done.len(), error.as_deref()), (1, Some("55000")), "{sql}");
            client.query("rollback");
        }
    }
}

#[test]
fn a_parse_that_fails_leaves_no_unnamed_statement() {
    let server = TestServer::start();
    let mut client = session(&server);
    assert_eq!(code(&mut client, &[parse("", "insert into t values (100)")]), None);
    for wrong in ["insert into nowhere values (1)", "nonsense", "select 1; select 2"] {
        assert!(code(&mut client, &[parse("", wrong)]).is_some(), "{wrong}");
        assert_eq!(
            code(&mut client, &[bind("", "", &[]), execute("", 0)]).as_deref(),
            Some("26000"),
            "{wrong}"
        );
    }
    // A named statement is different: it does not exist before its Parse succeeds.
    assert!(code(&mut client, &[parse("s", "nonsense")]).is_some());
    assert_eq!(code(&mut client, &[parse("s", "select 1")]), None);
    assert_eq!(code(&mut client, &[parse("s", "select 1")]).as_deref(), Some("42P05"));
    assert_eq!(code(&mut client, &[close(b'S', "s"), parse("s", "select 2")]), None);
}

#[test]
fn a_portal_goes_on_after_its_statement_is_closed_and_not_after_its_own_close() {
    let server = TestServer::start();
    let mut client = session(&server);
    let answer = exchange(
        &mut client,
        &[
            parse("s", "select a from t order by a"),
            bind("p", "s", &[]),
            execute("p", 2),
            close(b'S', "s"),
            execute("p", 0),
            close(b'P', "p"),
            close(b'P', "p"),
            execute("p", 0),
        ],
    );
    assert_eq!(tags(&answer), "12DDs3DDDDDDDC33EZ");
    assert_eq!(error_code(&answer).as_deref(), Some("34000"));
    // What PostgreSQL reads as a negative limit is no limit.
    let all = [parse("", "select a from t"), bind("", "", &[]), execute("", u32::MAX)];
    assert_eq!(tags(&exchange(&mut client, &all)), "12DDDDDDDDDCZ");
    // Exactly as many rows as there are: the next Execute tells the end.
    let nine = [parse("", "select a from t"), bind("", "", &[]), execute("", 9), execute("", 9)];
    assert_eq!(tags(&exchange(&mut client, &nine)), "12DDDDDDDDDsCZ");
}

#[test]
fn what_portals_keep_is_bounded() {
    let server = TestServer::start();
    let mut client = session(&server);
    let long = "x".repeat(1 << 10);
    let rows = |count: u32| format!("select '{long}', n from generate_series(1, {count}) n");
    client.run("begin");
    client.run("savepoint s");
    let open = |name: &str, count: u32| [parse("", &rows(count)), bind(name, "", &[]), execute(name, 1)];
    let answer = exchange(&mut client, &open("p", 100_000));
    assert_eq!(error_code(&answer).as_deref(), Some("53200"), "{}", error_text(&answer));
    client.run("rollback to s");
    // The bound is for all portals together, until they have run to their ends, or are closed.
    for (name, code_expected) in [("a", None), ("b", None), ("c", Some("53200"))] {
        assert_eq!(code(&mut client, &open(name, 30_000)).as_deref(), code_expected, "{name}");
    }
    client.run("rollback to s");
    client.run("savepoint s");
    for name in ["a", "b"] {
        assert_eq!(code(&mut client, &open(name, 30_000)), None);
    }
    let answer = exchange(&mut client, &[execute("a", 0)]);
    assert_eq!(answer.iter().filter(|(tag, _)| *tag == b'D').count(), 29_999);
    assert_eq!(code(&mut client, &open("c", 30_000)), None);
    assert_eq!(code(&mut client, &[close(b'P', "b")]), None);
    assert_eq!(code(&mut client, &open("d", 30_000)), None);
    client.run("rollback");
    // Arguments count, too.
    let argument = "y".repeat(1 << 20);
    client.send(&[parse("s", "select $1::text"), sync()].concat());
    client.answer();
    client.run("begin");
    let refused = (0..100).find_map(|number| {
        let name = format!("p{number}");
        let refused = code(&mut client, &[bind(&name, "s", &[&argument])])?;
        Some((number, refused))
    });
    assert_eq!(refused, Some((63, "53200".to_string())));
    client.run("rollback");
    assert_eq!(code(&mut client, &[bind("p", "s", &[&argument])]), None, "the end of the block frees them");
}

/// The unnamed portal's arguments count among what all portals keep, until others replace them.
#[test]
fn the_arguments_of_the_unnamed_portal_are_bounded() {
    let server = TestServer::start();
    let mut client = session(&server);
    let argument = |mib: usize| "y".repeat(mib << 20);
    assert_eq!(code(&mut client, &[parse("s", "select 1 where $1::text is null")]), None);
    for (mib, expected) in [(60, None), (70, Some("53200")), (60, None), (1, None)] {
        let answer = exchange(&mut client, &[bind("", "s", &[&argument(mib)])]);
        assert_eq!(error_code(&answer).as_deref(), expected, "{mib} MiB: {}", error_text(&answer));
    }
    client.run("begin");
    assert_eq!(code(&mut client, &[bind("a", "s", &[&argument(30)])]), None);
    client.run("savepoint s");
    // (A simple query ends the unnamed one.)
    let beside = [bind("", "s", &[&argument(20)]), bind("b", "s", &[&argument(20)])];
    for refused in [&beside[..], &[bind("", "s", &[&argument(40)])]] {
        assert_eq!(code(&mut client, refused).as_deref(), Some("53200"));
        client.run("rollback to s");
    }
    assert_eq!(code(&mut client, &[bind("", "s", &[&argument(20)])]), None);
    let answer = exchange(&mut client, &[execute("", 0), bind("", "s", &[&argument(1)]), execute("", 0)]);
    assert_eq!(tags(&answer), "C2CZ", "{}", error_text(&answer));
    assert_eq!(
        code(&mut client, &[bind("b", "s", &[&argument(20)])]),
        None,
        "the unnamed one has let go of its 20"
    );
    client.run("commit");
    assert_eq!(code(&mut client, &[bind("a", "s", &[&argument(60)])]), None);
}

/// A field of the error in an answer.
fn field(answer: &[Message], field: u8) -> String {
    let (_, body) = answer.iter().find(|(tag, _)| *tag == b'E').expect("there is an error");
    let fields = body.split(|byte| *byte == 0).filter(|text| text.first() == Some(&field));
    fields.map(|text| String::from_utf8_lossy(&text[1..]).into_owned()).collect()
}

/// The hint for arguments that find no room depends on what takes it.
#[test]
fn arguments_without_room_are_told_what_helps() {
    let server = TestServer::start();
    let mut client = session(&server);
    let argument = |mib: usize| "y".repeat(mib << 20);
    assert_eq!(code(&mut client, &[parse("s", "select 1 where $1::text is null")]), None);
    for portal in ["", "p"] {
        let answer = exchange(&mut client, &[bind(portal, "s", &[&argument(70)])]);
        let (message, hint) = (field(&answer, b'M'), field(&answer, b'H'));
        assert!(message.contains("arguments of 73400"), "{message}");
        assert!(hint.contains("several statements") && !hint.contains("portal"), "{hint}");
        client.run("begin");
        assert_eq!(code(&mut client, &[bind("other", "s", &[&argument(40)])]), None);
        let answer = exchange(&mut client, &[bind(portal, "s", &[&argument(40)])]);
        let (message, hint) = (field(&answer, b'M'), field(&answer, b'H'));
        assert!(message.contains("the portals of this session would keep more than 64 MiB"), "{message}");
        assert!(hint.contains("Close other portals") && !hint.contains("row limit"), "{hint}");
        client.run("rollback");
    }
    let rows = format!("select '{}', n from generate_series(1, 100000) n", "x".repeat(1 << 10));
    let answer = exchange(&mut client, &[parse("", &rows), bind("", "", &[]), execute("", 1)]);
    assert!(field(&answer, b'H').contains("without a row limit"), "{}", field(&answer, b'H'));
}

/// A portal's arguments are dropped after its run, whatever the outcome.
#[test]
fn a_portal_that_has_run_counts_no_arguments() {
    let server = TestServer::start();
    let mut client = session(&server);
    let argument = "y".repeat(20 << 20);
    let texts = ["update t set a = a where $1::text is null", "select a from t where $1::text is not null"];
    for text in texts {
        for rows in [0, 2] {
            client.run("begin");
            assert_eq!(code(&mut client, &[close(b'S', "s"), parse("s", text)]), None);
            for number in 0..8 {
                let name = format!("p{number}");
                let messages = [bind(&name, "s", &[&argument]), execute(&name, rows)];
                let answer = exchange(&mut client, &messages);
                assert_eq!(error_code(&answer), None, "{text}, {rows}, {number}: {}", error_text(&answer));
            }
            // The others keep their arguments.
            if rows == 2 && text.starts_with("select") {
                assert_eq!(tags(&exchange(&mut client, &[execute("p0", 0)])), "DDDDDDDCZ");
            }
            let beside = [bind("a", "s", &[&argument]), bind("b", "s", &[&argument])];
            assert_eq!(code(&mut client, &beside), None);
            for name in ["p0", "p1", "a"] {
                assert_eq!(code(&mut client, &[close(b'P', name)]), None);
            }
            assert_eq!(code(&mut client, &[bind("c", "s", &[&argument])]), None);
            let one_more = [bind("d", "s", &[&argument]), bind("e", "s", &[&argument])];
            assert_eq!(
                code(&mut client, &one_more).as_deref(),
                Some("53200"),
                "those that have not run count"
            );
            client.run("rollback");
        }
    }
    // A portal that fails exists until it is closed, if it is older than the savepoint of the rollback.
    client.run("begin");
    let fails = "update t set a = length($1) / 0 where a = 1";
    assert_eq!(
        code(&mut client, &[close(b'S', "s"), parse("s", "select length($1::text)"), parse("f", fails)]),
        None
    );
    for name in ["f0", "f1", "f2"] {
        assert_eq!(code(&mut client, &[bind(name, "f", &[&argument])]), None);
        client.run("savepoint s");
        assert_eq!(code(&mut client, &[execute(name, 0)]).as_deref(), Some("22012"));
        client.run("rollback to s");
    }
    let answer = exchange(&mut client, &[bind("g", "s", &[&argument]), execute("g", 0)]);
    assert_eq!(error_code(&answer), None, "{}", error_text(&answer));
    assert_eq!(code(&mut client, &[execute("f0", 0)]).as_deref(), Some("55000"));
}

/// Thousands of statements and portals are kept apart, and closed one by one.
#[test]
fn thousands_of_statements_and_portals_live_side_by_side() {
    const COUNT: usize = 3_000;
    let server = TestServer::start();
    let mut client = session(&server);
    let text = |number: usize| format!("select a + {number} from t where a = $1::int");
    let parsed: Vec<_> = (0..COUNT).map(|number| parse(&format!("s{number}"), &text(number))).collect();
    let answer = exchange(&mut client, &parsed);
    assert_eq!(tags(&answer), "1".repeat(COUNT) + "Z", "{}", error_text(&answer));
    client.run("begin");
    let key = |number: usize| number % 9 + 1;
    let bound = |numbers: &mut dyn Iterator<Item = usize>| {
        let one = |number| bind(&format!("p{number}"), &format!("s{number}"), &[&key(number).to_string()]);
        numbers.map(one).collect::<Vec<_>>()
    };
    assert_eq!(tags(&exchange(&mut client, &bound(&mut (0..COUNT)))), "2".repeat(COUNT) + "Z");
    // Every third portal is closed, and every second statement.
    let closed: Vec<_> = (0..COUNT)
        .flat_map(|number| {
            let portal = (number % 3 == 0).then(|| close(b'P', &format!("p{number}")));
            let statement = (number % 2 == 0).then(|| close(b'S', &format!("s{number}")));
            portal.into_iter().chain(statement)
        })
        .collect();
    assert_eq!(tags(&exchange(&mut client, &closed)), "3".repeat(closed.len()) + "Z");
    let left: Vec<usize> = (0..COUNT).rev().filter(|number| number % 3 != 0).collect();
    let run: Vec<_> = left.iter().map(|number| execute(&format!("p{number}"), 0)).collect();
    let answer = exchange(&mut client, &run);
    let expected: Vec<_> =
        left.iter().map(|&number| vec![Some((key(number) + number).to_string())]).collect();
    assert!(rows(&answer) == expected, "{}", error_text(&answer));
    client.run("commit");
    // The portals end with their transaction; the other statements do not.
    client.run("begin");
    let again = bound(&mut (0..COUNT).filter(|number| number % 2 == 1));
    assert_eq!(tags(&exchange(&mut client, &again)), "2".repeat(COUNT / 2) + "Z");
    client.run("commit");
    for (number, expected) in [(1, None), (2, Some("26000")), (COUNT - 1, None)] {
        let answer = exchange(&mut client, &[bind("", &format!("s{number}"), &["3"]), execute("", 0)]);
        assert_eq!(error_code(&answer).as_deref(), expected, "{number}");
    }
}

#[test]
fn prepared_statements_are_bounded() {
    let server = TestServer::start();
    let mut client = server.connect();
    let mut made = 0;
    let refused = loop {
        let some: Vec<Vec<u8>> =
            (0..1_000).map(|number| parse(&format!("s{}", made + number), "select $1::int")).collect();
        let answer = exchange(&mut client, &some);
        made += tags(&answer).matches('1').count();
        if let Some(code) = error_code(&answer) {
            break code;
        }
        assert!(made < 1_000_000, "they have no end");
    };
    assert_eq!(refused, "53200");
    assert!(made > 10_000, "{made} are too few");
    assert_eq!(code(&mut client, &[close(b'S', "s7"), parse("again", "select 1")]), None);
    let answer = exchange(&mut client, &[bind("", "s8", &["5"]), execute("", 0)]);
    assert_eq!(rows(&answer), [[Some("5".to_string())]]);
}

/// A statement that the client has closed, or replaced, exists for as long as a portal has it.
#[test]
fn names_of_statements_count_and_so_do_statements_that_only_portals_have() {
    let server = TestServer::start();
    let mut client = server.connect();
    let named = |number: usize| parse(&format!("{number}{}", "n".repeat(1 << 20)), "");
    let refused = (1..100).find_map(|number| Some((number, code(&mut client, &[named(number)])?)));
    assert_eq!(refused, Some((64, "53200".to_string())));

    let mut client = server.connect();
    client.run("begin");
    let text = format!("select '{}'", "x".repeat(4 << 20));
    let bound = |number: usize| [parse("", &text), bind(&format!("p{number}"), "", &[])];
    let refused = (1..100).find_map(|number| Some((number, code(&mut client, &bound(number))?)));
    let (number, sqlstate) = refused.expect("an end of what portals keep");
    assert_eq!(sqlstate, "53200");
    assert!((4..=16).contains(&number), "{number} statements of 4 MiB");
    // The transaction has failed, and its portals end with it.
    client.run("rollback");
    client.run("begin");
    assert_eq!(code(&mut client, &bound(0)), None);
}

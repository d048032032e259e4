//! `rialto bench card`, run as a user runs it: its result, its directory, and the prompt for requests.

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};

use rialto::Database;
use serde_json::Value as Json;

use crate::common::{Directory, at, json, measured, number, program, run, stderr, stdout, succeeds};

/// Few enough accounts that clients conflict.
const SMALL: [&str; 8] =
    ["card", "--accounts", "400", "--memory-bytes", "300000000", "--warmup", "0.2", "--json"];
const NAMES: [&str; 8] = ["BAL", "CCCK", "CLCK", "DEBIT", "PAY", "MOVE", "LOST", "FOUND"];

fn bench(arguments: &[&str]) -> Output {
    let mut all = vec!["bench"];
    all.extend(arguments);
    run(&all)
}

fn small(arguments: &[&str]) -> Output {
    let mut all = SMALL.to_vec();
    all.extend(arguments);
    bench(&all)
}

#[test]
fn a_run_has_an_entry_for_each_transaction_and_ends_consistent() {
    for arguments in [
        &["--clients", "4"][..],
        &["--clients", "4", "--in-flight", "20"],
        &["--rate", "5000", "--durability", "memory"],
        &["--mix", "LOST=20,FOUND=20,CCCK=30,CLCK=30", "--clients", "8", "--locks", "central"],
    ] {
        let committed = |json: &Json, name: &str| number(json, &format!("procedures.{name}.committed"));
        let is_run = |name: &str| arguments[0] != "--mix" || arguments[1].contains(name);
        let output = measured(
            0.4,
            |seconds| {
                let mut all = vec!["--disk", "memory", "--seconds", seconds];
                all.extend(arguments);
                succeeds(small(&all))
            },
            |output| NAMES.into_iter().all(|name| !is_run(name) || committed(&json(output), name) > 0.0),
        );
        let json = json(&output);
        assert_eq!((at(&json, "workload"), at(&json, "consistent")), (&"card".into(), &Json::from(true)));
        let committed = |name: &str| committed(&json, name);
        for name in NAMES {
            assert_eq!(committed(name) > 0.0, is_run(name), "{name}, {arguments:?}: {json}");
        }
        let sum: f64 = NAMES.into_iter().map(committed).sum();
        assert_eq!(sum, number(&json, "committed"), "{json}");
        assert_eq!(number(&json, "aborted_user"), 0.0, "{json}");
        let table = stdout(&output);
        let heading = "Credit cards, 400 accounts, 400 customers, 5000 stores; mix ";
        assert!(table.starts_with(heading) && table.contains("the accounts marked lost"), "{table}");
    }
}

#[test]
fn servers_say_their_processor_time_their_response_time_and_its_interval() {
    for (arguments, queue, servers) in [
        (&["--servers"][..], 64.0, 1.0),
        (&["--servers", "--queue", "2", "--message-servers", "3", "--standbys", "1"], 2.0, 3.0),
    ] {
        // The time account against the mean of the response times: transactions at the window's ends are in one of
        // them.
        let adds_up_to = |json: &Json| {
            let parts = ["queue", "lock_wait", "latch_wait", "run", "log_wait"];
            let sum: f64 =
                parts.into_iter().map(|part| number(json, &format!("time_us_per_txn.{part}"))).sum();
            sum / number(json, "response_us.mean")
        };
        let is_whole = |share: f64| (share - 1.0).abs() < 0.1;
        let output = measured(
            0.5,
            |seconds| {
                let mut all = vec!["--disk", "memory", "--seconds", seconds, "--repeat", "1"];
                all.extend(arguments);
                succeeds(small(&all))
            },
            |output| {
                let json = json(output);
                // A short window on a slow machine may have too few responses for an interval.
                at(&json, "response_us") != &Json::Null
                    && is_whole(adds_up_to(&json))
                    && number(&json, "servers.found_full") > 0.0
            },
        );
        let json = json(&output);
        assert_eq!((at(&json, "workload"), at(&json, "consistent")), (&"card".into(), &Json::from(true)));
        let of = |path: &str| number(&json, path);
        assert_eq!(
            (of("servers.queue"), of("servers.message_servers"), of("clients")),
            (queue, servers, servers)
        );
        for server in ["transaction", "log", "message"] {
            assert!(of(&format!("server_us_per_txn.{server}")) > 0.0, "{server}: {json}");
        }
        assert!(of("servers.found_full") > 0.0, "message servers are faster: {json}");
        let (low, mean, high) = (of("response_us.low"), of("response_us.mean"), of("response_us.high"));
        assert!(0.0 < mean && low <= mean && mean <= high, "{json}");
        // A batch during which the machine did something else has no response.
        assert!((2.0..=20.0).contains(&of("response_us.batches")), "{json}");
        assert_eq!(of("response_us.confidence"), 0.9);
        let share = adds_up_to(&json);
        assert!(is_whole(share), "the time account adds up to {share} of the mean: {json}");
        let table = stdout(&output);
        for part in
            ["a request queue of", "response time", "transaction server", "message servers", "standing by"]
        {
            assert!(table.contains(part), "{part}: {table}");
        }
    }
    // Clients that run their own transactions have no such servers.
    let json = json(&succeeds(small(&["--disk", "memory", "--seconds", "0.3", "--clients", "2"])));
    for absent in ["servers", "response_us", "server_us_per_txn.transaction", "server_us_per_txn.message"] {
        assert_eq!(at(&json, absent), &Json::Null, "{absent}");
    }
    assert!(number(&json, "server_us_per_txn.log") > 0.0, "{json}");
    let refused = small(&["--queue", "5"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--queue applies to --servers only"), "{}", stderr(&refused));
}

#[test]
fn a_directory_is_used_again_and_one_of_another_shape_is_refused() {
    let directory = Directory::new("card-again");
    let data = ["--data", directory.name(), "--seconds", "0.3", "--clients", "4"];
    let first = succeeds(small(&data));
    assert!(stderr(&first).contains("loaded a card portfolio into"), "{}", stderr(&first));
    let second = succeeds(small(&data));
    assert!(stderr(&second).contains("using the card portfolio in"), "{}", stderr(&second));
    assert_eq!(at(&json(&second), "consistent"), &Json::from(true));
    for (arguments, expected) in [
        (&["card", "--accounts", "500"][..], "expected one of 500 accounts, 500 customers, 5000 stores"),
        (&["card"], "expected one of 40000 accounts, 40000 customers, 5000 stores"),
        (&["tpcb"], "expected a TPC-B bank of 10 branches"),
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--data", directory.name()]);
        let refused = bench(&all);
        assert_eq!(refused.status.code(), Some(3), "{arguments:?}: {}", stderr(&refused));
        let refusal = stderr(&refused);
        assert!(refusal.contains(" holds ") && refusal.contains(expected), "{arguments:?}: {refusal}");
        let found = if arguments[0] == "card" { "a card portfolio of 400 accounts" } else { "hot_cards" };
        assert!(refusal.contains(found), "{arguments:?}: {refusal}");
    }
}

#[test]
fn a_run_that_is_killed_leaves_consistent_data() {
    let card = ["--accounts", "400", "--mix", "CCCK=25,CLCK=25,DEBIT=20,PAY=10,LOST=10,FOUND=10"];
    let tpcb = ["--accounts", "2000", "--scale", "2"];
    for (workload, sizes) in [("card", &card[..]), ("tpcb", &tpcb[..])] {
        let directory = Directory::new(&format!("killed-{workload}"));
        let mut all = vec!["bench", workload, "--data", directory.name(), "--memory-bytes", "300000000"];
        all.extend(["--clients", "4", "--json", "--warmup", "0.2"]);
        all.extend(sizes);
        let with =
            |seconds: &'static str| all.iter().copied().chain(["--seconds", seconds]).collect::<Vec<_>>();
        // An open load, slow enough to fit for this long.
        let mut long = with("60");
        long.extend(["--rate", "2000"]);
        let mut running =
            program(&long).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(running.stderr.take().expect("it is piped")).lines();
        let ran = lines.any(|line| line.expect("it writes").contains("transactions/s"));
        assert!(ran, "{workload} runs for a second");
        running.kill().expect("it runs");
        running.wait().expect("it ends");
        let again = succeeds(run(&with("0.3")));
        assert!(stderr(&again).contains("using the "), "{}", stderr(&again));
        assert_eq!(at(&json(&again), "consistent"), &Json::from(true), "{workload}");
    }
}

#[test]
fn data_that_contradicts_itself_is_refused_and_exits_1() {
    // A field, a counter and a row, each damaged without the other that it agrees with.
    let damages: [(&str, &str, i32, &str, &str); 4] = [
        ("card", "accounts", 7, "used", "used credit"),
        ("card", "stores", 7, "hot_uses", "attempted uses"),
        ("card", "accounts", 1, "lost", "marked and not hot is 1"),
        ("tpcb", "branches", 0, "balance", "branch 0 has "),
    ];
    for (workload, table, key, column, named) in damages {
        let directory = Directory::new(&format!("damaged-{workload}-{column}"));
        let mut all = vec!["bench", workload, "--data", directory.name(), "--memory-bytes", "300000000"];
        all.extend([
            "--accounts",
            "400",
            "--scale",
            "1",
            "--clients",
            "2",
            "--warmup",
            "0.2",
            "--seconds",
            "0.3",
        ]);
        succeeds(run(&all));
        let database = Database::open(directory.path()).expect("no program has it open");
        let damaged = database.table(table).expect("it is there");
        let position = damaged.schema().position_of(column).expect("it has one");
        let found = database.transact(|transaction| {
            transaction.modify(&damaged, key, |fields| fields.add_i64(position, 1).map(drop))
        });
        assert!(found.expect("it commits"), "row {key} of {table}");
        database.close().expect("it closes");
        let refused = run(&all);
        assert_eq!(refused.status.code(), Some(1), "{workload} {column}: {}", stderr(&refused));
        let refusal = stderr(&refused);
        assert!(refusal.contains("inconsistent before the run") && refusal.contains(named), "{refusal}");
    }
}

#[test]
fn bare_code_is_measured_beside_blocking_clients() {
    let output = succeeds(small(&["--disk", "memory", "--clients", "2", "--seconds", "0.4", "--limits"]));
    let json = json(&output);
    assert!(number(&json, "limits.write.per_s") > 0.0 && number(&json, "limits.group_commit.per_s") > 0.0);
    assert_eq!(at(&json, "limits.map"), &Json::Null, "it runs TPC-B: {json}");
}

/// Runs the prompt with these lines as input.
fn interactive(arguments: &[&str], input: &str) -> Output {
    let mut all = vec!["bench", "card", "--interactive", "--accounts", "400", "--memory-bytes", "300000000"];
    all.extend(arguments);
    let mut child = program(&all)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[test]
fn requests_are_answered_until_the_input_ends() {
    let directory = Directory::new("card-interactive");
    let data = ["--data", directory.name()];
    let input = "BAL 123\nDEBIT 123 45 19.90\nbal 123\nPAY 123 40\nBAL 123\nCLCK 123 45 1000000\nCCCK 123 45\n\
                 LOST 123\nLOST 123\nCCCK 123 45\nCLCK 123 45 1\nDEBIT 123 45 1\nFOUND 123\nFOUND 123\n\
                 MOVE 123 5 Elm Street, Springfield\n\nsteal 5\nBAL 400\nDEBIT 1 2\n";
    let output = succeeds(interactive(&data, input));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    // Account 123 is loaded with 123.00 used of 8000.00.
    let expected = [
        "Customer 123: used credit 123.00 of 8000.00",
        "bought; 7857.10 of the credit is left",
        "Customer 123: used credit 142.90 of 8000.00",
        "paid; used credit 102.90",
        "Customer 123: used credit 102.90 of 8000.00",
        "there is not enough credit; 7897.10 is left",
        "the account is valid",
        "the card is on the list of hot cards",
        "the card was on the list of hot cards already",
        "the card is reported lost; attempted uses since then: 1",
        "the card is reported lost; attempted uses since then: 2",
        "declined: the card is reported lost, or its credit does not suffice",
        "the card is off the list of hot cards; attempted uses meanwhile: 2",
        "the card was not on the list of hot cards",
        "the address is changed",
        "error: there is no transaction \"steal\"; there are BAL, CCCK, CLCK, DEBIT, PAY, MOVE, LOST, FOUND, help and \
         quit",
        "error: there is no account \"400\", expected a number from 0 to 399",
        "error: expected \"DEBIT account store amount\", found \"DEBIT 1 2\"",
    ];
    assert_eq!(lines, expected);
    assert!(
        stderr(&output).contains("card> ") && stderr(&output).contains("consistent: yes"),
        "{}",
        stderr(&output)
    );

    // What was answered is kept, and the lines after quit are not read.
    let again = succeeds(interactive(&data, "BAL 123\nhelp\nquit\nBAL 1\n"));
    let text = stdout(&again);
    assert!(text.starts_with("Customer 123: used credit 102.90 of 8000.00\n"), "{text}");
    assert!(
        text.contains("DEBIT account store amount    purchase") && !text.contains("Customer 1:"),
        "{text}"
    );
    let run = succeeds(small(&["--data", directory.name(), "--seconds", "0.3", "--clients", "2"]));
    assert_eq!(at(&json(&run), "consistent"), &Json::from(true));
}

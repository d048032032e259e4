//! Calls of procedures over real nodes: where they run, what they cost, and what failovers leave of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use rialto::row::Value;
use rialto::{Error, Transaction};
use rialto_cluster::control::Access;
use rialto_cluster::node::{
    ActionInput, Call, CallError, CallLevel, CallNumbers, Node, Outputs, Procedure, ProcedureAction,
    Procedures, TransactionCounts, Transactions,
};
use rialto_cluster::protocol::PartitionId;

use crate::cluster::{Cluster, soon};
use crate::sql::{ready, run, session};

const ACCOUNTS: i32 = 40;
const FIRST_BALANCE: i64 = 100;

/// The procedures that a node of these tests has: the first one has one that the others do not have.
pub fn procedures(node: usize) -> Procedures {
    let deposit = Procedure::new("deposit").phase([ProcedureAction::writes(|tx, input| {
        let [account, amount] = numbers(input.arguments)?;
        add(tx, account, amount)
    })]);
    let balance = Procedure::new("balance").phase([ProcedureAction::reads(|tx, input| {
        let [account] = numbers(input.arguments)?;
        Ok(read(tx, account)?.to_le_bytes().to_vec())
    })]);
    let take = ProcedureAction::writes(|tx, input| {
        let [from, _, amount] = numbers(input.arguments)?;
        if read(tx, from)? < amount {
            return Err(Error::aborted("overdrawn"));
        }
        add(tx, from, -amount)
    });
    let give = ProcedureAction::writes(|tx, input| {
        let [_, to, amount] = numbers(input.arguments)?;
        add(tx, to, amount)
    });
    let transfer = Procedure::new("transfer").phase([take, give.by_key(1)]);
    // The second phase needs what the first one has read.
    let first = ProcedureAction::reads(|tx, input| {
        let [from, _] = numbers(input.arguments)?;
        Ok(read(tx, from)?.to_le_bytes().to_vec())
    });
    let second = ProcedureAction::writes(|tx, input| {
        let [_, to] = numbers(input.arguments)?;
        let [read_before] = numbers(&input.earlier[0])?;
        if read_before > 1_000_000 {
            return Err(Error::aborted("too much"));
        }
        add(tx, to, read_before)
    });
    let follow = Procedure::new("follow").phase([first]).phase([second.by_key(1)]);
    let read_at = |nth: usize| {
        ProcedureAction::reads(move |tx: &mut Transaction<'_>, input: &ActionInput<'_>| {
            let accounts: [i64; 2] = numbers(input.arguments)?;
            Ok(read(tx, accounts[nth])?.to_le_bytes().to_vec())
        })
        .by_key(nth)
    };
    let both = Procedure::new("both").phase([read_at(0), read_at(1)]);
    let wrong = Procedure::new("wrong").phase([ProcedureAction::reads(|tx, _| add(tx, 1, 1))]);
    let panics = Procedure::new("panics").phase([ProcedureAction::writes(|tx, input| {
        let [account] = numbers(input.arguments)?;
        add(tx, account, 1)?;
        panic!("a bug of the procedure's")
    })]);
    let large = Procedure::new("large").phase([ProcedureAction::writes(|tx, input| {
        let [account, bytes] = numbers(input.arguments)?;
        add(tx, account, 1)?;
        Ok(vec![7; bytes as usize])
    })]);
    let waits = Procedure::new("waits").phase([ProcedureAction::writes(|tx, input| {
        let [account] = numbers(input.arguments)?;
        let balance = add(tx, account, 1)?;
        if RUNS.fetch_add(1, Ordering::SeqCst) == 0 {
            soon("the first run may go on", || GOES_ON.load(Ordering::SeqCst));
        }
        Ok(balance)
    })]);
    let increment = |nth: usize| {
        ProcedureAction::writes(move |tx: &mut Transaction<'_>, input: &ActionInput<'_>| {
            let accounts: [i64; 2] = numbers(input.arguments)?;
            add(tx, accounts[nth], 1)
        })
        .by_key(nth)
    };
    // The same actions in another order.
    let pair = Procedure::new("pair").phase([increment(0), increment(1)]);
    let pair_turned = Procedure::new("pair").with_version(2).phase([increment(1), increment(0)]);
    let wordy = Procedure::new("wordy").phase([ProcedureAction::writes(|tx, input| {
        let [account] = numbers(input.arguments)?;
        add(tx, account, 1)?;
        Err(Error::aborted("ä".repeat(100_000)))
    })]);
    // Its table is made later.
    let early = |nth: usize| {
        ProcedureAction::writes(move |tx: &mut Transaction<'_>, input: &ActionInput<'_>| {
            let accounts: [i64; 2] = numbers(input.arguments)?;
            tx.table("later")?;
            add(tx, accounts[nth], 1)
        })
        .by_key(nth)
    };
    let early = Procedure::new("early").phase([early(0), early(1)]);
    let renewed = |version: u32| {
        Procedure::new("renewed").with_version(version).phase([ProcedureAction::writes(|tx, input| {
            let [account] = numbers(input.arguments)?;
            add(tx, account, 1)
        })])
    };
    let held = Procedure::new("held").phase([ProcedureAction::writes(|tx, input| {
        let [account] = numbers(input.arguments)?;
        let balance = add(tx, account, 1)?;
        IS_HELD.store(true, Ordering::SeqCst);
        soon("what is held may go on", || LETS_GO.load(Ordering::SeqCst));
        Ok(balance)
    })]);
    // It ends when it is cancelled.
    let endless = Procedure::new("endless").phase([ProcedureAction::writes(|tx, input| {
        let [account] = numbers(input.arguments)?;
        add(tx, account, 1)?;
        loop {
            tx.check()?;
            std::thread::sleep(Duration::from_millis(5));
        }
    })]);
    let first_only = (node == 0).then(|| renewed(2));
    [waits, balance, transfer, follow, both, wrong, panics, large]
        .into_iter()
        .chain([pair, pair_turned, wordy, early, renewed(1), held, endless])
        .chain(first_only)
        .fold(Procedures::new().with(deposit), Procedures::with)
}

/// Runs of the procedure `waits`, and whether the first one may go on.
static RUNS: AtomicI64 = AtomicI64::new(0);
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Whether the procedure `held` runs, and whether it may go on.
static IS_HELD: AtomicBool = AtomicBool::new(false);
static LETS_GO: AtomicBool = AtomicBool::new(false);

fn numbers<const N: usize>(bytes: &[u8]) -> rialto::Result<[i64; N]> {
    let wrong = || Error::aborted("wrong arguments");
    let all = bytes.chunks_exact(8).map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap()));
    all.collect::<Vec<_>>().try_into().map_err(|_| wrong())
}

fn bytes(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn read(tx: &mut Transaction<'_>, account: i64) -> rialto::Result<i64> {
    let table = tx.table("accounts")?;
    let row = tx.get(&table, account as i32)?.ok_or_else(|| Error::aborted("no such account"))?;
    row.read(1)
}

fn add(tx: &mut Transaction<'_>, account: i64, amount: i64) -> rialto::Result<Vec<u8>> {
    let table = tx.table("accounts")?;
    let mut balance = 0;
    let is_there =
        tx.modify(&table, account as i32, |row| row.add_i64(1, amount).map(|now| balance = now))?;
    match is_there {
        true => Ok(balance.to_le_bytes().to_vec()),
        false => Err(Error::aborted("no such account")),
    }
}

pub fn one(procedure: &str, account: i32, more: &[i64]) -> Call {
    let arguments = [&[i64::from(account)], more].concat();
    Call::new(procedure, bytes(&arguments)).key([Value::Int4(account)])
}

pub fn two(procedure: &str, (from, to): (i32, i32), more: &[i64]) -> Call {
    let arguments = [&[i64::from(from), i64::from(to)], more].concat();
    Call::new(procedure, bytes(&arguments)).key([Value::Int4(from)]).key([Value::Int4(to)])
}

fn call(node: &Node, call: &Call) -> Result<Vec<i64>, CallError> {
    let outputs: Outputs = node.transactions().call(&call.clone().patience(Duration::from_secs(60)))?;
    Ok(outputs.iter().map(|output| i64::from_le_bytes(output[..8].try_into().unwrap())).collect())
}

fn bank(cluster: &Cluster) {
    let mut session = session(cluster, 0);
    run(&mut session, "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)");
    let rows = format!("SELECT i, {FIRST_BALANCE} FROM generate_series(1, {ACCOUNTS}) AS i");
    run(&mut session, &format!("INSERT INTO accounts {rows}"));
}

fn total(cluster: &Cluster, node: usize) -> i64 {
    let mut session = session(cluster, node);
    let rows = run(&mut session, "SELECT balance FROM accounts");
    rows.iter().map(|row| row[0].parse::<i64>().unwrap()).sum()
}

fn partition_of(node: &Node, account: i32) -> PartitionId {
    node.transactions().partition_of(&[Value::Int4(account)])
}

/// Two accounts of two partitions that these nodes serve.
fn accounts_on(cluster: &Cluster, first: usize, second: usize) -> (i32, i32) {
    let on = |node: usize, not: Option<PartitionId>| {
        (1..=ACCOUNTS)
            .find(|account| {
                let partition = partition_of(cluster.node(0), *account);
                Some(partition) != not && cluster.primary(partition.0) == node
            })
            .expect("the node serves a partition with an account")
    };
    let from = on(first, None);
    (from, on(second, Some(partition_of(cluster.node(0), from))))
}

/// Each node of a cluster with as many partitions serves the partition of its number, from which accounts are drawn.
fn each_serves_its_own(cluster: &Cluster, nodes: u32) {
    (0..nodes).for_each(|node| cluster.change_primary(node, node as usize));
}

fn nothing_is_left(cluster: &Cluster, nodes: usize) {
    soon("all transactions are forgotten", || {
        (0..nodes).all(|node| {
            let unfinished = cluster.node(node).transactions().unfinished();
            unfinished.iter().all(|partition| partition.transactions == 0 && partition.prepared == 0)
        })
    });
}

#[test]
fn calls_run_where_their_keys_lie() {
    let cluster = Cluster::calm("calls", 3, 6, 2);
    ready(&cluster, 6, 2);
    bank(&cluster);
    for node in 0..3 {
        let node = cluster.node(node);
        for account in 1..=ACCOUNTS {
            let before = call(node, &one("balance", account, &[])).unwrap();
            assert_eq!(call(node, &one("deposit", account, &[5])), Ok(vec![before[0] + 5]));
        }
    }
    let mut all = FIRST_BALANCE * i64::from(ACCOUNTS) + 3 * 5 * i64::from(ACCOUNTS);
    assert_eq!(total(&cluster, 1), all);
    for node in 0..3 {
        for level in [CallLevel::Memory, CallLevel::Standby, CallLevel::Disk] {
            for (from, to) in [(1, 2), (3, 17), (40, 1), (5, 6), (7, 8)] {
                let node = cluster.node(node);
                let before = call(node, &two("both", (from, to), &[])).unwrap();
                let moved = call(node, &two("transfer", (from, to), &[3]).level(level));
                assert_eq!(moved, Ok(vec![before[0] - 3, before[1] + 3]));
                let error = call(node, &two("transfer", (from, to), &[1_000_000]).level(level));
                assert_eq!(error, Err(aborted(CallError::Failed("overdrawn".to_owned()))));
            }
        }
        assert_eq!(total(&cluster, 2), all);
    }
    // A phase that needs what an earlier one has read in another partition.
    let node = cluster.node(0);
    for (from, to) in [(1, 2), (3, 17), (40, 1), (5, 6)] {
        let before = call(node, &two("both", (from, to), &[])).unwrap();
        assert_eq!(call(node, &two("follow", (from, to), &[])), Ok(vec![before[0], before[0] + before[1]]));
        all += before[0];
    }
    assert_eq!(total(&cluster, 2), all);
    nothing_is_left(&cluster, 3);
}

/// The words of an error that a body gives.
fn aborted(error: CallError) -> CallError {
    match error {
        CallError::Failed(why) => CallError::Failed(Error::aborted(why).to_string()),
        error => error,
    }
}

#[test]
fn calls_that_fail_leave_nothing() {
    let cluster = Cluster::calm("calls-fail", 2, 4, 2);
    ready(&cluster, 4, 2);
    bank(&cluster);
    let (here, there) = accounts_on(&cluster, 0, 1);
    let node = cluster.node(0);
    let unknown = CallError::NotInstalled { procedure: "none".to_owned(), version: None };
    assert_eq!(call(node, &one("none", 1, &[])), Err(unknown));
    let version = CallError::NotInstalled { procedure: "deposit".to_owned(), version: Some(2) };
    assert_eq!(call(node, &one("deposit", 1, &[1]).version(2)), Err(version));
    let keys = CallError::TooFewKeys { procedure: "transfer".to_owned(), needed: 2, found: 1 };
    assert_eq!(call(node, &one("transfer", 1, &[2, 1])), Err(keys));
    let mut numbers = CallNumbers::new();
    for account in [here, there] {
        // With a number and without one, in the partition of this node and in the other node's.
        for number in [None, Some(numbers.next_number())] {
            let numbered = |call: Call| match number {
                Some(number) => call.numbered(number),
                None => call,
            };
            let panics = call(node, &numbered(one("panics", account, &[])));
            assert!(matches!(&panics, Err(CallError::Failed(why)) if why.contains("panicked")), "{panics:?}");
        }
        let read_only = call(node, &Call::new("wrong", []).key([Value::Int4(account)]));
        assert!(matches!(read_only, Err(CallError::Failed(_))), "{read_only:?}");
        let missing = call(node, &two("transfer", (account, 100_000 + account), &[1]));
        assert_eq!(missing, Err(aborted(CallError::Failed("no such account".to_owned()))));
        let large = one("large", account, &[20_000]);
        assert!(call(node, &large).is_ok());
        assert_eq!(call(node, &large.numbered(numbers.next_number())), Err(CallError::TooLong));
    }
    // What goes between nodes has a bound.
    let mut long = bytes(&[i64::from(there), 1]);
    long.resize(5 << 20, 0);
    let long = Call::new("deposit", long).key([Value::Int4(there)]);
    assert_eq!(call(node, &long), Err(CallError::TooLong));
    assert_eq!(call(node, &one("large", there, &[5 << 20])), Err(CallError::TooLong));
    // Also where nothing goes between nodes: its partition may be elsewhere the next time.
    let mut long = bytes(&[i64::from(here), 1]);
    long.resize(2 << 20, 0);
    let long = Call::new("deposit", long).key([Value::Int4(here)]);
    assert_eq!(call(node, &long), Err(CallError::TooLong));
    // Of the calls of `large` two had outputs that are short enough.
    assert_eq!(total(&cluster, 0), FIRST_BALANCE * i64::from(ACCOUNTS) + 2);
    nothing_is_left(&cluster, 2);
}

/// Of a body's very long words the beginning is kept.
#[test]
fn a_call_that_fails_with_many_words_is_answered() {
    let cluster = Cluster::new("calls-words", 2, 4, 1);
    ready(&cluster, 4, 1);
    bank(&cluster);
    let (here, there) = accounts_on(&cluster, 0, 1);
    let mut numbers = CallNumbers::new();
    for account in [here, there] {
        let plain = one("wordy", account, &[]);
        for wordy in [plain.clone(), plain.numbered(numbers.next_number())] {
            // No time is too long to be waited for.
            let failed = cluster.node(0).transactions().call(&wordy.patience(Duration::MAX));
            assert!(matches!(&failed, Err(CallError::Failed(why)) if why.ends_with("ä…")), "{failed:?}");
        }
    }
    assert_eq!(total(&cluster, 0), FIRST_BALANCE * i64::from(ACCOUNTS));
}

/// What may pass is no answer for good: a version that a node does not have yet, a table that is made later.
#[test]
fn a_number_is_not_answered_with_what_passes() {
    let cluster = Cluster::new("calls-pass", 2, 4, 2);
    ready(&cluster, 4, 2);
    bank(&cluster);
    let node = cluster.node(0);
    let (here, there) = accounts_on(&cluster, 0, 1);
    let mut numbers = CallNumbers::new();
    let renewed = one("renewed", there, &[]).numbered(numbers.next_number());
    let missing = CallError::NotInstalled { procedure: "renewed".to_owned(), version: Some(2) };
    assert_eq!(call(node, &renewed), Err(missing));
    // An earlier sending may have run.
    assert_eq!(call(node, &renewed.clone().again()), Err(CallError::Unknown));
    let none = one("renewed", there, &[]).version(9).numbered(numbers.next_number());
    assert_eq!(call(node, &none.again()), Err(CallError::Unknown));
    assert_eq!(call(node, &renewed.clone().version(1)), Ok(vec![FIRST_BALANCE + 1]));
    assert_eq!(call(node, &renewed.again()), Ok(vec![FIRST_BALANCE + 1]), "it has its answer now");
    // In one partition, here and elsewhere, and over two.
    let pairs = [(here, here), (there, there), (here, there), (there, here)];
    let early = pairs.map(|pair| two("early", pair, &[]).numbered(numbers.next_number()));
    for early in &early {
        let plain = node.transactions().call(&early.clone().patience(Duration::from_millis(300)));
        assert!(matches!(&plain, Err(CallError::Aborted(why)) if why.contains("later")), "{plain:?}");
    }
    run(&mut session(&cluster, 0), "CREATE TABLE later (id int PRIMARY KEY)");
    early.iter().for_each(|early| drop(call(node, early).unwrap()));
    assert_eq!(total(&cluster, 0), FIRST_BALANCE * i64::from(ACCOUNTS) + 1 + 2 * 4);
    nothing_is_left(&cluster, 2);
}

/// Versions of a procedure may name its keys in another order: the answer lies in the partition of the first one.
#[test]
fn a_number_runs_once_whatever_the_version() {
    let cluster = Cluster::new("calls-versions", 2, 4, 1);
    ready(&cluster, 4, 1);
    bank(&cluster);
    let (here, there) = accounts_on(&cluster, 0, 1);
    let mut numbers = CallNumbers::new();
    for pair in [(here, there), (there, here)] {
        let pair = two("pair", pair, &[]).numbered(numbers.next_number());
        let answer = call(cluster.node(0), &pair.clone().version(1)).unwrap();
        for node in 0..2 {
            assert_eq!(call(cluster.node(node), &pair.clone().version(2).again()), Ok(answer.clone()));
        }
    }
    assert_eq!(total(&cluster, 0), FIRST_BALANCE * i64::from(ACCOUNTS) + 2 * 2);
    nothing_is_left(&cluster, 2);
}

/// A try that does not end is cancelled once its call is no longer tried.
#[test]
fn a_call_is_not_waited_for_without_end() {
    let cluster = Cluster::new("calls-endless", 2, 4, 1);
    ready(&cluster, 4, 1);
    bank(&cluster);
    let (here, there) = accounts_on(&cluster, 0, 1);
    let number = CallNumbers::new().next_number();
    let (sender, ended) = std::sync::mpsc::channel();
    for endless in [one("endless", there, &[]), one("endless", here, &[]).numbered(number)] {
        let (transactions, sender) = (cluster.node(0).transactions().clone(), sender.clone());
        std::thread::spawn(move || {
            let _ = sender.send(transactions.call(&endless.patience(Duration::from_millis(10))));
        });
    }
    for _ in 0..2 {
        let answer = ended.recv_timeout(crate::cluster::patience()).expect("the call ends");
        assert!(matches!(answer, Err(CallError::Aborted(_))), "{answer:?}");
    }
    assert_eq!(total(&cluster, 0), FIRST_BALANCE * i64::from(ACCOUNTS));
    nothing_is_left(&cluster, 2);
}

/// A primary that has lost its standbys answers no call at level 2, though it has committed it.
#[test]
fn a_call_is_not_answered_below_its_level() {
    let mut cluster = Cluster::new("calls-level", 3, 1, 3);
    ready(&cluster, 1, 3);
    bank(&cluster);
    let primary = cluster.primary(0);
    let transactions = cluster.node(primary).transactions().clone();
    let calling = std::thread::spawn(move || {
        transactions.call(&one("held", 1, &[]).patience(Duration::from_millis(100)))
    });
    soon("the call runs", || IS_HELD.load(Ordering::SeqCst));
    // Without the control store nothing says that the standbys are not needed.
    cluster.clients[primary].set_access(Access::Away);
    (0..3).filter(|node| *node != primary).for_each(|node| cluster.stop(node));
    LETS_GO.store(true, Ordering::SeqCst);
    assert_eq!(calling.join().unwrap(), Err(CallError::Unknown));
    cluster.clients[primary].set_access(Access::Reached);
}

/// What a call costs, counted: messages by the connections, the rest by the nodes.
#[test]
fn calls_cost_what_is_said() {
    // Without standbys nothing else is sent but what runs and what is served, and that is counted, too.
    let cluster = Cluster::calm("calls-cost", 2, 4, 1);
    ready(&cluster, 4, 1);
    bank(&cluster);
    nothing_is_left(&cluster, 2);
    let (here, there) = accounts_on(&cluster, 0, 1);
    let here_too = accounts_on(&cluster, 0, 0);
    const BATCHES: u64 = 15;
    const CALLS: u64 = 20;
    // Of the cheapest batch: where a disk is slow something is told again, which is one more message.
    let cost_of_each = |mut next: Box<dyn FnMut() -> Call>| {
        // The directory knows all primaries.
        call(cluster.node(0), &next()).unwrap();
        nothing_is_left(&cluster, 2);
        let mut batch = |_| {
            let before = counts(&cluster);
            (0..CALLS).for_each(|_| drop(call(cluster.node(0), &next()).unwrap()));
            nothing_is_left(&cluster, 2);
            let after = counts(&cluster);
            let again = after.calls_again - before.calls_again;
            let counted = [
                after.messages - before.messages,
                after.jobs - before.jobs,
                after.tasks - before.tasks,
                after.waits - before.waits,
            ];
            (again + counted.iter().sum::<u64>(), again, counted)
        };
        let (_, again, counted) = (0..BATCHES).map(&mut batch).min().unwrap();
        assert_eq!(again, 0, "no call is tried twice");
        counted
    };
    let cost = |what: Call| cost_of_each(Box::new(move || what.clone()));
    let within = |counted: [u64; 4], each: [u64; 4], what: &str| {
        println!("{what}: {counted:?}");
        let most = each.map(|each| each * CALLS + CALLS / 10);
        let mut least = each.map(|each| each * CALLS);
        // What is there already is not waited for; and a thread that has not left a branch yet takes its next task.
        least[1] /= 2;
        least[3] = if each[1] == 0 { 0 } else { CALLS / 4 };
        let are_within = (0..4).all(|of| (least[of]..=most[of]).contains(&counted[of]));
        assert!(are_within, "{what}: {counted:?} for {CALLS} calls, of {least:?} to {most:?}");
    };
    assert_eq!(cost(one("deposit", here, &[1])), [0; 4], "in a partition of this node");
    assert_eq!(cost(two("transfer", (here, here), &[0])), [0; 4], "the same by two keys");
    let mut numbers = CallNumbers::new();
    let next = move || one("deposit", here, &[1]).numbered(numbers.next_number());
    // Its branch runs on the caller's thread, which may wait for its level.
    within(cost_of_each(Box::new(next)), [0, 0, 3, 1], "in a partition of this node, with a number");
    // A request and its answer; a thread there, which carries out three tasks, and the caller.
    within(cost(one("deposit", there, &[1])), [2, 1, 3, 1], "in a partition of another node");
    within(cost(one("balance", there, &[])), [2, 1, 3, 1], "the same, reading");
    // The paper's two, and two for the commit. The branch of this node runs on the caller's thread; one of the two jobs comes
    // after the answer.
    within(cost(two("transfer", (here, there), &[0])), [4, 2, 7, 2], "over two nodes");
    within(cost(two("transfer", (there, here), &[0])), [4, 2, 7, 2], "over two nodes, the other way round");
    within(cost(two("transfer", here_too, &[0])), [0, 2, 7, 2], "over two partitions of this node");
    // What was read is confirmed.
    within(cost(two("both", (here, there), &[])), [4, 2, 6, 2], "reading over two nodes");
}

/// Of both nodes, once the connections have sent what the nodes have counted, and nothing else.
fn counts(cluster: &Cluster) -> TransactionCounts {
    let counted = || {
        let of = |node: usize| cluster.node(node).transactions().transaction_counts();
        let (first, second) = (of(0), of(1));
        TransactionCounts {
            messages: first.messages + second.messages,
            announcements: first.announcements + second.announcements,
            jobs: first.jobs + second.jobs,
            tasks: first.tasks + second.tasks,
            waits: first.waits + second.waits,
            calls_again: first.calls_again + second.calls_again,
            ..TransactionCounts::default()
        }
    };
    let sent = || (0..2).map(|node| cluster.node(node).links().counts().messages_sent).sum::<u64>();
    let mut found = None;
    soon("the connections have sent what was counted", || {
        let before = counted();
        let sent = sent();
        let after = counted();
        let is_still = before == after && sent == after.messages + after.announcements;
        found = is_still.then_some(after);
        is_still
    });
    found.unwrap()
}

#[test]
fn a_number_runs_at_most_once() {
    let mut cluster = Cluster::new("calls-once", 3, 3, 3);
    ready(&cluster, 3, 3);
    bank(&cluster);
    let mut client = CallNumbers::new();
    let all = |cluster: &Cluster| total(cluster, 0) - FIRST_BALANCE * i64::from(ACCOUNTS);
    // Of partitions of each node, alone and over two.
    each_serves_its_own(&cluster, 3);
    let (first, second) = accounts_on(&cluster, 1, 2);
    let deposit = one("deposit", first, &[7]).numbered(client.next_number());
    let answer = call(cluster.node(0), &deposit).unwrap();
    for node in [0, 1, 2, 0] {
        assert_eq!(call(cluster.node(node), &deposit.clone().again()), Ok(answer.clone()));
    }
    assert_eq!(all(&cluster), 7);
    let transfer = two("transfer", (second, first), &[2]).numbered(client.next_number());
    let moved = call(cluster.node(0), &transfer).unwrap();
    for node in [1, 0, 2] {
        assert_eq!(call(cluster.node(node), &transfer.clone().again()), Ok(moved.clone()));
    }
    // The first action, whose partition decides, only reads.
    let follow = two("follow", (second, first), &[]).numbered(client.next_number());
    let followed = call(cluster.node(0), &follow).unwrap();
    assert_eq!(call(cluster.node(1), &follow.clone().again()), Ok(followed.clone()));
    assert_eq!(all(&cluster), 7 + followed[0]);
    // What has failed stays so, whatever comes later.
    let much = two("transfer", (second, first), &[10 * FIRST_BALANCE]).numbered(client.next_number());
    let overdrawn = call(cluster.node(0), &much);
    assert_eq!(overdrawn, Err(aborted(CallError::Failed("overdrawn".to_owned()))));
    call(cluster.node(0), &one("deposit", second, &[1_000])).unwrap();
    assert_eq!(call(cluster.node(1), &much.clone().again()), overdrawn);
    // The partition of the first key has the answer of the client's last call there only.
    assert_eq!(call(cluster.node(1), &transfer.clone().again()), Err(CallError::TooOld));
    assert_eq!(call(cluster.node(1), &deposit.clone().again()), Ok(answer.clone()));
    // One that was numbered too long ago never runs.
    let mut old = client.next_number();
    old.issued -= Duration::from_secs(25 * 3600);
    let old = one("deposit", first, &[100]).numbered(old);
    assert_eq!(call(cluster.node(0), &old), Err(CallError::TooOld));
    // The primaries go, and the answers stay.
    for node in [1, 2] {
        cluster.stop(node);
        assert_eq!(call(cluster.node(0), &deposit.clone().again()), Ok(answer.clone()));
        assert_eq!(call(cluster.node(0), &much.clone().again()), overdrawn);
        cluster.start(node);
        ready(&cluster, 3, 3);
    }
    assert_eq!(all(&cluster), 7 + followed[0] + 1_000);
    nothing_is_left(&cluster, 3);
}

/// A call without a number whose primary goes while it runs is not run again: it may have had its effects.
#[test]
fn a_call_of_unknown_outcome_is_not_run_again() {
    let mut cluster = Cluster::new("calls-unknown", 3, 3, 2);
    ready(&cluster, 3, 2);
    bank(&cluster);
    each_serves_its_own(&cluster, 3);
    let (_, there) = accounts_on(&cluster, 0, 1);
    let transactions = cluster.node(0).transactions().clone();
    let calling = std::thread::spawn(move || {
        let answer = transactions.call(&one("waits", there, &[]).patience(Duration::from_secs(60)));
        GOES_ON.store(true, Ordering::SeqCst);
        answer
    });
    soon("the call runs", || RUNS.load(Ordering::SeqCst) == 1);
    cluster.stop(1);
    assert_eq!(calling.join().unwrap(), Err(CallError::Unknown));
    assert_eq!(RUNS.load(Ordering::SeqCst), 1);
    // The next one runs where the partition is now.
    assert!(call(cluster.node(0), &one("waits", there, &[])).is_ok());
}

/// Accounts from this one on take calls without numbers in the test below, and no others.
const UNNUMBERED_FROM: i32 = 31;

/// What the clients of the test below have deposited.
#[derive(Default)]
struct Deposited {
    /// Calls with numbers that were answered.
    numbered_calls: AtomicI64,
    /// Calls without numbers that were answered.
    plain_calls: AtomicI64,
    /// With numbers.
    numbered: AtomicI64,
    /// Without numbers.
    plain: AtomicI64,
    /// Without numbers, by calls of which it is not known whether they have had their effects.
    perhaps: AtomicI64,
}

/// Sends calls with numbers, each until it is answered.
fn numbered_client(transactions: &Transactions, seed: u64, deposited: &Deposited, stop: &AtomicBool) {
    let mut random = rialto::io::Random::new(seed);
    let mut numbers = CallNumbers::new();
    while !stop.load(Ordering::Relaxed) {
        let [from, to] = [(); 2].map(|()| 1 + random.below(UNNUMBERED_FROM as u64 - 1) as i32);
        let (call, amount) = match random.below(2) {
            0 => (one("deposit", from, &[3]), 3),
            _ => (two("transfer", (from, to), &[1]), 0),
        };
        let mut call = call.numbered(numbers.next_number());
        loop {
            match transactions.call(&call) {
                Ok(_) => {
                    deposited.numbered.fetch_add(amount, Ordering::Relaxed);
                    deposited.numbered_calls.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Err(CallError::Failed(_)) => break,
                Err(CallError::Aborted(_) | CallError::Unknown | CallError::NoPrimary(_)) => {
                    call = call.again()
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Sends calls without numbers, each once.
fn plain_client(transactions: &Transactions, seed: u64, deposited: &Deposited, stop: &AtomicBool) {
    let mut random = rialto::io::Random::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let count = (ACCOUNTS - UNNUMBERED_FROM + 1) as u64;
        let [from, to] = [(); 2].map(|()| UNNUMBERED_FROM + random.below(count) as i32);
        let (call, amount) = match random.below(2) {
            0 => (one("deposit", from, &[3]), 3),
            _ => (two("transfer", (from, to), &[1]), 0),
        };
        match transactions.call(&call) {
            Ok(_) => {
                deposited.plain.fetch_add(amount, Ordering::Relaxed);
                deposited.plain_calls.fetch_add(1, Ordering::Relaxed);
            }
            Err(CallError::Unknown) => drop(deposited.perhaps.fetch_add(amount, Ordering::Relaxed)),
            Err(error) => assert!(error.has_no_effect(), "{error}"),
        }
    }
}

/// The money of accounts with numbered calls, and of the others.
fn money(cluster: &Cluster, node: usize) -> (i64, i64) {
    let mut session = session(cluster, node);
    let rows = run(&mut session, "SELECT id, balance FROM accounts");
    let (mut numbered, mut plain) = (0, 0);
    for row in rows {
        let (id, balance): (i32, i64) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        *(if id < UNNUMBERED_FROM { &mut numbered } else { &mut plain }) += balance - FIRST_BALANCE;
    }
    (numbered, plain)
}

/// While nodes end and start and primaries change, each call with a number has its effect once, and each without one
/// that was answered.
#[test]
fn calls_take_effect_as_answered_over_failovers() {
    let mut cluster = Cluster::new("calls-failover", 3, 3, 2);
    ready(&cluster, 3, 2);
    bank(&cluster);
    let (stop, deposited) = (Arc::new(AtomicBool::new(false)), Arc::new(Deposited::default()));
    // Node 0 stays, so its clients do.
    let transactions = cluster.node(0).transactions().clone();
    let client = |seed: u64| {
        let (transactions, stop, deposited) = (transactions.clone(), stop.clone(), deposited.clone());
        std::thread::spawn(move || match seed % 2 {
            0 => numbered_client(&transactions, seed, &deposited, &stop),
            _ => plain_client(&transactions, seed, &deposited, &stop),
        })
    };
    let clients: Vec<_> = (0..5).map(client).collect();
    let progress = |what: &str| {
        let counts = [&deposited.numbered_calls, &deposited.plain_calls];
        let before = counts.map(|count| count.load(Ordering::Relaxed));
        let have_gone_on = |more: i64| {
            counts.iter().zip(before).all(|(count, before)| count.load(Ordering::Relaxed) > before + more)
        };
        soon(what, || have_gone_on(10));
    };
    progress("calls run");
    for node in [1, 2] {
        cluster.stop(node);
        progress("calls run without a node");
        cluster.start(node);
        ready(&cluster, 3, 2);
        progress("calls run with the node again");
    }
    for (partition, to) in [(0, 1), (1, 2), (2, 0), (0, 0), (1, 1), (2, 2)] {
        cluster.change_primary(partition, to);
        progress("calls run after a planned change");
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    nothing_is_left(&cluster, 3);
    let of = |count: &AtomicI64| count.load(Ordering::Relaxed);
    for node in 0..3 {
        let (numbered, plain) = money(&cluster, node);
        assert_eq!(numbered, of(&deposited.numbered));
        let surely = of(&deposited.plain);
        let at_most = surely + of(&deposited.perhaps);
        assert!((surely..=at_most).contains(&plain), "{plain} of {surely} to {at_most}");
        assert_eq!((plain - surely) % 3, 0, "a deposit is there as a whole: {plain}, {surely} surely");
    }
}

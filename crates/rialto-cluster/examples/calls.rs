//! Calls of procedures over a cluster: two nodes in this process, a bank, and transfers between partitions.
//!
//! `cargo run -p rialto-cluster --example calls`

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Error, Options, TableDef, Transaction};
use rialto_cluster::control::MemoryStore;
use rialto_cluster::net::Security;
use rialto_cluster::node::{
    Call, CallError, CallNumbers, ClusterFacts, LinkOptions, Node, NodeFacts, NodeOptions, Procedure,
    ProcedureAction, Procedures, Standing, init, make_table,
};
use rialto_cluster::protocol::replication::{ReplicationOptions, Unprotected};

const PARTITIONS: u32 = 4;

/// Adds an amount to an account. Gives the new balance.
fn add(tx: &mut Transaction<'_>, account: i32, amount: i64) -> rialto::Result<Vec<u8>> {
    let accounts = tx.table("accounts")?;
    let mut balance = 0;
    let is_there = tx.modify(&accounts, account, |row| row.add_i64(1, amount).map(|now| balance = now))?;
    match (is_there, balance) {
        (false, _) => Err(Error::aborted(format!("there is no account {account}"))),
        (true, ..0) => Err(Error::aborted(format!("account {account} has not enough"))),
        (true, _) => Ok(balance.to_le_bytes().to_vec()),
    }
}

/// The arguments of `transfer`: two accounts and an amount.
fn arguments(from: i32, to: i32, amount: i64) -> Vec<u8> {
    [&from.to_le_bytes()[..], &to.to_le_bytes(), &amount.to_le_bytes()].concat()
}

fn read(arguments: &[u8]) -> (i32, i32, i64) {
    let account = |at: usize| i32::from_le_bytes(arguments[at..at + 4].try_into().expect("four bytes"));
    (account(0), account(4), i64::from_le_bytes(arguments[8..].try_into().expect("eight bytes")))
}

/// What the program of each node has.
fn procedures() -> Procedures {
    let open = ProcedureAction::writes(|tx, input| {
        let (account, _, balance) = read(input.arguments);
        let accounts = tx.table("accounts")?;
        tx.insert(&accounts, &[Value::Int4(account), Value::Int8(balance)])?;
        Ok(Vec::new())
    });
    let take = ProcedureAction::writes(|tx, input| {
        let (from, _, amount) = read(input.arguments);
        add(tx, from, -amount)
    });
    let give = ProcedureAction::writes(|tx, input| {
        let (_, to, amount) = read(input.arguments);
        add(tx, to, amount)
    });
    Procedures::new()
        .with(Procedure::new("open").phase([open]))
        .with(Procedure::new("transfer").phase([take, give.by_key(1)]))
}

/// What each partition has from the beginning.
fn make(db: &Database) -> rialto::Result<()> {
    make_table(db)?;
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("balance", ColumnType::Int8)];
    let accounts = TableDef::new("accounts", columns).with_primary_key(&["id"]);
    db.transact(|tx| tx.create_table(&accounts).map(drop))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("rialto-calls-{}", std::process::id()));
    let store = MemoryStore::new();
    let ports = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    let mut facts = Vec::new();
    for (node, port) in ports.iter().enumerate() {
        let (name, address) = (format!("node-{node}"), port.local_addr()?.to_string());
        let sql = "127.0.0.1:0".to_owned();
        facts.push(NodeFacts {
            node: node as u32,
            name,
            address,
            sql,
            standing: Standing::Member,
            directory: None,
        });
    }
    drop(ports);
    let (id, unprotected) = (format!("{:032x}", 1), Unprotected::default());
    init(
        &store,
        &ClusterFacts { id, partitions: PARTITIONS, replicas: 2, unprotected, promise_ms: None },
        &facts,
    )?;
    let open = |of: &NodeFacts| {
        let options = NodeOptions {
            name: of.name.clone(),
            directory: directory.join(&of.name),
            takes_over: false,
            database: Options { memory_bytes: 64 << 20, ..Options::default() },
            replication: ReplicationOptions::default(),
            repair_after: None,
            copy_bytes_per_second: None,
            move_patience: std::time::Duration::from_secs(300),
            compare_every: None,
            security: Security::PlainOnLoopback,
            links: LinkOptions::default(),
            make: Arc::new(make),
            procedures: procedures(),
        };
        Node::open(options, Arc::new(store.another_client()))
    };
    let nodes = facts.iter().map(open).collect::<Result<Vec<_>, _>>()?;

    // Any node takes calls. The first ones wait until the partitions have their primaries.
    let calls = nodes[0].transactions();
    for account in 1..=10 {
        let open = Call::new("open", arguments(account, account, 100)).key([Value::Int4(account)]);
        calls.call(&open.patience(Duration::from_secs(60)))?;
    }
    // A number makes a call run at most once, however often it is sent.
    let mut numbers = CallNumbers::new();
    let key = |account| [Value::Int4(account)];
    let is_elsewhere = |account: &i32| calls.partition_of(&key(*account)) != calls.partition_of(&key(1));
    let other = (2..=10).find(is_elsewhere).ok_or("ten accounts lie in several partitions")?;
    let transfer = Call::new("transfer", arguments(1, other, 30)).key(key(1)).key(key(other));
    let transfer = transfer.numbered(numbers.next_number());
    let first = calls.call(&transfer)?;
    let again = nodes[1].transactions().call(&transfer.again())?;
    assert_eq!(first, again);
    let balance = |output: &Vec<u8>| i64::from_le_bytes(output[..].try_into().expect("eight bytes"));
    println!("balances after the transfer: {:?}", first.iter().map(balance).collect::<Vec<_>>());
    let too_much = Call::new("transfer", arguments(1, other, 1_000)).key(key(1)).key(key(other));
    match calls.call(&too_much) {
        Err(CallError::Failed(why)) => println!("refused: {why}"),
        other => return Err(format!("it should have been refused: {other:?}").into()),
    }
    println!("{:?}", calls.transaction_counts());
    nodes.into_iter().for_each(Node::close);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

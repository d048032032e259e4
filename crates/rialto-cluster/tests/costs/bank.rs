//! A bank as TPC-B's, whose branches lie in the partitions of a cluster of this process, and the same transaction in each
//! of the ways that it can run.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Durability, Error, Options, TableDef, Transaction, TxOptions};
use rialto_cluster::control::MemoryStore;
use rialto_cluster::net::Security;
use rialto_cluster::node::{
    Call, CallLevel, ClusterFacts, LinkOptions, Node, NodeFacts, NodeOptions, Outputs, PROMISE_MS_USUAL,
    Procedure, ProcedureAction, Procedures, Standing, init, make_table,
};
use rialto_cluster::protocol::PartitionId;
use rialto_cluster::protocol::replication::{ReplicationOptions, Unprotected};

/// Accounts of a branch.
pub const ACCOUNTS: i64 = 1_000;
/// Tellers of a branch.
pub const TELLERS: i64 = 10;

/// The nodes of a cluster whose branches are loaded.
pub struct Bank {
    pub nodes: Vec<Node>,
    /// A branch in each partition, by the partition's number.
    pub branches: Vec<i64>,
    directory: PathBuf,
}

/// The arguments of a transaction: an amount for an account of one branch, by a teller of another one or the same.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    pub account_branch: i64,
    pub account: i64,
    pub branch: i64,
    pub teller: i64,
    pub amount: i64,
}

impl Transfer {
    fn numbers(self) -> [i64; 5] {
        [self.account_branch, self.account, self.branch, self.teller, self.amount]
    }

    fn of(bytes: &[u8]) -> rialto::Result<Transfer> {
        let mut numbers = [0; 5];
        if bytes.len() != 8 * numbers.len() {
            return Err(Error::aborted("expected five numbers"));
        }
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        let [account_branch, account, branch, teller, amount] = numbers;
        Ok(Transfer { account_branch, account, branch, teller, amount })
    }

    /// A call of it that is changed by [`Transfer::put`] for each transaction.
    pub fn call(self, level: CallLevel) -> Call {
        let call = Call::new("transfer", Vec::new()).level(level);
        let mut call = call.key([Value::Int8(self.branch)]).key([Value::Int8(self.account_branch)]);
        self.put(&mut call);
        call
    }

    /// Makes a prepared call one of this transaction; the branches are the same.
    pub fn put(self, call: &mut Call) {
        let arguments = call.arguments_mut();
        arguments.clear();
        self.numbers().iter().for_each(|number| arguments.extend_from_slice(&number.to_le_bytes()));
    }
}

fn add(tx: &mut Transaction<'_>, table: &str, id: i64, amount: i64) -> rialto::Result<i64> {
    let table = tx.table(table)?;
    let mut balance = 0;
    match tx.modify(&table, id, |row| row.add_i64(1, amount).map(|now| balance = now))? {
        true => Ok(balance),
        false => Err(Error::aborted("there is no such row")),
    }
}

fn account(of: &Transfer) -> i64 {
    of.account_branch * ACCOUNTS + of.account
}

/// The account's part.
fn change_account(tx: &mut Transaction<'_>, of: &Transfer) -> rialto::Result<i64> {
    add(tx, "accounts", account(of), of.amount)
}

/// The branch's part.
fn change_branch(tx: &mut Transaction<'_>, of: &Transfer) -> rialto::Result<()> {
    add(tx, "tellers", of.branch * TELLERS + of.teller, of.amount)?;
    add(tx, "branches", of.branch, of.amount)?;
    let history = tx.table("history")?;
    let row = [
        Value::Int8(account(of)),
        Value::Int8(of.branch * TELLERS + of.teller),
        Value::Int8(of.branch),
        Value::Int8(of.amount),
    ];
    tx.insert(&history, &row).map(drop)
}

/// The transaction of a kernel's database alone.
pub fn directly(db: &Database, transfer: &Transfer, options: &TxOptions) -> rialto::Result<i64> {
    db.transact_with(options, |tx| {
        let balance = change_account(tx, transfer)?;
        change_branch(tx, transfer)?;
        Ok(balance)
    })
}

/// The options of [`directly`].
pub fn direct_options(db: &Database, durability: Durability) -> TxOptions {
    let procedure = Some(db.procedure_id("transfer"));
    TxOptions { durability: Some(durability), procedure, ..TxOptions::default() }
}

fn procedures() -> Procedures {
    let load = ProcedureAction::writes(|tx, input| {
        let of = Transfer::of(input.arguments)?;
        let zero = |id: i64| [Value::Int8(id), Value::Int8(0)];
        let [branches, tellers, accounts] =
            [tx.table("branches")?, tx.table("tellers")?, tx.table("accounts")?];
        tx.insert(&branches, &zero(of.branch))?;
        for teller in 0..TELLERS {
            tx.insert(&tellers, &zero(of.branch * TELLERS + teller))?;
        }
        for account in 0..ACCOUNTS {
            tx.insert(&accounts, &zero(of.branch * ACCOUNTS + account))?;
        }
        Ok(Vec::new())
    });
    let of_account = ProcedureAction::writes_into(|tx, input, output| {
        let balance = change_account(tx, &Transfer::of(input.arguments)?)?;
        output.extend_from_slice(&balance.to_le_bytes());
        Ok(())
    });
    let of_branch =
        ProcedureAction::writes_into(|tx, input, _| change_branch(tx, &Transfer::of(input.arguments)?));
    Procedures::new()
        .with(Procedure::new("load").phase([load]))
        .with(Procedure::new("transfer").phase([of_account.by_key(1), of_branch]))
}

fn make(db: &Database) -> rialto::Result<()> {
    make_table(db)?;
    let column = |name: &str| Column::new(name, ColumnType::Int8);
    db.transact(|tx| {
        for name in ["branches", "tellers", "accounts"] {
            let table = TableDef::new(name, vec![column("id"), column("balance")]);
            tx.create_table(&table.with_primary_key(&["id"]))?;
        }
        let columns = ["account", "teller", "branch", "amount"].map(column).to_vec();
        tx.create_table(&TableDef::new("history", columns)).map(drop)
    })
}

impl Bank {
    /// A cluster of nodes, with a branch in each partition. Partition 0 is served by node 0, partition 1 by node 1, and so
    /// on.
    pub fn open(name: &str, nodes: u32, partitions: u32, replicas: u32) -> Bank {
        let directory = std::env::temp_dir().join(format!("rialto-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let store = MemoryStore::new();
        let ports: Vec<_> = (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let facts: Vec<_> = (0..nodes)
            .zip(&ports)
            .map(|(node, port)| NodeFacts {
                node,
                name: format!("node-{node}"),
                address: port.local_addr().expect("an address").to_string(),
                sql: "127.0.0.1:0".to_owned(),
                standing: Standing::Member,
                directory: None,
            })
            .collect();
        drop(ports);
        let (id, unprotected) = (format!("{:032x}", 5), Unprotected::default());
        let cluster = ClusterFacts { id, partitions, replicas, unprotected, promise_ms: PROMISE_MS_USUAL };
        init(&store, &cluster, &facts).expect("a new cluster");
        let calm = ReplicationOptions {
            promise: Duration::from_secs(10),
            silent_after: Duration::from_secs(5),
            lag_max: Duration::from_secs(30),
            ..ReplicationOptions::default()
        };
        let open = |of: &NodeFacts| {
            let options = NodeOptions {
                name: of.name.clone(),
                directory: directory.join(&of.name),
                takes_over: false,
                database: Options {
                    durability: Durability::Memory,
                    memory_bytes: 1 << 30,
                    log_bytes_max: 1 << 30,
                    ..Options::default()
                },
                replication: calm,
                repair_after: None,
                copy_bytes_per_second: None,
                move_patience: Duration::from_secs(300),
                compare_every: None,
                security: Security::PlainOnLoopback,
                links: LinkOptions::default(),
                make: Arc::new(make),
                procedures: procedures(),
            };
            Node::open(options, Arc::new(store.another_client())).expect("a node")
        };
        let mut bank = Bank { nodes: facts.iter().map(open).collect(), branches: Vec::new(), directory };
        soon("all replicas are in sync", || {
            (0..partitions).all(|partition| bank.is_in_sync(PartitionId(partition), replicas as usize))
        });
        for partition in (0..partitions).map(PartitionId) {
            let calls = bank.nodes[0].transactions();
            let is_there = |branch: &i64| calls.partition_of(&[Value::Int8(*branch)]) == partition;
            let branch = (0..).find(is_there).expect("a branch lies there");
            let loads = Transfer { account_branch: branch, account: 0, branch, teller: 0, amount: 0 };
            let arguments: Vec<u8> = loads.numbers().iter().flat_map(|number| number.to_le_bytes()).collect();
            let load = Call::new("load", arguments).key([Value::Int8(branch)]);
            calls.call(&load.patience(Duration::from_secs(60))).expect("a branch is loaded");
            bank.branches.push(branch);
        }
        bank
    }

    fn is_in_sync(&self, partition: PartitionId, replicas: usize) -> bool {
        let of = |node: &Node| node.replica(partition);
        let leads = self.nodes.iter().filter_map(of).find(|replica| replica.admit().is_ok());
        let configuration = leads.and_then(|replica| replica.status().configuration);
        configuration.is_some_and(|configuration| configuration.in_sync.len() == replicas)
    }

    /// The database of a partition's primary.
    pub fn database(&self, partition: u32) -> Database {
        let of = |node: &Node| node.replica(PartitionId(partition));
        let leads = self.nodes.iter().filter_map(of).find_map(|replica| replica.lead());
        leads.expect("the partition has a primary").database().clone()
    }

    /// The number `nth` of a series of transactions at the branches of two partitions, which may be the same.
    pub fn transfer(&self, account_in: usize, branch_in: usize, nth: i64) -> Transfer {
        Transfer {
            account_branch: self.branches[account_in],
            account: nth.wrapping_mul(7_919).rem_euclid(ACCOUNTS),
            branch: self.branches[branch_in],
            teller: nth.rem_euclid(TELLERS),
            amount: nth % 100,
        }
    }

    /// Runs a call at a node, into outputs that are used again.
    pub fn run(&self, node: usize, call: &Call, outputs: &mut Outputs) {
        self.nodes[node].transactions().call_into(call, outputs).expect("a call");
    }

    /// Nothing is left to be told or forgotten.
    pub fn is_quiet(&self) -> bool {
        self.nodes.iter().all(|node| {
            let unfinished = node.transactions().unfinished();
            unfinished.iter().all(|partition| partition.transactions == 0 && partition.prepared == 0)
        })
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.nodes.drain(..).for_each(Node::close);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits until something has come about. It is never asserted that something takes less.
pub fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

//! Figures of one transaction of each kind that are the same in every run: what `.ci/run` gates on.
//!
//! One client runs a fixed number of transactions of each [`Kind`], one after the other, in a *window* of its own.
//! Where a window begins and ends the program leaves marks that tools see: a call of a function that callgrind is told
//! to dump its counts at, and a system call that names the window. [`count`] runs the program under these tools.
//!
//! The figures are steady for these reasons. The random choices come from a fixed seed. Nothing is flushed by the
//! clock: the client itself writes the log, after every [`SYNC_EVERY`] transactions at level 1, with each at level 3.
//! The way in which the log is written is given. No checkpoint begins. All windows on one database stay in the half of
//! its first log file in which no other file is prepared. All threads are counted.

mod cards;
pub mod count;
mod subscribers;
mod warehouses;

use std::hint::black_box;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rialto::io::{Caching, FileDisk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Row, Value};
use rialto::{
    Checkpointing, Database, Durability, Engine, Error, KeyBound, Options, Residence, Result, Scan, Table,
    TableDef,
};
use rialto_measure::alloc::allocations_apart;
use rialto_measure::driver::Workload;
use rialto_workloads::card::Name;
use rialto_workloads::data::ShapeError;
use rialto_workloads::tatp::{self, Name as Subscription};
use rialto_workloads::tpcb::{self, Client, Shape, Tpcb};
use rialto_workloads::tpcc::Name as Order;

use self::cards::Cards;
use self::subscribers::Subscribers;
use self::warehouses::Warehouses;

/// A kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// TPC-B: three rows changed, one inserted.
    Tpcb,
    /// One row read by its key.
    Read,
    /// One row of 100 bytes inserted.
    Insert,
    /// Ten rows read in the order of their keys.
    Scan10,
    /// One of System M's transactions on credit cards.
    Card(Name),
    /// All of them, in their mix.
    CardMix,
    /// What of the mix is the bench's own: requests drawn and answers counted, with no transaction.
    CardDrawn,
    /// One of TATP's on subscribers.
    Tatp(Subscription),
    /// All of them, in their mix.
    TatpMix,
    /// One of TPC-C's in small warehouses.
    Tpcc(Order),
    /// All of them, in their mix.
    TpccMix,
    /// On the data-oriented engine, as calls that run in place.
    DataOriented(Called),
    /// The same calls on the conventional engine, with thin locks.
    Conventional(Called),
}

/// What runs as calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Called {
    /// TPC-B.
    Tpcb,
    /// One of TATP's.
    Tatp(Subscription),
    /// All of them, in their mix.
    TatpMix,
    /// One of TPC-C's.
    Tpcc(Order),
    /// All of them, in their mix.
    TpccMix,
}

impl Called {
    fn name(self) -> &'static str {
        match self {
            Called::Tpcb => "tpcb-call",
            Called::Tatp(Subscription::GetSubscriberData) => "getsub-call",
            Called::Tatp(Subscription::GetNewDestination) => "getdest-call",
            Called::Tatp(Subscription::GetAccessData) => "getaccess-call",
            Called::Tatp(Subscription::UpdateSubscriberData) => "updsub-call",
            Called::Tatp(Subscription::UpdateLocation) => "updloc-call",
            Called::Tatp(Subscription::InsertCallForwarding) => "inscf-call",
            Called::Tatp(Subscription::DeleteCallForwarding) => "delcf-call",
            Called::TatpMix => "tatp-call",
            Called::Tpcc(Order::NewOrder) => "new-order-call",
            Called::Tpcc(Order::Payment) => "payment-call",
            Called::Tpcc(Order::OrderStatus) => "order-status-call",
            Called::Tpcc(Order::Delivery) => "delivery-call",
            Called::Tpcc(Order::StockLevel) => "stock-level-call",
            Called::TpccMix => "tpcc-call",
        }
    }

    /// The kind that does the same, as a closure where there is one.
    fn not_called(self) -> Kind {
        match self {
            Called::Tpcb => Kind::Tpcb,
            Called::Tatp(name) => Kind::Tatp(name),
            Called::TatpMix => Kind::TatpMix,
            Called::Tpcc(name) => Kind::Tpcc(name),
            Called::TpccMix => Kind::TpccMix,
        }
    }
}

impl Kind {
    /// All, in the order of their windows.
    pub const ALL: [Kind; 42] = [
        Kind::Tpcb,
        Kind::Read,
        Kind::Insert,
        Kind::Scan10,
        Kind::Card(Name::Bal),
        Kind::Card(Name::Ccck),
        Kind::Card(Name::Clck),
        Kind::Card(Name::Debit),
        Kind::Card(Name::Pay),
        Kind::Card(Name::Move),
        Kind::Card(Name::Lost),
        Kind::Card(Name::Found),
        Kind::CardMix,
        Kind::CardDrawn,
        Kind::Tatp(Subscription::GetSubscriberData),
        Kind::Tatp(Subscription::GetNewDestination),
        Kind::Tatp(Subscription::GetAccessData),
        Kind::Tatp(Subscription::UpdateSubscriberData),
        Kind::Tatp(Subscription::UpdateLocation),
        Kind::Tatp(Subscription::InsertCallForwarding),
        Kind::Tatp(Subscription::DeleteCallForwarding),
        Kind::TatpMix,
        Kind::Tpcc(Order::NewOrder),
        Kind::Tpcc(Order::Payment),
        Kind::Tpcc(Order::OrderStatus),
        Kind::Tpcc(Order::StockLevel),
        Kind::TpccMix,
        Kind::DataOriented(Called::Tpcb),
        Kind::DataOriented(Called::Tatp(Subscription::GetSubscriberData)),
        Kind::DataOriented(Called::Tatp(Subscription::GetNewDestination)),
        Kind::DataOriented(Called::Tatp(Subscription::GetAccessData)),
        Kind::DataOriented(Called::Tatp(Subscription::UpdateSubscriberData)),
        Kind::DataOriented(Called::Tatp(Subscription::UpdateLocation)),
        Kind::DataOriented(Called::Tatp(Subscription::InsertCallForwarding)),
        Kind::DataOriented(Called::Tatp(Subscription::DeleteCallForwarding)),
        Kind::DataOriented(Called::TatpMix),
        Kind::DataOriented(Called::Tpcc(Order::NewOrder)),
        Kind::DataOriented(Called::Tpcc(Order::Payment)),
        Kind::DataOriented(Called::TpccMix),
        Kind::Conventional(Called::Tpcb),
        Kind::Conventional(Called::Tatp(Subscription::GetSubscriberData)),
        Kind::Conventional(Called::TatpMix),
    ];
    /// Parts, each on a database of its own: so their log stays within the half of a file. Their directories' names end so.
    const PARTS: [(&str, Range<usize>); 14] = [
        ("bank", 0..4),
        ("cards-0", 4..9),
        ("cards-1", 9..14),
        ("tatp-0", 14..19),
        ("tatp-1", 19..22),
        ("tpcc-0", 22..23),
        ("tpcc-1", 23..27),
        ("tpcb-call", 27..28),
        ("tatp-call-0", 28..33),
        ("tatp-call-1", 33..36),
        ("tpcc-call-0", 36..37),
        ("tpcc-call-1", 37..39),
        ("tpcb-thin", 39..40),
        ("tatp-thin", 40..42),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tpcb => "tpcb",
            Kind::Read => "read",
            Kind::Insert => "insert",
            Kind::Scan10 => "scan10",
            Kind::Card(Name::Bal) => "bal",
            Kind::Card(Name::Ccck) => "ccck",
            Kind::Card(Name::Clck) => "clck",
            Kind::Card(Name::Debit) => "debit",
            Kind::Card(Name::Pay) => "pay",
            Kind::Card(Name::Move) => "move",
            Kind::Card(Name::Lost) => "lost",
            Kind::Card(Name::Found) => "found",
            Kind::CardMix => "card",
            Kind::CardDrawn => "card-drawn",
            Kind::Tatp(Subscription::GetSubscriberData) => "getsub",
            Kind::Tatp(Subscription::GetNewDestination) => "getdest",
            Kind::Tatp(Subscription::GetAccessData) => "getaccess",
            Kind::Tatp(Subscription::UpdateSubscriberData) => "updsub",
            Kind::Tatp(Subscription::UpdateLocation) => "updloc",
            Kind::Tatp(Subscription::InsertCallForwarding) => "inscf",
            Kind::Tatp(Subscription::DeleteCallForwarding) => "delcf",
            Kind::TatpMix => "tatp",
            Kind::Tpcc(name) => name.as_str(),
            Kind::TpccMix => "tpcc",
            Kind::DataOriented(called) => called.name(),
            Kind::Conventional(Called::Tpcb) => "tpcb-call-thin",
            Kind::Conventional(Called::Tatp(_)) => "getsub-call-thin",
            Kind::Conventional(_) => "tatp-call-thin",
        }
    }

    /// What runs the same, not as a call.
    fn not_called(self) -> Kind {
        match self {
            Kind::DataOriented(called) | Kind::Conventional(called) => called.not_called(),
            kind => kind,
        }
    }

    fn is_called(self) -> bool {
        matches!(self, Kind::DataOriented(_) | Kind::Conventional(_))
    }

    /// Transactions of a window, where that of a small transaction has so many. TPC-C's are ten times as large.
    pub fn transactions(self, of_small: u32) -> u32 {
        match self.not_called() {
            Kind::Tpcc(_) | Kind::TpccMix => of_small / 4,
            _ => of_small,
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Kind, String> {
        let named = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        named.ok_or_else(|| {
            format!(
                "\"{name}\" is no kind of transaction; there are {}",
                Kind::ALL.map(Kind::name).join(", ")
            )
        })
    }
}

/// Level 1 transactions between two writes of the log.
pub const SYNC_EVERY: u32 = 500;
/// Transactions of each kind before its window: they fill pools and caches.
const WARMUP: u32 = 500;
/// At level 1, where allocations are counted, of inserts: they lock keys that are nowhere yet by name, so each of the lock
/// table's 256 partitions has to have been met once. (At level 3 so many would fill half of the log file.)
const WARMUP_INSERTS: u32 = 2_500;
const SHAPE: Shape = Shape { branches: 10, accounts: 50_000 };
/// The log bytes of a whole run; beyond them the next log file would be prepared beside it.
const LOG_BYTES_MAX: u64 = 2 << 20;
const FILLER_BYTES: usize = 82;

/// What the program itself counted in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// What ran in it.
    pub kind: Kind,
    /// How many transactions.
    pub transactions: u32,
    /// Allocations of all threads but for growth; `None` if the program has not installed the counting allocator.
    pub allocations: Option<u64>,
    /// Allocations of all threads for what the database has grown by.
    pub growth: Option<u64>,
    /// Bytes written to the log.
    pub log_bytes: u64,
}

/// Where a window begins and ends, for callgrind.
#[inline(never)]
pub fn steady_window_mark(kind: Kind) {
    black_box(kind);
}

/// Where a window begins and ends, for strace: a failing system call that names it.
fn name_window(kind: Kind, edge: &str) {
    let _ = std::fs::metadata(format!("{MARK}{}/{edge}", kind.name()));
}

/// What the names of windows begin with in system calls.
pub(crate) const MARK: &str = "/rialto-steady/";

/// Runs `transactions` of each kind; in memory, or with the files in a directory.
///
/// # Errors
/// What the database says.
pub fn run(durability: Durability, data: Option<&Path>, transactions: u32) -> Result<Vec<Window>, String> {
    let part = |kinds: &[Kind], data: Option<&Path>| {
        let database = open(kinds[0], durability, data)?;
        let run = Run { database: database.clone(), durability, transactions };
        let windows = match kinds[0].not_called() {
            Kind::Card(_) | Kind::CardMix => {
                Cards::new(&database).and_then(|cards| run.windows(cards, kinds))
            }
            Kind::Tatp(_) | Kind::TatpMix => Subscribers::new(&database, kinds[0].is_called())
                .and_then(|subscribers| run.windows(subscribers, kinds)),
            Kind::Tpcc(_) | Kind::TpccMix => {
                Warehouses::new(&database).and_then(|warehouses| run.windows(warehouses, kinds))
            }
            _ => Steady::new(database, kinds[0].is_called()).and_then(|bank| run.windows(bank, kinds)),
        };
        run.end(windows.map_err(|error| error.to_string())?)
    };
    let mut windows = Vec::with_capacity(Kind::ALL.len());
    for (name, kinds) in Kind::PARTS {
        let beside = data.map(|path| path.with_extension(name));
        windows.extend(part(&Kind::ALL[kinds], beside.as_deref())?);
    }
    Ok(windows)
}

/// What has transactions of some kinds.
trait Kinds {
    /// Before the transactions of a kind.
    fn begin(&mut self, kind: Kind);
    /// Runs one.
    fn run_one(&mut self, kind: Kind) -> Result<()>;
}

/// Windows on one database.
struct Run {
    database: Database,
    durability: Durability,
    transactions: u32,
}

impl Run {
    fn windows(&self, mut client: impl Kinds, kinds: &[Kind]) -> Result<Vec<Window>> {
        kinds.iter().map(|kind| self.window(&mut client, *kind)).collect()
    }

    fn window(&self, client: &mut impl Kinds, kind: Kind) -> Result<Window> {
        let transactions = kind.transactions(self.transactions);
        client.begin(kind);
        let warmup = match (kind, self.durability) {
            (Kind::Insert, Durability::Memory) => WARMUP_INSERTS,
            _ => WARMUP,
        };
        self.run(client, kind, warmup)?;
        if kind.is_called() {
            // By then the resource manager has shared the keys out over the executors.
            std::thread::sleep(Duration::from_millis(1_100));
        }
        let log_before = self.database.metrics().log.bytes;
        name_window(kind, "begin");
        let allocated_before = allocations_apart();
        steady_window_mark(kind);
        let outcome = self.run(client, kind, transactions);
        steady_window_mark(kind);
        let allocated = allocations_apart().zip(allocated_before);
        name_window(kind, "end");
        outcome?;
        let log_bytes = self.database.metrics().log.bytes - log_before;
        Ok(Window {
            kind,
            transactions,
            allocations: allocated.map(|(after, before)| after.other - before.other),
            growth: allocated.map(|(after, before)| after.growth - before.growth),
            log_bytes,
        })
    }

    fn run(&self, client: &mut impl Kinds, kind: Kind, transactions: u32) -> Result<()> {
        for number in 1..=transactions {
            client.run_one(kind)?;
            if self.durability == Durability::Memory && number.is_multiple_of(SYNC_EVERY) {
                self.database.sync()?;
            }
        }
        self.database.sync()
    }

    fn end(self, windows: Vec<Window>) -> Result<Vec<Window>, String> {
        let logged = self.database.metrics().log.bytes;
        if self.durability == Durability::Memory && logged > LOG_BYTES_MAX {
            return Err(format!(
                "{logged} bytes were logged, expected at most {LOG_BYTES_MAX}: run fewer transactions"
            ));
        }
        self.database.close().map_err(|error| error.to_string())?;
        Ok(windows)
    }
}

fn open(kind: Kind, durability: Durability, data: Option<&Path>) -> Result<Database, String> {
    let called = kind.is_called();
    let options = Options {
        engine: if matches!(kind, Kind::DataOriented(_)) { Engine::data_oriented() } else { Engine::thin() },
        procedures: if called { [tpcb::procedures(), tatp::procedures()].concat() } else { Vec::new() },
        durability,
        memory_bytes: 256 << 20,
        checkpoint: Checkpointing::None,
        // Longer than any run.
        memory_flush_interval: Duration::from_secs(86_400),
        // Not what measures fastest today: one call for a group, a write that syncs.
        log_writes: Some(Caching::DirectSync),
        log_writes_in_flight: Some(1),
        ..Options::default()
    };
    let opened = match data {
        None => Database::open_on(MemoryDisk::new(), options),
        Some(path) => {
            let disk = FileDisk::create(path).map_err(|error| error.to_string())?;
            Database::open_on(disk, options)
        }
    };
    opened.map_err(|error| error.to_string())
}

/// A workload in a database that held nothing.
fn loaded<W>(opened: Result<(W, bool), ShapeError>) -> Result<W> {
    opened.map(|(workload, _)| workload).map_err(|error| match error {
        ShapeError::Failed(error) => error,
        other => Error::aborted(format!("{other:?}")),
    })
}

struct Steady {
    database: Database,
    bank: Tpcb,
    client: Client,
    accounts: Table,
    items: Table,
    item: [Value; 3],
    row: Row,
    scan: Scan,
    random: Random,
}

impl Steady {
    fn new(database: Database, called: bool) -> Result<Steady> {
        let bank =
            loaded(Tpcb::open_or_load(&database, Residence::Memory, SHAPE, &mut |_| ()))?.by_calls(called);
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("amount", ColumnType::Int8),
            Column::new("filler", ColumnType::Text),
        ];
        let definition = TableDef::new("items", columns).with_primary_key(&["id"]);
        let items = database.transact(|transaction| transaction.create_table(&definition))?;
        let accounts = database.table("accounts")?;
        let row = database.read(|transaction| transaction.get(&accounts, 0))?;
        let client = bank.client(0, 1);
        Ok(Steady {
            bank,
            client,
            accounts,
            items,
            item: [Value::Int4(0), Value::Int8(0), Value::Text("i".repeat(FILLER_BYTES))],
            row: row.expect("account 0 is loaded"),
            scan: Scan { lower: KeyBound::Included(vec![Value::Int4(0)]), limit: Some(10), ..Scan::all() },
            random: Random::new(1),
            database,
        })
    }

    fn account(&mut self, below: u32) -> i32 {
        self.random.below(u64::from(below)) as i32
    }

    fn read(&mut self) -> Result<()> {
        let key = self.account(SHAPE.accounts);
        let Steady { database, accounts, row, .. } = self;
        let found = database.read(|transaction| transaction.get_into(accounts, key, row))?;
        assert!(found, "account {key} is there");
        Ok(())
    }

    fn insert(&mut self) -> Result<()> {
        let Value::Int4(key) = &mut self.item[0] else { unreachable!("the key's column is an int4") };
        *key += 1;
        let Steady { database, items, item, .. } = self;
        database.transact(|transaction| transaction.insert(items, item))
    }

    fn scan_ten(&mut self) -> Result<()> {
        let key = self.account(SHAPE.accounts - 10);
        if let KeyBound::Included(values) = &mut self.scan.lower {
            values[0] = Value::Int4(key);
        }
        let Steady { database, accounts, scan, .. } = self;
        let mut rows = 0;
        database.read(|transaction| {
            rows = 0;
            transaction.scan(accounts, scan, |_, row| {
                rows += usize::from(row.get_i32(0)? >= key);
                Ok(ControlFlow::Continue(()))
            })
        })?;
        assert_eq!(rows, 10, "ten accounts follow {key}");
        Ok(())
    }
}

impl Kinds for Steady {
    fn begin(&mut self, _: Kind) {}

    #[inline(always)]
    fn run_one(&mut self, kind: Kind) -> Result<()> {
        match kind {
            Kind::Tpcb | Kind::DataOriented(_) | Kind::Conventional(_) => {
                self.bank.run_one(&mut self.client, Instant::now()).map(drop)
            }
            Kind::Read => self.read(),
            Kind::Insert => self.insert(),
            Kind::Scan10 => self.scan_ten(),
            _ => unreachable!("the others have databases of their own"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_runs_and_the_log_bytes_are_the_same_again() {
        let windows = || run(Durability::Memory, None, 200).unwrap();
        let (first, second) = (windows(), windows());
        assert_eq!(first.iter().map(|window| window.kind).collect::<Vec<_>>(), Kind::ALL);
        for (first, second) in first.iter().zip(&second) {
            assert_eq!(first.log_bytes, second.log_bytes, "{}", first.kind.name());
            let reads = match first.kind.not_called() {
                Kind::Tatp(name) => name.only_reads(),
                Kind::Tpcc(name) => name.only_reads(),
                kind => matches!(kind, Kind::Read | Kind::Scan10 | Kind::Card(Name::Bal) | Kind::CardDrawn),
            };
            let writes = !reads;
            assert_eq!(first.log_bytes > 0, writes, "{}", first.kind.name());
        }
    }

    #[test]
    fn kinds_have_names() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("tpch".parse::<Kind>().unwrap_err().contains("scan10"));
    }
}

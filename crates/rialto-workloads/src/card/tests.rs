use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::{Options, Residence, TransactionServerOptions};
use rialto_measure::confidence::BATCHES;
use rialto_measure::driver::{Driven, Load, Observer, Pending};

use super::*;

/// As few accounts as can be, so that clients meet.
const SHAPE: Shape = Shape { scale: 1, accounts: 200 };

fn database() -> Database {
    Database::open_on(MemoryDisk::new(), Options { memory_bytes: 64 << 20, ..Options::default() }).unwrap()
}

fn card(database: &Database, mix: Mix) -> Card {
    Card::open_or_load(database, Residence::Memory, SHAPE, mix, &mut |_| ()).unwrap().0
}

/// Every transaction as likely as the others.
fn even() -> Mix {
    "BAL=12.5,CCCK=12.5,CLCK=12.5,DEBIT=12.5,PAY=12.5,MOVE=12.5,LOST=12.5,FOUND=12.5".parse().unwrap()
}

fn verdict(card: &Card, before: &Audit) -> Verdict {
    card.verdict(before, &card.audit().unwrap(), 0..=0)
}

fn client(card: &Card) -> Client {
    card.client(0, 1)
}

#[test]
fn transactions_keep_the_cards_consistent_and_each_is_counted() {
    let database = database();
    let card = card(&database, even());
    let before = card.audit().unwrap();
    assert_eq!((before.hot.len(), before.totals.hot_cards, before.rows), (100, 100, [200, 200, 5_000]));
    assert!(verdict(&card, &before).consistent);
    let mut client = client(&card);
    let mut ran = [0; Name::COUNT];
    for number in 0..2_000 {
        let name = match number % 2 {
            0 => card.run_one(&mut client, Instant::now()).unwrap(),
            _ => {
                let (name, ticket) = card.submit_one(&mut client, Instant::now()).unwrap();
                card.settle(&mut client, ticket.wait()).unwrap();
                name
            }
        };
        ran[name] += 1;
    }
    assert!(ran.iter().all(|count| *count > 150), "{ran:?}");
    let untold = verdict(&card, &before);
    assert!(!untold.consistent && untold.text.contains("by what the clients were told"), "{}", untold.text);
    card.retire(client);
    let told = verdict(&card, &before);
    assert!(told.consistent, "{}", told.text);
    let after = card.audit().unwrap().totals;
    let checks = (ran[Name::Ccck as usize], ran[Name::Clck as usize], ran[Name::Move as usize]);
    assert_eq!((after.checks, after.limit_checks, after.moves), checks);
    assert_eq!(after.sales + after.declined, ran[Name::Debit as usize]);
    assert!(after.hot_uses > 100 && after.declined > 50 && after.hot_cards != 100, "{after:?}");
}

/// Runs so many, told and retired.
fn ran(card: &Card, count: u32) {
    let mut client = client(card);
    (0..count).for_each(|_| card.run_one(&mut client, Instant::now()).map(drop).unwrap());
    card.retire(client);
}

/// A column's value is made another by this.
fn damage(database: &Database, table: &str, key: i32, column: usize, by: i64) {
    let table = database.table(table).unwrap();
    let found = database.transact(|transaction| {
        transaction.modify(&table, key, |fields| fields.add_i64(column, by).map(drop))
    });
    assert!(found.unwrap(), "row {key} of {}", table.name());
}

#[test]
fn a_lost_or_doubled_change_of_any_counter_is_found() {
    let database = database();
    let card = card(&database, even());
    let before = card.audit().unwrap();
    ran(&card, 1_000);
    let audit = card.audit().unwrap();
    assert!(verdict(&card, &before).consistent);
    let hot = audit.hot[0];
    for (table, key, column, named) in [
        ("accounts", 7, tables::account::USED, "used credit"),
        ("accounts", 7, tables::account::PAID, "cents paid"),
        ("accounts", 7, tables::account::PURCHASES, "purchases of accounts"),
        ("accounts", hot, tables::account::LOST, "marked as lost"),
        ("customers", 7, tables::customer::MOVES, "changes of address"),
        ("customers", 7, tables::customer::MISUSES, "attempted uses"),
        ("hot_cards", hot, tables::hot_card::ATTEMPTS, "attempted uses"),
        ("stores", 7, tables::store::SOLD, "cents sold"),
        ("stores", 7, tables::store::CHECKS, "checks of cards"),
        ("stores", 7, tables::store::LIMIT_CHECKS, "checks of limits"),
        ("stores", 7, tables::store::SALES, "sales"),
        ("stores", 7, tables::store::DECLINED, "declined purchases"),
        ("stores", 7, tables::store::HOT_USES, "uses of hot cards"),
    ] {
        // A mark has two values.
        let ways = if column == tables::account::LOST && table == "accounts" { &[-1][..] } else { &[1, -1] };
        for &by in ways {
            damage(&database, table, key, column, by);
            let verdict = verdict(&card, &before);
            assert!(!verdict.consistent, "{table} {key} {column}");
            assert!(verdict.text.contains(named), "{table} {key} {column}: {}", verdict.text);
            damage(&database, table, key, column, -by);
        }
    }
    assert!(verdict(&card, &before).consistent);
    let hot_cards = database.table("hot_cards").unwrap();
    assert!(database.transact(|transaction| transaction.delete(&hot_cards, hot)).unwrap());
    let gone = verdict(&card, &before);
    let named = format!("marked and not hot is {hot}");
    assert!(!gone.consistent && gone.text.contains(&named), "{}", gone.text);
}

#[test]
fn a_lost_or_doubled_transaction_of_each_kind_is_found() {
    for name in Name::ALL.into_iter().filter(|name| *name != Name::Bal) {
        let database = database();
        let card = card(&database, Mix::only(name));
        let before = card.audit().unwrap();
        ran(&card, 50);
        assert!(verdict(&card, &before).consistent, "{name}");
        // Untold: as if it had run twice for one answer.
        let mut untold = client(&card);
        let changed = |audit: &Audit| audit.totals != card.audit().unwrap().totals;
        let before_it = card.audit().unwrap();
        while !changed(&before_it) {
            card.run_one(&mut untold, Instant::now()).unwrap();
        }
        let doubled = verdict(&card, &before);
        assert!(
            !doubled.consistent && doubled.text.contains("clients were told"),
            "{name}: {}",
            doubled.text
        );
        // Told, and answered once more than it ran.
        card.retire(untold);
        assert!(verdict(&card, &before).consistent, "{name}");
        let mut twice = client(&card);
        let at_first = twice.done;
        while twice.done == at_first {
            card.run_one(&mut twice, Instant::now()).unwrap();
        }
        let done = twice.done;
        card.retire(twice);
        card.done.lock().unwrap().add(&done);
        assert!(!verdict(&card, &before).consistent, "{name}");
    }
}

#[test]
fn clients_that_meet_lose_nothing() {
    let database = database();
    let card = card(&database, even());
    let before = card.audit().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let card = &card;
            scope.spawn(move || {
                let mut client = card.client(number, 7);
                (0..2_000).for_each(|_| card.run_one(&mut client, Instant::now()).map(drop).unwrap());
                card.retire(client);
            });
        }
    });
    let verdict = verdict(&card, &before);
    assert!(verdict.consistent, "{}", verdict.text);
    assert_eq!(database.metrics().aborted_deadlock, 0, "tables are visited in one order");
}

#[test]
fn registered_procedures_do_and_say_the_same() {
    let (database, called) = (database(), database());
    let (card, other) = (card(&database, even()), card(&called, even()));
    flows::register(&called).unwrap();
    let mut random = Random::new(11);
    let mut client = client(&card);
    let mut address = String::new();
    for _ in 0..1_500 {
        let name = card.mix.draw(&mut random);
        let request = Request::draw(name, &SHAPE, &mut random, &mut address);
        let response = card.run(&request, &mut client).unwrap();
        let mut arguments = Vec::new();
        flows::each_argument(&request, |argument| arguments.push(argument));
        assert_eq!(flows::request(name, &arguments).unwrap(), request);
        let outputs = called.call(name.as_str(), &arguments).unwrap();
        let answer = flows::answer(&request, &outputs).unwrap();
        assert_eq!(answer.response, response, "{request:?}");
        assert_eq!(answer.name, (name == Name::Bal).then(|| &*client.name), "{request:?}");
    }
    for table in ["accounts", "customers", "hot_cards", "stores"] {
        let rows = |database: &Database| {
            let table = database.table(table).unwrap();
            let mut rows = Vec::new();
            let mut read = |transaction: &mut rialto::Transaction| {
                rows.clear();
                transaction.scan(&table, &rialto::Scan::all(), |_, row| {
                    rows.push(row.bytes().to_vec());
                    Ok(std::ops::ControlFlow::Continue(()))
                })
            };
            database.read(&mut read).unwrap();
            rows
        };
        assert!(rows(&database) == rows(&called), "{table}");
    }
    assert_eq!(card.audit().unwrap(), other.audit().unwrap());
}

#[test]
fn what_there_is_not_is_named_and_nothing_is_changed() {
    let database = database();
    let card = card(&database, even());
    let before = card.audit().unwrap();
    let mut client = client(&card);
    for (request, named) in [
        (Request::Balance { account: 200 }, "there is no account 200"),
        (Request::Debit { account: 1, store: 5_000, cents: 1 }, "there is no store 5000"),
        (Request::CardCheck { account: 0, store: -1, today: TODAY }, "there is no store -1"),
        (Request::Move { account: 200, address: "here" }, "there is no customer 200"),
        (Request::Debit { account: 1, store: 1, cents: 0 }, "0 cents are no amount"),
        (Request::Payment { account: 1, cents: i64::MIN }, "are no amount, expected 1 to 100000000000"),
    ] {
        let refused = card.run(&request, &mut client).unwrap_err();
        assert!(
            matches!(&refused, rialto::Error::Aborted { .. }) && refused.to_string().contains(named),
            "{refused}"
        );
    }
    card.retire(client);
    let verdict = verdict(&card, &before);
    assert!(verdict.consistent, "{}", verdict.text);
}

#[test]
fn a_portfolio_is_used_again_and_anything_else_is_refused() {
    let database = database();
    card(&database, even());
    let open = |shape| Card::open_or_load(&database, Residence::Memory, shape, Mix::default(), &mut |_| ());
    assert!(open(SHAPE).unwrap().1);
    let refused = |shape| match open(shape) {
        Err(ShapeError::OtherShape { found, expected }) => (found, expected),
        other => panic!("{other:?}"),
    };
    let (found, expected) = refused(Shape { scale: 1, accounts: 300 });
    assert!(
        found.contains("portfolio of 200 accounts") && expected.contains("one of 300"),
        "{found}, {expected}"
    );
    database.transact(|transaction| transaction.drop_table("stores")).unwrap();
    let (found, expected) = refused(SHAPE);
    assert!(
        found.contains("other tables (accounts, card") && expected.contains("portfolio of 200"),
        "{found}"
    );
}

#[test]
fn whatever_a_line_holds_the_next_one_is_read() {
    let database = database();
    let servers = servers(&database, even(), TransactionServerOptions::default());
    let before = servers.audit().unwrap();
    let mut server = servers.interactive(TODAY);
    let input = b"\xff\xfe\nPAY 7 1\nDEBIT 7 1 2\nLOST 7\n\0\nCCCK 7 1\nno end";
    let (mut out, mut prompts) = (Vec::new(), Vec::new());
    interactive::answer(&mut server, &mut &input[..], &mut out, &mut prompts).unwrap();
    let out = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "error: the request is not UTF-8 text");
    assert_eq!(
        lines[1..4],
        [
            "paid; used credit 6.00",
            "bought; 11992.00 of the credit is left",
            "the card is on the list of hot cards"
        ]
    );
    assert!(lines[4].starts_with("error: there is no transaction") && lines[6].contains("\"no\""), "{out}");
    assert_eq!(lines[5], "the card is reported lost; attempted uses since then: 1");
    assert_eq!(prompts, "card> ".repeat(8).into_bytes().into_iter().chain(*b"\n").collect::<Vec<_>>());
    let told = Totals {
        hot_cards: 1,
        paid_cents: 100,
        sales: 1,
        sold_cents: 200,
        checks: 1,
        hot_uses: 1,
        ..Totals::default()
    };
    assert_eq!(server.done(), told);
    assert!(servers.audit().unwrap().judge(SHAPE, &before.totals, &told).consistent);
}

/// Cards behind a transaction server.
fn servers(database: &Database, mix: Mix, options: TransactionServerOptions) -> CardServers {
    let opened = Card::open_or_load(database, Residence::Memory, SHAPE, mix, &mut |_| {});
    CardServers::start(database, opened, &options, 2).unwrap().0
}

struct Unobserved;

impl Observer for Unobserved {
    fn window_begins(&mut self, _: u64, _: Duration) -> Result<(), String> {
        Ok(())
    }

    fn window_ends(&mut self) {}

    fn slice(&mut self, _: Duration, _: u64) {}

    fn tick(&mut self, _: Option<Duration>, _: f64) {}
}

#[test]
fn message_servers_lose_nothing_whatever_the_queue_and_measure_every_response() {
    for (queue, standbys) in [(1, 0), (5, 2), (500, 4)] {
        let database = database();
        let servers = servers(&database, even(), TransactionServerOptions { queue, standbys });
        let before = servers.audit().unwrap();
        let ms = Duration::from_millis;
        let load = Load {
            clients: 2,
            in_flight: 1,
            rate: None,
            warmup: ms(20),
            window: ms(200),
            seed: queue as u64,
        };
        let outcome = servers.drive(&load, &mut Unobserved).unwrap();
        assert_eq!((outcome.aborted_user, outcome.acknowledged), (0, outcome.attempted), "queue {queue}");
        let verdict = servers.verdict(&before, &servers.audit().unwrap(), 0..=0);
        assert!(verdict.consistent, "queue {queue}: {}", verdict.text);
        let in_batches: u64 = outcome.batches.iter().map(|batch| batch.responses).sum();
        assert_eq!((in_batches, outcome.batches.len()), (outcome.committed(), BATCHES), "queue {queue}");
        let (response, per_s) = (outcome.response_us().unwrap(), outcome.throughput().unwrap());
        assert!(0.0 < response.mean && response.low <= response.mean && response.mean <= response.high);
        let expected = outcome.committed() as f64 / outcome.window.as_secs_f64();
        assert!((per_s.mean / expected - 1.0).abs() < 1e-6, "{per_s:?}, {expected}");
        let stats = servers.server_stats();
        assert_eq!(stats.requests, outcome.attempted, "{stats:?}");
        assert!(stats.found_full > 0 && stats.queued_max == queue, "{stats:?}: the queue was full at times");
        let times = database.metrics().servers;
        assert!(times.transaction > Duration::ZERO && times.message > Duration::ZERO, "{times:?}");
    }
}

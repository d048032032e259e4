//! The command line, as users write it.

use clap::Parser;
use rialto::Durability;

use super::*;
use crate::args::DurabilityName;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(line: &str) -> BenchArgs {
    Command::try_parse_from(format!("bench {line}").split(' '))
        .unwrap_or_else(|error| panic!("{error}"))
        .bench
}

fn refusal(line: &str) -> String {
    match Command::try_parse_from(format!("bench {line}").split(' ')) {
        Err(error) => error.to_string(),
        Ok(command) => command.bench.check().unwrap_err().to_string(),
    }
}

#[test]
fn defaults_are_those_of_the_contract() {
    let args = parse("tpcb");
    args.check().unwrap();
    assert_eq!((args.clients, args.in_flight, args.scale(), args.accounts()), (32, 1, 10, 1_000_000));
    assert_eq!((args.seconds, args.warmup), (Duration::from_secs(10), Duration::from_secs(2)));
    assert_eq!((args.rate, args.repeat, args.json), (None, 1, false));
    assert_eq!((args.database.durability, args.disk.clone()), (DurabilityName::Disk, DiskName::File));
    assert_eq!(args.directory(), Some(PathBuf::from("./rialto-data/tpcb")));
    let card = parse("card");
    card.check().unwrap();
    assert_eq!((card.scale(), card.accounts(), card.mix.as_deref()), (1, 40_000, None));
    assert_eq!(card.directory(), Some(PathBuf::from("./rialto-data/card")));
    let larger = parse("card --scale 3 --mix BAL=50,pay=50");
    larger.check().unwrap();
    assert_eq!((larger.accounts(), larger.mix_of::<card::Name>()), (120_000, "PAY=50,BAL=50".parse()));
    let tatp = parse("tatp");
    tatp.check().unwrap();
    assert_eq!((tatp.scale(), tatp.subscribers()), (10, 100_000));
    assert_eq!(tatp.directory(), Some(PathBuf::from("./rialto-data/tatp")));
    let paper = parse("tatp --subscribers 5000000 --mix getsubscriberdata=100 --limits");
    paper.check().unwrap();
    assert_eq!(paper.subscribers(), 5_000_000);
    assert_eq!(paper.mix_of(), Ok(Mix::only(tatp::Name::GetSubscriberData)));
    let tpcc = parse("tpcc");
    tpcc.check().unwrap();
    assert_eq!(tpcc.tpcc_shape(), tpcc::Shape::of_warehouses(10));
    assert_eq!(tpcc.mix_of(), Ok(Mix::<tpcc::Name>::default()));
    assert_eq!(tpcc.directory(), Some(PathBuf::from("./rialto-data/tpcc")));
    let small = parse("tpcc --scale 2 --items 100 --customers 10 --memory-bytes 100000000 --mix PAYMENT=100");
    small.check().unwrap();
    assert_eq!(small.tpcc_shape(), tpcc::Shape { warehouses: 2, items: 100, customers: 10 });
    assert_eq!(small.mix_of(), Ok(Mix::only(tpcc::Name::Payment)));
    parse("card --limits").check().unwrap();
    let servers = parse("card --servers --message-servers 3 --queue 7 --standbys 0");
    servers.check().unwrap();
    assert_eq!((servers.load_threads(), servers.transaction_server_options().queue), (3, 7));
    assert_eq!((card.load_threads(), parse("card --servers").load_threads()), (32, 1));
    parse("card --interactive --queue 1").check().unwrap();
}

/// As the paper of the simulated machine has them, unless the command line says otherwise.
#[test]
fn a_virtual_machine_locks_pages_in_a_central_table_by_default() {
    let line = "tpcc --disk sim:charm --residence disk --durability memory --checkpoint none";
    let of = |more: &str| {
        let args = parse(format!("{line} {more}").trim_end());
        args.check().unwrap();
        let options = args.options();
        (options.engine, options.lock_grain)
    };
    assert_eq!(of(""), (Engine::central(), LockGrain::Page));
    assert_eq!(of("--locks central"), (Engine::central(), LockGrain::Record));
    assert_eq!(of("--locks thin"), (Options::default().engine, LockGrain::Record));
    assert_eq!(of("--locks central --lock-grain page"), (Engine::central(), LockGrain::Page));
}

#[test]
fn values_that_are_not_built_are_answered_with_those_that_are() {
    for (line, available) in [
        ("tpch", "tpcb, card, tatp, tpcc, commit"),
        ("tpcb --engine dataflow", "conventional, data-oriented"),
        ("tpcb --logging everything", "value, action, transaction, none"),
        ("tpcb --checkpoint black", "fuzzy, accou, tccou, acbw, tcbw, none"),
        ("tpcb --straddling-retry-us 5", "--checkpoint acbw, tcbw"),
        ("tpcb --checkpoint tcbw --straddling-retry-us 60000001", "at most 60000000"),
        ("tpcb --group-commit sleepy", "log-server"),
        ("tpcb --disk sim:ssd-30us", "sim:nvme"),
        ("tpcb --residence tape", "memory, disk"),
        ("tpcb --residence disk --two-stage 3pl", "2pl, tste, otste, htste, adaptive"),
        ("tpcb --executors 2", "--engine data-oriented"),
        ("tpcb --executor-threads 2", "--engine data-oriented"),
        ("tpcb --hand-over always", "--executor-threads 1 to 256"),
        ("tpcb --engine data-oriented --hand-over always", "--executor-threads 1 to 256"),
        ("tpcb --engine data-oriented --locks thin", "--engine conventional"),
        ("tpcb --spool=perhaps", "true, false"),
        ("tpcb --locks row", "thin, central"),
        ("tpcb --disk sim:nothing", "sim:koda"),
        ("tpcb --disk tape", "file"),
        ("tpcb --rate fast", "80%"),
        ("tpcb --rate 0", "80%"),
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains(available), "{line}: {refusal}");
    }
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    for (line, named) in [
        ("tpcb --disk memory --data here", "--data"),
        ("tpcb --cache-bytes 10000000", "--residence disk"),
        ("tpcb --page-bytes 4096", "--residence disk"),
        ("tpcb --two-stage tste", "--residence disk"),
        ("tpcb --residence disk --logging transaction --checkpoint none", "--logging value"),
        ("tpcb --residence disk --lock-grain page", "--locks central"),
        ("tpcb --lock-grain record", "--residence disk"),
        ("tpcb --run-us 5", "--disk sim:charm"),
        ("tpcb --disk sim:charm --residence disk", "--durability memory"),
        (
            "tpcb --disk sim:charm --residence disk --durability memory --checkpoint none --rate 5",
            "without --rate",
        ),
        ("tpcb --seconds 0", "--seconds"),
        ("tpcb --scale 10 --accounts 9", "--accounts 10"),
        ("tpcb --clients 100 --in-flight 1000", "--in-flight 1000"),
        ("tpcb --checkpoint none --sweep-bytes-per-s 0", "--sweep-bytes-per-s"),
        ("tpcb --clients 0", "1..=10000"),
        ("tpcb --logging none", "--checkpoint none"),
        ("tpcb --logging transaction", "--checkpoint tccou, tcbw or none"),
        ("card --logging transaction --checkpoint accou", "--checkpoint tccou, tcbw or none"),
        ("commit --check-determinism", "--check-determinism does not apply to commit"),
        ("commit --calls", "--calls does not apply to commit"),
        ("tpcb --mix BAL=100", "--mix does not apply to tpcb"),
        ("tpcb --interactive", "--interactive does not apply to tpcb"),
        ("tpcb --servers", "--servers does not apply to tpcb; available: card"),
        ("tpcb --queue 100", "--queue does not apply to tpcb; available: card"),
        ("card --queue 100", "--queue applies to --servers only"),
        ("card --standbys 1", "--standbys applies to --servers only"),
        ("card --servers --clients 8", "--clients does not apply to --servers"),
        ("card --servers --limits", "--limits does not apply to --servers"),
        ("card --servers --queue 0", "1..=1000000"),
        ("card --interactive --servers", "--servers does not apply to --interactive"),
        ("tatp --mix BAL=100", "there are GetSubscriberData, GetNewDestination"),
        ("tatp --mix GetSubscriberData=99", "add up to 99%"),
        ("tatp --accounts 5", "--accounts does not apply to tatp; available: --subscribers"),
        ("tatp --scale 3 --subscribers 4", "give one"),
        ("tatp --scale 200001", "--scale 200000"),
        ("tatp --servers", "--servers does not apply to tatp; available: card"),
        ("tatp --interactive", "--interactive does not apply to tatp"),
        ("tatp --limits --in-flight 2", "--in-flight 1"),
        ("tatp --disk sim:ssd-30us", "only commit runs in"),
        ("tpcb --subscribers 5", "--subscribers does not apply to tpcb; available: tatp"),
        ("commit --subscribers 5", "--subscribers does not apply to commit"),
        ("tpcc --mix BAL=100", "there are new-order, payment, order-status, delivery, stock-level"),
        ("tpcc --accounts 5", "--accounts does not apply to tpcc; available: --scale"),
        ("tpcc --limits --in-flight 2", "--in-flight 1"),
        ("tpcc --servers", "--servers does not apply to tpcc; available: card"),
        ("tpcc --interactive", "--interactive does not apply to tpcc"),
        ("tpcc --disk sim:ssd-30us", "only commit runs in"),
        ("tpcc --memory-bytes 300000000", "--scale 10 warehouses take about"),
        ("tpcc --scale 32768 --memory-bytes 90000000000000", "--scale 32767"),
        ("tpcc --subscribers 5", "--subscribers does not apply to tpcc"),
        ("tpcc --items 100001", "1..=100000"),
        ("tpcb --items 5", "--items does not apply to tpcb; available: tpcc"),
        ("card --customers 50", "--customers does not apply to card"),
        ("commit --items 5", "--items does not apply to commit"),
        ("commit --mix BAL=100", "--mix does not apply to commit"),
        ("card --mix BAL=99", "add up to 99%"),
        ("card --mix STEAL=100", "there are BAL, CCCK"),
        ("card --mix BAL", "BAL=50,FOUND=50"),
        ("card --scale 3 --accounts 599", "--accounts 600"),
        ("card --scale 50001", "--scale 50000"),
        ("card --limits --in-flight 2", "--in-flight 1"),
        ("card --limits --durability memory", "--durability disk"),
        ("card --limits --rate 100", "--limits does not apply to --rate"),
        ("card --interactive --seconds 3", "--seconds does not apply to --interactive"),
        ("card --interactive --json", "--json does not apply to --interactive"),
        ("card --disk sim:koda --seconds 0", "--seconds 0"),
        ("card --disk sim:ssd-30us", "only commit runs in"),
        ("commit --scale 3", "--scale does not apply to commit"),
        ("commit --durability disk", "--durability does not apply to commit"),
        ("commit --rate 100", "--in-flight"),
        ("commit --disk sim:koda --data here", "virtual time"),
        ("commit --disk sim:koda --limits", "--disk file"),
        (
            "commit --disk sim:koda --log-writes buffered",
            "--log-writes does not apply to commit in virtual time",
        ),
        ("commit --limits --in-flight 2", "--in-flight 1"),
        ("commit --group-commit hiber --stall-us 5", "no stall"),
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains(named), "{line}: {refusal}");
    }
}

#[test]
fn limits_and_comparisons() {
    assert!(refusal("tpcb --limits --rate 100").contains("--rate"));
    let args = Command::try_parse_from(["bench", "tpcb", "--versus", "--clients 1"]).unwrap().bench;
    assert_eq!(args.versus.as_deref(), Some("--clients 1"));
    assert!(args.compares() && parse("tpcb --versus-binary /bin/x").compares() && !parse("tpcb").compares());
    assert!(BenchArgs::read(&["tpcb".to_owned(), "--clients".to_owned()]).unwrap_err().contains("--clients"));
}

#[test]
fn commit_runs_in_virtual_time_on_the_regimes_and_takes_all_that_it_says() {
    for (line, regime) in [
        ("commit --disk sim:koda", Some("koda")),
        ("commit --disk sim:ssd-1ms --seconds 1 --warmup 1 --repeat 3 --seed 4 --json", Some("ssd-1ms")),
        ("commit --disk sim:nvme", None),
        ("commit --disk memory --clients 4 --in-flight 9 --group-max 50", None),
        ("commit --data d --limits --group-commit hiber-stall --stall-us 9", None),
        (
            "commit --group-commit hiber-willing-to-wait --willing-to-wait-us 9 --willing-to-wait-min-us 8",
            None,
        ),
        ("commit --group-commit hiber --wake-delay-us 9", None),
        ("tpcb --disk sim:koda", None),
    ] {
        let args = parse(line);
        args.check().unwrap_or_else(|refused| panic!("{line}: {refused}"));
        assert_eq!(args.regime().map(|regime| regime.name), regime, "{line}");
    }
    assert_eq!(parse("commit").directory(), Some(PathBuf::from("./rialto-data/commit")));
    let args = parse("commit --seconds 10");
    assert!(args.is_given("seconds") && !args.is_given("clients") && !args.is_given("json"));
}

#[test]
fn rates_and_options() {
    assert_eq!(parse("tpcb --rate 80%").rate, Some(Rate::PercentOfPeak(80.0)));
    assert_eq!(parse("tpcb --rate 1200.5").rate, Some(Rate::PerSecond(1200.5)));
    let options =
        parse("tpcb --clients 2000 --in-flight 20 --memory-bytes 5000000 --durability memory").options();
    assert_eq!((options.transactions_max, options.packets_max), (2016, 41_024));
    assert_eq!((options.memory_bytes, options.durability), (5_000_000, Durability::Memory));
    let open = |line: &str| parse(line).options().transactions_max;
    let executors = "tatp --engine data-oriented --executor-threads";
    assert_eq!(open(&format!("{executors} 0 --clients 4 --in-flight 900")), 1_024);
    assert_eq!(open(&format!("{executors} 2 --clients 4 --in-flight 900")), 7_216);
    assert_eq!(open(&format!("{executors} 2 --clients 4 --in-flight 9000")), 16_384);
}

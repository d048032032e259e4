//! Clusters whose nodes are threads of this process, for a moment each: what they count, and that what clients were told is there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rialto_smallbase::outcome::Point;
use rialto_smallbase::parent::measure;
use rialto_smallbase::report::Report;
use rialto_smallbase::spec::{
    Data, Level, Load, Network, Nodes, Pace, Priority, Protocol, Shape, Spec, WorkloadName,
};
use rialto_smallbase::workload::{MESSAGES, TRIES_AGAIN};

fn spec(name: &str, workload: WorkloadName, protocol: Protocol) -> Spec {
    Spec {
        shape: Shape { nodes: 2, partitions: 1, replicas: 1 },
        data: Data { workload, protocol, branches: 2, accounts: 500 },
        network: Network::default(),
        priority: Priority::Normal,
        nodes: Nodes::Threads,
        directory: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id())),
        memory_bytes: 256 << 20,
    }
}

fn load(remote_pct: u32) -> Load {
    Load {
        clients: 1,
        remote_pct,
        pace: None,
        level: Level::Memory,
        warmup: Duration::from_millis(50),
        window: Duration::from_millis(300),
        seed: 1,
        outliers: false,
    }
}

/// Runs until there are transactions of both kinds that are wanted, longer each time: a machine may stand still.
fn run(spec: &Spec, load: Load) -> Point {
    let mut window = load.window;
    loop {
        // A second run is verified with what the first one has told.
        let point = measure(spec, &Load { window, ..load }, 2).unwrap();
        assert_eq!(point.problems, Vec::<String>::new());
        assert!(!spec.directory.exists(), "its data are gone");
        let ran = point.median();
        let is_enough = (load.remote_pct == 100 || ran.local.count() > 0)
            && (load.remote_pct == 0 || ran.remote.count() > 0);
        if is_enough || window > Duration::from_secs(10) {
            assert!(is_enough, "{} local, {} remote", ran.local.count(), ran.remote.count());
            return point;
        }
        window *= 3;
    }
}

/// How many runs may have more messages than are expected: a protocol that has to wait for long asks again.
const TRIES: usize = 10;

/// Runs remote transactions alone, and finds that each has this many messages. Those of the last ones may be on their way.
fn has_messages(spec: &Spec, each: i64) {
    let mut all = Vec::new();
    for _ in 0..TRIES {
        let point = run(spec, load(100));
        assert_eq!(point.median().local.count(), 0);
        let answered: u64 = point.told.answered.iter().sum();
        let (found, expected) = (point.audit.sum(MESSAGES), each * answered as i64);
        let late = each * i64::from(point.load.clients * point.shape.nodes);
        let again = 8 * point.audit.sum(TRIES_AGAIN);
        if found >= expected - late && found <= expected + again {
            return;
        }
        all.push((found, answered));
    }
    panic!("messages and transactions: {all:?}, expected {each} each");
}

#[test]
fn local_transactions_send_nothing_and_remote_ones_four_messages() {
    let tpcb = spec("counts", WorkloadName::Tpcb, Protocol::Atomic);
    let local = run(&tpcb, load(0));
    assert_eq!((local.median().remote.count(), local.audit.sum(MESSAGES)), (0, 0));
    has_messages(&tpcb, 4);
}

#[test]
fn as_the_paper_ran_it_remote_transactions_have_two_messages() {
    has_messages(&spec("as-paper", WorkloadName::Tpcb, Protocol::AsPaper), 2);
}

#[test]
fn standbys_have_what_is_answered_and_the_result_says_what_was_run() {
    let standbys = Spec {
        shape: Shape { nodes: 2, partitions: 2, replicas: 2 },
        ..spec("standbys", WorkloadName::Tpcb, Protocol::Atomic)
    };
    let point = run(&standbys, Load { clients: 2, level: Level::Standby, outliers: true, ..load(30) });
    let points = [point];
    let report = Report(&points);
    let text = report.text();
    for expected in
        ["TPC-B over partitions", "30 % remote", "level standby", "2 replicas", "100.0 %", "consistent"]
    {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
    let json = report.json();
    assert_eq!(json["consistent"], true);
    assert_eq!(
        (&json["workload"], &json["remote_pct"], &json["clients"]),
        (&"smallbase".into(), &30.into(), &4.into())
    );
    let found = &json["points"][0];
    for above_zero in ["committed_per_s", "cpu_us_per_txn", "messages_sent_per_txn", "wakes_per_txn"] {
        assert!(found[above_zero].as_f64().unwrap() > 0.0, "{above_zero} in {json}");
    }
    assert_eq!(found["of_nodes"].as_array().unwrap().len(), 2);
    assert!(found["local_us"]["min"].as_f64() <= found["local_us"]["mean"].as_f64(), "{found}");
}

#[test]
fn requests_to_a_service_control_point_are_counted_and_installed() {
    let scp = spec("scp", WorkloadName::Scp, Protocol::Atomic);
    let point = run(&scp, Load { clients: 2, ..load(15) });
    let report = Report(std::slice::from_ref(&point)).text();
    assert!(report.contains("service control point"), "{report}");
}

#[test]
fn messages_through_a_slow_network_take_longer() {
    let delay = Duration::from_millis(5);
    let network = Network { mbit: Some(10), delay, ..Network::default() };
    let slow = Spec { network, ..spec("slow", WorkloadName::Tpcb, Protocol::AsPaper) };
    let point = run(&slow, load(50));
    let least = point.median().remote.min_us().unwrap();
    // There and back.
    assert!(least >= 10_000.0, "{least} us");
}

#[test]
fn a_database_without_a_cluster_runs_the_same_transactions() {
    for workload in [WorkloadName::Tpcb, WorkloadName::Scp] {
        let of_two = spec("alone", workload, Protocol::Atomic);
        let alone = Spec { shape: Shape { nodes: 1, ..of_two.shape }, nodes: Nodes::Alone, ..of_two };
        let point = run(&alone, load(0));
        assert_eq!((point.median().remote.count(), point.audit.sum(MESSAGES)), (0, 0));
    }
}

#[test]
fn an_open_loop_offers_what_is_asked_for() {
    let tpcb = spec("open-loop", WorkloadName::Tpcb, Protocol::Atomic);
    let paced = |pace| {
        let began = Instant::now();
        let point = run(&tpcb, Load { clients: 2, pace: Some(pace), ..load(0) });
        (point, began.elapsed().as_secs_f64())
    };
    let (point, took) = paced(Pace::PerSecond(20.0));
    assert_eq!(point.offered_per_s, Some(20.0));
    for ran in &point.runs {
        // One of each client is due at once, the others later.
        let due = 20.0 * took + 4.0;
        assert!((ran.committed() as f64) <= due, "{} of {due} that were due", ran.committed());
    }
    let (half, _) = paced(Pace::PercentOfPeak(50.0));
    assert!(half.offered_per_s.unwrap() >= 1.0);
}

#[test]
fn a_directory_that_has_something_is_not_touched() {
    let spec = spec("in-use", WorkloadName::Tpcb, Protocol::Atomic);
    std::fs::create_dir_all(&spec.directory).unwrap();
    let file = spec.directory.join("of-another-program");
    std::fs::write(&file, "x").unwrap();
    let error = measure(&spec, &load(0), 1).unwrap_err();
    assert!(error.to_string().contains("not empty") && error.exit_code() == 3, "{error}");
    assert!(file.exists());
    std::fs::remove_dir_all(&spec.directory).unwrap();
}

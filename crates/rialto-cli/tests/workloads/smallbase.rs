//! `rialto bench smallbase`, `rialto bench scp` and the figures of clusters, run as a user runs them, with small sizes.

use std::time::{Duration, Instant};

use crate::common::{Directory, at, json, measured, number, program, run, stderr, stdout, succeeds};

const SMALL: [&str; 11] = [
    "--accounts",
    "50",
    "--branches",
    "2",
    "--warmup",
    "0.1",
    "--memory-bytes",
    "268435456",
    "--repeat",
    "1",
    "--json",
];

fn bench<'a>(workload: &'a str, data: &'a Directory, more: &[&'a str]) -> Vec<&'a str> {
    [&["bench", workload, "--data", data.name()], &SMALL[..], more].concat()
}

#[test]
fn processes_with_standbys_run_transactions_of_both_kinds() {
    let data = Directory::new("smallbase");
    let measure = |seconds: &str| {
        let more =
            ["--nodes", "1,2", "--remote-pct", "50", "--durability", "standby", "--real-time", "--outliers"];
        let output =
            succeeds(run(&bench("smallbase", &data, &[&more[..], &["--seconds", seconds]].concat())));
        assert!(stdout(&output).contains("TPC-B over partitions"), "{}", stdout(&output));
        json(&output)
    };
    let counts = ["local_us.count", "remote_us.count"];
    let is_enough =
        |found: &serde_json::Value| counts.iter().all(|count| number(&found["points"][1], count) > 0.0);
    let found = measured(0.5, measure, is_enough);
    assert!(is_enough(&found), "{found}");
    assert_eq!(
        (&found["consistent"], &found["replicas"], &found["durability"]),
        (&true.into(), &2.into(), &"standby".into())
    );
    // Where this user may, each node has a network, and the priority that was asked for.
    let may = |line: &[&str]| {
        let ran = std::process::Command::new(line[0]).args(&line[1..]).output();
        ran.is_ok_and(|output| output.status.success())
    };
    let may_have_networks = may(&["unshare", "--net", "true"]) && may(&["ip", "-Version"]);
    assert_eq!(at(&found, "namespaces").as_bool(), Some(may_have_networks), "{found}");
    assert_eq!(at(&found, "real_time").as_bool(), Some(may(&["chrt", "--rr", "10", "true"])), "{found}");
    let [one, two] = [0, 1].map(|nth| &found["points"][nth]);
    assert_eq!(
        (number(one, "nodes"), number(one, "remote_us.count"), number(one, "messages_per_txn")),
        (1.0, 0.0, 0.0)
    );
    assert_eq!(
        (number(two, "nodes"), number(two, "efficiency_pct"), number(two, "cpu_efficiency_pct")),
        (2.0, 100.0, 100.0)
    );
    // Each process has used processor time of its own.
    for node in at(two, "of_nodes").as_array().expect("an array") {
        assert!(number(node, "cpu_us") > 0.0, "{two}");
    }
    assert!(!data.path().exists(), "the data are gone");
}

#[test]
fn a_database_without_a_cluster_is_measured_for_comparison() {
    let data = Directory::new("smallbase-alone");
    let found =
        json(&succeeds(run(&bench("smallbase", &data, &["--nodes", "1", "--alone", "--seconds", "0.2"]))));
    assert_eq!((&found["alone"], &found["consistent"]), (&true.into(), &true.into()));
    assert_eq!(number(&found, "messages_per_txn"), 0.0);
}

#[test]
fn a_service_control_point_is_run_over_a_slow_network() {
    let data = Directory::new("scp");
    let more = [
        "--seconds",
        "0.5",
        "--link-mbit",
        "10",
        "--link-delay-us",
        "1000",
        "--no-namespaces",
        "--remote-pct",
        "100",
    ];
    let found = json(&succeeds(run(&bench("scp", &data, &more))));
    assert_eq!(
        (&found["workload"], &found["namespaces"], &found["consistent"]),
        (&"scp".into(), &false.into(), &true.into())
    );
    if number(&found, "committed") > 0.0 {
        assert!(number(&found["points"][0], "remote_us.min") >= 2_000.0, "{found}");
    }
}

#[test]
fn wrong_options_and_directories_in_use_are_refused() {
    for (line, code, named) in [
        ("bench smallbase --nodes 2 --replicas 3", 2, "--replicas 3"),
        ("bench smallbase --scale 2", 2, "--scale"),
        ("bench scp --as-paper", 2, "--as-paper"),
        ("bench tpcb --as-paper", 2, "--as-paper"),
        ("bench smallbase-node 0 /nowhere/at-all", 4, "/nowhere/at-all"),
    ] {
        let output = run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(code), "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{line}: {}", stderr(&output));
    }
    let data = Directory::new("smallbase-in-use");
    std::fs::create_dir_all(data.path().join("something")).expect("it can be made");
    let output = run(&bench("smallbase", &data, &["--seconds", "0.1"]));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("--data"), "{}", stderr(&output));
}

/// The processes whose command line has this word.
fn processes_with(word: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains("smallbase-node") && line.contains(word)).collect()
}

#[test]
fn nodes_end_with_the_command_that_has_started_them() {
    let data = Directory::new("smallbase-killed");
    let mut running =
        program(&bench("smallbase", &data, &["--seconds", "600"])).spawn().expect("the program starts");
    // In the name of the socket that nodes connect to.
    let socket = format!("rialto-smallbase-{}-", running.id());
    let within = |what: &str, is_so: &dyn Fn(usize) -> bool| {
        let began = Instant::now();
        while !is_so(processes_with(&socket).len()) {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}: {:?}", processes_with(&socket));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // The last node has opened its partition, as it was told by the command.
    let opened = data.path().join("node1/partition-1/database");
    within("two nodes run", &|found| found == 2 && opened.exists());
    running.kill().expect("it runs");
    running.wait().expect("it has ended");
    within("no node runs", &|found| found == 0);
    let left = std::env::temp_dir().join(format!("{socket}0"));
    let _ = std::fs::remove_file(left);
}

#[test]
fn an_interrupt_of_a_terminal_ends_the_command_its_nodes_and_its_data() {
    use std::os::unix::process::CommandExt;
    for (name, more) in [
        ("smallbase-interrupted", &["--nodes", "2", "--no-namespaces"][..]),
        ("smallbase-alone-interrupted", &["--nodes", "1", "--alone"]),
    ] {
        let data = Directory::new(name);
        let line = bench("smallbase", &data, &[more, &["--seconds", "600"]].concat());
        let mut running = program(&line).process_group(0).spawn().expect("the program starts");
        let opened = ["node1/partition-1/database", "alone"].map(|path| data.path().join(path));
        let began = Instant::now();
        while !opened.iter().any(|path| path.exists()) {
            assert!(began.elapsed() < Duration::from_secs(60), "{name} has not begun");
            std::thread::sleep(Duration::from_millis(20));
        }
        // As a terminal does it: to the whole group.
        let group = format!("-{}", running.id());
        let sent = std::process::Command::new("kill").args(["-INT", "--", &group]).status();
        assert!(sent.expect("kill runs").success());
        let began = Instant::now();
        let ended = loop {
            if let Some(status) = running.try_wait().expect("it is a child") {
                break status;
            }
            if began.elapsed() > Duration::from_secs(60) {
                running.kill().expect("it runs");
                panic!("{name} goes on after an interrupt");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.code(), Some(130), "{name}");
        assert!(!data.path().exists(), "{name}: its data are gone");
        assert_eq!(processes_with(&format!("rialto-smallbase-{}-", running.id())), Vec::<String>::new());
    }
}

#[test]
fn response_times_become_a_figure_with_those_of_the_paper() {
    let (out, data) = (Directory::new("figures-cluster-out"), Directory::new("figures-cluster-data"));
    let measure = |seconds: &str| {
        let line = [
            "figures",
            "cluster-t3",
            "--out",
            out.name(),
            "--data",
            data.name(),
            "--rounds",
            "1",
            "--seconds",
            seconds,
        ];
        succeeds(run(&line));
        let csv = std::fs::read_to_string(out.path().join("cluster-t3.csv")).expect("it is written");
        csv.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect::<Vec<Vec<String>>>()
    };
    // The column of the local mean, in all rows but the header.
    let has_run =
        |rows: &Vec<Vec<String>>| rows[1..].iter().all(|row| row[3].parse::<f64>().is_ok_and(|us| us > 0.0));
    let rows = measured(0.05, measure, has_run);
    assert!(has_run(&rows), "{rows:?}");
    // Points so short are of one and two nodes, in two series; one node has no level 2.
    assert!(rows.len() >= 4, "{rows:?}");
    assert_eq!(
        (rows[2][1].as_str(), rows[2].last().map(String::as_str)),
        ("2", Some("0.05")),
        "the paper's: {rows:?}"
    );
    let text = std::fs::read_to_string(out.path().join("cluster-t3.md")).expect("it is written");
    assert!(text.contains("The paper: local transactions take 0.63 ms"), "{text}");
    assert!(out.path().join("cluster-t3.svg").exists());
    let none = run(&["figures", "cluster-t1", "--out", out.name(), "--seconds", "0"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("--seconds above zero"), "{}", stderr(&none));
}

/// The rows of cluster-scale's table, by the kind of the cluster, and its paragraph.
fn scale(out: &Directory, more: &[&str]) -> (Vec<Vec<String>>, Vec<Vec<String>>, String) {
    let data = Directory::new("figures-scale-data");
    let mut line = vec!["figures", "cluster-scale", "--out", out.name(), "--data", data.name()];
    line.extend(["--rounds", "1", "--seconds", "0.09", "--nodes", "3,5"]);
    line.extend(more);
    // On a busy machine a window so short may have no transaction, which is told.
    let mut output = run(&line);
    for _ in 0..5 {
        if output.status.success() || !stderr(&output).contains("give a longer --seconds") {
            break;
        }
        output = run(&line);
    }
    let output = succeeds(output);
    let csv = std::fs::read_to_string(out.path().join("cluster-scale.csv")).expect("it is written");
    let rows: Vec<Vec<String>> =
        csv.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect();
    let (compared, told) = rows.into_iter().partition(|row| row[0] == "one machine");
    let text = std::fs::read_to_string(out.path().join("cluster-scale.md")).expect("it is written");
    assert!(stderr(&output).contains("Within 10%:"), "the verdict is said: {}", stderr(&output));
    (compared, told, text)
}

#[test]
fn a_simulation_tells_of_more_nodes_only_if_it_has_predicted_the_measured_ones_or_if_that_is_asked_for() {
    let out = Directory::new("figures-scale");
    let (compared, told, text) = scale(&out, &[]);
    // Points so short are of one and two nodes, with four figures each.
    assert_eq!(compared.len(), 2 * 4, "{compared:?}");
    let is_within = |row: &Vec<String>| {
        let [simulated, measured] = [4, 5].map(|at| row[at].parse::<f64>().unwrap());
        assert!(simulated > 0.0 && measured > 0.0, "{row:?}");
        let off_pct = row[8].parse::<f64>().unwrap();
        // It is printed rounded.
        if (off_pct.abs() - 10.0).abs() > 0.2 {
            assert_eq!(row[9] == "yes", off_pct.abs() < 10.0, "{row:?}");
        }
        row[9] == "yes"
    };
    // Each row is checked.
    let within: Vec<bool> = compared.iter().map(is_within).collect();
    let is_believed = within.iter().all(|row| *row);
    assert_eq!(text.contains("is not to be believed"), !is_believed, "{text}");
    assert_eq!(told.is_empty(), !is_believed, "{told:?}");
    let (_, told, text) = scale(&out, &["--even-if-it-misses", "--node-cores", "3", "--link-delay-us", "70"]);
    // Two sizes, with one and with four clients, seven figures of each.
    assert_eq!(told.len(), 2 * 2 * 7, "{told:?}");
    assert!(told.iter().all(|row| row[4].parse::<f64>().is_ok_and(|figure| figure > 0.0)), "{told:?}");
    assert!(text.contains("3 cores of their own, a message 70 us on its way"), "{text}");
    let remote: Vec<f64> =
        told.iter().filter(|row| row[3] == "remote: mean us").map(|row| row[4].parse().unwrap()).collect();
    assert!(remote.iter().all(|us| *us > 2.0 * 70.0), "two messages of 70 us each: {remote:?}");
}

#[test]
fn what_a_simulation_cannot_be_asked_about_is_refused_by_name() {
    for (option, value) in [
        ("--nodes", "0"),
        ("--nodes", "5000"),
        ("--node-cores", "0"),
        ("--link-mbit", "0"),
        ("--link-delay-us", "-1"),
    ] {
        let line = ["figures", "cluster-scale", "--out", "none", &format!("{option}={value}")];
        let refused = run(&line);
        assert_eq!(refused.status.code(), Some(2), "{option} {value}");
        assert!(stderr(&refused).contains(option), "{option}: {}", stderr(&refused));
    }
    let out = Directory::new("figures-scale-none");
    let none = run(&["figures", "cluster-scale", "--out", out.name(), "--seconds", "0"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("--seconds above zero"), "{}", stderr(&none));
}

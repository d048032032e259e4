//! `rialto figures`, run as a user runs it, with small sizes.

use std::process::Output;
use std::sync::{Mutex, MutexGuard};

use crate::common::{Directory, measured, run, stderr, stdout, succeeds};

fn figures(arguments: &[&str]) -> Output {
    let mut all = vec!["figures"];
    all.extend(arguments);
    run(&all)
}

fn file(directory: &Directory, name: &str) -> String {
    std::fs::read_to_string(directory.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Real runs go one after the other: their points are so short that one may get no processor time beside another.
static REAL_RUN: Mutex<()> = Mutex::new(());

fn real_run() -> MutexGuard<'static, ()> {
    REAL_RUN.lock().unwrap_or_else(|failed| failed.into_inner())
}

/// The cells of a figure's table, with semicolons for commas in them. Checks that its picture is one.
fn table(out: &Directory, id: &str) -> Vec<Vec<String>> {
    let csv = file(out, &format!("{id}.csv"));
    // Commas in quotes do not end cells.
    let cells = |line: &str| {
        let parts = line.split('"').enumerate();
        let joined: String = parts
            .map(|(at, part)| if at % 2 == 1 { part.replace(',', ";") } else { part.to_owned() })
            .collect();
        joined.split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let rows: Vec<_> = csv.lines().map(cells).collect();
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{id}: {csv}");
    let svg = file(out, &format!("{id}.svg"));
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{id}");
    rows
}

fn number(cell: &str) -> f64 {
    cell.parse().unwrap_or_else(|_| panic!("\"{cell}\" is no number"))
}

/// Charm's, in virtual time on small tables.
#[test]
fn charms_figures_have_the_papers_beside_ours() {
    let out = Directory::new("figures-charm");
    let ids =
        ["t1", "2", "t2", "3", "t3", "4", "t4", "5", "t5", "t6", "t7", "t8"].map(|id| format!("charm-{id}"));
    let mut all: Vec<&str> = ids.iter().map(String::as_str).collect();
    all.extend(["--commits", "200", "--rounds", "2", "--out", out.name()]);
    succeeds(figures(&all));
    let of = |id: &str| table(&out, id);
    for (id, row, column, paper) in [
        ("charm-t1", 2, 4, "80.9"),
        ("charm-t2", 1, 4, "13.90"),
        ("charm-t3", 2, 8, "0.10"),
        ("charm-t4", 1, 5, "99.8"),
        ("charm-t5", 5, 8, "32.22"),
        ("charm-t6", 1, 5, "0.9"),
        ("charm-t7", 1, 9, "3648"),
        ("charm-t8", 10, 3, "534"),
    ] {
        assert_eq!(of(id)[row][column], paper, "{id}");
    }
    // Four concurrent transactions, with and without an idle loop.
    let loops = of("charm-t7");
    assert_eq!(loops.len(), 1 + 2 * 5, "{loops:?}");
    let per_minute = |row: &Vec<String>| number(&row[2]);
    let slower = loops[1..6].iter().zip(&loops[6..]).all(|(none, some)| per_minute(some) < per_minute(none));
    assert!(slower, "30 ms of one processor: {loops:?}");
    // Under two-phase locking each miss is under locks; TSTE has misprefetches alone.
    let by_clients = of("charm-2");
    let held = |strategy: &str| {
        let row = by_clients.iter().find(|row| row[0] == "2" && row[1] == strategy).expect("there is one");
        number(&row[11])
    };
    assert!(held("tste") < held("2pl") / 4.0, "{by_clients:?}");
    let behind = of("charm-t1");
    assert!(
        number(&behind[2][1]) > number(&behind[2][5]),
        "2pl waits for others' disk, htste seldom: {behind:?}"
    );
    for (id, column, range) in [
        ("charm-t2", 1, 1.0..1e4),
        ("charm-t4", 2, 0.0..100.1),
        ("charm-t5", 1, 1.0..1e4),
        ("charm-t6", 2, 0.0..100.1),
    ] {
        assert!(of(id)[1..].iter().all(|row| range.contains(&number(&row[column]))), "{id}: {:?}", of(id));
    }
    let kept = of("charm-t8");
    assert!(kept[1..].iter().all(|row| number(&row[2]) > 0.0), "{kept:?}");
}

#[test]
fn each_figure_is_a_table_a_picture_and_a_paragraph() {
    let (out, data) = (Directory::new("figures-out"), Directory::new("figures-data"));
    // The paper's figure in each, and a row of its table.
    for (id, paper, row) in [
        ("koda-t1", "464", "row,65,30,350,464,"),
        ("koda-t2", "555|500", "row,50,90,340,500,"),
        (
            "koda-designs",
            "commit-lock 300, commit-stall 464, willing-to-wait 500",
            "commit-lock,commit-lock,",
        ),
        ("koda-formulas", "1/(G x (G+1))", "sim:koda,hiber,servers,1,"),
        ("koda-6", "Figure 6", "sim:koda,adaptive,servers,5,"),
        ("koda-7", "Figure 7", "sim:koda,\"commit-stall, 50 servers\",\"commit stall, ms\",20,"),
    ] {
        let output =
            figures(&[id, "--out", out.name(), "--data", data.name(), "--seconds", "0", "--commits", "200"]);
        let output = succeeds(output);
        for ending in ["csv", "svg", "md"] {
            let path = format!("{id}.{ending}");
            assert!(stdout(&output).lines().any(|line| line.ends_with(&path)), "{path}: {}", stdout(&output));
        }
        let text = file(&out, &format!("{id}.md"));
        assert!(paper.split('|').any(|words| text.contains(words)), "{id}: {paper} is missing in {text}");
        assert!(text.starts_with(&format!("## {id}: ")) && text.contains(&format!("({id}.svg)")), "{text}");
        let csv = file(&out, &format!("{id}.csv"));
        let columns = |line: &str| {
            // Commas in quotes do not end cells.
            line.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>()
        };
        let header = csv.lines().next().expect("a header");
        assert!(csv.lines().all(|line| columns(line) == columns(header)), "{id}: {csv}");
        assert!(csv.lines().any(|line| line.starts_with(row)), "{id}: {row} is missing in {csv}");
        let svg = file(&out, &format!("{id}.svg"));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{id}");
    }
    assert!(!data.path().exists(), "virtual time needs no directory");
}

#[test]
fn system_ms_tables_have_a_row_for_each_strategy_that_there_is_with_the_papers_beside_it() {
    let _alone = real_run();
    let (out, data) = (Directory::new("figures-m-out"), Directory::new("figures-m-data"));
    let ids = ["m-4.1", "m-4.2", "m-4.3", "m-4.4"];
    let rows = |id: &str| table(&out, id);
    let above_zero = |row: &[String], columns: &[usize]| columns.iter().all(|&at| number(&row[at]) > 0.0);
    const THROUGHPUT: [&str; 6] =
        ["FUZZY VALUE", "TCCOU VALUE", "ACBW AOPER", "TCBW VALUE", "TCCOU TOPER", "TCBW TOPER"];
    let is_bounded =
        |row: &[String]| number(&row[3]) <= number(&row[2]) && number(&row[2]) <= number(&row[4]);
    measured(
        0.01,
        |seconds| {
            let mut arguments = ids.to_vec();
            arguments.extend(["--out", out.name(), "--data", data.name()]);
            arguments.extend(["--rounds", "2", "--seconds", seconds]);
            let output = succeeds(figures(&arguments));
            assert!(!stderr(&output).contains("left over"), "{}", stderr(&output));
        },
        // Each point has some transactions.
        |()| {
            rows("m-4.1").iter().all(|row| !THROUGHPUT.contains(&&*row[0]) || above_zero(row, &[1, 4, 6, 7]))
                && rows("m-4.2").iter().all(|row| row[1] != "spooling" || above_zero(row, &[2]))
                && rows("m-4.3").iter().all(|row| row[0] != "FUZZY VALUE" || is_bounded(row))
                && rows("m-4.4")[1..].iter().all(|row| above_zero(row, &[1]))
        },
    );
    let throughput = rows("m-4.1");
    let row = |name: &str| {
        throughput.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name} is missing"))
    };
    for (name, paper) in THROUGHPUT.into_iter().zip(["72.7", "63.8", "73.1", "41.61", "72.6", "46.31"]) {
        let row = row(name);
        assert_eq!(row[18], paper, "{row:?}");
        assert!(above_zero(row, &[1, 4, 6, 7]), "{row:?}");
    }
    assert_eq!(
        (row("off")[9].as_str(), row("off")[12].as_str()),
        ("0.0", "0.0"),
        "the others are against it"
    );
    assert_eq!(row("FUZZY VALUE; paced")[18], "", "the paper has none");
    let text = file(&out, "m-4.1.md");
    assert!(text.contains("cost of recovery readiness") && text.contains("9658, 275, 802, 2908"), "{text}");
    let contention = rows("m-4.2");
    let paper =
        contention.iter().find(|row| row[0] == "ACBW VALUE" && row[1] == "spooling").expect("it is there");
    assert_eq!(paper[14..16], ["459112", "3"]);
    assert!(number(&paper[2]) > 0.0, "{paper:?}");
    let response = rows("m-4.3");
    let fuzzy: Vec<_> = response.iter().filter(|row| row[0] == "FUZZY VALUE").collect();
    assert_eq!(fuzzy.iter().map(|row| &*row[1]).collect::<Vec<_>>(), ["1", "8", "64", "512", "4096"]);
    for row in fuzzy {
        assert!(is_bounded(row), "{row:?}");
        assert_eq!(row[9], "3.40");
    }
    let basics = rows("m-4.4");
    assert_eq!(basics.len(), 8, "{basics:?}");
    assert!(basics[1..].iter().all(|row| number(&row[1]) > 0.0), "{basics:?}");
    let none = figures(&["m-4.1", "--out", out.name(), "--seconds", "0"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("--seconds above zero"), "{}", stderr(&none));
}

/// A small figure of DORA's: its rows by column name.
struct Rows(Vec<Vec<String>>);

impl Rows {
    fn of<'a>(&'a self, column: &str) -> impl Iterator<Item = &'a str> {
        let at =
            self.0[0].iter().position(|name| name == column).unwrap_or_else(|| panic!("no column {column}"));
        self.0[1..].iter().map(move |row| &*row[at])
    }

    fn numbers(&self, column: &str) -> Vec<f64> {
        self.of(column).map(number).collect()
    }

    /// For each row, the sum of these columns.
    fn sums(&self, columns: &[&str]) -> Vec<f64> {
        let columns: Vec<_> = columns.iter().map(|column| self.numbers(column)).collect();
        (0..self.0.len() - 1).map(|row| columns.iter().map(|column| column[row]).sum()).collect()
    }
}

const SYSTEMS: [&str; 4] =
    ["conventional; central locks", "conventional; thin locks", "data-oriented", "data-oriented; threads"];

#[test]
fn doras_figures_compare_the_systems_and_shares_of_time_make_a_whole() {
    let _alone = real_run();
    let (out, data) = (Directory::new("figures-dora-out"), Directory::new("figures-dora-data"));
    // Points are long enough that each has some transactions.
    let figure = |id: &str, is_enough: &dyn Fn(&Rows) -> bool| {
        let measure = |seconds: &str| {
            let output = succeeds(figures(&[
                id,
                "--out",
                out.name(),
                "--data",
                data.name(),
                "--rounds",
                "2",
                "--seconds",
                seconds,
            ]));
            assert!(stdout(&output).contains(&format!("{id}.svg")), "{}", stdout(&output));
            Rows(table(&out, id))
        };
        let rows = measured(0.04, measure, is_enough);
        for system in SYSTEMS {
            assert!(rows.of("system").any(|found| found == system), "{id}: {system} is missing");
        }
        assert!(file(&out, &format!("{id}.md")).contains("The paper"), "{id}");
        rows
    };
    let above_zero =
        |column: &'static str| move |rows: &Rows| rows.numbers(column).iter().all(|figure| *figure > 0.0);
    // Shares are of samples: a point without samples has none.
    let are_whole = |sums: &[f64], samples: &[f64]| {
        for (sum, samples) in sums.iter().zip(samples) {
            let expected = if *samples > 0.0 { 100.0 } else { 0.0 };
            assert!((sum - expected).abs() < 0.4, "{sum} of {samples} samples");
        }
    };
    let parts = [
        "useful work %",
        "engine overhead %",
        "other contention %",
        "lock manager %",
        "lock manager contention %",
    ];
    for id in ["dora-1", "dora-2"] {
        let has_run = above_zero("transactions/s");
        let rows = figure(id, &has_run);
        assert_eq!(rows.0.len(), 1 + 4 * 2, "{id}: {:?}", rows.0);
        assert!(has_run(&rows), "{id}: {:?}", rows.0);
        are_whole(&rows.sums(&parts), &rows.numbers("samples"));
    }
    let inside = ["acquire %", "acquire contention %", "release %", "release contention %"];
    let rows = figure("dora-3", &|_| true);
    are_whole(&rows.sums(&inside), &rows.numbers("samples"));

    // Accounts, tellers, branches, and the history's row, in each transaction.
    let bank = |locks: &Rows| {
        locks
            .of("workload")
            .zip(locks.of("system"))
            .position(|at| at == ("TPC-B", SYSTEMS[0]))
            .expect("a row")
    };
    // Except for transactions whose locks and commit lie on two sides of the window's ends.
    let is_about_400 =
        |locks: &Rows, column: &str| (300.0..500.0).contains(&locks.numbers(column)[bank(locks)]);
    let has_400 = |locks: &Rows| {
        is_about_400(locks, "row-level locks in 100") && is_about_400(locks, "higher level locks in 100")
    };
    let locks = figure("dora-5", &has_400);
    let (row, higher, local) = (
        locks.numbers("row-level locks in 100"),
        locks.numbers("higher level locks in 100"),
        locks.numbers("local locks in 100"),
    );
    for (at, system) in locks.of("system").enumerate() {
        // Rows are locked by executors or by the lock manager, never by both.
        match system {
            "data-oriented" | "data-oriented; threads" => assert_eq!(row[at], 0.0, "{:?}", locks.0[at + 1]),
            // Each of its transactions has an intention on a table.
            _ => assert!(local[at] == 0.0 && higher[at] > 0.0, "{:?}", locks.0[at + 1]),
        }
    }
    assert!(has_400(&locks), "{:?}", locks.0[bank(&locks) + 1]);

    let are_shares =
        |offered: &Rows| offered.numbers("of its peak").iter().all(|share| (0.0..=100.0).contains(share));
    let offered = figure("dora-6", &are_shares);
    assert_eq!(offered.0.len(), 1 + 3 * 4 * 2);
    for (utilization, offered) in
        offered.numbers("utilization %").iter().zip(offered.numbers("offered load %"))
    {
        assert!(*utilization <= offered, "{utilization} of {offered}");
    }
    assert!(are_shares(&offered), "{:?}", offered.0);

    let has_responses = above_zero("mean response time us");
    let response = figure("dora-7", &has_responses);
    assert!(has_responses(&response), "{:?}", response.0);
    let of_paper = "the paper's DORA against its Baseline";
    assert_eq!(
        response.of(of_paper).filter(|paper| !paper.is_empty()).collect::<Vec<_>>(),
        ["0.63 or 0.40"; 2]
    );

    let has_bases = |peak: &Rows| {
        let bases = peak.of("system").zip(peak.numbers("against central locks"));
        bases.filter(|(system, _)| *system == SYSTEMS[0]).all(|(_, ratio)| ratio == 1.0)
    };
    let peak = figure("dora-8", &has_bases);
    assert_eq!(peak.0.len(), 1 + 6 * 4);
    assert!(has_bases(&peak), "{:?}", peak.0);

    let has_accesses = above_zero("accesses");
    let accesses = figure("dora-10", &has_accesses);
    assert!(has_accesses(&accesses), "{:?}", accesses.0);
    assert!(accesses.numbers("records of 100").iter().all(|records| (1.0..=100.0).contains(records)));
    // Each picture has a dot for each access that is drawn.
    let dots = file(&out, "dora-10.svg").matches("<circle").count() as f64;
    let all: f64 = accesses.numbers("accesses").iter().sum();
    assert!(dots > 0.0 && dots <= all.min(6_000.0), "{dots} of {all}");

    // The share of all of them, weighted by their numbers, because points have few.
    let succeeded = |plans: &Rows| {
        let (succeeded, per_s) = (plans.numbers("succeeded %"), plans.numbers("transactions/s"));
        let weighed: f64 = succeeded.iter().zip(&per_s).map(|(percent, per_s)| percent * per_s).sum();
        weighed / per_s.iter().sum::<f64>()
    };
    let is_mean = |mean: f64| (45.0..80.0).contains(&mean);
    let plans = figure("dora-11", &|plans| is_mean(succeeded(plans)));
    // By hand on four systems; where threads own the executors, also as they choose it.
    assert_eq!(plans.0.len(), 1 + (4 * 2 + 1) * 2);
    let found = plans.of("plan").zip(plans.of("phase run")).filter(|(plan, _)| *plan == "adaptive");
    assert!(found.filter(|(_, run)| ["parallel", "serial"].contains(run)).count() == 2);
    for named in ["Baseline", "DORA-P", "DORA-S"] {
        assert_eq!(plans.of("the paper's").filter(|name| *name == named).count(), 2, "{named}");
    }
    assert!(is_mean(succeeded(&plans)), "{}: {:?}", succeeded(&plans), plans.0);

    let none = figures(&["dora-5", "--out", out.name(), "--seconds", "0"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("--seconds above zero"), "{}", stderr(&none));
    assert!(!data.path().exists(), "all is in memory");
}

#[test]
fn phases_and_points_on_the_disk_leave_nothing_behind() {
    let _alone = real_run();
    let (out, data) = (Directory::new("figures-disk-out"), Directory::new("figures-disk-data"));
    let measure = |seconds: &str| {
        let mut arguments = vec!["koda-3", "koda-8", "--out", out.name(), "--data", data.name()];
        arguments.extend(["--seconds", seconds, "--commits", "100"]);
        let output = succeeds(figures(&arguments));
        assert!(!stderr(&output).contains("left over"), "{}", stderr(&output));
        (phases(&out), on_disk(&out))
    };
    let (has_phases, has_run) = (
        |phases: &[f64; 5]| phases[..4].iter().all(|us| *us > 0.0),
        |cells: &[String]| cells[4].parse::<f64>().is_ok_and(|percent| percent > 0.0),
    );
    let (phases, on_disk) =
        measured(0.1, measure, |(phases, on_disk)| has_phases(phases) && has_run(on_disk));
    assert_eq!(std::fs::read_dir(data.path()).expect("it was made").count(), 0);
    let one = file(&out, "koda-3.md");
    assert!(one.contains("36%") && one.contains("log_wait"), "{one}");
    assert!(has_phases(&phases), "{phases:?}");
    let [start, manipulation, logging, commit, share] = phases;
    let expected = commit * 100.0 / (start + manipulation + logging + commit);
    assert!((share - expected).abs() < 1.0, "{share} of {expected}: {phases:?}");
    // A real log does not report its largest group.
    assert!(has_run(&on_disk) && on_disk[2].is_empty(), "{on_disk:?}");
}

/// The parts of a transaction's time in the first row of koda-3, in microseconds, and the commit's share in percent.
fn phases(out: &Directory) -> [f64; 5] {
    let csv = file(out, "koda-3.csv");
    let row = csv.lines().nth(1).expect("a row").split(',');
    let shares: Vec<f64> = row.filter_map(|cell| cell.trim_end_matches('%').parse().ok()).collect();
    shares.try_into().unwrap_or_else(|_| panic!("{csv}"))
}

/// The cells of a point of koda-8 on the disk, the last one first: wakes, response_us, group_max, group, cpu_percent,
/// tps.
fn on_disk(out: &Directory) -> Vec<String> {
    let csv = file(out, "koda-8.csv");
    let point = csv.lines().find(|line| line.starts_with("disk,willing-to-wait,"));
    point.expect("points on the disk").rsplit(',').map(str::to_owned).collect()
}

#[test]
fn unknown_ids_and_places_are_refused() {
    let out = Directory::new("figures-refused");
    let unknown = figures(&["koda-9", "--out", out.name()]);
    assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
    for known in ["koda-9", "koda-1:", "koda-t2:", "koda-adaptive:"] {
        assert!(stderr(&unknown).contains(known), "{}", stderr(&unknown));
    }
    assert!(!out.path().exists(), "nothing is made for it");
    assert_eq!(figures(&["koda-1"]).status.code(), Some(2), "--out is needed");
    std::fs::write(out.path(), "a file").expect("it can be written");
    let place = figures(&["koda-t1", "--out", out.name()]);
    let _ = std::fs::remove_file(out.path());
    assert_eq!(place.status.code(), Some(3), "{}", stderr(&place));
    assert!(stderr(&place).contains("--out"), "{}", stderr(&place));
}

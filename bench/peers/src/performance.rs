//! The figures of `docs/performance.md`, out of the files that `performance.sh` left (`peers performance`).
//!
//! A part whose file is not there is left out, so a few parts can be looked at before the others are done.

use std::fs;
use std::path::{Path, PathBuf};

use rialto_measure::json::number;
use rialto_measure::text::{thousands, time};
use serde_json::Value as Json;

/// What stands before and behind the figures in the page.
const MARK: &str = "<!-- figures -->";

/// The directory of `performance.sh`.
pub struct Parts(PathBuf);

fn list<'a>(json: &'a Json, name: &str) -> &'a [Json] {
    match json.get(name) {
        Some(Json::Array(list)) => list,
        _ => &[],
    }
}

fn named<'a>(list: &'a [Json], member: &str, name: &str) -> Option<&'a Json> {
    list.iter().find(|json| json.get(member) == Some(&Json::String(name.to_owned())))
}

/// A row of a table.
fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    format!("| {} |\n", cells.join(" | "))
}

fn or_empty(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or(String::new(), show)
}

/// A table of these columns and rows; nothing if there are no rows.
fn table(columns: &[&str], rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head = line(columns.iter().map(|column| (*column).to_owned()));
    format!("{head}{}\n{rows}\n", "|---".repeat(columns.len()) + "|")
}

impl Parts {
    /// Those in a directory.
    pub fn new(directory: &Path) -> Parts {
        Parts(directory.to_owned())
    }

    fn text(&self, part: &str) -> Option<String> {
        fs::read_to_string(self.0.join(format!("{part}.txt"))).ok()
    }

    /// A part's last line.
    fn json(&self, part: &str) -> Option<Json> {
        serde_json::from_str(self.text(part)?.lines().last()?).ok()
    }

    /// All figures, as they stand between the marks.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        if let Some(machine) = self.text("machine") {
            let machine: Vec<&str> = machine.lines().map(str::trim).collect();
            text += &format!("Measured on {}.\n\n", machine.join("; "));
        }
        for part in [self.peers(), self.curve(), self.own(), self.sweeps(), self.recovery()] {
            text += &part;
        }
        for (part, title) in [
            ("pgbench", "Through the socket, beside PostgreSQL (transactions/s)"),
            ("instructions", "What one transaction of each kind takes, all threads together, at level 1"),
            ("session", "What one pgbench transaction takes of the server, without its sockets"),
            ("calls", "What one statement of it takes of the system"),
        ] {
            if let Some(printed) = self.text(part) {
                text += &format!("**{title}.**\n\n```text\n{}\n```\n\n", printed.trim_end());
            }
        }
        text.trim_end().to_owned() + "\n"
    }

    /// The table against the peers.
    fn peers(&self) -> String {
        let (peers, many, recovery) = (self.json("peers"), self.json("peers-many"), self.json("recovery"));
        let Some(engines) = peers.as_ref().and_then(|json| {
            let names = list(list(json, "sections").first()?, "engines").iter();
            Some(names.filter_map(|engine| match engine.get("engine") {
                Some(Json::String(name)) => Some(name.clone()),
                _ => None,
            }))
        }) else {
            return String::new();
        };
        let engines: Vec<String> = engines.collect();
        let mut rows = String::new();
        let mut throughput = |json: &Json, guarantee: &str, clients: f64, name: String| {
            let Some(section) = named(list(json, "sections"), "guarantee", guarantee) else { return };
            let is_of = |run: &&Json| number(run, "clients") == Some(clients);
            let per_s = |engine: &String| {
                let run =
                    list(named(list(section, "engines"), "engine", engine)?, "runs").iter().find(is_of)?;
                number(run, "per_s.median")
            };
            let ratio = list(section, "ratios").iter().find(is_of).map_or(String::new(), |ratio| {
                let figure = |name: &str| {
                    or_empty(number(ratio, &format!("ratio.{name}")), |ratio| format!("{ratio:.2}"))
                };
                format!("{} ({} to {})", figure("median"), figure("least"), figure("most"))
            });
            if engines.iter().filter_map(per_s).count() == 0 {
                return;
            }
            let figures = engines.iter().map(|engine| or_empty(per_s(engine), thousands));
            rows += &line([name].into_iter().chain(figures).chain([ratio]));
        };
        let of =
            |clients: f64| if clients == 1.0 { "1 client".to_owned() } else { format!("{clients} clients") };
        for clients in [1.0, 8.0, 32.0] {
            if let Some(json) = &peers {
                throughput(json, "durable", clients, format!("durable, {}", of(clients)));
            }
        }
        if let Some(json) = &many {
            let branches = or_empty(number(json, "branches"), thousands);
            throughput(json, "durable", 32.0, format!("durable, 32 clients, {branches} branches"));
        }
        for clients in [1.0, 8.0, 32.0] {
            if let Some(json) = &peers {
                throughput(json, "not-durable", clients, format!("survives SIGKILL only, {}", of(clients)));
            }
        }
        if let Some(json) = &recovery {
            let mut other = |name: String, path: &str, show: &dyn Fn(f64) -> String| {
                let of = |engine: &String| number(named(list(json, "engines"), "engine", engine)?, path);
                let figures = engines.iter().map(|engine| or_empty(of(engine), show));
                rows += &line([name].into_iter().chain(figures).chain([String::new()]));
            };
            let million = |name: &str| or_empty(number(json, name), thousands);
            let opened = format!(
                "open after SIGKILL, {} accounts and {} transactions, s",
                million("accounts"),
                million("transactions")
            );
            other("resident bytes of a 100-byte row".to_owned(), "resident_bytes_per_row", &|bytes| {
                format!("{bytes:.0}")
            });
            other(opened, "open_ms.median", &|ms| format!("{:.2}", ms / 1e3));
            other("empty directory to first commit, ms".to_owned(), "empty_to_commit_ms.median", &|ms| {
                format!("{ms:.0}")
            });
        }
        let columns: Vec<&str> = ["TPC-B, transactions/s"]
            .into_iter()
            .chain(engines.iter().map(String::as_str))
            .chain(["rialto : best peer"])
            .collect();
        format!(
            "**Beside its peers**, each at its best setting for the guarantee; medians.\n\n{}",
            table(&columns, &rows)
        )
    }

    /// The picture, and what ten minutes look like.
    fn curve(&self) -> String {
        let mut text = String::new();
        if self.text("curve").is_some() {
            text += "**Latency against offered load**, durable, from the intended start, up to saturation.\n\n\
                     ![Latency against offered load](latency.svg)\n\n";
        }
        if let Some(json) = self.json("ten-minutes") {
            let at = |name: &str| or_empty(number(&json, &format!("latency_us.{name}")), time);
            let count = |name: &str| or_empty(number(&json, name), thousands);
            text += &format!(
                "**{} seconds of open load at half the peak** of 32 clients, {} transactions/s offered: p50 {}, p99 {}, p99.9 \
                 {}, max {}; {} checkpoints ran in them.\n\n",
                count("seconds"),
                count("offered_per_s"),
                at("p50"),
                at("p99"),
                at("p999"),
                at("max"),
                count("checkpoints")
            );
        }
        text
    }

    /// Rialto alone, beside bare code.
    fn own(&self) -> String {
        let mut rows = String::new();
        for (part, options) in [
            ("clients-1", "`--clients 1`"),
            ("clients-8", "`--clients 8`"),
            ("clients-32", "`--clients 32`"),
            ("clients-32-many", "`--clients 32 --scale 1000`"),
            ("tickets", "`--clients 2 --in-flight 512`"),
            ("tickets-many", "`--clients 2 --in-flight 512 --scale 1000`"),
            ("level-1", "`--clients 1 --durability memory`"),
        ] {
            let Some(json) = self.json(part) else { continue };
            let figure = |path: &str| number(&json, path);
            let at = |name: &str| or_empty(figure(&format!("latency_us.{name}")), time);
            let share = |path: &str| figure(&format!("limits.{path}"));
            let beside = match (share("share_of_group_commit"), share("share_of_map")) {
                (Some(share), _) => format!("{share:.2} of the group commit"),
                (_, Some(share)) => format!("{share:.2} of the map"),
                _ => match (share("p50_over_write"), share("p99_over_write")) {
                    (Some(p50), Some(p99)) => format!("p50 {p50:.2} and p99 {p99:.2} of the write's"),
                    _ => String::new(),
                },
            };
            rows += &line([
                options.to_owned(),
                or_empty(figure("committed_per_s"), thousands),
                at("p50"),
                at("p99"),
                at("p999"),
                or_empty(figure("group_size_mean"), |size| format!("{size:.1}")),
                or_empty(figure("log_bytes_per_txn"), thousands),
                beside,
            ]);
        }
        let columns = [
            "`rialto bench tpcb`",
            "transactions/s",
            "p50",
            "p99",
            "p99.9",
            "a group",
            "log bytes",
            "beside bare code",
        ];
        let table = table(&columns, &rows);
        if table.is_empty() {
            return table;
        }
        format!(
            "**Beside bare code** that `--limits` runs right after each window on the same disk: a write and its sync (one \
             client), a group commit with as many sleeping threads, a plain map whose log a second thread writes. A lone \
             client's group is a page.\n\n{table}"
        )
    }

    /// What checkpoints cost.
    fn sweeps(&self) -> String {
        let mut rows = String::new();
        for (part, what) in [
            ("sweeps-default", "one in 30 s, taking as long (the default)"),
            ("sweeps-always", "one after the other, 5 s each"),
        ] {
            let Some(json) = self.json(part) else { continue };
            let Some(Json::Object(ratios)) = json.get("ratio") else { continue };
            // Of the run without checkpoints over the one with them.
            let ratio = |name: &str, end: &str| number(ratios.get(name)?, end);
            let lost = |end: &str| {
                or_empty(ratio("committed_per_s", end), |ratio| {
                    format!("{:.1}%", (1.0 - 1.0 / ratio) * 100.0)
                })
            };
            let over =
                |end: &str| or_empty(ratio("latency_us.p99", end), |ratio| format!("{:.2}", 1.0 / ratio));
            rows += &line([
                what.to_owned(),
                format!("{} ({} to {})", lost("median"), lost("low"), lost("high")),
                format!("{} ({} to {})", over("median"), over("high"), over("low")),
                or_empty(number(&json, "other.sweep_cpu_ms_per_gb"), |ms| format!("{ms:.0}")),
            ]);
        }
        let columns = ["paced sweeps", "throughput lost", "p99, times that without", "core-ms a GB swept"];
        let table = table(&columns, &rows);
        if table.is_empty() {
            table
        } else {
            format!("**What checkpoints cost** 32 durable clients.\n\n{table}")
        }
    }

    /// A large recovery.
    fn recovery(&self) -> String {
        let Some(json) = self.json("recovery-large") else { return String::new() };
        let Some(own) = named(list(&json, "engines"), "engine", "rialto") else { return String::new() };
        let figure = |path: &str| number(own, path).unwrap_or(f64::NAN);
        let (load, index) = (figure("load_ms") / 1e3, figure("index_ms") / 1e3);
        format!(
            "**Recovery of {} accounts**, {} transactions after their checkpoint, files not in the page cache: load {load:.2} s \
             + index {index:.2} s = {:.2} s; redo {:.2} s, {} transactions/s, {:.2} times the forward execution at level 1 on \
             as many threads. {:.0} resident bytes of a 100-byte row.\n\n",
            or_empty(number(&json, "accounts"), thousands),
            or_empty(number(&json, "transactions"), thousands),
            load + index,
            figure("redo_ms") / 1e3,
            thousands(figure("redo_per_s")),
            figure("redo_per_s") / figure("forward_per_s"),
            figure("resident_bytes_per_row"),
        )
    }
}

/// A page with other figures between its marks.
///
/// # Errors
/// If it has no two marks.
pub fn replaced(page: &str, figures: &str) -> Result<String, String> {
    match page.split(MARK).collect::<Vec<_>>()[..] {
        [before, _, behind] => Ok(format!("{before}{MARK}\n{figures}{MARK}{behind}")),
        ref found => Err(format!("expected two marks \"{MARK}\", found {}", found.len() - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(name: &str, files: &[(&str, &str)]) -> String {
        let directory = std::env::temp_dir().join(format!("peers-performance-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for (part, text) in files {
            fs::write(directory.join(format!("{part}.txt")), text).unwrap();
        }
        let markdown = Parts::new(&directory).markdown();
        fs::remove_dir_all(&directory).unwrap();
        markdown
    }

    #[test]
    fn every_part_that_is_there_is_shown_and_no_other() {
        assert_eq!(parts("none", &[]), "\n");
        let engine = |name: &str, per_s: u32| {
            format!(r#"{{"engine": "{name}", "runs": [{{"clients": 8, "per_s": {{"median": {per_s}}}}}]}}"#)
        };
        let peers = format!(
            "a table\n{{\"sections\": [{{\"guarantee\": \"durable\", \"engines\": [{}, {}], \"ratios\": [{{\"clients\": 8, \
             \"ratio\": {{\"median\": 4, \"least\": 3, \"most\": 5}}}}]}}]}}\n",
            engine("rialto", 40_000),
            engine("redb", 10_000)
        );
        let recovery = r#"{"accounts": 1000, "transactions": 500, "engines": [{"engine": "rialto", "open_ms": {"median": 250},
            "resident_bytes_per_row": 170, "empty_to_commit_ms": {"median": 15}}]}"#
            .replace('\n', " ");
        let sweeps = r#"{"ratio": {"committed_per_s": {"median": 1.25, "low": 1.0, "high": 2.0},
            "latency_us.p99": {"median": 0.5, "low": 0.4, "high": 0.8}}, "other": {"sweep_cpu_ms_per_gb": 120}}"#
            .replace('\n', " ");
        let own = r#"{"committed_per_s": 8000, "latency_us": {"p50": 110, "p99": 200, "p999": 900}, "group_size_mean": 1,
            "log_bytes_per_txn": 4096, "limits": {"p50_over_write": 1.1, "p99_over_write": 1.2}}"#
            .replace('\n', " ");
        let text = parts(
            "some",
            &[
                ("machine", " a processor\n2 cores\n"),
                ("peers", &peers),
                ("recovery", &recovery),
                ("sweeps-always", &sweeps),
                ("clients-1", &own),
                ("calls", "  32 clients  2.5 a statement\n"),
            ],
        );
        for row in [
            "Measured on a processor; 2 cores.\n",
            "| TPC-B, transactions/s | rialto | redb | rialto : best peer |\n|---|---|---|---|\n",
            "| durable, 8 clients | 40,000 | 10,000 | 4.00 (3.00 to 5.00) |\n",
            "| resident bytes of a 100-byte row | 170 |  |  |\n",
            "| open after SIGKILL, 1,000 accounts and 500 transactions, s | 0.25 |  |  |\n",
            "| one after the other, 5 s each | 20.0% (0.0% to 50.0%) | 2.00 (1.25 to 2.50) | 120 |\n",
            "**What one statement of it takes of the system.**\n\n```text\n  32 clients  2.5 a statement\n```\n",
            "| `--clients 1` | 8,000 | 110 us | 200 us | 900 us | 1.0 | 4,096 | p50 1.10 and p99 1.20 of the write's |\n",
        ] {
            assert!(text.contains(row), "{row} is missing in\n{text}");
        }
        for absent in ["durable, 32", "SIGKILL only", "latency.svg", "Recovery of", "one in 30 s"] {
            assert!(!text.contains(absent), "{absent} is in\n{text}");
        }
    }

    #[test]
    fn figures_go_between_the_marks() {
        let page = format!("before\n{MARK}\nold\n{MARK}\nbehind\n");
        assert_eq!(replaced(&page, "new\n").unwrap(), format!("before\n{MARK}\nnew\n{MARK}\nbehind\n"));
        assert!(replaced("no mark", "new").unwrap_err().contains("found 0"));
    }
}

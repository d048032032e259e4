//! cluster-t3: response times of local and remote transactions (table 3), and where the time of the slow ones went.

use rialto_measure::chart::{Corner, Look, Panel, Picture, Series};
use rialto_measure::histogram::Latencies;
use rialto_measure::text::row;
use rialto_smallbase::outcome::Ran;
use rialto_smallbase::report::explained;

use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Setting, common, name_of, run, sizes};

/// Table 3: nodes; overall, local and remote means in milliseconds; transactions over 10 ms in percent.
const PAPER: [(u32, f64, f64, Option<f64>, f64); 4] = [
    (1, 0.56, 0.56, None, 0.0),
    (2, 0.90, 0.64, Some(2.37), 0.05),
    (4, 0.93, 0.63, Some(2.64), 0.09),
    (8, 0.98, 0.63, Some(3.02), 0.14),
];

/// Table 3.
///
/// # Errors
/// A run that fails.
pub fn times(lab: &Lab) -> Result<Figure, FigureError> {
    let paper = Setting { clients: 2, outliers: true, ..Setting::of_paper("as the paper") }.in_real_time();
    let whole = Setting { name: "whole transactions, level 2", ..paper }.with_standbys();
    let mut table = vec![row([
        "series",
        "nodes",
        "mean us",
        "local: mean us",
        "local: least us",
        "remote: mean us",
        "remote: least us",
        "longest us",
        "over 10 ms %",
        "paper: mean us",
        "paper: local us",
        "paper: remote us",
        "paper: over 10 ms %",
    ])];
    let (mut panels, mut causes, mut all) = (Vec::new(), String::new(), Vec::new());
    for setting in [paper, whole] {
        let (mut locals, mut remotes) = (Vec::new(), Vec::new());
        for nodes in sizes(lab, &setting, &[1, 2, 4, 8]) {
            let point = run(lab, &setting, nodes)?;
            let ran = point.median();
            let cell = |figure: Option<f64>| figure.map_or_else(String::new, |us| format!("{us:.1}"));
            let mean = |of: &Latencies| (of.count() > 0).then(|| of.mean_us());
            let name = name_of(&setting, std::slice::from_ref(&point));
            let mut cells = vec![name.clone(), nodes.to_string(), cell(mean(&ran.all()))];
            for of in [&ran.local, &ran.remote] {
                cells.extend([cell(mean(of)), cell(of.min_us())]);
            }
            // Of all runs: one that stands still for a while is not the one with the median throughput.
            let longest = |ran: &Ran| ran.all().percentiles().map(|all| all.max_us);
            cells.push(cell(point.runs.iter().filter_map(longest).reduce(f64::max)));
            let over: f64 = point.runs.iter().map(Ran::over_10_ms_pct).sum();
            cells.push(format!("{:.3}", over / point.runs.len() as f64));
            let of_paper = PAPER.iter().find(|(of, ..)| *of == nodes);
            for part in [of_paper.map(|of| of.1), of_paper.map(|of| of.2), of_paper.and_then(|of| of.3)] {
                cells.push(cell(part.map(|ms| ms * 1e3)));
            }
            cells.push(of_paper.map_or_else(String::new, |of| format!("{:.2}", of.4)));
            table.push(cells);
            locals.extend(mean(&ran.local).map(|us| (f64::from(nodes), us)));
            remotes.extend(mean(&ran.remote).map(|us| (f64::from(nodes), us)));
            for (ran, nth) in point.runs.iter().zip(1..) {
                causes += &format!("- {name}, {nodes} nodes, run {nth}: {}.\n", explained(ran));
            }
            all.push(point);
        }
        let series = vec![
            Series::new("local", Look::Measured, 0, locals),
            Series::new("remote", Look::Measured, 1, remotes),
        ];
        let title = format!("Response times: {}", setting.name);
        let panel = Panel::new(&title, "nodes", "mean response time, us", series);
        panels.push(Panel { legend: Corner::UpperLeft, ..panel });
    }
    let text = format!(
        "Table 3. Two clients a node, real-time priority. The two parts of a remote transaction run one after the other; in the paper they \
         overlapped. The paper: local transactions take 0.63 ms and remote ones up to 3.02 ms, the least \
         0.27 and 1 ms, the longest 300 to 500 ms, for which it had no explanation. Here each client tells where the time of a \
         transaction over 10 ms went: by the kernel's account of its thread, which was on a core, was ready to run, or waited. The longest, and the share over 10 ms, are of all runs. {}\n\n{}\n{causes}",
        common(lab, &[paper, whole], &all),
        markdown(&table)
    );
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

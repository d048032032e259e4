//! cluster-t1: throughput and efficiency of 1 to 8 nodes, with one client each (table 1 and figure 4); cluster-t2: with 1 to 5 clients
//! (table 2 and figure 5).

use rialto_measure::chart::{Corner, Look, Panel, Picture, Series};
use rialto_measure::spread::Spread;
use rialto_measure::text::row;
use rialto_smallbase::outcome::Ran;
use rialto_smallbase::report::base;

use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Setting, common, in_rounds, name_of, per_s, percent, sizes};

/// A series of the paper: its nodes, transactions a second, and efficiency in percent.
type Paper = &'static [(u32, f64, Option<f64>)];

/// Table 1.
const REGULAR: Paper =
    &[(1, 3272.0, None), (2, 2265.0, Some(100.0)), (4, 3328.0, Some(73.5)), (8, 5790.0, Some(63.9))];
const REAL_TIME: Paper =
    &[(1, 3163.0, None), (2, 3784.0, Some(100.0)), (4, 7275.0, Some(96.1)), (8, 14254.0, Some(94.2))];
const ETHERNET: Paper =
    &[(1, 3163.0, None), (2, 3596.0, Some(100.0)), (4, 6743.0, Some(93.8)), (8, 13361.0, Some(92.9))];
/// Table 2, of 2, 4 and 5 clients; that of one is the second series of table 1.
const TWO: Paper =
    &[(1, 3424.0, None), (2, 4339.0, Some(100.0)), (4, 8388.0, Some(96.7)), (8, 15828.0, Some(91.2))];
const FOUR: Paper =
    &[(1, 3470.0, None), (2, 4475.0, Some(100.0)), (4, 8310.0, Some(92.8)), (8, 15560.0, Some(86.9))];
const FIVE: Paper =
    &[(1, 3560.0, None), (2, 4481.0, Some(100.0)), (4, 8497.0, Some(94.8)), (8, 14346.0, Some(80.0))];

const NORMAL: Setting = Setting::of_paper("normal priority");
const HIGH: Setting = Setting::of_paper("real-time priority").in_real_time();

/// Table 1 and figure 4.
///
/// # Errors
/// A run that fails.
pub fn by_network(lab: &Lab) -> Result<Figure, FigureError> {
    let slow = Setting { name: "real-time priority, 10 Mbit/s", ..HIGH }.on_ethernet();
    let whole = Setting { name: "whole transactions, level 2", ..NORMAL }.with_standbys();
    let series = [(NORMAL, REGULAR), (HIGH, REAL_TIME), (slow, ETHERNET), (whole, &[])];
    let what = "Table 1 and figure 4. TPC-B with one client a node; in the first three series as the paper ran it, without a commit protocol, \
         but with locks and a log, which cannot be left out here, and the two parts of a remote transaction one after the other, where the \
         paper had them overlap. In the fourth series transactions over two nodes commit in both or in \
         none, each partition has a standby, and answers wait for it. The paper: efficiency 63.9%, 94.2% and 92.9% at 8 nodes.";
    figure(lab, &series, &[1, 2, 4, 6, 8], what)
}

/// Table 2 and figure 5.
///
/// # Errors
/// A run that fails.
pub fn by_clients(lab: &Lab) -> Result<Figure, FigureError> {
    let with = |name, clients| Setting { name, clients, ..HIGH };
    let series = [
        (with("1 client", 1), REAL_TIME),
        (with("2 clients", 2), TWO),
        (with("4 clients", 4), FOUR),
        (with("5 clients", 5), FIVE),
    ];
    let what = "Table 2 and figure 5. TPC-B as the paper ran it, with several clients a node and real-time priority. The paper: throughput \
         rises by 10% with a second client, and falls with more than two at 8 nodes.";
    figure(lab, &series, &[1, 2, 4, 8], what)
}

fn figure(lab: &Lab, series: &[(Setting, Paper)], nodes: &[u32], what: &str) -> Result<Figure, FigureError> {
    let mut table = vec![row([
        "series",
        "nodes",
        "transactions/s",
        "least",
        "most",
        "efficiency %",
        "its least",
        "its most",
        "processor us a transaction",
        "efficiency by processor time %",
        "its least",
        "its most",
        "messages a remote transaction",
        "over 10 ms %",
        "paper: transactions/s",
        "paper: efficiency %",
    ])];
    let (mut rates, mut efficiencies, mut by_processor, mut all) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let settings: Vec<Setting> = series.iter().map(|(setting, _)| *setting).collect();
    let of_sizes = settings.iter().map(|setting| (*setting, sizes(lab, setting, nodes)));
    let measured = in_rounds(lab, &of_sizes.collect::<Vec<_>>())?;
    for (colour, ((setting, paper), points)) in series.iter().zip(measured).enumerate() {
        let base = base(&points).expect("a point").clone();
        let name = name_of(setting, &points);
        let (mut by_rate, mut by_efficiency, mut by_cpus) = (Vec::new(), Vec::new(), Vec::new());
        for point in &points {
            let nodes = point.shape.nodes;
            let (rate, ran) = (per_s(point), point.median());
            let of_paper = paper.iter().find(|(of, ..)| *of == nodes);
            let cell = |figure: Option<f64>, places: usize| {
                figure.map_or_else(String::new, |figure| format!("{figure:.places$}"))
            };
            let efficiency = percent(point, &base, |of, ran| ran.per_s() / f64::from(of.shape.nodes));
            let by_cpu = percent(point, &base, |_, ran| 1.0 / ran.cpu_us_per_txn());
            let processor =
                Spread::of(point.runs.iter().map(Ran::cpu_us_per_txn)).expect("a point has a run");
            // One node has no remote transactions: it is no measure for the others.
            let compared = nodes > 1 || base.shape.nodes == 1;
            table.push(vec![
                name.clone(),
                nodes.to_string(),
                format!("{:.0}", rate.median),
                format!("{:.0}", rate.least),
                format!("{:.0}", rate.most),
                cell(compared.then_some(efficiency.median), 1),
                cell(compared.then_some(efficiency.least), 1),
                cell(compared.then_some(efficiency.most), 1),
                format!("{:.2}", processor.median),
                cell(compared.then_some(by_cpu.median), 1),
                cell(compared.then_some(by_cpu.least), 1),
                cell(compared.then_some(by_cpu.most), 1),
                cell((nodes > 1).then(|| ran.messages_per_remote()), 2),
                format!("{:.3}", ran.over_10_ms_pct()),
                cell(of_paper.map(|(_, rate, _)| *rate), 0),
                cell(of_paper.and_then(|(.., efficiency)| *efficiency), 1),
            ]);
            by_rate.push((f64::from(nodes), rate.median));
            if compared {
                by_efficiency.push((f64::from(nodes), efficiency.median));
                by_cpus.push((f64::from(nodes), by_cpu.median));
            }
        }
        rates.push(Series::new(name.clone(), Look::Measured, colour, by_rate));
        efficiencies.push(Series::new(name.clone(), Look::Measured, colour, by_efficiency));
        by_processor.push(Series::new(name, Look::Measured, colour, by_cpus));
        let of_paper =
            paper.iter().filter_map(|(nodes, _, efficiency)| Some((f64::from(*nodes), (*efficiency)?)));
        let of_paper: Vec<_> = of_paper.collect();
        if !of_paper.is_empty() {
            let name = format!("{}, paper", setting.name);
            efficiencies.push(Series::new(name, Look::Paper, colour, of_paper));
        }
        all.extend(points);
    }
    let panel =
        |title, y, series| Panel { legend: Corner::UpperLeft, ..Panel::new(title, "nodes", y, series) };
    let panels = vec![
        panel("Throughput against nodes", "transactions/s", rates),
        panel("Efficiency by throughput, as the paper's", "percent of two nodes", efficiencies),
        panel("Efficiency by processor time", "percent of two nodes", by_processor),
    ];
    let text = format!(
        "{what} Each round has one run of each cluster; an efficiency is the median of the rounds' ratios, with the least and the most; processor time is a median, too. {}\n\n{}",
        common(lab, &settings, &all),
        markdown(&table)
    );
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

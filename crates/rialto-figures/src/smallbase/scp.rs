//! cluster-scp: the requests of a service control point, which the paper's section 2 describes and did not run.

use rialto_measure::chart::{Corner, Look, Panel, Picture, Series};
use rialto_measure::text::row;
use rialto_smallbase::outcome::Point;
use rialto_smallbase::report::base;
use rialto_smallbase::spec::{Protocol, WorkloadName};

use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Setting, common, per_s, run, sizes};

/// The requests, on 1 to 8 nodes.
///
/// # Errors
/// A run that fails.
pub fn requests(lab: &Lab) -> Result<Figure, FigureError> {
    let level_1 = Setting {
        workload: WorkloadName::Scp,
        protocol: Protocol::Atomic,
        clients: 2,
        ..Setting::of_paper("level 1")
    };
    let level_2 = Setting { name: "level 2", ..level_1 }.with_standbys();
    let mut table = vec![row([
        "series",
        "nodes",
        "requests/s",
        "efficiency %",
        "processor us a request",
        "efficiency by processor time %",
        "mean us",
        "p99 us",
        "over 10 ms %",
    ])];
    let (mut series, mut all) = (Vec::new(), Vec::new());
    for (colour, setting) in [level_1, level_2].iter().enumerate() {
        let measured = |nodes: u32| run(lab, setting, nodes);
        let points: Vec<Point> =
            sizes(lab, setting, &[1, 2, 4, 8]).into_iter().map(measured).collect::<Result<_, _>>()?;
        let base = base(&points).expect("a point").clone();
        let mut by_rate = Vec::new();
        for point in &points {
            let (rate, ran) = (per_s(point).median, point.median());
            let p99 = ran.all().percentiles().map_or(0.0, |all| all.p99_us);
            let mut cells =
                vec![setting.name.to_owned(), point.shape.nodes.to_string(), format!("{rate:.0}")];
            // One node has no remote requests: it is no measure for the others.
            let compared = point.shape.nodes > 1 || base.shape.nodes == 1;
            let figures = [
                Some(point.efficiency_pct(&base)).filter(|_| compared),
                Some(ran.cpu_us_per_txn()),
                Some(point.cpu_efficiency_pct(&base)).filter(|_| compared),
                Some(ran.all().mean_us()),
                Some(p99),
            ];
            cells.extend(figures.map(|of| of.map_or_else(String::new, |of| format!("{of:.1}"))));
            cells.push(format!("{:.3}", ran.over_10_ms_pct()));
            table.push(cells);
            by_rate.push((f64::from(point.shape.nodes), rate));
        }
        series.push(Series::new(setting.name, Look::Measured, colour, by_rate));
        all.extend(points);
    }
    let panel = Panel::new("Requests of a service control point", "nodes", "requests/s", series);
    let panels = vec![Panel { legend: Corner::UpperLeft, ..panel }];
    let text = format!(
        "Section 2. Of 100 requests 85 look up a number, 13 validate a credit card call and count it, and 2 install a service, which changes rows at \
         two nodes; 15% of the others are for another node. Two clients a node, normal priority. At level 1, too, what \
         changes rows at two nodes is at level 2 at least, and partitions have a standby where there are several nodes. The paper asks of a service control point \
         for 2,000 transactions a second and response times of a single figure of milliseconds. {}\n\n{}",
        common(lab, &[level_1, level_2], &all),
        markdown(&table)
    );
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

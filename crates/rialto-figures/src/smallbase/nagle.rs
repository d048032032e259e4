//! cluster-nagle: what Nagle's algorithm costs (the paper's section 5.3).

use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::row;
use rialto_smallbase::spec::Network;

use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Setting, common, per_s, run, sizes};

/// The paper at 8 nodes: transactions a second, mean response times of all and of remote transactions in milliseconds.
const PAPER: [(bool, f64, &str, &str); 2] =
    [(true, 600.0, "over 13", "over 85"), (false, 5790.0, "0.53", "about 1.6")];

/// With Nagle's algorithm, and without.
///
/// # Errors
/// A run that fails.
pub fn with_and_without(lab: &Lab) -> Result<Figure, FigureError> {
    let mut table = vec![row([
        "Nagle's algorithm",
        "nodes",
        "clients a node",
        "transactions/s",
        "mean us",
        "remote: mean us",
        "remote: p99 us",
        "over 10 ms %",
        "paper: transactions/s",
        "paper: mean ms",
        "paper: remote ms",
    ])];
    let (mut bars, mut all) = (Vec::new(), Vec::new());
    for nodes in sizes(lab, &Setting::of_paper("sizes"), &[2, 8]) {
        for clients in [1, 4] {
            for (nagle, rate, mean, remote) in PAPER {
                let name = if nagle { "on" } else { "off" };
                let of_paper = Setting::of_paper(name);
                let network = Network { nagle, ..of_paper.network };
                let point = run(lab, &Setting { network, clients, ..of_paper }, nodes)?;
                let ran = point.median();
                let (is_papers, measured) = (nodes == 8 && clients == 1, per_s(&point).median);
                let p99 = ran.remote.percentiles().map_or(0.0, |all| all.p99_us);
                let mut cells = vec![name.to_owned(), nodes.to_string(), clients.to_string()];
                cells.extend(
                    [measured, ran.all().mean_us(), ran.remote.mean_us(), p99]
                        .map(|figure| format!("{figure:.0}")),
                );
                cells.push(format!("{:.3}", ran.over_10_ms_pct()));
                let of_paper = [format!("{rate:.0}"), mean.to_owned(), remote.to_owned()];
                cells.extend(if is_papers { of_paper } else { [(); 3].map(|()| String::new()) });
                table.push(cells);
                bars.push(Bar {
                    label: format!("{name}, {nodes} nodes, {clients} clients"),
                    parts: vec![measured],
                    note: format!("{measured:.0}"),
                    is_paper: false,
                });
                all.push(point);
            }
        }
    }
    for (nagle, rate, ..) in PAPER {
        let label = format!("{}, the paper's 8 nodes", if nagle { "on" } else { "off" });
        bars.push(Bar { label, parts: vec![rate], note: format!("{rate:.0}"), is_paper: true });
    }
    let text = format!(
        "Section 5.3. As the paper ran it, with normal priority. The paper: 600 transactions a second on 8 nodes until TCP_NODELAY was set, and 5,790 \
         then. With Nagle's algorithm a small message waits until the one before it is acknowledged, and on a connection of one direction \
         the acknowledgement may wait, too. {}\n\n{}",
        common(lab, &[Setting::of_paper("both")], &all),
        markdown(&table)
    );
    let title = "Transactions a second with Nagle's algorithm and without".to_owned();
    Ok(Figure { rows: table, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

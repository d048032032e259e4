//! dora-5: locks acquired by 100 transactions, by kind.

use rialto::isolate::LockCounters;
use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::row;
use rialto_workloads::tpcc;

use super::super::{Figure, FigureError, Lab, markdown};
use super::by_load::short;
use super::curve::{Curve, measure_all};
use super::run::{Clients, cores};
use super::workload::{Kind, Sizes};
use super::{System, setting};

const KINDS: [&str; 3] = ["row-level", "higher level", "local"];

/// Figure 5, and what section 4.2.1 says of payments.
///
/// # Errors
/// A run that fails.
pub fn by_kind(lab: &Lab) -> Result<Figure, FigureError> {
    let window = lab.on_the_clock()?;
    let kinds = [Kind::Tm1, Kind::TpcB, Kind::TpcC(tpcc::Name::OrderStatus), Kind::TpcC(tpcc::Name::Payment)];
    let curves = measure_all(lab, &kinds, &[Clients::blocking(cores())], window)?;
    let mut header = row(["workload", "system"]);
    header.extend(KINDS.map(|kind| format!("{kind} locks in 100")));
    header.extend(row(["row-level to higher level", "the paper's text"]));
    let (mut table, mut bars) = (vec![header], Vec::new());
    for kind in kinds {
        for Curve { system, points, .. } in curves.iter().filter(|curve| curve.kind == kind) {
            let median = |count: fn(&LockCounters) -> u64| {
                points[0].median(|sample| sample.per_100(count(&sample.locks)))
            };
            let locks =
                [median(|locks| locks.row), median(|locks| locks.higher), median(|locks| locks.local)];
            let mut cells = vec![kind.name(), system.name().to_owned()];
            cells.extend(locks.map(|count| format!("{count:.0}")));
            let ratio = locks[0] / locks[1];
            cells.push(if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() });
            cells.push(paper(kind, *system).to_owned());
            table.push(cells);
            bars.push(Bar {
                label: format!("{}, {}", kind.name(), short(*system)),
                parts: locks.to_vec(),
                note: locks.map(|count| format!("{count:.0}")).join(" + "),
                is_paper: false,
            });
        }
    }
    let text = format!(
        "Figure 5: locks acquired by 100 transactions (those that fail by their rules are among the 100), {} clients. The paper: \
         the Baseline takes as many higher-level as row-level locks on TM1, half as many on TPC-B, fewer still on \
         order-status; DORA takes hardly any central lock: those of the record identifiers of inserts and deletes, and for space. \
         Here neither is needed: a transaction's writes are its own until it commits, so no rolled back delete needs its place \
         back. Of a payment's 19 locks the paper's DORA keeps one. Intentions on tables count as higher-level locks when a \
         transaction takes them, also where they cost it one exchange. {} {}\n\n{}",
        cores(),
        System::LEGEND,
        setting(lab, &Sizes::of(lab).describe(&kinds), window.as_secs_f64()),
        markdown(&table)
    );
    let title = "Locks acquired by 100 transactions".to_owned();
    Ok(Figure {
        rows: table,
        picture: Picture::Bars { title, parts: KINDS.map(str::to_owned).to_vec(), bars },
        text,
    })
}

/// What the paper says of it in words: its figure's lengths are not in its text.
fn paper(kind: Kind, system: System) -> &'static str {
    match (kind, system) {
        (Kind::Tm1, System::Central) => "1 : 1",
        (Kind::TpcB, System::Central) => "2 : 1",
        (Kind::TpcC(tpcc::Name::OrderStatus), System::Central) => "more than 2 : 1",
        (Kind::TpcC(tpcc::Name::Payment), System::Central) => "19 locks each",
        (Kind::TpcC(tpcc::Name::Payment), System::DataOriented | System::Bound) => "1 central lock each",
        (_, System::DataOriented | System::Bound) => "hardly any central lock",
        _ => "",
    }
}

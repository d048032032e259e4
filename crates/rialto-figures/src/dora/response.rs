//! dora-7: response times of a single client.

use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::row;
use rialto_workloads::tatp;
use rialto_workloads::tpcc;

use super::super::rounds::{ratio, ratios};
use super::super::{Figure, FigureError, Lab, markdown};
use super::by_load::short;
use super::curve::measure_all;
use super::run::{Clients, Sample, cores};
use super::workload::{Kind, Sizes};
use super::{System, setting};

/// "TPC-C NewOrder transactions are executed 60% faster under DORA": the time is 1/1.6 of the Baseline's (section 5.3), or
/// 60% less (section 1.2).
const PAPER_NEW_ORDER: [f64; 2] = [0.63, 0.40];

/// Figure 7.
///
/// # Errors
/// A run that fails.
pub fn single(lab: &Lab) -> Result<Figure, FigureError> {
    use tpcc::Name::{NewOrder, OrderStatus, Payment};
    let window = lab.on_the_clock()?;
    let update = Kind::Tm1Only(tatp::Name::UpdateSubscriberData);
    let kinds = [update, Kind::TpcB, Kind::TpcC(OrderStatus), Kind::TpcC(Payment), Kind::TpcC(NewOrder)];
    let curves = measure_all(lab, &kinds, &[Clients::blocking(1)], window)?;
    let mut table = vec![row([
        "transaction",
        "system",
        "mean response time us",
        "median us",
        "against central locks",
        "low",
        "high",
        "median against central locks",
        "median's low",
        "median's high",
        "utilization %",
        "the paper's DORA against its Baseline",
    ])];
    let mut bars = Vec::new();
    for kind in kinds {
        let of_kind = || curves.iter().filter(|curve| curve.kind == kind);
        let central = of_kind().find(|curve| curve.system == System::Central);
        let base = &central.expect("central locks are one of the systems").points[0];
        let is_new_order = kind == Kind::TpcC(NewOrder);
        for curve in of_kind() {
            let point = &curve.points[0];
            let mean = point.median(|sample| sample.response_us);
            let against = point.against(base, |sample| sample.response_us);
            let paper = match (is_new_order, curve.system) {
                (true, System::DataOriented | System::Bound) => {
                    PAPER_NEW_ORDER.map(|ratio| format!("{ratio:.2}")).join(" or ")
                }
                _ => String::new(),
            };
            let p50 = |sample: &Sample| sample.response_p50_us;
            let mut cells = vec![kind.name(), curve.system.name().to_owned()];
            cells.extend([mean, point.median(p50)].map(|time| format!("{time:.2}")));
            cells.extend(ratios(against));
            cells.extend(ratios(point.against(base, p50)));
            cells.extend([format!("{:.0}", point.median(Sample::utilization)), paper]);
            table.push(cells);
            bars.push(Bar {
                label: format!("{}, {}", kind.name(), short(curve.system)),
                parts: vec![against.median],
                note: format!("{}; {mean:.1} us", ratio(against)),
                is_paper: false,
            });
        }
        if is_new_order {
            bars.push(Bar {
                label: format!("{}, the paper's DORA", kind.name()),
                parts: vec![PAPER_NEW_ORDER[0]],
                note: format!("{}; by its section 1.2 {}", PAPER_NEW_ORDER[0], PAPER_NEW_ORDER[1]),
                is_paper: true,
            });
        }
    }
    let text = format!(
        "Figure 7: mean response times of one client that submits transactions whose actions may run at the same time, with \
         the log in memory. The paper: DORA runs TPC-C's NewOrder \"60% faster\", which is 0.63 of the Baseline's time, or 0.40 if \
         its section 1.2 (\"up to 60% lower response times\") says the same of it. Here there are {} processors, on which at most \
         as many actions run at a time; the median is beside the mean, which has the moments in which other work had the processors. \
         Of TM1 those are counted that succeed. {} {}\n\n{}",
        cores(),
        System::LEGEND,
        setting(lab, &Sizes::of(lab).describe(&kinds), window.as_secs_f64()),
        markdown(&table)
    );
    let title =
        "Response time of a single client, of the conventional engine's with central locks".to_owned();
    Ok(Figure { rows: table, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

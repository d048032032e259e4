//! dora-7: response times of a single client.

use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::{row, say};
use rialto_workloads::tatp;
use rialto_workloads::tpcc;

use super::super::{Figure, FigureError, Lab, markdown};
use super::by_load::short;
use super::run::{Clients, Sample, cores, measure};
use super::workload::{Kind, Sizes, on_each};
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
    let mut found: Vec<(Kind, System, Sample)> = Vec::new();
    for system in System::AND_BOUND {
        on_each(system, &kinds, &Sizes::of(lab), |loaded, kind| {
            let sample = measure(lab, loaded, Clients::blocking(1), window)?;
            say(&format!("  {}, {}: {:.2} us", kind.name(), system.name(), sample.response_us));
            found.push((kind, system, sample));
            Ok(())
        })?;
    }
    let mut table = vec![row([
        "transaction",
        "system",
        "mean response time us",
        "median us",
        "against central locks",
        "median against central locks",
        "utilization %",
        "the paper's DORA against its Baseline",
    ])];
    let mut bars = Vec::new();
    for kind in kinds {
        let of_kind = || found.iter().filter(|(of, ..)| *of == kind);
        let central = of_kind().find(|(_, system, _)| *system == System::Central);
        let base = central.map_or(f64::NAN, |(.., sample)| sample.response_us);
        let base_p50 = central.map_or(f64::NAN, |(.., sample)| sample.response_p50_us);
        let is_new_order = kind == Kind::TpcC(NewOrder);
        for (_, system, sample) in of_kind() {
            let ratio = sample.response_us / base;
            let paper = match (is_new_order, system) {
                (true, System::DataOriented | System::Bound) => {
                    PAPER_NEW_ORDER.map(|ratio| format!("{ratio:.2}")).join(" or ")
                }
                _ => String::new(),
            };
            table.push(vec![
                kind.name(),
                system.name().to_owned(),
                format!("{:.2}", sample.response_us),
                format!("{:.2}", sample.response_p50_us),
                format!("{ratio:.2}"),
                format!("{:.2}", sample.response_p50_us / base_p50),
                format!("{:.0}", sample.utilization()),
                paper,
            ]);
            bars.push(Bar {
                label: format!("{}, {}", kind.name(), short(*system)),
                parts: vec![ratio],
                note: format!("{ratio:.2}; {:.1} us", sample.response_us),
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
        setting(&Sizes::of(lab).describe(&kinds), window.as_secs_f64()),
        markdown(&table)
    );
    let title =
        "Response time of a single client, of the conventional engine's with central locks".to_owned();
    Ok(Figure { rows: table, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

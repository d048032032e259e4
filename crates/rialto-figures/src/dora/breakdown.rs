//! dora-2, dora-3: where the processors' time goes.

use rialto_measure::chart::{Bar, Picture};
use rialto_measure::profile::Symbols;
use rialto_measure::text::row;
use rialto_workloads::tpcc;

use super::super::rounds::whole;
use super::super::{Figure, FigureError, Lab, markdown};
use super::by_load::{PROFILE, areas, short};
use super::curve::{Curve, PROFILED_WINDOWS, curves, measure_all, per_s, profile};
use super::parts::{Inside, Part, Split};
use super::run::{Clients, Sample, cores};
use super::workload::{Kind, Sizes};
use super::{System, setting};

/// Clients for each processor, so that all are in use.
const CLIENTS_PER_CORE: u32 = 2;

/// Figure 2: TM1 and order-status with all processors in use.
///
/// # Errors
/// A run that fails.
pub fn at_full_load(lab: &Lab) -> Result<Figure, FigureError> {
    let window = lab.on_the_clock()? * PROFILED_WINDOWS;
    let kinds = [Kind::Tm1, Kind::TpcC(tpcc::Name::OrderStatus)];
    let clients = Clients::blocking(CLIENTS_PER_CORE * cores()).profiled();
    let mut symbols = Symbols::default();
    let mut header =
        row(["workload", "system", "clients", "utilization %", "transactions/s", "least", "most"]);
    header.extend(Part::NAMES.map(|name| format!("{name} %")));
    header.extend(row(["lock wait us", "samples"]));
    let curves = measure_all(lab, &kinds, &[clients], window)?;
    let (mut table, mut bars) = (vec![header], Vec::new());
    for kind in kinds {
        for Curve { system, points, .. } in curves.iter().filter(|curve| curve.kind == kind) {
            let point = &points[0];
            let split = Split::of(&profile(point), &mut symbols);
            let mut cells = vec![kind.name(), system.name().to_owned(), point.first().clients.to_string()];
            cells.push(format!("{:.0}", point.median(Sample::utilization)));
            cells.extend(whole(point.spread(Sample::per_s)));
            cells.extend(split.shares().map(|share| format!("{share:.1}")));
            cells.push(format!("{:.2}", point.median(Sample::lock_wait_us)));
            cells.push(split.samples().to_string());
            table.push(cells);
            bars.push(Bar {
                label: format!("{}, {}", kind.name(), short(*system)),
                parts: split.shares().to_vec(),
                note: format!("{:.0}/s", per_s(point)),
                is_paper: false,
            });
        }
    }
    let seconds = window.as_secs_f64();
    let text = format!(
        "Figure 2: time breakdowns at full CPU utilization. The paper (64 contexts): on TM1 DORA has no contention in the lock \
         manager, most of the Baseline's time; on order-status, where the Baseline has little of it, DORA puts its much lighter \
         local locks in the central lock manager's place. Its figure's lengths are not in its text; of the Baseline on TM1's \
         GetSubscriberData it says more than 85% contention. *Lock wait us* is the wall time of a transaction's waits for locks, \
         which uses no processor. {} {PROFILE} {}\n\n{}",
        System::LEGEND,
        setting(lab, &Sizes::of(lab).describe(&kinds), seconds),
        markdown(&table)
    );
    let title = "Time breakdown with all processors in use, percent of processor time".to_owned();
    Ok(Figure {
        rows: table,
        picture: Picture::Bars { title, parts: Part::NAMES.map(str::to_owned).to_vec(), bars },
        text,
    })
}

/// Figure 3: inside the lock manager, TPC-B under more and more load.
///
/// # Errors
/// A run that fails.
pub fn inside(lab: &Lab) -> Result<Figure, FigureError> {
    let curves = curves(lab, &[Kind::TpcB], true)?;
    let mut symbols = Symbols::default();
    let mut header = row([
        "system",
        "clients",
        "utilization %",
        "offered load %",
        "transactions/s",
        "least",
        "most",
        "lock manager % of all",
    ]);
    header.extend(Inside::NAMES.map(|name| format!("{name} %")));
    header.extend(row(["contention % of lock manager", "samples"]));
    let mut table = vec![header];
    let mut panels = Vec::new();
    for Curve { system, points, .. } in &curves {
        let mut shares = Vec::new();
        for point in points {
            let split = Split::of(&profile(point), &mut symbols);
            let [acquire, acquire_contention, release, release_contention] = split.inside_shares();
            let all = split.inside_samples() as f64 * 100.0 / split.samples().max(1) as f64;
            let mut cells = vec![system.name().to_owned(), point.first().clients.to_string()];
            let loads = [point.median(Sample::utilization), point.median(Sample::offered)];
            cells.extend(loads.map(|figure| format!("{figure:.0}")));
            cells.extend(whole(point.spread(Sample::per_s)));
            let parts = [all, acquire, acquire_contention, release, release_contention];
            cells.extend(parts.map(|share| format!("{share:.1}")));
            cells.push(format!("{:.1}", acquire_contention + release_contention));
            cells.push(split.inside_samples().to_string());
            table.push(cells);
            shares.push((point.median(Sample::offered), split.inside_shares()));
        }
        panels.push(areas(&format!("Inside the lock manager: {}", system.name()), Inside::NAMES, &shares));
    }
    let seconds = lab.seconds.unwrap_or_default().as_secs_f64() * f64::from(PROFILED_WINDOWS);
    let text = format!(
        "Figure 3: the time inside the lock manager, which is 100%, on TPC-B. The paper's Shore-MT: more than 85% of it is useful \
         work under a light load, and at 100% CPU utilization more than 85% is contention, spinning on latches. Here latches \
         of lock heads sleep after a short spin, and are held for some ten instructions; of the data-oriented engine the local \
         lock tables are shown. {} {PROFILE} {}\n\n{}",
        System::LEGEND,
        setting(lab, &Sizes::of(lab).describe(&[Kind::TpcB]), seconds),
        markdown(&table)
    );
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

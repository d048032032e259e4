//! dora-1, dora-6, dora-8: throughput against load.

use rialto_measure::chart::{Bar, Look, Panel, Picture, Scale, Series, stacked};
use rialto_measure::profile::Symbols;
use rialto_measure::text::row;
use rialto_workloads::tatp;
use rialto_workloads::tpcc;

use super::super::rounds::{Rounds, ratio, ratios, whole};
use super::super::{Figure, FigureError, Lab, markdown};
use super::curve::{Curve, PROFILED_WINDOWS, by_offered, curves, per_s, profile};
use super::parts::{Part, Split};
use super::run::Sample;
use super::workload::{Kind, Sizes};
use super::{RAN, System, setting};

/// The axis of the paper's figure 6.
const OFFERED: &str = "offered CPU load, % of the processors";

fn seconds(lab: &Lab) -> f64 {
    lab.seconds.unwrap_or_default().as_secs_f64()
}

/// Figure 1: TM1's GetSubscriberData.
///
/// # Errors
/// A run that fails.
pub fn per_cpu(lab: &Lab) -> Result<Figure, FigureError> {
    let kind = Kind::Tm1Only(tatp::Name::GetSubscriberData);
    let curves = curves(lab, &[kind], true)?;
    let mut symbols = Symbols::default();
    let mut header = row([
        "system",
        "clients",
        "utilization %",
        "offered load %",
        "transactions/s",
        "least",
        "most",
        "transactions/s per % of CPU",
        "per CPU against one client",
        "low",
        "high",
    ]);
    header.extend(Part::NAMES.map(|name| format!("{name} %")));
    header.push("samples".to_owned());
    let mut table = vec![header];
    let mut lines = Vec::new();
    let mut panels = Vec::new();
    for (colour, Curve { system, points, .. }) in curves.iter().enumerate() {
        let mut shares = Vec::new();
        for point in points {
            let split = Split::of(&profile(point), &mut symbols);
            let mut cells = vec![system.name().to_owned(), point.first().clients.to_string()];
            let loads = [point.median(Sample::utilization), point.median(Sample::offered)];
            cells.extend(loads.map(|figure| format!("{figure:.0}")));
            cells.extend(whole(point.spread(Sample::per_s)));
            cells.push(format!("{:.0}", point.median(Sample::per_utilization)));
            cells.extend(ratios(point.against(&points[0], Sample::per_utilization)));
            cells.extend(split.shares().map(|share| format!("{share:.1}")));
            cells.push(split.samples().to_string());
            table.push(cells);
            shares.push((point.median(Sample::offered), split.shares()));
        }
        let per_utilization = |point: &Rounds<Sample>| point.median(Sample::per_utilization);
        let line = by_offered(points, per_utilization);
        lines.push(Series::new(system.name(), Look::Measured, colour, line));
        panels.push(areas(
            &format!("({}) Time breakdown: {}", LETTERS[colour], system.name()),
            Part::NAMES,
            &shares,
        ));
    }
    let first = Panel {
        x_scale: Scale::Doublings,
        ..Panel::new("(a) Throughput per CPU utilization", OFFERED, "transactions/s per %", lines)
    };
    panels.insert(0, first);
    let text = format!(
        "Figure 1: clients that repeat GetSubscriberData. The paper, on 64 hardware contexts: the Baseline's throughput per \
         CPU utilization falls by more than 80% from the first context to the last, and contention within the lock manager \
         grows to more than 85% of the time; DORA's has none, and its mechanism costs less than the central locking that it \
         replaces. Here there are {} processors, so the load goes on past 100% with more clients than processors; the horizontal \
         axis is the offered load (figure 6), of which the first 100% are the paper's axis. {RAN} {} {PROFILE} {}\n\n{}",
        super::run::cores(),
        System::LEGEND,
        setting(lab, &Sizes::of(lab).describe(&[kind]), seconds(lab) * f64::from(PROFILED_WINDOWS)),
        markdown(&table)
    );
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

/// Of the panels behind the first.
const LETTERS: [&str; 4] = ["b", "c", "d", "e"];

/// How shares of time are found.
pub(super) const PROFILE: &str = "The shares are of processor time, by stacks sampled at the system's ticks (some 250 a second \
    and processor), each judged by the innermost function of the kernel's own sources on it, functions that the compiler put \
    into others included; *engine overhead* is flows, routing and local locks (of conventional runs the flows of TPC-C). \
    What a stack cannot tell: a contended cache line counts as the work that touches it; time in the \
    system (futex calls) as its caller's; and a thread that is blocked uses no processor, so contention here is what waiting \
    costs (spinning, sleeping, waking), where the paper's latches spin for as long as they wait. Clients count as useful work.";

/// Shares of time over the load, one upon the other; points without a sample are left out.
pub(super) fn areas<const N: usize>(title: &str, names: [&str; N], shares: &[(f64, [f64; N])]) -> Panel {
    let mut shares: Vec<_> = shares.to_vec();
    shares.retain(|(_, shares)| shares.iter().sum::<f64>() > 0.0);
    shares.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let mut panel = Panel::new(title, OFFERED, "time, %", stacked(names, &shares));
    (panel.x_scale, panel.y_to) = (Scale::Doublings, Some(145.0));
    panel
}

/// Figure 6: three workloads, past 100% of the processors.
///
/// # Errors
/// A run that fails.
pub fn offered(lab: &Lab) -> Result<Figure, FigureError> {
    let kinds = [Kind::Tm1, Kind::TpcB, Kind::TpcC(tpcc::Name::OrderStatus)];
    let curves = curves(lab, &kinds, false)?;
    let mut table = vec![row([
        "workload",
        "system",
        "clients",
        "utilization %",
        "offered load %",
        "transactions/s",
        "least",
        "most",
        "of its peak",
        "low",
        "high",
        "lock waits in 100",
        "lock wait us",
        "deadlocks in 100",
    ])];
    for curve in &curves {
        for point in &curve.points {
            let mut cells =
                vec![curve.kind.name(), curve.system.name().to_owned(), point.first().clients.to_string()];
            let loads = [point.median(Sample::utilization), point.median(Sample::offered)];
            cells.extend(loads.map(|figure| format!("{figure:.0}")));
            cells.extend(whole(point.spread(Sample::per_s)));
            cells.extend(ratios(point.against(curve.peak(), Sample::per_s)));
            cells.push(format!("{:.2}", point.median(|sample| sample.per_100(sample.locks.waits))));
            cells.push(format!("{:.2}", point.median(Sample::lock_wait_us)));
            cells.push(format!("{:.3}", point.median(|sample| sample.per_100(sample.locks.deadlocks))));
            table.push(cells);
        }
    }
    let panel = |kind: &Kind| {
        let of_kind = curves.iter().filter(|curve| curve.kind == *kind);
        let series = of_kind.enumerate().map(|(colour, curve)| {
            let points = by_offered(&curve.points, per_s);
            Series::new(curve.system.name(), Look::Measured, colour, points)
        });
        Panel {
            x_scale: Scale::Doublings,
            ..Panel::new(&kind.name(), OFFERED, "transactions/s", series.collect())
        }
    };
    let of = |kind: Kind, system| curves.iter().find(|curve| curve.kind == kind && curve.system == system);
    let beside = |kind: &Kind| {
        let (ours, base) = of(*kind, System::DataOriented).zip(of(*kind, System::Central))?;
        let against = ratio(ours.last().against(base.last(), Sample::per_s));
        let kept = ratio(ours.last().against(ours.peak(), Sample::per_s));
        Some(format!("{against} of it, and {kept} of its own peak, on {}", kind.name()))
    };
    let ratios: Vec<String> = kinds.iter().filter_map(beside).collect();
    let text = format!(
        "Figure 6: throughput against the offered CPU load: the processors in use, and the threads that wait for one (by the \
         kernel's account of its run queues). The paper: the Baseline does not scale, most of all on TM1, and collapses past \
         100% in all three, as threads are preempted within contended critical sections; DORA scales and stays high, with up \
         to 4.8 times the Baseline's throughput. Here, under the highest load ({} clients), data-oriented, against \
         central locks' throughput, has {}. {RAN} {} {}\n\n{}",
        curves.first().map_or(0, |curve| curve.last().first().clients),
        ratios.join(", "),
        System::LEGEND,
        setting(lab, &Sizes::of(lab).describe(&kinds), seconds(lab)),
        markdown(&table)
    );
    Ok(Figure { rows: table, picture: Picture::Panels(kinds.iter().map(panel).collect()), text })
}

/// Figure 8: the best number of clients for each.
///
/// # Errors
/// A run that fails.
pub fn peak(lab: &Lab) -> Result<Figure, FigureError> {
    use tpcc::Name::{NewOrder, OrderStatus, Payment};
    let get = Kind::Tm1Only(tatp::Name::GetSubscriberData);
    let kinds =
        [get, Kind::Tm1, Kind::TpcB, Kind::TpcC(OrderStatus), Kind::TpcC(Payment), Kind::TpcC(NewOrder)];
    let curves = curves(lab, &kinds, false)?;
    let mut table = vec![row([
        "workload",
        "system",
        "peak transactions/s",
        "least",
        "most",
        "clients",
        "utilization %",
        "against central locks",
        "low",
        "high",
    ])];
    let mut bars = Vec::new();
    for kind in kinds {
        let of_kind = || curves.iter().filter(|curve| curve.kind == kind);
        let central = of_kind().find(|curve| curve.system == System::Central);
        let base = central.expect("central locks are one of the systems").peak();
        for curve in of_kind() {
            let peak = curve.peak();
            let against = peak.against(base, Sample::per_s);
            let utilization = peak.median(Sample::utilization);
            let mut cells = vec![kind.name(), curve.system.name().to_owned()];
            cells.extend(whole(peak.spread(Sample::per_s)));
            cells.extend([peak.first().clients.to_string(), format!("{utilization:.0}")]);
            cells.extend(ratios(against));
            table.push(cells);
            bars.push(Bar {
                label: format!("{}, {}", kind.name(), short(curve.system)),
                parts: vec![against.median],
                note: format!("{}; {:.0}/s at {utilization:.0}% CPU", ratio(against), per_s(peak)),
                is_paper: false,
            });
        }
    }
    bars.push(Bar {
        label: "DORA's most, the paper's".to_owned(),
        parts: vec![1.82],
        note: "1.82 of its Baseline, the workload is not named".to_owned(),
        is_paper: true,
    });
    let text = format!(
        "Figure 8: the highest throughput under perfect admission control, that is with the number of clients that suits each \
         best, from {:?}; and the CPU utilization there. The paper: up to 82% more throughput under DORA, nearer to the hardware's \
         limits, and smaller gains on TPC-C and TPC-B, where there is less contention for locks and the log is the next bottleneck. \
         {RAN} {} {}\n\n{}",
        super::run::client_counts(lab),
        System::LEGEND,
        setting(lab, &Sizes::of(lab).describe(&kinds), seconds(lab)),
        markdown(&table)
    );
    let title = "Peak throughput, of the conventional engine's with central locks".to_owned();
    Ok(Figure { rows: table, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

/// For the label of a bar.
pub(super) fn short(system: System) -> &'static str {
    match system {
        System::Central => "central locks",
        System::Thin => "thin locks",
        System::DataOriented => "data-oriented",
        System::Bound => "threads",
    }
}

//! koda-6, koda-7, koda-8: throughput against servers and against waits; koda-formulas: the paper's two formulas beside it.

use std::time::Duration;

use rialto::{GroupCommitDesign, GroupCommitOptions};
use rialto_measure::chart::{Look, Panel, Picture, Scale, Series};
use rialto_measure::text::row;

use super::point::{Point, known, koda, machine, ms, with_stall, with_wait};
use super::{Figure, FigureError, Lab};

/// Servers of koda-6.
const SERVERS: [u32; 14] = [5, 10, 15, 20, 25, 30, 40, 50, 65, 80, 100, 130, 160, 200];
/// Waits of koda-7 and koda-8, in ms.
const STALLS_MS: [u64; 12] = [2, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 150];
const WAITS_MS: [u64; 12] = [35, 45, 55, 65, 75, 85, 95, 110, 130, 160, 200, 250];
/// The same on the disk: clients, and waits in us.
const DISK_CLIENTS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const DISK_WAITS_US: [u64; 7] = [50, 100, 200, 400, 800, 1_600, 3_200];
const DISK_SERVERS: u32 = 32;
/// Of more curves, fewer figures are drawn.
const CURVES_FEW: usize = 4;

/// A curve: its name, and a point for each value of what varies.
struct Curve {
    name: String,
    points: Vec<(f64, Point)>,
}

impl Curve {
    fn series(&self, colour: usize, of: fn(&Point) -> f64) -> Series {
        let points = self.points.iter().map(|(x, point)| (*x, of(point))).collect();
        Series::new(self.name.clone(), Look::Measured, colour, points)
    }

    fn top(&self) -> Option<&(f64, Point)> {
        self.points.iter().max_by(|a, b| a.1.tps.total_cmp(&b.1.tps))
    }

    /// How much it rises and falls for each step of x: from the first point to the top, and from there to the last.
    fn slopes(&self) -> Option<(f64, f64)> {
        let ((first, top), last) = (self.points.first().zip(self.top())?, self.points.last()?);
        let slope =
            |from: &(f64, Point), to: &(f64, Point)| (to.1.tps - from.1.tps) / (to.0 - from.0).max(1e-9);
        Some((slope(first, top), -slope(top, last)))
    }

    fn summary(&self, unit: &str) -> String {
        let (Some((x, top)), Some((rises, falls))) = (self.top(), self.slopes()) else {
            return String::new();
        };
        let end = if falls > 0.0 {
            format!("falls by {falls:.2} (to {:.0})", self.points.last().map_or(0.0, |last| last.1.tps))
        } else {
            "does not fall in this range".to_owned()
        };
        let units = if unit.len() > 2 { format!("{unit}s") } else { unit.to_owned() };
        format!(
            "- {}: {:.0} TPS at {x} {units}, group {:.1}; it rises by {rises:.2} TPS a {unit} and {end}\n",
            self.name, top.tps, top.group
        )
    }
}

fn rows(what: &str, place: &str, curves: &[Curve], into: &mut Vec<Vec<String>>) {
    for curve in curves {
        for (x, Point { tps, cpu, group, group_max, response_us, wakes, .. }) in &curve.points {
            let mut cells = vec![place.to_owned(), curve.name.clone(), what.to_owned(), x.to_string()];
            cells.extend([
                format!("{tps:.2}"),
                known(*cpu, |cpu| format!("{cpu:.2}")),
                format!("{group:.2}"),
            ]);
            let most = known(*group_max, |most| most.to_string());
            cells.extend([most, format!("{response_us:.1}"), format!("{wakes:.3}")]);
            into.push(cells);
        }
    }
}

fn header() -> Vec<Vec<String>> {
    vec![row([
        "on",
        "curve",
        "x",
        "value",
        "tps",
        "cpu_percent",
        "group",
        "group_max",
        "response_us",
        "wakes",
    ])]
}

/// A figure: throughput, processors and groups on sim:koda, I x G under the throughput, and the disk's throughput. Of many
/// curves only throughput and processors are drawn, with room for their names.
struct Shown<'a> {
    what: &'a str,
    unit: &'a str,
    koda: Vec<Curve>,
    disk_what: &'a str,
    disk_unit: &'a str,
    disk: Vec<Curve>,
    formulas: Vec<Series>,
    text: &'a str,
}

fn figure(lab: &Lab, shown: &Shown<'_>) -> Figure {
    let per_s = 1.0 / koda().write.as_secs_f64();
    let are_many = shown.koda.len() > CURVES_FEW;
    let [tps_to, cpu_to] = if are_many { [1_300.0, 900.0] } else { [900.0, 560.0] };
    let mut throughput: Vec<Series> =
        shown.koda.iter().enumerate().map(|(at, curve)| curve.series(at, |point| point.tps)).collect();
    if let Some(curve) = shown.koda.first().filter(|_| !are_many) {
        let most = curve.points.iter().map(|(x, point)| (*x, point.group * per_s)).collect();
        throughput.push(Series::new(format!("I x G of {}", curve.name), Look::Formula, 0, most));
    }
    throughput.extend(shown.formulas.iter().cloned());
    let of = |of: fn(&Point) -> f64| {
        shown.koda.iter().enumerate().map(|(at, curve)| curve.series(at, of)).collect()
    };
    let mut panels = vec![
        // The formulas leave the picture.
        Panel {
            y_to: Some(tps_to),
            ..Panel::new("sim:koda, virtual time: throughput", shown.what, "TPS", throughput)
        },
        Panel {
            y_to: Some(cpu_to),
            ..Panel::new(
                "sim:koda: processors",
                shown.what,
                "CPU % of 400",
                of(|point| point.cpu.unwrap_or(f64::NAN)),
            )
        },
    ];
    if !are_many {
        let groups = of(|point| point.group);
        panels.push(Panel::new("sim:koda: group size", shown.what, "commits a group", groups));
    }
    let mut rows_all = header();
    rows(shown.what, "sim:koda", &shown.koda, &mut rows_all);
    let mut text =
        format!("{} On `sim:koda`, {} commits a point, seed {}:\n\n", shown.text, lab.commits, lab.seed);
    text += &shown.koda.iter().map(|curve| curve.summary(shown.unit)).collect::<String>();
    if !shown.disk.is_empty() {
        let series =
            shown.disk.iter().enumerate().map(|(at, curve)| curve.series(at, |point| point.tps)).collect();
        panels.push(Panel {
            x_scale: Scale::Doublings,
            ..Panel::new("a real disk: throughput", shown.disk_what, "commits/s", series)
        });
        rows(shown.disk_what, "disk", &shown.disk, &mut rows_all);
        text += &format!(
            "\nOn the disk of {}, {:.1} s a point:\n\n{}",
            machine(),
            lab.seconds.unwrap_or_default().as_secs_f64(),
            shown.disk.iter().map(|curve| curve.summary(shown.disk_unit)).collect::<String>()
        );
    }
    Figure { rows: rows_all, picture: Picture::Panels(panels), text }
}

/// On sim:koda, for each of these values.
fn on_koda<T: Copy + Into<u64>>(
    lab: &Lab,
    name: String,
    values: &[T],
    at: impl Fn(T) -> (GroupCommitOptions, u32),
) -> Curve {
    let point = |value: &T| {
        let (options, servers) = at(*value);
        let x: u64 = (*value).into();
        (x as f64, lab.on_koda(&options, servers))
    };
    Curve { name, points: values.iter().map(point).collect() }
}

/// On the disk, for each of these values; nothing if the disk is not asked for.
fn on_disk<T: Copy + Into<u64>>(
    lab: &Lab,
    name: &str,
    values: &[T],
    at: impl Fn(T) -> (GroupCommitOptions, u32),
) -> Result<Option<Curve>, FigureError> {
    let mut points = Vec::new();
    for value in values {
        let (options, clients) = at(*value);
        let x: u64 = (*value).into();
        match lab.on_disk(options, clients)? {
            Some(point) => points.push((x as f64, point)),
            None => return Ok(None),
        }
    }
    Ok(Some(Curve { name: name.to_owned(), points }))
}

use GroupCommitDesign::{CommitStall, HiberStall, HiberWillingToWait, WillingToWait};

/// koda-6.
///
/// # Errors
/// Of the disk.
pub fn servers(lab: &Lab) -> Result<Figure, FigureError> {
    // Each at the setting that is best with 50 servers (koda-designs), the stall as the paper's.
    let set = |design| match design {
        CommitStall => with_stall(design, ms(30)),
        HiberStall => with_stall(design, ms(5)),
        WillingToWait => with_wait(design, ms(80)),
        HiberWillingToWait => with_wait(design, ms(40)),
        _ => design.into(),
    };
    let curve = |design| {
        let options: GroupCommitOptions = set(design);
        on_koda(lab, options.to_string(), &SERVERS, |servers| (options, servers))
    };
    let us = Duration::from_micros;
    let disk = [
        on_disk(lab, "commit-stall, 100 us", &DISK_CLIENTS, |clients| {
            (with_stall(CommitStall, us(100)), clients)
        })?,
        on_disk(lab, "willing-to-wait, 400 us", &DISK_CLIENTS, |clients| {
            (with_wait(WillingToWait, us(400)), clients)
        })?,
        on_disk(lab, "adaptive", &DISK_CLIENTS, |clients| (GroupCommitDesign::Adaptive.into(), clients))?,
    ];
    Ok(figure(
        lab,
        &Shown {
            what: "servers",
            unit: "server",
            koda: GroupCommitDesign::ALL.map(curve).into(),
            disk_what: "clients",
            disk_unit: "client",
            disk: disk.into_iter().flatten().collect(),
            formulas: Vec::new(),
            text: "The paper's Figure 6: at a constant stall the TPS rises with the servers, then falls, more slowly than it \
                   rose, because the processors are overloaded. All designs, each with one setting.",
        },
    ))
}

/// koda-7.
///
/// # Errors
/// Of the disk.
pub fn stall(lab: &Lab) -> Result<Figure, FigureError> {
    let curve = |design, servers: u32| {
        let name = format!("{design}, {servers} servers");
        on_koda(lab, name, &STALLS_MS, |stall| (with_stall(design, ms(stall)), servers))
    };
    let us = Duration::from_micros;
    let disk = [CommitStall, HiberStall]
        .map(|design| {
            on_disk(lab, design.name(), &DISK_WAITS_US, |stall| (with_stall(design, us(stall)), DISK_SERVERS))
        })
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    Ok(figure(
        lab,
        &Shown {
            what: "commit stall, ms",
            unit: "ms",
            koda: vec![curve(CommitStall, 50), curve(CommitStall, 65), curve(HiberStall, 50)],
            disk_what: "commit stall, us (32 clients)",
            disk_unit: "us",
            disk: disk.into_iter().flatten().collect(),
            formulas: Vec::new(),
            text: "The paper's Figure 7: with as many servers, a longer stall first brings more TPS, by larger groups, then \
                   less, because the processors are idle.",
        },
    ))
}

/// koda-8.
///
/// # Errors
/// Of the disk.
pub fn willing_to_wait(lab: &Lab) -> Result<Figure, FigureError> {
    let curve = |design, servers: u32| {
        let name = format!("{design}, {servers} servers");
        on_koda(lab, name, &WAITS_MS, |wait| (with_wait(design, ms(wait)), servers))
    };
    let us = Duration::from_micros;
    let disk = [WillingToWait, HiberWillingToWait]
        .map(|design| {
            on_disk(lab, design.name(), &DISK_WAITS_US, |wait| (with_wait(design, us(wait)), DISK_SERVERS))
        })
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let bound = WAITS_MS.map(|wait| (wait as f64, 50_000.0 / wait as f64)).to_vec();
    Ok(figure(
        lab,
        &Shown {
            what: "WTW, ms",
            unit: "ms",
            koda: vec![curve(WillingToWait, 50), curve(WillingToWait, 45), curve(HiberWillingToWait, 50)],
            disk_what: "WTW, us (32 clients)",
            disk_unit: "us",
            disk: disk.into_iter().flatten().collect(),
            formulas: vec![Series::new("50 servers x 1000 / WTW", Look::Formula, 7, bound)],
            text: "The paper's Figure 8: with as many servers, a longer WTW first brings more TPS, then less. Its bound, \
                   servers x 1000 / WTW, is drawn; the paper reached 90% of it at its maximum (500 of 555).",
        },
    ))
}

/// koda-formulas.
///
/// # Errors
/// None.
pub fn formulas(lab: &Lab) -> Result<Figure, FigureError> {
    let per_s = 1.0 / koda().write.as_secs_f64();
    const FEW: [u32; 14] = [1, 2, 3, 4, 6, 8, 10, 12, 15, 20, 30, 40, 50, 100];
    let hiber = |servers| (GroupCommitDesign::Hiber.into(), servers);
    let curves = [
        on_koda(lab, "hiber".to_owned(), &FEW, hiber),
        on_koda(lab, "willing-to-wait, 90 ms".to_owned(), &FEW, |servers| {
            (with_wait(WillingToWait, ms(90)), servers)
        }),
        on_koda(lab, "commit-lock".to_owned(), &FEW, |servers| {
            (GroupCommitDesign::CommitLock.into(), servers)
        }),
    ];
    let by_group = |curve: &Curve| -> Vec<(f64, f64)> {
        let mut points: Vec<_> = curve.points.iter().map(|(_, point)| (point.group, point.tps)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let line = |most: f64, of: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
        (0..=60)
            .map(|step| 1.0 + (most - 1.0) * f64::from(step) / 60.0)
            .map(|group| (group, of(group)))
            .collect()
    };
    let mut first: Vec<Series> = curves
        .iter()
        .enumerate()
        .map(|(at, curve)| Series::new(curve.name.clone(), Look::Measured, at, by_group(curve)))
        .collect();
    first.push(Series::new("I x G, I = 30/s", Look::Formula, 7, line(50.0, &|group| per_s * group)));
    // What one more in a group spares of a write: the slope of writes a commit, between runs next to each other.
    let saved = |curve: &Curve| -> Vec<(f64, f64)> {
        let points = by_group(curve);
        let pairs = points.windows(2).filter(|pair| pair[1].0 - pair[0].0 > 0.3);
        pairs
            .map(|pair| {
                let (from, to) = (pair[0].0, pair[1].0);
                // At a group of g, g + 1 spares 1/g - 1/(g + 1); over a longer way, at the mean of its ends less half.
                ((from * to).sqrt() - 0.5, (1.0 / from - 1.0 / to) / (to - from))
            })
            .collect()
    };
    let mut second: Vec<Series> = curves[..1]
        .iter()
        .map(|curve| Series::new(format!("{}: writes spared", curve.name), Look::Measured, 0, saved(curve)))
        .collect();
    second.push(Series::new(
        "1 / (G x (G + 1))",
        Look::Formula,
        7,
        line(12.0, &|group| 1.0 / (group * (group + 1.0))),
    ));
    let mut rows_all = header();
    rows("servers", "sim:koda", &curves, &mut rows_all);
    let shares = curves.iter().map(|curve| {
        let best =
            curve.points.iter().map(|(_, point)| point.tps / (point.group * per_s)).fold(0.0, f64::max);
        format!("- {}: at most {:.0}% of I x G\n", curve.name, best * 100.0)
    });
    let text = format!(
        "The most that commits in a second is I x G: log writes a second times commits a group. What one more in a group \
         spares of a write is 1/(G x (G+1)), so it soon matters little. On `sim:koda` (I = 30), 1 to 100 servers, {} commits \
         a point, seed {}:\n\n{}",
        lab.commits,
        lab.seed,
        shares.collect::<String>()
    );
    let panels = vec![
        Panel {
            y_to: Some(900.0),
            ..Panel::new("TPS against the group size", "G, commits a group", "TPS", first)
        },
        Panel::new("What one more in a group spares", "G, commits a group", "writes a commit", second),
    ];
    Ok(Figure { rows: rows_all, picture: Picture::Panels(panels), text })
}

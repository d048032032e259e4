//! koda-t1 and koda-t2: the paper's tables, and its mountain climbing ("Observations").

use std::time::Duration;

use rialto::{GroupCommitDesign, GroupCommitOptions};
use rialto_measure::chart::{Look, Panel, Picture, Series};
use rialto_measure::text::row;

use super::point::{Point, ms, with_stall, with_wait};
use super::{Figure, FigureError, Lab, markdown};

/// A row of the paper's tables.
struct Theirs {
    servers: u32,
    wait_ms: u64,
    cpu: u32,
    /// Not legible in the first row of Table 1.
    tps: Option<u32>,
}

const fn theirs(servers: u32, wait_ms: u64, cpu: u32, tps: u32) -> Theirs {
    Theirs { servers, wait_ms, cpu, tps: Some(tps) }
}

const TABLE_1: [Theirs; 8] = [
    Theirs { servers: 50, wait_ms: 20, cpu: 360, tps: None },
    theirs(55, 20, 375, 454),
    theirs(60, 20, 378, 457),
    theirs(60, 30, 340, 461),
    theirs(65, 30, 350, 464),
    theirs(70, 30, 360, 456),
    theirs(70, 40, 330, 451),
    theirs(65, 40, 329, 448),
];

const TABLE_2: [Theirs; 8] = [
    theirs(45, 100, 285, 426),
    theirs(45, 90, 295, 466),
    theirs(45, 80, 344, 498),
    theirs(45, 70, 363, 471),
    theirs(50, 80, 372, 485),
    theirs(50, 90, 340, 500),
    theirs(55, 90, 349, 465),
    theirs(50, 100, 324, 468),
];

/// Where a climb is.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    servers: u32,
    wait_ms: u64,
}

/// A step of a climb.
struct Step {
    at: Place,
    point: Point,
    comment: &'static str,
}

/// From so many percent of the processors on, they count as overloaded.
const OVERLOADED: f64 = 95.0;
const SERVERS_STEP: u32 = 5;
const WAIT_STEP_MS: u64 = 10;
/// What counts as more: half a percent.
const MORE: f64 = 1.005;
const STEPS_MAX: usize = 24;

/// What processors were busy, in percent of one: all runs here are in virtual time, which knows it.
fn cpu(point: &Point) -> f64 {
    point.cpu.expect("virtual time knows its processors")
}

/// KODA's mountain climbing: more servers while the processors are not overloaded and it helps, else a longer wait; when
/// neither helps, and neither does taking back one of them, this is the top.
fn climb(start: Place, processors: u32, run: impl Fn(Place) -> Point) -> Vec<Step> {
    let mut best = Step { at: start, point: run(start), comment: "starting point" };
    let mut steps = vec![Step { at: start, point: best.point.clone(), comment: best.comment }];
    while steps.len() < STEPS_MAX {
        let Place { servers, wait_ms } = best.at;
        let overloaded = cpu(&best.point) >= f64::from(processors) * OVERLOADED;
        let more_servers =
            (Place { servers: servers + SERVERS_STEP, ..best.at }, "more servers to load the processors");
        let longer =
            (Place { wait_ms: wait_ms + WAIT_STEP_MS, ..best.at }, "processors overloaded: a longer wait");
        let try_longer = (longer.0, "a longer wait");
        let shorter = (Place { wait_ms: wait_ms.saturating_sub(WAIT_STEP_MS), ..best.at }, "a shorter wait");
        let next =
            if overloaded { [longer, more_servers, shorter] } else { [more_servers, shorter, try_longer] };
        let mut found = None;
        for (at, comment) in next {
            if at == best.at || steps.iter().any(|step| step.at == at) {
                continue;
            }
            let point = run(at);
            let is_better = point.tps > best.point.tps * MORE;
            let step =
                Step { at, point: point.clone(), comment: if is_better { comment } else { "over the hill" } };
            steps.push(step);
            if is_better {
                found = Some(Step { at, point, comment });
                break;
            }
        }
        match found {
            Some(step) => best = step,
            None => break,
        }
    }
    steps
}

/// What a table is of.
struct Table {
    name: &'static str,
    wait: &'static str,
    design: GroupCommitDesign,
    options: fn(GroupCommitDesign, Duration) -> GroupCommitOptions,
    theirs: &'static [Theirs],
    start: Place,
}

fn table(lab: &Lab, table: &Table) -> Figure {
    let run = |at: Place| lab.on_koda(&(table.options)(table.design, ms(at.wait_ms)), at.servers);
    let (name, wait) = (table.name, table.wait);
    let header = ["servers", wait, "CPU %, paper", "CPU %, ours", "TPS, paper", "TPS, ours", "group, ours"];
    let mut beside = vec![row(header)];
    let mut rows = vec![row([
        "which",
        "servers",
        "wait_ms",
        "paper_cpu",
        "paper_tps",
        "cpu",
        "tps",
        "group",
        "comment",
    ])];
    let mut ours = Vec::new();
    for theirs in table.theirs {
        let at = Place { servers: theirs.servers, wait_ms: theirs.wait_ms };
        let point = run(at);
        let tps = theirs.tps.map_or_else(|| "?".to_owned(), |tps| tps.to_string());
        let [servers, wait_ms, cpu] =
            [u64::from(at.servers), at.wait_ms, u64::from(theirs.cpu)].map(|n| n.to_string());
        let [our_cpu, our_tps] = [self::cpu(&point), point.tps].map(|figure| format!("{figure:.0}"));
        let group = format!("{:.1}", point.group);
        beside.push(vec![
            servers.clone(),
            wait_ms.clone(),
            cpu.clone(),
            our_cpu.clone(),
            tps.clone(),
            our_tps.clone(),
            group.clone(),
        ]);
        rows.push(vec!["row".to_owned(), servers, wait_ms, cpu, tps, our_cpu, our_tps, group, String::new()]);
        ours.push(point);
    }
    let steps = climb(table.start, super::point::koda().processors, run);
    let mut walk = vec![row(["servers", wait, "CPU %", "TPS", "group", "comment"])];
    for Step { at, point, comment } in &steps {
        let cells = vec![
            at.servers.to_string(),
            at.wait_ms.to_string(),
            format!("{:.0}", cpu(point)),
            format!("{:.0}", point.tps),
            format!("{:.1}", point.group),
            (*comment).to_owned(),
        ];
        let [servers, wait_ms, cpu, tps, group, comment] = [0, 1, 2, 3, 4, 5].map(|cell| cells[cell].clone());
        let (none, which) = (String::new(), "climb".to_owned());
        rows.push(vec![which, servers, wait_ms, none.clone(), none, cpu, tps, group, comment]);
        walk.push(cells);
    }
    let top = steps.iter().max_by(|a, b| a.point.tps.total_cmp(&b.point.tps)).expect("there is a start");
    let their_top = table.theirs.iter().max_by_key(|theirs| theirs.tps).expect("there are rows");
    let place = |servers: u32, wait_ms: u64| (f64::from(servers), wait_ms as f64);
    let ground = Panel {
        y_to: None,
        ..Panel::new(
            &format!("{name}: the climb, TPS beside each step"),
            "servers",
            wait,
            vec![
                Series {
                    labels: steps.iter().map(|step| format!("{:.0}", step.point.tps)).collect(),
                    ..Series::new(
                        "our climb on sim:koda",
                        Look::Measured,
                        0,
                        steps.iter().map(|step| place(step.at.servers, step.at.wait_ms)).collect(),
                    )
                },
                Series::new(
                    "the paper's rows",
                    Look::Paper,
                    1,
                    table.theirs.iter().map(|row| place(row.servers, row.wait_ms)).collect(),
                ),
            ],
        )
    };
    let number = |at: usize| at as f64 + 1.0;
    let compared = Panel {
        y_from: 300.0,
        ..Panel::new(
            &format!("{name}: the paper's rows"),
            "row of the table",
            "TPS",
            vec![
                Series::new(
                    "the same rows on sim:koda",
                    Look::Measured,
                    0,
                    ours.iter().enumerate().map(|(at, point)| (number(at), point.tps)).collect(),
                ),
                Series::new(
                    "the paper's",
                    Look::Paper,
                    1,
                    table
                        .theirs
                        .iter()
                        .enumerate()
                        .filter_map(|(at, row)| Some((number(at), f64::from(row.tps?))))
                        .collect(),
                ),
            ],
        )
    };
    let text = format!(
        "The {name} Design on `sim:koda` in virtual time, {} commits a point, seed {}. The paper's rows, ours beside them:\n\n\
         {}\nThe paper's climb ends at {} servers and {} ms with {} TPS; ours, by the same rules from {} servers and {} ms, at \
         {} servers and {} ms with {:.0} TPS ({:.0}% of 400% processor):\n\n{}",
        lab.commits,
        lab.seed,
        markdown(&beside),
        their_top.servers,
        their_top.wait_ms,
        their_top.tps.unwrap_or(0),
        table.start.servers,
        table.start.wait_ms,
        top.at.servers,
        top.at.wait_ms,
        top.point.tps,
        cpu(&top.point),
        markdown(&walk),
    );
    Figure { rows, picture: Picture::Panels(vec![ground, compared]), text }
}

/// koda-t1.
///
/// # Errors
/// None.
pub fn commit_stall(lab: &Lab) -> Result<Figure, FigureError> {
    Ok(table(
        lab,
        &Table {
            name: "Commit-Stall",
            wait: "stall ms",
            design: GroupCommitDesign::CommitStall,
            options: with_stall,
            theirs: &TABLE_1,
            start: Place { servers: 30, wait_ms: 10 },
        },
    ))
}

/// koda-t2.
///
/// # Errors
/// None.
pub fn willing_to_wait(lab: &Lab) -> Result<Figure, FigureError> {
    Ok(table(
        lab,
        &Table {
            name: "Willing-to-Wait",
            wait: "WTW ms",
            design: GroupCommitDesign::WillingToWait,
            options: with_wait,
            theirs: &TABLE_2,
            start: Place { servers: 30, wait_ms: 100 },
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_climb_finds_the_top_and_stops_there() {
        // A hill over 60 servers and 40 ms; processors are overloaded when waits are short for so many servers.
        let hill = |at: Place| Point {
            tps: 1_000.0 - f64::from(at.servers.abs_diff(60)) * 5.0 - at.wait_ms.abs_diff(40) as f64 * 3.0,
            cpu: Some(f64::from(at.servers) * 10.0 - at.wait_ms as f64 * 4.0),
            group: 1.0,
            group_max: Some(1),
            response_us: 0.0,
            p50_us: 0.0,
            wakes: 0.0,
        };
        let steps = climb(Place { servers: 40, wait_ms: 20 }, 4, hill);
        let top = steps.iter().max_by(|a, b| a.point.tps.total_cmp(&b.point.tps)).unwrap();
        assert_eq!(top.at, Place { servers: 60, wait_ms: 40 });
        assert!(steps.len() < STEPS_MAX && steps.last().unwrap().comment == "over the hill");
        for pair in steps.windows(2) {
            let (servers, wait) = (
                pair[0].at.servers.abs_diff(pair[1].at.servers),
                pair[0].at.wait_ms.abs_diff(pair[1].at.wait_ms),
            );
            assert!(servers <= 5 && wait <= 20, "small steps");
        }
    }
}

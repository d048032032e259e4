//! koda-designs: the most that each design reaches on KODA's machine with 50 servers.

use std::time::Duration;

use rialto::{GroupCommitDesign, GroupCommitOptions};
use rialto_measure::chart::{Bar, Picture};
use rialto_measure::text::row;

use super::point::{Point, known, ms, run, with_stall, with_wait};
use super::{Figure, FigureError, Lab, markdown};

const SERVERS: u32 = 50;
/// As long as the paper's longest, and longer.
const STALLS_MS: [u64; 7] = [5, 10, 15, 20, 25, 30, 40];
const LONG_STALLS_MS: [u64; 5] = [50, 60, 70, 80, 90];
const WAITS_MS: [u64; 9] = [40, 50, 60, 70, 80, 90, 100, 110, 120];
const DELAYS_MS: [u64; 5] = [0, 5, 10, 15, 20];

/// Commits in which adaptive climbs before it is measured: about a thousand groups.
const CLIMB: u64 = 25_000;

/// What the paper measured.
const fn theirs(design: GroupCommitDesign) -> Option<u32> {
    match design {
        GroupCommitDesign::CommitLock => Some(300),
        GroupCommitDesign::CommitStall => Some(464),
        GroupCommitDesign::WillingToWait => Some(500),
        _ => None,
    }
}

fn grid(design: GroupCommitDesign, is_long: bool) -> (Vec<GroupCommitOptions>, String) {
    use GroupCommitDesign::{CommitStall, Hiber, HiberStall, HiberWillingToWait, WillingToWait};
    let list = |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match design {
        CommitStall | HiberStall => {
            let stalls = if is_long { &LONG_STALLS_MS[..] } else { &STALLS_MS };
            let all = stalls.iter().map(|stall| with_stall(design, ms(*stall)));
            (all.collect(), format!("stall {} ms", list(stalls)))
        }
        WillingToWait | HiberWillingToWait => {
            let all = WAITS_MS.map(|wait| with_wait(design, ms(wait)));
            (all.to_vec(), format!("WTW {} ms", list(&WAITS_MS)))
        }
        Hiber => {
            let delayed = |delay| GroupCommitOptions {
                wake_delay: (delay > 0).then(|| ms(delay)),
                ..GroupCommitOptions::from(design)
            };
            (DELAYS_MS.map(delayed).to_vec(), format!("wake delay {} ms", list(&DELAYS_MS)))
        }
        _ => (vec![design.into()], "nothing to set".to_owned()),
    }
}

/// koda-designs.
///
/// # Errors
/// Of the disk.
pub fn most(lab: &Lab) -> Result<Figure, FigureError> {
    let mut rows = vec![row([
        "design",
        "options",
        "tps",
        "cpu_percent",
        "group",
        "group_max",
        "wakes",
        "p50_ms",
        "is_best",
    ])];
    let mut shown = vec![row([
        "design",
        "tried",
        "best with",
        "TPS",
        "paper",
        "CPU %",
        "group, mean / max",
        "wake calls and self-wakes a commit",
    ])];
    let mut bars = Vec::new();
    let all = GroupCommitDesign::ALL.into_iter().flat_map(|design| {
        // The paper tried no stall above 40 ms; its order of the designs is that of such stalls.
        let is_stalled = design == GroupCommitDesign::CommitStall;
        [(design, false)].into_iter().chain(is_stalled.then_some((design, true)))
    });
    for (design, is_long) in all {
        let (grid, tried) = grid(design, is_long);
        let name = format!("{design}{}", if is_long { ", longer stalls" } else { "" });
        let mut length = lab.length();
        if design == GroupCommitDesign::Adaptive {
            length.warmup = CLIMB;
        }
        let points: Vec<(GroupCommitOptions, Point)> = grid
            .into_iter()
            .map(|options| (options, run(super::point::koda(), &options, SERVERS, 1, length)))
            .collect();
        let (best, at_best) =
            points.iter().max_by(|a, b| a.1.tps.total_cmp(&b.1.tps)).expect("each design has a setting");
        for (options, point) in &points {
            let Point { tps, cpu, group, group_max, wakes, p50_us, .. } = point;
            let mut cells = vec![design.to_string(), options.to_string()];
            cells.extend([
                format!("{tps:.2}"),
                known(*cpu, |cpu| format!("{cpu:.2}")),
                format!("{group:.2}"),
            ]);
            let most = known(*group_max, |most| most.to_string());
            cells.extend([most, format!("{wakes:.3}"), format!("{:.2}", p50_us / 1e3)]);
            cells.push((options == best).to_string());
            rows.push(cells);
        }
        let Point { tps, cpu, group, group_max, wakes, .. } = at_best;
        let theirs = theirs(design).filter(|_| !is_long);
        let setting = setting(best);
        shown.push(vec![
            name.clone(),
            tried,
            setting.clone(),
            format!("{tps:.0}"),
            theirs.map_or_else(String::new, |tps| tps.to_string()),
            known(*cpu, |cpu| format!("{cpu:.0}")),
            format!("{group:.1} / {}", known(*group_max, |most| most.to_string())),
            format!("{wakes:.2}"),
        ]);
        let note = format!("{tps:.0} TPS, {setting}").replace(", -", "");
        bars.push(Bar { label: name, parts: vec![*tps], note, is_paper: false });
        if let Some(theirs) = theirs {
            let note = format!("{theirs} TPS");
            let label = format!("{design}, the paper");
            bars.push(Bar { label, parts: vec![f64::from(theirs)], note, is_paper: true });
        }
    }
    let disk = on_disk(lab)?;
    let text = format!(
        "The most that each design reaches on `sim:koda` with {SERVERS} servers, over the settings named; {} commits a point, \
         adaptive after {CLIMB} in which it climbs; seed {}. The paper: commit-lock 300, commit-stall 464, willing-to-wait 500 \
         TPS (at its own best numbers of servers).\n\n{}{disk}",
        lab.commits,
        lab.seed,
        markdown(&shown)
    );
    let title = format!("Commits a second on sim:koda, {SERVERS} servers, each design at its best setting");
    Ok(Figure { rows, picture: Picture::Bars { title, parts: Vec::new(), bars }, text })
}

/// The setting alone, without the design's name.
fn setting(options: &GroupCommitOptions) -> String {
    let text = options.to_string();
    text.split_once(", ").map_or_else(|| "-".to_owned(), |(_, setting)| setting.to_owned())
}

/// Each design on the disk, with one setting.
fn on_disk(lab: &Lab) -> Result<String, FigureError> {
    const CLIENTS: u32 = 32;
    let mut shown =
        vec![row(["design", "commits/s", "group", "wake calls and self-wakes a commit", "p50 us"])];
    for design in GroupCommitDesign::ALL {
        let wait = with_wait(design, Duration::from_micros(400));
        let stall = with_stall(design, Duration::from_micros(100));
        let options = [wait, stall, design.into()].into_iter().find(|options| options.problem().is_none());
        let options = options.expect("a design without a setting has no problem");
        let Some(point) = lab.on_disk(options, CLIENTS)? else { return Ok(String::new()) };
        let Point { tps, group, wakes, p50_us, .. } = point;
        shown.push(vec![
            options.to_string(),
            format!("{tps:.0}"),
            format!("{group:.1}"),
            format!("{wakes:.2}"),
            format!("{p50_us:.0}"),
        ]);
    }
    let (machine, seconds) = (super::point::machine(), lab.seconds.unwrap_or_default().as_secs_f64());
    Ok(format!(
        "\nOn the disk of {machine}, {CLIENTS} clients, {seconds:.1} s each, not tuned:\n\n{}",
        markdown(&shown)
    ))
}

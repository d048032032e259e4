//! m-4.1: throughput and processor time by server, for each checkpointing and logging strategy (table 4.1).

use rialto_measure::chart::{Bar, Picture};
use rialto_measure::interval::Interval;
use rialto_measure::text::row;

use super::super::rounds::Rounds;
use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{PACED_INTERVAL, Pace, Sample, Setting, measure_all};
use super::{Strategy, strategy};
use crate::point::machine;

/// A row of table 4.1: throughput in transactions a second; microseconds of the transaction, checkpoint, log and message
/// servers; transactions.
struct Paper {
    strategy: Strategy,
    per_s: f64,
    us: [f64; 4],
    count: u64,
}

const fn paper(checkpoint: &'static str, log: &'static str, per_s: f64, us: [f64; 4], count: u64) -> Paper {
    Paper { strategy: strategy(checkpoint, log), per_s, us, count }
}

const PAPER: [Paper; 11] = [
    paper("FUZZY", "VALUE", 72.7, [9658.0, 275.0, 802.0, 2908.0], 130_877),
    paper("ACCOU", "VALUE", 65.7, [10140.0, 1335.0, 744.0, 2899.0], 118_338),
    paper("ACBW", "VALUE", 71.5, [9580.0, 586.0, 739.0, 2981.0], 128_665),
    paper("TCCOU", "VALUE", 63.8, [10613.0, 1315.0, 740.0, 2891.0], 114_863),
    paper("TCBW", "VALUE", 41.61, [18687.0, 925.0, 1128.0, 3075.0], 74_885),
    paper("ACCOU", "AOPER", 66.4, [10295.0, 1230.0, 511.0, 2928.0], 119_474),
    paper("ACBW", "AOPER", 73.1, [9619.0, 493.0, 553.0, 2886.0], 131_557),
    paper("TCCOU", "AOPER", 66.6, [10186.0, 1250.0, 525.0, 2907.0], 119_967),
    paper("TCBW", "AOPER", 42.38, [18591.0, 836.0, 700.0, 3251.0], 76_298),
    paper("TCCOU", "TOPER", 72.6, [9103.0, 1147.0, 482.0, 2941.0], 130_731),
    paper("TCBW", "TOPER", 46.31, [16990.0, 786.0, 566.0, 3052.0], 83_382),
];
/// "With all logging and checkpointing turned off, … slightly more than eight milliseconds per transaction."
const PAPER_OFF_US: f64 = 8_000.0;
const SERVERS: [&str; 4] = ["transaction server", "checkpoint server", "log server", "message servers"];
const OFF: &str = "off";
/// How many times `--seconds` a row is measured in each round.
const WINDOWS: u32 = 4;

/// A row of ours.
struct Ours {
    name: String,
    paper: Option<&'static Paper>,
    point: Rounds<Sample>,
}

/// How much less than the base, in percent, from the ratios of the rounds.
fn lost(ratio: Interval) -> [f64; 3] {
    [ratio.median, ratio.high, ratio.low].map(|ratio| (1.0 - ratio) * 100.0)
}

/// How much more than the base, in percent, from the ratios of the rounds.
fn more(ratio: Interval) -> [f64; 3] {
    [ratio.median, ratio.low, ratio.high].map(|ratio| (ratio - 1.0) * 100.0)
}

/// Table 4.1.
///
/// # Errors
/// A run that fails.
pub fn by_strategy(lab: &Lab) -> Result<Figure, FigureError> {
    let rows = rows();
    let settings: Vec<_> = rows.iter().map(|(name, _, setting)| (name.clone(), *setting)).collect();
    let points = measure_all(lab, &settings, lab.on_the_clock()? * WINDOWS)?;
    let mut left_out = Vec::new();
    let mut ours = Vec::new();
    for ((name, paper, _), point) in rows.into_iter().zip(points) {
        match point {
            Some(point) => ours.push(Ours { name, paper, point }),
            None => left_out.push(name),
        }
    }
    Ok(figure(lab, &ours, &left_out))
}

/// The settings, off first: the paper's eleven, its black/white ones with hints, and the product's default.
fn rows() -> Vec<(String, Option<&'static Paper>, Setting)> {
    let default = Setting { pace: Pace::Paced, spool: true, ..Setting::of_paper(strategy("FUZZY", "VALUE")) };
    let off = (OFF.to_owned(), None, Setting::off());
    let of_paper =
        |paper: &'static Paper| (paper.strategy.name(), Some(paper), Setting::of_paper(paper.strategy));
    let default = ("FUZZY VALUE, paced".to_owned(), None, default);
    let hinted = |paper: &'static Paper| {
        let setting = Setting { hints: true, ..Setting::of_paper(paper.strategy) };
        (format!("{}, hints", paper.strategy.name()), None, setting)
    };
    let hinted = PAPER.iter().filter(|paper| paper.strategy.checkpoint == "TCBW").map(hinted);
    [off].into_iter().chain(PAPER.iter().map(of_paper)).chain(hinted).chain([default]).collect()
}

fn off(ours: &[Ours]) -> &Rounds<Sample> {
    &ours.iter().find(|row| row.name == OFF).expect("it is never refused").point
}

fn figure(lab: &Lab, ours: &[Ours], left_out: &[String]) -> Figure {
    let off = off(ours);
    let off_us = off.median(Sample::all_servers_us);
    let mut table = vec![row([
        "strategy",
        "transactions/s",
        "low",
        "high",
        "transaction server us",
        "checkpoint server us",
        "log server us",
        "message servers us",
        "all servers us",
        "throughput lost %",
        "lost, low",
        "lost, high",
        "processor time more %",
        "more, low",
        "more, high",
        "restarts",
        "checkpoints",
        "transactions",
        "paper: transactions/s",
        "paper: transaction server us",
        "paper: checkpoint server us",
        "paper: log server us",
        "paper: message servers us",
        "paper: transactions",
    ])];
    let mut bars = Vec::new();
    for Ours { name, paper, point } in ours {
        let per_s = point.interval(Sample::per_s);
        let us = server_us(point);
        let all = point.median(Sample::all_servers_us);
        let mut cells = vec![name.clone()];
        cells.extend([per_s.median, per_s.low, per_s.high].map(|figure| format!("{figure:.0}")));
        cells.extend(us.iter().chain([&all]).map(|figure| format!("{figure:.3}")));
        cells.extend(lost(point.against(off, Sample::per_s)).map(|percent| format!("{percent:.1}")));
        cells.extend(more(point.against(off, Sample::all_servers_us)).map(|percent| format!("{percent:.1}")));
        let sum = |count: fn(&Sample) -> u64| point.samples().iter().map(count).sum::<u64>().to_string();
        cells.extend([sum(|one| one.restarted), sum(|one| one.checkpoints), sum(|one| one.committed)]);
        match paper {
            Some(paper) => {
                cells.push(paper.per_s.to_string());
                cells.extend(paper.us.map(|figure| figure.to_string()));
                cells.push(paper.count.to_string());
            }
            None => cells.extend(vec![String::new(); 6]),
        }
        table.push(cells);
        // In percent of what a transaction takes without recovery, ours and the paper's.
        bars.push(Bar {
            label: name.clone(),
            parts: us.iter().map(|part| part * 100.0 / off_us).collect(),
            note: format!("{all:.2} us, {:.0}/s", per_s.median),
            is_paper: false,
        });
        if let Some(paper) = paper {
            let all: f64 = paper.us.iter().sum();
            bars.push(Bar {
                label: format!("{name}, the paper's"),
                parts: paper.us.iter().map(|part| part * 100.0 / PAPER_OFF_US).collect(),
                note: format!("{all:.0} us, {}/s", paper.per_s),
                is_paper: true,
            });
        }
    }
    let picture = Picture::Bars {
        title:
            "Processor time, ours and the paper's, each against a transaction without logging and checkpoints"
                .to_owned(),
        parts: SERVERS.map(str::to_owned).to_vec(),
        bars,
    };
    Figure { text: text(lab, ours, left_out), rows: table, picture }
}

/// The processor time of each server in microseconds a transaction: medians of the rounds.
fn server_us(point: &Rounds<Sample>) -> [f64; 4] {
    std::array::from_fn(|server| point.median(|sample| sample.server_us()[server]))
}

fn text(lab: &Lab, ours: &[Ours], left_out: &[String]) -> String {
    let head = row([
        "strategy",
        "transactions/s",
        "TS us",
        "CS us",
        "LS us",
        "MS us",
        "lost",
        "more processor time",
        "paper: /s",
        "paper: TS, CS, LS, MS us",
        "paper: more",
    ]);
    let mut table = vec![head];
    let spread = |[median, low, high]: [f64; 3]| format!("{median:.0}% ({low:.0} to {high:.0})");
    for Ours { name, paper, point } in ours {
        let per_s = point.interval(Sample::per_s);
        let mut cells = vec![name.clone()];
        cells.push(format!("{:.0} ({:.0} to {:.0})", per_s.median, per_s.low, per_s.high));
        cells.extend(server_us(point).map(|figure| format!("{figure:.2}")));
        cells.push(spread(lost(point.against(off(ours), Sample::per_s))));
        cells.push(spread(more(point.against(off(ours), Sample::all_servers_us))));
        match paper {
            Some(paper) => {
                let all: f64 = paper.us.iter().sum();
                cells.push(paper.per_s.to_string());
                cells.push(paper.us.map(|figure| figure.to_string()).join(", "));
                cells.push(format!("{:+.0}%", (all / PAPER_OFF_US - 1.0) * 100.0));
            }
            None => cells.extend(vec![String::new(); 3]),
        }
        table.push(cells);
    }
    let restarts = |point: &Rounds<Sample>| {
        point.median(|sample| sample.restarted as f64 * 100.0 / sample.committed.max(1) as f64)
    };
    let restarts: String = ours
        .iter()
        .filter(|row| restarts(&row.point) >= 0.01)
        .map(|row| {
            let (name, percent) = (&row.name, restarts(&row.point));
            format!(" {name}: {percent:.2} runs of 100 transactions were ended and put on the restart queue.")
        })
        .collect();
    let left_out = match left_out {
        [] => String::new(),
        rows => format!(" Left out, because this program does not have them: {}.", rows.join("; ")),
    };
    let seconds = lab.seconds.unwrap_or_default().as_secs_f64() * f64::from(WINDOWS);
    format!(
        "Table 4.1. Credit cards ({}), one message server, a request queue of {}, sweeps without a pause and unspooled, medians \
         of {} rounds of {seconds} s a row, every other round backwards through the table (the paper: 30 intervals of 60 s); the \
         intervals are by the sign test. *off* is without logging and checkpoints, which the paper puts at slightly more than 8 ms \
         of processor time; *lost* and *more* are against it, round by round: the cost of recovery readiness. Black/white sweeps \
         keep to their order, as the paper's do; with *hints* they copy next what was in the way of a transaction that they aborted \
         (the product's default). *FUZZY VALUE, paced* is the product's default strategy, but for its sweeps, which take {} s \
         instead of 30. The paper's restarts of TCBW show in its transaction server.{left_out}{restarts} On {}.\n\n{}",
        if lab.is_small() { "1,000 accounts" } else { "the paper's 40,000 accounts" },
        super::run::QUEUE,
        lab.rounds,
        PACED_INTERVAL.as_secs(),
        machine(),
        markdown(&table)
    )
}

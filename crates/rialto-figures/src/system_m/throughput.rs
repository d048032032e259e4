//! m-4.1: throughput and processor time by server, for each checkpointing and logging strategy (table 4.1).

use rialto_measure::chart::{Bar, Picture};
use rialto_measure::confidence::BATCHES;
use rialto_measure::text::{row, say};

use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{PACED_INTERVAL, Pace, Sample, Setting, measure};
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

/// A row of ours.
struct Ours {
    name: String,
    paper: Option<&'static Paper>,
    sample: Sample,
}

/// How much less, in percent.
fn lost(part: f64, of: f64) -> f64 {
    (1.0 - part / of) * 100.0
}

/// How much more, in percent.
fn more(part: f64, of: f64) -> f64 {
    (part / of - 1.0) * 100.0
}

/// Table 4.1.
///
/// # Errors
/// A run that fails.
pub fn by_strategy(lab: &Lab) -> Result<Figure, FigureError> {
    let rows = rows();
    let mut samples: Vec<Option<Sample>> = rows.iter().map(|_| None).collect();
    // Forwards, then backwards: a machine that drifts favours no system.
    let window = lab.on_the_clock()? * (BATCHES as u32 / 2);
    for position in (0..rows.len()).chain((0..rows.len()).rev()) {
        let (name, _, setting) = &rows[position];
        if let Some(sample) = measure(lab, setting, window)? {
            say(&format!("  {name}: {:.0}/s", sample.per_s().mean));
            match &mut samples[position] {
                Some(before) => before.add(sample),
                none => *none = Some(sample),
            }
        }
    }
    let mut left_out = Vec::new();
    let mut ours = Vec::new();
    for ((name, paper, _), sample) in rows.into_iter().zip(samples) {
        match sample {
            Some(sample) => ours.push(Ours { name, paper, sample }),
            None => left_out.push(name),
        }
    }
    Ok(figure(lab, &ours, &left_out))
}

/// The settings, off first: the paper's eleven, and the product's default.
fn rows() -> Vec<(String, Option<&'static Paper>, Setting)> {
    let default = Setting { pace: Pace::Paced, spool: true, ..Setting::of_paper(strategy("FUZZY", "VALUE")) };
    let off = (OFF.to_owned(), None, Setting::off());
    let of_paper =
        |paper: &'static Paper| (paper.strategy.name(), Some(paper), Setting::of_paper(paper.strategy));
    let default = ("FUZZY VALUE, paced".to_owned(), None, default);
    [off].into_iter().chain(PAPER.iter().map(of_paper)).chain([default]).collect()
}

fn figure(lab: &Lab, ours: &[Ours], left_out: &[String]) -> Figure {
    let off = ours.iter().find(|row| row.name == OFF).map(|row| &row.sample);
    let off_per_s = off.map_or(f64::NAN, |off| off.per_s().mean);
    let off_us: f64 = off.map_or(f64::NAN, |off| off.server_us().iter().sum());
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
        "processor time more %",
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
    for Ours { name, paper, sample } in ours {
        let (per_s, us) = (sample.per_s(), sample.server_us());
        let all: f64 = us.iter().sum();
        let mut cells = vec![name.clone()];
        cells.extend([per_s.mean, per_s.low, per_s.high].map(|figure| format!("{figure:.0}")));
        cells.extend(us.iter().chain([&all]).map(|figure| format!("{figure:.3}")));
        cells.push(format!("{:.1}", lost(per_s.mean, off_per_s)));
        cells.push(format!("{:.1}", more(all, off_us)));
        cells.extend([sample.restarted, sample.checkpoints, sample.committed].map(|count| count.to_string()));
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
            note: format!("{all:.2} us, {:.0}/s", per_s.mean),
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
    Figure { text: text(lab, ours, left_out, off_per_s, off_us), rows: table, picture }
}

fn text(lab: &Lab, ours: &[Ours], left_out: &[String], off_per_s: f64, off_us: f64) -> String {
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
    for Ours { name, paper, sample } in ours {
        let (per_s, us) = (sample.per_s(), sample.server_us());
        let all: f64 = us.iter().sum();
        let half = (per_s.high - per_s.low) / 2.0;
        let mut cells = vec![name.clone(), format!("{:.0} ± {half:.0}", per_s.mean)];
        cells.extend(us.map(|figure| format!("{figure:.2}")));
        cells.push(format!("{:.0}%", lost(per_s.mean, off_per_s)));
        cells.push(format!("{:+.0}%", more(all, off_us)));
        match paper {
            Some(paper) => {
                let all: f64 = paper.us.iter().sum();
                cells.push(paper.per_s.to_string());
                cells.push(paper.us.map(|figure| figure.to_string()).join(", "));
                cells.push(format!("{:+.0}%", more(all, PAPER_OFF_US)));
            }
            None => cells.extend(vec![String::new(); 3]),
        }
        table.push(cells);
    }
    let restarts: Vec<_> = ours.iter().filter(|row| row.sample.restarted > 0).collect();
    let restarts = restarts.iter().map(|Ours { name, sample, .. }| {
        let percent = sample.restarted as f64 * 100.0 / sample.committed.max(1) as f64;
        format!(
            " {name}: {} runs were ended and put on the restart queue, {percent:.2} in 100 transactions.",
            sample.restarted
        )
    });
    let left_out = match left_out {
        [] => String::new(),
        rows => format!(" Left out, because this program does not have them: {}.", rows.join("; ")),
    };
    let seconds = lab.seconds.unwrap_or_default().as_secs_f64();
    format!(
        "Table 4.1. Credit cards ({}), one message server, a request queue of {}, sweeps without a pause and unspooled; each \
         row was measured twice, forwards and backwards through the table, {} intervals of {seconds} s in all (the paper: 30 \
         of 60 s), with 90% intervals of the throughput. *off* is without logging and checkpoints, which the paper puts at \
         slightly more than 8 ms of processor time; *lost* and *more* are against it: the cost of recovery readiness. *FUZZY \
         VALUE, paced* is the product's default, but for its sweeps, which take {} s instead of 30. The paper's restarts of \
         TCBW show in its transaction server.{left_out}{} On {}.\n\n{}",
        if lab.is_small() { "1,000 accounts" } else { "the paper's 40,000 accounts" },
        super::run::QUEUE,
        BATCHES,
        PACED_INTERVAL.as_secs(),
        restarts.collect::<String>(),
        machine(),
        markdown(&table)
    )
}

//! m-4.3: response times at several lengths of the request queue (table 4.3), and the effect of the length that
//! section 4.3 expects.

use rialto_measure::chart::{Look, Panel, Picture, Scale, Series};
use rialto_measure::text::row;

use super::super::rounds::ratios;
use super::super::{Figure, FigureError, Lab, markdown};
use super::run::{Sample, Setting, measure_all};
use super::{Strategy, strategy};
use crate::point::machine;

/// Table 4.3: mean, least and most, in seconds.
const PAPER: [(Strategy, [f64; 3]); 5] = [
    (strategy("FUZZY", "VALUE"), [3.40, 3.40, 3.41]),
    (strategy("ACBW", "AOPER"), [3.86, 3.85, 3.86]),
    (strategy("ACCOU", "AOPER"), [4.09, 4.09, 4.10]),
    (strategy("TCBW", "TOPER"), [33.85, 33.46, 34.24]),
    (strategy("TCCOU", "TOPER"), [3.93, 3.93, 3.93]),
];
const QUEUES: [usize; 5] = [1, 8, 64, 512, 4096];
/// How many times `--seconds` each is measured.
const SECONDS: u32 = 4;

/// Table 4.3.
///
/// # Errors
/// A run that fails.
pub fn by_queue(lab: &Lab) -> Result<Figure, FigureError> {
    let window = lab.on_the_clock()? * SECONDS;
    let rows = PAPER.map(|(strategy, _)| QUEUES.map(|queue| (strategy, queue)));
    let setting = |(strategy, queue): &(Strategy, usize)| {
        let setting = Setting { queue: *queue, ..Setting::of_paper(*strategy) };
        (format!("{}, queue {queue}", strategy.name()), setting)
    };
    let settings: Vec<_> = rows.as_flattened().iter().map(setting).collect();
    let points = measure_all(lab, &settings, window)?;
    let mut table = vec![row([
        "strategy",
        "queue",
        "response time us",
        "low",
        "high",
        "transactions/s",
        "throughput of the next shorter queue's",
        "of it, low",
        "of it, high",
        "paper: response time s",
        "paper: low",
        "paper: high",
    ])];
    let (mut times, mut rates) = (Vec::new(), Vec::new());
    for (colour, ((strategy, paper), points)) in
        PAPER.into_iter().zip(points.chunks(QUEUES.len())).enumerate()
    {
        let (mut by_time, mut by_rate) = (Vec::new(), Vec::new());
        let mut shorter = None;
        for (queue, point) in QUEUES.into_iter().zip(points) {
            let Some(point) = point else { continue };
            let response = point.interval(Sample::response_us);
            let per_s = point.median(Sample::per_s);
            let mut cells = vec![strategy.name(), queue.to_string()];
            cells.extend([response.median, response.low, response.high].map(|us| format!("{us:.1}")));
            cells.push(format!("{per_s:.0}"));
            match shorter.replace(point) {
                Some(shorter) => cells.extend(ratios(point.against(shorter, Sample::per_s))),
                None => cells.extend(vec![String::new(); 3]),
            }
            cells.extend(paper.map(|seconds| format!("{seconds:.2}")));
            table.push(cells);
            by_time.push((queue as f64, response.median / 1e3));
            by_rate.push((queue as f64, per_s));
        }
        times.push(Series::new(strategy.name(), Look::Measured, colour, by_time));
        rates.push(Series::new(strategy.name(), Look::Measured, colour, by_rate));
    }
    let has_points = |series: &Series| !series.points.is_empty();
    times.retain(has_points);
    rates.retain(has_points);
    let panel = |title, y, series| Panel {
        x_scale: Scale::Doublings,
        ..Panel::new(title, "request queue", y, series)
    };
    let panels = vec![
        panel("Response time against the length of the request queue", "mean response time, ms", times),
        panel("Throughput against the length of the request queue", "transactions/s", rates),
    ];
    let seconds = window.as_secs_f64();
    let text = format!(
        "Table 4.3. From a request's put on the request queue to the take of its response, one message server that keeps the \
         queue full, sweeps without a pause and unspooled; medians of the mean response times of {} rounds of {seconds} s, with \
         intervals by the sign test. The paper's queue was \"much larger than necessary\", and it expects that response times can be \
         lowered significantly, with little or no loss of throughput, by a shorter one: the second picture shows from which \
         length on. What a short queue leaves is the wait for the log. On {}.\n\n{}",
        lab.rounds,
        machine(),
        markdown(&table)
    );
    Ok(Figure { rows: table, picture: Picture::Panels(panels), text })
}

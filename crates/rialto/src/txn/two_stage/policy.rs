//! [`History`]: what executions of a procedure have met of late, and what follows for its next ones.
//!
//! The strategies are those of [`TwoStage`].
//!
//! **HTSTE** (section 3.3) keeps two ratios. The *misprefetch ratio*: of the data accesses in operate stages that follow a fetch
//! stage, the part that read the disk. The *conversion ratio*: the part of the executions that needed two stages. The first executions
//! of a procedure, until one has touched a page, begin as under OTSTE. Then, until [`ENOUGH`] are known, it runs under TSTE. After that, if
//! its misprefetch ratio is above [`MISPREFETCH_MAX`], it runs under two-phase locking; else if its conversion ratio is below
//! [`CONVERSION_MIN`], under OTSTE; else under TSTE. The paper gives no threshold of misprefetches; this one is ours.
//!
//! The paper's ratios are "accumulative", and its choice holds for "all future instances". Here older executions weigh less and
//! less, and one in [`PROBED`] executions begins with a fetch stage whatever the choice. So a changed load is noticed.
//!
//! **Adaptive** extends the paper's equations 1 (TSTE) and 2 (OTSTE) by waits for the disk, and adds one for two-phase locking. `f`,
//! `c` and `g` are the mean processor times of a fetch stage, of an operate stage, and of a run that a conversion throws away; `p` is
//! the part of the executions that needed the disk. The mean wait for the disk of such an execution is `i` in one stage; in two it is
//! `j` in the fetch stage and `k` in the operate stage. The paper's equations leave out what the strategies are for: others wait for
//! the disk reads of a transaction that holds locks. `w` is the mean number of transactions of the database that waited for a lock when an
//! operate stage that had read the disk ended.
//!
//! | strategy | cost of an execution |
//! |---|---|
//! | two-phase locking | `c + p i (1 + w)` |
//! | TSTE | `f + c + p (j + k (1 + w))` |
//! | OTSTE | `c + p (g + f + j + k (1 + w))` |

use super::{Told, TwoStage};

/// Above this misprefetch ratio HTSTE takes a procedure out of two-stage execution. It is just below the end of what was measured: where
/// two-phase locking missed 4.3% of its accesses (with the smallest cache of `docs/figures/charm-4.md`), two stages still paid.
pub(crate) const MISPREFETCH_MAX: f64 = 0.04;
/// Below this conversion ratio HTSTE begins a procedure in the operate stage (the paper: "more than 95% of one type of transaction
/// requires no disk I/O").
pub(crate) const CONVERSION_MIN: f64 = 0.05;
/// At so many executions the sums are halved.
const WINDOW: f64 = 64.0;
/// A decision rests on at least so many.
const ENOUGH: f64 = 8.0;
/// One in so many executions is begun in another way, to learn what would happen.
const PROBED: u32 = 32;
/// Adaptive changes its choice for a gain of this part of the cost.
const WORTH: f64 = 0.05;

/// How an execution begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Begin {
    /// In the operate stage, and it stays there: two-phase locking.
    Once,
    /// In the fetch stage: TSTE.
    Fetch,
    /// In the operate stage, which it leaves for the fetch stage at the first page that is missing: OTSTE.
    #[default]
    UntilMiss,
}

impl Begin {
    const ALL: [Begin; 3] = [Begin::Once, Begin::Fetch, Begin::UntilMiss];

    /// Its name among the strategies.
    pub fn name(self) -> &'static str {
        match self {
            Begin::Once => TwoStage::TwoPhaseLocking.name(),
            Begin::Fetch => TwoStage::Tste.name(),
            Begin::UntilMiss => TwoStage::Otste.name(),
        }
    }

    pub fn number(self) -> u8 {
        self as u8
    }

    pub fn of_number(number: u8) -> Begin {
        Begin::ALL.into_iter().find(|begin| begin.number() == number).unwrap_or_default()
    }
}

/// Sums over executions, of which older ones weigh less.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// Executions from which the ratios follow.
    executions: f64,
    needed_two: f64,
    /// Of operate stages behind fetch stages.
    accesses: f64,
    misprefetches: f64,
    fetch: Mean,
    operate: Mean,
    given_up: Mean,
    /// Waits for the disk, of executions that had some: in one stage; in the fetch stage and in the operate stage of two.
    io: Mean,
    fetch_io: Mean,
    operate_io: Mean,
    waiters: Mean,
}

/// A sum of values, and their number.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        (self.sum, self.count) = (self.sum + value, self.count + 1.0);
    }

    fn halve(&mut self) {
        (self.sum, self.count) = (self.sum / 2.0, self.count / 2.0);
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

impl Window {
    fn add(&mut self, told: &Told) {
        let (fetch_io, operate_io) = (told.fetch_io_ns as f64, told.operate_io_ns as f64);
        // Of an execution in one stage it shows only afterwards.
        let needed_two = told.needed_two() || told.operated.misses > 0;
        self.executions += 1.0;
        self.needed_two += f64::from(u8::from(needed_two));
        if told.has_fetched {
            self.accesses += told.operated.accesses as f64;
            self.misprefetches += told.operated.misses as f64;
            self.fetch.add(told.fetch_ns as f64);
            if fetch_io + operate_io > 0.0 {
                self.fetch_io.add(fetch_io);
                self.operate_io.add(operate_io);
            }
        } else if operate_io > 0.0 {
            self.io.add(operate_io);
        }
        if told.is_converted() {
            self.given_up.add(told.given_up_ns as f64);
        }
        // Of a statement in a transaction of a handle it is not known.
        if told.operate_ns > 0 {
            self.operate.add(told.operate_ns as f64);
        }
        if told.operated.misses > 0 {
            self.waiters.add(f64::from(told.waiters));
        }
    }

    fn age(&mut self) {
        for sum in [&mut self.executions, &mut self.needed_two, &mut self.accesses, &mut self.misprefetches] {
            *sum /= 2.0;
        }
        for mean in [
            &mut self.fetch,
            &mut self.operate,
            &mut self.given_up,
            &mut self.io,
            &mut self.fetch_io,
            &mut self.operate_io,
            &mut self.waiters,
        ] {
            mean.halve();
        }
    }

    fn conversion_ratio(&self) -> f64 {
        self.needed_two / self.executions.max(1.0)
    }

    /// 0 if nothing is known.
    fn misprefetch_ratio(&self) -> f64 {
        if self.accesses > 0.0 { self.misprefetches / self.accesses } else { 0.0 }
    }

    /// What an execution costs that begins in this way.
    fn cost(&self, begin: Begin) -> f64 {
        let of = |mean: &Mean| mean.get().unwrap_or(0.0);
        // Both run the same body: of a statement of a handle only the fetch stage's time is known.
        let known = |one: &Mean, other: &Mean| one.get().or(other.get()).unwrap_or(0.0);
        let (f, c) = (known(&self.fetch, &self.operate), known(&self.operate, &self.fetch));
        let g = self.given_up.get().unwrap_or(c / 2.0);
        let (p, w) = (self.conversion_ratio(), of(&self.waiters));
        // Until an execution has shown it: the other stage reads the same.
        let in_one_stage = self.io.get().unwrap_or(of(&self.fetch_io));
        let in_two = self.fetch_io.get().unwrap_or(of(&self.io)) + of(&self.operate_io) * (1.0 + w);
        match begin {
            Begin::Once => c + p * in_one_stage * (1.0 + w),
            Begin::Fetch => f + c + p * in_two,
            Begin::UntilMiss => c + p * (g + f + in_two),
        }
    }
}

/// See the [module's documentation](self).
#[derive(Debug, Default)]
pub(crate) struct History {
    window: Window,
    /// Executions since one was begun in another way.
    since_probe: u32,
    /// How many were.
    probes: u32,
    chosen: Begin,
    /// Whether anything was told.
    is_known: bool,
}

impl History {
    /// How executions begin, apart from probes.
    pub fn strategy(&self) -> Begin {
        self.chosen
    }

    /// An execution has met this. Says how the next one begins.
    pub fn tell(&mut self, strategy: TwoStage, told: &Told) -> Begin {
        self.chosen = match strategy {
            TwoStage::TwoPhaseLocking => Begin::Once,
            TwoStage::Tste => Begin::Fetch,
            TwoStage::Otste => Begin::UntilMiss,
            TwoStage::Htste | TwoStage::Adaptive => return self.weigh(strategy, told),
        };
        self.chosen
    }

    fn weigh(&mut self, strategy: TwoStage, told: &Told) -> Begin {
        if !std::mem::replace(&mut self.is_known, true) {
            self.chosen = Begin::Fetch;
        }
        // An execution under two-phase locking says nothing about HTSTE's ratios.
        if strategy == TwoStage::Adaptive || told.begin != Begin::Once {
            self.window.add(told);
        }
        if self.window.executions >= ENOUGH {
            self.chosen = match strategy {
                TwoStage::Adaptive => self.cheapest(),
                _ => self.by_ratios(),
            };
        }
        if self.window.executions >= WINDOW {
            self.window.age();
        }
        self.next(strategy)
    }

    /// HTSTE's choice.
    fn by_ratios(&self) -> Begin {
        if self.window.misprefetch_ratio() > MISPREFETCH_MAX {
            Begin::Once
        } else if self.window.conversion_ratio() < CONVERSION_MIN {
            Begin::UntilMiss
        } else {
            Begin::Fetch
        }
    }

    fn cheapest(&self) -> Begin {
        let cost = |begin| self.window.cost(begin);
        let least = Begin::ALL.into_iter().min_by(|&one, &other| cost(one).total_cmp(&cost(other)));
        let is_worth_it = |least: &Begin| cost(*least) < (1.0 - WORTH) * cost(self.chosen);
        least.filter(is_worth_it).unwrap_or(self.chosen)
    }

    /// The choice, or another one now and then.
    fn next(&mut self, strategy: TwoStage) -> Begin {
        self.since_probe += 1;
        if self.since_probe < PROBED {
            return self.chosen;
        }
        self.since_probe = 0;
        self.probes += 1;
        match strategy {
            // Also of the choice itself, in its turn.
            TwoStage::Adaptive => Begin::ALL[self.probes as usize % Begin::ALL.len()],
            _ => Begin::Fetch,
        }
    }
}

#[cfg(test)]
mod tests;

use super::*;
use crate::account::PageCounts;

fn history(strategy: TwoStage, executions: usize, told: impl Fn(Begin) -> Told) -> (History, Begin) {
    let (mut history, mut begin) = (History::default(), Begin::UntilMiss);
    for _ in 0..executions {
        begin = history.tell(strategy, &told(begin));
    }
    (history, begin)
}

/// An execution with ten accesses, of which so many read the disk where it begins in this way.
fn told(begin: Begin, misses: u64, still_misses: u64) -> Told {
    let counts = |misses| PageCounts { accesses: 10, misses, reads: misses, room_waits: 0 };
    let has_fetched = begin == Begin::Fetch || begin == Begin::UntilMiss && misses > 0;
    let in_fetch = if has_fetched { misses } else { 0 };
    let in_operate = if has_fetched { still_misses } else { misses };
    Told {
        begin,
        is_first: true,
        has_fetched,
        fetched: counts(in_fetch),
        operated: counts(in_operate),
        fetch_ns: if has_fetched { 1_000 } else { 0 },
        operate_ns: 1_500,
        given_up_ns: if has_fetched && begin == Begin::UntilMiss { 500 } else { 0 },
        fetch_io_ns: in_fetch * 100_000,
        operate_io_ns: in_operate * 100_000,
        waiters: 3,
        ..Told::default()
    }
}

#[test]
fn a_fixed_strategy_stays() {
    for (strategy, begin) in [
        (TwoStage::TwoPhaseLocking, Begin::Once),
        (TwoStage::Tste, Begin::Fetch),
        (TwoStage::Otste, Begin::UntilMiss),
    ] {
        let (history, last) = history(strategy, 500, |begin| told(begin, 1, 1));
        assert_eq!((history.strategy(), last), (begin, begin));
    }
}

#[test]
fn htste_begins_with_tste_and_follows_its_ratios() {
    let strategy = |executions, misses, left| {
        history(TwoStage::Htste, executions, |begin| told(begin, misses, left)).0.strategy()
    };
    assert_eq!(strategy(1, 0, 0), Begin::Fetch, "too little is known");
    assert_eq!(strategy(100, 0, 0), Begin::UntilMiss, "nothing misses");
    assert_eq!(strategy(100, 1, 0), Begin::Fetch, "each execution needs two stages");
    assert_eq!(strategy(100, 2, 2), Begin::Once, "the fetch stage is in vain");
}

/// The paper's thresholds, on both sides.
#[test]
fn five_in_a_hundred_executions_with_reads_are_enough_for_tste() {
    for (every, expected) in [(15, Begin::Fetch), (30, Begin::UntilMiss)] {
        let (mut history, mut begin, mut chosen) = (History::default(), Begin::UntilMiss, [0; 3]);
        for execution in 0..3_000 {
            let misses = u64::from(execution % every == 0);
            begin = history.tell(TwoStage::Htste, &told(begin, misses, 0));
            chosen[history.strategy().number() as usize] += 1;
        }
        let most = chosen.iter().max();
        assert_eq!(most, Some(&chosen[expected.number() as usize]), "one in {every}: {chosen:?}");
    }
}

/// Ours, on both sides.
#[test]
fn four_in_a_hundred_accesses_that_still_read_are_too_many_for_two_stages() {
    for (every, expected) in [(20, Begin::Once), (33, Begin::Fetch)] {
        let (mut history, mut begin, mut chosen) = (History::default(), Begin::UntilMiss, [0; 3]);
        for execution in 0..10_000 {
            let still_misses = if execution % every == 0 { 10 } else { 0 };
            begin = history.tell(TwoStage::Htste, &told(begin, 1, still_misses));
            chosen[history.strategy().number() as usize] += 1;
        }
        let most = chosen.iter().max();
        assert_eq!(most, Some(&chosen[expected.number() as usize]), "one in {every}: {chosen:?}");
    }
}

#[test]
fn a_changed_load_is_noticed() {
    let mut history = History::default();
    let mut run = |executions: usize, misses: u64, left: u64| {
        let mut begin = history.strategy();
        for _ in 0..executions {
            begin = history.tell(TwoStage::Htste, &told(begin, misses, left));
        }
        history.strategy()
    };
    assert_eq!(run(200, 2, 2), Begin::Once);
    assert_eq!(run(10_000, 2, 0), Begin::Fetch, "only probes can tell");
    assert_eq!(run(2_000, 0, 0), Begin::UntilMiss);
    assert_eq!(run(2_000, 2, 2), Begin::Once);
}

#[test]
fn adaptive_takes_what_costs_least() {
    let chosen = |told: &dyn Fn(Begin) -> Told| history(TwoStage::Adaptive, 2_000, told).0.strategy();
    assert_eq!(chosen(&|begin| told(begin, 0, 0)), Begin::Once, "no disk: the least processor time");
    assert_eq!(chosen(&|begin| told(begin, 1, 0)), Begin::Fetch, "others would wait");
    let alone = |begin| Told { waiters: 0, ..told(begin, 1, 0) };
    assert_eq!(
        chosen(&alone),
        Begin::Fetch,
        "nobody waits, and the processor time is little beside the disk's"
    );
    let on_a_fast_disk = |begin| {
        let told = alone(begin);
        Told { fetch_io_ns: told.fetch_io_ns / 50, operate_io_ns: told.operate_io_ns / 50, ..told }
    };
    assert_eq!(chosen(&on_a_fast_disk), Begin::Once, "nobody waits");
    assert_eq!(chosen(&|begin| told(begin, 2, 2)), Begin::Once, "a fetch stage that does not help");
    let seldom = std::cell::Cell::new(0);
    let one_in_ten = |begin| {
        seldom.set(seldom.get() + 1);
        told(begin, u64::from(seldom.get() % 10 == 0), 0)
    };
    assert_eq!(chosen(&one_in_ten), Begin::UntilMiss, "most need one stage");
}

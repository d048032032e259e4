//! Histories made by hand, each of which the checkers refuse for one reason only; and similar ones, which pass.

use std::ops::Bound;

use rialto::{Durability, Engine};

use super::observed::{
    Attempt, End, Event, Found, Key, Life, Outcome, Row, State, VERSIONS_EACH, Values, Version,
};
use super::scans::{By, Predicate, RangeScan};
use super::{checker, raw};

/// By default one attempt after the other in time; all of them committed.
struct Made {
    life: Life,
    time: u64,
}

const X: Key = Key { table: 0, id: 1 };
const Y: Key = Key { table: 0, id: 2 };

fn values(part: i32) -> Values {
    Values { part, tag: None }
}

fn row(versions: &[Version]) -> Row {
    Row { values: values(0), versions: versions.to_vec() }
}

fn read(key: Key, versions: &[Version]) -> Event {
    Event::Read { key, seen: Some(row(versions)) }
}

fn absent(key: Key) -> Event {
    Event::Read { key, seen: None }
}

fn grave(key: Key, versions: &[Version]) -> Event {
    Event::Grave { key, versions: versions.to_vec() }
}

fn put(key: Key, versions: &[Version]) -> Event {
    Event::Put { key, row: row(versions) }
}

/// A read of a row and a change of it.
fn change(key: Key, versions: &[Version]) -> Vec<Event> {
    vec![read(key, &versions[..versions.len() - 1]), put(key, versions)]
}

/// The first version of an attempt.
const fn v(attempt: u64) -> Version {
    attempt * VERSIONS_EACH
}

impl Made {
    fn new() -> Made {
        let (engine, first, attempts, end) = (Engine::thin(), State::new(), Vec::new(), End::Closed);
        let life = Life { engine, first, attempts, end, last: None };
        Made { life, time: 10 }
    }

    /// Keys X and Y with one version each, of attempts 1 and 2.
    fn with_rows() -> Made {
        Made::new().then(vec![grave(X, &[]), absent(X), put(X, &[v(1)])]).then(vec![
            grave(Y, &[]),
            absent(Y),
            put(Y, &[v(2)]),
        ])
    }

    fn attempt(mut self, events: Vec<Event>, began: u64, ended: Option<u64>, outcome: Outcome) -> Made {
        let number = self.life.attempts.len() as u64 + 1;
        let told = matches!(outcome, Outcome::Committed { .. }).then_some(Durability::Disk);
        let attempt = Attempt { number, began, ended, outcome, told, coherent: true, events };
        self.life.attempts.push(attempt);
        self
    }

    fn then(mut self, events: Vec<Event>) -> Made {
        let began = self.time;
        self.time += 10;
        self.attempt(events, began, Some(began + 5), Outcome::Committed { place: None })
    }

    /// Adds these attempts at the same time.
    fn together(mut self, all: Vec<Vec<Event>>) -> Made {
        let began = self.time;
        self.time += 10;
        let count = all.len() as u64;
        all.into_iter().zip(0..).fold(self, |made, (events, nth)| {
            let ended = Some(began + 1 + count + nth);
            made.attempt(events, began + nth, ended, Outcome::Committed { place: None })
        })
    }

    fn aborts(mut self, events: Vec<Event>) -> Made {
        let began = self.time;
        self.time += 10;
        self.attempt(events, began, Some(began + 5), Outcome::Aborted)
    }

    fn unknown(mut self, events: Vec<Event>) -> Made {
        let began = self.time;
        self.time += 10;
        self.attempt(events, began, None, Outcome::Unknown)
    }

    fn ends(mut self, end: End, found: &[(Key, &[Version])]) -> Made {
        let entry = |(key, versions): &(Key, &[Version])| {
            (*key, Found { versions: versions.to_vec(), values: Some(values(0)), in_grave: 0 })
        };
        self.life.end = end;
        self.life.last = Some(found.iter().map(entry).collect());
        self
    }

    fn verdicts(self) -> (Result<(), String>, Result<(), String>) {
        let lives = [self.life];
        (checker::check(&lives), raw::check(&lives))
    }
}

fn passes(made: Made) {
    assert_eq!(made.verdicts(), (Ok(()), Ok(())));
}

/// Both checkers refuse it.
fn refused(about: &str, made: Made) {
    let (own, adya) = made.verdicts();
    assert!(own.is_err(), "our checker lets a {about} pass");
    assert!(adya.is_err_and(|error| error.starts_with("life 0 of 1: adya: ")), "adya lets a {about} pass");
}

/// Our checker does. The reason cannot be told to adya.
fn refused_by_ours(about: &str, made: Made) {
    assert!(made.verdicts().0.is_err(), "our checker lets a {about} pass");
}

#[test]
fn serial_histories_pass() {
    passes(Made::with_rows());
    let removed = Event::Removed { key: X, versions: vec![v(1), v(3)] };
    passes(
        Made::with_rows()
            .then(vec![read(X, &[v(1)]), removed])
            .then(vec![absent(X), grave(X, &[v(1), v(3)]), read(Y, &[v(2)])])
            .then(vec![absent(X), grave(X, &[v(1), v(3)]), put(X, &[v(1), v(3), v(5)])])
            .then(vec![read(X, &[v(1), v(3), v(5)])]),
    );
}

#[test]
fn concurrent_histories_pass_in_an_order_that_time_allows() {
    passes(Made::with_rows().together(vec![vec![read(X, &[v(1)])], change(X, &[v(1), v(4)])]));
    passes(Made::with_rows().together(vec![vec![read(X, &[v(1), v(4)])], change(X, &[v(1), v(4)])]));
}

#[test]
fn what_was_undone_or_aborted_and_not_seen_passes() {
    let undone =
        vec![Event::Savepoint, read(X, &[v(1)]), put(X, &[v(1), v(3)]), Event::RolledBack, read(X, &[v(1)])];
    passes(Made::with_rows().then(undone).then(vec![read(X, &[v(1)])]));
    passes(Made::with_rows().aborts(change(X, &[v(1), v(3)])).then(vec![read(X, &[v(1)])]));
}

#[test]
fn an_unknown_outcome_passes_either_way() {
    passes(Made::with_rows().unknown(change(X, &[v(1), v(3)])).then(vec![read(X, &[v(1)])]));
    passes(Made::with_rows().unknown(change(X, &[v(1), v(3)])).then(vec![read(X, &[v(1), v(3)])]));
    let removed = vec![read(X, &[v(1)]), Event::Removed { key: X, versions: vec![v(1), v(3)] }];
    passes(Made::with_rows().unknown(removed.clone()).then(vec![absent(X)]));
    let twice = Made::with_rows().unknown(removed).then(vec![absent(X)]).then(vec![read(X, &[v(1)])]);
    refused_by_ours("unknown outcome that was seen and then not", twice);
    let both = [change(X, &[v(1), v(3)]), change(Y, &[v(2), v(3) + 1])].concat();
    let seen = vec![read(X, &[v(1), v(3)]), read(Y, &[v(2)])];
    refused("half of an unknown outcome", Made::with_rows().unknown(both).then(seen));
}

/// Another attempt removed a row that an attempt missed. It was lost with the power, and nothing tells of it. The row's
/// insert was told late.
#[test]
fn what_was_missed_because_of_what_is_lost_passes_unless_it_has_outlasted_the_loss() {
    const Z: Key = Key { table: 0, id: 3 };
    let until = |last: fn(Made, Vec<Event>) -> Made| {
        let inserted = vec![grave(Z, &[]), absent(Z), put(Z, &[v(3)])];
        let made = Made::with_rows().attempt(inserted, 29, Some(200), Outcome::Committed { place: None });
        let removed = vec![read(Z, &[v(3)]), Event::Removed { key: Z, versions: vec![v(3), v(5)] }];
        let made = last(made.then(vec![read(Z, &[v(3)])]).unknown(removed), vec![absent(Z)]);
        made.ends(End::PowerLost, &[(X, &[v(1)]), (Y, &[v(2)]), (Z, &[v(3)])])
    };
    passes(until(Made::aborts));
    refused_by_ours("row that is there and was missed", until(Made::then));
}

#[test]
fn lost_updates_are_refused() {
    let both = vec![change(X, &[v(1), v(3)]), change(X, &[v(1), v(4)])];
    refused("lost update", Made::with_rows().together(both));
}

#[test]
fn write_skew_is_refused() {
    let one = [vec![read(X, &[v(1)])], change(Y, &[v(2), v(3)])].concat();
    let other = [vec![read(Y, &[v(2)])], change(X, &[v(1), v(4)])].concat();
    refused("write skew", Made::with_rows().together(vec![one, other]));
}

#[test]
fn fractured_reads_are_refused() {
    let both = [change(X, &[v(1), v(3)]), change(Y, &[v(2), v(3) + 1])].concat();
    let seen = vec![read(X, &[v(1)]), read(Y, &[v(2), v(3) + 1])];
    refused("fractured read", Made::with_rows().together(vec![both, seen]));
}

#[test]
fn phantoms_are_refused() {
    let keys = |low, high| Event::Scan { table: 0, predicate: Predicate::keys(low, high), seen: vec![] };
    let (a, b) = (Key { table: 0, id: 5 }, Key { table: 0, id: 6 });
    let insert = |key, version| vec![grave(key, &[]), absent(key), put(key, &[version])];
    let one = [vec![keys(5, 6), grave(a, &[]), grave(b, &[])], insert(a, v(3))].concat();
    let other = [vec![keys(5, 6), grave(a, &[]), grave(b, &[])], insert(b, v(4))].concat();
    refused("phantom in a range", Made::with_rows().together(vec![one, other]));
    let part =
        |part| Event::Scan { table: 0, predicate: Predicate::between(By::Part, part, part), seen: vec![] };
    let moved = |key, versions: &[Version], part| {
        let row = Row { values: values(part), versions: versions.to_vec() };
        vec![read(key, &versions[..1]), Event::Put { key, row }]
    };
    let one = [vec![part(3)], moved(X, &[v(1), v(3)], 2)].concat();
    let other = [vec![part(2)], moved(Y, &[v(2), v(4)], 3)].concat();
    refused_by_ours("phantom by an index", Made::with_rows().together(vec![one, other]));
}

/// One attempt scans up to one row and changes Y. The other one has read Y and inserts a row, which the scan has not
/// given.
#[test]
fn a_scan_that_stopped_promises_the_rows_up_to_its_last_and_no_others() {
    let skew = |backward: bool, key: Key| {
        let scan = RangeScan { limit: Some(1), backward, ..RangeScan::all(0, By::Id) };
        let seen = vec![if backward { (Y.id, row(&[v(2)])) } else { (X.id, row(&[v(1)])) }];
        let scan = Event::Scan { table: 0, predicate: scan.promises(&seen), seen };
        let one = [vec![scan], change(Y, &[v(2), v(3)])].concat();
        let other = vec![read(Y, &[v(2)]), grave(key, &[]), absent(key), put(key, &[v(4)])];
        Made::with_rows().together(vec![one, other])
    };
    let (low, high) = (Key { table: 0, id: 0 }, Key { table: 0, id: 3 });
    passes(skew(false, high));
    passes(skew(true, low));
    refused_by_ours("phantom before the last row", skew(false, low));
    refused_by_ours("phantom behind the last row of a backward scan", skew(true, high));
}

#[test]
fn phantoms_at_the_bounds_of_a_range_of_parts_are_refused() {
    let range = |lower, upper| {
        let scan = RangeScan { lower, upper, ..RangeScan::all(0, By::Part) };
        Event::Scan { table: 0, predicate: scan.promises(&[]), seen: vec![] }
    };
    let moved = |lower, upper, part| {
        let row = Row { values: values(part), versions: vec![v(1), v(4)] };
        let one = [vec![range(lower, upper)], change(Y, &[v(2), v(3)])].concat();
        Made::with_rows()
            .together(vec![one, vec![read(Y, &[v(2)]), read(X, &[v(1)]), Event::Put { key: X, row }]])
    };
    let (open, with, without) = (Bound::Unbounded, Bound::Included, Bound::Excluded);
    passes(moved(without(0), without(3), 3));
    passes(moved(without(2), open, 2));
    refused_by_ours("phantom at an included bound", moved(with(1), with(3), 3));
    refused_by_ours("phantom next to an excluded bound", moved(without(0), without(3), 2));
    refused_by_ours("phantom in a range without an end", moved(without(0), open, 900));
}

#[test]
fn a_row_with_a_new_identifier_is_one_that_goes_and_one_that_comes() {
    const Z: Key = Key { table: 0, id: 3 };
    let removed = Event::Removed { key: X, versions: vec![v(1), v(3)] };
    let renamed = vec![read(X, &[v(1)]), grave(Z, &[]), removed, absent(Z), put(Z, &[v(3) + 1])];
    let made = || Made::with_rows().then(renamed.clone());
    passes(made().then(vec![absent(X), grave(X, &[v(1), v(3)]), read(Z, &[v(3) + 1])]));
    refused_by_ours("row under both identifiers", made().then(vec![read(X, &[v(1)]), read(Z, &[v(3) + 1])]));
    refused_by_ours("row under neither", made().then(vec![absent(X), absent(Z)]));
}

#[test]
fn a_unique_key_that_two_rows_have_is_refused() {
    let claim = |key, versions: &[Version]| {
        let row = Row { values: Values { part: 0, tag: Some(7) }, versions: versions.to_vec() };
        vec![read(key, &versions[..1]), Event::Claimed { key, tag: 7 }, Event::Put { key, row }]
    };
    let both = vec![claim(X, &[v(1), v(3)]), claim(Y, &[v(2), v(4)])];
    refused_by_ours("unique key of two rows", Made::with_rows().together(both));
}

#[test]
fn reads_of_what_was_aborted_or_undone_are_refused() {
    refused(
        "read of what was aborted",
        Made::with_rows().aborts(change(X, &[v(1), v(3)])).then(vec![read(X, &[v(1), v(3)])]),
    );
    let undone = vec![Event::Savepoint, read(X, &[v(1)]), put(X, &[v(1), v(3)]), Event::RolledBack];
    refused(
        "read of what was undone",
        Made::with_rows().then(undone.clone()).then(vec![read(X, &[v(1), v(3)])]),
    );
    let by_itself = [undone, vec![read(X, &[v(1), v(3)])]].concat();
    refused("read of what the attempt itself has undone", Made::with_rows().then(by_itself));
}

#[test]
fn intermediate_reads_are_refused() {
    let twice = vec![read(X, &[v(1)]), put(X, &[v(1), v(3)]), put(X, &[v(1), v(3), v(3) + 1])];
    refused("intermediate read", Made::with_rows().together(vec![twice, vec![read(X, &[v(1), v(3)])]]));
}

#[test]
fn a_stale_read_after_an_answer_is_refused() {
    let changed = || Made::with_rows().then(change(X, &[v(1), v(3)]));
    refused("stale read", changed().then(vec![read(X, &[v(1)])]));
    refused_by_ours("stale read of an aborted attempt", changed().aborts(vec![read(X, &[v(1)])]));
    // By the order of conflicts alone it is serializable: the reader comes first.
    passes(Made::with_rows().together(vec![change(X, &[v(1), v(3)]), vec![read(X, &[v(1)])]]));
}

/// Two writers of different keys, and a reader between them in time that sees only the second one's write.
#[test]
fn an_order_against_time_over_two_keys_is_refused() {
    let writers = || Made::with_rows().then(change(X, &[v(1), v(3)])).then(change(Y, &[v(2), v(4)]));
    passes(writers().then(vec![read(X, &[v(1), v(3)]), read(Y, &[v(2), v(4)])]));
    let mut made = writers();
    let seen = vec![read(X, &[v(1)]), read(Y, &[v(2), v(4)])];
    // It began before both, and saw only the later one.
    made = made.attempt(seen, 29, Some(60), Outcome::Committed { place: None });
    refused("second write without the first", made);
}

#[test]
fn places_against_the_order_of_versions_are_refused() {
    let mut made = Made::with_rows().together(vec![change(X, &[v(1), v(3)]), change(X, &[v(1), v(3), v(4)])]);
    for (attempt, place) in made.life.attempts.iter_mut().zip([1, 2, 4, 3]) {
        attempt.outcome = Outcome::Committed { place: Some(place) };
    }
    refused_by_ours("place before that of what it wrote over", made);
}

#[test]
fn what_an_answer_told_of_is_there_after_a_restart() {
    let both = |end| Made::with_rows().ends(end, &[(X, &[v(1)]), (Y, &[v(2)])]);
    passes(both(End::PowerLost));
    for end in [End::PowerLost, End::Killed, End::Closed] {
        refused_by_ours("lost write", Made::with_rows().ends(end, &[(X, &[v(1)])]));
    }
    let told = |level| {
        let mut made = Made::with_rows();
        made.life.attempts[1].told = level;
        made
    };
    let memory = Some(Durability::Memory);
    passes(told(memory).ends(End::PowerLost, &[(X, &[v(1)])]));
    refused_by_ours("lost write of level 1", told(memory).ends(End::Killed, &[(X, &[v(1)])]));
    passes(told(None).ends(End::Killed, &[(X, &[v(1)])]));
    let seen = told(None).then(vec![read(Y, &[v(2)])]);
    refused_by_ours("answer that told of what is lost", seen.ends(End::PowerLost, &[(X, &[v(1)])]));
}

#[test]
fn what_is_there_after_a_restart_is_whole_and_from_the_beginning() {
    let unanswered = |mut made: Made| {
        made.life.attempts.iter_mut().for_each(|attempt| attempt.told = None);
        made
    };
    refused_by_ours("hole", unanswered(Made::with_rows()).ends(End::PowerLost, &[(Y, &[v(2)])]));
    let both = [change(X, &[v(1), v(3)]), change(Y, &[v(2), v(3) + 1])].concat();
    let made = unanswered(Made::with_rows().then(both));
    refused_by_ours("half", made.ends(End::PowerLost, &[(X, &[v(1), v(3)]), (Y, &[v(2)])]));
}

/// No later life sees what is lost.
#[test]
fn a_later_life_that_misses_an_answered_write_is_refused_by_both() {
    let life = |made: Made| made.life;
    let first = life(Made::with_rows().ends(End::PowerLost, &[(X, &[v(1)])]));
    let found = first.last.clone().unwrap();
    let mut second = life(Made::new().then(vec![absent(Y), grave(Y, &[]), read(X, &[v(1)])]));
    second.first = found;
    for attempt in &mut second.attempts {
        (attempt.began, attempt.ended) = (100, Some(110));
        attempt.number = 9;
    }
    let lives = [first, second];
    assert!(checker::check(&lives).is_err());
    assert!(raw::check(&lives).is_err_and(|error| error.starts_with("all 2 lives: adya: ")));
}

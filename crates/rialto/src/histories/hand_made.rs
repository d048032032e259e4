//! Histories made by hand: the checker of copies and backups accepts a serial one and rejects each anomaly. Histories
//! of running transactions are in `tests/isolation/strict.rs`.

use super::history::{Done, Event, Predicate, check};

fn write(key: i32, over: Option<u64>, version: u64, group: Option<i32>) -> Event {
    Event::Write { key, over, version, group }
}

fn read(key: i32, seen: Option<u64>) -> Event {
    Event::Read { key, seen }
}

fn history(parts: Vec<Vec<Event>>) -> Vec<Done> {
    parts.into_iter().zip(1..).map(|(events, place)| Done { place, events }).collect()
}

fn refused(about: &str, parts: Vec<Vec<Event>>) {
    assert!(check(&history(parts)).is_err(), "the checker lets a {about} pass");
}

fn both_rows() -> Vec<Event> {
    vec![write(1, None, 1, Some(0)), write(2, None, 1, Some(0))]
}

#[test]
fn a_serial_history_passes() {
    let parts = vec![
        both_rows(),
        vec![read(1, Some(1)), write(2, Some(1), 2, Some(1))],
        vec![Event::Scan { predicate: Predicate::Group(0), seen: vec![(1, 1)] }, write(1, Some(1), 3, None)],
        vec![read(1, None), write(1, None, 4, Some(1))],
        vec![Event::Scan { predicate: Predicate::Group(1), seen: vec![(2, 2), (1, 4)] }],
    ];
    assert_eq!(check(&history(parts)), Ok(()));
}

#[test]
fn hand_made_anomalies_are_found() {
    refused(
        "lost update",
        vec![both_rows(), vec![write(1, Some(1), 2, Some(0))], vec![write(1, Some(1), 3, Some(0))]],
    );
    refused(
        "write skew",
        vec![
            both_rows(),
            vec![read(1, Some(1)), write(2, Some(1), 2, Some(0))],
            vec![read(2, Some(1)), write(1, Some(1), 3, Some(0))],
        ],
    );
    refused(
        "fractured read",
        vec![
            both_rows(),
            vec![write(1, Some(1), 2, Some(0)), write(2, Some(1), 2, Some(0))],
            vec![read(1, Some(1)), read(2, Some(2))],
        ],
    );
    let empty = || Event::Scan { predicate: Predicate::Keys(3, 9), seen: vec![] };
    refused(
        "phantom in a range",
        vec![
            both_rows(),
            vec![empty(), write(4, None, 2, Some(0))],
            vec![empty(), write(5, None, 3, Some(0))],
        ],
    );
    let none = |group| Event::Scan { predicate: Predicate::Group(group), seen: vec![] };
    refused(
        "phantom by a secondary index",
        vec![
            both_rows(),
            vec![none(3), write(1, Some(1), 2, Some(2))],
            vec![none(2), write(2, Some(1), 3, Some(3))],
        ],
    );
    refused("read of what was aborted", vec![both_rows(), vec![read(1, Some(77))]]);
}

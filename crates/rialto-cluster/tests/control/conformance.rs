//! What every control store does.

use std::collections::BTreeSet;
use std::sync::Barrier;

use rialto_cluster::control::{ControlStore, Revision, Swapped};

/// A swap that has to be done.
pub fn done(store: &dyn ControlStore, key: &str, expected: Option<Revision>, value: &[u8]) -> Revision {
    match store.swap(key, expected, value).expect("the store answers") {
        Swapped::Done(revision) => revision,
        Swapped::Lost => panic!("the swap of {key} from {expected:?} is lost"),
    }
}

/// A swap that has to be lost.
pub fn lost(store: &dyn ControlStore, key: &str, expected: Option<Revision>) {
    let swapped = store.swap(key, expected, b"never").expect("the store answers");
    assert_eq!(swapped, Swapped::Lost, "{key} from {expected:?}");
}

/// A key's value and revision.
pub fn value(store: &dyn ControlStore, key: &str) -> Option<(Vec<u8>, Revision)> {
    store.get(key).expect("the store answers").map(|found| (found.value, found.revision))
}

/// All of it, on an empty store. The clients are of one store.
pub fn all(clients: &[&dyn ControlStore]) {
    a_key_is_swapped_from_the_revision_that_it_has(clients[0]);
    a_list_has_the_keys_of_its_prefix_in_order(clients[0]);
    values_and_keys_are_kept_as_they_are(clients[0]);
    of_concurrent_swaps_one_is_done(clients);
    no_increment_is_lost(clients);
}

fn a_key_is_swapped_from_the_revision_that_it_has(store: &dyn ControlStore) {
    assert_eq!(value(store, "one"), None);
    lost(store, "one", Some(Revision(1)));
    assert_eq!(value(store, "one"), None, "a lost swap makes no key");
    let first = done(store, "one", None, b"a");
    assert_eq!(value(store, "one"), Some((b"a".to_vec(), first)));
    lost(store, "one", None);
    let second = done(store, "one", Some(first), b"b");
    assert!(second > first);
    lost(store, "one", Some(first));
    lost(store, "one", Some(Revision(second.0 + 1)));
    assert_eq!(value(store, "one"), Some((b"b".to_vec(), second)));
    // The same value again is another write, and a write of another key leaves this one's revision.
    let third = done(store, "one", Some(second), b"b");
    assert!(third > second);
    done(store, "another", None, b"c");
    assert_eq!(value(store, "one"), Some((b"b".to_vec(), third)));
    done(store, "one", Some(third), b"d");
}

fn a_list_has_the_keys_of_its_prefix_in_order(store: &dyn ControlStore) {
    for key in ["list/b", "list/", "list/a/2", "list0", "lis", "list/a/1", "list", "list/\u{10ffff}"] {
        done(store, key, None, key.as_bytes());
    }
    let keys = |prefix: &str| -> Vec<String> {
        let listed = store.list(prefix).expect("the store answers");
        for (key, versioned) in &listed {
            assert_eq!(
                value(store, key),
                Some((versioned.value.clone(), versioned.revision)),
                "as listed: {key}"
            );
        }
        listed.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys("list/"), ["list/", "list/a/1", "list/a/2", "list/b", "list/\u{10ffff}"]);
    assert_eq!(keys("list/a/"), ["list/a/1", "list/a/2"]);
    assert_eq!(keys("list/a/2"), ["list/a/2"]);
    assert_eq!(keys("list/c"), [""; 0]);
    let every = keys("");
    assert!(
        every.is_sorted() && every.contains(&"one".to_owned()) && every.contains(&"lis".to_owned()),
        "{every:?}"
    );
}

fn values_and_keys_are_kept_as_they_are(store: &dyn ControlStore) {
    let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for (key, kept) in
        [("as it is/empty", &b""[..]), ("as it is/bytes", &every_byte), ("as it is/Zürich \0", b"0")]
    {
        let revision = done(store, key, None, kept);
        assert_eq!(value(store, key), Some((kept.to_vec(), revision)));
        lost(store, key, None);
    }
}

/// Each client swaps from the same revision at the same moment: exactly one is done, and its value stays.
fn of_concurrent_swaps_one_is_done(clients: &[&dyn ControlStore]) {
    let mut expected = None;
    for round in 0..20 {
        let start = Barrier::new(clients.len());
        let outcomes: Vec<Swapped> = std::thread::scope(|scope| {
            let swaps: Vec<_> = (clients.iter().enumerate())
                .map(|(number, client)| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        client.swap("raced", expected, &[round, number as u8]).expect("the store answers")
                    })
                })
                .collect();
            swaps.into_iter().map(|swap| swap.join().expect("a client")).collect()
        });
        let winners: Vec<usize> =
            (0..outcomes.len()).filter(|&number| outcomes[number] != Swapped::Lost).collect();
        assert_eq!(winners.len(), 1, "round {round}: {outcomes:?}");
        let (kept, revision) = value(clients[0], "raced").expect("one is done");
        assert_eq!(kept, [round, winners[0] as u8]);
        assert_eq!(outcomes[winners[0]], Swapped::Done(revision));
        expected = Some(revision);
    }
}

/// Each client counts a number up by swaps, and tries again what it has lost.
fn no_increment_is_lost(clients: &[&dyn ControlStore]) {
    const EACH: u64 = 25;
    let revisions: Vec<Vec<Revision>> = std::thread::scope(|scope| {
        let counts: Vec<_> = clients
            .iter()
            .map(|client| scope.spawn(move || (0..EACH).map(|_| count_up(*client)).collect()))
            .collect();
        counts.into_iter().map(|count| count.join().expect("a client")).collect()
    });
    let (total, newest) = value(clients[0], "counted").expect("it is counted");
    let increments = EACH * clients.len() as u64;
    assert_eq!(u64::from_le_bytes(total.try_into().expect("eight bytes")), increments);
    assert!(revisions.iter().all(|own| own.is_sorted()), "a client's later write has a higher revision");
    let distinct: BTreeSet<Revision> = revisions.into_iter().flatten().collect();
    assert_eq!(distinct.len() as u64, increments, "each write has a revision of its own");
    assert_eq!(distinct.last(), Some(&newest));
}

fn count_up(client: &dyn ControlStore) -> Revision {
    loop {
        let now = value(client, "counted");
        let count = now
            .as_ref()
            .map_or(0, |(count, _)| u64::from_le_bytes(count[..].try_into().expect("eight bytes")));
        let next = (count + 1).to_le_bytes();
        let swapped = client.swap("counted", now.map(|(_, revision)| revision), &next);
        if let Swapped::Done(revision) = swapped.expect("the store answers") {
            return revision;
        }
    }
}

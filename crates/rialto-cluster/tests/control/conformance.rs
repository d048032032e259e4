//! What every control store does.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rialto_cluster::control::{
    Changed, ControlError, ControlStore, KEY_MAX, Renewed, Revision, Swapped, VALUE_MAX,
};
use rialto_cluster::protocol::replication::StoreIdentity;

/// The longest wait for something that has to come. `RIALTO_PATIENCE_S` gives another number of seconds, for runs with
/// bugs put back, in which it may never come.
pub fn patience() -> Duration {
    let seconds = std::env::var("RIALTO_PATIENCE_S").ok();
    Duration::from_secs(seconds.map_or(100, |text| text.parse().expect("a number of seconds")))
}

/// The store's identity. It has one from now on.
pub fn identity(store: &dyn ControlStore) -> StoreIdentity {
    store.identify(StoreIdentity::draw()).expect("the store answers")
}

/// A swap that has to be done.
pub fn done(store: &dyn ControlStore, key: &str, expected: Option<Revision>, value: &[u8]) -> Revision {
    match store.swap(identity(store), key, expected, value).expect("the store answers") {
        Swapped::Done(revision) => revision,
        other => panic!("the swap of {key} from {expected:?} is {other:?}"),
    }
}

/// A swap that has to be lost.
pub fn lost(store: &dyn ControlStore, key: &str, expected: Option<Revision>) {
    let swapped = store.swap(identity(store), key, expected, b"never").expect("the store answers");
    assert_eq!(swapped, Swapped::Lost, "{key} from {expected:?}");
}

/// A key's value and revision.
pub fn value(store: &dyn ControlStore, key: &str) -> Option<(Vec<u8>, Revision)> {
    let found = store.get(key).expect("the store answers");
    found.value.map(|found| (found.value, found.revision))
}

/// All of it, on an empty store. The clients are of one store.
pub fn all(clients: &[&dyn ControlStore]) {
    a_store_without_an_identity_gets_one(clients);
    a_swap_is_done_in_the_store_that_it_was_meant_for_only(clients[0]);
    a_key_is_swapped_from_the_revision_that_it_has(clients[0]);
    a_list_has_the_keys_of_its_prefix_in_order(clients[0]);
    values_and_keys_are_kept_as_they_are(clients[0]);
    of_concurrent_swaps_one_is_done(clients);
    no_increment_is_lost(clients);
    a_read_gives_the_identity_of_its_moment(clients);
    a_list_is_of_one_moment(clients);
    a_client_hears_of_changes(clients);
    many_threads_wait_while_others_are_answered(clients[0]);
    what_is_too_long_is_refused(clients[0]);
    a_list_may_have_many_of_the_longest_values(clients[0]);
}

fn a_store_without_an_identity_gets_one(clients: &[&dyn ControlStore]) {
    let store = clients[0];
    let drawn: Vec<StoreIdentity> = clients.iter().map(|_| StoreIdentity::draw()).collect();
    assert_eq!(drawn.iter().copied().collect::<std::collections::HashSet<_>>().len(), clients.len());
    let found = store.get("first").expect("the store answers");
    assert_eq!((found.store, found.value), (None, None));
    let swapped = store.swap(drawn[0], "first", None, b"too early").expect("the store answers");
    assert_eq!(swapped, Swapped::AnotherStore);
    let renewed = store.renew_identity(drawn[0], drawn[1]).expect("the store answers");
    assert_eq!(renewed, Renewed::AnotherStore);
    let listed = store.list("").expect("the store answers");
    assert_eq!((listed.store, listed.keys.len()), (None, 0));

    let start = Barrier::new(clients.len());
    let answers: Vec<StoreIdentity> = std::thread::scope(|scope| {
        let calls: Vec<_> = (clients.iter().zip(&drawn))
            .map(|(client, &new)| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    client.identify(new).expect("the store answers")
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().expect("a client")).collect()
    });
    assert!(answers.iter().all(|answer| *answer == answers[0] && drawn.contains(answer)), "{answers:?}");
    assert_eq!(store.get("first").expect("the store answers").store, Some(answers[0]));
    let listed = store.list("").expect("the store answers");
    assert_eq!((listed.store, listed.keys.len()), (Some(answers[0]), 0), "the identity is no key");
}

fn a_swap_is_done_in_the_store_that_it_was_meant_for_only(store: &dyn ControlStore) {
    let (now, other, next) = (identity(store), StoreIdentity::draw(), StoreIdentity::draw());
    let swap = |identity, expected, value: &[u8]| {
        store.swap(identity, "meant", expected, value).expect("the store answers")
    };
    let renew = |from, to| store.renew_identity(from, to).expect("the store answers");
    assert_eq!(swap(other, None, b"another"), Swapped::AnotherStore);
    assert_eq!(value(store, "meant"), None);
    let first = done(store, "meant", None, b"1");
    assert_eq!(swap(other, Some(first), b"another"), Swapped::AnotherStore, "the revision alone does not do");
    assert_eq!(swap(other, None, b"another"), Swapped::AnotherStore);
    assert_eq!(swap(now, None, b"lost"), Swapped::Lost);

    assert_eq!(renew(other, next), Renewed::AnotherStore);
    assert_eq!(renew(now, next), Renewed::Done);
    assert_eq!(renew(now, next), Renewed::Done, "the same call again");
    assert_eq!(renew(now, other), Renewed::AnotherStore);
    assert_eq!(identity(store), next);
    assert_eq!(swap(now, Some(first), b"of the earlier store"), Swapped::AnotherStore);
    assert_eq!(value(store, "meant"), Some((b"1".to_vec(), first)), "a renewal leaves the keys");
    assert!(matches!(swap(next, Some(first), b"2"), Swapped::Done(second) if second > first));
    let found = store.get("meant").expect("the store answers");
    assert_eq!(found.store, Some(next));
    assert_eq!(found.value.map(|found| found.value), Some(b"2".to_vec()));
}

/// Each value is written with the identity that its writer has read. After a renewal, no value of an earlier identity is
/// written any more; and no read shows a value of a later identity than the one beside it.
fn a_read_gives_the_identity_of_its_moment(clients: &[&dyn ControlStore]) {
    const FIRST: u64 = 1000;
    let store = clients[0];
    let begin = store.renew_identity(identity(store), StoreIdentity(FIRST)).expect("the store answers");
    assert_eq!(begin, Renewed::Done);
    let is_over = AtomicBool::new(false);
    let written_in = |found: &[u8]| u64::from_le_bytes(found.try_into().expect("eight bytes"));
    std::thread::scope(|scope| {
        for client in &clients[1..] {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let found = client.get("of a store").expect("the store answers");
                    let now = found.store.expect("an identity");
                    if let Some(found) = &found.value {
                        assert!(written_in(&found.value) <= now.0, "a value of a later store");
                    }
                    let expected = found.value.map(|found| found.revision);
                    let swapped = client.swap(now, "of a store", expected, &now.0.to_le_bytes());
                    swapped.expect("the store answers");
                }
            });
        }
        let _ends = SetWhenDropped(&is_over);
        for number in FIRST..FIRST + 30 {
            let (from, to) = (StoreIdentity(number), StoreIdentity(number + 1));
            assert_eq!(store.renew_identity(from, to).expect("the store answers"), Renewed::Done);
            let after = store.get("of a store").expect("the store answers").value;
            for _ in 0..3 {
                let later = store.get("of a store").expect("the store answers").value;
                let has_changed =
                    later.as_ref().map(|found| found.revision) != after.as_ref().map(|found| found.revision);
                assert!(
                    !has_changed || later.is_some_and(|found| written_in(&found.value) > number),
                    "a swap that was meant for the earlier store is done in the later one"
                );
            }
        }
    });
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// More keys than an answer has room for, of which the first and the last are counted up, one after the other: each list
/// shows both as they were at one moment.
fn a_list_is_of_one_moment(clients: &[&dyn ControlStore]) {
    const KEYS: usize = 200;
    let key = |number: usize| format!("moment/{number:03}");
    for number in 0..KEYS {
        done(clients[0], &key(number), None, &0_u64.to_le_bytes());
    }
    let is_over = AtomicBool::new(false);
    let lists = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = clients[1];
            let mut at = [0, KEYS - 1].map(|number| value(writer, &key(number)).expect("a value").1);
            let mut count = 0_u64;
            while !is_over.load(Ordering::SeqCst) {
                count += 1;
                for (number, revision) in [0, KEYS - 1].into_iter().zip(&mut at) {
                    *revision = done(writer, &key(number), Some(*revision), &count.to_le_bytes());
                }
            }
        });
        let _ends = SetWhenDropped(&is_over);
        let mut last = 0;
        while lists.fetch_add(1, Ordering::SeqCst) < 30 {
            let listed = clients[2].list("moment/").expect("the store answers");
            assert!(listed.keys.iter().map(|(key, _)| key.clone()).eq((0..KEYS).map(key)));
            let count = |index: usize| {
                u64::from_le_bytes(listed.keys[index].1.value[..].try_into().expect("eight bytes"))
            };
            let (first, second) = (count(0), count(KEYS - 1));
            assert!(first == second || first == second + 1, "{first} and {second} at one moment");
            assert!(first >= last, "a later list shows no earlier moment");
            last = first;
            let newest = listed.keys.iter().map(|(_, versioned)| versioned.revision).max();
            assert!(newest <= Some(listed.newest), "{newest:?} is newer than {:?}", listed.newest);
        }
    });
}

fn a_client_hears_of_changes(clients: &[&dyn ControlStore]) {
    let (store, other) = (clients[0], clients[1]);
    let first = done(store, "heard/key", None, b"1");
    let wait = |since, patience| store.changed_since("heard/", since, patience).expect("the store answers");
    assert_eq!(wait(Revision(first.0 - 1), Duration::ZERO), Changed::Yes);
    assert_eq!(wait(first, Duration::ZERO), Changed::No);
    // Writes of other keys are none.
    let newest = done(other, "heard", None, b"another key");
    assert_eq!(wait(first, Duration::from_millis(50)), Changed::No);
    // The store's newest write is older than the caller's: it was restored.
    assert_eq!(wait(Revision(newest.0 + 1_000_000), patience()), Changed::Yes);
    let mut since = first;
    for round in 0..5 {
        let is_waiting = Barrier::new(2);
        let (sender, heard) = std::sync::mpsc::channel();
        let (changed, next) = std::thread::scope(|scope| {
            scope.spawn(|| {
                is_waiting.wait();
                // An answer that comes with the end of the patience is one that was not heard.
                sender.send(wait(since, 2 * patience())).expect("the test waits");
            });
            is_waiting.wait();
            // Before, while, or after it begins to wait.
            std::thread::sleep(Duration::from_millis(round * 20));
            let next = done(other, "heard/key", Some(since), b"again");
            (heard.recv_timeout(patience()), next)
        });
        assert_eq!(changed, Ok(Changed::Yes), "round {round}");
        since = next;
    }
    let newest = store.list("heard/").expect("the store answers").newest;
    assert!(newest >= since);
    assert_eq!(wait(newest, Duration::ZERO), Changed::No);
}

/// All threads use one client. Those that wait hold none of the others.
fn many_threads_wait_while_others_are_answered(store: &dyn ControlStore) {
    const WAITING: usize = 24;
    let first = done(store, "many/key", None, b"1");
    let (start, have_heard) = (Barrier::new(WAITING + 1), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..WAITING {
            scope.spawn(|| {
                start.wait();
                let changed = store.changed_since("many/", first, 2 * patience()).expect("the store answers");
                assert_eq!(changed, Changed::Yes);
                have_heard.fetch_add(1, Ordering::SeqCst);
            });
        }
        start.wait();
        for round in 0..50 {
            let before = value(store, "beside").map(|(_, revision)| revision);
            done(store, "beside", before, &[round]);
            store.list("many/").expect("the store answers");
        }
        assert_eq!(have_heard.load(Ordering::SeqCst), 0, "nothing was to be heard yet");
        done(store, "many/key", Some(first), b"2");
        let began = Instant::now();
        while have_heard.load(Ordering::SeqCst) < WAITING {
            assert!(began.elapsed() < patience(), "all hear of it");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

fn what_is_too_long_is_refused(store: &dyn ControlStore) {
    let swap = |key: &str, value: &[u8]| store.swap(identity(store), key, None, value);
    let long = "k".repeat(KEY_MAX);
    assert!(matches!(swap(&long, &vec![7; VALUE_MAX]), Ok(Swapped::Done(_))));
    assert_eq!(value(store, &long).map(|(value, _)| value.len()), Some(VALUE_MAX));
    let (too_long, key) = (format!("{long}k"), "too long");
    assert!(matches!(swap(&too_long, b"a"), Err(ControlError::Refused(_))));
    assert!(matches!(swap(key, &vec![7; VALUE_MAX + 1]), Err(ControlError::Refused(_))));
    assert_eq!((value(store, &too_long), value(store, key)), (None, None));
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
        let listed = store.list(prefix).expect("the store answers").keys;
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
    let (mut expected, now) = (None, identity(clients[0]));
    for round in 0..20 {
        let start = Barrier::new(clients.len());
        let outcomes: Vec<Swapped> = std::thread::scope(|scope| {
            let swaps: Vec<_> = (clients.iter().enumerate())
                .map(|(number, client)| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        let swapped = client.swap(now, "raced", expected, &[round, number as u8]);
                        swapped.expect("the store answers")
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
        let expected = now.map(|(_, revision)| revision);
        let swapped = client.swap(identity(client), "counted", expected, &next);
        if let Swapped::Done(revision) = swapped.expect("the store answers") {
            return revision;
        }
    }
}

fn a_list_may_have_many_of_the_longest_values(store: &dyn ControlStore) {
    const KEYS: usize = 70;
    for number in 0..KEYS {
        done(store, &format!("longest/{number:02}"), None, &vec![number as u8; VALUE_MAX]);
    }
    let listed = store.list("longest/").expect("the store answers").keys;
    assert_eq!(listed.len(), KEYS);
    for (number, (_, versioned)) in listed.iter().enumerate() {
        assert!(
            versioned.value.len() == VALUE_MAX && versioned.value.iter().all(|&byte| byte == number as u8)
        );
    }
}

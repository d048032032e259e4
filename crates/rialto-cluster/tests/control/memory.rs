//! The store in memory: the suite, and the faults that a test chooses.

use rialto_cluster::control::{
    Access, Changed, ControlError, ControlStore, MemoryStore, Renewed, Revision, SwapFault, Swapped,
};
use rialto_cluster::protocol::replication::StoreIdentity;

use crate::conformance::{all, done, identity, lost, value};

fn unknown(store: &MemoryStore, fault: SwapFault) {
    let (before, now) = (value(store, "key").map(|(_, revision)| revision), identity(store));
    store.fail_next_swap(fault);
    let answer = store.swap(now, "key", before, b"new");
    assert!(matches!(answer, Err(ControlError::Unavailable(_))), "{answer:?}");
}

#[test]
fn it_does_what_every_control_store_does() {
    let store = MemoryStore::new();
    let others = [store.another_client(), store.another_client(), store.another_client()];
    all(&[&store, &others[0], &others[1], &others[2]]);
}

#[test]
fn a_client_that_is_away_reads_and_changes_nothing_and_the_others_go_on() {
    let store = MemoryStore::new();
    let other = store.another_client();
    store.set_access(Access::Away);
    assert!(matches!(store.get("key"), Err(ControlError::Unavailable(_))));
    let now = identity(&other);
    assert!(matches!(store.swap(now, "key", None, b"a"), Err(ControlError::Unavailable(_))));
    assert!(matches!(store.identify(now), Err(ControlError::Unavailable(_))));
    let changed = store.changed_since("", Revision(0), crate::conformance::patience());
    assert!(matches!(changed, Err(ControlError::Unavailable(_))));
    assert!(matches!(store.list(""), Err(ControlError::Unavailable(_))));
    let revision = done(&other, "key", None, b"b");
    store.set_access(Access::Reached);
    assert_eq!(value(&store, "key"), Some((b"b".to_vec(), revision)));
    assert_eq!(store.changed_since("", Revision(0), std::time::Duration::ZERO), Ok(Changed::Yes));
}

#[test]
fn a_swap_whose_outcome_is_unknown_is_done_or_not_done_or_done_later() {
    let store = MemoryStore::new();
    let first = done(&store, "key", None, b"old");

    unknown(&store, SwapFault::RequestLost);
    assert_eq!(value(&store, "key"), Some((b"old".to_vec(), first)));

    unknown(&store, SwapFault::AnswerLost);
    let (new, second) = value(&store, "key").expect("a value");
    assert_eq!(new, b"new");
    assert!(second > first);

    unknown(&store, SwapFault::Late);
    assert_eq!(value(&store, "key"), Some((b"new".to_vec(), second)));
    let delivered = store.another_client().deliver_late_swap();
    assert!(matches!(delivered, Some(Swapped::Done(third)) if third > second), "{delivered:?}");
    assert_eq!(store.deliver_late_swap(), None);

    // The key has changed before the late swap arrives.
    unknown(&store, SwapFault::Late);
    let (_, before) = value(&store, "key").expect("a value");
    let fourth = done(&store, "key", Some(before), b"meanwhile");
    assert_eq!(store.deliver_late_swap(), Some(Swapped::Lost));
    assert_eq!(value(&store, "key"), Some((b"meanwhile".to_vec(), fourth)));
}

#[test]
fn a_restored_store_counts_revisions_from_its_backup_on() {
    let store = MemoryStore::new();
    let first = done(&store, "key", None, b"1");
    let backup = store.backup();
    let second = done(&store, "key", Some(first), b"2");
    done(&store, "newer", None, b"3");
    store.restore(&backup);
    assert_eq!(value(&store, "key"), Some((b"1".to_vec(), first)));
    assert_eq!(value(&store, "newer"), None);
    lost(&store, "key", Some(second));
    assert_eq!(
        done(&store, "key", Some(first), b"other"),
        second,
        "a revision that another write had before"
    );
}

/// A restoration alone leaves the store's identity as it was; the renewal makes swaps that were meant for the store from
/// before, also those on their way, change nothing.
#[test]
fn a_swap_that_was_on_its_way_before_a_restoration_is_not_done_after_the_renewal() {
    let store = MemoryStore::new();
    let (before, after) = (identity(&store), StoreIdentity::draw());
    let first = done(&store, "key", None, b"1");
    let backup = store.backup();
    unknown(&store, SwapFault::Late);
    store.restore(&backup);
    assert_eq!(identity(&store), before);
    assert_eq!(store.renew_identity(before, after), Ok(Renewed::Done));
    assert_eq!(store.deliver_late_swap(), Some(Swapped::AnotherStore));
    assert_eq!(store.swap(before, "key", Some(first), b"2"), Ok(Swapped::AnotherStore));
    assert_eq!(value(&store, "key"), Some((b"1".to_vec(), first)));
}

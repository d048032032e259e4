//! The compatibility matrix and the joins of modes.

use crate::isolate::LockMode::{
    self, Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive,
};

#[test]
fn the_compatibility_matrix_is_the_textbooks() {
    let compatible = [
        (IntentShared, vec![IntentShared, IntentExclusive, Shared, SharedIntentExclusive]),
        (IntentExclusive, vec![IntentShared, IntentExclusive]),
        (Shared, vec![IntentShared, Shared]),
        (SharedIntentExclusive, vec![IntentShared]),
        (Exclusive, vec![]),
    ];
    for (mode, friends) in compatible {
        for other in LockMode::ALL {
            let conflict = mode.conflicts() & other.bit() != 0;
            assert_eq!(conflict, !friends.contains(&other), "{mode} beside {other}");
            assert_eq!(conflict, other.conflicts() & mode.bit() != 0, "symmetric: {mode} and {other}");
        }
    }
}

#[test]
fn a_join_is_the_least_mode_that_conflicts_with_all_that_either_conflicts_with() {
    for one in LockMode::ALL {
        for other in LockMode::ALL {
            let join = one.join(other);
            let least = LockMode::ALL
                .into_iter()
                .filter(|m| {
                    m.conflicts() & (one.conflicts() | other.conflicts())
                        == one.conflicts() | other.conflicts()
                })
                .min_by_key(|m| m.conflicts().count_ones())
                .expect("X conflicts with everything");
            assert_eq!(join.conflicts(), least.conflicts(), "{one} and {other} gave {join}");
            assert_eq!(join, other.join(one));
        }
        assert_eq!(one.join(one), one);
    }
}

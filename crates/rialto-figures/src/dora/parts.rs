//! [`Split`]: a profile by what the engine was doing, as in the paper's time breakdowns.
//!
//! A stack is judged from the innermost frame outwards. The first source file of the kernel on it decides which part
//! the sample belongs to. If a function that waits or wakes lies further in, the sample is contention of that part.

use rialto_measure::profile::{Place, Profile, Symbols};

/// What the time of a processor went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Transactions, tables, indexes, the log, clients.
    Work,
    /// Flows, and what a data-oriented engine does instead of central locking: identifiers, routing, local lock tables,
    /// queues, hand-overs. Bodies of actions are none of it.
    Engine,
    /// Waiting or waking elsewhere: for the log, for latches, for memory.
    OtherContention,
    /// The lock manager, working.
    LockManager,
    /// The lock manager's latches and waits.
    LockContention,
}

/// What the time within the lock manager went to (figure 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    /// Acquiring locks.
    Acquire,
    /// Waiting to acquire them.
    AcquireContention,
    /// Releasing locks.
    Release,
    /// Waiting to release them, and waking the waiters.
    ReleaseContention,
}

impl Part {
    /// Their names, from the first to the last.
    pub const NAMES: [&'static str; 5] =
        ["useful work", "engine overhead", "other contention", "lock manager", "lock manager contention"];
}

impl Inside {
    /// Their names, from the first to the last.
    pub const NAMES: [&'static str; 4] = ["acquire", "acquire contention", "release", "release contention"];
}

/// Samples by part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    parts: [u64; Part::NAMES.len()],
    inside: [u64; Inside::NAMES.len()],
}

impl Split {
    /// Of a profile.
    pub fn of(profile: &Profile, symbols: &mut Symbols) -> Split {
        let mut split = Split::default();
        profile.each(symbols, |places, count| {
            let (part, inside) = judge(places);
            split.parts[part as usize] += count;
            if let Some(inside) = inside {
                split.inside[inside as usize] += count;
            }
        });
        split
    }

    /// Samples.
    pub fn samples(&self) -> u64 {
        self.parts.iter().sum()
    }

    /// Percent of all samples, by part; zeros if there are none.
    pub fn shares(&self) -> [f64; Part::NAMES.len()] {
        percent(self.parts)
    }

    /// Percent of the samples within the lock manager; zeros if there are none.
    pub fn inside_shares(&self) -> [f64; Inside::NAMES.len()] {
        percent(self.inside)
    }

    /// Samples within the lock manager, local lock tables included.
    pub fn inside_samples(&self) -> u64 {
        self.inside.iter().sum()
    }
}

fn percent<const N: usize>(counts: [u64; N]) -> [f64; N] {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.map(|count| count as f64 * 100.0 / all)
}

/// Functions of the lock manager in which a thread waits, or wakes one that does.
const WAITS: [&str; 12] = [
    "sleep",
    "wake",
    "wait",
    "wait_for",
    "look_a_while",
    "wait_local",
    "wait_interval",
    "begin_wait",
    "end_wait",
    "account_wait",
    "withdraw",
    "withdraw_local",
];
/// The functions that give locks back; `release_…` is one, too.
const RELEASES: [&str; 6] = ["release", "give_back", "put_back", "leave", "end", "close"];
/// Source files of threads that wait and wake: the slow paths of latches.
const SLOW_FILES: [&str; 3] = ["/parking_lot_core-", "thread_parking", "/futex.rs"];
const SLOW_NAMES: [&str; 6] =
    ["lock_slow", "unlock_slow", "yield_now", "sched_yield", "__GI_sched_yield", "spin_loop"];

/// Where the workloads' own code is.
const BODIES: [&str; 2] = ["crates/rialto-workloads/src/", "crates/rialto-figures/src/"];

/// Where in the kernel a source file is, from its `src` on.
fn in_kernel(file: &str) -> Option<&str> {
    file.split_once("crates/rialto/src/").map(|(_, rest)| rest)
}

/// The last word of a function's name, without what it is generic over, closures, and its hash.
fn last_word(function: &str) -> &str {
    let function = match function.strip_prefix('<') {
        // <T as Trait>::name
        Some(of_type) => of_type.rsplit_once(">::").map_or(of_type, |(_, name)| name),
        None => function,
    };
    let function = function.split('<').next().unwrap_or(function);
    let mut words = function.rsplit("::").filter(|word| !word.starts_with('{') && !word.is_empty());
    words.next().unwrap_or(function)
}

fn is_slow(place: &Place) -> bool {
    SLOW_FILES.iter().any(|file| place.file.contains(file))
        || SLOW_NAMES.contains(&last_word(&place.function))
}

fn judge(places: &[Place]) -> (Part, Option<Inside>) {
    let Some(first) = places.iter().position(|place| in_kernel(&place.file).is_some()) else {
        // The client's own, or what the program does not tell of.
        let part = if places.iter().any(is_slow) { Part::OtherContention } else { Part::Work };
        return (part, None);
    };
    let (inner, outer) = places.split_at(first);
    let is_slow = inner.iter().any(is_slow);
    let file = in_kernel(&outer[0].file).unwrap_or_default();
    // The loop that runs any transaction is no overhead of an engine.
    if file.starts_with("engine/") && file != "engine/run.rs" {
        // Unless a body that it runs is between.
        let is_body = inner.iter().any(|place| BODIES.iter().any(|bodies| place.file.contains(bodies)));
        return (if is_body { Part::Work } else { Part::Engine }, None);
    }
    if !file.starts_with("isolate/") {
        return (if is_slow { Part::OtherContention } else { Part::Work }, None);
    }
    let of_locks: Vec<&Place> = outer
        .iter()
        .take_while(|place| in_kernel(&place.file).is_none_or(|file| file.starts_with("isolate/")))
        .filter(|place| in_kernel(&place.file).is_some())
        .collect();
    let words = || of_locks.iter().map(|place| last_word(&place.function));
    let waits = is_slow || words().any(|word| WAITS.contains(&word)) || file.starts_with("isolate/deadlock");
    let gives_back = |word: &str| {
        let behind = |begin: &str| {
            word.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        !WAITS.contains(&word) && RELEASES.iter().any(|begin| behind(begin))
    };
    let releases = words().any(gives_back);
    let is_local = of_locks
        .iter()
        .any(|place| in_kernel(&place.file).is_some_and(|file| file.starts_with("isolate/local/")));
    let part = match (waits, is_local) {
        (true, _) => Part::LockContention,
        (false, true) => Part::Engine,
        (false, false) => Part::LockManager,
    };
    let inside = match (releases, waits) {
        (false, false) => Inside::Acquire,
        (false, true) => Inside::AcquireContention,
        (true, false) => Inside::Release,
        (true, true) => Inside::ReleaseContention,
    };
    (part, Some(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place((function, file): (&str, &str)) -> Place {
        Place { function: function.to_owned(), file: file.to_owned() }
    }

    #[test]
    fn names_are_cut_to_their_last_word() {
        for (function, word) in [
            ("rialto::isolate::manager::LockManager::release_all", "release_all"),
            ("<rialto::isolate::LockManager as core::ops::Drop>::drop", "drop"),
            ("release_all_thin<rialto::store::Segments<u64>::Kind>", "release_all_thin"),
            ("rialto::isolate::local::release_locals::{{closure}}", "release_locals"),
            ("{closure#0}", "{closure#0}"),
            ("syscall", "syscall"),
        ] {
            assert_eq!(last_word(function), word);
        }
    }

    #[test]
    fn stacks_are_judged_by_the_first_file_of_the_kernel() {
        let manager =
            ("rialto::isolate::manager::LockManager::record", "/x/crates/rialto/src/isolate/manager.rs");
        let release = ("release_all", "crates/rialto/src/isolate/manager.rs");
        let local = ("rialto::isolate::local::LockManager::local", "crates/rialto/src/isolate/local/mod.rs");
        let commit = ("rialto::txn::Context::commit", "crates/rialto/src/txn/commit.rs");
        let client = ("rialto_measure::driver::client::run", "crates/rialto-measure/src/driver/client.rs");
        let body = ("rialto_workloads::tpcb::flow::change", "crates/rialto-workloads/src/tpcb/flow.rs");
        let copy = ("__memmove_avx", "");
        let slow = ("lock_slow", "/r/parking_lot-0.12.5/src/raw_mutex.rs");
        let fast = ("lock", "/r/parking_lot-0.12.5/src/raw_mutex.rs");
        let park = ("park", "/r/parking_lot_core-0.9.12/src/parking_lot.rs");
        let engine =
            ("rialto::engine::data_oriented::inbox::push", "crates/rialto/src/engine/data_oriented/inbox.rs");
        for (stack, expected) in [
            (vec![copy, commit, client], (Part::Work, None)),
            (vec![copy, manager, commit, client], (Part::LockManager, Some(Inside::Acquire))),
            (vec![fast, manager, commit], (Part::LockManager, Some(Inside::Acquire))),
            (
                vec![("syscall", ""), park, slow, manager, commit],
                (Part::LockContention, Some(Inside::AcquireContention)),
            ),
            (vec![slow, release, commit], (Part::LockContention, Some(Inside::ReleaseContention))),
            (
                vec![copy, ("release", "crates/rialto/src/isolate/central/head.rs"), release, commit],
                (Part::LockManager, Some(Inside::Release)),
            ),
            (
                vec![park, ("sleep", "crates/rialto/src/isolate/manager.rs"), manager],
                (Part::LockContention, Some(Inside::AcquireContention)),
            ),
            (vec![copy, local, commit], (Part::Engine, Some(Inside::Acquire))),
            (vec![slow, local, commit], (Part::LockContention, Some(Inside::AcquireContention))),
            (
                vec![("wait", "crates/rialto/src/isolate/local/executor.rs"), local],
                (Part::LockContention, Some(Inside::AcquireContention)),
            ),
            (
                vec![
                    ("put_back", "crates/rialto/src/isolate/local/executor.rs"),
                    ("end_lease", "crates/rialto/src/isolate/local/lease.rs"),
                    commit,
                ],
                (Part::Engine, Some(Inside::Release)),
            ),
            (
                vec![("ends_behind", "crates/rialto/src/isolate/local/span.rs"), local],
                (Part::Engine, Some(Inside::Acquire)),
            ),
            (vec![("run_on", "crates/rialto/src/engine/conventional.rs"), client], (Part::Engine, None)),
            (
                vec![copy, body, ("run_on", "crates/rialto/src/engine/conventional.rs"), client],
                (Part::Work, None),
            ),
            (vec![engine, client], (Part::Engine, None)),
            (vec![("run_once", "crates/rialto/src/engine/run.rs"), client], (Part::Work, None)),
            (vec![park, engine, client], (Part::Engine, None)),
            (vec![park, ("wait", "crates/rialto/src/log/turn.rs"), commit], (Part::OtherContention, None)),
            (
                vec![("__GI_sched_yield", ""), ("pause", "crates/rialto/src/store/tree/latch.rs"), commit],
                (Part::OtherContention, None),
            ),
            (vec![client], (Part::Work, None)),
            (vec![], (Part::Work, None)),
        ] {
            let places: Vec<_> = stack.into_iter().map(place).collect();
            assert_eq!(judge(&places), expected, "{places:?}");
        }
    }

    #[test]
    fn shares_add_up() {
        let split = Split { parts: [6, 1, 0, 2, 1], inside: [2, 1, 0, 1] };
        assert_eq!(split.samples(), 10);
        assert_eq!(split.shares(), [60.0, 10.0, 0.0, 20.0, 10.0]);
        assert_eq!(split.inside_shares(), [50.0, 25.0, 0.0, 25.0]);
        assert_eq!(Split::default().shares().iter().sum::<f64>(), 0.0);
    }
}

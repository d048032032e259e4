use super::*;
use crate::log::GroupCommitDesign::{self, *};

fn us(us: u64) -> Option<Duration> {
    Some(Duration::from_micros(us))
}

fn regime(name: &str) -> &'static Regime {
    REGIMES.iter().find(|regime| regime.name == name).expect("it is one of them")
}

/// Blocking clients, after a warm-up of half as many commits.
fn load(clients: u32, commits: u64) -> Load {
    Load { clients, in_flight: 1, warmup_commits: commits / 2, commits, seed: 1, patience: &[], polls: None }
}

/// Every way to set a design, around the time of a log write.
fn settings(design: GroupCommitDesign, write: Duration) -> Vec<GroupCommitOptions> {
    let options = GroupCommitOptions::from(design);
    let tenths = |tenths: &[u32]| -> Vec<Option<Duration>> {
        tenths.iter().map(|tenths| Some(write * *tenths / 10)).collect()
    };
    match design {
        CommitStall | HiberStall => tenths(&[3, 6, 9, 12, 15])
            .into_iter()
            .map(|stall| GroupCommitOptions { stall, ..options })
            .collect(),
        WillingToWait | HiberWillingToWait => tenths(&[12, 15, 18, 21, 24, 27])
            .into_iter()
            .map(|willing_to_wait| GroupCommitOptions { willing_to_wait, ..options })
            .collect(),
        Hiber => tenths(&[0, 2, 5])
            .into_iter()
            .map(|wake_delay| GroupCommitOptions { wake_delay, ..options })
            .collect(),
        _ => vec![options],
    }
}

/// The most that a design commits in a second, over all its settings.
fn most(regime: &Regime, design: GroupCommitDesign, load: &Load) -> f64 {
    let per_second = |options: &GroupCommitOptions| simulate(regime, options, load).per_second();
    settings(design, regime.write).iter().map(per_second).fold(0.0, f64::max)
}

#[test]
fn with_50_servers_the_designs_are_in_the_order_of_the_paper() {
    let [lock, stall, wait, both] = [CommitLock, CommitStall, WillingToWait, HiberWillingToWait]
        .map(|design| most(regime("koda"), design, &load(50, 3_000)));
    // The adaptive design climbs first, for some hundred groups.
    let climb = Load { warmup_commits: 20_000, ..load(50, 3_000) };
    let adaptive = most(regime("koda"), Adaptive, &climb);
    let found = format!("{lock:.0}, {stall:.0}, {wait:.0}, combined {both:.0}, adaptive {adaptive:.0}");
    // The model is fitted to the paper's.
    for (found_here, paper) in [(lock, 300.0), (stall, 464.0), (wait, 500.0)] {
        assert!((found_here / paper - 1.0).abs() < 0.05, "{paper} in the paper: {found}");
    }
    assert!(lock < stall && stall < wait, "{found}");
    assert!(both >= 0.99 * wait && adaptive >= 0.99 * wait, "{found}");
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    for design in GroupCommitDesign::ALL {
        let once = simulate(regime("koda"), &design.into(), &load(20, 400));
        assert_eq!(once, simulate(regime("koda"), &design.into(), &load(20, 400)), "{design}");
        let other = simulate(regime("koda"), &design.into(), &Load { seed: 2, ..load(20, 400) });
        assert_ne!(once.responses, other.responses, "{design}");
    }
}

#[test]
fn a_commit_of_a_blocked_committer_is_worth_one_wake_call_at_most() {
    for design in GroupCommitDesign::ALL {
        for (name, clients) in [("koda", 24), ("ssd-30us", 6), ("ssd-1ms", 40)] {
            let commits = 1_500;
            let outcome = simulate(regime(name), &design.into(), &load(clients, commits));
            // A requester that is granted the lock in shared mode, and is not committed, requests it again and is
            // granted it again.
            let most = if design == CommitLockShared { 2 } else { 1 };
            // The window's ends may cut a group off its wake calls.
            let cut = u64::from(clients) * most;
            let wakes = outcome.waits.wakes;
            assert!(
                wakes <= most * commits + cut,
                "{design}, {name}: {wakes} wake calls for {commits} commits"
            );
            let sizes: u64 = outcome.group_sizes.iter().sum();
            assert_eq!(sizes, outcome.groups, "{design}, {name}");
        }
    }
}

#[test]
fn tickets_cost_a_few_wake_calls_a_group_however_many_there_are() {
    for design in GroupCommitDesign::ALL {
        let load = Load { in_flight: 500, warmup_commits: 2_000, ..load(2, 10_000) };
        let outcome = simulate(regime("ssd-100us"), &design.into(), &load);
        let Waits { wakes, .. } = outcome.waits;
        // For each group there may be one call for each of the two clients that wait for their oldest, and one for the
        // log server.
        assert!(wakes <= 3 * outcome.groups + 3, "{design}: {wakes} for {} groups", outcome.groups);
        assert!(outcome.groups * 20 < outcome.commits, "{design}: {} groups", outcome.groups);
    }
}

#[test]
fn tickets_without_waiters_wake_no_thread_but_their_writer() {
    for design in GroupCommitDesign::ALL {
        let polls = us(20);
        let load = Load { in_flight: 500, warmup_commits: 2_000, polls, ..load(2, 10_000) };
        let outcome = simulate(regime("ssd-100us"), &design.into(), &load);
        let Waits { wakes, woken, .. } = outcome.waits;
        // The stand-in is woken if it has slept since its last group. The window's ends may cut a group off its call.
        assert!(wakes <= outcome.groups + 1, "{design}: {wakes} wake calls for {} groups", outcome.groups);
        assert!(woken <= wakes, "{design}: {woken} threads woken by {wakes} calls");
        let Waits { groups_by_committers, .. } = outcome.waits;
        assert_eq!(groups_by_committers, 0, "{design}: no client waits");
    }
}

/// A group's wake call wakes every thread that sleeps until that group is written: the committers that it serves and,
/// with a bound for groups, those that the bound has left out.
#[test]
fn a_commit_wakes_one_thread_unless_a_bound_leaves_committers_out_of_their_group() {
    let (clients, commits) = (256, 3_000);
    let bounded = regime("koda");
    let unbounded = Regime { group_max: None, ..*bounded };
    for design in [Hiber, HiberStall, HiberWillingToWait, LogServer, Adaptive] {
        let [free, left_out] = [&unbounded, bounded].map(|regime| {
            let LoadOutcome { waits, groups, .. } = simulate(regime, &design.into(), &load(clients, commits));
            println!(
                "{design}, {clients} clients, groups of at most {:?}: {:.2} threads woken a commit by {:.2} calls a group",
                regime.group_max,
                waits.woken as f64 / commits as f64,
                waits.wakes as f64 / groups as f64
            );
            (waits, groups)
        });
        // The committers that the group serves, and for each group the thread that writes it. The window's ends may cut
        // a group off its call.
        let (waits, groups) = free;
        let most = commits + groups + u64::from(clients);
        assert!(waits.woken <= most, "{design}: {} threads woken for {commits} commits", waits.woken);
        // At most every committer, and for each group the thread that writes it.
        let (waits, groups) = left_out;
        let most = (groups + 1) * u64::from(clients + 1);
        assert!(waits.woken <= most, "{design}: {} threads woken by {groups} groups", waits.woken);
    }
}

const fn willing(wait: u64) -> Patience {
    let wait = Some(Duration::from_micros(wait));
    Patience { began: None, stall: wait, willing_to_wait: wait }
}

/// Clients of very different waits share groups. No commit takes longer than its own wait and what cannot be avoided: a
/// group that was begun before its packet came, and its own group. Where a design knows no waits, they are none.
#[test]
fn a_transaction_whose_wait_is_over_is_never_left_behind() {
    const WAITS: [Patience; 4] = [willing(0), willing(2_000), willing(20_000), willing(100_000)];
    const CLIENTS: u32 = 8;
    // No client queues for a processor, and none is left out of a group that begins after its packet came.
    let regime = Regime {
        name: "waits",
        meaning: "a processor for each thread, log writes of 1 ms",
        processors: CLIENTS + 1,
        commit_cpu: Duration::from_micros(300),
        wake_cpu: Duration::from_micros(1),
        look_cpu: Duration::from_micros(1),
        resume_cpu: Duration::ZERO,
        group_cpu: Duration::ZERO,
        grant: Duration::from_micros(1),
        write: Duration::from_millis(1),
        group_max: None,
    };
    // From one group to the next: a wake call, the next committer's resumption, and with the commit lock a grant. All
    // this for each of the others before it is a committer's turn, twice where the lock is requested twice.
    let handing_over = Duration::from_micros(2 * 3 * u64::from(CLIENTS + 1));
    for design in GroupCommitDesign::ALL {
        for seed in 1..=3 {
            let load = Load { patience: &WAITS, seed, ..load(CLIENTS, 1_500) };
            let outcome = simulate(&regime, &design.into(), &load);
            for (client, longest) in outcome.longest_commits.iter().enumerate() {
                let own = WAITS[client % WAITS.len()].stall.expect("each has one");
                let wait = match design {
                    CommitLock | CommitLockShared | Hiber | LogServer => Duration::ZERO,
                    // The elected committer stalls, for all.
                    HiberStall => willing(100_000).stall.expect("it has one"),
                    CommitStall | WillingToWait | HiberWillingToWait | Adaptive => own,
                };
                let most = wait + 2 * regime.write + handing_over;
                assert!(
                    *longest <= most,
                    "{design}, seed {seed}: client {client}, whose wait is {own:?}, was in the queue for {longest:?}, \
                     expected at most {most:?}"
                );
                assert!(*longest >= regime.write, "{design}: client {client} committed without a log write");
            }
        }
    }
}

#[test]
fn a_lone_client_is_answered_as_by_an_immediate_flush() {
    for regime in &REGIMES {
        for design in [Hiber, LogServer, Adaptive] {
            let load = load(1, 300);
            let outcome = simulate(regime, &design.into(), &load);
            let mut random = Random::new(load.seed ^ 1 << 32);
            let mut expected: Vec<Duration> = (0..=load.warmup_commits + load.commits)
                .map(|_| drawn(&mut random, regime.commit_cpu) + regime.write + regime.group_cpu)
                .skip(load.warmup_commits as usize + 1)
                .collect();
            expected.sort_unstable();
            // Virtual time is in whole nanoseconds.
            let near = |(found, expected): (&Duration, &Duration)| found.abs_diff(*expected).as_nanos() <= 1;
            assert!(outcome.responses.len() == expected.len(), "{design}, {}", regime.name);
            assert!(
                outcome.responses.iter().zip(&expected).all(near),
                "{design}, {}: {:?}, expected {:?}",
                regime.name,
                &outcome.responses[..3],
                &expected[..3]
            );
        }
    }
}

#[test]
fn adaptive_needs_no_setting_to_be_near_the_best_of_the_others() {
    for (name, clients) in [("koda", 8), ("koda", 64), ("ssd-30us", 16), ("ssd-100us", 2), ("ssd-1ms", 32)] {
        let regime = regime(name);
        let commits = 60 * u64::from(clients).max(20);
        let (best, best_design) = GroupCommitDesign::ALL
            .into_iter()
            .filter(|design| *design != Adaptive)
            .map(|design| (most(regime, design, &load(clients, commits)), design))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .expect("there are others");
        // It climbs first.
        let climb = Load { warmup_commits: 600 * u64::from(clients), ..load(clients, 3 * commits) };
        let adaptive = simulate(regime, &Adaptive.into(), &climb).per_second();
        let ratio = adaptive / best;
        assert!(
            ratio >= 0.95,
            "{name}, {clients} clients: {adaptive:.0}, {ratio:.3} of {best_design}'s {best:.0}"
        );
    }
}

#[test]
fn a_design_that_waits_says_what_it_spent() {
    let options = GroupCommitOptions { stall: us(20_000), ..CommitStall.into() };
    let outcome = simulate(regime("koda"), &options, &load(30, 1_000));
    let Waits { stalls, stalled_ns, self_wakes, .. } = outcome.waits;
    // A thread that stalls is woken only by itself. If no processor is free, its stall ends later.
    assert!(stalls > 0 && self_wakes == stalls, "{outcome:?}");
    assert!(stalled_ns / stalls >= 20_000_000, "{} ns a stall", stalled_ns / stalls);
    let hiber = simulate(regime("koda"), &Hiber.into(), &load(30, 1_000));
    assert_eq!((hiber.waits.stalls, hiber.waits.self_wakes), (0, 0));
}

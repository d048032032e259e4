use super::*;
use crate::log::GroupCommitDesign;

fn ms(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}

fn koda() -> Regime {
    REGIMES[0]
}

fn load(clients: u32, commits: u64) -> Load {
    Load { clients, in_flight: 1, warmup_commits: commits / 2, commits, seed: 1 }
}

#[test]
fn explore() {
    use GroupCommitDesign::*;
    let run = |regime: &Regime, options: GroupCommitOptions, clients: u32, commits: u64| {
        let outcome = simulate(regime, &options, &load(clients, commits));
        eprintln!(
            "{:10} {:3} clients {:50} {:9.0}/s cpu {:3.0}% p50 {:?} group {:.1} max {} wakes {:.2} self {:.2}",
            regime.name,
            clients,
            options.to_string(),
            outcome.per_second(),
            outcome.processors_busy * 100.0,
            outcome.responses[outcome.responses.len() / 2],
            outcome.commits as f64 / outcome.groups as f64,
            outcome.group_max,
            outcome.waits.wakes as f64 / outcome.commits as f64 / 1.5,
            outcome.waits.self_wakes as f64 / outcome.commits as f64 / 1.5,
        );
    };
    for design in [CommitLock, CommitLockShared, Hiber, LogServer, Adaptive] {
        run(&koda(), design.into(), 50, 4000);
    }
    for stall in [10, 20, 30, 40, 60] {
        run(&koda(), GroupCommitOptions { stall: ms(stall), ..CommitStall.into() }, 50, 4000);
    }
    for wtw in [40, 50, 60, 70, 80, 90] {
        run(&koda(), GroupCommitOptions { willing_to_wait: ms(wtw), ..WillingToWait.into() }, 50, 4000);
        run(&koda(), GroupCommitOptions { willing_to_wait: ms(wtw), ..HiberWillingToWait.into() }, 50, 4000);
    }
    for clients in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        for design in [Hiber, LogServer, Adaptive] {
            run(&koda(), design.into(), clients, 600 * clients as u64);
            run(&REGIMES[1], design.into(), clients, 600 * clients as u64);
        }
    }
}

//! Limits that are known in closed form, and what each run must keep.

use super::life::Life;
use super::outcome::Simulated;
use super::service::Service;
use super::setup::{Arrivals, Costs, Machines, Setup, Wire};
use super::simulate;
use crate::spec::Protocol;

/// A node with a core and a client, whose transactions take 10 us; switches cost nothing.
fn one_node() -> Setup {
    Setup {
        nodes: 1,
        clients: 1,
        remote_pct: 0,
        arrivals: Arrivals::Closed,
        machines: Machines::One { cores: 1 },
        available: 1.0,
        wire: Wire::default(),
        message_bytes: 160.0,
        beats_per_s: 0.0,
        costs: Costs {
            local: Service::Constant(10.0),
            between_us: 0.0,
            remote_us: 40.0,
            switch_us: 0.0,
            idle_us: 0.0,
            cold_us: 0.0,
        },
        local: Life::local(Protocol::AsPaper),
        remote: Life::remote(Protocol::AsPaper),
        slice_us: 1_000.0,
        warmup_s: 0.1,
        window_s: 1.0,
        seed: 1,
    }
}

/// Several nodes with cores of their own, all of whose transactions are remote; switches cost something.
fn remote(nodes: u32, cores: usize) -> Setup {
    let one = one_node();
    Setup {
        nodes,
        remote_pct: 100,
        machines: Machines::Each { cores },
        costs: Costs { switch_us: 5.0, idle_us: 9.0, cold_us: 2.0, ..one.costs },
        ..one
    }
}

fn run(setup: &Setup) -> Simulated {
    simulate(setup).unwrap()
}

#[track_caller]
fn assert_near(found: f64, expected: f64, pct: f64, what: &str) {
    let off = (found / expected - 1.0).abs() * 100.0;
    assert!(off <= pct, "{what}: {found}, {expected} expected, {off:.1}% off");
}

#[test]
fn without_remote_transactions_throughput_is_cores_by_cost_and_no_more() {
    for (clients, cores, used) in [(1, 1, 1.0), (1, 4, 1.0), (2, 4, 2.0), (4, 4, 4.0), (9, 4, 4.0)] {
        let simulated = run(&Setup { clients, machines: Machines::One { cores }, ..one_node() });
        let what = format!("{clients} clients on {cores} cores");
        assert_near(simulated.per_s(), used * 1e5, 0.1, &what);
        assert_near(simulated.cpu_us_per_txn(), 10.0, 0.1, &what);
        // Each client has one transaction at a time (Little's law).
        assert_near(simulated.mean_us(), f64::from(clients) / used * 10.0, 1.0, &what);
        assert_eq!(simulated.messages, 0);
    }
}

#[test]
fn what_a_client_does_between_two_transactions_takes_time_and_is_in_no_response_time() {
    let simulated = run(&Setup { costs: Costs { between_us: 2.5, ..base_costs() }, ..one_node() });
    assert_near(simulated.per_s(), 1e6 / 12.5, 0.1, "throughput");
    assert_near(simulated.cpu_us_per_txn(), 12.5, 0.1, "processor time");
    assert_near(simulated.mean_us(), 10.0, 0.1, "response time");
}

#[test]
fn a_transaction_that_meets_no_other_takes_its_service_time() {
    let base = one_node();
    let simulated = run(&Setup { arrivals: Arrivals::PerNode(50.0), window_s: 20.0, ..base });
    assert_near(simulated.mean_us(), 10.0, 1.0, "at a low rate");
    // One client of two nodes: its steps, and a switch on an idle core for each of the four threads that are woken.
    let alone = remote(2, 4);
    let simulated = run(&Setup {
        arrivals: Arrivals::PerNode(50.0),
        window_s: 20.0,
        wire: Wire { delay_us: 100.0, mbit: None },
        ..alone
    });
    // The client's own start, and those of the reader, the worker, the reader and the client; two messages.
    assert_near(simulated.mean_us(), 40.0 + 5.0 * 9.0 + 2.0 * 100.0, 1.0, "over two nodes");
}

#[test]
fn a_queue_with_random_arrivals_and_service_waits_as_theory_has_it() {
    for load in [0.3, 0.6, 0.8] {
        let base = one_node();
        let setup = Setup {
            arrivals: Arrivals::PerNode(load * 1e5),
            costs: Costs { local: Service::Exponential(10.0), ..base.costs.clone() },
            warmup_s: 1.0,
            window_s: 40.0,
            ..base
        };
        let simulated = run(&setup);
        assert_near(simulated.mean_us(), 10.0 / (1.0 - load), 5.0, &format!("M/M/1 at {load}"));
        assert_near(simulated.utilization(), load, 2.0, "utilization");
        // Of constant service, half of the wait.
        let constant = run(&Setup { costs: base_costs(), ..setup });
        let expected = 10.0 + 10.0 * load / (1.0 - load) / 2.0;
        assert_near(constant.mean_us(), expected, 5.0, &format!("M/D/1 at {load}"));
    }
}

fn base_costs() -> Costs {
    one_node().costs
}

#[test]
fn transactions_are_neither_lost_nor_made() {
    for setup in [
        remote(5, 2),
        Setup { machines: Machines::One { cores: 2 }, clients: 3, remote_pct: 40, ..remote(6, 2) },
        Setup { arrivals: Arrivals::PerNode(3_000.0), clients: 2, ..remote(4, 1) },
        Setup {
            local: Life::local(Protocol::Atomic),
            remote: Life::remote(Protocol::Atomic),
            remote_pct: 15,
            clients: 2,
            ..remote(3, 2)
        },
    ] {
        let simulated = run(&setup);
        assert!(simulated.answered > 1_000, "{simulated:?}");
        assert_eq!(simulated.begun, simulated.answered + simulated.unanswered, "{setup:?}");
        let at_once = u64::from(setup.nodes * setup.clients);
        assert!(simulated.unanswered <= at_once, "a client has one transaction at a time: {simulated:?}");
        assert!(simulated.utilization() <= 1.0 + 1e-9, "{}", simulated.utilization());
    }
}

#[test]
fn processor_time_is_what_was_counted_times_what_it_costs() {
    let setup = Setup { machines: Machines::One { cores: 2 }, remote_pct: 30, clients: 2, ..remote(4, 2) };
    let simulated = run(&setup);
    let counts = simulated.per_transaction();
    let Costs { local, remote_us, switch_us, idle_us, cold_us, .. } = &setup.costs;
    let expected = counts.local * local.mean_us()
        + counts.remote * remote_us
        + counts.queued * switch_us
        + counts.idle * idle_us
        + counts.cold * cold_us;
    assert!(counts.queued > 0.0 && counts.cold > 0.0 && counts.remote > 0.2, "{counts:?}");
    assert_near(simulated.cpu_us_per_txn(), expected, 1.0, "processor time");
}

#[test]
fn a_remote_transaction_has_two_messages_and_no_link_carries_more_than_its_bandwidth() {
    let simulated = run(&remote(4, 2));
    assert_near(simulated.messages as f64, 2.0 * simulated.committed() as f64, 1.0, "messages");
    // 8 Mbit/s are 6,250 messages of 160 bytes a second from each node, of which a transaction takes two in all.
    let narrow = Setup { wire: Wire { delay_us: 0.0, mbit: Some(8.0) }, clients: 16, ..remote(4, 4) };
    let simulated = run(&narrow);
    assert_near(simulated.per_s(), 4.0 * 6_250.0 / 2.0, 3.0, "transactions of a narrow network");
}

#[test]
fn a_machine_whose_time_others_take_is_as_much_slower_once_it_is_used_up() {
    let half = Setup { available: 0.5, ..one_node() };
    assert_near(run(&half).per_s(), 5e4, 0.1, "half of a core");
    assert_near(run(&half).mean_us(), 20.0, 1.0, "half of a core");
    let idle = Setup { machines: Machines::One { cores: 2 }, ..half };
    assert_near(run(&idle).per_s(), 1e5, 0.1, "others take the core that is idle");
}

#[test]
fn messages_for_no_transaction_take_time_that_grows_with_the_nodes() {
    let beats = |nodes| {
        let quiet = Setup { beats_per_s: 20.0, arrivals: Arrivals::PerNode(1.0), ..remote(nodes, 1) };
        let simulated = run(&Setup { window_s: 2.0, ..quiet });
        (simulated.messages as f64, simulated.busy_us)
    };
    let ((few, few_us), (many, many_us)) = (beats(3), beats(30));
    // Six links, and 870.
    assert_near(few, 2.0 * 20.0 * 6.0, 15.0, "messages of 3 nodes");
    assert_near(many, 2.0 * 20.0 * 870.0, 5.0, "messages of 30 nodes");
    assert!(many_us > 50.0 * few_us, "{few_us} us, {many_us} us");
}

/// What must be the same in two runs.
fn figures(simulated: &Simulated) -> (u64, u64, u64, u64, u64, String) {
    let Simulated { begun, queued, idle, pulled, messages, .. } = *simulated;
    (
        begun,
        queued,
        idle,
        pulled,
        messages,
        format!("{:?}", (simulated.mean_us(), simulated.p99_us(), simulated.busy_us)),
    )
}

#[test]
fn a_run_depends_on_its_setup_and_its_seed_alone() {
    let setup =
        Setup { remote_pct: 15, machines: Machines::One { cores: 2 }, beats_per_s: 8.0, ..remote(8, 2) };
    let first = figures(&run(&setup));
    assert_eq!(first, figures(&run(&setup)));
    assert_ne!(first, figures(&run(&Setup { seed: 2, ..setup })), "another seed draws others");
}

#[test]
fn a_setup_that_makes_no_sense_is_refused_in_words() {
    let base = one_node();
    let refused = |setup: Setup, words: &str| {
        let why = simulate(&setup).unwrap_err();
        assert!(why.contains(words), "{why}");
    };
    refused(Setup { nodes: 0, ..base.clone() }, "0 nodes");
    refused(Setup { machines: Machines::Each { cores: 0 }, ..base.clone() }, "0 cores");
    refused(Setup { window_s: 0.0, ..base.clone() }, "0 s");
    refused(Setup { available: 1.5, ..base.clone() }, "1.5 of the machine");
    let free = Costs { local: Service::Constant(0.0), ..base.costs.clone() };
    refused(Setup { costs: free, ..base }, "more than nothing");
}

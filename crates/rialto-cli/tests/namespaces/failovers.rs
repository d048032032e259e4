//! Failovers under load. By hand, many of them: `.ci/failovers`.

use std::thread::sleep;
use std::time::Duration;

use rialto::io::Random;

use crate::bank::Bank;
use crate::cluster::{Cluster, NODES, number, partitions, promise};

/// How long money is transferred around one of them, in seconds: long enough for some promises.
fn load_s() -> f64 {
    1.5 + 4.0 * promise().as_secs_f64()
}

/// `RIALTO_FAILOVERS` of them, 10 unless told otherwise.
#[test]
fn failovers_under_load_lose_nothing() {
    let Some(mut cluster) = Cluster::start("namespaces-failovers", |_| ()) else { return };
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let mut random = Random::new(seed);
    for nth in 0..number("RIALTO_FAILOVERS", 10) {
        let level = ["standby", "disk"][random.below(2) as usize];
        let bank = Bank::begin(&cluster, level, load_s());
        sleep(Duration::from_millis(700 + random.below(500)));
        let partition = random.below(3) as usize;
        let node = cluster.primary(partition);
        cluster.kill_node(node);
        cluster.wait("another one leads", |status| {
            partitions(status)[partition]["primary"] != NODES[node]
                && partitions(status)[partition]["serves"] == true
        });
        let found = bank.judge(&format!("failover {nth}, level {level}, RIALTO_SEED={seed}"));
        println!(
            "failover {nth}: committed={} unknown={} longest_pause_ms={:.0}",
            found.committed, found.unknown, found.longest_pause_ms
        );
        assert!(found.committed > 0, "{found:?}");
        cluster.start_node(node);
        cluster.wait_until_whole();
    }
}

/// The same number of planned changes of a primary, of which clients notice only a pause.
#[test]
fn planned_changes_under_load_lose_nothing() {
    let Some(cluster) = Cluster::start("namespaces-planned", |_| ()) else { return };
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let mut random = Random::new(seed);
    for nth in 0..number("RIALTO_FAILOVERS", 10).div_ceil(3) {
        let bank = Bank::begin(&cluster, "standby", load_s());
        sleep(Duration::from_millis(700 + random.below(500)));
        let partition = random.below(3) as usize;
        let status = cluster.wait_until_whole();
        let of = &partitions(&status)[partition];
        let members = of["in_sync"].as_array().expect("a list");
        let to = members.iter().find(|member| **member != of["primary"]).and_then(|name| name.as_str());
        let (to, name) = (to.expect("a standby"), partition.to_string());
        let moved = cluster.command(&["switchover", "--partition", &name, "--to", to]);
        let found = bank.judge(&format!("planned change {nth}, RIALTO_SEED={seed}"));
        assert!(moved.status.success(), "{}", crate::common::text(&moved));
        println!(
            "planned change {nth}: committed={} unknown={} longest_pause_ms={:.0}",
            found.committed, found.unknown, found.longest_pause_ms
        );
        cluster.wait_until_whole();
    }
}

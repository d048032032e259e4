//! The life of a database and of a follower, over the ends of their processes and machines.

use super::bases::*;
use super::*;

#[test]
fn a_life_ends_with_the_memory_that_the_log_lies_in() {
    for seed in 0..16 {
        let mut random = Random::new(seed);
        let mut faulty = FaultyDisk::new(seed);
        let (_disk, primary) = primary_and_copy(&options(), faulty.clone(), with_a_row);
        let is_follower = random.chance(1, 2);
        let mut last: Option<(u64, Lsn, End)> = None;
        let mut lives = std::collections::BTreeSet::new();
        for _ in 0..6 {
            let opened = match is_follower {
                true => Opened::Follower(Follower::open_on(faulty.clone(), driven()).unwrap()),
                false => Opened::Database(Database::open_on(faulty.clone(), in_memory(driven())).unwrap()),
            };
            match last {
                Some((life, place, end @ (End::Close | End::Kill))) => {
                    assert_eq!(opened.life(), life, "after {end:?}, seed {seed}");
                    assert!(opened.place() >= place, "after {end:?}, seed {seed}");
                }
                _ => assert!(lives.insert(opened.life()), "a life comes again after {last:?}, seed {seed}"),
            }
            opened.work(&primary);
            let end = [End::Close, End::Kill, End::Crash, End::Remove][random.below(4) as usize];
            last = Some((opened.life(), opened.place(), end));
            faulty = opened.end(end, &faulty);
        }
    }
}

#[test]
fn a_follower_leads_with_the_life_with_which_it_has_followed() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), with_a_row);
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    assert_ne!(follower.life(), primary.life());
    let life = follower.life();
    let db = follower.lead(SOON).unwrap();
    assert_eq!(db.life(), life);
    db.close().unwrap();
    drop(follower);
    assert_eq!(Database::open_on(to, options()).unwrap().life(), life);
}

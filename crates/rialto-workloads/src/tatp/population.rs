//! What every subscriber is loaded with, by the specification's population rules.
//!
//! All of it follows from the subscriber's identifier. So what no transaction changes can be verified after a run, row by
//! row, without a copy.

use rialto::io::Random;

use super::request::{BYTE_VALUES, Forwarding, LOCATION_MAX, Number, START_TIMES, TYPES};

/// Which rules these are: data of others is not verified by these.
pub(super) const VERSION: u32 = 1;
const SEED: u64 = 0x7a79_5461_7470_0001;

/// The bits, half bytes and bytes of a subscriber: 10 of each.
pub(super) const PER_SUBSCRIBER: usize = 10;
/// Half bytes are below this.
pub(super) const HEX_VALUES: u64 = 16;
/// Percent of special facilities that are active.
const ACTIVE_PERCENT: u64 = 85;
/// The longest that a forwarding is loaded with, in hours.
const HOURS_MAX: u64 = 8;

/// A subscriber's own row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Subscriber {
    pub bits: [bool; PER_SUBSCRIBER],
    pub hexes: [i16; PER_SUBSCRIBER],
    pub bytes: [i16; PER_SUBSCRIBER],
    pub msc_location: i64,
    pub vlr_location: i64,
}

/// A row of access data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub ai_type: i16,
    pub data1: i16,
    pub data2: i16,
    pub data3: [u8; 3],
    pub data4: [u8; 5],
}

/// A special facility.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facility {
    pub sf_type: i16,
    pub is_active: bool,
    pub error_cntrl: i16,
    pub data_a: i16,
    pub data_b: [u8; 5],
}

/// A subscriber with all that belongs to it, each in the order of its keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Family {
    pub s_id: i32,
    pub subscriber: Subscriber,
    pub access: Vec<Access>,
    pub facilities: Vec<Facility>,
    pub forwardings: Vec<Forwarding>,
}

fn letters<const N: usize>(random: &mut Random) -> [u8; N] {
    [(); N].map(|()| b'A' + random.below(26) as u8)
}

fn byte(random: &mut Random) -> i16 {
    random.below(BYTE_VALUES) as i16
}

/// So many of all, chosen at random, in order.
fn some_of<const N: usize>(count: u64, mut all: [i16; N], random: &mut Random) -> Vec<i16> {
    random.shuffle(&mut all);
    let mut chosen = all[..count as usize].to_vec();
    chosen.sort_unstable();
    chosen
}

impl Family {
    /// The one of a subscriber.
    pub fn of(s_id: i32) -> Family {
        let mut random = Random::new(SEED ^ (s_id as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let random = &mut random;
        let location = |random: &mut Random| random.below(LOCATION_MAX) as i64 + 1;
        let subscriber = Subscriber {
            bits: [(); PER_SUBSCRIBER].map(|()| random.chance(1, 2)),
            hexes: [(); PER_SUBSCRIBER].map(|()| random.below(HEX_VALUES) as i16),
            bytes: [(); PER_SUBSCRIBER].map(|()| byte(random)),
            msc_location: location(random),
            vlr_location: location(random),
        };
        // One to four kinds, each number as likely.
        let kinds = |random: &mut Random| some_of(random.below(TYPES) + 1, [1, 2, 3, 4], random);
        let access = kinds(random).into_iter().map(|ai_type| Access {
            ai_type,
            data1: byte(random),
            data2: byte(random),
            data3: letters(random),
            data4: letters(random),
        });
        let access = access.collect();
        let facilities = kinds(random).into_iter().map(|sf_type| Facility {
            sf_type,
            is_active: random.chance(ACTIVE_PERCENT, 100),
            error_cntrl: byte(random),
            data_a: byte(random),
            data_b: letters(random),
        });
        let facilities: Vec<Facility> = facilities.collect();
        let mut forwardings = Vec::new();
        for facility in &facilities {
            // None to three.
            let count = random.below(START_TIMES.len() as u64 + 1);
            for start_time in some_of(count, START_TIMES, random) {
                forwardings.push(Forwarding {
                    sf_type: facility.sf_type,
                    start_time,
                    end_time: start_time + random.below(HOURS_MAX) as i16 + 1,
                    numberx: Number::random(random),
                });
            }
        }
        Family { s_id, subscriber, access, facilities, forwardings }
    }

    /// Whether there is such a facility.
    pub fn has(&self, sf_type: i16) -> bool {
        self.facilities.iter().any(|facility| facility.sf_type == sf_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_population_follows_the_rules_and_is_the_same_again() {
        const SUBSCRIBERS: i32 = 20_000;
        let near = |found: usize, percent: f64, of: usize, what: &str| {
            let expected = percent / 100.0 * of as f64;
            assert!((found as f64 - expected).abs() < 6.0 * expected.sqrt(), "{what}: {found} of {of}");
        };
        let (mut access, mut facilities, mut kinds, mut active) = ([0; 5], [0; 5], [0; 5], 0);
        let (mut forwardings, mut starts, mut all, mut ones) = ([0; 4], [0; 3], 0, 0);
        for s_id in 1..=SUBSCRIBERS {
            let family = Family::of(s_id);
            access[family.access.len()] += 1;
            facilities[family.facilities.len()] += 1;
            ones += family.subscriber.bits.iter().filter(|bit| **bit).count();
            let subscriber = family.subscriber;
            assert!(subscriber.hexes.iter().all(|hex| (0..16).contains(hex)));
            assert!(subscriber.bytes.iter().all(|byte| (0..256).contains(byte)));
            assert!(subscriber.msc_location > 0 && subscriber.vlr_location <= 0xffff_ffff);
            for pair in family.access.windows(2) {
                assert!(pair[0].ai_type < pair[1].ai_type, "{family:?}");
            }
            for one in &family.access {
                assert!((1..=4).contains(&one.ai_type) && one.data4.iter().all(u8::is_ascii_uppercase));
            }
            for facility in &family.facilities {
                all += 1;
                kinds[facility.sf_type as usize] += 1;
                active += usize::from(facility.is_active);
                let own: Vec<_> =
                    family.forwardings.iter().filter(|own| own.sf_type == facility.sf_type).collect();
                forwardings[own.len()] += 1;
                for one in &own {
                    starts[START_TIMES.iter().position(|start| *start == one.start_time).unwrap()] += 1;
                    assert!((1..=8).contains(&(one.end_time - one.start_time)), "{one:?}");
                }
                assert!(own.windows(2).all(|pair| pair[0].start_time < pair[1].start_time), "{own:?}");
            }
        }
        for count in 1..=4 {
            near(access[count], 25.0, SUBSCRIBERS as usize, "subscribers by access data");
            near(facilities[count], 25.0, SUBSCRIBERS as usize, "subscribers by facilities");
            near(kinds[count], 62.5, SUBSCRIBERS as usize, "facilities of a type");
        }
        near(active, 85.0, all, "active facilities");
        forwardings.into_iter().for_each(|count| near(count, 25.0, all, "facilities by forwardings"));
        starts.into_iter().for_each(|count| near(count, 50.0, all, "forwardings of a start"));
        near(ones, 50.0, SUBSCRIBERS as usize * PER_SUBSCRIBER, "bits");
        let (one, again) = (Family::of(77), Family::of(77));
        assert_eq!(format!("{one:?}"), format!("{again:?}"));
        assert_ne!(one.subscriber, Family::of(78).subscriber);
    }
}

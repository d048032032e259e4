//! Requests, with their arguments, and responses.

use std::fmt;

use rialto::io::Random;

use super::tables::Shape;
use crate::mix::Names;

/// The name of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Reads a subscriber.
    GetSubscriberData,
    /// Reads where a subscriber's calls go.
    GetNewDestination,
    /// Reads access data.
    GetAccessData,
    /// Sets a bit of a subscriber and a byte of a special facility.
    UpdateSubscriberData,
    /// Sets where a subscriber is.
    UpdateLocation,
    /// Inserts a call forwarding.
    InsertCallForwarding,
    /// Deletes one.
    DeleteCallForwarding,
}

impl Name {
    /// How many there are.
    pub const COUNT: usize = 7;
    /// All, in the specification's order.
    pub const ALL: [Name; Name::COUNT] = [
        Name::GetSubscriberData,
        Name::GetNewDestination,
        Name::GetAccessData,
        Name::UpdateSubscriberData,
        Name::UpdateLocation,
        Name::InsertCallForwarding,
        Name::DeleteCallForwarding,
    ];
    /// Their names, in this order.
    pub const NAMES: [&str; Name::COUNT] = [
        "GetSubscriberData",
        "GetNewDestination",
        "GetAccessData",
        "UpdateSubscriberData",
        "UpdateLocation",
        "InsertCallForwarding",
        "DeleteCallForwarding",
    ];
    /// How many of a hundred succeed, as the specification has it.
    pub const SUCCESS_PERCENT: [f64; Name::COUNT] = [100.0, 23.9, 62.5, 62.5, 100.0, 31.25, 31.25];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        Name::NAMES[self as usize]
    }

    /// Whether it writes nothing.
    pub fn only_reads(self) -> bool {
        matches!(self, Name::GetSubscriberData | Name::GetNewDestination | Name::GetAccessData)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Names for Name {
    const ALL: &'static [Name] = &Name::ALL;
    const PERCENT: &'static [u32] = &[35, 10, 35, 2, 14, 2, 2];

    #[inline]
    fn position(self) -> usize {
        self as usize
    }
}

/// The digits of a number.
pub const NUMBER_DIGITS: usize = 15;

/// A telephone number: 15 digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Number([u8; NUMBER_DIGITS]);

impl Number {
    /// The number of a subscriber: its identifier with zeros before it.
    #[inline]
    pub fn of(s_id: i32) -> Number {
        Number::from_value(u64::from(s_id.unsigned_abs()))
    }

    /// Any, each as likely.
    pub fn random(random: &mut Random) -> Number {
        Number::from_value(random.below(10u64.pow(NUMBER_DIGITS as u32)))
    }

    #[inline]
    fn from_value(mut value: u64) -> Number {
        let mut digits = [b'0'; NUMBER_DIGITS];
        for digit in digits.iter_mut().rev() {
            if value == 0 {
                break;
            }
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
        }
        Number(digits)
    }

    /// A text that is one.
    pub fn parse(text: &str) -> Option<Number> {
        let digits: [u8; NUMBER_DIGITS] = text.as_bytes().try_into().ok()?;
        digits.iter().all(u8::is_ascii_digit).then_some(Number(digits))
    }

    /// As it is written.
    #[inline]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits")
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A transaction's arguments: all that it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// [`Name::GetSubscriberData`].
    GetSubscriberData {
        /// The subscriber.
        s_id: i32,
    },
    /// [`Name::GetNewDestination`].
    GetNewDestination {
        /// The subscriber.
        s_id: i32,
        /// The special facility.
        sf_type: i16,
        /// Forwardings count that begin at this hour or before it.
        start_time: i16,
        /// And that end after this hour.
        end_time: i16,
    },
    /// [`Name::GetAccessData`].
    GetAccessData {
        /// The subscriber.
        s_id: i32,
        /// The kind of access.
        ai_type: i16,
    },
    /// [`Name::UpdateSubscriberData`].
    UpdateSubscriberData {
        /// The subscriber.
        s_id: i32,
        /// The special facility.
        sf_type: i16,
        /// The subscriber's first bit from now on.
        bit: bool,
        /// The facility's data from now on.
        data_a: i16,
    },
    /// [`Name::UpdateLocation`].
    UpdateLocation {
        /// The subscriber's number.
        sub_nbr: Number,
        /// Where it is from now on.
        vlr_location: i64,
    },
    /// [`Name::InsertCallForwarding`].
    InsertCallForwarding {
        /// The subscriber's number.
        sub_nbr: Number,
        /// The forwarding.
        forwarding: Forwarding,
    },
    /// [`Name::DeleteCallForwarding`].
    DeleteCallForwarding {
        /// The subscriber's number.
        sub_nbr: Number,
        /// The special facility.
        sf_type: i16,
        /// The hour at which the forwarding begins.
        start_time: i16,
    },
}

/// A call forwarding, of a subscriber that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// The special facility that it is of.
    pub sf_type: i16,
    /// The hour at which it begins: 0, 8 or 16.
    pub start_time: i16,
    /// The hour at which it ends.
    pub end_time: i16,
    /// Where calls go.
    pub numberx: Number,
}

/// The kinds of access data, and of special facilities: 1 to 4.
pub(super) const TYPES: u64 = 4;
/// Forwardings begin at midnight, at 8 or at 16 o'clock.
pub(super) const START_TIMES: [i16; 3] = [0, 8, 16];
/// The last hour at which one that is inserted ends.
pub(super) const END_TIME_MAX: i16 = 24;
/// Locations are from 1 to this.
pub(super) const LOCATION_MAX: u64 = u32::MAX as u64;
/// Bytes are below this.
pub(super) const BYTE_VALUES: u64 = 256;

/// A subscriber, chosen as the specification says: not each as likely. It takes the bits of two random numbers together,
/// so identifiers with many ones among their lower bits are asked for more often.
#[inline]
pub fn choose_subscriber(shape: Shape, random: &mut Random) -> i32 {
    let (a, count) = (shape.a(), u64::from(shape.subscribers));
    let (low, any) = (random.below(a + 1), random.below(count) + 1);
    // From x to y: (random(0, A) | random(x, y)) % (y - x + 1) + x.
    ((low | any) % count + 1) as i32
}

impl Request {
    /// The transaction that it is a request for.
    #[inline]
    pub fn name(&self) -> Name {
        match self {
            Request::GetSubscriberData { .. } => Name::GetSubscriberData,
            Request::GetNewDestination { .. } => Name::GetNewDestination,
            Request::GetAccessData { .. } => Name::GetAccessData,
            Request::UpdateSubscriberData { .. } => Name::UpdateSubscriberData,
            Request::UpdateLocation { .. } => Name::UpdateLocation,
            Request::InsertCallForwarding { .. } => Name::InsertCallForwarding,
            Request::DeleteCallForwarding { .. } => Name::DeleteCallForwarding,
        }
    }

    /// A request for this transaction, at random.
    #[inline]
    pub fn draw(name: Name, shape: Shape, random: &mut Random) -> Request {
        let s_id = choose_subscriber(shape, random);
        let kind = |random: &mut Random| random.below(TYPES) as i16 + 1;
        let start_time = |random: &mut Random| START_TIMES[random.below(START_TIMES.len() as u64) as usize];
        let end_time = |random: &mut Random| random.below(END_TIME_MAX as u64) as i16 + 1;
        match name {
            Name::GetSubscriberData => Request::GetSubscriberData { s_id },
            Name::GetNewDestination => Request::GetNewDestination {
                s_id,
                sf_type: kind(random),
                start_time: start_time(random),
                end_time: end_time(random),
            },
            Name::GetAccessData => Request::GetAccessData { s_id, ai_type: kind(random) },
            Name::UpdateSubscriberData => Request::UpdateSubscriberData {
                s_id,
                sf_type: kind(random),
                bit: random.chance(1, 2),
                data_a: random.below(BYTE_VALUES) as i16,
            },
            Name::UpdateLocation => Request::UpdateLocation {
                sub_nbr: Number::of(s_id),
                vlr_location: random.below(LOCATION_MAX) as i64 + 1,
            },
            Name::InsertCallForwarding => {
                let (sf_type, start_time, end_time) = (kind(random), start_time(random), end_time(random));
                let numberx = Number::random(random);
                let forwarding = Forwarding { sf_type, start_time, end_time, numberx };
                Request::InsertCallForwarding { sub_nbr: Number::of(s_id), forwarding }
            }
            Name::DeleteCallForwarding => Request::DeleteCallForwarding {
                sub_nbr: Number::of(s_id),
                sf_type: kind(random),
                start_time: start_time(random),
            },
        }
    }
}

/// What a transaction says that has succeeded. Those that set something say what was there before: by that a lost change
/// is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// The subscriber is read: the row is beside.
    Subscriber,
    /// Calls go to these numbers, one at least.
    Destinations([Option<Number>; START_TIMES.len()]),
    /// Access data.
    Access {
        /// A byte.
        data1: i16,
        /// Another.
        data2: i16,
        /// Three letters.
        data3: [u8; 3],
        /// Five.
        data4: [u8; 5],
    },
    /// Both are set.
    Updated {
        /// The subscriber's bit before.
        bit_before: bool,
        /// The facility's data before.
        data_a_before: i16,
    },
    /// The location is set.
    Located {
        /// The one before.
        before: i64,
    },
    /// The forwarding is there.
    Inserted {
        /// The subscriber.
        s_id: i32,
    },
    /// The forwarding is gone.
    Deleted {
        /// The subscriber.
        s_id: i32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_15_digits() {
        assert_eq!(Number::of(123).as_str(), "000000000000123");
        assert_eq!(Number::of(i32::MAX).as_str(), "000002147483647");
        assert_eq!(Number::parse("000000000000123"), Some(Number::of(123)));
        for text in ["", "00000000000012", "0000000000001234", "00000000000012x"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
        let mut random = Random::new(1);
        assert_ne!(Number::random(&mut random), Number::random(&mut random));
    }

    /// The definition, written out: how likely each subscriber is.
    fn likelihood(count: u64, a: u64) -> Vec<f64> {
        let mut each = vec![0.0; count as usize + 1];
        for low in 0..=a {
            for any in 1..=count {
                each[((low | any) % count + 1) as usize] += 1.0 / ((a + 1) * count) as f64;
            }
        }
        each
    }

    #[test]
    fn subscribers_are_chosen_by_the_specification() {
        for (subscribers, a) in
            [(100_000, 65_535), (1_000_000, 65_535), (1_000_001, 1_048_575), (10_000_001, 2_097_151)]
        {
            assert_eq!(Shape { subscribers }.a(), a);
        }
        let shape = Shape { subscribers: 50 };
        let mut random = Random::new(7);
        let mut drawn = [0u32; 51];
        const DRAWS: u32 = 400_000;
        (0..DRAWS).for_each(|_| drawn[choose_subscriber(shape, &mut random) as usize] += 1);
        assert_eq!(drawn[0], 0);
        for (s_id, likely) in likelihood(50, shape.a()).into_iter().enumerate().skip(1) {
            let expected = likely * f64::from(DRAWS);
            let found = f64::from(drawn[s_id]);
            assert!((found - expected).abs() < 6.0 * expected.sqrt() + 1.0, "{s_id}: {found}, {expected}");
        }
    }

    #[test]
    fn what_is_drawn_is_in_range() {
        let shape = Shape { subscribers: 100 };
        let mut random = Random::new(3);
        for name in Name::ALL {
            for _ in 0..1_000 {
                let request = Request::draw(name, shape, &mut random);
                assert_eq!(request.name(), name);
                let (kind, hours) = match request {
                    Request::GetNewDestination { sf_type, start_time, end_time, .. } => {
                        (sf_type, Some((start_time, end_time)))
                    }
                    Request::InsertCallForwarding { forwarding, .. } => {
                        (forwarding.sf_type, Some((forwarding.start_time, forwarding.end_time)))
                    }
                    Request::DeleteCallForwarding { sf_type, start_time, .. } => {
                        (sf_type, Some((start_time, 1)))
                    }
                    Request::GetAccessData { ai_type, .. } => (ai_type, None),
                    Request::UpdateSubscriberData { sf_type, data_a, .. } => {
                        assert!((0..256).contains(&data_a));
                        (sf_type, None)
                    }
                    Request::UpdateLocation { vlr_location, .. } => {
                        assert!((1..=0xffff_ffff).contains(&vlr_location));
                        continue;
                    }
                    Request::GetSubscriberData { s_id } => {
                        assert!((1..=100).contains(&s_id));
                        continue;
                    }
                };
                assert!((1..=4).contains(&kind), "{request:?}");
                if let Some((start, end)) = hours {
                    assert!(START_TIMES.contains(&start) && (1..=24).contains(&end), "{request:?}");
                }
            }
        }
    }
}

//! The specification's random values: non-uniform numbers (clause 2.1.6), strings (4.3.2.2) and customers' last names
//! (4.3.2.3).

use rialto::io::Random;

/// The constant C of the last names that customers are loaded with (C-Load).
const LAST_NAME_LOADED: u64 = 123;
/// The constant C of the last names that a run asks for (C-Run).
const LAST_NAME_RUN: u64 = 209;
/// The constant C of customers.
const CUSTOMER: u64 = 259;
/// The constant C of items.
const ITEM: u64 = 7_911;

/// The A of each kind of number.
const LAST_NAME_A: u64 = 255;
const CUSTOMER_A: u64 = 1_023;
const ITEM_A: u64 = 8_191;

/// How far C-Run is from C-Load: clause 2.1.6.1 says 65 to 119, and neither 96 nor 112.
const C_DELTA: u64 = LAST_NAME_RUN.abs_diff(LAST_NAME_LOADED);
const _: () = assert!(65 <= C_DELTA && C_DELTA <= 119 && C_DELTA != 96 && C_DELTA != 112);
const _: () = assert!(LAST_NAME_RUN <= LAST_NAME_A && LAST_NAME_LOADED <= LAST_NAME_A);
const _: () = assert!(CUSTOMER <= CUSTOMER_A && ITEM <= ITEM_A);

/// How many last names there are.
pub const LAST_NAMES: u32 = 1_000;

/// NURand(A, 1, count), less one.
#[inline]
fn non_uniform(random: &mut Random, a: u64, c: u64, count: u32) -> u32 {
    let count = u64::from(count);
    (((random.below(a + 1) | (1 + random.below(count))) + c) % count) as u32
}

/// A number from `low` to `high`, each as likely.
#[inline]
pub fn within(random: &mut Random, low: u32, high: u32) -> u32 {
    low + random.below(u64::from(high - low) + 1) as u32
}

/// A customer of a district that has so many, counted from 1.
#[inline]
pub fn customer(random: &mut Random, customers: u32) -> u32 {
    non_uniform(random, CUSTOMER_A, CUSTOMER, customers) + 1
}

/// An item of so many, counted from 1.
#[inline]
pub fn item(random: &mut Random, items: u32) -> u32 {
    non_uniform(random, ITEM_A, ITEM, items) + 1
}

/// The number of a last name that a run asks for, of the first so many.
#[inline]
pub fn last_name_asked_for(random: &mut Random, names: u32) -> u32 {
    last_name_number(random, LAST_NAME_RUN, names)
}

/// The number of a last name that a customer is loaded with.
pub fn last_name_loaded(random: &mut Random, names: u32) -> u32 {
    last_name_number(random, LAST_NAME_LOADED, names)
}

#[inline]
fn last_name_number(random: &mut Random, c: u64, names: u32) -> u32 {
    // From 0, so the range of the number itself begins at 0, too.
    let number = (random.below(LAST_NAME_A + 1) | random.below(u64::from(names))) + c;
    (number % u64::from(names)) as u32
}

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The last name of a number below [`LAST_NAMES`]: a syllable for each of its three digits.
pub fn last_name(number: u32) -> String {
    let digit = |unit: u32| SYLLABLES[(number / unit % 10) as usize];
    [digit(100), digit(10), digit(1)].concat()
}

const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Where the letters begin, and the small ones.
const LETTERS: usize = 10;
const SMALL_LETTERS: usize = 36;

/// Appends so many of these characters.
fn append(random: &mut Random, text: &mut String, length: u32, characters: &[u8]) {
    let mut bits = 0;
    for position in 0..length {
        // Four characters of each 64 bits.
        bits = if position % 4 == 0 { random.next() } else { bits >> 16 };
        let choice = ((bits & 0xffff) as usize * characters.len()) >> 16;
        text.push(char::from(characters[choice]));
    }
}

/// Replaces `text` by a random a-string of `low` to `high` characters.
pub fn alphanumeric(random: &mut Random, text: &mut String, low: u32, high: u32) {
    text.clear();
    let length = within(random, low, high);
    append(random, text, length, ALPHANUMERIC);
}

/// Replaces `text` by so many random letters.
pub fn letters(random: &mut Random, text: &mut String, length: u32) {
    text.clear();
    append(random, text, length, &ALPHANUMERIC[LETTERS..]);
}

/// Replaces `text` by two random capitals: a state.
pub fn state(random: &mut Random, text: &mut String) {
    text.clear();
    append(random, text, 2, &ALPHANUMERIC[LETTERS..SMALL_LETTERS]);
}

/// Replaces `text` by a random n-string of so many digits.
pub fn digits(random: &mut Random, text: &mut String, length: u32) {
    text.clear();
    append(random, text, length, &ALPHANUMERIC[..LETTERS]);
}

/// Replaces `text` by a zip code (clause 4.3.2.7): four digits and 11111.
pub fn zip(random: &mut Random, text: &mut String) {
    digits(random, text, 4);
    text.push_str("11111");
}

/// What the data of a tenth of the items and stocks has somewhere in it.
pub const ORIGINAL: &str = "ORIGINAL";

/// Replaces `text` by the data of an item or a stock: an a-string of 26 to 50, with "ORIGINAL" in one of ten.
pub fn data(random: &mut Random, text: &mut String) {
    alphanumeric(random, text, 26, 50);
    if random.chance(1, 10) {
        let at = random.below((text.len() - ORIGINAL.len()) as u64 + 1) as usize;
        text.replace_range(at..at + ORIGINAL.len(), ORIGINAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_three_syllables() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn numbers_stay_in_their_range_and_are_not_uniform() {
        type Draw = fn(&mut Random, u32) -> u32;
        let mut random = Random::new(7);
        let kinds: [(Draw, u32, u32); 4] = [
            (customer, 1, 3_000),
            (item, 1, 100_000),
            (last_name_asked_for, 0, 1_000),
            (last_name_loaded, 0, 1_000),
        ];
        for (draw, first, count) in kinds {
            let mut drawn = vec![0; count as usize];
            (0..count * 100).for_each(|_| drawn[(draw(&mut random, count) - first) as usize] += 1);
            // Each 100 times, if they were as likely.
            let often = drawn.iter().filter(|times| **times > 200).count();
            assert!(often > 0 && often < count as usize / 4, "{often} of {count}");
            assert!((0..1_000).all(|_| (first..first + 7).contains(&draw(&mut random, 7))));
        }
    }

    #[test]
    fn strings_are_of_their_alphabets_and_lengths() {
        let (mut random, mut text) = (Random::new(3), String::new());
        let mut lengths = [0; 51];
        let mut originals = 0;
        for _ in 0..20_000 {
            data(&mut random, &mut text);
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            lengths[text.len()] += 1;
            originals += u32::from(text.contains(ORIGINAL));
        }
        assert!(
            lengths[..26].iter().all(|count| *count == 0) && lengths[26..].iter().all(|count| *count > 500)
        );
        assert!((1_800..2_200).contains(&originals), "{originals} of 20000, expected a tenth");
        zip(&mut random, &mut text);
        assert!(text.len() == 9 && text.ends_with("11111") && text.bytes().all(|byte| byte.is_ascii_digit()));
        letters(&mut random, &mut text, 24);
        assert!(text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_alphabetic()));
        state(&mut random, &mut text);
        assert!(text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase()));
    }
}

//! [`Mix`]: how often each of a workload's transactions is run.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use rialto::io::Random;

/// Steps of a percentage: a share is a whole number of thousandths of a percent.
const STEPS_PER_PERCENT: f64 = 1_000.0;
const STEPS: u32 = 100_000;
/// The most transactions that a workload has.
const NAMES_MAX: usize = 8;

/// The names of a workload's transactions.
pub trait Names: Copy + fmt::Display + 'static {
    /// All, in the order of their positions; at most 8.
    const ALL: &'static [Self];
    /// How often each is run unless told otherwise, in percent that add up to 100.
    const PERCENT: &'static [u32];

    /// Which of all it is, counted from 0.
    fn position(self) -> usize;

    /// The one that is written so, in letters of either case.
    ///
    /// # Errors
    /// Which there are.
    fn named(text: &str) -> Result<Self, String> {
        let named = Self::ALL.iter().find(|name| name.to_string().eq_ignore_ascii_case(text));
        named.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(ToString::to_string).collect();
            format!("there is no transaction \"{text}\"; there are {}", names.join(", "))
        })
    }
}

/// Shares of the transactions, which add up to 100%.
#[derive(Debug, PartialEq, Eq)]
pub struct Mix<N> {
    /// For each transaction, in the order of [`Names::ALL`], where its part of the steps ends; behind the last, all steps.
    ends: [u32; NAMES_MAX],
    names: PhantomData<N>,
}

impl<N> Clone for Mix<N> {
    fn clone(&self) -> Mix<N> {
        *self
    }
}

impl<N> Copy for Mix<N> {}

impl<N: Names> Mix<N> {
    /// Of one transaction only.
    pub fn only(name: N) -> Mix<N> {
        Mix::of(|other| if other == name.position() { STEPS } else { 0 })
    }

    fn of(steps: impl Fn(usize) -> u32) -> Mix<N> {
        const { assert!(N::ALL.len() <= NAMES_MAX && N::ALL.len() == N::PERCENT.len()) };
        let mut ends = [STEPS; NAMES_MAX];
        let mut end = 0;
        for (position, its_end) in ends.iter_mut().enumerate().take(N::ALL.len()) {
            end += steps(position);
            *its_end = end;
        }
        Mix { ends, names: PhantomData }
    }

    /// The next transaction, at random.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> N {
        let step = random.below(u64::from(STEPS)) as u32;
        // As a sum, without a branch for each: which one it is cannot be foretold.
        N::ALL[self.ends.iter().map(|&end| usize::from(step >= end)).sum::<usize>()]
    }

    /// The share of a transaction, in percent.
    pub fn percent(&self, name: N) -> f64 {
        let position = name.position();
        let begin = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        f64::from(self.ends[position] - begin) / STEPS_PER_PERCENT
    }
}

impl<N: Names> Default for Mix<N> {
    fn default() -> Mix<N> {
        Mix::of(|position| N::PERCENT[position] * STEPS_PER_PERCENT as u32)
    }
}

impl<N: Names> FromStr for Mix<N> {
    type Err = String;

    /// `BAL=50,PAY=50`: what is not named is not run.
    fn from_str(text: &str) -> Result<Mix<N>, String> {
        let mut steps = [None; NAMES_MAX];
        for part in text.split(',') {
            let (name, percent) = part.split_once('=').ok_or_else(|| {
                let last = N::ALL.len() - 1;
                format!(
                    "expected NAME=PERCENT,... (such as {}=50,{}=50), found \"{part}\"",
                    N::ALL[0],
                    N::ALL[last]
                )
            })?;
            let name = N::named(name.trim())?;
            let percent = percent.trim().parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
            let percent: f64 = percent
                .ok_or_else(|| format!("expected a percentage from 0 to 100 for {name}, found \"{part}\""))?;
            if steps[name.position()].replace((percent * STEPS_PER_PERCENT).round() as u32).is_some() {
                return Err(format!("{name} is named twice; give each transaction one share"));
            }
        }
        let sum: u32 = steps.iter().flatten().sum();
        if sum != STEPS {
            let sum = f64::from(sum) / STEPS_PER_PERCENT;
            return Err(format!("the shares add up to {sum}%, expected 100%"));
        }
        Ok(Mix::of(|position| steps[position].unwrap_or(0)))
    }
}

impl<N: Names> fmt::Display for Mix<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = N::ALL.iter().filter(|name| self.percent(**name) > 0.0);
        let parts: Vec<_> = parts.map(|name| format!("{name} {}", self.percent(*name))).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::Name;

    type Mix = super::Mix<Name>;

    #[test]
    fn the_five_of_the_paper_make_97_percent() {
        let mix = Mix::default();
        let shares = Name::ALL.map(|name| mix.percent(name));
        assert_eq!(shares, [17.0, 20.0, 20.0, 20.0, 20.0, 1.0, 1.0, 1.0]);
        let mut random = Random::new(5);
        let mut drawn = [0; Name::COUNT];
        (0..100_000).for_each(|_| drawn[mix.draw(&mut random) as usize] += 1);
        for (drawn, share) in drawn.into_iter().zip(shares) {
            let expected = share * 1e3;
            assert!((f64::from(drawn) - expected).abs() < 6.0 * expected.sqrt(), "{drawn} for {share}%");
        }
    }

    #[test]
    fn a_mix_is_read_and_what_is_none_is_refused() {
        let mix: Mix = "bal=12.5,FOUND=0,PAY=87.5".parse().unwrap();
        assert_eq!((mix.percent(Name::Bal), mix.percent(Name::Pay)), (12.5, 87.5));
        assert_eq!(mix.to_string(), "BAL 12.5, PAY 87.5");
        let mut random = Random::new(1);
        assert!((0..1_000).all(|_| matches!(mix.draw(&mut random), Name::Bal | Name::Pay)));
        assert_eq!("LOST=100".parse(), Ok(Mix::only(Name::Lost)));
        for (text, named) in [
            ("", "BAL=50,FOUND=50"),
            ("BAL", "found \"BAL\""),
            ("STEAL=100", "there are BAL, CCCK, CLCK, DEBIT, PAY, MOVE, LOST, FOUND"),
            ("BAL=much", "percentage from 0 to 100 for BAL"),
            ("BAL=-1,PAY=101", "percentage from 0 to 100 for BAL"),
            ("BAL=NaN", "percentage from 0 to 100 for BAL"),
            ("BAL=50,bal=50", "BAL is named twice"),
            ("BAL=50,PAY=49", "add up to 99%"),
        ] {
            let problem = text.parse::<Mix>().unwrap_err();
            assert!(problem.contains(named), "{text}: {problem}");
        }
    }
}

//! [`Mix`]: how often each transaction is run.

use std::fmt;
use std::str::FromStr;

use rialto::io::Random;

use super::request::Name;

/// Steps of a percentage: a share is a whole number of thousandths of a percent.
const STEPS_PER_PERCENT: f64 = 1_000.0;
const STEPS: u32 = 100_000;

/// Shares of the transactions, which add up to 100%.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// For each transaction, in the order of [`Name::ALL`], where its part of the steps ends.
    ends: [u32; Name::COUNT],
}

impl Mix {
    /// Of one transaction only.
    pub fn only(name: Name) -> Mix {
        Mix::of(|other| if other == name { STEPS } else { 0 })
    }

    fn of(steps: impl Fn(Name) -> u32) -> Mix {
        let mut end = 0;
        let ends = Name::ALL.map(|name| {
            end += steps(name);
            end
        });
        Mix { ends }
    }

    /// The next transaction, at random.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> Name {
        let step = random.below(u64::from(STEPS)) as u32;
        // As a sum, without a branch for each: which one it is cannot be foretold.
        Name::ALL[self.ends.iter().map(|&end| usize::from(step >= end)).sum::<usize>()]
    }

    /// The share of a transaction, in percent.
    pub fn percent(&self, name: Name) -> f64 {
        let position = name as usize;
        let begin = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        f64::from(self.ends[position] - begin) / STEPS_PER_PERCENT
    }
}

impl Default for Mix {
    /// The paper's five, and a hundredth for each of the three that it does not number.
    fn default() -> Mix {
        Mix::of(|name| {
            let percent = match name {
                Name::Bal => 17,
                Name::Ccck | Name::Clck | Name::Debit | Name::Pay => 20,
                Name::Move | Name::Lost | Name::Found => 1,
            };
            percent * STEPS_PER_PERCENT as u32
        })
    }
}

impl FromStr for Mix {
    type Err = String;

    /// `BAL=50,PAY=50`: what is not named is not run.
    fn from_str(text: &str) -> Result<Mix, String> {
        let mut steps = [None; Name::COUNT];
        for part in text.split(',') {
            let (name, percent) = part.split_once('=').ok_or_else(|| {
                format!("expected NAME=PERCENT,... (such as BAL=50,PAY=50), found \"{part}\"")
            })?;
            let name: Name = name.trim().parse()?;
            let percent = percent.trim().parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
            let percent: f64 = percent
                .ok_or_else(|| format!("expected a percentage from 0 to 100 for {name}, found \"{part}\""))?;
            if steps[name as usize].replace((percent * STEPS_PER_PERCENT).round() as u32).is_some() {
                return Err(format!("{name} is named twice; give each transaction one share"));
            }
        }
        let sum: u32 = steps.iter().flatten().sum();
        if sum != STEPS {
            let sum = f64::from(sum) / STEPS_PER_PERCENT;
            return Err(format!("the shares add up to {sum}%, expected 100%"));
        }
        Ok(Mix::of(|name| steps[name as usize].unwrap_or(0)))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = Name::ALL.into_iter().filter(|name| self.percent(*name) > 0.0);
        let parts: Vec<_> = parts.map(|name| format!("{name} {}", self.percent(name))).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("", "BAL=50,PAY=50"),
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

//! [`Profiler`]: where the process's processor time goes, by the functions and source files on its stacks. The program
//! that is measured runs as it always does, without code for this: it is interrupted some hundred times a second
//! ([`sampler`]).
//!
//! Functions that the compiler has inlined are told apart by the debug information of the program (line tables are
//! enough). Code that was merged with equal code elsewhere, or moved across the border of a function, cannot be told
//! apart. Time in the system counts for the function that called it.

pub mod sampler;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::Path;

use self::sampler::Sampler;

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its name, as far as the program tells: with its path or without.
    pub function: String,
    /// The source file, in full or from the workspace's root on; empty if the program does not tell.
    pub file: String,
}

/// A profile being taken.
#[derive(Debug)]
pub struct Profiler(Sampler);

impl Profiler {
    /// Begins; waits while another is at it.
    ///
    /// # Errors
    /// The system refuses the signal or its timer.
    pub fn start() -> io::Result<Profiler> {
        Sampler::start().map(Profiler)
    }

    /// Ends.
    pub fn stop(self) -> Profile {
        let (stacks, lost) = self.0.stop();
        let mut counts: HashMap<Vec<usize>, u64> = HashMap::new();
        for stack in stacks.into_iter().filter(|stack| !stack.is_empty()) {
            *counts.entry(stack).or_default() += 1;
        }
        Profile { counts, lost: lost as u64 }
    }
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// How often each stack was met, instruction pointers from the innermost frame outwards.
    counts: HashMap<Vec<usize>, u64>,
    /// Samples that there was no room for.
    pub lost: u64,
}

impl Profile {
    /// Samples.
    pub fn samples(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Both together.
    pub fn add(&mut self, other: Profile) {
        for (stack, count) in other.counts {
            *self.counts.entry(stack).or_default() += count;
        }
        self.lost += other.lost;
    }

    /// Shows each stack once, its places from the innermost outwards, with how often it was met.
    pub fn each(&self, symbols: &mut Symbols, mut visit: impl FnMut(&[Place], u64)) {
        for (stack, count) in &self.counts {
            let mut places = Vec::new();
            for (depth, &ip) in stack.iter().enumerate() {
                // Outer frames are the places to return to; the symbols are asked for what comes before.
                places.extend_from_slice(symbols.of(if depth == 0 { ip + 1 } else { ip }));
            }
            visit(&places, *count);
        }
    }
}

/// The places of instruction pointers, as far as they were asked for.
#[derive(Debug, Default)]
pub struct Symbols(HashMap<usize, Vec<Place>>);

impl Symbols {
    /// The functions before an instruction pointer, the innermost first: those that were put into others before these.
    fn of(&mut self, ip: usize) -> &[Place] {
        match self.0.entry(ip) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let mut places = Vec::new();
                backtrace::resolve(ip as *mut _, |symbol| {
                    let function = symbol.name().map_or_else(String::new, |name| format!("{name:#}"));
                    let file = symbol.filename().map(Path::to_string_lossy).unwrap_or_default();
                    places.push(Place { function, file: file.replace('\\', "/") });
                });
                unknown.insert(places)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use super::*;

    #[inline(never)]
    fn busy_leaf(rounds: u64) -> u64 {
        (0..rounds).fold(1, |sum, round| black_box(sum ^ round.rotate_left(7)))
    }

    #[inline(always)]
    fn put_into_its_caller(rounds: u64) -> u64 {
        busy_leaf(rounds).wrapping_add(1)
    }

    #[inline(never)]
    fn busy_caller(until: Instant) -> u64 {
        let mut sum = 0u64;
        while Instant::now() < until {
            sum = sum.wrapping_add(put_into_its_caller(10_000));
        }
        sum
    }

    #[test]
    fn the_busy_function_is_found_with_its_callers_and_a_sleeping_thread_is_not() {
        let mut symbols = Symbols::default();
        let (mut met, mut slept) = (0, 0);
        let give_up = Instant::now() + Duration::from_secs(20);
        // Until there are some: others may have the cores.
        while met < 20 && Instant::now() < give_up {
            let profiler = Profiler::start().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| std::thread::sleep(Duration::from_millis(200)));
                scope.spawn(|| black_box(busy_caller(Instant::now() + Duration::from_millis(200))));
            });
            let profile = profiler.stop();
            assert_eq!(profile.lost, 0);
            profile.each(&mut symbols, |places, count| {
                let named = |place: &Place, name: &str| place.function.rsplit("::").next() == Some(name);
                let at = |name: &str| places.iter().position(|place| named(place, name));
                if let (Some(leaf), Some(between), Some(caller)) =
                    (at("busy_leaf"), at("put_into_its_caller"), at("busy_caller"))
                {
                    assert!(leaf < between && between < caller, "{places:?}");
                    assert!(places[leaf].file.ends_with("profile/mod.rs"), "{places:?}");
                    // Neither the handler nor what the system put between it and what it interrupted.
                    let mut inner = places[..leaf].iter();
                    let of_leaf = |place: &Place| {
                        place.file.contains("library/core") || place.file.ends_with("profile/mod.rs")
                    };
                    assert!(inner.all(of_leaf), "{places:?}");
                    met += count;
                }
                // A sleep is a system call at most, not 200 ms of them.
                slept += if at("sleep").is_some() { count } else { 0 };
            });
        }
        assert!(met >= 20, "{met}");
        assert!(slept <= met / 2, "{slept} of {met}");
    }

    #[test]
    fn profiles_add_up() {
        let of =
            |stack: &[usize], count, lost| Profile { counts: HashMap::from([(stack.to_vec(), count)]), lost };
        let mut sum = of(&[1, 2], 3, 0);
        sum.add(of(&[1, 2], 2, 1));
        sum.add(of(&[1], 1, 0));
        assert_eq!((sum.samples(), sum.lost, sum.counts.len()), (6, 1, 2));
    }
}

//! [`in_parts`]: many things at once, as far as limits allow that.

use std::ops::Range;

/// Does something with each of these, in their order: with all at once, or, if that is too much, with each half in
/// turn. `is_too_much` says which errors mean that.
///
/// # Errors
/// The first error that means something else, or that one of them alone gives, with the first of those that it is
/// about. What comes after these is not done.
pub fn in_parts<E>(
    all: Range<usize>,
    is_too_much: &impl Fn(&E) -> bool,
    act: &mut impl FnMut(Range<usize>) -> Result<(), E>,
) -> Result<(), (usize, E)> {
    match act(all.clone()) {
        Err(error) if all.len() > 1 && is_too_much(&error) => {
            let middle = all.start + all.len() / 2;
            in_parts(all.start..middle, is_too_much, act)?;
            in_parts(middle..all.end, is_too_much, act)
        }
        done => done.map_err(|error| (all.start, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Failed {
        TooMany,
        Otherwise,
    }

    /// What is done if more than `limit` at once are too many, and those from `fails_from` on fail.
    fn done(limit: usize, fails_from: usize) -> (Vec<usize>, Result<(), (usize, Failed)>) {
        let mut done = Vec::new();
        let ended = in_parts(0..300, &|error| *error == Failed::TooMany, &mut |part: Range<usize>| {
            if part.len() > limit {
                return Err(Failed::TooMany);
            }
            if part.end > fails_from {
                return Err(Failed::Otherwise);
            }
            done.extend(part);
            Ok(())
        });
        (done, ended)
    }

    #[test]
    fn what_is_too_much_at_once_is_done_in_parts() {
        for limit in [300, 299, 20, 1] {
            assert_eq!(done(limit, 300), ((0..300).collect(), Ok(())), "at most {limit}");
        }
    }

    #[test]
    fn what_cannot_be_done_alone_ends_it() {
        assert_eq!(done(0, 300), (Vec::new(), Err((0, Failed::TooMany))));
        assert_eq!(done(1, 40), ((0..40).collect(), Err((40, Failed::Otherwise))));
        assert_eq!(done(300, 40), (Vec::new(), Err((0, Failed::Otherwise))));
    }
}

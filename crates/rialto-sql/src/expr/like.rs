//! LIKE: whether a text matches a pattern.
//!
//! Invariant: it allocates nothing, however long text and pattern are: both are read where they are. In the worst case
//! its time is the product of their lengths, and a cancel request ends it.

use std::str::Chars;

use crate::cancel::Cancel;
use crate::error::{Result, SqlError, SqlState};

/// The number of steps between two checks for a cancel request.
const STEPS_TO_CANCEL: u32 = 1 << 16;

/// A part of a pattern.
enum Part {
    /// `%`: any characters, or none.
    Any,
    /// `_`: one character.
    One,
    /// This character.
    Exactly(char),
}

/// The rest of a pattern.
#[derive(Clone)]
struct Parts<'p> {
    characters: Chars<'p>,
    escape: Option<char>,
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        Some(match self.characters.next()? {
            character if Some(character) == self.escape => Part::Exactly(self.characters.next()?),
            '%' => Part::Any,
            '_' => Part::One,
            other => Part::Exactly(other),
        })
    }
}

/// Whether the pattern ends with an escape character that has nothing to escape.
fn ends_with_escape(pattern: &str, escape: Option<char>) -> bool {
    let Some(escape) = escape else { return false };
    // In a run of escape characters at the end, each second one is escaped.
    pattern.chars().rev().take_while(|character| *character == escape).count() % 2 == 1
}

/// Whether `text` matches `pattern`.
pub(super) fn like(text: &str, pattern: &str, escape: Option<char>, cancel: &Cancel) -> Result<bool> {
    if ends_with_escape(pattern, escape) {
        let message = "LIKE pattern must not end with its escape character";
        return Err(SqlError::new(SqlState::InvalidParameterValue, message));
    }
    let mut text = text.chars();
    let mut parts = Parts { characters: pattern.chars(), escape };
    // Greedy, with one place to go back to: behind the last `%`, and the place in the text that it has reached.
    let mut back: Option<(Parts<'_>, Chars<'_>)> = None;
    let mut steps = 0u32;
    loop {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(STEPS_TO_CANCEL) {
            cancel.check()?;
        }
        let (mut part_text, mut part_pattern) = (text.clone(), parts.clone());
        let fits = match (part_pattern.next(), part_text.next()) {
            (Some(Part::Any), _) => {
                parts = part_pattern;
                back = Some((parts.clone(), text.clone()));
                continue;
            }
            (None, None) => return Ok(true),
            // With each further place of `%` less of the text is left.
            (Some(_), None) => return Ok(false),
            (Some(Part::One), Some(_)) => true,
            (Some(Part::Exactly(wanted)), Some(character)) => wanted == character,
            (None, Some(_)) => false,
        };
        match &mut back {
            _ if fits => (text, parts) = (part_text, part_pattern),
            Some((behind, from)) => {
                from.next();
                (text, parts) = (from.clone(), behind.clone());
            }
            None => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LIKE by its definition.
    fn means(text: &[char], pattern: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['%', rest @ ..] => (0..=text.len()).any(|from| means(&text[from..], rest)),
            ['!', wanted, rest @ ..] => text.first() == Some(wanted) && means(&text[1..], rest),
            ['_', rest @ ..] => !text.is_empty() && means(&text[1..], rest),
            [wanted, rest @ ..] => text.first() == Some(wanted) && means(&text[1..], rest),
        }
    }

    /// All strings of up to so many of these characters.
    fn strings(characters: &[char], longest: usize) -> Vec<Vec<char>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..longest {
            let to = all.len();
            for at in from..to {
                for character in characters {
                    let mut longer = all[at].clone();
                    longer.push(*character);
                    all.push(longer);
                }
            }
            from = to;
        }
        all
    }

    #[test]
    fn every_short_pattern_means_what_it_says() {
        let cancel = Cancel::default();
        let texts = strings(&['a', '\u{e9}', '%'], 4);
        for pattern in strings(&['a', '\u{e9}', '%', '_', '!'], 4) {
            let escapes = pattern.iter().rev().take_while(|character| **character == '!').count();
            let written: String = pattern.iter().collect();
            for text in &texts {
                let text_written: String = text.iter().collect();
                let found = like(&text_written, &written, Some('!'), &cancel);
                match escapes % 2 {
                    1 => assert!(found.is_err(), "{written}"),
                    _ => assert_eq!(found, Ok(means(text, &pattern)), "{text_written} like {written}"),
                }
            }
        }
        assert_eq!(like("a!", "a!", None, &cancel), Ok(true), "without an escape character");
    }
}

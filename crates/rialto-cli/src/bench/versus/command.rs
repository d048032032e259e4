//! A command line of `bench`, taken apart into its options, so that one can be put in another's place.

use clap::{ArgAction, Args, Command};

use crate::bench::args::BenchArgs;

/// An option with its value, or a word that belongs to none.
struct Part {
    /// Without the dashes; none for a word.
    name: Option<String>,
    words: Vec<String>,
}

fn parts(line: &[String]) -> Result<Vec<Part>, String> {
    let known = BenchArgs::augment_args(Command::new("bench"));
    let mut words = line.iter();
    let mut parts = Vec::new();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else {
            parts.push(Part { name: None, words: vec![word.clone()] });
            continue;
        };
        let (name, has_value) = match option.split_once('=') {
            Some((name, _)) => (name, true),
            None => (option, false),
        };
        let found = known.get_arguments().find(|argument| argument.get_long() == Some(name));
        let takes_value = match found {
            Some(argument) => matches!(argument.get_action(), ArgAction::Set | ArgAction::Append),
            None => return Err(format!("there is no option --{name}")),
        };
        let mut part = Part { name: Some(name.to_owned()), words: vec![word.clone()] };
        if takes_value && !has_value {
            part.words.extend(words.next().cloned());
        }
        parts.push(part);
    }
    Ok(parts)
}

fn joined(parts: impl IntoIterator<Item = Part>) -> Vec<String> {
    parts.into_iter().flat_map(|part| part.words).collect()
}

/// The names of the options of a line.
pub(super) fn names(line: &[String]) -> Result<Vec<String>, String> {
    Ok(parts(line)?.into_iter().filter_map(|part| part.name).collect())
}

/// A line without some options.
pub(super) fn without(line: &[String], names: &[&str]) -> Result<Vec<String>, String> {
    let is_kept = |part: &Part| part.name.as_ref().is_none_or(|name| !names.contains(&name.as_str()));
    Ok(joined(parts(line)?.into_iter().filter(is_kept)))
}

/// A line with other options behind it; those that it had already go.
///
/// # Errors
/// An option that there is not.
pub fn with_options(line: &[String], options: &[String]) -> Result<Vec<String>, String> {
    let names = names(options)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut line = without(line, &names)?;
    line.extend_from_slice(options);
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_take_the_place_of_those_of_the_same_name() {
        for (line, options, expected) in [
            ("tpcb --clients 8 --json", "--clients 1", "tpcb --json --clients 1"),
            ("tpcb --clients=8 --json", "--json --seed 3", "tpcb --clients=8 --json --seed 3"),
            ("tpcb --rate 80% --data -x", "--data=y", "tpcb --rate 80% --data=y"),
            ("tpcb", "", "tpcb"),
        ] {
            assert_eq!(
                with_options(&words(line), &words(options)).unwrap(),
                words(expected),
                "{line} {options}"
            );
        }
        assert_eq!(without(&words("tpcb --seed 1 --json"), &["seed"]).unwrap(), words("tpcb --json"));
        assert!(with_options(&words("tpcb"), &words("--wrong 1")).unwrap_err().contains("--wrong"));
    }
}

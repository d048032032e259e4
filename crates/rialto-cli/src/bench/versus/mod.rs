//! `--versus`: the two sides of a comparison, from one command line.

mod command;

use std::io::Write;

use rialto_measure::RunError;
use rialto_measure::versus::{PAIRS, Side, compare};

use self::command::with_options;
use super::args::BenchArgs;

/// Runs the pairs and writes the ratios to `out`. `line` is the command line behind `bench`.
///
/// # Errors
/// A side that is refused or fails.
pub fn run(args: &BenchArgs, line: &[String], out: &mut dyn Write) -> Result<(), RunError> {
    let pairs = if args.repeat > 1 { args.repeat } else { PAIRS };
    compare(sides(args, line)?, args.workload.name(), pairs, args.json, out)
}

fn sides(args: &BenchArgs, line: &[String]) -> Result<[Side; 2], RunError> {
    let here = std::env::current_exe()
        .map_err(|cause| RunError::Io { during: "looking for this program", cause })?;
    let usage = |text: String| RunError::Usage(format!("--versus: {text}"));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // One run each, with its result as JSON; `--repeat` is how many pairs there are.
    let single = words("--repeat 1 --json");
    let base = command::without(line, &["versus", "versus-binary"]).map_err(usage)?;
    let mut ours = with_options(&base, &single).map_err(usage)?;
    let changes = words(args.versus.as_deref().unwrap_or_default());
    let changed = with_options(&ours, &changes).map_err(usage)?;
    let mut theirs = with_options(&changed, &single).map_err(usage)?;
    let (this_args, other_args) =
        (BenchArgs::read(&ours).map_err(usage)?, BenchArgs::read(&theirs).map_err(usage)?);
    other_args.check()?;
    if other_args.versus.is_some() || other_args.versus_binary.is_some() {
        return Err(usage("the other run cannot be a comparison itself".to_owned()));
    }
    let says_data = command::names(&changes).map_err(usage)?.iter().any(|name| name == "data");
    if let Some(directory) = other_args.directory()
        && !says_data
    {
        // Directories of their own: what one run leaves behind is no burden of the other's.
        let own = this_args.directory().unwrap_or_else(|| directory.clone());
        theirs = with_options(&theirs, &["--data".to_owned(), format!("{}-versus", own.display())])
            .map_err(usage)?;
    }
    if let Some(directory) = this_args.directory() {
        ours = with_options(&ours, &["--data".to_owned(), directory.display().to_string()]).map_err(usage)?;
    }
    let program = args.versus_binary.clone().unwrap_or_else(|| here.clone());
    Ok([Side::new("this", here, ours), Side::new("other", program, theirs)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn sides_of(text: &str, versus: &str) -> Result<[Side; 2], RunError> {
        let mut line = line(text);
        let mut args = BenchArgs::read(&line).unwrap();
        args.versus = Some(versus.to_owned());
        line.extend(["--versus".to_owned(), versus.to_owned()]);
        sides(&args, &line)
    }

    #[test]
    fn the_other_side_is_this_one_with_changes_in_a_directory_of_its_own() {
        let [this, other] = sides_of("tpcb --clients 8 --seconds 1 --data /d", "--clients 1").unwrap();
        assert_eq!(this.arguments, line("tpcb --clients 8 --seconds 1 --repeat 1 --json --data /d"));
        assert_eq!(other.arguments, line("tpcb --seconds 1 --clients 1 --repeat 1 --json --data /d-versus"));
        let [_, other] = sides_of("tpcb --disk memory", "--seconds=2").unwrap();
        assert_eq!(other.arguments, line("tpcb --disk memory --seconds=2 --repeat 1 --json"));
        let [_, other] = sides_of("card --disk memory", "--mix BAL=50,PAY=50").unwrap();
        assert_eq!(other.arguments, line("card --disk memory --mix BAL=50,PAY=50 --repeat 1 --json"));
        let [_, other] = sides_of("tpcb", "--data /e").unwrap();
        assert_eq!(other.arguments, line("tpcb --data /e --repeat 1 --json"));
    }

    #[test]
    fn a_side_that_makes_no_sense_is_refused() {
        for (versus, named) in
            [("--clients many", "many"), ("--nonsense 1", "--nonsense"), ("--mix BAL=100", "--mix")]
        {
            let refusal = sides_of("tpcb", versus).unwrap_err();
            assert!(refusal.to_string().contains(named) && refusal.exit_code() == 2, "{versus}: {refusal}");
        }
    }
}

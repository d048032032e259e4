//! What `backup` and `restore` say of how far they have come: on stderr, and nowhere else.

use std::process::Command;

use crate::common::{Directory, run, stderr, stdout, succeeds};

/// A command of the program on a terminal, which shows stderr alone; its stdout goes to a file.
fn on_terminal(line: &str, out: &str) -> String {
    let line = format!("{} {line} > {out}", env!("CARGO_BIN_EXE_rialto"));
    let shown = Command::new("script").args(["-qec", &line, "/dev/null"]).output();
    stdout(&succeeds(shown.expect("script of util-linux runs")))
}

/// The last state of each line that was rewritten.
fn last_states(shown: &str) -> Vec<&str> {
    let lines = shown.split('\n').map(|line| line.trim_end_matches('\r').trim_end());
    lines.map(|line| line.rsplit('\r').next().unwrap_or(line)).collect()
}

#[test]
fn a_terminal_sees_it_and_standard_output_does_not() {
    let names = ["data", "stream", "backup", "restored", "again", "quiet"];
    let [data, stream, backup, restored, again, quiet] =
        names.map(|name| Directory::new(&format!("copy-progress-{name}")));
    let bank = ["bench", "tpcb", "--scale", "1", "--accounts", "20000", "--clients", "2", "--seconds", "0.2"];
    succeeds(run(&[&bank[..], &["--data", data.name()]].concat()));
    std::fs::create_dir_all(stream.path()).unwrap();
    let file = stream.path().join("backup.rialto");
    let file = file.to_str().unwrap();

    let shown = on_terminal(&format!("backup --data {} --to -", data.name()), file);
    let states = last_states(&shown);
    let told =
        states.iter().find(|state| state.starts_with("backed up ")).unwrap_or_else(|| panic!("{shown}"));
    let (done, rest) = told["backed up ".len()..].split_once(" of ").expect("how much of how much");
    assert!(rest.starts_with(&format!("{done} MiB, ")) && rest.ends_with("about 0 s left"), "{told}");
    assert!(states.iter().any(|state| state.starts_with("full backup ")), "the report follows: {shown}");
    // The stream is a backup and nothing else.
    let shown =
        on_terminal(&format!("restore --from {} --data {}", stream.name(), restored.name()), "/dev/null");
    assert!(
        last_states(&shown)
            .iter()
            .any(|state| state.starts_with("restored ") && state.ends_with("about 0 s left"))
    );

    let output = succeeds(run(&["backup", "--data", restored.name(), "--to", backup.name()]));
    assert_eq!((stdout(&output), stderr(&output).lines().count()), (String::new(), 1), "only the report");
    let output = succeeds(run(&["restore", "--from", backup.name(), "--data", again.name()]));
    assert_eq!(stderr(&output), "");
    assert!(stdout(&output).starts_with("restored database "), "{}", stdout(&output));
    let shown =
        on_terminal(&format!("backup --quiet --data {} --to {}", again.name(), quiet.name()), "/dev/null");
    assert!(!shown.contains("backed up") && shown.contains("full backup "), "{shown}");
    succeeds(run(&["check", again.name()]));
}

/// The error of a restore that fails begins a line of its own, below the line that is rewritten.
#[test]
fn an_error_is_below_the_line_that_is_rewritten() {
    let names = ["data", "stream", "restored"];
    let [data, stream, restored] = names.map(|name| Directory::new(&format!("copy-progress-cut-{name}")));
    let bank = ["bench", "tpcb", "--scale", "1", "--accounts", "20000", "--clients", "2", "--seconds", "0.2"];
    succeeds(run(&[&bank[..], &["--data", data.name()]].concat()));
    let output = succeeds(run(&["backup", "--data", data.name(), "--to", "-"]));
    std::fs::create_dir_all(stream.path()).unwrap();
    let file = stream.path().join("backup.rialto");
    std::fs::write(&file, &output.stdout[..output.stdout.len() - 1]).unwrap();
    // The bytes come in two parts, so that a line is due between them.
    let line = format!(
        "(head -c 1200000 <&8; sleep 0.5; cat <&8) 8< {} | {} restore --from - --data {}",
        file.display(),
        env!("CARGO_BIN_EXE_rialto"),
        restored.name()
    );
    let shown = Command::new("script").args(["-qc", &line, "/dev/null"]).output();
    let shown = stdout(&succeeds(shown.expect("script of util-linux runs")));
    assert!(shown.contains("\rrestored "), "{shown}");
    assert!(last_states(&shown).iter().any(|state| state.starts_with("error: ")), "{shown}");
}

//! The words of the repository: one for each thing. The old words that this lists, and subjects that name no thing, do not come back.

use std::path::{Path, PathBuf};

/// Words that nothing uses any more, and what is said instead.
const EVERYWHERE: &[(&str, &str)] = &[
    ("stint", "executor lease"),
    ("stints", "executor leases"),
    ("canary", "injected fault"),
    ("canaries", "injected faults"),
    ("headcount", "scaling policy"),
    ("mailbox", "response queue"),
];

/// Words that the kernel uses for nothing, and what it says instead.
const KERNEL: &[(&str, &str)] = &[
    ("colour", "side of a sweep"),
    ("colours", "sides of a sweep"),
    ("flight", "execution, or group being written"),
    ("flights", "executions"),
    ("fly", "dispatch"),
    ("flies", "dispatches"),
    ("gate", "commit barrier"),
    ("gates", "commit barriers"),
    ("heeds", "honours"),
    ("minds", "tracks"),
    ("agenda", "batch"),
    ("asides", "back-offs"),
    ("debt", "deferred release"),
    ("debts", "deferred releases"),
    ("hire", "start a standby"),
    ("hired", "started"),
    ("in_vain", "unwoken"),
    ("seat", "slot of an executor"),
    ("seats", "slots of executors"),
    ("landing", "completion"),
    ("spoiled", "invalidated"),
    ("strayed", "out of scope"),
    ("mixed transaction", "transaction that straddles a sweep"),
    ("rarely(", "unlikely("),
    ("traps", "directed interleaving tests"),
    ("whose::", "Affinity::"),
];

/// Where a word of these lists is right: what is before it on the line, and after it.
const RIGHT: &[(&str, &str)] = &[("in ", ""), ("in-", ""), ("in_", "")];

/// Subjects that name no thing: a comment, or a name, says which thread, transaction, committer or caller does what it tells of.
const SUBJECTS: &[&str] = &[
    "who",
    "whoever",
    "whom",
    "somebody",
    "nobody",
    "anybody",
    "everybody",
    "he",
    "him",
    "his",
    "she",
    "her",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The texts below a folder: sources, pages, scripts and lists.
fn texts(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name());
        let left_out = ["target", ".git", "rialto-data", "shared", "results", "CHANGELOG.md", "words.rs"];
        if left_out.iter().any(|left_out| name == *left_out) {
            continue;
        }
        if entry.file_type().expect("a type").is_dir() {
            texts(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path)
            && path
                .extension()
                .is_none_or(|extension| ["rs", "md", "sh", "list", "toml"].iter().any(|of| extension == *of))
        {
            found.push((path, text));
        }
    }
}

/// The places of a word in a line, as a word of its own, or of its own between underscores.
fn places<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_letter = |at: Option<char>| at.is_some_and(char::is_alphanumeric);
    line.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let ends_in_letter = word.ends_with(char::is_alphanumeric);
        let goes_on = ends_in_letter && is_letter(line[at + word.len()..].chars().next());
        !is_letter(line[..at].chars().next_back()) && !goes_on
    })
}

fn wrong(line: &str, words: &[(&str, &str)]) -> Vec<String> {
    let line = line.to_lowercase();
    let mut wrong = Vec::new();
    for (word, instead) in words {
        let mut places = places(&line, word).filter(|at| {
            !RIGHT.iter().any(|(before, after)| {
                line[..*at].ends_with(before) && line[at + word.len()..].starts_with(after)
            })
        });
        if places.next().is_some() {
            wrong.push(format!("\"{word}\", say {instead}"));
        }
    }
    wrong
}

#[test]
fn old_words_do_not_come_back() {
    let (root, mut found, mut errors) = (root(), Vec::new(), Vec::new());
    texts(&root, &mut found);
    assert!(found.len() > 500, "{} texts", found.len());
    let kernel = root.join("crates/rialto/src");
    for (path, text) in &found {
        let is_of_the_kernel = path.starts_with(&kernel);
        // A line break may lie between "in" and "flight".
        let mut continues = false;
        for (number, line) in text.lines().enumerate() {
            let mut words = wrong(line, EVERYWHERE);
            if is_of_the_kernel && !continues {
                words.extend(wrong(line, KERNEL));
            }
            continues = line.ends_with(" in");
            errors.extend(words.iter().map(|word| format!("{}:{}: {word}", path.display(), number + 1)));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn comments_name_their_subjects() {
    let (root, mut found, mut errors) = (root(), Vec::new(), Vec::new());
    texts(&root.join("crates"), &mut found);
    for (path, text) in found.iter().filter(|(path, _)| path.extension().is_some_and(|is| is == "rs")) {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start().to_lowercase();
            // Names of functions, and so of tests, too.
            if !line.starts_with("//") && !line.contains("fn ") {
                continue;
            }
            let subjects = SUBJECTS.iter().filter(|subject| places(&line, subject).next().is_some());
            errors.extend(
                subjects.map(|subject| format!("{}:{}: \"{subject}\": {line}", path.display(), number + 1)),
            );
        }
    }
    assert!(errors.is_empty(), "{} comments\n{}", errors.len(), errors.join("\n"));
}

#[test]
fn a_word_is_found_where_it_is_one() {
    let found = |line| wrong(line, KERNEL).len();
    assert_eq!(found("the flight of a call"), 1);
    assert_eq!(found("calls in flight, in-flight and in_flight"), 0);
    assert_eq!(found("let flight = 1; and in flight"), 1);
    assert_eq!(found("an aggregate, negated and delegates"), 0);
    assert_eq!(found("close_gate()"), 1);
    assert_eq!(found("unrarely(x)"), 0);
    assert_eq!(places("he said the theme", "he").collect::<Vec<_>>(), [0]);
}

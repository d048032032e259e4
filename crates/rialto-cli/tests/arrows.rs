//! Which crates may depend on which, and that the commands that serve and keep data (`serve`, `backup`, `restore`,
//! `check`, `inspect`, `cluster`) use no crate of benchmarks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's crates, and those of them that each may name in its manifest.
const CRATES: [(&str, &[&str]); 10] = [
    ("rialto-derive", &[]),
    // Its tests are built with features of its own.
    ("rialto", &["rialto", "rialto-derive"]),
    ("rialto-sql", &["rialto"]),
    ("rialto-server", &["rialto", "rialto-server", "rialto-sql"]),
    // Its tests count what a transaction takes.
    ("rialto-cluster", &["rialto", "rialto-measure", "rialto-sql"]),
    ("rialto-measure", &["rialto"]),
    ("rialto-workloads", &["rialto", "rialto-measure"]),
    ("rialto-smallbase", &["rialto", "rialto-cluster", "rialto-measure"]),
    ("rialto-figures", &["rialto", "rialto-measure", "rialto-smallbase", "rialto-workloads"]),
    (
        "rialto-cli",
        &[
            "rialto",
            "rialto-cluster",
            "rialto-figures",
            "rialto-measure",
            "rialto-server",
            "rialto-smallbase",
            "rialto-workloads",
        ],
    ),
];

/// The crates of benchmarks, as paths name them.
const BENCHMARKS: [&str; 4] = ["rialto_figures", "rialto_measure", "rialto_smallbase", "rialto_workloads"];

/// The modules of the program that know nothing of benchmarks: the commands that serve and keep data, and all that they use.
const DATA_COMMANDS: [&str; 10] = [
    "args",
    "backup",
    "client",
    "cluster",
    "copy_progress",
    "event_log",
    "interrupt",
    "offline",
    "output",
    "serve",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The crates of this workspace that a manifest names, as dependencies of any kind.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut is_inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            is_inside = table.ends_with("dependencies]");
        } else if is_inside && line.starts_with("rialto") {
            let end = line.find(|letter: char| letter != '-' && !letter.is_ascii_alphanumeric());
            found.insert(line[..end.unwrap_or(line.len())].to_owned());
        }
    }
    found
}

/// The source files of a module: `NAME.rs`, and all in the folder `NAME`.
fn sources(module: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![root.join(format!("{module}.rs"))];
    let mut folders = vec![root.join(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("it can be read").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.retain(|file| file.exists());
    files
}

/// Code without its comments. No file that is read here has two slashes in a text.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The words that stand behind a path's beginning, as `a` and `b` in `crate::{a::X, b}`.
fn behind<'a>(code: &'a str, begin: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(begin) {
        let rest = &code[at + begin.len()..];
        let group = rest.strip_prefix('{').map(|rest| rest.split_once(';').map_or(rest, |(group, _)| group));
        let paths = group.map_or(vec![rest], |group| group.split(',').collect());
        for path in paths {
            let path = path.trim_start();
            let end = path.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric());
            found.push(&path[..end.unwrap_or(path.len())]);
        }
    }
    found.retain(|word| word.chars().next().is_some_and(|first| first.is_ascii_lowercase()));
    found
}

#[test]
fn crates_use_only_those_below_them() {
    let folders: BTreeSet<String> = fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let known: BTreeSet<String> = CRATES.map(|(name, _)| name.to_owned()).into();
    assert_eq!(folders, known, "each crate has its place in the table");
    for (name, allowed) in CRATES {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let used = dependencies(&manifest);
        let other: Vec<&String> = used.iter().filter(|used| !allowed.contains(&used.as_str())).collect();
        assert!(other.is_empty(), "{name} uses {other:?}");
        // A path that is not in the table any more is a line too many here.
        let unused: Vec<&&str> = allowed.iter().filter(|allowed| !used.contains(**allowed)).collect();
        assert!(unused.is_empty(), "{name} does not use {unused:?}");
    }
}

#[test]
fn commands_that_serve_and_keep_data_know_nothing_of_benchmarks() {
    for module in DATA_COMMANDS {
        let files = sources(module);
        assert!(!files.is_empty(), "there is no module {module}");
        for file in files {
            let code = code(&fs::read_to_string(&file).unwrap());
            for benchmark in BENCHMARKS {
                assert!(!code.contains(benchmark), "{} uses {benchmark}", file.display());
            }
            for used in behind(&code, "crate::") {
                assert!(DATA_COMMANDS.contains(&used), "{} uses crate::{used}", file.display());
            }
            // In the module itself `super` is the root; in a module inside of it `super::super` is.
            let is_module = file.ends_with(format!("{module}.rs")) || file.ends_with("mod.rs");
            let root = if is_module { "super::" } else { "super::super::" };
            for used in behind(&code, root) {
                assert!(DATA_COMMANDS.contains(&used), "{} uses {root}{used}", file.display());
            }
        }
    }
}

#[test]
fn manifests_and_paths_are_read() {
    let manifest = "[package]\nname = \"rialto-x\"\n[dependencies]\nrialto.workspace = true\nrialto-sql = { path = \"p\" }\n\
        clap.workspace = true\n[dev-dependencies]\nrialto-server = { workspace = true }\n[features]\nrialto-no = []\n";
    let found: Vec<String> = dependencies(manifest).into_iter().collect();
    assert_eq!(found, ["rialto", "rialto-server", "rialto-sql"]);
    let code =
        code("use crate::{bench::X, args};\nlet a = crate::output::fail; // crate::no::No\nuse crate::Top;");
    assert_eq!(behind(&code, "crate::"), ["bench", "args", "output"]);
}

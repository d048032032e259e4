//! README and the pages of docs: their links lead somewhere, and the program takes the commands that they show.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::common::{json, run, succeeds, text};
use serde_json::Value as Json;

/// Lines that README may have.
const README_LINES_MAX: usize = 200;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// All Markdown pages of the repository, with their text.
fn pages() -> BTreeMap<PathBuf, String> {
    fn collect(directory: &Path, pages: &mut BTreeMap<PathBuf, String>) {
        for entry in std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"))
        {
            let (path, name) = (entry.path(), entry.file_name());
            let is_left_out =
                ["target", ".git", "rialto-data", "shared"].iter().any(|left_out| name == *left_out);
            if entry.file_type().expect("a type").is_dir() {
                if !is_left_out {
                    collect(&path, pages);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.insert(path.clone(), std::fs::read_to_string(&path).expect("UTF-8"));
            }
        }
    }
    let mut pages = BTreeMap::new();
    collect(&root(), &mut pages);
    assert!(pages.len() > 15, "{:?}", pages.keys());
    pages
}

/// The lines of a page, each with its number and the language of the code block that it is in.
fn lines(page: &str) -> impl Iterator<Item = (usize, Option<&str>, &str)> {
    let mut block = None;
    page.lines().enumerate().filter_map(move |(number, line)| {
        let Some(fence) = line.trim_start().strip_prefix("```") else {
            return Some((number + 1, block, line));
        };
        block = if block.is_some() { None } else { Some(fence) };
        None
    })
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> HashSet<String> {
    let headings = lines(page).filter(|(_, block, line)| block.is_none() && line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(|(_, _, heading)| anchor(heading)).collect()
}

/// What the links of a line lead to: `](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

#[test]
fn each_link_leads_to_a_file_and_to_a_heading_of_it() {
    let pages = pages();
    let (mut found, mut wrong) = (0, Vec::new());
    for (path, page) in &pages {
        for (number, _, line) in lines(page).filter(|(_, block, _)| block.is_none()) {
            for target in targets(line).filter(|target| !target.contains("://")) {
                found += 1;
                let (file, anchor) =
                    target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
                let file =
                    if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
                let is_there = file.canonicalize().is_ok_and(|file| {
                    let page = pages.get(&file);
                    anchor.is_none_or(|anchor| page.is_some_and(|page| anchors(page).contains(anchor)))
                });
                if !is_there {
                    wrong.push(format!("{}:{number}: {target}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 100, "{found} links");
}

#[test]
fn readme_is_short() {
    let lines = pages()[&root().join("README.md")].lines().count();
    assert!(lines <= README_LINES_MAX, "README has {lines} lines, at most {README_LINES_MAX} are allowed");
}

/// The words of a command up to a pipe, a redirection or a comment; quotes keep words together.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(end)) if c == end => quote = None,
            ('|' | '<' | '>' | '#' | '&', None) if word.is_none() => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The arguments of each call of the program in the shell blocks of a page.
fn commands(page: &str) -> Vec<(usize, Vec<String>)> {
    let mut commands = Vec::new();
    let mut continued = String::new();
    for (number, _, line) in lines(page).filter(|(_, block, _)| *block == Some("sh")) {
        continued += line.trim_end_matches('\\');
        if line.ends_with('\\') {
            continue;
        }
        let whole = std::mem::take(&mut continued);
        let called = match whole.split_once("cargo run --release -- ") {
            Some((_, arguments)) => Some(arguments),
            None => whole.trim_start().strip_prefix("rialto "),
        };
        commands.extend(called.map(|arguments| (number, words(arguments))));
    }
    commands
}

/// Each command is given `--help` as well: the program looks at all options before that, and at their values, and runs nothing.
#[test]
fn the_program_takes_each_command_that_is_shown() {
    let root = root();
    let (mut found, mut wrong) = (0, Vec::new());
    // The programs of bench/peers are others.
    let shown = pages().into_iter().filter(|(path, _)| !path.starts_with(root.join("bench")));
    for (path, (number, arguments)) in
        shown.flat_map(|(path, page)| commands(&page).into_iter().map(move |command| (path.clone(), command)))
    {
        found += 1;
        // A program without the feature has no such commands.
        if arguments.first().is_some_and(|command| command == "cluster") && !cfg!(feature = "etcd") {
            continue;
        }
        let mut all: Vec<&str> = arguments.iter().map(String::as_str).collect();
        all.push("--help");
        let output = run(&all);
        if !output.status.success() {
            wrong.push(format!("{}:{number}: {arguments:?}: {}", path.display(), text(&output)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 40, "{found} commands");
}

#[test]
fn the_page_on_bench_has_each_key_of_its_json_object() {
    let bench = "bench tpcb --disk memory --memory-bytes 300000000 --accounts 2000 --scale 2 --warmup 0.2 --seconds 0.2 --json";
    let result = json(&succeeds(run(&bench.split(' ').collect::<Vec<_>>())));
    let Json::Object(members) = result else { panic!("{result} is no object") };
    let page = &pages()[&root().join("docs/bench.md")];
    let missing: Vec<_> = members.iter().filter(|(key, _)| !page.contains(&format!("`{key}`"))).collect();
    assert!(members.len() > 40 && missing.is_empty(), "{missing:?}");
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let page = "```sh\necho 'a' | cargo run --release -- bench card --mix A=1,B=2 --versus '--locks central' > out   # why\n\
                cargo run --release -- check \\\n    --data \"a b\"\nls\n```\nrialto serve\n";
    let arguments: Vec<_> = commands(page).into_iter().map(|(_, arguments)| arguments).collect();
    let expected: [&[&str]; 2] =
        [&["bench", "card", "--mix", "A=1,B=2", "--versus", "--locks central"], &["check", "--data", "a b"]];
    assert_eq!(arguments, expected);
}

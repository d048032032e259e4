//! The rooms of the kernel, from the bottom up, and a test that each uses only the rooms below it.
//!
//! The test reads the paths in each file: those that begin with `crate::` or `super::`, in `use` declarations and
//! elsewhere. Tests, and their models, may use any room.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The rooms, lowest first, with the modules of each. A module that is not named here has no room: name it.
const ROOMS: &[(&str, &[&str])] = &[
    (
        "error",
        &[
            "fault_injection",
            "error",
            "foreign",
            "growth",
            "ids",
            "inside",
            "probes",
            "opening",
            "unlikely",
            "seed",
        ],
    ),
    ("io", &["io"]),
    ("account", &["account"]),
    ("row", &["row"]),
    ("catalog", &["catalog"]),
    ("store", &["store"]),
    ("log", &["log"]),
    ("isolate", &["isolate"]),
    ("commit", &["commit"]),
    ("reply", &["reply"]),
    ("txn", &["txn"]),
    ("checkpoint", &["checkpoint"]),
    ("recovery", &["recovery"]),
    ("engine", &["engine"]),
    ("backup", &["backup"]),
    ("database", &["database", "metrics", "open", "options", "records"]),
];

/// Modules of tests, which may use all rooms.
const TESTS: &[&str] =
    &["arrows", "fuzz", "histories", "interleavings", "log::virtual_time", "row::random_tests", "type_names"];

/// The modules that may know the memory-resident store, because they work on its segments. All others reach rows by
/// [`TableStore`](crate::store::TableStore) and [`Storage`](crate::store::Storage).
const KNOW_MEMORY: &[&str] = &["store", "checkpoint", "recovery", "backup", "open"];

/// The ways into that store: by its path, by that of the trees that are its indexes, and from these two types.
const WAYS_TO_MEMORY: &[&str] =
    &["store::memory", "store::tree", ".memory()", "TableStore::memory", "storage.memory"];

/// The types and functions of that store that the store's root re-exports as a part of the seam. All others stay behind
/// it.
const SEAM: &[&str] = &[
    "Admit",
    "Batch",
    "BodyWords",
    "Direction",
    "Found",
    "Guard",
    "InsertRow",
    "Leaf",
    "LoadFileBytes",
    "LoadMark",
    "LoadedRows",
    "More",
    "ScanRange",
    "SegmentId",
    "Vacancy",
    "load_file_name",
    "load_file_number",
];

/// A module's path below the crate, "" for its root.
type Module = String;

/// The source files of the kernel that are no tests: the module of each, and its text without comments, literals and
/// tests.
pub(super) fn sources() -> BTreeMap<Module, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = BTreeMap::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let file = path.strip_prefix(&root).unwrap().to_str().unwrap();
            let Some(file) = file.strip_suffix(".rs") else { continue };
            let mut segments: Vec<&str> = file.split('/').collect();
            if segments.last().is_some_and(|last| ["mod", "lib"].contains(last)) {
                segments.pop();
            }
            let module = segments.join("::");
            let is_test = segments.iter().any(|segment| ["tests", "model"].contains(segment))
                || TESTS.iter().any(|tests| is_within(&module, tests));
            if !is_test {
                sources.insert(module, without_tests(&code(&fs::read_to_string(&path).unwrap())));
            }
        }
    }
    sources
}

/// The text without its comments, with literals emptied.
fn code(text: &str) -> String {
    // A quotation mark as a character begins no text.
    let text = text.replace("'\"'", "' '");
    let mut code = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(sign) = rest.next() {
        match sign {
            '/' if rest.peek() == Some(&'/') => {
                rest.by_ref().find(|sign| *sign == '\n');
                code.push('\n');
            }
            '"' => {
                code.push_str("\"\"");
                while let Some(sign) = rest.next().filter(|sign| *sign != '"') {
                    if sign == '\\' {
                        rest.next();
                    }
                }
            }
            _ => code.push(sign),
        }
    }
    code
}

/// The code without the items behind `#[cfg(test)]` and similar attributes.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        let item = &rest[at..];
        let mut depth = 0;
        let end = item.char_indices().find(|(_, sign)| {
            depth += match sign {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            // An item ends with its block, a declaration with a semicolon, a field or an arm with a comma.
            depth < 0 || depth == 0 && ['}', ';', ','].contains(sign)
        });
        rest = end.map_or("", |(end, _)| &item[end + 1..]);
    }
    kept + rest
}

/// The paths in a module's code, from the crate's root on; a tree of `use` gives each of its paths.
fn paths(module: &str, code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|sign| sign.is_alphanumeric() || sign == '_' || sign == ':') {
                continue;
            }
            let mut base: Vec<&str> =
                if start == "crate::" { Vec::new() } else { module.split("::").collect() };
            let mut rest = &code[at..];
            while let Some(behind) = rest.strip_prefix("super::") {
                base.pop();
                rest = behind;
            }
            rest = rest.strip_prefix("crate::").unwrap_or(rest);
            tree(&base.join("::"), rest, &mut paths);
        }
    }
    paths
}

/// Adds the paths of a tree of `use` below a base. Returns how many bytes of the text the tree takes.
fn tree(base: &str, text: &str, paths: &mut Vec<String>) -> usize {
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let mut path = base.to_owned();
    let mut at = 0;
    loop {
        let word = text[at..].find(|sign| !is_word(sign)).unwrap_or(text.len() - at);
        if word > 0 {
            let separator = if path.is_empty() { "" } else { "::" };
            path = format!("{path}{separator}{}", &text[at..at + word]);
            at += word;
        }
        match &text[at..] {
            rest if rest.starts_with("::") => at += 2,
            rest if rest.starts_with('{') && text[..at].is_empty() | text[..at].ends_with("::") => {
                at += 1;
                loop {
                    at += text[at..].find(|sign: char| !sign.is_whitespace() && sign != ',').unwrap_or(0);
                    if text[at..].starts_with('}') {
                        return at + 1;
                    }
                    at += tree(&path, &text[at..], paths);
                    // A new name that the item gets here.
                    at += text[at..].find([',', '}']).unwrap_or(0);
                }
            }
            _ => {
                paths.push(path);
                return at.max(1);
            }
        }
    }
}

fn is_within(module: &str, other: &str) -> bool {
    module == other || module.strip_prefix(other).is_some_and(|rest| rest.starts_with("::"))
}

/// The room that a path leads to, by the longest module name that the path begins with.
fn room_of(path: &str) -> Option<usize> {
    let rooms =
        ROOMS.iter().enumerate().flat_map(|(room, (_, modules))| modules.iter().map(move |it| (it, room)));
    let within = rooms.filter(|(module, _)| is_within(path, module));
    within.max_by_key(|(module, _)| module.len()).map(|(_, room)| room)
}

/// The names that the root of the crate or of a room re-exports, each with its path.
fn re_exports(root: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let restricted = root.match_indices("pub(crate) use ");
    for (at, found) in root.match_indices("pub use ").chain(restricted) {
        let mut paths = Vec::new();
        tree("", &root[at + found.len()..], &mut paths);
        all.extend(paths.into_iter().map(|path| (path.rsplit("::").next().unwrap().to_owned(), path)));
    }
    all
}

#[test]
fn arrows_go_down() {
    let sources = sources();
    assert!(sources.len() > 200, "{} files are no kernel", sources.len());
    let gone: Vec<_> =
        ROOMS.iter().flat_map(|(_, modules)| *modules).filter(|it| !sources.contains_key(**it)).collect();
    assert!(gone.is_empty(), "rooms are made of modules that are not there: {gone:?}");
    let names = re_exports(&sources[""]);
    let mut up = BTreeSet::new();
    let mut across = 0;
    for (module, code) in sources.iter().filter(|(module, _)| !module.is_empty()) {
        let room = room_of(module).unwrap_or_else(|| panic!("the module {module} has no room"));
        for path in paths(module, code) {
            let first = path.split("::").next().unwrap();
            let path = names.get(first).unwrap_or(&path);
            // A macro, or an item of the root.
            let Some(used) = room_of(path) else { continue };
            across += usize::from(used != room);
            if used > room {
                up.insert((module.as_str(), ROOMS[used].0, path.clone()));
            }
        }
    }
    assert!(across > 1_000, "only {across} paths lead from room to room: they are not read");
    assert!(up.is_empty(), "these use a room above their own: {up:#?}");
}

/// Whether a module's code leads into the memory-resident store, by its path or by a value of the store.
fn leads_to_memory(module: &str, code: &str) -> bool {
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    // A chain of calls may span several lines.
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ").replace(" .", ".");
    let has = |way: &str| code.match_indices(way).any(|(at, _)| !code[at + way.len()..].starts_with(is_word));
    // Its name alone, where all names of the store are imported. `io` also has a module of that name.
    let has_name = code
        .match_indices("memory::")
        .any(|(at, _)| !code[..at].ends_with(|sign| is_word(sign) || sign == ':'));
    paths(module, &code).iter().any(|path| is_within(path, "store::memory") || is_within(path, "store::tree"))
        || WAYS_TO_MEMORY.iter().any(|way| has(way))
        || has_name && !is_within(module, "io")
}

#[test]
fn the_memory_resident_store_is_behind_its_seam() {
    let sources = sources();
    let knows = |module: &str| KNOW_MEMORY.iter().any(|it| is_within(module, it));
    let found = sources.iter().filter(|(module, code)| leads_to_memory(module, code));
    let (inside, outside): (Vec<_>, Vec<_>) =
        found.map(|(module, _)| module.as_str()).partition(|module| knows(module));
    assert!(inside.len() > 40, "only {} modules are seen to know it: they are not read", inside.len());
    assert!(outside.is_empty(), "these know the memory-resident store: {outside:#?}");
    let of_memory = re_exports(&sources["store"])
        .into_iter()
        .filter(|(_, path)| is_within(path, "memory") || is_within(path, "tree"));
    let names: Vec<String> = of_memory.map(|(name, _)| name).collect();
    assert_eq!(names, SEAM, "what the store's root re-exports of it");
}

/// The test above is only as good as what it detects.
#[test]
fn each_way_into_the_memory_resident_store_is_seen() {
    for way in [
        "use crate::store::memory::RecordRef;",
        "use crate::store::{Storage, memory::RecordRef};",
        "use super::super::store::memory;",
        "use crate::store::tree::Index;",
        "use crate::store; fn f(record: store::memory::RecordRef) {}",
        "use crate::store::*; fn f(record: memory::RecordRef) {}",
        "fn f(core: &Core) { core.storage.memory.segments.lsn() }",
        "fn f(core: &Core) { let memory = &core.storage.memory; memory.segments.lsn() }",
        "fn f(core: &Core) {\n    core\n        .storage\n        .memory\n        .segments\n }",
        "fn f(store: &TableStore) { store.memory().primary.get() }",
        "fn f(stores: &[TableStore]) { stores.iter().map(TableStore::memory) }",
    ] {
        assert!(leads_to_memory("txn::seek", way), "{way}");
    }
    for other in ["fn f(core: &Core) { core.storage.memory_limit() }", "use crate::io::MemoryDisk;"] {
        assert!(!leads_to_memory("txn::seek", other), "{other}");
    }
}

//! A check that no two types of the kernel have one name: a word means one thing, whichever room it is read in.
//!
//! Tests, and models of them, may name their types as they like.

use std::collections::BTreeMap;
use std::path::Path;

use super::arrows::sources;

/// Primitives that several rooms wrap in their modules `sync`, for each of which a model checker has its own. The
/// wrappers keep the primitives' names.
const PRIMITIVES: &[&str] = &["Condvar"];

/// What declares a type.
const KEYWORDS: &[&str] = &["struct", "enum", "trait", "union", "type"];

/// The names of the structs, enums, traits and aliases that a text declares. An alias that is indented is a trait's.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let mut rest = line.trim_start();
        if let Some(behind) = rest.strip_prefix("pub") {
            rest = match behind.split_once(')') {
                Some((_, item)) if behind.starts_with('(') => item,
                _ => behind,
            };
        }
        let mut words = rest.split(|sign: char| !sign.is_alphanumeric() && !"_$".contains(sign));
        let mut word = || words.find(|word| !["", "unsafe"].contains(word));
        let keyword = word().filter(|word| KEYWORDS.contains(word))?;
        let is_associated = keyword == "type" && line.starts_with(' ');
        word().filter(|name| !is_associated && name.starts_with(char::is_uppercase))
    })
}

/// The file of a module, below the crate.
fn file_of(module: &str) -> String {
    let path = format!("src/{}", module.replace("::", "/"));
    let files = [format!("{path}.rs"), format!("{path}/mod.rs")];
    let there = |file: &String| Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists();
    files.into_iter().find(there).unwrap_or_else(|| "src/lib.rs".to_owned())
}

#[test]
fn no_two_types_have_one_name() {
    let sources = sources();
    let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (module, code) in &sources {
        for name in declared(code) {
            if !(PRIMITIVES.contains(&name) && module.ends_with("::sync")) {
                files.entry(name).or_default().push(file_of(module));
            }
        }
    }
    assert!(files.len() > 600, "only {} types are declared: they are not read", files.len());
    files.retain(|_, files| files.len() > 1);
    assert!(files.is_empty(), "several types have one name: {files:#?}");
}

/// The test above is as good as what it sees.
#[test]
fn each_declaration_of_a_type_is_seen() {
    for code in [
        "struct Name;",
        "pub struct Name(u64);",
        "pub(in crate::engine) struct Name<'a> {",
        "pub(super) enum Name<T> {",
        "pub(crate) unsafe trait Name: Send {",
        "type Name = Vec<u64>;",
        "fn f() {\n    struct Name;\n}",
    ] {
        assert_eq!(declared(code).collect::<Vec<_>>(), ["Name"], "{code}");
    }
    for code in ["    type Name = u64;", "pub use name::Name;", "let structure = Name;", "struct $Name;"] {
        assert_eq!(declared(code).next(), None, "{code}");
    }
}

//! Tests docs/sql.md: every accepted example runs, in order, and every refused one gets 0A000 with the name of its
//! construct.

use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_sql::parse::CopyDirection;
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError, SqlState};

const PAGE: &str = include_str!("../../../../docs/sql.md");

/// The statements of the blocks that begin with ```` ```sql ```` and this word, with their line numbers.
fn statements(word: &str) -> Vec<(usize, String)> {
    let fence = format!("```sql{word}");
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in PAGE.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == fence;
        } else if inside {
            assert!(line.ends_with(';'), "line {} of docs/sql.md is no whole statement", number + 1);
            found.push((number + 1, line.trim_end_matches(';').to_string()));
        }
    }
    assert!(found.len() > 40, "docs/sql.md has lost its examples");
    found
}

fn run(session: &mut Session, sql: &str) -> Result<(), SqlError> {
    let answer = (|| {
        let prepared = session.prepare(sql, &[])?;
        if let Some((CopyDirection::FromStdin, _)) = prepared.copy() {
            let mut copy = session.begin_copy(&prepared)?;
            session.run_copy(&mut copy, &[], true)?;
        } else {
            session.execute(&prepared, &[], &mut Collected::default())?;
        }
        session.finish()
    })();
    match answer {
        Ok(_) => Ok(()),
        Err(error) => {
            let _ = session.fail(&error);
            Err(error)
        }
    }
}

fn session() -> Session {
    let database = Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens");
    Session::new(database, "ann", "bank")
}

/// Constructs whose name is no word of the statement.
const CONSTRUCTS: [&str; 3] = ["a window function", "a subquery", "arithmetic on dates and timestamps"];

/// Whether a word of the message, other than "is not supported", is a word of the statement.
fn names_its_construct(error: &SqlError, sql: &str) -> bool {
    if CONSTRUCTS.iter().any(|construct| error.message.starts_with(construct)) {
        return true;
    }
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words.filter(|word| word.len() > 1).map(str::to_lowercase).collect()
    };
    let statement = words(sql);
    words(&error.message).iter().any(|word| !["is", "not"].contains(&&**word) && statement.contains(word))
}

#[test]
fn what_the_page_says_is_accepted_and_refused_is() {
    let mut session = session();
    for (line, sql) in statements("") {
        if let Err(error) = run(&mut session, &sql) {
            panic!("docs/sql.md:{line}: {sql}\n{} {error}", error.sqlstate.code());
        }
    }
    let mut wrong = Vec::new();
    for (line, sql) in statements(" refused") {
        match run(&mut session, &sql) {
            Ok(()) => wrong.push(format!("docs/sql.md:{line}: accepted: {sql}")),
            Err(error) if error.sqlstate == SqlState::FeatureNotSupported => {
                if !names_its_construct(&error, &sql) {
                    wrong.push(format!("docs/sql.md:{line}: {sql}\n    names nothing of it: {error}"));
                }
            }
            Err(error) => {
                wrong.push(format!("docs/sql.md:{line}: {sql}\n    {} {error}", error.sqlstate.code()))
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

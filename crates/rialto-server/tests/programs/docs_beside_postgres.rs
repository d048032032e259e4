//! The statements that docs/sql.md accepts give the same answers as in PostgreSQL: they run, in their order, on a
//! private PostgreSQL too, and the answers are compared value by value. The differences are listed here, each with the
//! page's sentence about it.

use crate::common::*;
use crate::postgres::Postgres;

const PAGE: &str = include_str!("../../../../docs/sql.md");

/// The part of a statement's answer that differs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Differs {
    /// The values and types of these columns, counted from 0.
    Columns(&'static [usize]),
    /// The whole answer.
    All,
}

/// Statements whose answers differ, by their beginnings, and the sentence of the page.
const DIFFERENCES: &[(&str, Differs, &str)] = &[
    // The times of two servers, one after the other.
    ("SELECT 1, 'text', now()", Differs::Columns(&[2]), "`now`, `transaction_timestamp`"),
    (
        "DELETE FROM event RETURNING account, at",
        Differs::Columns(&[1]),
        "`CURRENT_TIMESTAMP`, `LOCALTIMESTAMP`",
    ),
    (
        "SELECT CURRENT_TIMESTAMP, LOCALTIMESTAMP",
        Differs::Columns(&[0, 1, 3, 4, 5]),
        "`version` names Rialto, and names of users and databases are `text` (`name` in PostgreSQL)",
    ),
    ("EXPLAIN ", Differs::All, "`EXPLAIN` says which"),
    ("SHOW transaction_isolation", Differs::Columns(&[0]), SERIALIZABLE),
    ("SHOW TRANSACTION ISOLATION LEVEL", Differs::Columns(&[0]), SERIALIZABLE),
    ("SHOW default_transaction_isolation", Differs::Columns(&[0]), SERIALIZABLE),
    (
        "SHOW ALL",
        Differs::All,
        "Other settings that clients send have one fixed value each: `SHOW ALL` lists it",
    ),
    ("ALTER SYSTEM SET rialto.raise_stalls", Differs::All, RAISE_STALLS),
    ("SHOW rialto.raise_stalls", Differs::All, RAISE_STALLS),
    ("ALTER SYSTEM RESET rialto.raise_stalls", Differs::All, RAISE_STALLS),
    (
        "COPY account (id, balance) FROM STDIN WITH (FREEZE ON",
        Differs::All,
        "`freeze` has no effect. PostgreSQL accepts it only for a table that the transaction has created or truncated",
    ),
    ("SELECT * FROM event", Differs::Columns(&[2]), "`text` (or `varchar` without a length)"),
];

const SERIALIZABLE: &str = "Every transaction is serializable, whatever level it asks for";
const RAISE_STALLS: &str = "`rialto.raise_stalls` belongs to the whole database";

/// The statements that the page accepts, with their line numbers.
fn statements() -> Vec<(usize, &'static str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (number, line) in PAGE.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```sql";
        } else if inside {
            found.push((number + 1, line.trim_end_matches(';')));
        }
    }
    assert!(found.len() > 40, "docs/sql.md has lost its examples");
    found
}

/// A server's answer to a statement.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    /// The names of the columns, with the numbers of their types.
    names: Vec<(String, u32)>,
    /// NULL is `None`.
    rows: Vec<Vec<Option<String>>>,
    /// The lines of a COPY.
    copied: Vec<String>,
    /// The command's tag, or an SQLSTATE.
    end: String,
    /// The state of the session: the letter of ReadyForQuery.
    state: char,
}

/// The columns of a RowDescription.
fn columns(body: &[u8]) -> Vec<(String, u32)> {
    let mut rest = &body[2..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == 0).expect("a name ends");
        let name = String::from_utf8(rest[..end].to_vec()).unwrap();
        // Behind the name come table, column, type, length, modifier, format.
        let sql_type = u32::from_be_bytes(rest[end + 7..end + 11].try_into().unwrap());
        found.push((name, sql_type));
        rest = &rest[end + 19..];
    }
    found
}

fn answer_to(client: &mut Client, sql: &str) -> Answer {
    client.send(&query(sql));
    let mut messages = Vec::new();
    loop {
        let message = client.read().unwrap_or_else(|| panic!("the connection ends within {sql}"));
        match message.0 {
            // No data comes: nothing is copied.
            b'G' => client.send(&crate::common::message(b'c', b"")),
            b'Z' => {
                messages.push(message);
                break;
            }
            _ => messages.push(message),
        }
    }
    let body = |tag: u8| messages.iter().find(|message| message.0 == tag).map(|(_, body)| &body[..]);
    let text = |body: &[u8]| String::from_utf8_lossy(body).trim_end_matches('\0').to_owned();
    let mut rows = rows(&messages);
    if !sql.to_uppercase().contains("ORDER BY") {
        rows.sort();
    }
    let mut copied: Vec<_> =
        messages.iter().filter(|(tag, _)| *tag == b'd').map(|(_, body)| text(body)).collect();
    copied.sort();
    Answer {
        names: body(b'T').map(columns).unwrap_or_default(),
        rows,
        copied,
        end: error_code(&messages).or_else(|| body(b'C').map(text)).unwrap_or_default(),
        state: state(&messages),
    }
}

/// Removes the parts that differ.
fn without(mut answer: Answer, differs: Differs) -> Option<Answer> {
    let Differs::Columns(columns) = differs else { return None };
    columns.iter().for_each(|&column| answer.names[column].1 = 0);
    for row in &mut answer.rows {
        columns.iter().for_each(|&column| row[column] = None);
    }
    // The sort key may differ.
    answer.rows.sort();
    Some(answer)
}

/// The words, with any line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn statements_of_the_page_give_what_postgresql_gives() {
    for (statement, _, sentence) in DIFFERENCES {
        assert!(words(PAGE).contains(&words(sentence)), "{statement}: the page does not say \"{sentence}\"");
    }
    let Some(postgres) = Postgres::start() else { return };
    let server = TestServer::start();
    let (mut ours, mut theirs) = (server.connect(), Client::connect(postgres.address));
    let mut wrong = Vec::new();
    let mut unused: Vec<_> = DIFFERENCES.iter().map(|(statement, ..)| *statement).collect();
    // The tables at the end are compared, too.
    let left = ["SELECT * FROM account ORDER BY id", "SELECT * FROM event", "SELECT count(*) FROM kinds"];
    for (line, sql) in statements().into_iter().chain(left.map(|sql| (0, sql))) {
        let (our, their) = (answer_to(&mut ours, sql), answer_to(&mut theirs, sql));
        let difference = DIFFERENCES.iter().find(|(statement, ..)| sql.starts_with(statement));
        let differs_as_told = difference.is_some_and(|(statement, differs, _)| {
            unused.retain(|unused| unused != statement);
            our != their && without(our.clone(), *differs) == without(their.clone(), *differs)
        });
        if our != their && !differs_as_told {
            wrong.push(format!("docs/sql.md:{line}: {sql}\n  Rialto:     {our:?}\n  PostgreSQL: {their:?}"));
        } else if difference.is_some() && !differs_as_told {
            wrong.push(format!("docs/sql.md:{line}: {sql}: is the same, and listed as a difference"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(unused.is_empty(), "listed as a difference, and not on the page: {unused:?}");
}

//! Statements made of bytes: an ASCII byte stands for itself, and each other byte for a piece of SQL.
//!
//! So a fuzzer that changes single bytes tries other keywords, names and literals. Otherwise it would have to find each
//! of their letters.

/// The pieces for the bytes from 128 on. The kept corpora are written with this table: a piece that changes its place
/// changes the meaning of their inputs.
const WORDS: [&str; 128] = [
    "select ",
    "insert into ",
    "update ",
    "delete from ",
    " values ",
    " set ",
    " from ",
    " where ",
    " and ",
    " or ",
    " not ",
    " is ",
    " in (",
    " between ",
    " like ",
    " order by ",
    " desc",
    " nulls first",
    " limit ",
    " offset ",
    " for update",
    " returning ",
    "null",
    "true",
    "false",
    "default",
    "unknown",
    "account",
    "event",
    "kinds",
    "id",
    "owner",
    "balance",
    "note",
    "what",
    " at ",
    "b, ",
    "i2",
    "i4",
    "i8",
    "f8",
    "d",
    "ts",
    "count(*)",
    "coalesce(",
    "nullif(",
    "abs(",
    "mod(",
    "length(",
    "lower(",
    "upper(",
    "cast(",
    " as ",
    "::",
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "double precision",
    "numeric(5,2)",
    "text",
    "varchar",
    "char(3)",
    "bytea",
    "date",
    "timestamp",
    "create table ",
    "create index ",
    "create unique index ",
    " on ",
    "drop table ",
    "drop index ",
    " if exists ",
    " if not exists ",
    " primary key (",
    " unique ",
    " not null",
    "alter table ",
    " add primary key (",
    "truncate ",
    "begin;",
    "commit;",
    "rollback;",
    "savepoint ",
    "rollback to ",
    "release ",
    "set ",
    "set local ",
    "reset ",
    "show ",
    "all",
    "lock_timeout",
    "rialto.durability",
    "transaction read only",
    "default_transaction_read_only",
    "explain ",
    "analyze ",
    "vacuum ",
    "copy ",
    " from stdin",
    " to stdout",
    " with (",
    "delimiter ",
    "generate_series(1, 9)",
    "9223372036854775807",
    "-9223372036854775808",
    "2147483647",
    "32767",
    "0.5",
    "1e308",
    "1e-308",
    "99999999999999999999",
    "'",
    "''",
    "E'\\x",
    "$$",
    "'2026-01-31'",
    "'infinity'",
    "'NaN'",
    "'\\x00'",
    "$1",
    "é",
    "𝄞",
    " || ",
    " <> ",
    "current_timestamp",
    "/*",
    "--",
];

/// The text of the bytes.
pub fn text(data: &[u8]) -> String {
    let mut text = String::with_capacity(4 * data.len());
    for &byte in data {
        match byte.checked_sub(128) {
            Some(word) => text.push_str(WORDS[usize::from(word)]),
            None => text.push(char::from(byte)),
        }
    }
    text
}

/// Whether the text runs for a short time, and writes only to the database.
pub fn is_harmless(text: &str) -> bool {
    let text = text.to_lowercase();
    if text.contains("backup") {
        return false;
    }
    // A series of few rows only: of short numbers, which no operator makes longer.
    let text = text.replace("(*)", "").replace("select *", "");
    let grows = ['*', '|', '\'', '.', '\\', '$', '<'];
    let is_short = |number: &str| number.len() <= 2 && number.bytes().all(|byte| byte.is_ascii_digit());
    let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    !text.contains("generate_series")
        || !text.contains(grows)
            && words.all(|word| !word.starts_with(|letter: char| letter.is_numeric()) || is_short(word))
}

/// Whether the answer, or what is written, depends on the time of the run.
pub fn tells_the_time(text: &str) -> bool {
    let text = text.to_lowercase();
    ["now", "current_", "localtime", "transaction_timestamp"].iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_letters_or_words() {
        assert_eq!(text(b"\x80id\x86\x9b;"), "select id from account;");
        assert_eq!(text(&[255, 127]), "--\u{7f}");
    }

    #[test]
    fn what_does_not_end_soon_is_left_out() {
        for harmless in [
            "select 99999 * 99999, 'x' || 'y'",
            "SELECT * from Generate_Series(1, 99) n7 order by 1",
            "select count(*) from generate_series(1, 9)",
        ] {
            assert!(is_harmless(harmless), "{harmless}");
        }
        for endless in [
            "select * from generate_series(1, 999)",
            "select * from generate_series(1, 9*9)",
            "select * from generate_series(1, 9e9)",
            "Backup to '/'",
        ] {
            assert!(!is_harmless(endless), "{endless}");
        }
    }
}

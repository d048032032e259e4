//! The targets on bytes from a seed and on the kept inputs.

use super::*;
use crate::OpenError;

const SUITE: Suite = Suite { targets: &TARGETS, stack_bytes: 2 << 20 };

fn run(name: &str) {
    SUITE.try_seeds(name);
}

#[test]
fn the_kept_inputs_hold() {
    SUITE.try_kept();
}

#[test]
fn a_damaged_backup_is_what_was_backed_up_or_an_error() {
    run("backup_stream");
}

#[test]
fn a_damaged_backup_with_pages_is_what_was_backed_up_or_an_error() {
    run("backup_with_pages");
}

#[test]
fn a_damaged_archive_is_a_prefix_of_what_was_committed_or_an_error() {
    run("archive_files");
}

#[test]
fn a_damaged_database_is_what_it_was_or_an_error() {
    run("database_files");
}

#[test]
fn a_damaged_log_is_a_prefix_or_an_error() {
    run("log_files");
}

#[test]
fn a_forged_log_panics_nowhere() {
    run("forged_log");
}

#[test]
fn forged_calls_panic_nowhere() {
    run("forged_calls");
}

#[test]
fn forged_home_blocks_panic_nowhere() {
    run("forged_home");
}

#[test]
fn a_forged_image_panics_nowhere() {
    run("forged_image");
}

#[test]
fn any_bytes_are_redo_records_or_an_error() {
    run("redo_records");
}

#[test]
fn any_bytes_are_rows_and_keys_or_an_error() {
    run("rows_and_keys");
}

/// A change of a row's bytes.
type Forge = fn(&mut Vec<u8>);

/// Changes of a row of (id int4, flag bool?, sum numeric(9,2)?, code char(5), text?, bytes): one null byte, four bytes
/// of id, one of flag, sixteen of sum, then the ends of code, text and bytes, then their bytes.
const FORGERIES: [(&str, Forge, &str); 8] = [
    ("short", |row| row.truncate(10), "10 bytes, expected at least 28"),
    ("empty", |row| row.clear(), "0 bytes, expected at least 28"),
    ("an end before its beginning", |row| row[24] = 3, "column \"text\" ends at"),
    ("an end behind the row", |row| row[23] = 0x7f, "column \"code\" ends at"),
    ("a row that ends early", |row| row.truncate(row.len() - 1), "ends at"),
    ("a character cut in two", |row| row[28] = 0xc3, "invalid utf-8 sequence"),
    ("null bits of no column", |row| row[0] |= 0x80, "null bits beyond the 3 nullable columns"),
    ("a NULL over bytes", |row| row[0] ^= 7, "under a NULL"),
];

/// Under a right checksum each of these ends recovery with an error that names the file and the offset, or the table
/// and the key.
#[test]
fn a_row_that_is_none_is_named_wherever_it_comes_from() {
    for source in forged_rows::SOURCES {
        assert_eq!(forged_rows::open(&forged_rows::forged(source, |_| {})), Ok(()), "{source:?}");
        for (what, forge, expected) in FORGERIES {
            // The first row that is long enough, so that the error is about one row only.
            for skip in [5, 25, 45] {
                let mut nth = 0;
                let files = forged_rows::forged(source, |row| {
                    let is_row = row.len() >= 29;
                    nth += u32::from(is_row);
                    if is_row && nth == skip {
                        forge(row);
                    }
                });
                let error = forged_rows::open(&files).expect_err(&format!("{source:?}, {what}"));
                let OpenError::Corrupt { file, offset, what: says } = &error else {
                    panic!("{source:?}, {what}: {error:?}")
                };
                let tables = ["\"keyed\"", "\"named\"", "\"numbered\""];
                let named = tables.iter().any(|table| says.contains(table)) && says.contains(expected);
                assert!(named, "{source:?}, {what}: {error}");
                let placed = match source {
                    forged_rows::Source::Log => file.starts_with("the log, place ") && says.contains("key ("),
                    _ => files.contains_key(file) && *offset > 0 && *offset < files[file].len() as u64,
                };
                assert!(placed, "{source:?}, {what}: {error}");
            }
        }
    }
}

/// Programs that knew no digests wrote these logs.
#[test]
fn bulk_loads_that_the_log_names_by_number_alone_are_redone() {
    assert_eq!(forged_rows::open(&forged_rows::without_digests()), Ok(()));
}

/// A patch that leaves no row, and a row under another's key, are named as an invalid row is.
#[test]
fn a_record_that_makes_no_sense_is_named() {
    let mut done = false;
    let files = forged_rows::forged(forged_rows::Source::Log, |row| {
        if row.len() > 28 && !std::mem::replace(&mut done, true) {
            row[1] ^= 1;
        }
    });
    let error = forged_rows::open(&files).expect_err("row 1 at the key of row 0").to_string();
    let expected = "\"keyed\": the row of the key (id)=(0), at its byte 0: another key than the record's";
    assert!(error.contains(expected), "{error}");
    // Fields flag and sum.
    let forgeries: [(usize, Forge, &str); 3] = [
        (1, |bytes| bytes[0] = 0x88, "a bool of 136"),
        (16, |bytes| bytes.fill(0x7f), "has more than 9 digits"),
        (16, |bytes| bytes.resize(40, 0), "expected to end by"),
    ];
    for (length, forge, expected) in forgeries {
        let mut done = false;
        let files = forged_rows::forged(forged_rows::Source::Log, |bytes| {
            if bytes.len() == length && !std::mem::replace(&mut done, true) {
                forge(bytes);
            }
        });
        assert!(done, "no patch of {length} bytes");
        let error = forged_rows::open(&files).expect_err(expected).to_string();
        assert!(
            error.contains("\"keyed\": the row of the key (id)=(") && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn forged_rows_panic_nowhere() {
    run("forged_rows");
}

//! COPY, however its data is cut.

use std::sync::Arc;

use rialto_sql::Prepared;

use super::*;

/// The data of a COPY in pieces of this number of bytes, each with whether it is the last. The data ends with the last
/// piece that has bytes, or with an empty one behind it.
fn pieces(data: &[u8], piece: usize, ends_with_bytes: bool) -> Vec<(&[u8], bool)> {
    let mut pieces: Vec<_> = data.chunks(piece).map(|piece| (piece, false)).collect();
    match (ends_with_bytes, pieces.last_mut()) {
        (true, Some(last)) => last.1 = true,
        _ => pieces.push((b"", true)),
    }
    pieces
}

/// All ways to cut the data: from pieces of one byte to one piece.
fn cuts(data: &str) -> impl Iterator<Item = (usize, bool)> {
    (1..=data.len()).flat_map(|piece| [(piece, false), (piece, true)])
}

/// Copies this data into a new table, cut into pieces of this number of bytes. Gives the rows.
fn copied(session: &mut Session, data: &[u8], (piece, ends_with_bytes): (usize, bool)) -> Vec<Vec<String>> {
    run(session, "truncate t");
    let prepared = session.prepare("copy t from stdin", &[]).unwrap();
    let mut copy = session.begin_copy(&prepared).unwrap();
    for (piece, last) in pieces(data, piece, ends_with_bytes) {
        assert_eq!(session.run_copy(&mut copy, piece, last).unwrap().is_some(), last);
    }
    session.finish().unwrap();
    run(session, "select a, b from t order by a")
}

/// The data is refused as badly formed (22P04), in whatever pieces it comes.
fn is_bad_in_any_pieces(session: &mut Session, prepared: &Arc<Prepared>, data: &str) {
    for (piece, ends_with_bytes) in cuts(data) {
        let mut copy = session.begin_copy(prepared).unwrap();
        let mut pieces = pieces(data.as_bytes(), piece, ends_with_bytes).into_iter();
        let refused = pieces.find_map(|(piece, last)| session.run_copy(&mut copy, piece, last).err());
        let error = refused.expect(data);
        assert_eq!(error.sqlstate.code(), "22P04", "{data:?} in pieces of {piece}");
        session.fail(&error).unwrap();
    }
}

#[test]
fn a_newline_behind_a_backslash_is_data_however_a_copy_is_cut() {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table t (a int primary key, b text)");
    for end in ["", "\n", "\n\\.\n9\tnever\n"] {
        let lines = ["1\ta\\\nb", "2\tc\\\\", "3\td\\\r", "4\te", "5\t\\\\\\\nf", "6\t\\N"];
        let data = lines.join("\n") + end;
        let expected = ["a\nb", "c\\", "d\r", "e", "\\\nf", "NULL"];
        for cut in cuts(&data) {
            let rows = copied(&mut session, data.as_bytes(), cut);
            let found: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
            assert_eq!(found, expected, "{data:?} in pieces of {cut:?}");
        }
    }
}

/// As in PostgreSQL, the first line decides how lines end.
#[test]
fn lines_of_a_copy_end_in_one_way() {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table t (a int primary key, b text)");
    let rows = ["1\ta", "2\tb\\\r", "3\t", "4\tc\\\n"];
    for end in ["\n", "\r", "\r\n"] {
        for behind in ["", end, &format!("{end}\\.{end}5\tnever{end}")] {
            let data = rows.join(end) + behind;
            for cut in cuts(&data) {
                let copied = copied(&mut session, data.as_bytes(), cut);
                let texts: Vec<&str> = copied.iter().map(|row| row[1].as_str()).collect();
                assert_eq!(texts, ["a", "b\r", "", "c\n"], "{data:?} in pieces of {cut:?}");
            }
        }
    }
    run(&mut session, "create table one (text text)");
    let prepared = session.prepare("copy one from stdin", &[]).unwrap();
    for data in ["a\nb\r", "a\nb\r\n", "a\rb\n", "a\rb\r\n", "a\r\nb\n", "a\r\nb\rc\r\n", "a\r\nb\r"] {
        is_bad_in_any_pieces(&mut session, &prepared, data);
    }
}

#[test]
fn the_end_marker_of_a_copy_stands_alone_on_its_line() {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table t (a int primary key, b text)");
    let prepared = session.prepare("copy t from stdin", &[]).unwrap();
    for data in ["1\ta\\.\n", "1\t\\.\n2\tb\n", "1\\.5\ta\n", "\\.x\n", "1\ta\\."] {
        is_bad_in_any_pieces(&mut session, &prepared, data);
    }
    let data = "1\ta\\\\.\n\\.\n";
    for cut in cuts(data) {
        assert_eq!(copied(&mut session, data.as_bytes(), cut), [["1", "a\\."]], "in pieces of {cut:?}");
    }
}

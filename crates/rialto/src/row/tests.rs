//! Definitions, limits and conversions, each with its message.

use super::*;
use crate::{Error, IndexId, Result};

fn index(name: &str, columns: Vec<usize>, unique: bool) -> IndexDef {
    IndexDef { id: IndexId(name.len() as u32), name: name.into(), columns, unique }
}

fn accounts() -> Schema {
    let columns = vec![
        Column::new("id", ColumnType::Int8),
        Column::new("branch", ColumnType::Int4),
        Column::nullable("balance", ColumnType::Decimal { precision: 12, scale: 2 }),
        Column::nullable("owner", ColumnType::Char(10)),
        Column::nullable("note", ColumnType::Text),
    ];
    let indexes = vec![index("by_branch", vec![1, 2], false), index("owner", vec![3], true)];
    Schema::new("accounts", columns, Some(vec![0]), indexes).unwrap()
}

fn row(schema: &Schema, values: &[Value]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    encode(schema, values, &mut bytes).map(|()| bytes)
}

fn values() -> Vec<Value> {
    vec![7i64.into(), 3.into(), Decimal::new(1250, 2).unwrap().into(), "Ada  ".into(), Value::Null]
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_row_is_compact() {
    let schema = accounts();
    let bytes = row(&schema, &values()).unwrap();
    assert_eq!(bytes.len(), 1 + 8 + 4 + 16 + 2 * 2 + "Ada".len());
    assert_eq!(schema.row_bytes_min(), 33);
    let slot = schema.fixed_field(1).unwrap();
    assert_eq!((slot.offset, slot.len, slot.null_bit), (9, 4, None));
    assert!(schema.fixed_field(3).is_none());
    let view = RowView::new(&schema, &bytes);
    assert_eq!(view.to_string(), "accounts(id: 7, branch: 3, balance: 12.50, owner: Ada, note: NULL)");
}

#[test]
fn fields_are_read_alone() {
    let schema = accounts();
    let bytes = row(&schema, &values()).unwrap();
    let view = RowView::new(&schema, &bytes);
    assert_eq!(view.get_i64(0), Ok(7));
    assert_eq!(view.get_i64(1), Ok(3), "an int4 widens");
    assert_eq!(view.get_str(3), Ok("Ada"));
    assert_eq!(view.get(3), Value::Text("Ada       ".into()));
    assert_eq!(view.read::<Option<String>>("note"), Ok(None));
    assert_eq!(
        message(view.get_i32(0)),
        "column \"id\" is of type int8, but the value is asked for as a i32"
    );
    assert_eq!(
        message(view.get_str(4)),
        "column \"note\" is of type text, but the value is NULL, which an Option takes"
    );
    assert_eq!(message(view.read::<i64>("nope")), "column \"nope\" of table \"accounts\" does not exist");
    assert_eq!(message(view.get_bytes(9)), "column \"number 9\" of table \"accounts\" does not exist");
}

#[test]
fn values_are_checked_against_their_columns() {
    let schema = accounts();
    let with = |at: usize, value: Value| {
        let mut values = values();
        values[at] = value;
        message(row(&schema, &values))
    };
    assert_eq!(with(1, Value::Int8(5)), "no error");
    assert_eq!(
        with(1, Value::Int8(1 << 31)),
        "value 2147483648 is out of range for column \"branch\" of type int4"
    );
    assert_eq!(
        with(1, Value::Null),
        "null value in column \"branch\" of table \"accounts\", which is NOT NULL"
    );
    assert_eq!(with(1, "3".into()), "column \"branch\" is of type int4, but the value is text");
    assert_eq!(with(2, 3.into()), "no error");
    assert_eq!(with(2, "1.500".parse::<Decimal>().unwrap().into()), "no error");
    assert_eq!(
        with(2, "1.505".parse::<Decimal>().unwrap().into()),
        "value 1.505 is out of range for column \"balance\" of type decimal(12,2)"
    );
    assert_eq!(
        with(2, 10_000_000_000i64.into()),
        "value 10000000000 is out of range for column \"balance\" of type decimal(12,2)"
    );
    assert_eq!(with(3, "ÄÖÜäöüßÄÖÜ    ".into()), "no error");
    assert_eq!(
        with(3, "ÄÖÜäöüßÄÖÜß".into()),
        "value of 11 characters is too long for column \"owner\" of type char(10)"
    );
    assert_eq!(
        message(row(&schema, &values()[..4])),
        "row of 4 values for table \"accounts\", which has 5 columns"
    );
    let mut out = vec![1, 2, 3];
    assert!(encode(&schema, &[Value::Int8(1), Value::Null], &mut out).is_err());
    let mut unfinished = RowEncoder::new(&schema, &mut out);
    unfinished.put(ValueRef::Int8(1)).unwrap();
    assert!(matches!(unfinished.finish(), Err(Error::ColumnCount { expected: 5, found: 1, .. })));
    assert_eq!(out, [1, 2, 3], "an error leaves nothing behind");
}

#[test]
fn rows_and_keys_have_limits() {
    let schema = accounts();
    let mut values = values();
    values[4] = "x".repeat(ROW_BYTES_MAX - 33 - 3).into();
    assert_eq!(row(&schema, &values).unwrap().len(), ROW_BYTES_MAX);
    values[4] = "x".repeat(70_000).into();
    assert_eq!(
        message(row(&schema, &values)),
        "row of 70036 bytes for table \"accounts\" is longer than the limit of 32000 bytes"
    );

    let columns = vec![Column::new("k", ColumnType::Text), Column::nullable("n", ColumnType::Int8)];
    let schema = Schema::new(
        "t",
        columns,
        Some(vec![0]),
        vec![index("by_n", vec![1], false), index("u", vec![1, 0], true)],
    )
    .unwrap();
    let longest_key = |length: usize| row(&schema, &["x".repeat(length).into(), Value::Null]);
    // "u" may hold "n" (9 bytes) and "k" and, while "n" is NULL, "k" once more as the primary key.
    let fits = (KEY_BYTES_MAX - 9) / 2 - 1;
    let mut bytes = longest_key(fits).unwrap();
    assert_eq!(
        message(longest_key(fits + 1)),
        format!("key of {} bytes for index \"u\" is longer than the limit of 1024 bytes", 9 + 2 * (fits + 2))
    );
    assert_eq!(
        message(longest_key(KEY_BYTES_MAX)),
        "key of 1025 bytes for index \"t_pkey\" is longer than the limit of 1024 bytes"
    );
    schema.write_fixed(&mut bytes, 1, &Value::Int8(9)).unwrap();
    let (mut primary, mut key) = (Key::new(), Key::new());
    schema.primary_key_of_row(&bytes, 0, &mut primary);
    schema.index_key_of_row(1, &bytes, &primary, &mut key);
    assert!(key.len() <= KEY_BYTES_MAX);
    assert_eq!(
        message("x".repeat(2_000).encode_into(schema.key_shape(WhichIndex::Primary), &mut key)),
        "key of 2001 bytes for index \"t_pkey\" is longer than the limit of 1024 bytes"
    );
}

#[test]
fn damage_is_named_with_its_place() {
    let schema = accounts();
    let mut values = values();
    values[4] = "note".into();
    let good = row(&schema, &values).unwrap();
    let damaged = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        message(RowView::validate(&schema, &bytes))
    };
    let prefix = "\"row of table accounts\" is corrupt at offset";
    for (found, expected) in [
        (damaged(|row| row.truncate(20)), "20: 20 bytes, expected at least 33"),
        (damaged(|row| row.resize(40_000, 0)), "32000: 40000 bytes, expected at most 32000"),
        (damaged(|row| row.push(0)), "40: the last column ends at 40, and the row at 41"),
        (damaged(|row| row[0] = 8), "0: null bits beyond the 3 nullable columns"),
        (
            damaged(|row| {
                row[0] = 4;
                row[36..].fill(0);
            }),
            "36: column \"note\": 4 bytes under a NULL",
        ),
        (damaged(|row| row[0] = 1), "13: column \"balance\": bytes that are not zero under a NULL"),
        (
            damaged(|row| row[27] = 1),
            "13: column \"balance\": 5192296858534827628530496329221346 has more than 12 digits",
        ),
        (damaged(|row| row[29] = 3), "29: column \"owner\" ends at 3, expected 33 to 40"),
        (damaged(|row| row[31] = 99), "31: column \"note\" ends at 99, expected 36 to 40"),
        (damaged(|row| row[35] = b' '), "33: column \"owner\": trailing blanks in a char(n)"),
        (damaged(|row| row[36] = 255), "36: column \"note\": invalid utf-8 sequence of 1 bytes from index 0"),
    ] {
        assert_eq!(found, format!("{prefix} {expected}"));
    }
}

#[test]
fn changing_a_variable_column_in_place_is_refused() {
    let schema = accounts();
    let mut bytes = row(&schema, &values()).unwrap();
    assert_eq!(
        message(schema.write_fixed(&mut bytes, 4, &"x".into())),
        "not supported: changing column \"note\" of type text in place: its length varies, encode the whole row"
    );
    assert!(matches!(schema.write_fixed(&mut bytes, 1, &Value::Null), Err(Error::NotNull { .. })));
}

#[test]
fn keys_are_printed_and_checked() {
    let schema = accounts();
    let mut key = Key::new();
    let shape = schema.key_shape(WhichIndex::Primary);
    7i64.encode_into(shape, &mut key).unwrap();
    assert_eq!(schema.print_key(WhichIndex::Primary, &key), "(id)=(7)");
    assert_eq!(schema.print_key(WhichIndex::Primary, &key[..3]), "(id)=(\\x800000)");
    7i16.encode_into(shape, &mut key).unwrap();
    assert_eq!(key.len(), 8, "an i16 for an int8 column");
    assert_eq!(
        message("7".encode_into(shape, &mut key)),
        "column \"id\" is of type int8, but the value is text"
    );
    assert_eq!(
        message((7, 8).encode_into(shape, &mut key)),
        "key of 2 values for index \"accounts_pkey\", whose keys are (id int8)"
    );
    assert_eq!(
        message(().encode_into(shape, &mut key)),
        "key of 0 values for index \"accounts_pkey\", whose keys are (id int8)"
    );
    assert!(matches!(None::<i64>.encode_into(shape, &mut key), Err(Error::NotNull { .. })));
    assert!(matches!(u64::MAX.encode_into(shape, &mut key), Err(Error::OutOfRange { .. })));
    assert!(matches!(schema.decode_key(WhichIndex::Primary, b"abc"), Err(Error::Corrupt { .. })));

    let bytes = row(&schema, &values()).unwrap();
    schema.index_key_of_row(0, &bytes, b"primary", &mut key);
    assert!(key.ends_with(b"primary"));
    assert_eq!(schema.print_key(WhichIndex::Secondary(0), &key), "(branch, balance)=(3, 12.50)");
    (3, None::<Decimal>).encode_prefix_into(schema.key_shape(WhichIndex::Secondary(0)), &mut key).unwrap();
    assert_eq!(schema.print_key(WhichIndex::Secondary(0), &key), "(branch, balance)=(3, NULL)");
    schema.index_key_of_row(1, &bytes, b"primary", &mut key);
    assert!(!key.ends_with(b"primary"), "a unique key stands alone");
    let mut no_owner = values();
    no_owner[3] = Value::Null;
    schema.index_key_of_row(1, &row(&schema, &no_owner).unwrap(), b"primary", &mut key);
    assert!(key.ends_with(b"primary"), "NULLs are distinct");
}

#[test]
fn a_table_without_a_primary_key_has_row_numbers() {
    let schema = Schema::new("log", vec![Column::new("line", ColumnType::Text)], None, vec![]).unwrap();
    let shape = schema.key_shape(WhichIndex::Primary);
    let (mut key, mut other) = (Key::new(), Key::new());
    schema.primary_key_of_row(&row(&schema, &["x".into()]).unwrap(), 258, &mut key);
    assert_eq!(*key, [0, 0, 0, 0, 0, 0, 1, 2]);
    258u64.encode_into(shape, &mut other).unwrap();
    assert_eq!(key, other);
    schema.encode_primary_key(&[Value::Int8(258)], &mut other).unwrap();
    assert_eq!(key, other);
    assert_eq!(schema.print_key(WhichIndex::Primary, &key), "(row number)=(258)");
    assert!(matches!((-1).encode_into(shape, &mut other), Err(Error::OutOfRange { .. })));
    assert!(matches!("x".encode_into(shape, &mut other), Err(Error::TypeMismatch { .. })));
    assert!(matches!((1, 2).encode_into(shape, &mut other), Err(Error::KeyColumns { .. })));
}

#[test]
fn a_key_that_ends_in_a_row_number_has_room_for_it() {
    for (unique, column) in
        [(false, Column::new("line", ColumnType::Text)), (true, Column::nullable("line", ColumnType::Text))]
    {
        // In a unique index the row number is present only beside a NULL, which a fixed column may become.
        let columns = vec![column, Column::nullable("n", ColumnType::Int4)];
        let schema = Schema::new("log", columns, None, vec![index("by_line", vec![0, 1], unique)]).unwrap();
        let of_length = |length: usize| row(&schema, &["x".repeat(length).into(), Value::Int4(1)]);
        let longest = (0..KEY_BYTES_MAX).rev().find(|&length| of_length(length).is_ok()).unwrap();
        let mut bytes = of_length(longest).unwrap();
        schema.write_fixed(&mut bytes, 1, &Value::Null).unwrap();
        let (mut number, mut key) = (Key::new(), Key::new());
        schema.primary_key_of_row(&bytes, 1, &mut number);
        schema.index_key_of_row(0, &bytes, &number, &mut key);
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes was let in", key.len());
        assert!(message(of_length(longest + 1)).contains("longer than the limit of 1024 bytes"));
    }
}

#[test]
fn definitions_that_make_no_sense_are_refused() {
    let id = || Column::new("id", ColumnType::Int8);
    let refused = |table: &str, columns: Vec<Column>, key: Option<Vec<usize>>, indexes: Vec<IndexDef>| {
        message(Schema::new(table, columns, key, indexes))
    };
    let with = |ty| refused("t", vec![Column::new("c", ty)], None, vec![]);
    for (found, expected) in [
        (refused("", vec![id()], None, vec![]), "bad definition of \"\": a table needs a name"),
        (refused("t", vec![], None, vec![]), "bad definition of \"t\": a table needs at least one column"),
        (
            refused("t", vec![id(), id()], None, vec![]),
            "bad definition of \"t\": there are two columns named \"id\"",
        ),
        (
            refused("t", vec![id()], Some(vec![1]), vec![]),
            "bad definition of \"t_pkey\": there is no column at position 1: the table has 1",
        ),
        (
            refused("t", vec![id()], Some(vec![0, 0]), vec![]),
            "bad definition of \"t_pkey\": column \"id\" is in the key twice",
        ),
        (
            refused("t", vec![id()], Some(vec![]), vec![]),
            "bad definition of \"t_pkey\": a key needs at least one column",
        ),
        (
            refused("t", vec![Column::nullable("id", ColumnType::Int8)], Some(vec![0]), vec![]),
            "bad definition of \"t\": column \"id\" of the primary key is nullable: make it NOT NULL",
        ),
        (
            refused("t", vec![id()], None, vec![index("i", vec![0], true), index("i", vec![0], true)]),
            "bad definition of \"i\": table \"t\" has another index of this name",
        ),
        (
            refused("t", vec![id()], None, vec![index("i", vec![0], true), index("j", vec![0], true)]),
            "bad definition of \"j\": table \"t\" has another index with identifier 1",
        ),
        (
            with(ColumnType::Char(0)),
            "bad definition of \"t\": column \"c\": char(0) holds nothing: give a length of at least 1",
        ),
        (
            with(ColumnType::Decimal { precision: 39, scale: 0 }),
            "bad definition of \"t\": column \"c\": decimal(39,0) has 39 digits: give 1 to 38",
        ),
        (
            with(ColumnType::Decimal { precision: 2, scale: 3 }),
            "bad definition of \"t\": column \"c\": decimal(2,3) has more digits behind the point (3) than in all (2)",
        ),
    ] {
        assert_eq!(found, expected);
    }
    let many = (0..1_601).map(|at| Column::new(format!("c{at}"), ColumnType::Bool)).collect::<Vec<_>>();
    assert!(refused("t", many[..1_600].to_vec(), None, vec![]).starts_with("no error"));
    assert_eq!(
        refused("t", many, None, vec![]),
        "bad definition of \"t\": 1601 columns, and the limit is 1600"
    );
    let long = Column::new("ü".repeat(32), ColumnType::Bool);
    assert!(refused("t", vec![long], None, vec![]).ends_with("has 64 bytes, and the limit is 63"));
}

#[test]
fn the_widest_table_still_has_rows() {
    let ty = ColumnType::Decimal { precision: 38, scale: 0 };
    let columns = (0..COLUMNS_MAX).map(|at| Column::nullable(format!("c{at}"), ty)).collect();
    let schema = Schema::new("wide", columns, None, vec![]).unwrap();
    let values = vec![Value::Decimal(Decimal::from(-1)); COLUMNS_MAX];
    let bytes = row(&schema, &values).unwrap();
    assert_eq!(bytes.len(), 200 + 16 * COLUMNS_MAX);
    assert_eq!(RowView::validate(&schema, &bytes).unwrap().values(), values);
}

#[test]
fn type_names_can_be_parsed() {
    for name in [
        "bool",
        "int2",
        "int4",
        "int8",
        "float8",
        "decimal(12,2)",
        "text",
        "char(20)",
        "bytea",
        "date",
        "timestamp",
    ] {
        assert_eq!(name.parse::<ColumnType>().unwrap().to_string(), name);
    }
    for name in ["", "char(0)", "char", "decimal(2,3)", "decimal(12)", "int16", "char(20"] {
        assert!(name.parse::<ColumnType>().is_err(), "{name}");
    }
}

#[test]
fn sql_comparison_goes_across_types() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let decimal = |text: &str| Value::Decimal(text.parse().unwrap());
    assert_eq!(Value::Int2(1).compare(&Value::Int8(1)), Some(Equal));
    assert_eq!(Value::Int8(i64::MAX).compare(&decimal("1.5")), Some(Greater));
    assert_eq!(decimal("1.5").compare(&Value::Float8(1.5)), Some(Equal));
    assert_eq!(Value::Float8(f64::NAN).compare(&Value::Int4(1)), Some(Greater));
    assert_eq!(Value::Date(1).compare(&Value::Timestamp(1)), Some(Greater));
    assert_eq!(Value::Date(i32::MIN).compare(&Value::Timestamp(i64::MIN)), Some(Less));
    assert_eq!(Value::Null.compare(&Value::Null), None);
    assert_eq!(Value::Text("1".into()).compare(&Value::Int4(1)), None);
    assert_ne!(Value::Int2(1), Value::Int8(1));
    assert_eq!(Value::Float8(f64::NAN), Value::Float8(-f64::NAN));
}

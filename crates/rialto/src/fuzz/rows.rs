//! Rows and keys from any bytes.

use std::sync::OnceLock;

use super::script::Script;
use crate::row::{Column, ColumnType, IndexDef, Key, RowView, Schema, WhichIndex, encode};
use crate::{Error, IndexId};

fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::nullable("flag", ColumnType::Bool),
            Column::nullable("amount", ColumnType::Decimal { precision: 12, scale: 2 }),
            Column::new("text", ColumnType::Text),
            Column::nullable("code", ColumnType::Char(5)),
            Column::nullable("bytes", ColumnType::Bytes),
            Column::new("ratio", ColumnType::Float8),
            Column::nullable("day", ColumnType::Date),
        ];
        let index = |id, name: &str, columns: &[usize], unique| IndexDef {
            id: IndexId(id),
            name: name.to_owned(),
            columns: columns.to_vec(),
            unique,
        };
        let indexes = vec![index(9, "by_text", &[3, 4, 2], false), index(10, "by_ratio", &[6, 1, 5], true)];
        Schema::new("t", columns, Some(vec![0, 3]), indexes).unwrap()
    })
}

/// Bytes as a row: what validates is what the encoder makes of its values; it has keys, and the keys are decoded to
/// these values. Bytes as keys: values or an error. No panic anywhere.
pub fn rows_and_keys(data: &[u8]) {
    let schema = schema();
    let mut script = Script::of(data);
    let row =
        if script.byte().is_multiple_of(2) { data[1.min(data.len())..].to_vec() } else { near(&mut script) };
    match RowView::validate(schema, &row) {
        Ok(view) => {
            let values = view.values();
            let mut again = Vec::new();
            encode(schema, &values, &mut again).unwrap_or_else(|error| panic!("{view}: {error}"));
            assert_eq!(again, row, "there is no second encoding");
            let (mut primary, mut key) = (Key::new(), Key::new());
            schema.primary_key_of_row(&row, 0, &mut primary);
            let found = schema.decode_key(WhichIndex::Primary, &primary).unwrap();
            assert_eq!(found, [values[0].clone(), values[3].clone()]);
            for (position, index) in schema.indexes().iter().enumerate() {
                schema.index_key_of_row(position, &row, &primary, &mut key);
                let found = schema.decode_key(WhichIndex::Secondary(position), &key).unwrap();
                let mut again = Key::new();
                schema.encode_index_prefix(position, &found, &mut again).unwrap();
                assert!(key.starts_with(&again), "{}: {key:?}", index.name);
            }
        }
        Err(Error::Corrupt { offset, what, .. }) => {
            assert!(offset as usize <= row.len() && !what.is_empty(), "{offset}: {what}");
        }
        Err(error) => panic!("expected Corrupt, found {error}"),
    }
    for which in [WhichIndex::Primary, WhichIndex::Secondary(0), WhichIndex::Secondary(1)] {
        let printed = schema.print_key(which, data);
        match schema.decode_key(which, data) {
            Ok(values) => assert!(values.len() <= schema.key_shape(which).columns().len()),
            Err(Error::Corrupt { .. }) => assert!(printed.contains("=(")),
            Err(error) => panic!("expected Corrupt, found {error}"),
        }
    }
    let mut patched = row.clone();
    let (offset, length) = (script.number(2) as u16, script.below(20));
    let _ = schema.apply_patch(&mut patched, offset, script.bytes(length));
}

/// A valid row with some bytes changed.
fn near(script: &mut Script<'_>) -> Vec<u8> {
    use crate::row::Value;
    let text = |script: &mut Script<'_>, most: usize| {
        let length = script.below(most);
        script.bytes(length).iter().map(|byte| char::from(byte & 0x7f)).collect::<String>()
    };
    let values = [
        Value::Int4(script.number(4) as i32),
        if script.byte() < 128 { Value::Null } else { Value::Bool(true) },
        Value::Null,
        Value::Text(text(script, 12)),
        Value::Text(text(script, 6).trim_end().to_owned()),
        Value::Bytes(script.bytes(5).to_vec()),
        Value::Float8(f64::from_bits(script.number(8))),
        Value::Date(script.number(4) as i32),
    ];
    let mut row = Vec::new();
    encode(schema(), &values, &mut row).unwrap();
    for _ in 0..script.byte() % 4 {
        let at = script.below(row.len());
        row[at] ^= script.byte();
    }
    row
}

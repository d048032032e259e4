//! Array arguments in text and binary forms.

use rialto::fuzz::Script;
use rialto::row::Value;

use crate::values::{SqlType, array, binary, text};
use crate::{Result, SqlState};

const ELEMENTS: [SqlType; 11] = [
    SqlType::Bool,
    SqlType::Int2,
    SqlType::Int4,
    SqlType::Int8,
    SqlType::Float8,
    SqlType::Decimal(None),
    SqlType::Text,
    SqlType::Char(None),
    SqlType::Bytes,
    SqlType::Date,
    SqlType::Timestamp,
];

/// Bytes are an array of some type or an error. Its elements, written in either form, are the same elements.
pub fn array_arguments(data: &[u8]) {
    let mut script = Script::of(data);
    let element = ELEMENTS[script.below(ELEMENTS.len())];
    let is_text = script.byte().is_multiple_of(2);
    let data = script.bytes(usize::MAX);
    let argument = match is_text {
        true => text::parse_bytes(element.array(), data),
        // A head by chance is rare.
        false => binary::parse(element.array(), &[&head(element), data].concat()),
    };
    let elements = match argument.and_then(|argument| elements(element, argument)) {
        Ok(elements) => elements,
        Err(error) => return assert_ne!(error.sqlstate, SqlState::Internal, "{error}"),
    };
    // A text that has blanks at its end is another one as a char.
    let printed = |elements: &[Value]| format!("{elements:?}");
    let again = self::elements(element, Value::Bytes(as_binary(element, &elements)));
    assert_eq!(printed(&again.expect("it was written")), printed(&elements));
    let again = self::elements(element, Value::Text(as_text(element, &elements)));
    assert_eq!(printed(&again.expect("it was written")), printed(&elements));
}

fn elements(element: SqlType, argument: Value) -> Result<Vec<Value>> {
    let mut arrays = array::read_arguments(&[element.array()], &[argument])?;
    Ok(arrays.remove(0).expect("the argument is no null"))
}

/// The head of an array of one dimension, without its length.
fn head(element: SqlType) -> Vec<u8> {
    [1, 0, element.oid()].into_iter().flat_map(u32::to_be_bytes).collect()
}

fn as_binary(element: SqlType, elements: &[Value]) -> Vec<u8> {
    let mut out = head(element);
    out.extend_from_slice(&(elements.len() as u32).to_be_bytes());
    out.extend_from_slice(&1u32.to_be_bytes());
    for value in elements {
        let mut bytes = Vec::new();
        let length = binary::write(value, element, &mut bytes).map_or(u32::MAX, |()| bytes.len() as u32);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&bytes);
    }
    out
}

fn as_text(element: SqlType, elements: &[Value]) -> String {
    let item = |value: &Value| {
        let mut plain = Vec::new();
        match text::write(value, element, &mut plain) {
            None => "NULL".to_owned(),
            Some(()) => {
                let plain = String::from_utf8(plain).expect("values print as UTF-8");
                format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
            }
        }
    };
    format!("{{{}}}", elements.iter().map(item).collect::<Vec<_>>().join(","))
}

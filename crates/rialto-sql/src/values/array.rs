//! Arrays of one dimension, as arguments, in PostgreSQL's text and binary forms.
//!
//! No column and no expression has an array for its value: an array is an argument or a literal that ANY or ALL compares
//! with. Invariant: an array argument is kept as it came, and takes no more than its message; its elements are read
//! for each run of its statement.

use rialto::row::Value;

use super::{SqlType, binary, text};
use crate::error::{Result, SqlError, SqlState};

/// The most elements that the array arguments of one run have together, or a literal has.
pub const ELEMENTS_MAX: usize = 1 << 20;

/// Takes the elements of an array, one by one.
pub type Each<'a> = &'a mut dyn FnMut(Value) -> Result<()>;

/// The elements of each argument that is an array; `None` for a null, and for any other argument. Empty if no argument
/// is an array.
pub type Arrays = Vec<Option<Vec<Value>>>;

/// Reads the arguments that are arrays.
#[inline]
pub fn read_arguments(types: &[SqlType], arguments: &[Value]) -> Result<Arrays> {
    if types.iter().any(|sql_type| matches!(sql_type, SqlType::Array(_))) {
        return read(types, arguments);
    }
    Ok(Vec::new())
}

#[cold]
fn read(types: &[SqlType], arguments: &[Value]) -> Result<Arrays> {
    let mut left = ELEMENTS_MAX;
    let array = |(sql_type, argument): (&SqlType, &Value)| {
        let SqlType::Array(element) = sql_type else { return Ok(None) };
        let mut elements = Vec::new();
        let mut keep = |value| {
            left = left.checked_sub(1).ok_or_else(too_many)?;
            elements.push(value);
            Ok(())
        };
        match argument {
            Value::Text(text) => read_text(**element, text, &mut keep)?,
            Value::Bytes(bytes) => read_binary(**element, bytes, &mut keep)?,
            _ => return Ok(None),
        }
        Ok(Some(elements))
    };
    types.iter().zip(arguments).map(array).collect()
}

#[cold]
fn too_many() -> SqlError {
    let message = format!("array size exceeds the maximum allowed ({ELEMENTS_MAX} elements)");
    SqlError::new(SqlState::LimitExceeded, message)
}

/// Reads the text form: `{1,NULL,"a b"}`.
pub fn read_text(element: SqlType, text: &str, each: Each<'_>) -> Result<()> {
    let malformed = |detail: &str| {
        let shown: String = text.chars().take(100).collect();
        let message = format!("malformed array literal: \"{shown}\"");
        SqlError::new(SqlState::InvalidText, message).detail(detail)
    };
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let bytes = text.as_bytes();
    let skip = |at: usize| at + bytes[at..].iter().take_while(|byte| blank(byte)).count();
    if bytes.contains(&0) {
        return Err(zero_byte());
    }
    let mut at = skip(0);
    match bytes.get(at) {
        Some(b'{') => at = skip(at + 1),
        Some(b'[') => return Err(SqlError::unsupported("an array with bounds")),
        _ => return Err(malformed("Array value must start with \"{\" or dimension information.")),
    }
    let mut count = 0;
    if bytes.get(at) == Some(&b'}') {
        at += 1;
    } else {
        loop {
            count += 1;
            if count > ELEMENTS_MAX {
                return Err(too_many());
            }
            let item = read_item(text, at).map_err(malformed_by(&malformed))?;
            let is_null = !item.quoted && item.text.eq_ignore_ascii_case("null");
            each(if is_null { Value::Null } else { text::parse(element, &item.text)? })?;
            at = skip(item.end);
            match bytes.get(at) {
                Some(b',') => at = skip(at + 1),
                Some(b'}') => break at += 1,
                Some(_) => return Err(malformed("Incorrectly quoted array element.")),
                None => return Err(malformed("Unexpected end of input.")),
            }
        }
    }
    if skip(at) < bytes.len() {
        return Err(malformed("Junk after closing right brace."));
    }
    Ok(())
}

/// An element of the text form.
struct Item {
    text: String,
    /// Whether quotes or a backslash keep it from being a null.
    quoted: bool,
    /// The place behind it.
    end: usize,
}

/// Why there is no element.
enum NoItem {
    Dimensions,
    Malformed(&'static str),
}

fn malformed_by(malformed: &dyn Fn(&str) -> SqlError) -> impl Fn(NoItem) -> SqlError {
    |reason| match reason {
        NoItem::Dimensions => multi_dimensional(),
        NoItem::Malformed(detail) => malformed(detail),
    }
}

fn read_item(text: &str, start: usize) -> Result<Item, NoItem> {
    let bytes = text.as_bytes();
    let ended = || NoItem::Malformed("Unexpected end of input.");
    let in_quotes = bytes.get(start) == Some(&b'"');
    let (mut at, mut from) = (start + usize::from(in_quotes), start + usize::from(in_quotes));
    let mut item = Item { text: String::new(), quoted: in_quotes, end: 0 };
    // The length of the text up to the last character that is no blank, or is escaped.
    let mut kept = 0;
    loop {
        let byte = *bytes.get(at).ok_or_else(ended)?;
        let ends = if in_quotes { byte == b'"' } else { matches!(byte, b',' | b'}') };
        if ends || byte == b'\\' {
            item.text.push_str(&text[from..at]);
        }
        match byte {
            _ if ends => break,
            b'\\' => {
                item.quoted = true;
                let escaped = text[at + 1..].chars().next().ok_or_else(ended)?;
                item.text.push(escaped);
                kept = item.text.len();
                at += 1 + escaped.len_utf8();
                from = at;
            }
            b'{' if !in_quotes => return Err(NoItem::Dimensions),
            b'"' if !in_quotes => return Err(NoItem::Malformed("Incorrectly quoted array element.")),
            _ => at += 1,
        }
    }
    if in_quotes {
        item.end = at + 1;
    } else {
        let trimmed = item.text.trim_end_matches(|letter: char| letter.is_ascii_whitespace()).len();
        item.text.truncate(trimmed.max(kept));
        if item.text.is_empty() {
            return Err(NoItem::Malformed("Unexpected \",\" or \"}\" character."));
        }
        item.end = at;
    }
    Ok(item)
}

/// Reads the binary form: dimensions, whether there are nulls, the type of the elements, bounds, elements.
pub fn read_binary(element: SqlType, bytes: &[u8], each: Each<'_>) -> Result<()> {
    let bad = |what: &str| SqlError::new(SqlState::InvalidBinary, what.to_string());
    let mut rest = bytes;
    let mut number = || -> Result<u32> {
        let (number, behind) =
            rest.split_first_chunk().ok_or_else(|| bad("an array ends within its head"))?;
        rest = behind;
        Ok(u32::from_be_bytes(*number))
    };
    let (dimensions, flags, oid) = (number()?, number()?, number()?);
    if flags > 1 {
        return Err(bad("invalid array flags"));
    }
    let sent = SqlType::from_oid(oid).map(SqlType::plain);
    if sent != Some(element.plain()) {
        let message =
            format!("binary data has array element type {oid} instead of expected {}", element.oid());
        return Err(SqlError::new(SqlState::TypeMismatch, message));
    }
    let count = match dimensions {
        0 => 0,
        1 => {
            let (count, _bound) = (number()? as usize, number()?);
            count
        }
        2..=6 => return Err(multi_dimensional()),
        other => return Err(bad(&format!("invalid number of dimensions: {other}"))),
    };
    if count > ELEMENTS_MAX {
        return Err(too_many());
    }
    for _ in 0..count {
        let (length, behind) =
            rest.split_first_chunk().ok_or_else(|| bad("an array ends before its last element"))?;
        rest = behind;
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            each(Value::Null)?;
            continue;
        }
        let parts = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let (value, behind) = parts.ok_or_else(|| bad("an array ends within an element"))?;
        rest = behind;
        let value = binary::parse(element, value)?;
        if matches!(&value, Value::Text(text) if text.contains('\0')) {
            return Err(zero_byte());
        }
        each(value)?;
    }
    match rest {
        [] => Ok(()),
        _ => Err(bad("incorrect binary data format: bytes behind an array")),
    }
}

fn zero_byte() -> SqlError {
    SqlError::new(SqlState::BadEncoding, "invalid byte sequence for encoding \"UTF8\": 0x00")
}

/// The error for an array of arrays.
pub(crate) fn multi_dimensional() -> SqlError {
    SqlError::unsupported("a multi-dimensional array")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(element: SqlType, text: &str) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        read_text(element, text, &mut |value| {
            found.push(value);
            Ok(())
        })?;
        Ok(found)
    }

    fn binary(element: SqlType, bytes: &[u8]) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        read_binary(element, bytes, &mut |value| {
            found.push(value);
            Ok(())
        })?;
        Ok(found)
    }

    fn strings(texts: &[Option<&str>]) -> Vec<Value> {
        texts.iter().map(|text| text.map_or(Value::Null, |text| Value::Text(text.to_string()))).collect()
    }

    #[test]
    fn the_text_form_has_quotes_escapes_and_nulls() {
        assert_eq!(
            text(SqlType::Int4, " { 1, -2 ,null} "),
            Ok(vec![Value::Int4(1), Value::Int4(-2), Value::Null])
        );
        assert_eq!(text(SqlType::Text, "{}"), Ok(Vec::new()));
        let found = text(SqlType::Text, r#"{a b , "c,\"}", "NULL",\NULL,NULL,x\ ,"",größe}"#);
        let expected = [
            Some("a b"),
            Some("c,\"}"),
            Some("NULL"),
            Some("NULL"),
            None,
            Some("x "),
            Some(""),
            Some("größe"),
        ];
        assert_eq!(found, Ok(strings(&expected)));
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for malformed in ["", "1", "{", "{1", "{1,}", "{,1}", "{1}x", "{\"a\"b}", "{a\"b\"}", "{a\\", "{\"a"]
        {
            assert_eq!(text(SqlType::Text, malformed).unwrap_err().sqlstate.code(), "22P02", "{malformed}");
        }
        for other in ["{{1},{2}}", "[2:3]={1,2}"] {
            assert_eq!(text(SqlType::Int4, other).unwrap_err().sqlstate.code(), "0A000", "{other}");
        }
        assert_eq!(text(SqlType::Int4, "{x}").unwrap_err().sqlstate.code(), "22P02");
    }

    #[test]
    fn the_binary_form_has_a_head_and_elements() {
        let words = |words: &[i32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let one = words(&[1, 1, 23, 3, 1, 4, 7, -1, 4, 8]);
        assert_eq!(binary(SqlType::Int4, &one), Ok(vec![Value::Int4(7), Value::Null, Value::Int4(8)]));
        assert!((0..one.len()).all(|length| binary(SqlType::Int4, &one[..length]).is_err()));
        assert_eq!(binary(SqlType::Int4, &words(&[0, 0, 23])), Ok(Vec::new()));
        for (bytes, code) in [
            (words(&[2, 0, 23, 1, 1, 1, 1, 4, 7]), "0A000"),
            (words(&[1, 0, 20, 1, 1, 4, 7]), "42804"),
            (words(&[1, 2, 23, 1, 1, 4, 7]), "22P03"),
            (words(&[7, 0, 23]), "22P03"),
            (words(&[1, 0, 23, 2, 1, 4, 7]), "22P03"),
            (words(&[1, 0, 23, 1, 1, 4, 7, 7]), "22P03"),
            (words(&[1, 0, 23, 1, 1, 8, 7]), "22P03"),
            (words(&[1, 0, 23, i32::MAX, 1]), "54000"),
        ] {
            assert_eq!(binary(SqlType::Int4, &bytes).unwrap_err().sqlstate.code(), code, "{bytes:?}");
        }
    }
}

//! Lifts the literals out of a statement's text, so that texts that differ only in them share one plan.
//!
//! Only integers and strings in plain quotes are lifted, which the characters alone show. The [binder](crate::bind)
//! decides whether they are literals, and whether the plan may have a parameter in their place. So this module may
//! lift too much. But two texts with the same key must differ only in the contents of what was lifted.

use rialto::row::Value;

use crate::values::SqlType;
use crate::values::text::plain_integer;

/// A literal that was lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literal {
    /// Where it begins: characters, from 1.
    pub position: usize,
    /// Its type; [`SqlType::Unknown`] for a string.
    pub sql_type: SqlType,
    /// Its number; for a string, its beginning in the text.
    number: i64,
    /// The length of the string in bytes.
    length: usize,
}

impl Literal {
    /// Its value; a string's as text.
    #[inline]
    pub fn value(&self, text: &str) -> Value {
        match self.sql_type {
            SqlType::Int4 => Value::Int4(self.number as i32),
            SqlType::Int8 => Value::Int8(self.number),
            _ => self.string(text),
        }
    }

    fn string(&self, text: &str) -> Value {
        let start = self.number as usize;
        Value::Text(text[start..start + self.length].to_owned())
    }
}

/// A text without its literals.
#[derive(Debug, Default)]
pub struct Lifted {
    /// The text with a mark for each literal, by its type.
    pub key: String,
    /// The literals, in their order.
    pub literals: Vec<Literal>,
}

/// Marks of an int4, an int8 and a string. No text with one of them is lifted.
const MARKS: [char; 3] = ['\u{1}', '\u{2}', '\u{3}'];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Letters and the underscore.
    Word,
    Digit,
    Dot,
    /// Blanks, and what stands for itself.
    Plain,
    Quote,
    DoubleQuote,
    /// May begin a comment.
    Minus,
    Slash,
    /// Not examined: the text has no key.
    Other,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 128 {
        classes[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' | b'(' | b')' | b',' | b'=' | b'<' | b'>' | b'+' | b'*' | b'%'
            | b'|' | b'!' | b':' | b';' => Class::Plain,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Class::Word,
            b'0'..=b'9' => Class::Digit,
            b'.' => Class::Dot,
            b'\'' => Class::Quote,
            b'"' => Class::DoubleQuote,
            b'-' => Class::Minus,
            b'/' => Class::Slash,
            _ => Class::Other,
        };
        byte += 1;
    }
    classes
};

#[inline]
fn class(bytes: &[u8], at: usize) -> Class {
    bytes.get(at).map_or(Class::Other, |byte| CLASSES[usize::from(*byte)])
}

/// The end of a run of bytes that `CLASSES` has in a word, or in a word or a number.
#[inline]
fn run_end(bytes: &[u8], at: usize, is_in: impl Fn(Class) -> bool) -> usize {
    let rest = &bytes[at..];
    at + rest.iter().position(|byte| !is_in(CLASSES[usize::from(*byte)])).unwrap_or(rest.len())
}

fn in_word(class: Class) -> bool {
    // The order of the classes makes this one comparison.
    class as u8 <= Class::Digit as u8
}

fn in_number(class: Class) -> bool {
    class as u8 <= Class::Dot as u8
}

/// Whether the text begins as one of the statements that read and write rows.
fn reads_or_writes_rows(bytes: &[u8]) -> bool {
    let Some(verb) = bytes.first_chunk::<6>() else { return false };
    let verb = verb.map(|byte| byte.to_ascii_lowercase());
    matches!(&verb, b"select" | b"insert" | b"update" | b"delete")
}

impl Lifted {
    /// The bytes of its buffers.
    pub fn room(&self) -> usize {
        self.key.capacity() + self.literals.capacity() * size_of::<Literal>()
    }

    /// Replaces the contents by those of `text`; `false` if it has no literals to lift, or a construct that is not
    /// examined.
    pub fn lift(&mut self, text: &str) -> bool {
        self.key.clear();
        self.literals.clear();
        reads_or_writes_rows(text.as_bytes()) && self.scan(text).is_some() && !self.literals.is_empty()
    }

    fn scan(&mut self, text: &str) -> Option<()> {
        let bytes = text.as_bytes();
        // How much of the text is in the key, and how many bytes up to here continue a character.
        let (mut copied, mut continuing, mut at) = (0, 0, 0);
        while at < bytes.len() {
            match class(bytes, at) {
                Class::Plain => at += 1,
                Class::Word => {
                    at = run_end(bytes, at + 1, in_word);
                    // E'', N'', X'' and the like.
                    if class(bytes, at) == Class::Quote {
                        return None;
                    }
                }
                Class::Digit => {
                    let start = at;
                    at = run_end(bytes, at + 1, in_number);
                    if class(bytes, at) == Class::Quote {
                        return None;
                    }
                    let Some(number) = plain_integer(&bytes[start..at]) else { continue };
                    let small = i32::try_from(number).is_ok();
                    self.key.push_str(&text[copied..start]);
                    self.key.push(MARKS[usize::from(!small)]);
                    copied = at;
                    let sql_type = if small { SqlType::Int4 } else { SqlType::Int8 };
                    let position = start + 1 - continuing;
                    self.literals.push(Literal { position, sql_type, number, length: 0 });
                }
                // A number that begins with a point, or a name behind a point.
                Class::Dot => at = run_end(bytes, at + 1, in_number),
                Class::Quote => {
                    let position = at + 1 - continuing;
                    let start = at + 1;
                    at = start;
                    while *bytes.get(at)? != b'\'' {
                        // A zero byte is refused, and a backslash may be an escape.
                        if matches!(bytes[at], 0 | b'\\') {
                            return None;
                        }
                        continuing += usize::from(bytes[at] & 0xc0 == 0x80);
                        at += 1;
                    }
                    // A quote that is written twice, or a string that continues another.
                    if class(bytes, at + 1) == Class::Quote {
                        return None;
                    }
                    self.key.push_str(&text[copied..start - 1]);
                    self.key.push(MARKS[2]);
                    let (sql_type, length) = (SqlType::Unknown, at - start);
                    self.literals.push(Literal { position, sql_type, number: start as i64, length });
                    at += 1;
                    copied = at;
                }
                Class::DoubleQuote => {
                    at += 1;
                    while *bytes.get(at)? != b'"' {
                        if !(b' '..0x80).contains(&bytes[at]) {
                            return None;
                        }
                        at += 1;
                    }
                    at += 1;
                }
                Class::Minus if bytes.get(at + 1) != Some(&b'-') => at += 1,
                Class::Slash if bytes.get(at + 1) != Some(&b'*') => at += 1,
                Class::Minus | Class::Slash | Class::Other => return None,
            }
        }
        self.key.push_str(&text[copied..]);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(text: &str) -> Option<(String, Vec<(usize, Value)>)> {
        let mut lifted = Lifted::default();
        lifted.lift(text).then(|| {
            let values = lifted.literals.iter().map(|literal| (literal.position, literal.value(text)));
            (
                lifted.key.replace('\u{1}', "#4").replace('\u{2}', "#8").replace('\u{3}', "#t"),
                values.collect(),
            )
        })
    }

    #[test]
    fn integers_and_plain_strings_are_lifted() {
        let (key, values) = lifted("Select a1 from t where a=-5 and b = 'grö' and c<3000000000").unwrap();
        assert_eq!(key, "Select a1 from t where a=-#4 and b = #t and c<#8");
        let text = Value::Text("grö".into());
        assert_eq!(values, [(27, Value::Int4(5)), (37, text), (49, Value::Int8(3_000_000_000))]);
        assert_eq!(lifted("insert into t values (1,\n'é',2)").unwrap().1[2].0, 30);
    }

    #[test]
    fn what_is_part_of_something_else_is_not() {
        for text in [
            "select 1.5, 1., .5, 1e5, 0x1f, 1_000, t1, 12345678901234567890 from t2.a3",
            "select a from \"t 1 '\"",
            "select a",
            "begin",
            "copy t from stdin with (null '')",
        ] {
            assert_eq!(lifted(text), None, "{text}");
        }
        assert_eq!(lifted("select 1e+5").unwrap().0, "select 1e+#4");
        assert_eq!(lifted("select \"a 1\", 2").unwrap().0, "select \"a 1\", #4");
    }

    #[test]
    fn what_may_hide_a_literal_is_not_looked_into() {
        for text in [
            "select 1 -- 'x",
            "select /* 1 */ 2",
            "select E'1', 2",
            "select U&'1', 2",
            "select 'it''s', 2",
            "select 'a\\', 2",
            "select 'a' 2, 'b",
            "select $1, 2",
            "select $$x$$, 2",
            "select é, 2",
            "select 2, \u{1}",
            "select 1'x', 2",
            "select 'a\0', 2",
            "select \"é\", 2",
        ] {
            assert_eq!(lifted(text), None, "{text}");
        }
    }
}

//! Results as JSON: one object on one line, and figures of one that was read back, by their paths.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// One line, with a space behind each comma and colon.
struct OneLine;

fn separate<W: ?Sized + Write>(writer: &mut W, is_first: bool) -> io::Result<()> {
    if is_first { Ok(()) } else { writer.write_all(b", ") }
}

impl Formatter for OneLine {
    /// Three digits behind the point are more than any measurement here is worth.
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{}", (value * 1e3).round() / 1e3)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        separate(writer, first)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// A value as the line that a result ends with. A number that is not finite is null there.
pub fn line(value: &Value) -> String {
    let mut line = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut line, OneLine)).expect("a vector takes everything");
    String::from_utf8(line).expect("JSON is UTF-8")
}

/// A value inside an object, by the names on the way: `latency_us.p50`.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, name| value.get(name))
}

/// The number there, if there is one.
pub fn number(value: &Value, path: &str) -> Option<f64> {
    at(value, path)?.as_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prints_every_kind_of_value_on_one_line() {
        let value = json!({
            "text": "a \"quoted\"\\ word\n\u{1}ü",
            "null": None::<u64>,
            "count": u64::MAX,
            "number": 1.23456,
            "whole": 2.0,
            "no number": f64::NAN,
            "inner": { "yes": true },
            "list": [1, null],
        });
        assert_eq!(
            line(&value),
            r#"{"text": "a \"quoted\"\\ word\n\u0001ü", "null": null, "count": 18446744073709551615, "#
                .to_owned()
                + r#""number": 1.235, "whole": 2, "no number": null, "inner": {"yes": true}, "list": [1, null]}"#
        );
    }

    #[test]
    fn what_is_printed_is_read_back_and_found_by_its_path() {
        let value = json!({ "outer": { "count": 7, "number": -1.25 }, "list": [true, [], {}] });
        let read: Value = serde_json::from_str(&line(&value)).unwrap();
        assert_eq!(read, value);
        assert_eq!((number(&read, "outer.number"), number(&read, "outer.count")), (Some(-1.25), Some(7.0)));
        assert_eq!(
            (number(&read, "list"), at(&read, "outer.count.more"), at(&read, "none")),
            (None, None, None)
        );
    }
}

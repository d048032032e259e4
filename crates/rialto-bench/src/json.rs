//! [`Json`]: the little JSON that a result needs, written on one line.

mod parse;

use std::fmt;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// What does not apply, or is not measured.
    Null,
    /// True or false.
    Bool(bool),
    /// A count.
    Count(u64),
    /// A measure; one that is not finite prints as null.
    Number(f64),
    /// Text.
    Text(String),
    /// Values, in this order.
    List(Vec<Json>),
    /// Names and values, in this order.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// An object of these names and values.
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
        Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// A value inside an object, by the names on the way: `latency_us.p50`.
    pub fn at(&self, path: &str) -> Option<&Json> {
        path.split('.').try_fold(self, |value, name| value.get(name))
    }

    /// The number that this is, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Json::Count(value) => Some(*value as f64),
            Json::Number(value) => Some(*value),
            _ => None,
        }
    }

    /// Reads a value back.
    ///
    /// # Errors
    /// What was expected, and where in the text.
    pub fn parse(text: &str) -> Result<Json, String> {
        parse::parse(text)
    }

    /// A member of an object.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => {
                members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Json {
        Json::Count(value)
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Json {
        Json::Number(value)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Json {
        Json::Text(value.to_owned())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for letter in text.chars() {
        match letter {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            control if u32::from(control) < 0x20 => write!(f, "\\u{:04x}", u32::from(control))?,
            other => fmt::Write::write_char(f, other)?,
        }
    }
    f.write_str("\"")
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Count(value) => write!(f, "{value}"),
            Json::Number(value) if !value.is_finite() => f.write_str("null"),
            // Three digits behind the point are more than any measurement here is worth.
            Json::Number(value) => write!(f, "{}", (value * 1e3).round() / 1e3),
            Json::Text(text) => write_text(text, f),
            Json::List(values) => {
                f.write_str("[")?;
                for (position, value) in values.iter().enumerate() {
                    let separator = if position > 0 { ", " } else { "" };
                    write!(f, "{separator}{value}")?;
                }
                f.write_str("]")
            }
            Json::Object(members) => {
                f.write_str("{")?;
                for (position, (name, value)) in members.iter().enumerate() {
                    if position > 0 {
                        f.write_str(", ")?;
                    }
                    write_text(name, f)?;
                    write!(f, ": {value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_every_kind_of_value_on_one_line() {
        let json = Json::object([
            ("text", "a \"quoted\"\\ word\n\u{1}ü".into()),
            ("null", None::<u64>.into()),
            ("count", u64::MAX.into()),
            ("number", 1.23456.into()),
            ("whole", 2.0.into()),
            ("no number", f64::NAN.into()),
            ("inner", Json::object([("yes", true.into())])),
            ("list", Json::List(vec![1u64.into(), Json::Null])),
        ]);
        assert_eq!(
            json.to_string(),
            r#"{"text": "a \"quoted\"\\ word\n\u0001ü", "null": null, "count": 18446744073709551615, "#
                .to_owned()
                + r#""number": 1.235, "whole": 2, "no number": null, "inner": {"yes": true}, "list": [1, null]}"#
        );
        assert_eq!(json.get("inner").and_then(|inner| inner.get("yes")), Some(&Json::Bool(true)));
    }
}

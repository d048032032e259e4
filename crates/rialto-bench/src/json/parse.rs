//! Reading JSON back: what another run of the bench printed.

use super::Json;

pub(super) fn parse(text: &str) -> Result<Json, String> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.expected("the end"));
    }
    Ok(value)
}

/// Deeper values are refused, so that no text can exhaust the stack.
const DEPTH_MAX: usize = 64;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn expected(&self, what: &str) -> String {
        let rest: String = self.text[self.at..].chars().take(20).collect();
        format!("expected {what} at byte {} of the JSON text, found \"{rest}\"", self.at)
    }

    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > DEPTH_MAX {
            return Err(self.expected("fewer values inside one another"));
        }
        for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
        {
            if self.take(word) {
                return Ok(value);
            }
        }
        if self.take("{") {
            let member = |reader: &mut Self| {
                let name = reader.string()?;
                if !reader.take(":") {
                    return Err(reader.expected("\":\""));
                }
                Ok((name, reader.value(depth + 1)?))
            };
            return self.items("}", member).map(Json::Object);
        }
        if self.take("[") {
            return self.items("]", |reader| reader.value(depth + 1)).map(Json::List);
        }
        if self.text[self.at..].starts_with('"') {
            return self.string().map(Json::Text);
        }
        self.number()
    }

    fn items<T>(
        &mut self,
        end: &str,
        mut item: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut items = Vec::new();
        if self.take(end) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.take(end) {
                return Ok(items);
            }
            if !self.take(",") {
                return Err(self.expected(&format!("\",\" or \"{end}\"")));
            }
        }
    }

    fn number(&mut self) -> Result<Json, String> {
        let rest = &self.text[self.at..];
        let is_part = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
        let digits = &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())];
        let value = match digits.parse::<u64>() {
            Ok(count) => Json::Count(count),
            Err(_) => Json::Number(digits.parse().map_err(|_| self.expected("a value"))?),
        };
        self.at += digits.len();
        Ok(value)
    }

    fn string(&mut self) -> Result<String, String> {
        if !self.take("\"") {
            return Err(self.expected("a text"));
        }
        let mut text = String::new();
        let mut letters = self.text[self.at..].char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.at += at + 1;
                    return Ok(text);
                }
                '\\' => {
                    let escaped = match letters.next().map(|(_, letter)| letter) {
                        Some('n') => '\n',
                        Some('t') => '\t',
                        Some('r') => '\r',
                        Some('u') => {
                            let code: String = letters.by_ref().take(4).map(|(_, digit)| digit).collect();
                            let letter = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                            letter.ok_or_else(|| self.expected("a text without surrogates"))?
                        }
                        Some(letter) => letter,
                        None => break,
                    };
                    text.push(escaped);
                }
                letter => text.push(letter),
            }
        }
        Err(self.expected("the end of a text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let json = Json::object([
            ("text", "a \"quoted\"\\ word\n\u{1}ü".into()),
            ("null", Json::Null),
            ("count", 7u64.into()),
            ("number", (-1.25).into()),
            ("list", Json::List(vec![true.into(), Json::List(Vec::new()), Json::object([])])),
        ]);
        let read = parse(&json.to_string()).unwrap();
        assert_eq!(read, json);
        assert_eq!(read.at("number").and_then(Json::number), Some(-1.25));
        assert_eq!((read.at("text.more"), read.at("none")), (None, None));
    }

    #[test]
    fn what_is_not_json_is_an_error_that_says_where() {
        for (text, at) in [
            ("", "byte 0"),
            ("{\"a\" 1}", "byte 5"),
            ("[1, 2", "byte 5"),
            ("[1] 2", "byte 4"),
            ("{\"a\": nothing}", "byte 6"),
            ("\"open", "byte 1"),
            ("\"\\ud800\"", "byte 1"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(at), "{text}: {problem}");
        }
        assert!(parse(&"[".repeat(10_000)).is_err());
    }
}

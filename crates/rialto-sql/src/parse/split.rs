//! Splits a query string into its statements, at the semicolons that stand outside quotes and comments.

use crate::error::SqlError;

/// One statement of a query string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Its text, without the semicolon.
    pub text: &'a str,
    /// The number of characters before it, for positions in errors.
    pub chars_before: usize,
}

impl Piece<'_> {
    /// The error with its place counted from the start of the query string.
    pub fn move_error(&self, mut error: SqlError) -> SqlError {
        error.position = error.position.map(|position| position + self.chars_before);
        error
    }
}

/// The statements of `sql`, each found when it is asked for. Empty statements, and those of comments only, are left
/// out.
pub fn split(sql: &str) -> Pieces<'_> {
    Pieces { sql, at: 0, bytes: 0, chars: 0 }
}

/// The remaining statements of a query string. Invariant: it takes no memory, however many there are.
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    sql: &'a str,
    /// Where the next statement begins.
    at: usize,
    /// The number of bytes up to here, and of characters in them: counted on from piece to piece.
    bytes: usize,
    chars: usize,
}

impl<'a> Pieces<'a> {
    /// As [`split`], for the rest of a query string behind this number of characters.
    pub fn behind(sql: &'a str, chars_before: usize) -> Pieces<'a> {
        Pieces { sql, at: 0, bytes: 0, chars: chars_before }
    }

    /// The rest of the text, and the number of characters before it.
    pub fn rest(mut self) -> (&'a str, usize) {
        let rest = self.piece(self.at, self.sql.len());
        (rest.text, rest.chars_before)
    }

    fn piece(&mut self, start: usize, end: usize) -> Piece<'a> {
        self.chars += self.sql[self.bytes..start].chars().count();
        self.bytes = start;
        Piece { text: &self.sql[start..end], chars_before: self.chars }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let bytes = self.sql.as_bytes();
        let (mut start, mut at, mut blank) = (self.at, self.at, true);
        while at < bytes.len() {
            match bytes[at] {
                b';' if blank => {
                    at += 1;
                    start = at;
                }
                b';' => {
                    self.at = at + 1;
                    return Some(self.piece(start, at));
                }
                b'-' if bytes.get(at + 1) == Some(&b'-') => at = line_end(bytes, at),
                b'/' if bytes.get(at + 1) == Some(&b'*') => at = comment_end(bytes, at),
                byte if byte.is_ascii_whitespace() => at += 1,
                byte => {
                    blank = false;
                    at = match byte {
                        b'\'' => quote_end(bytes, at, b'\'', has_escapes(bytes, at)),
                        b'"' => quote_end(bytes, at, b'"', false),
                        b'$' => dollar_end(bytes, at),
                        _ => plain_end(bytes, at + 1),
                    };
                }
            }
        }
        self.at = bytes.len();
        if blank { None } else { Some(self.piece(start, bytes.len())) }
    }
}

/// Bytes that end, or may end, a run of bytes without a meaning here.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let marks = b";-/'\"$";
    let mut at = 0;
    while at < marks.len() {
        stops[marks[at] as usize] = true;
        at += 1;
    }
    stops
};

fn plain_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    at + rest.iter().position(|byte| STOPS[usize::from(*byte)]).unwrap_or(rest.len())
}

/// The end of a comment that goes to the end of its line. A carriage return ends a line, too.
fn line_end(bytes: &[u8], at: usize) -> usize {
    let ends = |byte: &u8| matches!(byte, b'\n' | b'\r');
    bytes[at..].iter().position(ends).map_or(bytes.len(), |length| at + length + 1)
}

/// The end of a comment, which may contain comments.
pub(super) fn comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// Whether the quote at `at` follows an `E` that is a word of its own, so that backslashes are escapes.
fn has_escapes(bytes: &[u8], at: usize) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    at > 0 && matches!(bytes[at - 1], b'e' | b'E') && (at < 2 || !word(bytes[at - 2]))
}

pub(super) fn quote_end(bytes: &[u8], mut at: usize, quote: u8, escapes: bool) -> usize {
    at += 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            byte if byte == quote => {
                if bytes.get(at + 1) != Some(&quote) {
                    return at + 1;
                }
                at += 2;
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `$tag$...$tag$`, or of the `$` alone (a parameter).
fn dollar_end(bytes: &[u8], at: usize) -> usize {
    let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    let length = bytes[at + 1..]
        .iter()
        .position(|&byte| !(byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80))
        .unwrap_or(bytes.len() - at - 1);
    let tag_end = at + 1 + length;
    let is_tag = bytes.get(tag_end) == Some(&b'$') && !bytes[at + 1].is_ascii_digit();
    if after_word || !is_tag {
        return at + 1;
    }
    let tag = &bytes[at..=tag_end];
    let body = tag_end + 1;
    bytes[body..]
        .windows(tag.len())
        .position(|window| window == tag)
        .map_or(bytes.len(), |end| body + end + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<&str> {
        split(sql).map(|piece| piece.text).collect()
    }

    #[test]
    fn semicolons_inside_quotes_and_comments_do_not_split() {
        assert_eq!(texts("select ';'; select 2"), ["select ';'", " select 2"]);
        assert_eq!(texts("select 'it''s;'; x"), ["select 'it''s;'", " x"]);
        assert_eq!(texts(r"select E'\';'; x"), [r"select E'\';'", " x"]);
        assert_eq!(texts(r"select '\'; x"), [r"select '\'", " x"]);
        assert_eq!(texts("select \";\"; x"), ["select \";\"", " x"]);
        assert_eq!(texts("select $$;$$; select $a$;$$;$a$"), ["select $$;$$", " select $a$;$$;$a$"]);
        assert_eq!(texts("select $1; x"), ["select $1", " x"]);
        assert_eq!(texts("a -- ; \n b; c"), ["a -- ; \n b", " c"]);
        assert_eq!(texts("a -- ; \r b; c"), ["a -- ; \r b", " c"]);
        assert_eq!(texts("a /* ; /* ; */ ; */ b; c"), ["a /* ; /* ; */ ; */ b", " c"]);
    }

    #[test]
    fn empty_statements_are_left_out_and_places_are_kept() {
        assert_eq!(split(" ; ;-- nothing\n").next(), None);
        let mut pieces = split("é; x; ö");
        assert_eq!(pieces.nth(1), Some(Piece { text: " x", chars_before: 2 }));
        let (rest, chars_before) = pieces.rest();
        assert_eq!((rest, chars_before), (" ö", 5));
        let mut rest = Pieces::behind(rest, chars_before);
        assert_eq!(rest.next(), Some(Piece { text: " ö", chars_before: 5 }));
        assert_eq!(rest.next(), None);
        assert_eq!(texts("unterminated '; x"), ["unterminated '; x"]);
    }
}

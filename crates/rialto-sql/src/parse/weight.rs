//! What reading a statement takes at most, found in its text before it is read.
//!
//! sqlparser's tree takes up to 1,000 times the bytes of its text: `f(1),` is a call of its own, with room for four arguments.
//! So a text is weighed first, and read only where there is room for it ([`ReadingRoom`](super::ReadingRoom)).
//!
//! Kept here: a text weighs at least what its tokens and sqlparser's tree take at their peak, and as many tokens are counted as the
//! tokenizer finds, or more. Quotes and comments are passed over where all lexers agree where they end; from the first place
//! where they may not (such as a backslash in `X''`) each byte counts as the heaviest token that it may be.

use super::split::{comment_end, quote_end};

/// What a text comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// The most tokens that it has.
    pub tokens: usize,
    /// The most bytes that reading it takes.
    pub bytes: usize,
}

/// What a token takes among the others: itself, and where a statement's tokens without blanks are listed.
const TOKEN: usize = 112;
/// What a name or literal takes besides: its text a few times, for each of which an allocation, and its node.
const ATOM: usize = 320;
/// How often the text of a name, literal or comment is there at a time, in tokens, trees and messages.
const TEXTS: usize = 10;

/// An expression in a list, in sqlparser's tree and in what becomes of it.
const EXPR: usize = 336 + 128;
/// One more of them: twice for the room that the list may grow into, and once for where it grew from.
const LISTED: usize = 3 * EXPR;
/// The same for the largest items that a list has: tables, columns of an index, what is ordered by.
const LISTED_MOST: usize = 3 * 1_376;
/// A row among rows.
const LISTED_ROW: usize = 3 * 32;
/// A list of up to four expressions.
const LIST: usize = 4 * EXPR;
/// A list of up to four arguments or items of a SELECT, the call or subquery that they are of, and its name.
const CALL: usize = 4_096;
/// An operator with its two sides.
const OPERATOR: usize = 1_024;
/// A dot in a number, or before a name that weighs enough for both.
const DOT: usize = 512;
/// A dot before anything else: a list of up to four fields, and no less for each of a list that grows.
const FIELD: usize = 4 * 984;
/// A word that may be anything but the next ones: an option of a column, a branch of a CASE.
const WORD: usize = 2_560;
/// A table that is joined.
const JOIN: usize = 6_656;
/// SELECT, with its list of items.
const SELECT: usize = 11_264;
/// An operator between two queries.
const UNION: usize = 8_192;
/// The heaviest token that begins with a given byte weighs no more than this, but for words, which have more bytes.
const ANY: usize = TOKEN + ATOM + CALL;

/// What the commas at one level of parentheses separate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    /// Anything.
    Any,
    /// The rows of an INSERT.
    Rows,
    /// Expressions; so many commas so far.
    Exprs(usize),
}

/// Words that begin another list than one of expressions, if one comes in a place for those.
const BEGIN_LISTS: [&[u8]; 12] = [
    b"by",
    b"delete",
    b"from",
    b"insert",
    b"merge",
    b"returning",
    b"select",
    b"set",
    b"table",
    b"update",
    b"values",
    b"with",
];

struct Scales<'a> {
    bytes: &'a [u8],
    weight: Weight,
    /// The lists around the one that is weighed.
    outer: Vec<List>,
    list: List,
    /// Whether the statement is an INSERT; known behind its first word.
    is_insert: Option<bool>,
    /// Whether the last word is IN.
    after_in: bool,
}

/// Weighs a statement.
pub fn weigh(text: &str) -> Weight {
    let mut scales = Scales {
        bytes: text.as_bytes(),
        weight: Weight::default(),
        outer: Vec::new(),
        list: List::Any,
        is_insert: None,
        after_in: false,
    };
    let mut at = 0;
    while at < text.len() {
        match scales.token(at) {
            Some(end) => at = end,
            None => {
                let rest = text.len() - at;
                scales.add(rest, rest * (ANY + TEXTS));
                break;
            }
        }
    }
    scales.weight
}

impl Scales<'_> {
    fn add(&mut self, tokens: usize, bytes: usize) {
        self.weight.tokens += tokens;
        self.weight.bytes += tokens * TOKEN + bytes;
    }

    fn peek(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// The byte before; a blank at the beginning.
    fn before(&self, at: usize) -> u8 {
        at.checked_sub(1).map_or(b' ', |at| self.bytes[at])
    }

    /// Weighs the token at `at`; its end, or `None` where lexers may disagree about that.
    fn token(&mut self, at: usize) -> Option<usize> {
        let byte = self.bytes[at];
        let next = self.peek(at + 1);
        if byte.is_ascii_whitespace() {
            self.add(1, 0);
            return Some(at + 1);
        }
        let after_in = std::mem::take(&mut self.after_in);
        let end = match byte {
            b'(' => {
                let (list, weight) = match self.list {
                    List::Rows => (List::Exprs(0), LIST),
                    _ if after_in => (List::Exprs(0), LIST + OPERATOR),
                    _ => (List::Any, CALL),
                };
                self.add(1, weight);
                self.outer.push(std::mem::replace(&mut self.list, list));
                at + 1
            }
            b'[' | b'{' => {
                self.add(1, CALL);
                self.outer.push(std::mem::replace(&mut self.list, List::Any));
                at + 1
            }
            b')' | b']' | b'}' => {
                self.add(1, 0);
                self.list = self.outer.pop().unwrap_or(List::Any);
                at + 1
            }
            b',' => {
                let weight = match &mut self.list {
                    List::Any => LISTED_MOST,
                    List::Rows => LISTED_ROW,
                    // Four find room where the list began.
                    List::Exprs(commas) => {
                        *commas += 1;
                        match *commas {
                            ..4 => 0,
                            4 => 2 * LISTED,
                            _ => LISTED,
                        }
                    }
                };
                self.add(1, weight);
                at + 1
            }
            b'-' if next == b'-' => {
                // Behind another operator it may be a part of that one.
                if is_operator(self.before(at)) {
                    return None;
                }
                let line = self.bytes[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                let end = line.map_or(self.bytes.len(), |length| at + length);
                self.add(1, TEXTS * (end - at) + ATOM);
                end
            }
            b'/' if next == b'*' => {
                if is_operator(self.before(at)) {
                    return None;
                }
                let end = comment_end(self.bytes, at);
                self.add(1, TEXTS * (end - at) + ATOM);
                end
            }
            // sqlparser takes what stands straight behind `&>` for a part of it, be that a quote.
            b'>' if self.before(at) == b'&' && !next.is_ascii_whitespace() => return None,
            b'\'' => self.string(at)?,
            b'"' => {
                let end = quote_end(self.bytes, at, b'"', false);
                // It may be the first of all words, and a name wherever one may stand.
                self.is_insert.get_or_insert(false);
                self.add(1, TEXTS * (end - at) + ATOM + WORD);
                end
            }
            b'$' => self.dollar(at)?,
            b'0'..=b'9' => {
                // A dollar behind it begins a token of its own.
                let end = self.run_end(at, b'0');
                // Letters are a part of the number, or end it: numbers and words may stand right behind each other.
                let letters = self.bytes[at..end].iter().filter(|byte| !byte.is_ascii_digit()).count();
                self.add(1 + letters, TEXTS * (end - at) + ATOM + letters * (ATOM + WORD));
                end
            }
            b'.' => {
                let in_number = self.before(at).is_ascii_digit() && next.is_ascii_digit();
                // In a list of expressions a word may be a literal, which weighs little.
                let before_name = next == b'"' || is_word(next) && !matches!(self.list, List::Exprs(_));
                self.add(1, ATOM + if in_number || before_name { DOT } else { FIELD });
                at + 1
            }
            byte if is_word(byte) => self.word(at),
            byte if byte.is_ascii() => {
                self.add(1, OPERATOR + ATOM);
                at + 1
            }
            // Of a name in another alphabet each character counts.
            byte => {
                if byte & 0xc0 != 0x80 {
                    self.add(1, TEXTS * 4 + ATOM + WORD);
                }
                at + 1
            }
        };
        Some(end)
    }

    /// The end of a run of letters and digits, and of this one character.
    fn run_end(&self, at: usize, other: u8) -> usize {
        let rest = &self.bytes[at..];
        let length = rest.iter().position(|byte| !is_word(*byte) && !byte.is_ascii_digit() && *byte != other);
        at + length.unwrap_or(rest.len())
    }

    fn word(&mut self, at: usize) -> usize {
        let end = self.run_end(at, b'$');
        let word = &self.bytes[at..end];
        let is = |other: &[u8]| word.eq_ignore_ascii_case(other);
        let is_first = self.is_insert.is_none();
        // An INSERT that is explained is one.
        if is_first && !is(b"explain") {
            self.is_insert = Some(is(b"insert"));
        }
        let begins_rows = self.is_insert == Some(true) && self.outer.is_empty() && is(b"values");
        let is_literal = matches!(self.list, List::Exprs(_))
            && (is(b"null") || is(b"true") || is(b"false") || is(b"default"));
        match self.list {
            _ if begins_rows => self.list = List::Rows,
            List::Rows => self.list = List::Any,
            List::Exprs(_) if BEGIN_LISTS.iter().any(|begins| is(begins)) => self.list = List::Any,
            _ => {}
        }
        self.after_in = is(b"in");
        let weight = match word.len() {
            _ if is_literal => 0,
            4 if is(b"join") => JOIN,
            6 if is(b"select") => SELECT,
            5 if is(b"union") || is(b"minus") => UNION,
            6 if is(b"except") => UNION,
            9 if is(b"intersect") => UNION,
            _ => WORD,
        };
        // ISNULL is read as IS NULL.
        self.add(1 + usize::from(is(b"isnull")), TEXTS * word.len() + ATOM + weight);
        end
    }

    /// A string in quotes. A word may stand right before it, which says what a backslash means.
    fn string(&mut self, at: usize) -> Option<usize> {
        let prefix = self.before(at);
        let escapes = matches!(prefix, b'e' | b'E') && {
            let before = self.before(at - 1);
            !is_word(before) && !before.is_ascii_digit() && before != b'$' && before.is_ascii()
        };
        let end = quote_end(self.bytes, at, b'\'', escapes).min(self.bytes.len());
        let is_plain = !is_word(prefix) && !prefix.is_ascii_digit() && prefix != b'$' && prefix != b'&';
        if !is_plain && !escapes && self.bytes[at..end].contains(&b'\\') || !prefix.is_ascii() {
            return None;
        }
        self.add(1, TEXTS * (end - at) + ATOM);
        Some(end)
    }

    /// A parameter, or a string between two tags.
    fn dollar(&mut self, at: usize) -> Option<usize> {
        let prefix = self.before(at);
        let tag = &self.bytes[at + 1..];
        let length = tag.iter().position(|byte| !is_word(*byte) && !byte.is_ascii_digit());
        let tag_end = at + 1 + length.unwrap_or(tag.len());
        if self.peek(tag_end) != b'$' {
            self.add(1, TEXTS * (tag_end - at) + ATOM);
            // A character of another alphabet may be in a tag.
            return self.peek(tag_end).is_ascii().then_some(tag_end);
        }
        let is_plain = prefix.is_ascii() && !is_word(prefix) && !prefix.is_ascii_digit() && prefix != b'$';
        if !is_plain || self.bytes[at + 1].is_ascii_digit() {
            return None;
        }
        let tag = &self.bytes[at..=tag_end];
        let body = &self.bytes[tag_end + 1..];
        let length = body.windows(tag.len()).position(|window| window == tag).map(|at| at + tag.len());
        let end = tag_end + 1 + length?;
        self.add(1, TEXTS * (end - at) + ATOM);
        Some(end)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

/// Whether this may be a part of an operator of several characters.
fn is_operator(byte: u8) -> bool {
    b"+-*/<>=~!@#%^&|`?:".contains(&byte)
}

#[cfg(test)]
mod tests {
    use sqlparser::ast::AccessExpr;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    use super::*;

    /// As many tokens are counted as there are, whatever stands beside what.
    #[test]
    fn no_token_is_overlooked() {
        let parts = [
            "'", "''", "\"", "\\", "$", "$$", "$a$", "$1$", "E", "e", "x", "X", "U&", "N", "b", "a", "1",
            "0x", "1e", ".", "--", "-", "/*", "*/", "/", "*", "<", "|", "&", "@", "\n", "\r", " ", ",", ",,",
            "(", ")", "\u{e9}", "\u{2014}", "_", "L", ":", "?", "#", "~", "%", "[", "{", ">", "&>", "&<",
            "?-|", "@-@", "^@", "&<|",
        ];
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut tokenized = 0;
        for _ in 0..400_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                text.push_str(parts[(state >> 33) as usize % parts.len()]);
            }
            let mut tokens = Vec::new();
            let read =
                Tokenizer::new(&PostgreSqlDialect {}, &text).tokenize_with_location_into_buf(&mut tokens);
            tokenized += usize::from(read.is_ok());
            let weight = weigh(&text);
            assert!(tokens.len() <= weight.tokens, "{text:?}: {} tokens, {weight:?}", tokens.len());
        }
        assert!(tokenized > 10_000, "{tokenized}");
    }

    #[test]
    fn a_dot_weighs_the_place_of_a_field() {
        assert!(4 * size_of::<AccessExpr>() <= FIELD, "{}", size_of::<AccessExpr>());
    }

    #[test]
    fn what_is_quoted_weighs_little() {
        let long = "x,(".repeat(100_000);
        for quoted in [
            format!("'{long}\\'"),
            format!("\"{long}\""),
            format!("/*{long}*/"),
            format!("--{long}"),
            format!("$a${long}$a$"),
            format!("$${long}$$"),
            format!("E'{long}\\''"),
            format!("x'{long}'"),
            format!("U&'{long}'"),
        ] {
            let bytes = weigh(&format!("select {quoted}")).bytes;
            assert!(bytes < 11 * quoted.len() + 30_000, "{}: {bytes}", &quoted[..6]);
        }
    }
}

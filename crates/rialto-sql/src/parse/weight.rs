//! The most memory that reading a statement takes, computed from its tokens as they are made.
//!
//! sqlparser's tree takes up to 1,000 times the bytes of its text: `f(1),` is a call of its own, with room for four
//! arguments. So each token is weighed before the next one is made, and a statement is parsed only if there is room for
//! the weight of its tokens ([`Reading`](super::tokens::Reading)).
//!
//! Invariant: the weight is no less than what tokens, trees and messages take at their peak.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::isnull::is_isnull;

/// How many copies of the text of a name, literal or comment exist at a time, in tokens, trees and messages.
const TEXTS: usize = 10;
/// The bytes of a token while more are made: the list of tokens grows.
const TOKEN_MADE: usize = 3 * size_of::<TokenWithSpan>();
/// The bytes of a token while the tree exists: the token, and the lists of a statement's tokens without blanks.
const TOKEN: usize = size_of::<TokenWithSpan>() + 3 * size_of::<&TokenWithSpan>();
/// The bytes of a name or literal beside the token: a few copies of its text, with an allocation each, and its node.
const ATOM: usize = 320;

/// An expression in a list, in sqlparser's tree and in the lowered tree.
const EXPR: usize = 336 + 128;
/// One more expression: twice for the room into which the list may grow, and once for the list that it grew from.
const LISTED: usize = 3 * EXPR;
/// The same for the largest items of a list: tables, columns of an index, keys to sort by.
const LISTED_MOST: usize = 3 * 1_376;
/// A row among rows.
const LISTED_ROW: usize = 3 * 32;
/// A list of up to four expressions.
const LIST: usize = 4 * EXPR;
/// A list of up to four arguments or items of a SELECT, with its call or subquery, and its name.
const CALL: usize = 4_096;
/// An operator with its two sides.
const OPERATOR: usize = 1_024;
/// A dot in a number, or before a name that weighs enough for both.
const DOT: usize = 512;
/// A dot before anything else: a list of up to four fields, and no less for each item of a list that grows.
const FIELD: usize = 4 * 984;
/// A word that may be anything other than the words below: an option of a column, a branch of a CASE.
const WORD: usize = 2_560;
/// A table that is joined.
const JOIN: usize = 6_656;
/// SELECT, with its list of items.
const SELECT: usize = 11_264;
/// An operator between two queries.
const UNION: usize = 8_192;
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

/// Weighs the tokens of one statement, in their order.
pub(super) struct Scales {
    /// The bytes of the texts of the tokens.
    texts: usize,
    tokens: usize,
    /// The bytes of the tree.
    tree: usize,
    /// The lists around the current one.
    outer: Vec<List>,
    list: List,
    /// Whether the statement is an INSERT; known behind its first word.
    is_insert: Option<bool>,
    /// Whether the last token is IN.
    after_in: bool,
    /// Whether it is a dot.
    after_dot: bool,
}

impl Scales {
    /// For the tokens of this text.
    pub(super) fn new(text: &str) -> Scales {
        Scales {
            texts: TEXTS * text.len(),
            tokens: 0,
            tree: 0,
            outer: Vec::new(),
            list: List::Any,
            is_insert: None,
            after_in: false,
            after_dot: false,
        }
    }

    /// The most bytes that the tokens so far, and all texts, take.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.texts + (self.tokens * TOKEN_MADE).max(self.tokens * TOKEN + self.tree)
    }

    /// Weighs the next token.
    pub(super) fn put(&mut self, token: &Token) {
        self.tokens += 1;
        if let Token::Whitespace(blank) = token {
            if let Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_) = blank {
                self.tree += ATOM;
            }
            return;
        }
        let after_in = std::mem::take(&mut self.after_in);
        if std::mem::take(&mut self.after_dot) && !self.is_name(token) {
            self.tree += FIELD - DOT;
        }
        self.tree += match token {
            Token::LParen => {
                let (list, weight) = match self.list {
                    List::Rows => (List::Exprs(0), LIST),
                    _ if after_in => (List::Exprs(0), LIST + OPERATOR),
                    _ => (List::Any, CALL),
                };
                self.outer.push(std::mem::replace(&mut self.list, list));
                weight
            }
            Token::LBracket | Token::LBrace => {
                self.outer.push(std::mem::replace(&mut self.list, List::Any));
                CALL
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                self.list = self.outer.pop().unwrap_or(List::Any);
                0
            }
            Token::Comma => match &mut self.list {
                List::Any => LISTED_MOST,
                List::Rows => LISTED_ROW,
                // Four fit where the list began.
                List::Exprs(commas) => {
                    *commas += 1;
                    match *commas {
                        ..4 => 0,
                        4 => 2 * LISTED,
                        _ => LISTED,
                    }
                }
            },
            Token::Period => {
                self.after_dot = true;
                ATOM + DOT
            }
            Token::Word(word) if word.quote_style.is_some() => {
                // It may be the statement's first word, and a name wherever a name may stand.
                self.is_insert.get_or_insert(false);
                ATOM + WORD
            }
            // ISNULL is read as IS NULL.
            Token::Word(word) if is_isnull(word) => {
                self.tokens += 1;
                ATOM + self.word(Keyword::NoKeyword)
            }
            Token::Word(word) => ATOM + self.word(word.keyword),
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DollarQuotedString(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::DoubleQuotedByteStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::Placeholder(_) => ATOM,
            _ => ATOM + OPERATOR,
        };
    }

    /// Whether a token behind a dot weighs enough for both. In a list of expressions a word may be a literal, which
    /// weighs little.
    fn is_name(&self, token: &Token) -> bool {
        match token {
            Token::Word(word) => word.quote_style.is_some() || !matches!(self.list, List::Exprs(_)),
            _ => false,
        }
    }

    /// The weight of an unquoted word beside its text.
    fn word(&mut self, word: Keyword) -> usize {
        // An explained INSERT is an INSERT.
        if word != Keyword::EXPLAIN {
            self.is_insert.get_or_insert(word == Keyword::INSERT);
        }
        let begins_rows = self.is_insert == Some(true) && self.outer.is_empty() && word == Keyword::VALUES;
        let is_literal = matches!(self.list, List::Exprs(_))
            && matches!(word, Keyword::NULL | Keyword::TRUE | Keyword::FALSE | Keyword::DEFAULT);
        match self.list {
            _ if begins_rows => self.list = List::Rows,
            List::Rows => self.list = List::Any,
            List::Exprs(_) if begins_list(word) => self.list = List::Any,
            _ => {}
        }
        self.after_in = word == Keyword::IN;
        match word {
            _ if is_literal => 0,
            Keyword::JOIN => JOIN,
            Keyword::SELECT => SELECT,
            Keyword::UNION | Keyword::MINUS | Keyword::EXCEPT | Keyword::INTERSECT => UNION,
            _ => WORD,
        }
    }
}

/// Whether a word begins a list of something other than expressions, where expressions may stand.
fn begins_list(word: Keyword) -> bool {
    matches!(
        word,
        Keyword::BY
            | Keyword::DELETE
            | Keyword::FROM
            | Keyword::INSERT
            | Keyword::MERGE
            | Keyword::RETURNING
            | Keyword::SELECT
            | Keyword::SET
            | Keyword::TABLE
            | Keyword::UPDATE
            | Keyword::VALUES
            | Keyword::WITH
    )
}

#[cfg(test)]
mod tests {
    use sqlparser::ast::AccessExpr;

    use super::super::tokens::weigh;
    use super::*;

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
            let bytes = weigh(&format!("select {quoted}"));
            assert!(bytes < 11 * quoted.len() + 30_000, "{}: {bytes}", &quoted[..6]);
        }
    }
}

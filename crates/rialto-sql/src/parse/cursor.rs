//! [`Cursor`]: walks over the tokens of a utility statement.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Name, Places};
use crate::error::{Result, SqlError, SqlState};

/// A place in a statement's tokens, blanks and comments left out.
pub(super) struct Cursor<'a> {
    places: &'a Places<'a>,
    tokens: Vec<&'a TokenWithSpan>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(places: &'a Places<'a>, tokens: &'a [TokenWithSpan]) -> Cursor<'a> {
        Cursor { places, tokens: super::words(tokens).collect(), at: 0 }
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|token| &token.token).filter(|token| **token != Token::EOF)
    }

    /// Where the next token stands.
    pub(super) fn position(&self) -> Option<usize> {
        match self.tokens.get(self.at) {
            Some(token) if token.token != Token::EOF => self.places.position(token.span.start),
            _ => Some(self.places.end()),
        }
    }

    /// Whether no token is left.
    pub(super) fn is_end(&self) -> bool {
        self.peek().is_none()
    }

    /// The next token as an unquoted word, in upper case.
    pub(super) fn peek_word(&self) -> Option<String> {
        match self.peek()? {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
            _ => None,
        }
    }

    /// Takes the next token if it is this word.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(next))
            if next.quote_style.is_none() && next.value.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    /// Takes the next token if it is this word and not the last one.
    pub(super) fn take_before(&mut self, word: &str) -> bool {
        let start = self.at;
        let found = self.take(word) && !self.is_end();
        if !found {
            self.at = start;
        }
        found
    }

    /// Takes these words if all of them are next.
    pub(super) fn take_all(&mut self, words: &[&str]) -> bool {
        let start = self.at;
        let found = words.iter().all(|word| self.take(word));
        if !found {
            self.at = start;
        }
        found
    }

    /// Takes the next token if it is this one.
    pub(super) fn take_token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    /// Takes a word, or gives an error that names the next token.
    pub(super) fn expect(&mut self, word: &str) -> Result<()> {
        if self.take(word) { Ok(()) } else { Err(self.unexpected(word)) }
    }

    pub(super) fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.take_token(token) { Ok(()) } else { Err(self.unexpected(&token.to_string())) }
    }

    pub(super) fn expect_end(&self) -> Result<()> {
        if self.is_end() { Ok(()) } else { Err(self.unexpected("end of statement")) }
    }

    /// A syntax error at the next token.
    pub(super) fn unexpected(&self, expected: &str) -> SqlError {
        let message = match self.peek() {
            Some(token) => format!("syntax error at or near \"{token}\""),
            None => "syntax error at end of input".to_string(),
        };
        SqlError::new(SqlState::SyntaxError, message)
            .detail(format!("Expected: {expected}."))
            .at(self.position())
    }

    /// An identifier.
    pub(super) fn name(&mut self) -> Result<Name> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let ident = Ident {
                    value: word.value.clone(),
                    quote_style: word.quote_style,
                    span: self.tokens[self.at].span,
                };
                self.at += 1;
                Ok(self.places.name(&ident))
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    /// The name of a table or index: bare, or in schema `public`.
    pub(super) fn object(&mut self) -> Result<Name> {
        let first = self.name()?;
        if !self.take_token(&Token::Period) {
            return Ok(first);
        }
        let second = self.name()?;
        if first.text != "public" {
            return Err(SqlError::unsupported(format!("schema \"{}\"", first.text)).at(first.position));
        }
        Ok(second)
    }

    /// A name with dots in it, as settings have them.
    pub(super) fn dotted(&mut self) -> Result<Name> {
        let mut name = self.name()?;
        while self.take_token(&Token::Period) {
            let next = self.name()?;
            name.text.push('.');
            name.text.push_str(&next.text);
        }
        Ok(name)
    }

    /// A list of items that `item` reads: one or more, separated by commas.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.take_token(&Token::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A list of names in parentheses.
    pub(super) fn column_list(&mut self) -> Result<Vec<Name>> {
        self.expect_token(&Token::LParen)?;
        let columns = self.list(Cursor::name)?;
        self.expect_token(&Token::RParen)?;
        Ok(columns)
    }

    pub(super) fn peek_is(&self, token: &Token) -> bool {
        self.peek() == Some(token)
    }

    /// A string in quotes.
    pub(super) fn string(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            Some(Token::DollarQuotedString(text)) => {
                self.at += 1;
                Ok(text.value.clone())
            }
            _ => Err(self.unexpected("a string in quotes")),
        }
    }

    /// A setting's value: a string, a number (with its sign) or a word.
    pub(super) fn literal(&mut self) -> Result<String> {
        let sign = if self.take_token(&Token::Minus) { "-" } else { "" };
        match self.peek() {
            Some(Token::Number(digits, _)) => {
                self.at += 1;
                Ok(format!("{sign}{digits}"))
            }
            _ if !sign.is_empty() => Err(self.unexpected("a number")),
            Some(Token::Word(_)) => Ok(self.name()?.text),
            _ => self.string(),
        }
    }
}

//! Strings that go on in the next line, as SQL's standard has them: `'a'`, a line's end, `'b'` is `'ab'`.
//!
//! sqlparser does not know them: where an alias may stand it would take the second string for one, and lose it.

use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::Places;
use crate::error::{Result, SqlError, SqlState};

/// Makes one string of those that go on, and refuses two on one line, which are no SQL.
pub(super) fn join(places: &Places<'_>, tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let is_string = |token: &Token| matches!(token, Token::SingleQuotedString(_));
    // A look first: hardly a statement has two strings with nothing but blanks between.
    let mut after_string = false;
    let joins = tokens.iter().any(|token| match &token.token {
        Token::Whitespace(_) => false,
        token => std::mem::replace(&mut after_string, begins_string(token)) && is_string(token),
    });
    if !joins {
        return Ok(tokens);
    }
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // The last string, and whether a line has ended since.
    let mut last: Option<(usize, bool)> = None;
    for token in tokens {
        match (&token.token, &mut last) {
            (Token::Whitespace(Whitespace::MultiLineComment(_)), _) => last = None,
            (Token::Whitespace(blank), Some((_, ended))) => {
                *ended |= matches!(blank, Whitespace::Newline | Whitespace::SingleLineComment { .. });
            }
            (Token::SingleQuotedString(text), Some((at, true))) => match &mut joined[*at].token {
                Token::SingleQuotedString(first) => {
                    first.push_str(text);
                    last = Some((*at, false));
                    continue;
                }
                _ => {
                    let message = "a string of another kind than '...' that goes on in the next line";
                    return Err(SqlError::unsupported(message).at(places.position(token.span.start)));
                }
            },
            (Token::SingleQuotedString(_), Some((_, false))) => {
                let message = format!("syntax error at or near \"{}\"", token.token);
                return Err(
                    SqlError::new(SqlState::SyntaxError, message).at(places.position(token.span.start))
                );
            }
            (Token::Whitespace(_), None) => {}
            (other, _) => last = begins_string(other).then_some((joined.len(), false)),
        }
        joined.push(token);
    }
    Ok(joined)
}

/// Whether a string that this is may go on.
fn begins_string(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
    )
}

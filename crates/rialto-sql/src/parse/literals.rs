//! Strings that continue in the next line, as in SQL's standard: `'a'`, a line's end, `'b'` is `'ab'`.
//!
//! sqlparser does not know them: where an alias may stand, it would take the second string for an alias, and the
//! string would be lost.

use rialto::fault_injection;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::Places;
use crate::error::{Result, SqlError, SqlState};

/// Joins the parts of a continued string into its first token, with blanks in place of the others. Refuses two strings
/// on one line, which are no SQL.
pub(super) fn join(places: &Places<'_>, tokens: &mut [TokenWithSpan]) -> Result<()> {
    if fault_injection::is_on("strings-end-with-their-line") {
        return Ok(());
    }
    // The last string, and whether a line has ended since.
    let mut last: Option<(usize, bool)> = None;
    for at in 0..tokens.len() {
        match (&tokens[at].token, &mut last) {
            (Token::Whitespace(_), None) => {}
            (Token::Whitespace(Whitespace::MultiLineComment(_)), _) => last = None,
            (Token::Whitespace(blank), Some((_, ended))) => {
                *ended |= matches!(blank, Whitespace::Newline | Whitespace::SingleLineComment { .. });
            }
            (Token::SingleQuotedString(_), Some((first, true))) => {
                let first = *first;
                goes_on(places, tokens, first, at)?;
                last = Some((first, false));
            }
            (Token::SingleQuotedString(_), Some((_, false))) => {
                let TokenWithSpan { token, span } = &tokens[at];
                let message = format!("syntax error at or near \"{token}\"");
                return Err(SqlError::new(SqlState::SyntaxError, message).at(places.position(span.start)));
            }
            (other, _) => last = begins_string(other).then_some((at, false)),
        }
    }
    Ok(())
}

/// Appends the string at `next` to the one at `first`, and leaves a blank.
fn goes_on(places: &Places<'_>, tokens: &mut [TokenWithSpan], first: usize, next: usize) -> Result<()> {
    let position = places.position(tokens[next].span.start);
    let token = std::mem::replace(&mut tokens[next].token, Token::Whitespace(Whitespace::Space));
    match (&mut tokens[first].token, token) {
        (Token::SingleQuotedString(text), Token::SingleQuotedString(more)) => {
            text.push_str(&more);
            Ok(())
        }
        _ => {
            let message = "a string of another kind than '...' that goes on in the next line";
            Err(SqlError::unsupported(message).at(position))
        }
    }
}

/// Whether this token begins a string that may continue.
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

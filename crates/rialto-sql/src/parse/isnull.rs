//! ISNULL, PostgreSQL's short form of IS NULL.
//!
//! sqlparser does not know it: where an alias may stand, it would take the word ISNULL for an alias. (It knows
//! NOTNULL.)

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// Writes IS NULL for each ISNULL. The word is reserved: unquoted it is a name only behind AS or a dot. The weight of
/// the tokens has room for this.
pub(super) fn spell_out(tokens: &mut Vec<TokenWithSpan>) {
    let mut found = Vec::new();
    let mut names_follow = false;
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::Whitespace(_) => {}
            Token::Word(word) => {
                if !names_follow && is_isnull(word) {
                    found.push(at);
                }
                names_follow = word.keyword == Keyword::AS;
            }
            other => names_follow = *other == Token::Period,
        }
    }
    // From the last on, so that each token moves once.
    let mut end = tokens.len();
    tokens.reserve_exact(found.len());
    tokens.resize(end + found.len(), TokenWithSpan::wrap(Token::EOF));
    for (before, at) in found.into_iter().enumerate().rev() {
        for from in (at + 1..end).rev() {
            tokens.swap(from, from + before + 1);
        }
        let span = tokens[at].span;
        tokens[at + before] = TokenWithSpan { token: Token::make_keyword("IS"), span };
        tokens[at + before + 1] = TokenWithSpan { token: Token::make_keyword("NULL"), span };
        end = at;
    }
}

/// Whether a word is ISNULL, and not a quoted name of the same letters.
pub(super) fn is_isnull(word: &Word) -> bool {
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case("isnull")
}

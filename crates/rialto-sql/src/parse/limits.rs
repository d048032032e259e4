//! The limits of a statement: the length of its text, and the depth of its tree.
//!
//! Parsing, binding, planning, running and dropping a statement recurse over its tree. So the tree that leaves this
//! module is at most [`HEIGHT_MAX`] high. sqlparser's own tree may be higher: its parser bounds its recursion, but
//! loops over chains (`a + b + c`, `a::int::text`, `int[][]`), which become trees as high as they are long. [`chain`]
//! bounds that height from the tokens, before the parser runs. If the height may exceed the stack, the statement is
//! parsed on a thread with a stack that fits it ([`on_a_stack_for`]), and only the lowered tree leaves that thread.

use std::sync::Arc;

use rialto::fault_injection;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError, SqlState};
use crate::room::{Room, Taken};

/// The longest text of a statement, in bytes.
pub const STATEMENT_BYTES_MAX: usize = 16 << 20;
/// The most operators in a chain.
pub const CHAIN_MAX: usize = 32_000;
/// The height of an expression's tree.
pub const HEIGHT_MAX: u16 = 500;
/// How deep parentheses, CASE and NOT are nested.
pub(super) const NESTING_MAX: usize = 200;
/// How deep the parser recurses: for nested constructs, and for the statement around them.
pub(super) const RECURSION_MAX: usize = NESTING_MAX + 24;

/// The longest chain that is parsed on the session's own stack.
const CHAIN_IN_PLACE_MAX: usize = 150;
/// The stack that parsing takes without chains.
const STACK_BYTES: usize = 8 << 20;
/// The stack that one level of sqlparser's tree takes when it is walked or dropped, with a margin.
const STACK_BYTES_PER_LEVEL: usize = 8 << 10;

/// Refuses a text that is too long.
pub(super) fn check_length(text: &str) -> Result<()> {
    if text.len() <= STATEMENT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("statement of {} bytes: the limit is {STATEMENT_BYTES_MAX} bytes", text.len());
    Err(SqlError::new(SqlState::LimitExceeded, message)
        .hint("Split it, give values as parameters, or use COPY."))
}

/// An expression, or a statement, whose tree is too high.
pub(super) fn too_complex(what: &str) -> SqlError {
    SqlError::new(SqlState::TooComplex, format!("statement too complex: {what}"))
}

/// The greatest possible height of sqlparser's tree, without the levels of recursion. Each level takes a token that is
/// no name and no literal. A comma begins the count again, except in chains of queries.
pub(super) fn chain(tokens: &[TokenWithSpan]) -> usize {
    /// One level of brackets: the count since the last comma, and the count of chains that no comma ends.
    #[derive(Default, Clone, Copy)]
    struct Level {
        count: usize,
        queries: usize,
    }
    let mut outer: Vec<Level> = Vec::new();
    let (mut level, mut below, mut most) = (Level::default(), 0, 0);
    for token in tokens {
        match &token.token {
            Token::Whitespace(_) | Token::EOF => continue,
            Token::LParen | Token::LBracket | Token::LBrace => {
                level.count += 1;
                below += level.count + level.queries;
                outer.push(std::mem::take(&mut level));
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                if let Some(last) = outer.pop() {
                    below -= last.count + last.queries;
                    level = last;
                }
            }
            Token::Comma => level.count = 0,
            Token::Word(word) => match word.keyword {
                Keyword::NoKeyword => {}
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => level.queries += 1,
                // The parser recurses for each, which takes more of the stack than a level of a tree.
                Keyword::JOIN => level.count += 4,
                _ => level.count += 1,
            },
            Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) => {}
            _ => level.count += 1,
        }
        most = most.max(below + level.count + level.queries);
    }
    most
}

/// Refuses nesting that is too deep. sqlparser detects it too, but at its bound takes words such as NOT and CASE for
/// names, and then reports wrong syntax. `chain` is the result of [`chain`] for the tokens; the nesting is no deeper.
pub(super) fn check_nesting(tokens: &[TokenWithSpan], chain: usize) -> Result<()> {
    if chain <= NESTING_MAX || nesting(tokens) <= NESTING_MAX {
        return Ok(());
    }
    Err(too_nested())
}

/// An expression that is nested too deep.
pub(super) fn too_nested() -> SqlError {
    too_complex(&format!("nested more than {NESTING_MAX} levels deep"))
}

/// How deep brackets, CASE and NOT are nested in each other.
fn nesting(tokens: &[TokenWithSpan]) -> usize {
    /// An open bracket or CASE, and the NOTs before it, whose operand it is.
    struct Opened {
        case: bool,
        nots: usize,
    }
    let mut opened: Vec<Opened> = Vec::new();
    let (mut depth, mut nots, mut most) = (0, 0, 0);
    for token in tokens {
        let keyword = match &token.token {
            Token::Whitespace(_) | Token::EOF => continue,
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let opens = matches!(token.token, Token::LParen | Token::LBracket | Token::LBrace);
        let closes = matches!(token.token, Token::RParen | Token::RBracket | Token::RBrace);
        if opens || keyword == Keyword::CASE {
            depth += 1 + nots;
            opened.push(Opened { case: !opens, nots: std::mem::take(&mut nots) });
        } else if closes || keyword == Keyword::END && opened.last().is_some_and(|opened| opened.case) {
            depth -= opened.pop().map_or(0, |opened| 1 + opened.nots);
            nots = 0;
        } else {
            nots = if keyword == Keyword::NOT { nots + 1 } else { 0 };
        }
        most = most.max(depth + nots);
    }
    most
}

/// Runs `parse`, whose trees have at most this height, on a stack that is large enough for them and for the caller.
pub(super) fn on_a_stack_for<T: Send>(
    chain: usize,
    room: &Arc<Room>,
    parse: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    if chain <= CHAIN_IN_PLACE_MAX || fault_injection::is_on("chains-on-any-stack") {
        return parse();
    }
    if chain > CHAIN_MAX {
        return Err(too_complex(&format!("a chain of more than {CHAIN_MAX} operators")));
    }
    let mut taken = Taken::of(room);
    taken.fit(chain * STACK_BYTES_PER_LEVEL, "the stack to parse the statement on")?;
    let bytes = STACK_BYTES + chain * STACK_BYTES_PER_LEVEL;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("rialto-parse".to_owned()).stack_size(bytes);
        match thread.spawn_scoped(scope, parse) {
            Ok(parsing) => parsing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => {
                let message =
                    format!("no thread with a stack of {bytes} bytes to parse the statement on: {error}");
                Err(SqlError::new(SqlState::OutOfMemory, message))
            }
        }
    })
}

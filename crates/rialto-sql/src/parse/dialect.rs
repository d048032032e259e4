//! [`BoundedDialect`]: PostgreSQL's dialect for sqlparser, which ends a parser that takes too long or is cancelled.

use std::any::TypeId;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};

use super::limits;
use crate::cancel::Cancel;
use crate::error::{Result, SqlError};

/// How many steps a parser may take for each token. A construct that is tried once takes up to six.
const STEPS_PER_TOKEN: usize = 64;
/// A number of further steps, so that short statements have enough of them.
const STEPS_MIN: usize = 20_000;

/// [`PostgreSqlDialect`] with a bound: its parser takes a number of steps in proportion to its tokens, and checks for a
/// cancel request at each.
///
/// sqlparser tries the possible forms of a construct one after the other. If such a try reads an inner construct to its
/// end and fails behind it (`position(a, b)`, `a in (values (b), c)`), the next try reads the inner one again, so each
/// level of nesting doubles the work. A step is a question that the parser asks its dialect, or a token that the parser
/// has gone back over between two questions that show its position.
#[derive(Debug)]
pub(super) struct BoundedDialect {
    cancel: Arc<Cancel>,
    steps_left: Cell<usize>,
    /// The parser's position, a token, when it last showed it.
    at: Cell<usize>,
    /// Whether the parser was ended.
    ended: Cell<bool>,
}

impl BoundedDialect {
    /// For a statement of this number of tokens, none of them blank.
    pub(super) fn new(tokens: usize, cancel: &Arc<Cancel>) -> BoundedDialect {
        BoundedDialect {
            cancel: cancel.clone(),
            steps_left: Cell::new(tokens * STEPS_PER_TOKEN + STEPS_MIN),
            at: Cell::new(0),
            ended: Cell::new(false),
        }
    }

    /// Runs a parser with this dialect.
    ///
    /// # Errors
    /// SQLSTATE 57014 if it was cancelled, 54001 if it has taken too many steps.
    pub(super) fn bound<T>(&self, parse: impl FnOnce() -> T) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(parse)) {
            Ok(parsed) => self.cancel.check().map(|()| parsed),
            Err(_) if self.ended.get() => Err(self.reason()),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn reason(&self) -> SqlError {
        let too_many = || limits::too_complex("what is nested in it would be read again and again");
        self.cancel.check().err().unwrap_or_else(too_many)
    }

    /// Counts steps of the parser, and ends it when they are too many or a cancel request has come.
    #[inline]
    fn count(&self, steps: usize) {
        let left = self.steps_left.get().saturating_sub(steps);
        self.steps_left.set(left);
        if left == 0 || self.cancel.check().is_err() {
            self.end();
        }
    }

    /// As [`BoundedDialect::count`], for a question that shows the parser's position.
    fn count_at(&self, parser: &Parser) {
        let at = parser.get_current_index();
        self.count(1 + self.at.replace(at).saturating_sub(at));
    }

    #[cold]
    fn end(&self) -> ! {
        self.ended.set(true);
        // Most questions have no answer that ends a parser. Only unwinding ends it at each of them.
        resume_unwind(Box::new(()));
    }
}

/// Methods without arguments, as in [`PostgreSqlDialect`].
macro_rules! as_postgres {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            self.count(1);
            PostgreSqlDialect {}.$method()
        })*
    };
}

/// Each method forwards to [`PostgreSqlDialect`].
impl Dialect for BoundedDialect {
    fn dialect(&self) -> TypeId {
        self.count(1);
        TypeId::of::<PostgreSqlDialect>()
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        self.count_at(parser);
        None
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        PostgreSqlDialect {}.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        self.count(1);
        PostgreSqlDialect {}.is_reserved_for_identifier(keyword)
    }

    fn is_table_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        self.count_at(parser);
        PostgreSqlDialect {}.is_table_alias(keyword, parser)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        self.count_at(parser);
        PostgreSqlDialect {}.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        self.count(1);
        PostgreSqlDialect {}.prec_value(precedence)
    }

    as_postgres!(
        supports_unicode_string_literal,
        supports_filter_during_aggregation,
        supports_group_by_expr,
        supports_alter_user_as_alter_role,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_exclude_constraint,
        supports_factorial_operator,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_named_fn_args_with_expr_name,
        supports_empty_projections,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
        supports_array_typedef_with_brackets,
        supports_geometric_types,
        supports_order_by_using_operator,
        supports_set_names,
        supports_alter_column_type_using,
        supports_left_associative_joins_without_parens,
        supports_notnull_operator,
        supports_interval_options,
        supports_insert_table_alias,
        supports_create_table_like_parenthesized,
        supports_select_wildcard_with_alias,
        supports_comma_separated_trim,
        supports_xml_expressions,
        supports_aliased_function_args,
        supports_comment_optimizer_hint,
    );
}

/// The tokenizer's questions, answered as by [`PostgreSqlDialect`], except that no operator goes on with a sign or with
/// the beginning of a comment. So `a>-1` compares with a negative number and `a>/**/1` has a comment, as in PostgreSQL,
/// whose operators of several characters end in a sign only if they have one of `~!@#%^&|?` or a backquote in them.
#[derive(Debug)]
pub(super) struct Lexis;

/// Methods without arguments, as in [`PostgreSqlDialect`].
macro_rules! lexis_as_postgres {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            PostgreSqlDialect {}.$method()
        })*
    };
}

impl Dialect for Lexis {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_part(ch)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        !matches!(ch, '+' | '-' | '/') && PostgreSqlDialect {}.is_custom_operator_part(ch)
    }

    lexis_as_postgres!(
        supports_unicode_string_literal,
        supports_geometric_types,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
    );
}

#[cfg(test)]
mod tests {
    use sqlparser::tokenizer::{Token, Tokenizer};

    use super::*;

    /// A list of tables has no expressions.
    #[test]
    fn a_parser_hears_a_cancel_request_amid_a_list() {
        let sql = format!("select * from {}", vec!["t"; 10_000].join(","));
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, &sql).tokenize_with_location().unwrap();
        let cancel = Arc::new(Cancel::default());
        let dialect = BoundedDialect::new(tokens.len(), &cancel);
        let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens);
        let mut read_before = 0;
        let parsed = cancel.reading(|| {
            dialect.bound(|| {
                while parser.get_current_index() < 100 || parser.get_current_token().token != Token::Comma {
                    parser.advance_token();
                }
                read_before = parser.get_current_index();
                cancel.request();
                parser.parse_comma_separated(Parser::parse_table_and_joins)
            })
        });
        assert_eq!(parsed.unwrap_err().sqlstate.code(), "57014");
        let read = parser.get_current_index() - read_before;
        assert!(read < 10, "{read} tokens were read after the request");
    }
}

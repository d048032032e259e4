//! [`BoundedDialect`]: PostgreSQL's dialect for sqlparser, with an end to speculation.

use std::any::TypeId;
use std::cell::Cell;

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};

/// How often an expression may begin for each token: sqlparser reads some again, in the other ways that it knows for them.
const BEGINS_PER_TOKEN: usize = 8;
/// How often more, so that the shortest statements have them too.
const BEGINS_MIN: usize = 1_000;

/// [`PostgreSqlDialect`], whose parser ends when expressions have begun too often.
///
/// sqlparser tries what an expression may be one after the other. Where such a try reads an inner expression to its end and
/// fails behind it (`position(a, b)`, `a in (values (b), c)`), the next one reads the inner one again: twice as much for each level of
/// nesting. What is counted here is linear in a statement's tokens for all that has no such levels.
#[derive(Debug)]
pub(super) struct BoundedDialect {
    begins_left: Cell<usize>,
}

impl BoundedDialect {
    /// For a statement of so many tokens.
    pub(super) fn new(tokens: usize) -> BoundedDialect {
        BoundedDialect { begins_left: Cell::new(tokens * BEGINS_PER_TOKEN + BEGINS_MIN) }
    }

    /// Whether the parser was ended.
    pub(super) fn is_exhausted(&self) -> bool {
        self.begins_left.get() == 0
    }
}

/// Methods without arguments, as PostgreSQL has them.
macro_rules! as_postgres {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            PostgreSqlDialect {}.$method()
        })*
    };
}

/// All that [`PostgreSqlDialect`] says of itself is said here in its words.
impl Dialect for BoundedDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn parse_prefix(&self, _parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let left = self.begins_left.get().saturating_sub(1);
        self.begins_left.set(left);
        // The one error that no try is made after.
        (left == 0).then_some(Err(ParserError::RecursionLimitExceeded))
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
        PostgreSqlDialect {}.is_reserved_for_identifier(keyword)
    }

    fn is_table_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        PostgreSqlDialect {}.is_table_alias(keyword, parser)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        PostgreSqlDialect {}.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
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

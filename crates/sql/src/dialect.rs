//! The SQL that is understood: that of sqlparser's generic dialect, with the operators' precedence of PostgreSQL.
//!
//! From the tightest: `.`, `::`, `[ ]`, `+ -` before a value, `AT TIME ZONE`, `^`, `* / %`, `+ -`, all other operators (`||`,
//! `->`, `->>`, `~`, `@>` …), `BETWEEN IN LIKE`, `< > = <= >= <>`, `IS`, `NOT`, `AND`, `OR`. The generic dialect binds `->`
//! looser than `=`, `LIKE` looser than `=`, and `||` as tightly as `*`. Those of the levels of `BETWEEN`, `<` and `IS` do not
//! associate.

use std::iter::Peekable;
use std::str::Chars;

use datafusion::logical_expr::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::logical_expr::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::logical_expr::sqlparser::keywords::Keyword;
use datafusion::logical_expr::sqlparser::parser::{Parser, ParserError};
use datafusion::logical_expr::sqlparser::tokenizer::Token;

/// Generic SQL with PostgreSQL's precedence.
#[derive(Debug)]
pub(crate) struct TidemillDialect;

const GENERIC: GenericDialect = GenericDialect {};

const PERIOD: u8 = 200;
const CAST: u8 = 140;
const BRACKET: u8 = 130;
const SIGN: u8 = 125;
const AT_TIME_ZONE: u8 = 110;
const POWER: u8 = 100;
const MULTIPLY: u8 = 90;
const ADD: u8 = 80;
const XOR: u8 = 75;
const OTHER: u8 = 70;
const BETWEEN_LIKE: u8 = 60;
const COMPARE: u8 = 50;
const IS: u8 = 40;
const NOT: u8 = 30;
const AND: u8 = 20;
const OR: u8 = 10;

/// Operators one upon the other that are cloned at most: the tree is not bounded yet, and cloning takes stack.
const CLONED_LEVELS_MAX: usize = 200;

/// Returns whether the first operands of `expr` are nested more deeply than is cloned. The parser bounds all others.
fn is_long_chain(mut expr: &Expr) -> bool {
    for _ in 0..CLONED_LEVELS_MAX {
        expr = match expr {
            Expr::BinaryOp { left, .. }
            | Expr::IsDistinctFrom(left, _)
            | Expr::IsNotDistinctFrom(left, _) => left,
            Expr::Cast { expr, .. }
            | Expr::IsNull(expr)
            | Expr::IsNotNull(expr)
            | Expr::IsTrue(expr)
            | Expr::IsNotTrue(expr)
            | Expr::IsFalse(expr)
            | Expr::IsNotFalse(expr)
            | Expr::IsUnknown(expr)
            | Expr::IsNotUnknown(expr)
            | Expr::Like { expr, .. }
            | Expr::ILike { expr, .. }
            | Expr::SimilarTo { expr, .. }
            | Expr::RLike { expr, .. }
            | Expr::Between { expr, .. }
            | Expr::InList { expr, .. }
            | Expr::InSubquery { expr, .. }
            | Expr::InUnnest { expr, .. }
            | Expr::Collate { expr, .. } => expr,
            Expr::AnyOp { left, .. } | Expr::AllOp { left, .. } => left,
            Expr::AtTimeZone { timestamp, .. } => timestamp,
            Expr::CompoundFieldAccess { root, .. } => root,
            Expr::JsonAccess { value, .. } => value,
            _ => return false,
        };
    }
    true
}

/// Operators of one level that do not associate: `a < b < c` has no meaning without brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Is,
    Compare,
    BetweenLike,
}

impl Level {
    /// Returns the level of an expression without brackets around it.
    fn of(expr: &Expr) -> Option<Self> {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        match expr {
            Expr::BinaryOp { op: Eq | Gt | GtEq | Lt | LtEq | NotEq, .. } => Some(Self::Compare),
            // those that end with a word or a bracket may be followed by another one: `a IS NULL IS TRUE`
            Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => Some(Self::Is),
            Expr::Like { .. } | Expr::ILike { .. } | Expr::SimilarTo { .. } | Expr::Between { .. } => {
                Some(Self::BetweenLike)
            }
            _ => None,
        }
    }

    /// Returns the level of the operator at the parser.
    fn of_next(parser: &Parser) -> Option<Self> {
        use Keyword::{BETWEEN, ILIKE, IN, IS, LIKE, NOT, NOTNULL, SIMILAR};
        let word = |n: usize| match &parser.peek_nth_token_ref(n).token {
            Token::Word(word) => Some(word.keyword),
            _ => None,
        };
        match &parser.peek_token_ref().token {
            Token::Eq | Token::DoubleEq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq => {
                Some(Self::Compare)
            }
            Token::Word(_) => match (word(0), word(1)) {
                (Some(IS | NOTNULL), _) => Some(Self::Is),
                (Some(BETWEEN | IN | LIKE | ILIKE | SIMILAR), _)
                | (Some(NOT), Some(BETWEEN | IN | LIKE | ILIKE | SIMILAR)) => Some(Self::BetweenLike),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns the error for an operator that follows another one of its level, which PostgreSQL refuses as well.
fn chained(parser: &Parser, left: &Expr) -> Option<ParserError> {
    let level = Level::of_next(parser)?;
    if Level::of(left) != Some(level) {
        return None;
    }
    let (what, instead) = match level {
        Level::Compare => ("comparisons", "a < b AND b < c, or (a = b) = c"),
        Level::Is => ("IS DISTINCT FROM and IS", "(a IS DISTINCT FROM b) IS TRUE"),
        Level::BetweenLike => ("BETWEEN or LIKE and one of BETWEEN, IN, LIKE", "(a LIKE b) IN (c, d)"),
    };
    let next = parser.peek_token_ref();
    Some(ParserError::ParserError(format!(
        "{what} do not follow one another without brackets, found {}: write, for example, {instead}{}",
        next.token, next.span.start
    )))
}

/// The generic dialect's answers to questions of yes or no that differ from those of a dialect without any.
macro_rules! as_generic {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            GENERIC.$method()
        })*
    };
}

impl Dialect for TidemillDialect {
    // the parser asks in places whether the dialect is the generic one
    fn dialect(&self) -> std::any::TypeId {
        GENERIC.dialect()
    }

    fn supports_insert_table_alias(&self) -> bool {
        true
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GENERIC.is_delimited_identifier_start(ch)
    }

    fn is_nested_delimited_identifier_start(&self, ch: char) -> bool {
        GENERIC.is_nested_delimited_identifier_start(ch)
    }

    fn peek_nested_delimited_identifier_quotes(
        &self,
        chars: Peekable<Chars<'_>>,
    ) -> Option<(char, Option<char>)> {
        GENERIC.peek_nested_delimited_identifier_quotes(chars)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GENERIC.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GENERIC.is_identifier_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        let next = parser.peek_token_ref();
        let precedence = match &next.token {
            Token::LBracket => BRACKET,
            Token::Placeholder(mark) if mark.starts_with('?') => {
                return Some(Err(ParserError::ParserError(format!(
                    "the operators ?, ?| and ?& are not supported: json_contains(json, 'key') asks for a member{}",
                    next.span.start
                ))));
            }
            Token::Arrow
            | Token::LongArrow
            | Token::HashArrow
            | Token::HashLongArrow
            | Token::AtArrow
            | Token::ArrowAt
            | Token::HashMinus
            | Token::AtQuestion
            | Token::AtAt
            | Token::Question
            | Token::QuestionAnd
            | Token::QuestionPipe
            | Token::ExclamationMark
            | Token::Overlap
            | Token::CaretAt
            | Token::StringConcat
            | Token::Sharp
            | Token::ShiftRight
            | Token::ShiftLeft
            | Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk
            | Token::CustomBinaryOperator(_) => OTHER,
            _ => return None,
        };
        Some(Ok(precedence))
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::Period => PERIOD,
            Precedence::DoubleColon => CAST,
            Precedence::AtTz => AT_TIME_ZONE,
            Precedence::MulDivModOp => MULTIPLY,
            Precedence::PlusMinus => ADD,
            Precedence::Xor => XOR,
            Precedence::Caret => POWER,
            Precedence::Ampersand | Precedence::Pipe | Precedence::Colon | Precedence::PgOther => OTHER,
            Precedence::Between | Precedence::Like => BETWEEN_LIKE,
            Precedence::Eq => COMPARE,
            Precedence::Is => IS,
            Precedence::UnaryNot => NOT,
            Precedence::And => AND,
            Precedence::Or => OR,
        }
    }

    /// A sign binds tighter than `^` and `*`: `-2 ^ 2` is 4.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let op = match &parser.peek_token_ref().token {
            Token::Minus => UnaryOperator::Minus,
            Token::Plus => UnaryOperator::Plus,
            _ => return None,
        };
        parser.advance_token();
        Some(parser.parse_subexpr(SIGN).map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }))
    }

    /// `IS DISTINCT FROM` binds as `IS` does; the parser would take all that follows for its right operand. Operators that do
    /// not associate are refused one after the other.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(refused) = chained(parser, expr) {
            return Some(Err(refused));
        }
        let word = |n: usize| match &parser.peek_nth_token_ref(n).token {
            Token::Word(word) => Some(word.keyword),
            _ => None,
        };
        if word(0) != Some(Keyword::IS) {
            return None;
        }
        let negated = word(1) == Some(Keyword::NOT);
        let at = if negated { 2 } else { 1 };
        if (word(at), word(at + 1)) != (Some(Keyword::DISTINCT), Some(Keyword::FROM)) {
            return None;
        }
        if is_long_chain(expr) {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        for _ in 0..at + 2 {
            parser.advance_token();
        }
        let left = Box::new(expr.clone());
        Some(parser.parse_subexpr(precedence).map(|right| match negated {
            true => Expr::IsNotDistinctFrom(left, Box::new(right)),
            false => Expr::IsDistinctFrom(left, Box::new(right)),
        }))
    }

    as_generic! {
        supports_unicode_string_literal,
        supports_partition_by_after_order_by,
        supports_array_join_syntax,
        supports_group_by_expr,
        supports_group_by_with_modifier,
        supports_left_associative_joins_without_parens,
        supports_connect_by,
        supports_match_recognize,
        supports_pipe_operator,
        supports_start_transaction_modifier,
        supports_window_function_null_treatment_arg,
        supports_dictionary_syntax,
        supports_window_clause_named_window_reference,
        supports_parenthesized_set_variables,
        supports_select_wildcard_except,
        support_map_literal_syntax,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_extract_comma_syntax,
        supports_create_view_comment_syntax,
        supports_parens_around_table_factor,
        supports_values_as_table_factor,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_limit_comma,
        supports_update_order_by,
        supports_from_first_select,
        supports_projection_trailing_commas,
        supports_asc_desc_in_column_definition,
        supports_try_convert,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_assignment_operator,
        supports_struct_literal,
        supports_empty_projections,
        supports_nested_comments,
        supports_multiline_comment_hints,
        supports_user_host_grantee,
        supports_string_escape_constant,
        supports_array_typedef_with_brackets,
        supports_match_against,
        supports_set_names,
        supports_comma_separated_set_assignments,
        supports_filter_during_aggregation,
        supports_select_wildcard_exclude,
        supports_data_type_signed_suffix,
        supports_interval_options,
        supports_quote_delimited_string,
        supports_select_wildcard_replace,
        supports_select_wildcard_ilike,
        supports_select_wildcard_rename,
        supports_optimize_table,
        supports_install,
        supports_detach,
        supports_prewhere,
        supports_with_fill,
        supports_limit_by,
        supports_interpolate,
        supports_settings,
        supports_select_format,
        supports_comment_optimizer_hint,
        supports_constraint_keyword_without_name,
        supports_key_column_option,
        supports_comma_separated_trim,
        supports_cte_without_as,
        supports_select_item_multi_column_alias,
        supports_xml_expressions
    }
}

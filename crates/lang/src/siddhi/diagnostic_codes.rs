//! Codes of the parser's diagnostics. A code never changes its meaning; `S04…` and above belong to the compiler.

/// Unexpected token.
pub const UNEXPECTED: &str = "S0201";
/// Missing `;`.
pub const SEMICOLON: &str = "S0202";
/// `=` instead of `==` in a comparison.
pub const ASSIGN_FOR_EQUALS: &str = "S0203";
/// Unclosed bracket or `begin`.
pub const UNCLOSED: &str = "S0204";
/// Misspelled keyword.
pub const MISSPELT: &str = "S0205";
/// Nesting or expression too deep.
pub const TOO_DEEP: &str = "S0206";
/// Word, operator or construct of another language.
pub const FOREIGN: &str = "S0207";
/// Annotation value without quotes.
pub const UNQUOTED: &str = "S0208";
/// Unknown type.
pub const UNKNOWN_TYPE: &str = "S0209";
/// Unknown time unit.
pub const UNKNOWN_UNIT: &str = "S0210";
/// Time units out of order or repeated.
pub const UNIT_ORDER: &str = "S0211";
/// Closing bracket or `end` without an opening one.
pub const STRAY_CLOSE: &str = "S0212";
/// Number or time out of range.
pub const RANGE: &str = "S0213";
/// Sign without a number after it.
pub const SIGN: &str = "S0214";
/// `is null` after an operand other than an attribute, function call or step.
pub const NULL_CHECK: &str = "S0215";
/// Superfluous `;`.
pub const EMPTY_STATEMENT: &str = "S0216";
/// Empty brackets or body where at least one element is required.
pub const EMPTY: &str = "S0217";

/// App without a definition.
pub const NO_DEFINITION: &str = "S0301";
/// Definition after a query.
pub const DEFINITION_LATE: &str = "S0302";
/// Annotation in a position where it is not allowed.
pub const ANNOTATION_MISPLACED: &str = "S0303";
/// Column or alias without `as`.
pub const AS_MISSING: &str = "S0304";
/// Clauses out of order.
pub const CLAUSE_ORDER: &str = "S0305";
/// Query without an output.
pub const NO_OUTPUT: &str = "S0306";
/// Clause that this kind of query or input does not support.
pub const CLAUSE_MISPLACED: &str = "S0307";
/// Missing clause.
pub const CLAUSE_MISSING: &str = "S0308";
/// Second window on one stream.
pub const SECOND_WINDOW: &str = "S0309";
/// Expression where only an attribute is allowed.
pub const NOT_AN_ATTRIBUTE: &str = "S0310";
/// Pattern syntax in a sequence, or sequence syntax in a pattern.
pub const STATE_KIND: &str = "S0311";
/// Absent step that lacks a time or has a name.
pub const ABSENT_STEP: &str = "S0312";
/// `every` in a position where it is not allowed.
pub const EVERY_MISPLACED: &str = "S0313";
/// `within` before the end of a pattern.
pub const WITHIN_MISPLACED: &str = "S0314";
/// Partition inside a partition.
pub const NESTED_PARTITION: &str = "S0315";

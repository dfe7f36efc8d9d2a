//! Codes of the parser's diagnostics. A code never changes its meaning; `R04…` and above belong to the compiler.

/// Unexpected token.
pub const UNEXPECTED: &str = "R0201";
/// Missing `;`.
pub const SEMICOLON: &str = "R0202";
/// `=` instead of `==` in a comparison.
pub const ASSIGN_FOR_EQUALS: &str = "R0203";
/// Unclosed bracket.
pub const UNCLOSED: &str = "R0204";
/// Keyword as a name.
pub const KEYWORD_AS_NAME: &str = "R0205";
/// Nesting or expression too deep.
pub const TOO_DEEP: &str = "R0206";
/// Word or operator of another language.
pub const FOREIGN: &str = "R0207";
/// Chained comparison: `a < b < c`.
pub const COMPARISON_CHAIN: &str = "R0208";
/// Unknown type.
pub const UNKNOWN_TYPE: &str = "R0209";
/// Unknown time unit.
pub const UNKNOWN_UNIT: &str = "R0210";
/// Name or clause given twice.
pub const TWICE: &str = "R0211";
/// Closing bracket without an opening one.
pub const STRAY_CLOSE: &str = "R0212";
/// Number or time span out of range.
pub const RANGE: &str = "R0213";
/// Rule whose first condition is not an event.
pub const EVENT_FIRST: &str = "R0301";
/// Rule without `then`, or aggregate without `do`.
pub const NO_ACTIONS: &str = "R0302";
/// Entity without `key`, or relation without `by`.
pub const CLAUSE_MISSING: &str = "R0303";
/// Clause that this kind of rule does not support.
pub const CLAUSE_MISPLACED: &str = "R0304";
/// Condition with `not` that binds a name.
pub const NEGATED_BINDING: &str = "R0305";

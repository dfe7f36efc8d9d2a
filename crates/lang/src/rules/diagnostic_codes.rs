//! Codes of the parser's diagnostics. A code never changes its meaning; `R04…` and above belong to the compiler.

/// Something else was expected here.
pub const UNEXPECTED: &str = "R0201";
/// A `;` is missing.
pub const SEMICOLON: &str = "R0202";
/// `=` where two values are compared.
pub const ASSIGN_FOR_EQUALS: &str = "R0203";
/// A bracket is never closed.
pub const UNCLOSED: &str = "R0204";
/// A keyword where a name is wanted.
pub const KEYWORD_AS_NAME: &str = "R0205";
/// Too deeply nested.
pub const TOO_DEEP: &str = "R0206";
/// A word or operator of another language.
pub const FOREIGN: &str = "R0207";
/// `a < b < c`
pub const COMPARISON_CHAIN: &str = "R0208";
/// No type has this name.
pub const UNKNOWN_TYPE: &str = "R0209";
/// No unit of time has this name.
pub const UNKNOWN_UNIT: &str = "R0210";
/// Said twice.
pub const TWICE: &str = "R0211";
/// A closing bracket that closes nothing.
pub const STRAY_CLOSE: &str = "R0212";
/// A number or span of time outside its range.
pub const RANGE: &str = "R0213";
/// The first condition is not an event.
pub const EVENT_FIRST: &str = "R0301";
/// A rule without `then`, or an aggregate without `do`.
pub const NO_ACTIONS: &str = "R0302";
/// An entity without `key`, a relation without `by`.
pub const CLAUSE_MISSING: &str = "R0303";
/// A clause that this kind of rule does not have.
pub const CLAUSE_MISPLACED: &str = "R0304";
/// A condition with `not` that binds a name.
pub const NEGATED_BINDING: &str = "R0305";

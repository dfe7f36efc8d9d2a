//! Codes of the parser's diagnostics. A code never changes its meaning; `S04…` and above belong to the compiler.

/// Something else was expected here.
pub const UNEXPECTED: &str = "S0201";
/// A `;` is missing.
pub const SEMICOLON: &str = "S0202";
/// `=` where two values are compared.
pub const ASSIGN_FOR_EQUALS: &str = "S0203";
/// A bracket or `begin` is never closed.
pub const UNCLOSED: &str = "S0204";
/// A keyword that is nearly right.
pub const MISSPELT: &str = "S0205";
/// Too deeply nested.
pub const TOO_DEEP: &str = "S0206";
/// A word, sign or form of another language.
pub const FOREIGN: &str = "S0207";
/// A value of an annotation without quotes.
pub const UNQUOTED: &str = "S0208";
/// No type has this name.
pub const UNKNOWN_TYPE: &str = "S0209";
/// No unit of time has this name.
pub const UNKNOWN_UNIT: &str = "S0210";
/// Units of a time in the wrong order, or twice.
pub const UNIT_ORDER: &str = "S0211";
/// A closing bracket or `end` that closes nothing.
pub const STRAY_CLOSE: &str = "S0212";
/// A number or time outside its range.
pub const RANGE: &str = "S0213";
/// A sign that is not before a number.
pub const SIGN: &str = "S0214";
/// `is null` after something that is no attribute, function or step.
pub const NULL_CHECK: &str = "S0215";
/// A `;` too many.
pub const EMPTY_STATEMENT: &str = "S0216";
/// Nothing stands in brackets that cannot be empty.
pub const EMPTY: &str = "S0217";

/// An app without a definition.
pub const NO_DEFINITION: &str = "S0301";
/// A definition after a query.
pub const DEFINITION_LATE: &str = "S0302";
/// An annotation where it cannot stand.
pub const ANNOTATION_MISPLACED: &str = "S0303";
/// A column or alias without `as`.
pub const AS_MISSING: &str = "S0304";
/// Clauses in the wrong order.
pub const CLAUSE_ORDER: &str = "S0305";
/// A query without an output.
pub const NO_OUTPUT: &str = "S0306";
/// A clause that this kind of query or input does not have.
pub const CLAUSE_MISPLACED: &str = "S0307";
/// A clause that is needed and not there.
pub const CLAUSE_MISSING: &str = "S0308";
/// A second window on one stream.
pub const SECOND_WINDOW: &str = "S0309";
/// An expression where only an attribute can stand.
pub const NOT_AN_ATTRIBUTE: &str = "S0310";
/// A form of pattern in a sequence, or of sequence in a pattern.
pub const STATE_KIND: &str = "S0311";
/// An absent step that needs a time or cannot have a name.
pub const ABSENT_STEP: &str = "S0312";
/// `every` where it cannot stand.
pub const EVERY_MISPLACED: &str = "S0313";
/// `within` that is not at the end of a pattern.
pub const WITHIN_MISPLACED: &str = "S0314";
/// A partition inside a partition.
pub const NESTED_PARTITION: &str = "S0315";

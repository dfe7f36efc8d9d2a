//! Syntax tree of InfluxQL.

/// Maximum bytes of a query: all statements together.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Maximum depth of brackets, calls and subqueries.
pub const NESTING_MAX: usize = 30;
/// Maximum height of the tree of an expression: operators one below another.
pub const HEIGHT_MAX: usize = 300;
/// Maximum number of statements of a query.
pub const STATEMENTS_MAX: usize = 256;
/// Maximum number of regular expressions of a query, each of which takes time to compile.
pub const PATTERNS_MAX: usize = 200;
/// Maximum number of measurements and subqueries of a `FROM`, of dimensions of a `GROUP BY`, and of arguments of a call.
pub const LIST_MAX: usize = 1000;

/// Statement.
#[derive(Debug, Clone, PartialEq)]
pub enum InfluxStatement {
    /// `SELECT`.
    Select(Box<Select>),
    /// `SHOW …`.
    Show(Show),
    /// `CREATE DATABASE name …`, which has no effect.
    CreateDatabase(String),
    /// Statement that is known and not supported.
    Unsupported {
        /// First words of it: `DROP MEASUREMENT`.
        name: String,
        /// Whole text.
        text: String,
    },
}

/// `SHOW` of something.
#[derive(Debug, Clone, PartialEq)]
pub struct Show {
    /// Subject.
    pub subject: Subject,
    /// Database behind `ON`.
    pub database: Option<String>,
    /// Measurements behind `FROM`; behind `WITH MEASUREMENT` of `SHOW MEASUREMENTS`.
    pub sources: Vec<SelectSource>,
    /// Condition.
    pub condition: Option<Expr>,
    /// `LIMIT`, 0 for none.
    pub limit: u64,
    /// `OFFSET`.
    pub offset: u64,
}

/// Subject of `SHOW`.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// `DATABASES`.
    Databases,
    /// `MEASUREMENTS`.
    Measurements,
    /// `FIELD KEYS`.
    FieldKeys,
    /// `TAG KEYS`.
    TagKeys,
    /// `TAG VALUES WITH KEY …`.
    TagValues(KeyFilter),
    /// `RETENTION POLICIES`.
    RetentionPolicies,
    /// `SERIES`.
    Series,
    /// `DIAGNOSTICS`.
    Diagnostics,
}

/// Filter of tag keys.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyFilter {
    /// `= key` or `!= key`, the second with `true`.
    Key(String, bool),
    /// `IN (key, …)`.
    In(Vec<String>),
    /// `=~ /…/` or `!~ /…/`, the second with `true`.
    Regex(String, bool),
}

/// `SELECT`.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// Columns.
    pub fields: Vec<SelectedField>,
    /// `FROM`.
    pub sources: Vec<SelectSource>,
    /// `WHERE`.
    pub condition: Option<Expr>,
    /// `GROUP BY`.
    pub dimensions: Vec<Expr>,
    /// `fill(…)`.
    pub fill: Option<Fill>,
    /// `ORDER BY time DESC`.
    pub is_descending: bool,
    /// `LIMIT`, 0 for none.
    pub limit: u64,
    /// `OFFSET`.
    pub offset: u64,
    /// `SLIMIT`, 0 for none.
    pub slimit: u64,
    /// `SOFFSET`.
    pub soffset: u64,
    /// `tz('…')`.
    pub zone: Option<String>,
}

/// Column of `SELECT`.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectedField {
    /// Expression.
    pub expr: Expr,
    /// Name behind `AS`.
    pub alias: Option<String>,
}

/// Source of rows.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectSource {
    /// Measurement, perhaps with the names of its database and policy in front of it.
    Measurement {
        /// Names in front, without effect.
        qualifiers: Vec<String>,
        /// Name or pattern.
        name: MeasurementName,
    },
    /// Query in brackets.
    Subquery(Box<Select>),
}

/// Name of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum MeasurementName {
    /// Name.
    Name(String),
    /// Regular expression for the names.
    Regex(String),
    /// Regular expression for the names that do not match.
    NotRegex(String),
    /// Name of measurements that are left out.
    Not(String),
}

/// Value of intervals without points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Null, the default.
    Null,
    /// There are no rows for them.
    None,
    /// The value of the interval before.
    Previous,
    /// On the line between the neighbours.
    Linear,
    /// A number.
    Number(FillNumber),
}

/// Number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FillNumber {
    /// Whole number.
    Integer(i64),
    /// Number with a point.
    Float(f64),
}

/// Type behind `::`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cast {
    /// `float`.
    Float,
    /// `integer`.
    Integer,
    /// `string`.
    String,
    /// `boolean`.
    Boolean,
    /// `field`: any field.
    Field,
    /// `tag`: a tag.
    Tag,
}

/// Binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names and symbols are those of the language")]
pub enum BinaryOperator {
    Or,
    And,
    Equal,
    NotEqual,
    Matches,
    MatchesNot,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    BitOr,
    BitXor,
    Multiply,
    Divide,
    Modulo,
    BitAnd,
}

impl BinaryOperator {
    const ALL: [(Self, &'static str, u8); 18] = [
        (Self::Or, "OR", 1),
        (Self::And, "AND", 2),
        (Self::Equal, "=", 3),
        (Self::NotEqual, "!=", 3),
        (Self::Matches, "=~", 3),
        (Self::MatchesNot, "!~", 3),
        (Self::Less, "<", 3),
        (Self::LessOrEqual, "<=", 3),
        (Self::Greater, ">", 3),
        (Self::GreaterOrEqual, ">=", 3),
        (Self::Add, "+", 4),
        (Self::Subtract, "-", 4),
        (Self::BitOr, "|", 4),
        (Self::BitXor, "^", 4),
        (Self::Multiply, "*", 5),
        (Self::Divide, "/", 5),
        (Self::Modulo, "%", 5),
        (Self::BitAnd, "&", 5),
    ];

    /// Returns the operator with this symbol.
    pub(crate) fn of_symbol(symbol: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known, _)| known.eq_ignore_ascii_case(symbol))
            .map(|(operator, ..)| *operator)
    }

    fn row(self) -> &'static (Self, &'static str, u8) {
        // every operator has a row
        Self::ALL.iter().find(|(operator, ..)| *operator == self).unwrap_or(&Self::ALL[0])
    }

    /// Returns its symbol.
    pub fn symbol(self) -> &'static str {
        self.row().1
    }

    /// Returns its precedence; a larger one binds more tightly.
    pub fn precedence(self) -> u8 {
        self.row().2
    }

    /// Returns whether it compares.
    pub(crate) fn is_comparison(self) -> bool {
        self.precedence() == 3
    }

    /// Returns whether it calculates.
    pub(crate) fn is_arithmetic(self) -> bool {
        self.precedence() > 3
    }

    /// Returns the comparison with its sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }
}

/// Expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// Name of a field, a tag or `time`.
    Name(String, Option<Cast>),
    /// `*`, `*::field`, `*::tag`.
    Wildcard(Option<Cast>),
    /// Regular expression.
    Regex(String),
    /// Call of a function, whose name is in lower case.
    Call(String, Vec<Expr>),
    /// `DISTINCT name`, another way to write the call.
    Distinct(String),
    /// Two operands.
    Binary(BinaryOperator, Box<Expr>, Box<Expr>),
    /// Brackets.
    Paren(Box<Expr>),
    /// Whole number.
    Integer(i64),
    /// Number with a point.
    Float(f64),
    /// Text.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// Duration in nanoseconds.
    Duration(i64),
}

impl Expr {
    /// Returns the expression without brackets around it.
    pub(crate) fn bare(&self) -> &Self {
        match self {
            Self::Paren(inner) => inner.bare(),
            other => other,
        }
    }

    /// Calls `visit` with the expression and each one below it, from the left.
    pub(crate) fn walk<'e>(&'e self, visit: &mut dyn FnMut(&'e Self)) {
        visit(self);
        match self {
            Self::Call(_, arguments) => arguments.iter().for_each(|argument| argument.walk(visit)),
            Self::Binary(_, left, right) => {
                left.walk(visit);
                right.walk(visit);
            }
            Self::Paren(inner) => inner.walk(visit),
            _ => {}
        }
    }
}

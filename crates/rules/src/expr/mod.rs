//! Typed expressions, as the resolver produces them, and two ways to evaluate them.
//!
//! [`eval`] evaluates one row at a time and supports every expression. [`block`] evaluates 64 events at once
//! and supports expressions over the event's own columns. Both give equal results, which a property test
//! checks.

pub mod block;
pub mod eval;
pub mod funcs;
pub mod ops;
pub mod row;
pub mod ty;
pub mod value;

use std::fmt;
use std::sync::Arc;

use regex::Regex;
use tidemill_lang::Span;

pub use funcs::Func;
pub use ops::{ArithmeticOp, CompareOp};
pub use row::{Bindings, Columns, Row};
pub use ty::ExprType;
pub use value::RuleValue;

/// A resolved expression: names are columns and slots, types are checked.
///
/// Two expressions are equal when they compute the same function of the same names; spans are ignored.
#[derive(Clone)]
pub struct Expr {
    /// Operation and operands.
    pub kind: ExprNode,
    /// Static type; [`ExprType::Any`] for values read from documents.
    pub ty: ExprType,
    /// Span of the expression in the source.
    pub span: Span,
}

/// The kinds of resolved expressions.
#[derive(Clone)]
pub enum ExprNode {
    /// A constant.
    Const(Const),
    /// A column of the event, or a value inside one that holds JSON text.
    Event {
        /// Index in the batch schema; `_time` and `_extra` follow the declared fields.
        column: usize,
        /// True if the column holds JSON text: a field of type `object`, or `_extra`.
        json: bool,
        /// Names inside the JSON value; empty for the whole value.
        path: JsonPath,
    },
    /// A field of a bound document.
    Doc {
        /// Index of the document among those of the rule.
        slot: usize,
        /// The field; `None` for the whole document.
        path: Option<DocPath>,
    },
    /// `not x`
    Not(Box<Expr>),
    /// `-x`
    Neg(Box<Expr>),
    /// `a and b …`, at least two operands.
    And(Vec<Expr>),
    /// `a or b …`, at least two operands.
    Or(Vec<Expr>),
    /// `a < b` and the other comparisons.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    /// `x == null`; with `true`: `x != null`.
    IsNull(Box<Expr>, bool),
    /// `a + b` and the other arithmetic operators.
    Arith(ArithmeticOp, Box<Expr>, Box<Expr>),
    /// `x in [a, b]`
    In(Box<Expr>, Vec<Expr>),
    /// `x in array`
    InArray(Box<Expr>, Box<Expr>),
    /// A function call.
    Call(Func, Vec<Expr>),
    /// `matches(x, "…")`
    Matches(Box<Expr>, RegexPattern),
    /// `if(c, a, b)`
    If(Box<(Expr, Expr, Expr)>),
    /// `coalesce(a, …)`: the first value that is neither missing nor null.
    Coalesce(Vec<Expr>),
    /// `exists(x)`: neither missing nor null.
    Exists(Box<Expr>),
    /// `{a: x}`
    Object(Vec<(Arc<str>, Expr)>),
    /// `[a, b]`
    Array(Vec<Expr>),
    /// An aggregate over the rows of a group; only in aggregate rules, where it becomes SQL.
    Aggregate(AggFunc, Vec<Expr>),
}

/// A dotted path into a document.
pub type DocPath = tidemill_docs::Path;

/// Names inside a JSON value, outermost first.
pub type JsonPath = Arc<[Arc<str>]>;

/// A constant value.
#[derive(Debug, Clone, PartialEq)]
pub enum Const {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(Arc<str>),
    /// An instant, microseconds since the Unix epoch.
    Time(i64),
    /// A span of time in microseconds.
    Span(i64),
}

impl Const {
    /// Returns the type of the constant.
    pub fn ty(&self) -> ExprType {
        match self {
            Self::Null => ExprType::Null,
            Self::Bool(_) => ExprType::Bool,
            Self::Int(_) => ExprType::Int,
            Self::Float(_) => ExprType::Float,
            Self::Str(_) => ExprType::Str,
            Self::Time(_) => ExprType::Time,
            Self::Span(_) => ExprType::Span,
        }
    }

    /// Returns the constant as a value.
    pub fn value(&self) -> RuleValue<'_> {
        match self {
            Self::Null => RuleValue::Null,
            Self::Bool(b) => RuleValue::Bool(*b),
            Self::Int(n) => RuleValue::Int(*n),
            Self::Float(x) => RuleValue::Float(*x),
            Self::Str(s) => RuleValue::str(s),
            Self::Time(t) => RuleValue::Time(*t),
            Self::Span(d) => RuleValue::Span(*d),
        }
    }

    /// Converts a value to a constant, unless it is missing, a document or an array.
    pub fn of(value: &RuleValue<'_>) -> Option<Self> {
        Some(match value {
            RuleValue::Null => Self::Null,
            RuleValue::Bool(b) => Self::Bool(*b),
            RuleValue::Int(n) => Self::Int(*n),
            RuleValue::Float(x) => Self::Float(*x),
            RuleValue::Str(s) => Self::Str(Arc::from(s.as_ref())),
            RuleValue::Time(t) => Self::Time(*t),
            RuleValue::Span(d) => Self::Span(*d),
            RuleValue::Missing | RuleValue::Bson(_) | RuleValue::Owned(_) => return None,
        })
    }
}

/// A compiled regular expression. Its `Debug` output is the pattern, which [`Expr`]s are compared by.
#[derive(Clone)]
pub struct RegexPattern(pub Regex);

impl fmt::Debug for RegexPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.as_str())
    }
}

/// Aggregate functions over the rows of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggFunc {
    /// `count()`, `count(x)`
    Count,
    /// `count_distinct(x)`
    CountDistinct,
    /// `sum(x)`
    Sum,
    /// `avg(x)`
    Avg,
    /// `min(x)`
    Min,
    /// `max(x)`
    Max,
    /// `stddev(x)`
    Stddev,
    /// `median(x)`
    Median,
    /// `percentile(x, p)`, `p` from 0 to 1.
    Percentile,
}

impl AggFunc {
    /// Names of the aggregates, in the order in which messages list them.
    pub const NAMES: [&'static str; 9] =
        ["count", "count_distinct", "sum", "avg", "min", "max", "stddev", "median", "percentile"];

    /// Returns the aggregate called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "count_distinct" => Self::CountDistinct,
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "stddev" => Self::Stddev,
            "median" => Self::Median,
            "percentile" => Self::Percentile,
            _ => return None,
        })
    }
}

impl Expr {
    /// Creates a constant.
    pub fn constant(value: Const, span: Span) -> Self {
        Self { ty: value.ty(), kind: ExprNode::Const(value), span }
    }

    /// Returns the constant if the expression is one.
    pub fn as_const(&self) -> Option<&Const> {
        match &self.kind {
            ExprNode::Const(c) => Some(c),
            _ => None,
        }
    }

    /// Returns the operands of the expression.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprNode::Const(_) | ExprNode::Event { .. } | ExprNode::Doc { .. } => vec![],
            ExprNode::Not(x)
            | ExprNode::Neg(x)
            | ExprNode::IsNull(x, _)
            | ExprNode::Exists(x)
            | ExprNode::Matches(x, _) => {
                vec![x]
            }
            ExprNode::Compare(_, a, b) | ExprNode::Arith(_, a, b) | ExprNode::InArray(a, b) => vec![a, b],
            ExprNode::And(xs) | ExprNode::Or(xs) | ExprNode::Coalesce(xs) | ExprNode::Array(xs) => {
                xs.iter().collect()
            }
            ExprNode::Call(_, xs) | ExprNode::Aggregate(_, xs) => xs.iter().collect(),
            ExprNode::In(x, list) => std::iter::once(x.as_ref()).chain(list).collect(),
            ExprNode::If(parts) => vec![&parts.0, &parts.1, &parts.2],
            ExprNode::Object(fields) => fields.iter().map(|(_, x)| x).collect(),
        }
    }

    /// Calls `visit` on the expression and all expressions inside it.
    pub fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Expr)) {
        visit(self);
        for child in self.children() {
            child.walk(visit);
        }
    }

    /// Returns the number of nodes and the depth of the tree.
    pub fn size(&self) -> (usize, usize) {
        self.children().into_iter().map(Expr::size).fold((1, 1), |(n, d), (cn, cd)| (n + cn, d.max(cd + 1)))
    }

    /// Returns whether the expression can be computed from the event alone, without documents.
    pub fn is_event_only(&self) -> bool {
        let mut only = true;
        self.walk(&mut |e| only &= !matches!(e.kind, ExprNode::Doc { .. } | ExprNode::Aggregate(..)));
        only
    }

    /// Returns whether the expression reads the document in `slot`.
    pub fn reads_slot(&self, slot: usize) -> bool {
        let mut reads = false;
        self.walk(&mut |e| reads |= matches!(e.kind, ExprNode::Doc { slot: s, .. } if s == slot));
        reads
    }

    /// Appends the conjuncts of nested `and`s to `out`, in order.
    pub fn into_conjuncts(self, out: &mut Vec<Expr>) {
        match self.kind {
            ExprNode::And(parts) => parts.into_iter().for_each(|p| p.into_conjuncts(out)),
            kind => out.push(Expr { kind, ..self }),
        }
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.ty == other.ty && format!("{self:?}") == format!("{other:?}")
    }
}

impl fmt::Debug for Expr {
    /// Formats the tree without spans. Equal expressions format equally, so the output serves as a map key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprNode::Const(c) => write!(f, "{c:?}"),
            ExprNode::Event { column, path, .. } => write!(f, "e{column}{path:?}"),
            ExprNode::Doc { slot, path } => {
                write!(f, "d{slot}[{}]", path.as_ref().map_or("", |p| p.as_str()))
            }
            ExprNode::Not(x) => write!(f, "not({x:?})"),
            ExprNode::Neg(x) => write!(f, "neg({x:?})"),
            ExprNode::And(xs) => write!(f, "and{xs:?}"),
            ExprNode::Or(xs) => write!(f, "or{xs:?}"),
            ExprNode::Compare(op, a, b) => write!(f, "{op:?}({a:?},{b:?})"),
            ExprNode::IsNull(x, negated) => write!(f, "null({x:?},{negated})"),
            ExprNode::Arith(op, a, b) => write!(f, "{op:?}({a:?},{b:?})"),
            ExprNode::In(x, list) => write!(f, "in({x:?},{list:?})"),
            ExprNode::InArray(x, array) => write!(f, "inarray({x:?},{array:?})"),
            ExprNode::Call(func, args) => write!(f, "{func:?}{args:?}"),
            ExprNode::Matches(x, pattern) => write!(f, "matches({x:?},{pattern:?})"),
            ExprNode::If(p) => write!(f, "if({:?},{:?},{:?})", p.0, p.1, p.2),
            ExprNode::Coalesce(xs) => write!(f, "coalesce{xs:?}"),
            ExprNode::Exists(x) => write!(f, "exists({x:?})"),
            ExprNode::Object(fields) => write!(f, "object{fields:?}"),
            ExprNode::Array(xs) => write!(f, "array{xs:?}"),
            ExprNode::Aggregate(func, args) => write!(f, "{func:?}{args:?}"),
        }
    }
}

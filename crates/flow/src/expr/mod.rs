//! Expressions: compiled from the syntax tree with type checks, then evaluated row at a time or in batches.

mod access;
mod function;
mod ops;
mod push_down;
mod row;
pub mod vector;

use std::sync::Arc;

use tidemill_types::FieldType;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use access::{AccessPath, ColumnBounds, QueriedGranularity, QueriedRange};
pub use access::{BucketQuery, TableSearch};
pub use function::{ArgumentType, BoundFunction, ColumnarValue, Function, FunctionContext};
pub(crate) use ops::{arithmetic, compare};
pub(crate) use push_down::{PushedSearch, push_update};
pub(crate) use row::{RowExpr, RowFrame, RowSource, keep};

use crate::columns::column::{Column, Data};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::models::Models;
use crate::statement_calls::StatementCalls;

/// Slot of the input row in the expressions of a query.
pub const INPUT: usize = 0;
/// Slot of the aggregate values in the expressions of a selection.
pub const AGGREGATES: usize = 1;
/// Slot of the output row, in `having`.
pub const OUTPUT: usize = 2;

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Expr {
    /// Operation at the root.
    pub node: Node,
    /// Type of the value.
    pub ty: FieldType,
}

/// Operation of an expression.
#[derive(Debug, Clone)]
pub enum Node {
    /// Constant.
    Const(Value),
    /// Column of one of the input rows.
    Column {
        /// Index of the row in [`Frame::rows`].
        slot: usize,
        /// Index of the column in the row.
        column: usize,
    },
    /// `+ - * / %`; both operands are widened to the type of the result.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// `== != < <= > >=`
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// `and`
    And(Box<Expr>, Box<Expr>),
    /// `or`
    Or(Box<Expr>, Box<Expr>),
    /// `not`
    Not(Box<Expr>),
    /// `is null`
    IsNull(Box<Expr>),
    /// Call of a function of the registry.
    Call(Arc<dyn Function>, Vec<Expr>),
    /// `(condition) in Table`: whether any row of the table satisfies the condition, which reads that row
    /// from its own slot.
    In {
        /// Index of the table in the catalog.
        table: usize,
        /// Slot of the table's row in the condition.
        slot: usize,
        /// Condition on the row.
        condition: Box<Expr>,
    },
}

/// Arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
}

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// Row read by an expression: columns and row index. `None` for a missing row, as in an outer join without a
/// match.
pub type RowRef<'a> = Option<(&'a [Column], usize)>;

/// Input of the evaluation of an expression.
pub struct Frame<'a> {
    /// Rows by slot.
    pub rows: &'a [RowRef<'a>],
    /// Timestamp of the event, in milliseconds since 1970.
    pub time: i64,
    /// Current time of the app, in milliseconds since 1970.
    pub now: i64,
    /// Access to the tables, windows and aggregations of the app, and to random numbers.
    pub host: &'a dyn EvalContext,
}

/// Access of expressions to the app. All searches default to those of [`EvalContext::stores`], and find nothing without it.
pub trait EvalContext {
    /// Returns the context whose tables, windows and aggregations this one searches.
    fn stores(&self) -> Option<&dyn EvalContext> {
        None
    }

    /// Returns whether any row of the table satisfies the condition, which reads it from slot `slot`.
    fn any_row(
        &self,
        table: usize,
        slot: usize,
        condition: &Expr,
        frame: &Frame<'_>,
    ) -> Result<bool, EvalError> {
        self.stores().map_or(Ok(false), |stores| stores.any_row(table, slot, condition, frame))
    }

    /// Returns the models that the queries of the app share.
    fn models(&self) -> Option<&Models> {
        None
    }

    /// Returns whether the rows of a table are in another system, so that asking takes long.
    fn is_external(&self, _table: usize) -> bool {
        false
    }

    /// Visits the rows of a table that a search finds, in table order.
    fn find(
        &self,
        table: usize,
        search: &TableSearch,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        self.stores().map_or(Ok(()), |stores| stores.find(table, search, frame, visit))
    }

    /// Visits the rows of a table or named window that satisfy the condition, which reads them from slot
    /// `slot`, in the order of the store.
    fn search(
        &self,
        place: StoreRef,
        slot: usize,
        condition: Option<&Expr>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        self.stores().map_or(Ok(()), |stores| stores.search(place, slot, condition, frame, visit))
    }

    /// Visits the rows of an aggregation that `read` selects and that satisfy the condition, which reads
    /// them from slot `slot`; bucket by bucket.
    fn buckets(
        &self,
        aggregation: usize,
        read: &BucketQuery,
        slot: usize,
        condition: Option<&Expr>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        let Some(stores) = self.stores() else { return Ok(()) };
        stores.buckets(aggregation, read, slot, condition, frame, visit)
    }

    /// Returns the access to databases of a running app.
    fn statements(&self) -> Option<&StatementCalls> {
        None
    }

    /// Returns 64 random bits for an event with timestamp `time`; replaying the input yields the bits again.
    fn random_u64(&self, time: i64) -> u64 {
        xxh3_64(&time.to_le_bytes())
    }
}

/// Reference to a searchable store of the app by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRef {
    /// A table.
    Table(usize),
    /// A named window.
    Window(usize),
}

/// Evaluation context without tables.
pub struct NoContext;

impl EvalContext for NoContext {}

impl Expr {
    /// Creates a constant of type `ty`.
    pub fn constant(value: Value, ty: FieldType) -> Self {
        Self { node: Node::Const(value), ty }
    }

    /// Creates a reference to a column.
    pub fn column(slot: usize, column: usize, ty: FieldType) -> Self {
        Self { node: Node::Column { slot, column }, ty }
    }

    /// Returns the value if the expression is a constant.
    pub fn as_const(&self) -> Option<&Value> {
        match &self.node {
            Node::Const(value) => Some(value),
            _ => None,
        }
    }

    /// Evaluates the expression.
    ///
    /// Errors: a function rejects its arguments.
    pub fn eval(&self, frame: &Frame<'_>) -> Result<Value, EvalError> {
        Ok(match &self.node {
            Node::Const(value) => value.clone(),
            Node::Column { slot, column } => match frame.rows.get(*slot).copied().flatten() {
                Some((columns, row)) => columns[*column].get(row),
                None => Value::Null,
            },
            Node::Arithmetic(op, a, b) => arithmetic(*op, self.ty, &a.eval(frame)?, &b.eval(frame)?),
            Node::Compare(op, a, b) => Value::Bool(compare(*op, &a.eval(frame)?, &b.eval(frame)?)),
            Node::And(a, b) => Value::Bool(a.eval(frame)?.is_true() && b.eval(frame)?.is_true()),
            Node::Or(a, b) => Value::Bool(a.eval(frame)?.is_true() || b.eval(frame)?.is_true()),
            Node::Not(x) => Value::Bool(!x.eval(frame)?.is_true()),
            Node::IsNull(x) => Value::Bool(x.eval(frame)?.is_null()),
            Node::Call(function, args) => {
                let values = args.iter().map(|a| a.eval(frame)).collect::<Result<Vec<_>, _>>()?;
                function
                    .call(&values, &FunctionContext { now: frame.now, time: frame.time, host: frame.host })?
            }
            Node::In { table, slot, condition } => {
                Value::Bool(frame.host.any_row(*table, *slot, condition, frame)?)
            }
        })
    }

    /// Evaluates the expression and appends the value to a column of its type.
    pub(crate) fn eval_into(&self, frame: &Frame<'_>, out: &mut Column) -> Result<(), EvalError> {
        match &self.node {
            Node::Column { slot, column } => match frame.rows.get(*slot).copied().flatten() {
                Some((columns, row)) => out.push_from(&columns[*column], row),
                None => out.push_null(),
            },
            _ => out.push(self.eval(frame)?),
        }
        Ok(())
    }

    /// Returns the string value by reference; `Some(None)` for a null column value, `None` if the expression
    /// must be evaluated.
    fn text<'t>(&'t self, frame: &Frame<'t>) -> Option<Option<&'t str>> {
        match &self.node {
            Node::Const(value) => value.as_str().map(Some),
            Node::Column { slot, column } => {
                let Some((columns, row)) = frame.rows.get(*slot).copied().flatten() else {
                    return Some(None);
                };
                match columns[*column].data() {
                    Data::Str(_) if columns[*column].is_null(row) => Some(None),
                    Data::Str(texts) => Some(Some(texts.get(row))),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns whether the value is true; null is not.
    pub fn is_true(&self, frame: &Frame<'_>) -> Result<bool, EvalError> {
        match &self.node {
            Node::And(a, b) => Ok(a.is_true(frame)? && b.is_true(frame)?),
            Node::Or(a, b) => Ok(a.is_true(frame)? || b.is_true(frame)?),
            Node::Not(x) => Ok(!x.is_true(frame)?),
            // compares strings by reference, without creating values
            Node::Compare(op, a, b)
                if let Some(Some(a)) = a.text(frame)
                    && let Some(Some(b)) = b.text(frame) =>
            {
                Ok(op.holds(Some(a.cmp(b))))
            }
            _ => Ok(self.eval(frame)?.is_true()),
        }
    }

    /// Returns whether the expression asks another system.
    pub(crate) fn asks_elsewhere(&self, host: &dyn EvalContext) -> bool {
        let mut asks = false;
        self.walk(&mut |part| asks |= matches!(part.node, Node::In { table, .. } if host.is_external(table)));
        asks
    }

    /// Returns whether the expression does not read the row in a slot, and searches no table.
    pub(crate) fn is_independent_of(&self, slot: usize) -> bool {
        let mut free = true;
        self.walk(&mut |part| {
            free &= !matches!(part.node, Node::Column { slot: s, .. } if s == slot);
            free &= !matches!(part.node, Node::In { .. });
        });
        free
    }

    /// Visits all subexpressions in pre-order, including the expression itself.
    pub fn walk(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        match &self.node {
            Node::Const(_) | Node::Column { .. } => {}
            Node::Arithmetic(_, a, b) | Node::Compare(_, a, b) | Node::And(a, b) | Node::Or(a, b) => {
                a.walk(visit);
                b.walk(visit);
            }
            Node::Not(x) | Node::IsNull(x) => x.walk(visit),
            Node::Call(_, args) => args.iter().for_each(|a| a.walk(visit)),
            Node::In { condition, .. } => condition.walk(visit),
        }
    }

    /// Changes all subexpressions in post-order, including the expression itself.
    pub fn walk_mut(&mut self, change: &mut dyn FnMut(&mut Self)) {
        match &mut self.node {
            Node::Const(_) | Node::Column { .. } => {}
            Node::Arithmetic(_, a, b) | Node::Compare(_, a, b) | Node::And(a, b) | Node::Or(a, b) => {
                a.walk_mut(change);
                b.walk_mut(change);
            }
            Node::Not(x) | Node::IsNull(x) => x.walk_mut(change),
            Node::Call(_, args) => args.iter_mut().for_each(|a| a.walk_mut(change)),
            Node::In { condition, .. } => condition.walk_mut(change),
        }
        change(self);
    }
}

/// Appends the operands of nested `and`s to `all`, in order.
pub(crate) fn conjuncts<'e>(expr: &'e Expr, all: &mut Vec<&'e Expr>) {
    match &expr.node {
        Node::And(a, b) => {
            conjuncts(a, all);
            conjuncts(b, all);
        }
        _ => all.push(expr),
    }
}

//! Expressions: compiled from the syntax tree with types checked, then computed row by row.

pub(crate) mod compile;
mod ops;
pub mod vector;

use std::sync::Arc;

use tidemill_types::FieldType;
use xxhash_rust::xxh3::xxh3_64;

pub use compile::{AggregateCall, ColumnRef, Compiler, Scope, StepTime};
pub(crate) use ops::{arithmetic, compare};

use crate::aggregation::BucketQuery;
use crate::column::{Column, Data};
use crate::registry::{Function, FunctionContext};
use crate::table::TableSearch;
use crate::value::Value;

/// Why an event could not be worked off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvalError(pub String);

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Expr {
    /// What it computes.
    pub node: Node,
    /// The type of its value.
    pub ty: FieldType,
}

/// What an expression computes.
#[derive(Debug, Clone)]
pub enum Node {
    /// A constant.
    Const(Value),
    /// A column of one of the rows that are looked at.
    Column {
        /// Which row: see [`Frame`].
        slot: usize,
        /// Which of its columns.
        column: usize,
    },
    /// `+ - * / %`, both operands widened to the type of the result.
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
    /// A function of the registry.
    Call(Arc<dyn Function>, Vec<Expr>),
    /// `(condition) in Table`: whether a row of the table, as another slot, satisfies the condition.
    In {
        /// Which table of the app.
        table: usize,
        /// The row's slot in the condition.
        slot: usize,
        /// The condition.
        condition: Box<Expr>,
    },
}

/// Operators on numbers.
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

/// Comparisons.
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

/// A row that an expression looks at; `None` for one that is not there (no match in an outer join).
pub type RowRef<'a> = Option<(&'a [Column], usize)>;

/// What an expression looks at.
pub struct Frame<'a> {
    /// The rows, by slot.
    pub rows: &'a [RowRef<'a>],
    /// The event's timestamp, milliseconds.
    pub time: i64,
    /// The clock, milliseconds.
    pub now: i64,
    /// What the app holds besides.
    pub host: &'a dyn EvalContext,
}

/// What expressions ask the app for.
pub trait EvalContext {
    /// Whether some row of the table satisfies the condition in which it is slot `slot`.
    fn any_row(
        &self,
        table: usize,
        slot: usize,
        condition: &Expr,
        frame: &Frame<'_>,
    ) -> Result<bool, EvalError>;

    /// Shows the rows of a table that a search finds, in its order.
    fn find(
        &self,
        _table: usize,
        _search: &TableSearch,
        _frame: &Frame<'_>,
        _visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        Ok(())
    }

    /// Shows the rows of a table or named window that satisfy the condition in which they are slot `slot`, in its order.
    fn search(
        &self,
        _place: StoreRef,
        _slot: usize,
        _condition: Option<&Expr>,
        _frame: &Frame<'_>,
        _visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        Ok(())
    }

    /// Shows the rows of aggregation number `_aggregation` that `_read` asks for and that satisfy the condition in which
    /// they are slot `_slot`, bucket by bucket.
    fn buckets(
        &self,
        _aggregation: usize,
        _read: &BucketQuery,
        _slot: usize,
        _condition: Option<&Expr>,
        _frame: &Frame<'_>,
        _visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        Ok(())
    }

    /// 64 random bits for an event with timestamp `time`: the same ones when the same inputs are replayed.
    fn random_u64(&self, time: i64) -> u64 {
        xxh3_64(&time.to_le_bytes())
    }
}

/// What can be searched: a table or named window of the app, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRef {
    /// A table.
    Table(usize),
    /// A named window.
    Window(usize),
}

/// No tables.
pub struct NoContext;

impl EvalContext for NoContext {
    fn any_row(&self, _: usize, _: usize, _: &Expr, _: &Frame<'_>) -> Result<bool, EvalError> {
        Ok(false)
    }
}

impl Expr {
    /// A constant of type `ty`.
    pub fn constant(value: Value, ty: FieldType) -> Self {
        Self { node: Node::Const(value), ty }
    }

    /// A column.
    pub fn column(slot: usize, column: usize, ty: FieldType) -> Self {
        Self { node: Node::Column { slot, column }, ty }
    }

    /// The value, if the expression is a constant.
    pub fn as_const(&self) -> Option<&Value> {
        match &self.node {
            Node::Const(value) => Some(value),
            _ => None,
        }
    }

    /// Its value.
    ///
    /// Errors: what a function says of its arguments.
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

    /// Adds its value to a column of its type.
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

    /// The text that it is, where that is known without computing; `Some(None)` for null.
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

    /// Whether it is true; null is not.
    pub fn is_true(&self, frame: &Frame<'_>) -> Result<bool, EvalError> {
        match &self.node {
            Node::And(a, b) => Ok(a.is_true(frame)? && b.is_true(frame)?),
            Node::Or(a, b) => Ok(a.is_true(frame)? || b.is_true(frame)?),
            Node::Not(x) => Ok(!x.is_true(frame)?),
            // no value is made of texts that are only looked at
            Node::Compare(op, a, b)
                if let Some(Some(a)) = a.text(frame)
                    && let Some(Some(b)) = b.text(frame) =>
            {
                Ok(op.holds(Some(a.cmp(b))))
            }
            _ => Ok(self.eval(frame)?.is_true()),
        }
    }

    /// All expressions in it, itself first.
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

    /// Changes all expressions in it, itself last.
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

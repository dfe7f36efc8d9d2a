//! Batched evaluation of expressions: operators work on whole columns, functions may fall back to row at a
//! time.

use std::borrow::Cow;
use std::cmp::Ordering;

use tidemill_types::FieldType;

use super::{Arithmetic, Comparison, EvalContext, Expr, Frame, Node, RowRef};
use crate::columns::column::{Column, Data, StringColumn};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{ColumnarValue, FunctionContext};

/// Number of slots of a row: input, aggregates, output.
const SLOTS: usize = 3;

/// Input rows of a batched evaluation.
pub struct BatchRows<'a> {
    /// Columns per slot, each with a value per row; empty if no expression reads the slot.
    pub slots: [&'a [Column]; SLOTS],
    /// Timestamps of the events, one per row.
    pub times: &'a [i64],
    /// Time of the app at each row.
    pub clocks: &'a [i64],
    /// Access to the app.
    pub host: &'a dyn EvalContext,
}

/// Rows that failed, with the reason; ascending and unique.
pub type FailedRows = Vec<(u32, EvalError)>;

/// Values of an expression for all rows.
enum Vector<'a> {
    Column(Cow<'a, Column>),
    Const(&'a Value),
}

impl BatchRows<'_> {
    fn len(&self) -> usize {
        self.times.len()
    }

    /// Calls `each` with the index and the frame of each row.
    fn frames(&self, mut each: impl FnMut(usize, &Frame<'_>)) {
        for row in 0..self.len() {
            let at = |slot: usize| -> RowRef<'_> {
                let columns = self.slots[slot];
                (!columns.is_empty()).then_some((columns, row))
            };
            let rows = [at(0), at(1), at(2)];
            each(row, &Frame { rows: &rows, time: self.times[row], now: self.clocks[row], host: self.host });
        }
    }
}

/// Evaluates `expr` on all rows. The values of failed rows are unspecified.
pub fn column(expr: &Expr, lanes: &BatchRows<'_>, failed: &mut FailedRows) -> Column {
    match eval(expr, lanes, failed) {
        Vector::Column(column) => column.into_owned(),
        Vector::Const(value) => constant(value, expr.ty, lanes.len()),
    }
}

/// Returns for each row whether `expr` is true; null and failed rows are not.
pub fn mask(expr: &Expr, lanes: &BatchRows<'_>, failed: &mut FailedRows) -> Vec<bool> {
    match eval(expr, lanes, failed) {
        Vector::Column(column) => truth(&column).into_owned(),
        Vector::Const(value) => vec![value.is_true(); lanes.len()],
    }
}

/// Returns the input columns that the expressions read, ascending.
pub fn inputs<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> Vec<usize> {
    let mut columns = Vec::new();
    for expr in exprs {
        expr.walk(&mut |x| {
            if let Node::Column { slot: 0, column } = x.node {
                columns.push(column);
            }
        });
    }
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Returns whether the expression calls no function and reads no table, so that it can neither fail nor have
/// side effects.
pub fn is_plain(expr: &Expr) -> bool {
    let mut plain = true;
    expr.walk(&mut |x| plain &= !matches!(x.node, Node::Call(..) | Node::In { .. }));
    plain
}

/// Returns whether column-at-a-time evaluation may differ from row-at-a-time: functions may change objects
/// that other expressions read.
pub fn order_matters(exprs: &[&Expr]) -> bool {
    let mut objects = false;
    for expr in exprs {
        expr.walk(&mut |x| {
            objects |=
                matches!(&x.node, Node::Call(_, args) if args.iter().any(|a| a.ty == FieldType::Object));
        });
    }
    objects && exprs.len() > 1
}

fn eval<'a>(expr: &'a Expr, lanes: &BatchRows<'a>, failed: &mut FailedRows) -> Vector<'a> {
    match &expr.node {
        Node::Const(value) => Vector::Const(value),
        Node::Column { slot, column } => match lanes.slots.get(*slot).and_then(|s| s.get(*column)) {
            Some(column) => Vector::Column(Cow::Borrowed(column)),
            None => Vector::Const(&Value::Null),
        },
        Node::Arithmetic(op, a, b) => {
            let (x, y) = (eval(a, lanes, failed), eval(b, lanes, failed));
            arithmetic(*op, expr.ty, &x, &y, lanes.len())
                .map_or_else(|| row_by_row(expr, lanes, failed), |c| Vector::Column(Cow::Owned(c)))
        }
        Node::Compare(op, a, b) => {
            let (x, y) = (eval(a, lanes, failed), eval(b, lanes, failed));
            match compare(*op, &x, &y, lanes.len()) {
                Some(mask) => bools(mask),
                None => row_by_row(expr, lanes, failed),
            }
        }
        // the right side is evaluated only where the left side does not decide
        Node::And(_, b) | Node::Or(_, b) if !is_plain(b) => row_by_row(expr, lanes, failed),
        Node::And(a, b) => {
            let mut left = mask(a, lanes, failed);
            let right = mask(b, lanes, failed);
            left.iter_mut().zip(right).for_each(|(a, b)| *a &= b);
            bools(left)
        }
        Node::Or(a, b) => {
            let mut left = mask(a, lanes, failed);
            let right = mask(b, lanes, failed);
            left.iter_mut().zip(right).for_each(|(a, b)| *a |= b);
            bools(left)
        }
        Node::Not(x) => {
            let mut inner = mask(x, lanes, failed);
            inner.iter_mut().for_each(|b| *b = !*b);
            bools(inner)
        }
        Node::IsNull(x) => match eval(x, lanes, failed) {
            Vector::Const(value) => bools(vec![value.is_null(); lanes.len()]),
            Vector::Column(column) => match column.nulls() {
                [] => bools(vec![false; lanes.len()]),
                nulls => bools(nulls.to_vec()),
            },
        },
        Node::Call(function, args) => {
            let args: Vec<Vector<'a>> = args.iter().map(|a| eval(a, lanes, failed)).collect();
            let all: Vec<ColumnarValue<'_>> = args.iter().map(Vector::argument).collect();
            if failed.is_empty()
                && let Some(column) = function.call_batch(&all, lanes.len())
            {
                return Vector::Column(Cow::Owned(column));
            }
            let mut out = Column::new(expr.ty);
            let before = failed.len();
            let mut values = Vec::with_capacity(args.len());
            for row in 0..lanes.len() {
                values.clear();
                values.extend(args.iter().map(|a| a.get(row)));
                let state =
                    FunctionContext { now: lanes.clocks[row], time: lanes.times[row], host: lanes.host };
                match has_failed(&failed[..before], row) {
                    true => out.push_null(),
                    false => match function.call(&values, &state) {
                        Ok(value) => out.push(value),
                        Err(failure) => {
                            out.push_null();
                            failed.push((row as u32, failure));
                        }
                    },
                }
            }
            in_order(failed, before);
            Vector::Column(Cow::Owned(out))
        }
        Node::In { .. } => row_by_row(expr, lanes, failed),
    }
}

fn has_failed(failed: &[(u32, EvalError)], row: usize) -> bool {
    !failed.is_empty() && failed.binary_search_by_key(&(row as u32), |(row, _)| *row).is_ok()
}

/// Restores the order and uniqueness of `failed` after failures were appended from index `before` on.
fn in_order(failed: &mut FailedRows, before: usize) {
    if before > 0 && failed.len() > before {
        failed.sort_by_key(|(row, _)| *row);
        failed.dedup_by_key(|(row, _)| *row);
    }
}

fn row_by_row<'a>(expr: &Expr, lanes: &BatchRows<'_>, failed: &mut FailedRows) -> Vector<'a> {
    let mut out = Column::new(expr.ty);
    let before = failed.len();
    lanes.frames(|row, frame| match has_failed(&failed[..before], row) {
        true => out.push_null(),
        false => match expr.eval(frame) {
            Ok(value) => out.push(value),
            Err(failure) => {
                out.push_null();
                failed.push((row as u32, failure));
            }
        },
    });
    in_order(failed, before);
    Vector::Column(Cow::Owned(out))
}

impl Vector<'_> {
    fn get(&self, row: usize) -> Value {
        match self {
            Self::Const(value) => (*value).clone(),
            Self::Column(column) => column.get(row),
        }
    }

    fn argument(&self) -> ColumnarValue<'_> {
        match self {
            Self::Const(value) => ColumnarValue::Scalar(value),
            Self::Column(column) => ColumnarValue::Array(column),
        }
    }

    fn nulls(&self) -> &[bool] {
        match self {
            Self::Const(_) => &[],
            Self::Column(column) => column.nulls(),
        }
    }
}

fn bools<'a>(mask: Vec<bool>) -> Vector<'a> {
    Vector::Column(Cow::Owned(Column::of(Data::Bool(mask))))
}

fn truth(column: &Column) -> Cow<'_, [bool]> {
    match (column.data(), column.nulls()) {
        (Data::Bool(values), []) => Cow::Borrowed(values),
        (Data::Bool(values), nulls) => values.iter().zip(nulls).map(|(v, n)| *v && !n).collect(),
        _ => Cow::Owned(vec![false; column.len()]),
    }
}

fn constant(value: &Value, ty: FieldType, len: usize) -> Column {
    if value.is_null() {
        let mut column = Column::new(ty);
        (0..len).for_each(|_| column.push_null());
        return column;
    }
    let mut one = Column::new(ty);
    one.push(value.clone());
    let mut column = Column::new(ty);
    column.gather(&one, &vec![0; len]);
    column
}

/// Operand of a typed loop.
enum Operand<'v, T: Clone> {
    Many(Cow<'v, [T]>),
    One(T),
}

macro_rules! operand {
    ($name:ident, $ty:ty, $($variant:ident as $convert:expr),+) => {
        /// Returns the values widened to this type; `None` if they are not numbers of a narrower type, or
        /// null.
        fn $name<'v>(vector: &'v Vector<'_>) -> Option<Operand<'v, $ty>> {
            Some(match vector {
                Vector::Const(value) => Operand::One(match value {
                    $(Value::$variant(n) => $convert(*n),)+
                    _ => return None,
                }),
                Vector::Column(column) => Operand::Many(match column.data() {
                    $(Data::$variant(v) => Cow::from(v.iter().map(|n| $convert(*n)).collect::<Vec<$ty>>()),)+
                    _ => return None,
                }),
            })
        }
    };
}

operand!(widened_longs, i64, Int as i64::from, Long as std::convert::identity);
operand!(widened_floats, f32, Int as |n| n as f32, Long as |n| n as f32, Float as std::convert::identity);
operand!(widened_doubles, f64, Int as f64::from, Long as |n| n as f64, Float as f64::from, Double as std::convert::identity);

fn longs<'v>(vector: &'v Vector<'_>) -> Option<Operand<'v, i64>> {
    if let Vector::Column(column) = vector
        && let Data::Long(values) = column.data()
    {
        return Some(Operand::Many(Cow::Borrowed(values)));
    }
    widened_longs(vector)
}

fn floats<'v>(vector: &'v Vector<'_>) -> Option<Operand<'v, f32>> {
    if let Vector::Column(column) = vector
        && let Data::Float(values) = column.data()
    {
        return Some(Operand::Many(Cow::Borrowed(values)));
    }
    widened_floats(vector)
}

fn doubles<'v>(vector: &'v Vector<'_>) -> Option<Operand<'v, f64>> {
    if let Vector::Column(column) = vector
        && let Data::Double(values) = column.data()
    {
        return Some(Operand::Many(Cow::Borrowed(values)));
    }
    widened_doubles(vector)
}

fn ints<'v>(vector: &'v Vector<'_>) -> Option<Operand<'v, i32>> {
    match vector {
        Vector::Const(Value::Int(n)) => Some(Operand::One(*n)),
        Vector::Column(column) => match column.data() {
            Data::Int(values) => Some(Operand::Many(Cow::Borrowed(values))),
            _ => None,
        },
        Vector::Const(_) => None,
    }
}

fn zip<T: Copy, R>(a: &Operand<'_, T>, b: &Operand<'_, T>, len: usize, f: impl Fn(T, T) -> R) -> Vec<R> {
    match (a, b) {
        (Operand::Many(a), Operand::Many(b)) => a.iter().zip(b.iter()).map(|(a, b)| f(*a, *b)).collect(),
        (Operand::Many(a), Operand::One(b)) => a.iter().map(|a| f(*a, *b)).collect(),
        (Operand::One(a), Operand::Many(b)) => b.iter().map(|b| f(*a, *b)).collect(),
        (Operand::One(a), Operand::One(b)) => (0..len).map(|_| f(*a, *b)).collect(),
    }
}

/// Marks the rows in which either operand is null; empty if none is.
fn either_null(a: &Vector<'_>, b: &Vector<'_>) -> Vec<bool> {
    match (a.nulls(), b.nulls()) {
        ([], nulls) | (nulls, []) => nulls.to_vec(),
        (a, b) => a.iter().zip(b).map(|(a, b)| a | b).collect(),
    }
}

/// Marks the rows with a zero divisor as null, too.
fn zeros<T: Copy + PartialEq>(nulls: Vec<bool>, divisor: &Operand<'_, T>, zero: T, len: usize) -> Vec<bool> {
    match divisor {
        Operand::One(d) if *d == zero => vec![true; len],
        Operand::Many(divisors) if divisors.contains(&zero) => match nulls.is_empty() {
            true => divisors.iter().map(|d| *d == zero).collect(),
            false => nulls.iter().zip(divisors.iter()).map(|(n, d)| *n || *d == zero).collect(),
        },
        _ => nulls,
    }
}

/// Computes `a op b` on columns; `None` for operands that need row-at-a-time evaluation: null constants and
/// non-numbers.
fn arithmetic(op: Arithmetic, ty: FieldType, a: &Vector<'_>, b: &Vector<'_>, len: usize) -> Option<Column> {
    macro_rules! whole {
        ($operands:ident, $variant:ident) => {{
            let (x, y) = ($operands(a)?, $operands(b)?);
            let mut nulls = either_null(a, b);
            let values = match op {
                Arithmetic::Add => zip(&x, &y, len, |a, b| a.wrapping_add(b)),
                Arithmetic::Sub => zip(&x, &y, len, |a, b| a.wrapping_sub(b)),
                Arithmetic::Mul => zip(&x, &y, len, |a, b| a.wrapping_mul(b)),
                Arithmetic::Div | Arithmetic::Rem => {
                    nulls = zeros(nulls, &y, 0, len);
                    match op {
                        Arithmetic::Div => {
                            zip(&x, &y, len, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) })
                        }
                        _ => zip(&x, &y, len, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
                    }
                }
            };
            Column::with_nulls(Data::$variant(values), nulls)
        }};
    }
    macro_rules! fraction {
        ($operands:ident, $variant:ident) => {{
            let (x, y) = ($operands(a)?, $operands(b)?);
            let mut nulls = either_null(a, b);
            let values = match op {
                Arithmetic::Add => zip(&x, &y, len, |a, b| a + b),
                Arithmetic::Sub => zip(&x, &y, len, |a, b| a - b),
                Arithmetic::Mul => zip(&x, &y, len, |a, b| a * b),
                Arithmetic::Div | Arithmetic::Rem => {
                    nulls = zeros(nulls, &y, 0.0, len);
                    match op {
                        Arithmetic::Div => zip(&x, &y, len, |a, b| a / b),
                        _ => zip(&x, &y, len, |a, b| a % b),
                    }
                }
            };
            Column::with_nulls(Data::$variant(values), nulls)
        }};
    }
    Some(match ty {
        FieldType::Int => whole!(ints, Int),
        FieldType::Long => whole!(longs, Long),
        FieldType::Float => fraction!(floats, Float),
        FieldType::Double => fraction!(doubles, Double),
        _ => return None,
    })
}

/// Compares columns as [`super::compare`] compares values; `None` for operands that need row-at-a-time
/// evaluation.
fn compare(op: Comparison, a: &Vector<'_>, b: &Vector<'_>, len: usize) -> Option<Vec<bool>> {
    let mut out = match (strings(a), strings(b)) {
        (Some(x), Some(y)) => texts(op, &x, &y, len),
        (None, None) => numbers(op, a, b, len).or_else(|| truths(op, a, b, len))?,
        _ => return None,
    };
    let nulls = either_null(a, b);
    if !nulls.is_empty() {
        let of_null = op == Comparison::Ne;
        out.iter_mut().zip(nulls).filter(|(_, null)| *null).for_each(|(o, _)| *o = of_null);
    }
    Some(out)
}

fn by_order<T: PartialOrd + Copy>(
    op: Comparison,
    a: &Operand<'_, T>,
    b: &Operand<'_, T>,
    len: usize,
) -> Vec<bool> {
    match op {
        Comparison::Eq => zip(a, b, len, |a, b| a == b),
        Comparison::Ne => zip(a, b, len, |a, b| a != b),
        Comparison::Lt => zip(a, b, len, |a, b| a < b),
        Comparison::Le => zip(a, b, len, |a, b| a <= b),
        Comparison::Gt => zip(a, b, len, |a, b| a > b),
        Comparison::Ge => zip(a, b, len, |a, b| a >= b),
    }
}

fn numbers(op: Comparison, a: &Vector<'_>, b: &Vector<'_>, len: usize) -> Option<Vec<bool>> {
    if let (Some(x), Some(y)) = (longs(a), longs(b)) {
        return Some(by_order(op, &x, &y, len));
    }
    // a float and a whole number are ordered with the precision of floats
    let mixed = is_float(a) && longs(b).is_some() || longs(a).is_some() && is_float(b);
    if mixed && !matches!(op, Comparison::Eq | Comparison::Ne) {
        return Some(by_order(op, &floats(a)?, &floats(b)?, len));
    }
    Some(by_order(op, &doubles(a)?, &doubles(b)?, len))
}

fn is_float(vector: &Vector<'_>) -> bool {
    match vector {
        Vector::Const(value) => matches!(value, Value::Float(_)),
        Vector::Column(column) => matches!(column.data(), Data::Float(_)),
    }
}

fn truths(op: Comparison, a: &Vector<'_>, b: &Vector<'_>, len: usize) -> Option<Vec<bool>> {
    fn operand<'v>(vector: &'v Vector<'_>) -> Option<Operand<'v, bool>> {
        match vector {
            Vector::Const(Value::Bool(b)) => Some(Operand::One(*b)),
            Vector::Column(column) => match column.data() {
                Data::Bool(values) => Some(Operand::Many(Cow::Borrowed(values))),
                _ => None,
            },
            Vector::Const(_) => None,
        }
    }
    Some(by_order(op, &operand(a)?, &operand(b)?, len))
}

enum StringOperand<'v> {
    Many(&'v StringColumn),
    One(&'v str),
}

impl StringOperand<'_> {
    fn get(&self, i: usize) -> &str {
        match self {
            Self::Many(texts) => texts.get(i),
            Self::One(text) => text,
        }
    }
}

fn strings<'v>(vector: &'v Vector<'_>) -> Option<StringOperand<'v>> {
    match vector {
        Vector::Const(value) => value.as_str().map(StringOperand::One),
        Vector::Column(column) => match column.data() {
            Data::Str(texts) => Some(StringOperand::Many(texts)),
            _ => None,
        },
    }
}

fn texts(op: Comparison, a: &StringOperand<'_>, b: &StringOperand<'_>, len: usize) -> Vec<bool> {
    let order = |i: usize| a.get(i).cmp(b.get(i));
    match op {
        Comparison::Eq => (0..len).map(|i| a.get(i) == b.get(i)).collect(),
        Comparison::Ne => (0..len).map(|i| a.get(i) != b.get(i)).collect(),
        Comparison::Lt => (0..len).map(|i| order(i) == Ordering::Less).collect(),
        Comparison::Le => (0..len).map(|i| order(i) != Ordering::Greater).collect(),
        Comparison::Gt => (0..len).map(|i| order(i) == Ordering::Greater).collect(),
        Comparison::Ge => (0..len).map(|i| order(i) != Ordering::Less).collect(),
    }
}

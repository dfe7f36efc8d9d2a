//! Vectorized evaluation: one expression over 64 events at once.
//!
//! A condition over 64 rows is two words: the rows in which it is true, and the rows in which it is false.
//! Rows in neither are missing, so `and`, `or` and `not` are one or two machine instructions. Numbers and
//! times are computed in arrays of 64. Expressions without a vectorized form (string functions, paths into
//! JSON, `if`) are computed row at a time, and only for the rows that the conditions before them left active.

mod compile;

use arrow_buffer::{BooleanBuffer, NullBuffer};

use super::eval::truth;
use super::ops::{ArithmeticOp, CompareOp};
use super::row::{Bindings, ColumnData, Columns, Row};
use super::{Expr, funcs};
pub use compile::{integer_const, plain_column};

/// Rows per block.
pub const ROWS: usize = 64;

/// Three-valued result of a condition: rows in neither mask are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriMask {
    /// Bit `i` is set if the condition is true in row `i`.
    pub true_rows: u64,
    /// Bit `i` is set if the condition is false in row `i`.
    pub false_rows: u64,
}

/// Up to 64 consecutive rows of a batch.
#[derive(Debug, Clone, Copy)]
pub struct RowBlock<'a> {
    /// The batch.
    pub columns: &'a Columns<'a>,
    /// Index of the first row.
    pub start: usize,
    /// Number of rows, 1 to 64.
    pub len: usize,
}

impl RowBlock<'_> {
    /// Returns a mask of all rows of the block.
    pub fn all(&self) -> u64 {
        ones(self.len)
    }

    /// Returns the rows in which `column` has a value.
    pub(crate) fn present(&self, column: usize) -> u64 {
        match self.columns.columns[column].nulls {
            None => self.all(),
            Some(nulls) => nulls_word(nulls, self.start, self.len),
        }
    }
}

fn ones(n: usize) -> u64 {
    if n >= ROWS { u64::MAX } else { (1 << n) - 1 }
}

fn nulls_word(nulls: &NullBuffer, start: usize, len: usize) -> u64 {
    word(nulls.inner(), start, len)
}

/// Returns `len` bits of a buffer, at most 64, starting at bit `start`.
pub fn word(bits: &BooleanBuffer, start: usize, len: usize) -> u64 {
    let at = bits.offset() + start;
    let bytes = bits.values();
    let (first, shift) = (at / 8, at % 8);
    let mut wide = [0_u8; 16];
    let end = (at + len).div_ceil(8);
    // the requested bits are in the buffer, and 64 bits span at most 9 bytes
    wide[..end - first].copy_from_slice(&bytes[first..end]);
    ((u128::from_le_bytes(wide) >> shift) as u64) & ones(len)
}

/// A condition in vectorized form.
#[derive(Debug, Clone)]
pub enum BoolOp {
    /// A constant.
    Const(bool),
    /// A column of booleans.
    Column(usize),
    /// Conjunction.
    And(Vec<BoolOp>),
    /// Disjunction.
    Or(Vec<BoolOp>),
    /// Negation.
    Not(Box<BoolOp>),
    /// True if the column has a value.
    Present(usize),
    /// Compares integers, times or spans.
    CompareInt(CompareOp, IntOp, IntOp),
    /// Compares floats, or integers that a float represents exactly.
    CompareFloat(CompareOp, FloatOp, FloatOp),
    /// Compares a string column with strings.
    CompareStr(CompareOp, usize, StrOp),
    /// True if the value is in the list, which is sorted.
    InInt(IntOp, Vec<i64>),
    /// True if the string column has a value in the list, which is sorted.
    InStr(usize, Vec<Box<str>>),
    /// Fallback: evaluates the expression row at a time.
    Rows(Box<Expr>),
}

/// The right operand of a string comparison.
#[derive(Debug, Clone)]
pub enum StrOp {
    /// A constant.
    Const(Box<str>),
    /// A column.
    Column(usize),
}

/// An expression of integers, times or spans.
#[derive(Debug, Clone)]
pub enum IntOp {
    /// A constant.
    Const(i64),
    /// A column of `int`, `long` or `time`.
    Column(usize),
    /// `+ - *`, and `%`.
    Arith(ArithmeticOp, Box<(IntOp, IntOp)>),
    /// `-x`
    Neg(Box<IntOp>),
    /// Start of the interval of this length that contains the value, counted from 0.
    Truncate(Box<IntOp>, i64),
    /// Number of whole units, of the second length, since the start of the interval of the first length.
    Within(Box<IntOp>, i64, i64),
}

/// A float expression.
#[derive(Debug, Clone)]
pub enum FloatOp {
    /// A constant.
    Const(f64),
    /// A column of `float` or `double`.
    Column(usize),
    /// Integers converted to floats.
    Int(IntOp),
    /// `+ - * /`
    Arith(ArithmeticOp, Box<(FloatOp, FloatOp)>),
    /// `-x`
    Neg(Box<FloatOp>),
}

impl BoolOp {
    /// Evaluates the condition. Only the rows in `active` are meaningful in the result.
    pub fn eval(&self, block: &RowBlock<'_>, active: u64) -> TriMask {
        if active == 0 {
            return TriMask { true_rows: 0, false_rows: 0 };
        }
        match self {
            Self::Const(b) => tri_mask(block.all(), if *b { u64::MAX } else { 0 }),
            Self::Column(column) => match block.columns.columns[*column].data {
                ColumnData::Bool(a) => {
                    tri_mask(block.present(*column), word(a.values(), block.start, block.len))
                }
                _ => TriMask { true_rows: 0, false_rows: 0 },
            },
            Self::And(parts) => {
                let mut all = TriMask { true_rows: active, false_rows: 0 };
                for part in parts {
                    let t = part.eval(block, active & !all.false_rows);
                    all = TriMask {
                        true_rows: all.true_rows & t.true_rows,
                        false_rows: all.false_rows | t.false_rows,
                    };
                }
                all
            }
            Self::Or(parts) => {
                let mut any = TriMask { true_rows: 0, false_rows: active };
                for part in parts {
                    let t = part.eval(block, active & !any.true_rows);
                    any = TriMask {
                        true_rows: any.true_rows | t.true_rows,
                        false_rows: any.false_rows & t.false_rows,
                    };
                }
                any
            }
            Self::Not(x) => {
                let t = x.eval(block, active);
                TriMask { true_rows: t.false_rows, false_rows: t.true_rows }
            }
            Self::Present(column) => tri_mask(block.all(), block.present(*column)),
            Self::CompareInt(op, a, b) => compare_ints(*op, a, b, block),
            Self::CompareFloat(op, a, b) => compare_floats(*op, a, b, block),
            Self::CompareStr(op, a, b) => compare_strs(*op, *a, b, block, active),
            Self::InInt(x, items) => {
                let mut buffer = [0; ROWS];
                let there = x.eval(block, &mut buffer);
                tri_mask(there, bits(&buffer, |v| items.binary_search(&v).is_ok()))
            }
            Self::InStr(column, items) => {
                let there = block.present(*column) & active;
                let ColumnData::Str(array) = block.columns.columns[*column].data else {
                    return TriMask { true_rows: 0, false_rows: 0 };
                };
                let found = |i: usize| {
                    items.binary_search_by(|s| s.as_ref().cmp(array.value(block.start + i))).is_ok()
                };
                tri_mask(there, rows(there, found))
            }
            Self::Rows(expr) => {
                let mut out = TriMask { true_rows: 0, false_rows: 0 };
                for_each(active, |i| {
                    let frame = Bindings::new(Row::Batch(block.columns, block.start + i));
                    match truth(expr, &frame) {
                        Some(true) => out.true_rows |= 1 << i,
                        Some(false) => out.false_rows |= 1 << i,
                        None => {}
                    }
                });
                out
            }
        }
    }
}

/// Builds a mask from the rows with a result, `there`, and the rows where it is true, `holds`.
fn tri_mask(there: u64, holds: u64) -> TriMask {
    TriMask { true_rows: there & holds, false_rows: there & !holds }
}

/// Calls `f` with the index of every set bit, in ascending order.
#[inline]
pub fn for_each(mut mask: u64, mut f: impl FnMut(usize)) {
    while mask != 0 {
        f(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

fn rows(mask: u64, mut holds: impl FnMut(usize) -> bool) -> u64 {
    let mut out = 0;
    for_each(mask, |i| out |= u64::from(holds(i)) << i);
    out
}

#[inline]
fn bits<T: Copy>(values: &[T; ROWS], holds: impl Fn(T) -> bool) -> u64 {
    let mut truths = [0_u8; ROWS];
    for (truth, v) in truths.iter_mut().zip(values) {
        *truth = u8::from(holds(*v));
    }
    pack(&truths)
}

#[inline]
fn bits2<T: Copy>(a: &[T; ROWS], b: &[T; ROWS], holds: impl Fn(T, T) -> bool) -> u64 {
    let mut truths = [0_u8; ROWS];
    for i in 0..ROWS {
        truths[i] = u8::from(holds(a[i], b[i]));
    }
    pack(&truths)
}

/// Packs 64 bytes of 0 or 1 into 64 bits. Comparing into bytes and packing them afterwards lets the compiler
/// use wide registers for the comparison.
#[inline]
fn pack(truths: &[u8; ROWS]) -> u64 {
    // multiplying by this moves the lowest bits of eight bytes into the highest byte, in order
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut out = 0;
    for (i, eight) in truths.as_chunks::<8>().0.iter().enumerate() {
        out |= (u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56) << (8 * i);
    }
    out
}

fn compare_ints(op: CompareOp, a: &IntOp, b: &IntOp, block: &RowBlock<'_>) -> TriMask {
    let mut left = [0; ROWS];
    let there = a.eval(block, &mut left);
    if let IntOp::Const(c) = b {
        let c = *c;
        let holds = match op {
            CompareOp::Eq => bits(&left, |v| v == c),
            CompareOp::Ne => bits(&left, |v| v != c),
            CompareOp::Lt => bits(&left, |v| v < c),
            CompareOp::Le => bits(&left, |v| v <= c),
            CompareOp::Gt => bits(&left, |v| v > c),
            CompareOp::Ge => bits(&left, |v| v >= c),
        };
        return tri_mask(there, holds);
    }
    let mut right = [0; ROWS];
    let there = there & b.eval(block, &mut right);
    let holds = match op {
        CompareOp::Eq => bits2(&left, &right, |x, y| x == y),
        CompareOp::Ne => bits2(&left, &right, |x, y| x != y),
        CompareOp::Lt => bits2(&left, &right, |x, y| x < y),
        CompareOp::Le => bits2(&left, &right, |x, y| x <= y),
        CompareOp::Gt => bits2(&left, &right, |x, y| x > y),
        CompareOp::Ge => bits2(&left, &right, |x, y| x >= y),
    };
    tri_mask(there, holds)
}

fn compare_floats(op: CompareOp, a: &FloatOp, b: &FloatOp, block: &RowBlock<'_>) -> TriMask {
    let (mut left, mut right) = ([0.0; ROWS], [0.0; ROWS]);
    let there = a.eval(block, &mut left) & b.eval(block, &mut right);
    // comparisons with NaN are missing
    let there = there & bits2(&left, &right, |x, y| !x.is_nan() & !y.is_nan());
    let holds = match op {
        CompareOp::Eq => bits2(&left, &right, |x, y| x == y),
        CompareOp::Ne => bits2(&left, &right, |x, y| x != y),
        CompareOp::Lt => bits2(&left, &right, |x, y| x < y),
        CompareOp::Le => bits2(&left, &right, |x, y| x <= y),
        CompareOp::Gt => bits2(&left, &right, |x, y| x > y),
        CompareOp::Ge => bits2(&left, &right, |x, y| x >= y),
    };
    tri_mask(there, holds)
}

fn compare_strs(op: CompareOp, column: usize, right: &StrOp, block: &RowBlock<'_>, active: u64) -> TriMask {
    let ColumnData::Str(left) = block.columns.columns[column].data else {
        return TriMask { true_rows: 0, false_rows: 0 };
    };
    let there = block.present(column) & active;
    match right {
        StrOp::Const(c) if op == CompareOp::Eq || op == CompareOp::Ne => {
            let same = rows(there, |i| left.value(block.start + i) == c.as_ref());
            tri_mask(there, if op == CompareOp::Eq { same } else { !same })
        }
        StrOp::Const(c) => tri_mask(there, rows(there, |i| op.holds(left.value(block.start + i).cmp(c)))),
        StrOp::Column(other) => {
            let ColumnData::Str(right) = block.columns.columns[*other].data else {
                return TriMask { true_rows: 0, false_rows: 0 };
            };
            let there = there & block.present(*other);
            tri_mask(
                there,
                rows(there, |i| op.holds(left.value(block.start + i).cmp(right.value(block.start + i)))),
            )
        }
    }
}

impl IntOp {
    /// Writes the values to `out` and returns the rows that have one.
    fn eval(&self, block: &RowBlock<'_>, out: &mut [i64; ROWS]) -> u64 {
        match self {
            Self::Const(c) => {
                out.fill(*c);
                block.all()
            }
            Self::Column(column) => {
                let rows = block.start..block.start + block.len;
                match block.columns.columns[*column].data {
                    ColumnData::I32(v) => out.iter_mut().zip(&v[rows]).for_each(|(o, x)| *o = i64::from(*x)),
                    ColumnData::I64(v) | ColumnData::Time(v) => out[..block.len].copy_from_slice(&v[rows]),
                    _ => return 0,
                }
                block.present(*column)
            }
            Self::Neg(x) => {
                let there = x.eval(block, out);
                let fits = bits(out, |v| v != i64::MIN);
                out.iter_mut().for_each(|v| *v = v.wrapping_neg());
                there & fits
            }
            Self::Arith(op, sides) => {
                let mut right = [0; ROWS];
                let there = sides.0.eval(block, out) & sides.1.eval(block, &mut right);
                there & int_arith(*op, out, &right)
            }
            Self::Truncate(x, span) => {
                let there = x.eval(block, out);
                let fits = bits(out, |v| funcs::truncate(v, *span).is_some());
                out.iter_mut().for_each(|v| *v = v.wrapping_sub(v.rem_euclid(*span)));
                there & fits
            }
            Self::Within(x, whole, unit) => {
                let there = x.eval(block, out);
                out.iter_mut().for_each(|v| *v = v.rem_euclid(*whole) / unit);
                there
            }
        }
    }
}

/// Computes `out = out op right` and returns the rows in which the result fits into 64 bits.
fn int_arith(op: ArithmeticOp, out: &mut [i64; ROWS], right: &[i64; ROWS]) -> u64 {
    match op {
        ArithmeticOp::Add => sum(out, right, i64::wrapping_add, |a, b, r| (a ^ r) & (b ^ r)),
        ArithmeticOp::Sub => sum(out, right, i64::wrapping_sub, |a, b, r| (a ^ b) & (a ^ r)),
        ArithmeticOp::Mul => checked(out, right, i64::checked_mul),
        ArithmeticOp::Rem | ArithmeticOp::Div => checked(out, right, i64::checked_rem),
    }
}

/// `overflow` returns a negative number where the computed result overflowed.
#[inline]
fn sum(
    out: &mut [i64; ROWS],
    right: &[i64; ROWS],
    compute: impl Fn(i64, i64) -> i64,
    overflow: impl Fn(i64, i64, i64) -> i64,
) -> u64 {
    let left = *out;
    let mut any = 0;
    for i in 0..ROWS {
        out[i] = compute(left[i], right[i]);
        any |= overflow(left[i], right[i], out[i]);
    }
    if any >= 0 {
        return u64::MAX;
    }
    let wrong: [bool; ROWS] = std::array::from_fn(|i| overflow(left[i], right[i], out[i]) < 0);
    !bits(&wrong, |w| w)
}

#[inline]
fn checked(out: &mut [i64; ROWS], right: &[i64; ROWS], compute: impl Fn(i64, i64) -> Option<i64>) -> u64 {
    let mut wrong = [false; ROWS];
    for i in 0..ROWS {
        let result = compute(out[i], right[i]);
        wrong[i] = result.is_none();
        out[i] = result.unwrap_or(0);
    }
    !bits(&wrong, |w| w)
}

impl FloatOp {
    fn eval(&self, block: &RowBlock<'_>, out: &mut [f64; ROWS]) -> u64 {
        match self {
            Self::Const(c) => {
                out.fill(*c);
                block.all()
            }
            Self::Column(column) => {
                let rows = block.start..block.start + block.len;
                match block.columns.columns[*column].data {
                    ColumnData::F32(v) => out.iter_mut().zip(&v[rows]).for_each(|(o, x)| *o = f64::from(*x)),
                    ColumnData::F64(v) => out[..block.len].copy_from_slice(&v[rows]),
                    _ => return 0,
                }
                block.present(*column)
            }
            Self::Int(x) => {
                let mut whole = [0; ROWS];
                let there = x.eval(block, &mut whole);
                out.iter_mut().zip(&whole).for_each(|(o, x)| *o = *x as f64);
                there
            }
            Self::Neg(x) => {
                let there = x.eval(block, out);
                out.iter_mut().for_each(|v| *v = -*v);
                there
            }
            Self::Arith(op, sides) => {
                let mut right = [0.0; ROWS];
                let there = sides.0.eval(block, out) & sides.1.eval(block, &mut right);
                let nonzero = if *op == ArithmeticOp::Div { bits(&right, |v| v != 0.0) } else { u64::MAX };
                for (o, r) in out.iter_mut().zip(&right) {
                    *o = match op {
                        ArithmeticOp::Add => *o + r,
                        ArithmeticOp::Sub => *o - r,
                        ArithmeticOp::Mul => *o * r,
                        ArithmeticOp::Div | ArithmeticOp::Rem => *o / r,
                    };
                }
                there & nonzero
            }
        }
    }
}

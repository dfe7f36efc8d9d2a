//! One expression, 64 events at once.
//!
//! A condition over 64 rows is two words: in which rows it is true, in which it is false. What is in neither is
//! missing, so `and`, `or` and `not` are one or two machine instructions. Numbers and times go through arrays of 64.
//! What has no vectorised form (text functions, paths into JSON, `if`) is computed row by row, for those rows only
//! that the conditions before it left.

mod compile;

use arrow_buffer::{BooleanBuffer, NullBuffer};

use super::eval::truth;
use super::ops::{ArithmeticOp, CompareOp};
use super::row::{ColumnData, Columns, Frame, Row};
use super::{Expr, funcs};
pub use compile::{integer_const, plain_column};

/// Rows computed at once.
pub const ROWS: usize = 64;

/// Where a condition holds, where it does not; in neither, it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriMask {
    /// Bit `i`: true in row `i`.
    pub true_rows: u64,
    /// Bit `i`: false in row `i`.
    pub false_rows: u64,
}

/// Up to 64 consecutive rows of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// The batch.
    pub columns: &'a Columns<'a>,
    /// The first row.
    pub start: usize,
    /// How many, 1 to 64.
    pub len: usize,
}

impl Block<'_> {
    /// A bit for every row there is.
    pub fn all(&self) -> u64 {
        ones(self.len)
    }

    /// The rows in which `column` has a value.
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

/// `len` bits of a buffer from bit `start`, `len` at most 64.
pub fn word(bits: &BooleanBuffer, start: usize, len: usize) -> u64 {
    let at = bits.offset() + start;
    let bytes = bits.values();
    let (first, shift) = (at / 8, at % 8);
    let mut wide = [0_u8; 16];
    let end = (at + len).div_ceil(8);
    // the bits asked for are in the buffer, and 64 of them touch at most 9 bytes
    wide[..end - first].copy_from_slice(&bytes[first..end]);
    ((u128::from_le_bytes(wide) >> shift) as u64) & ones(len)
}

/// A condition in vectorised form.
#[derive(Debug, Clone)]
pub enum BoolOp {
    /// The same in every row.
    Const(bool),
    /// A column of booleans.
    Column(usize),
    /// All of them.
    And(Vec<BoolOp>),
    /// One of them.
    Or(Vec<BoolOp>),
    /// The opposite.
    Not(Box<BoolOp>),
    /// The column has a value.
    Present(usize),
    /// Whole numbers, times or spans.
    CompareInt(CompareOp, IntOp, IntOp),
    /// Floats, or whole numbers that a float holds exactly.
    CompareFloat(CompareOp, FloatOp, FloatOp),
    /// Text with text.
    CompareStr(CompareOp, usize, StrOp),
    /// One of these, sorted.
    InInt(IntOp, Vec<i64>),
    /// One of these, sorted.
    InStr(usize, Vec<Box<str>>),
    /// Row by row.
    Rows(Box<Expr>),
}

/// Text on the right side of a comparison.
#[derive(Debug, Clone)]
pub enum StrOp {
    /// The same in every row.
    Const(Box<str>),
    /// A column.
    Column(usize),
}

/// Whole numbers, times, spans.
#[derive(Debug, Clone)]
pub enum IntOp {
    /// The same in every row.
    Const(i64),
    /// A column of `int`, `long` or `time`.
    Column(usize),
    /// `+ - *`, and `%`.
    Arith(ArithmeticOp, Box<(IntOp, IntOp)>),
    /// `-x`
    Neg(Box<IntOp>),
    /// The start of the stretch of this length.
    Truncate(Box<IntOp>, i64),
    /// Units of the second length within the first.
    Within(Box<IntOp>, i64, i64),
}

/// Floats.
#[derive(Debug, Clone)]
pub enum FloatOp {
    /// The same in every row.
    Const(f64),
    /// A column of `float` or `double`.
    Column(usize),
    /// Whole numbers as floats.
    Int(IntOp),
    /// `+ - * /`
    Arith(ArithmeticOp, Box<(FloatOp, FloatOp)>),
    /// `-x`
    Neg(Box<FloatOp>),
}

impl BoolOp {
    /// Where it holds among the rows `active`; outside of them the answer means nothing.
    pub fn eval(&self, block: &Block<'_>, active: u64) -> TriMask {
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
                    let frame = Frame::new(Row::Batch(block.columns, block.start + i));
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

/// `there`: rows with an answer; `holds`: where it is yes.
fn tri_mask(there: u64, holds: u64) -> TriMask {
    TriMask { true_rows: there & holds, false_rows: there & !holds }
}

/// Calls `f` with the position of every bit set.
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

/// 64 bytes of 0 or 1 as 64 bits. Comparing into bytes and packing them afterwards lets the compiler use wide
/// registers for the comparison.
#[inline]
fn pack(truths: &[u8; ROWS]) -> u64 {
    // times this, the eight lowest bits of eight bytes meet in the highest byte, each in its place
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut out = 0;
    for (i, eight) in truths.as_chunks::<8>().0.iter().enumerate() {
        out |= (u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56) << (8 * i);
    }
    out
}

fn compare_ints(op: CompareOp, a: &IntOp, b: &IntOp, block: &Block<'_>) -> TriMask {
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

fn compare_floats(op: CompareOp, a: &FloatOp, b: &FloatOp, block: &Block<'_>) -> TriMask {
    let (mut left, mut right) = ([0.0; ROWS], [0.0; ROWS]);
    let there = a.eval(block, &mut left) & b.eval(block, &mut right);
    // NaN compares with nothing: missing
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

fn compare_strs(op: CompareOp, column: usize, right: &StrOp, block: &Block<'_>, active: u64) -> TriMask {
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
    /// Writes the values; the result says in which rows there is one.
    fn eval(&self, block: &Block<'_>, out: &mut [i64; ROWS]) -> u64 {
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

/// `out = out op right`; the result says where that is a 64-bit number.
fn int_arith(op: ArithmeticOp, out: &mut [i64; ROWS], right: &[i64; ROWS]) -> u64 {
    match op {
        ArithmeticOp::Add => sum(out, right, i64::wrapping_add, |a, b, r| (a ^ r) & (b ^ r)),
        ArithmeticOp::Sub => sum(out, right, i64::wrapping_sub, |a, b, r| (a ^ b) & (a ^ r)),
        ArithmeticOp::Mul => checked(out, right, i64::checked_mul),
        ArithmeticOp::Rem | ArithmeticOp::Div => checked(out, right, i64::checked_rem),
    }
}

/// `overflow` is negative where the result is not the true one.
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
    fn eval(&self, block: &Block<'_>, out: &mut [f64; ROWS]) -> u64 {
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

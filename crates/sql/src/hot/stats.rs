//! Counts, sums, minima and maxima: of the cells of a column, and of the groups of a query.

use std::ops::{AddAssign, Range};

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};

/// Type in which the values of a column are aggregated.
pub(crate) trait Number: Copy + PartialOrd {
    /// Type of sums. Sums of integers are exact.
    type Sum: Copy + Default + AddAssign;
    const SMALLEST: Self;
    const LARGEST: Self;

    fn widen(self) -> Self::Sum;
}

impl Number for f64 {
    type Sum = f64;
    const SMALLEST: Self = f64::NEG_INFINITY;
    const LARGEST: Self = f64::INFINITY;

    fn widen(self) -> f64 {
        self
    }
}

impl Number for i64 {
    type Sum = i128;
    const SMALLEST: Self = i64::MIN;
    const LARGEST: Self = i64::MAX;

    fn widen(self) -> i128 {
        self.into()
    }
}

/// Aggregates of some values. Minimum and maximum mean nothing while `count` is 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat<N: Number> {
    /// Number of values that are not null.
    pub count: u64,
    pub sum: N::Sum,
    pub min: N,
    pub max: N,
}

impl<N: Number> Stat<N> {
    fn empty() -> Self {
        Self { count: 0, sum: N::Sum::default(), min: N::LARGEST, max: N::SMALLEST }
    }

    fn add(&mut self, value: N) {
        self.count += 1;
        self.sum += value.widen();
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        if other.min < self.min {
            self.min = other.min;
        }
        if other.max > self.max {
            self.max = other.max;
        }
    }
}

/// Kind of aggregates that a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatKind {
    Count,
    Float,
    Int,
}

impl StatKind {
    pub fn of(ty: &DataType) -> Self {
        match ty {
            DataType::Float32 | DataType::Float64 => Self::Float,
            DataType::Int32 | DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _) => Self::Int,
            _ => Self::Count,
        }
    }
}

/// Aggregates of one column, one per cell or per group.
#[derive(Debug, Clone)]
pub(crate) enum Stats {
    Count(Vec<u64>),
    Float(Vec<Stat<f64>>),
    Int(Vec<Stat<i64>>),
}

impl Stats {
    pub fn new(kind: StatKind) -> Self {
        match kind {
            StatKind::Count => Self::Count(Vec::new()),
            StatKind::Float => Self::Float(Vec::new()),
            StatKind::Int => Self::Int(Vec::new()),
        }
    }

    /// Appends a slot without values.
    pub fn push_empty(&mut self) {
        match self {
            Self::Count(slots) => slots.push(0),
            Self::Float(slots) => slots.push(Stat::empty()),
            Self::Int(slots) => slots.push(Stat::empty()),
        }
    }

    /// Returns the number of values that are not null in `slot`.
    pub fn count(&self, slot: usize) -> u64 {
        match self {
            Self::Count(slots) => slots[slot],
            Self::Float(slots) => slots[slot].count,
            Self::Int(slots) => slots[slot].count,
        }
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Count(slots) => size_of_val(slots.as_slice()),
            Self::Float(slots) => size_of_val(slots.as_slice()),
            Self::Int(slots) => size_of_val(slots.as_slice()),
        }
    }

    /// Adds the slots `cells` of `other`, which has the same kind, to `slot`.
    pub fn merge(&mut self, slot: usize, other: &Self, cells: Range<usize>) {
        match (self, other) {
            (Self::Count(to), Self::Count(from)) => to[slot] += from[cells].iter().sum::<u64>(),
            (Self::Float(to), Self::Float(from)) => from[cells].iter().for_each(|s| to[slot].merge(s)),
            (Self::Int(to), Self::Int(from)) => from[cells].iter().for_each(|s| to[slot].merge(s)),
            // both were made for one column
            _ => {}
        }
    }

    /// Adds the rows `rows` of `values`, the column for which these aggregates were made, to `slot`.
    pub fn add_rows(&mut self, slot: usize, values: &ArrayRef, rows: Range<usize>) {
        match self {
            Self::Count(to) => to[slot] += valid(values, rows) as u64,
            Self::Float(to) => match values.data_type() {
                DataType::Float32 => add::<Float32Type, _>(&mut to[slot], values, rows, f64::from),
                _ => add::<Float64Type, _>(&mut to[slot], values, rows, |x| x),
            },
            Self::Int(to) => match values.data_type() {
                DataType::Int32 => add::<Int32Type, _>(&mut to[slot], values, rows, i64::from),
                DataType::Int64 => add::<Int64Type, _>(&mut to[slot], values, rows, |x| x),
                _ => add::<TimestampMicrosecondType, _>(&mut to[slot], values, rows, |x| x),
            },
        }
    }
}

fn valid(values: &ArrayRef, rows: Range<usize>) -> usize {
    match values.nulls() {
        None => rows.len(),
        Some(nulls) => rows.len() - nulls.slice(rows.start, rows.len()).null_count(),
    }
}

fn add<T: ArrowPrimitiveType, N: Number>(
    to: &mut Stat<N>,
    values: &ArrayRef,
    rows: Range<usize>,
    widen: impl Fn(T::Native) -> N,
) {
    let values: &PrimitiveArray<T> = values.as_primitive();
    let numbers = &values.values()[rows.clone()];
    match values.nulls().filter(|n| n.null_count() > 0) {
        None => numbers.iter().for_each(|x| to.add(widen(*x))),
        Some(nulls) => {
            for (row, x) in rows.zip(numbers) {
                if nulls.is_valid(row) {
                    to.add(widen(*x));
                }
            }
        }
    }
}

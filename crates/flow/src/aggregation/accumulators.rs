//! Accumulators of a bucket in typed columns, one entry per row. They can be updated and merged.

use std::collections::BTreeSet;

use tidemill_types::FieldType;

use crate::catalog::AccumulatorKind;
use crate::columns::column::{Column, Data};
use crate::columns::shareable::BlockVec;
use crate::columns::value::{Key, Value};
use crate::select::compare;

/// Column of a bucket with one accumulator per row.
#[derive(Clone)]
pub(super) enum AccumulatorColumn {
    Count(BlockVec<u64>),
    /// Sum and number of the non-null values.
    IntegerSum(BlockVec<(i64, u64)>),
    FloatSum(BlockVec<(f64, u64)>),
    Min(BlockVec<Value>),
    Max(BlockVec<Value>),
    DistinctCount(BlockVec<BTreeSet<Key>>),
    /// Time of the latest event and its value.
    Last(BlockVec<(i64, Value)>),
}

/// Evaluates one expression for whichever kind of rows a column has.
macro_rules! each {
    ($cells:expr, $v:ident => $do:expr) => {
        match $cells {
            AccumulatorColumn::Count($v) => $do,
            AccumulatorColumn::IntegerSum($v) => $do,
            AccumulatorColumn::FloatSum($v) => $do,
            AccumulatorColumn::Min($v) | AccumulatorColumn::Max($v) => $do,
            AccumulatorColumn::DistinctCount($v) => $do,
            AccumulatorColumn::Last($v) => $do,
        }
    };
}

impl AccumulatorColumn {
    pub(super) fn new(keep: AccumulatorKind) -> Self {
        match keep {
            AccumulatorKind::Count => Self::Count(BlockVec::default()),
            AccumulatorKind::IntegerSum => Self::IntegerSum(BlockVec::default()),
            AccumulatorKind::FloatSum | AccumulatorKind::Avg => Self::FloatSum(BlockVec::default()),
            AccumulatorKind::Min => Self::Min(BlockVec::default()),
            AccumulatorKind::Max => Self::Max(BlockVec::default()),
            AccumulatorKind::DistinctCount => Self::DistinctCount(BlockVec::default()),
            AccumulatorKind::Last => Self::Last(BlockVec::default()),
        }
    }

    /// Appends accumulators in their initial state until there are `len` rows.
    pub(super) fn grow(&mut self, len: usize) {
        match self {
            Self::Last(rows) => rows.grow(len, &(i64::MIN, Value::Null)),
            _ => each!(self, rows => rows.grow(len, &Default::default())),
        }
    }

    /// Lets clones share the accumulators.
    pub(super) fn share(&mut self) {
        each!(self, rows => rows.share());
    }

    /// Accumulates events: event `i` updates row `rows[i]` with the value at `from + i` of `column` and with
    /// `times[i]`.
    pub(super) fn accumulate(&mut self, rows: &[u32], column: Option<&Column>, from: usize, times: &[i64]) {
        let Some(column) = column else {
            if let Self::Count(counts) = self {
                rows.iter().for_each(|row| *counts.get_mut(*row as usize) += 1);
            }
            return;
        };
        let events = rows.iter().zip(from..).filter(|(_, i)| !column.is_null(*i));
        let events = events.map(|(row, i)| (*row as usize, i));
        match (self, column.data()) {
            (Self::Count(counts), _) => rows.iter().for_each(|row| *counts.get_mut(*row as usize) += 1),
            (Self::IntegerSum(sums), Data::Int(v)) => {
                events.for_each(|(row, i)| add_integer(sums.get_mut(row), v[i].into()))
            }
            (Self::IntegerSum(sums), Data::Long(v)) => {
                events.for_each(|(row, i)| add_integer(sums.get_mut(row), v[i]))
            }
            (Self::IntegerSum(_), _) => {}
            (Self::FloatSum(sums), Data::Double(v)) => {
                events.for_each(|(row, i)| add_float(sums.get_mut(row), v[i]))
            }
            (Self::FloatSum(sums), _) => {
                let numbers = events.filter_map(|(row, i)| Some((row, column.get(i).as_f64()?)));
                numbers.for_each(|(row, n)| add_float(sums.get_mut(row), n));
            }
            (Self::Min(best), _) => events.for_each(|(row, i)| update_min(best.get_mut(row), column.get(i))),
            (Self::Max(best), _) => events.for_each(|(row, i)| update_max(best.get_mut(row), column.get(i))),
            (Self::DistinctCount(sets), _) => {
                for (row, i) in rows.iter().zip(from..) {
                    sets.get_mut(*row as usize).insert(Key(column.get(i)));
                }
            }
            (Self::Last(latest), _) => {
                for ((row, i), time) in rows.iter().zip(from..).zip(times) {
                    update_last(latest.get_mut(*row as usize), *time, || column.get(i));
                }
            }
        }
    }

    /// Merges row `from` of the corresponding column of another bucket into row `row`.
    pub(super) fn merge(&mut self, row: usize, other: &Self, from: usize) {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => *a.get_mut(row) += b.get(from),
            (Self::IntegerSum(a), Self::IntegerSum(b)) => {
                let ((sum, count), (other, others)) = (a.get_mut(row), b.get(from));
                (*sum, *count) = (sum.wrapping_add(*other), *count + others);
            }
            (Self::FloatSum(a), Self::FloatSum(b)) => {
                let ((sum, count), (other, others)) = (a.get_mut(row), b.get(from));
                (*sum, *count) = (*sum + other, *count + others);
            }
            (Self::Min(a), Self::Min(b)) => update_min(a.get_mut(row), b.get(from).clone()),
            (Self::Max(a), Self::Max(b)) => update_max(a.get_mut(row), b.get(from).clone()),
            (Self::DistinctCount(a), Self::DistinctCount(b)) => {
                a.get_mut(row).extend(b.get(from).iter().cloned())
            }
            (Self::Last(a), Self::Last(b)) => {
                update_last(a.get_mut(row), b.get(from).0, || b.get(from).1.clone())
            }
            _ => debug_assert!(false, "buckets of one aggregation keep the same"),
        }
    }

    /// Returns the aggregate value of a row.
    pub(super) fn value(&self, keep: AccumulatorKind, row: usize) -> Value {
        match self {
            Self::Count(counts) => Value::Long(counts.get(row).cast_signed()),
            Self::IntegerSum(sums) => match *sums.get(row) {
                (_, 0) => Value::Null,
                (sum, _) => Value::Long(sum),
            },
            Self::FloatSum(sums) => match *sums.get(row) {
                (_, 0) => Value::Null,
                (sum, count) if keep == AccumulatorKind::Avg => Value::Double(sum / count as f64),
                (sum, _) => Value::Double(sum),
            },
            Self::Min(best) | Self::Max(best) => best.get(row).clone(),
            Self::DistinctCount(sets) => Value::Long(sets.get(row).len() as i64),
            Self::Last(latest) => latest.get(row).1.clone(),
        }
    }
}

/// Returns the type of the aggregate value, given that of the argument.
pub(super) fn type_of(keep: AccumulatorKind, argument: FieldType) -> FieldType {
    match keep {
        AccumulatorKind::Count | AccumulatorKind::IntegerSum | AccumulatorKind::DistinctCount => {
            FieldType::Long
        }
        AccumulatorKind::FloatSum | AccumulatorKind::Avg => FieldType::Double,
        AccumulatorKind::Min | AccumulatorKind::Max | AccumulatorKind::Last => argument,
    }
}

fn add_integer(sum: &mut (i64, u64), n: i64) {
    *sum = (sum.0.wrapping_add(n), sum.1 + 1);
}

fn add_float(sum: &mut (f64, u64), n: f64) {
    *sum = (sum.0 + n, sum.1 + 1);
}

fn update_min(best: &mut Value, value: Value) {
    if best.is_null() || !value.is_null() && compare(&value, best).is_lt() {
        *best = value;
    }
}

fn update_max(best: &mut Value, value: Value) {
    if best.is_null() || !value.is_null() && compare(&value, best).is_gt() {
        *best = value;
    }
}

/// Keeps the value with the greatest time; among equal times, the one that arrived last.
fn update_last(latest: &mut (i64, Value), time: i64, value: impl FnOnce() -> Value) {
    if time >= latest.0 {
        *latest = (time, value());
    }
}

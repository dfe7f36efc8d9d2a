//! Accumulators of a bucket in typed columns, one entry per row. They can be updated and merged.

use std::collections::BTreeSet;

use tidemill_types::FieldType;

use crate::catalog::AccumulatorKind;
use crate::column::{Column, Data};
use crate::select::compare;
use crate::value::{Key, Value};

/// Column of a bucket with one accumulator per row.
pub(super) enum AccumulatorColumn {
    Count(Vec<u64>),
    /// Sum and number of the non-null values.
    IntegerSum(Vec<(i64, u64)>),
    FloatSum(Vec<(f64, u64)>),
    Min(Vec<Value>),
    Max(Vec<Value>),
    DistinctCount(Vec<BTreeSet<Key>>),
    /// Time of the latest event and its value.
    Last(Vec<(i64, Value)>),
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
            AccumulatorKind::Count => Self::Count(vec![]),
            AccumulatorKind::IntegerSum => Self::IntegerSum(vec![]),
            AccumulatorKind::FloatSum | AccumulatorKind::Avg => Self::FloatSum(vec![]),
            AccumulatorKind::Min => Self::Min(vec![]),
            AccumulatorKind::Max => Self::Max(vec![]),
            AccumulatorKind::DistinctCount => Self::DistinctCount(vec![]),
            AccumulatorKind::Last => Self::Last(vec![]),
        }
    }

    /// Appends accumulators in their initial state until there are `len` rows.
    pub(super) fn grow(&mut self, len: usize) {
        match self {
            Self::Last(rows) => rows.resize(len, (i64::MIN, Value::Null)),
            _ => each!(self, rows => rows.resize(len, Default::default())),
        }
    }

    /// Accumulates events: event `i` updates row `rows[i]` with the value at `from + i` of `column` and with
    /// `times[i]`.
    pub(super) fn accumulate(&mut self, rows: &[u32], column: Option<&Column>, from: usize, times: &[i64]) {
        let Some(column) = column else {
            if let Self::Count(counts) = self {
                rows.iter().for_each(|row| counts[*row as usize] += 1);
            }
            return;
        };
        let events = rows.iter().zip(from..).filter(|(_, i)| !column.is_null(*i));
        let events = events.map(|(row, i)| (*row as usize, i));
        match (self, column.data()) {
            (Self::Count(counts), _) => rows.iter().for_each(|row| counts[*row as usize] += 1),
            (Self::IntegerSum(sums), Data::Int(v)) => {
                events.for_each(|(row, i)| add_integer(&mut sums[row], v[i].into()))
            }
            (Self::IntegerSum(sums), Data::Long(v)) => {
                events.for_each(|(row, i)| add_integer(&mut sums[row], v[i]))
            }
            (Self::IntegerSum(_), _) => {}
            (Self::FloatSum(sums), Data::Double(v)) => {
                events.for_each(|(row, i)| add_float(&mut sums[row], v[i]))
            }
            (Self::FloatSum(sums), _) => {
                let numbers = events.filter_map(|(row, i)| Some((row, column.get(i).as_f64()?)));
                numbers.for_each(|(row, n)| add_float(&mut sums[row], n));
            }
            (Self::Min(best), _) => events.for_each(|(row, i)| update_min(&mut best[row], column.get(i))),
            (Self::Max(best), _) => events.for_each(|(row, i)| update_max(&mut best[row], column.get(i))),
            (Self::DistinctCount(sets), _) => {
                for (row, i) in rows.iter().zip(from..) {
                    sets[*row as usize].insert(Key(column.get(i)));
                }
            }
            (Self::Last(latest), _) => {
                for ((row, i), time) in rows.iter().zip(from..).zip(times) {
                    update_last(&mut latest[*row as usize], *time, || column.get(i));
                }
            }
        }
    }

    /// Merges row `from` of the corresponding column of another bucket into row `row`.
    pub(super) fn merge(&mut self, row: usize, other: &Self, from: usize) {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => a[row] += b[from],
            (Self::IntegerSum(a), Self::IntegerSum(b)) => {
                a[row] = (a[row].0.wrapping_add(b[from].0), a[row].1 + b[from].1);
            }
            (Self::FloatSum(a), Self::FloatSum(b)) => a[row] = (a[row].0 + b[from].0, a[row].1 + b[from].1),
            (Self::Min(a), Self::Min(b)) => update_min(&mut a[row], b[from].clone()),
            (Self::Max(a), Self::Max(b)) => update_max(&mut a[row], b[from].clone()),
            (Self::DistinctCount(a), Self::DistinctCount(b)) => a[row].extend(b[from].iter().cloned()),
            (Self::Last(a), Self::Last(b)) => update_last(&mut a[row], b[from].0, || b[from].1.clone()),
            _ => debug_assert!(false, "buckets of one aggregation keep the same"),
        }
    }

    /// Returns the aggregate value of a row.
    pub(super) fn value(&self, keep: AccumulatorKind, row: usize) -> Value {
        match self {
            Self::Count(counts) => Value::Long(counts[row].cast_signed()),
            Self::IntegerSum(sums) => match sums[row] {
                (_, 0) => Value::Null,
                (sum, _) => Value::Long(sum),
            },
            Self::FloatSum(sums) => match sums[row] {
                (_, 0) => Value::Null,
                (sum, count) if keep == AccumulatorKind::Avg => Value::Double(sum / count as f64),
                (sum, _) => Value::Double(sum),
            },
            Self::Min(best) | Self::Max(best) => best[row].clone(),
            Self::DistinctCount(sets) => Value::Long(sets[row].len() as i64),
            Self::Last(latest) => latest[row].1.clone(),
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

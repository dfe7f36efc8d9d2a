//! What a bucket keeps of the events of its rows, in typed columns: enough to go on with, and to be put together.

use std::collections::BTreeSet;

use tidemill_types::FieldType;

use crate::column::{Column, Data};
use crate::select::compare;
use crate::value::{Key, Value};

/// What is kept of a value of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// How many events there were; nulls count.
    Count,
    /// The sum of whole numbers; it wraps around.
    Whole,
    /// The sum of numbers as doubles.
    Decimal,
    /// Their mean.
    Mean,
    /// The least number.
    Least,
    /// The greatest number.
    Greatest,
    /// How many different values there were; null is one.
    Distinct,
    /// The value of the latest event.
    Latest,
}

/// One of the columns of a bucket.
pub(super) enum Cells {
    Count(Vec<u64>),
    /// Sum and number of what was not null.
    Whole(Vec<(i64, u64)>),
    Decimal(Vec<(f64, u64)>),
    Least(Vec<Value>),
    Greatest(Vec<Value>),
    Distinct(Vec<BTreeSet<Key>>),
    /// With the time of the event.
    Latest(Vec<(i64, Value)>),
}

/// Does the same for the rows of each kind.
macro_rules! each {
    ($cells:expr, $v:ident => $do:expr) => {
        match $cells {
            Cells::Count($v) => $do,
            Cells::Whole($v) => $do,
            Cells::Decimal($v) => $do,
            Cells::Least($v) | Cells::Greatest($v) => $do,
            Cells::Distinct($v) => $do,
            Cells::Latest($v) => $do,
        }
    };
}

impl Cells {
    pub(super) fn new(keep: Keep) -> Self {
        match keep {
            Keep::Count => Self::Count(vec![]),
            Keep::Whole => Self::Whole(vec![]),
            Keep::Decimal | Keep::Mean => Self::Decimal(vec![]),
            Keep::Least => Self::Least(vec![]),
            Keep::Greatest => Self::Greatest(vec![]),
            Keep::Distinct => Self::Distinct(vec![]),
            Keep::Latest => Self::Latest(vec![]),
        }
    }

    /// Rows of which nothing is known yet, until there are `len`.
    pub(super) fn grow(&mut self, len: usize) {
        match self {
            Self::Latest(rows) => rows.resize(len, (i64::MIN, Value::Null)),
            _ => each!(self, rows => rows.resize(len, Default::default())),
        }
    }

    /// Works events in: to each of `rows` the value of `column` from `from` on, and its time.
    pub(super) fn add(&mut self, rows: &[u32], column: Option<&Column>, from: usize, times: &[i64]) {
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
            (Self::Whole(sums), Data::Int(v)) => {
                events.for_each(|(row, i)| whole(&mut sums[row], v[i].into()))
            }
            (Self::Whole(sums), Data::Long(v)) => events.for_each(|(row, i)| whole(&mut sums[row], v[i])),
            (Self::Whole(_), _) => {}
            (Self::Decimal(sums), Data::Double(v)) => {
                events.for_each(|(row, i)| decimal(&mut sums[row], v[i]))
            }
            (Self::Decimal(sums), _) => {
                let numbers = events.filter_map(|(row, i)| Some((row, column.get(i).as_f64()?)));
                numbers.for_each(|(row, n)| decimal(&mut sums[row], n));
            }
            (Self::Least(best), _) => events.for_each(|(row, i)| less(&mut best[row], column.get(i))),
            (Self::Greatest(best), _) => events.for_each(|(row, i)| more(&mut best[row], column.get(i))),
            (Self::Distinct(sets), _) => {
                for (row, i) in rows.iter().zip(from..) {
                    sets[*row as usize].insert(Key(column.get(i)));
                }
            }
            (Self::Latest(latest), _) => {
                for ((row, i), time) in rows.iter().zip(from..).zip(times) {
                    later(&mut latest[*row as usize], *time, || column.get(i));
                }
            }
        }
    }

    /// Works row `from` of the same column of another bucket in.
    pub(super) fn merge(&mut self, row: usize, other: &Self, from: usize) {
        match (self, other) {
            (Self::Count(a), Self::Count(b)) => a[row] += b[from],
            (Self::Whole(a), Self::Whole(b)) => {
                a[row] = (a[row].0.wrapping_add(b[from].0), a[row].1 + b[from].1);
            }
            (Self::Decimal(a), Self::Decimal(b)) => a[row] = (a[row].0 + b[from].0, a[row].1 + b[from].1),
            (Self::Least(a), Self::Least(b)) => less(&mut a[row], b[from].clone()),
            (Self::Greatest(a), Self::Greatest(b)) => more(&mut a[row], b[from].clone()),
            (Self::Distinct(a), Self::Distinct(b)) => a[row].extend(b[from].iter().cloned()),
            (Self::Latest(a), Self::Latest(b)) => later(&mut a[row], b[from].0, || b[from].1.clone()),
            _ => debug_assert!(false, "buckets of one aggregation keep the same"),
        }
    }

    /// What row `row` shows.
    pub(super) fn value(&self, keep: Keep, row: usize) -> Value {
        match self {
            Self::Count(counts) => Value::Long(counts[row].cast_signed()),
            Self::Whole(sums) => match sums[row] {
                (_, 0) => Value::Null,
                (sum, _) => Value::Long(sum),
            },
            Self::Decimal(sums) => match sums[row] {
                (_, 0) => Value::Null,
                (sum, count) if keep == Keep::Mean => Value::Double(sum / count as f64),
                (sum, _) => Value::Double(sum),
            },
            Self::Least(best) | Self::Greatest(best) => best[row].clone(),
            Self::Distinct(sets) => Value::Long(sets[row].len() as i64),
            Self::Latest(latest) => latest[row].1.clone(),
        }
    }
}

/// The type of what is shown, given that of what comes in.
pub(super) fn type_of(keep: Keep, argument: FieldType) -> FieldType {
    match keep {
        Keep::Count | Keep::Whole | Keep::Distinct => FieldType::Long,
        Keep::Decimal | Keep::Mean => FieldType::Double,
        Keep::Least | Keep::Greatest | Keep::Latest => argument,
    }
}

fn whole(sum: &mut (i64, u64), n: i64) {
    *sum = (sum.0.wrapping_add(n), sum.1 + 1);
}

fn decimal(sum: &mut (f64, u64), n: f64) {
    *sum = (sum.0 + n, sum.1 + 1);
}

fn less(best: &mut Value, value: Value) {
    if best.is_null() || !value.is_null() && compare(&value, best).is_lt() {
        *best = value;
    }
}

fn more(best: &mut Value, value: Value) {
    if best.is_null() || !value.is_null() && compare(&value, best).is_gt() {
        *best = value;
    }
}

/// Of two events of one time the one that came later is the latest.
fn later(latest: &mut (i64, Value), time: i64, value: impl FnOnce() -> Value) {
    if time >= latest.0 {
        *latest = (time, value());
    }
}

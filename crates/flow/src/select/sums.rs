//! Sums and counts by group, computed for many events in one loop.

use std::borrow::Cow;

use super::OutputEvents;
use crate::columns::batch::EventKind;
use crate::columns::column::{Column, Data};
use crate::columns::shareable::Values;
use crate::window::EvictionCounts;

/// Group of each row.
#[derive(Clone, Copy)]
pub(super) enum GroupIds<'a> {
    /// All rows belong to the first group.
    One,
    /// Group id by row.
    Many(&'a [u32]),
}

impl<'a> GroupIds<'a> {
    /// Creates group ids; without `ids`, all rows belong to the first group.
    pub(super) fn of(ids: Option<&'a [u32]>) -> Self {
        ids.map_or(Self::One, Self::Many)
    }

    #[inline]
    pub(super) fn get(self, row: usize) -> usize {
        match self {
            Self::One => 0,
            Self::Many(ids) => ids[row] as usize,
        }
    }
}

/// Events that are added to an aggregate, or retracted from it.
pub(super) struct AggregateUpdates<'a> {
    /// Group id of each event.
    pub(super) ids: &'a [u32],
    /// Argument of the aggregate; `None` if it has none.
    pub(super) arg: Option<Column>,
}

impl AggregateUpdates<'_> {
    pub(super) fn numbers<'s, T: Clone>(&'s self, of: fn(&'s Column) -> Cow<'s, [T]>) -> Cow<'s, [T]> {
        self.arg.as_ref().map_or_else(Cow::default, of)
    }

    pub(super) fn nulls(&self) -> &[bool] {
        self.arg.as_ref().map_or(&[], Column::nulls)
    }
}

/// Next step: index of the row among those that arrive, or among those that are evicted.
pub(super) enum AddOrRetract {
    Add(usize),
    Retract(usize),
}

impl EvictionCounts {
    /// Returns whether one row is evicted before each arriving row, and none after the last.
    fn is_one_for_one(&self) -> bool {
        self.after_last == 0 && self.before.iter().fold(true, |all, before| all & (*before == 1))
    }

    #[inline(always)]
    pub(super) fn for_each_step(&self, mut step: impl FnMut(AddOrRetract)) {
        let mut left = 0;
        for (row, count) in self.before.iter().enumerate() {
            for _ in 0..*count {
                step(AddOrRetract::Retract(left));
                left += 1;
            }
            step(AddOrRetract::Add(row));
        }
        for _ in 0..self.after_last {
            step(AddOrRetract::Retract(left));
            left += 1;
        }
    }
}

/// Events of all kinds, as input of an aggregate.
#[derive(Clone, Copy)]
pub(super) struct AggregateInput<'a> {
    pub(super) ids: GroupIds<'a>,
    pub(super) kinds: &'a [EventKind],
    /// True if all events arrive and are wanted.
    pub(super) all: bool,
    pub(super) wanted: OutputEvents,
}

/// Updates sums with events in order and returns the values of the wanted ones; `change` and `value` as for
/// [`update_sums_sliding`]. `added`: whether a sum to which a value was just added is not null even if its
/// count is zero.
#[inline]
pub(super) fn update_sums<T: Copy + Default>(
    sums: &mut (impl Values<(T, i64)> + ?Sized),
    AggregateInput { ids, kinds, all, wanted }: AggregateInput<'_>,
    (numbers, nulls): (&[T], &[bool]),
    (change, value, added): (impl Fn((T, i64), T, bool) -> (T, i64), impl Fn(T, i64) -> T, bool),
) -> NullableColumn<T> {
    if all && nulls.is_empty() {
        let next = |(row, number): (usize, &T)| {
            let total = sums.at(ids.get(row));
            *total = change(*total, *number, false);
            value(total.0, total.1)
        };
        return NullableColumn { values: numbers.iter().enumerate().map(next).collect(), nulls: vec![] };
    }
    let mut out = NullableColumn::with_capacity(kinds.len());
    for (row, kind) in kinds.iter().enumerate() {
        if *kind == EventKind::Reset {
            sums.fill_all(&Default::default());
            continue;
        }
        let g = ids.get(row);
        let is_number = nulls.is_empty() || !nulls[row];
        let total = sums.at(g);
        if is_number {
            *total = change(*total, numbers[row], *kind == EventKind::Expired);
        }
        if wanted.has(*kind) {
            let (sum, count) = *total;
            let has_value = count != 0 || added && is_number && *kind == EventKind::Current;
            out.push(value(sum, count), !has_value);
        }
    }
    out
}

/// Adds numbers to sums.
#[inline]
pub(super) fn accumulate_sums<T: Copy>(
    sums: &mut (impl Values<(T, i64)> + ?Sized),
    ids: GroupIds<'_>,
    (numbers, nulls): (&[T], &[bool]),
    change: impl Fn((T, i64), T, bool) -> (T, i64),
) {
    for (row, number) in numbers.iter().enumerate() {
        if nulls.is_empty() || !nulls[row] {
            let total = sums.at(ids.get(row));
            *total = change(*total, *number, false);
        }
    }
}

/// Updates sums while events arrive and others are evicted. `change` adds a number to a sum or retracts it;
/// `value` computes the result from a sum and its count.
#[inline]
pub(super) fn update_sums_sliding<T: Copy>(
    sums: &mut (impl Values<(T, i64)> + ?Sized),
    slide: &EvictionCounts,
    (new, arriving): (&AggregateUpdates<'_>, &[T]),
    (old, leaving): (&AggregateUpdates<'_>, &[T]),
    change: impl Fn((T, i64), T, bool) -> (T, i64),
    value: impl Fn(T, i64) -> T,
) -> NullableColumn<T> {
    let (new_nulls, old_nulls) = (new.nulls(), old.nulls());
    if new_nulls.is_empty() && old_nulls.is_empty() {
        if slide.is_one_for_one() && old.ids.len() == new.ids.len() && leaving.len() == arriving.len() {
            // common case of a full window: one eviction per arrival, without an inner loop
            let pass = |((gone, left), (id, number)): ((&u32, &T), (&u32, &T))| {
                let total = sums.at(*gone as usize);
                *total = change(*total, *left, true);
                let total = sums.at(*id as usize);
                *total = change(*total, *number, false);
                value(total.0, total.1)
            };
            let (gone, come) = (old.ids.iter().zip(leaving), new.ids.iter().zip(arriving));
            return NullableColumn { values: gone.zip(come).map(pass).collect(), nulls: vec![] };
        }
        let mut leaving = old.ids.iter().zip(leaving);
        let arrive = |((before, id), number): ((&u32, &u32), &T)| {
            for (id, number) in leaving.by_ref().take(*before as usize) {
                let total = sums.at(*id as usize);
                *total = change(*total, *number, true);
            }
            let total = sums.at(*id as usize);
            *total = change(*total, *number, false);
            value(total.0, total.1)
        };
        let values = slide.before.iter().zip(new.ids).zip(arriving).map(arrive).collect();
        for (id, number) in leaving {
            let total = sums.at(*id as usize);
            *total = change(*total, *number, true);
        }
        return NullableColumn { values, nulls: vec![] };
    }
    let mut out = NullableColumn::with_capacity(slide.before.len());
    slide.for_each_step(|step| match step {
        AddOrRetract::Retract(row) if !old_nulls.is_empty() && old_nulls[row] => {}
        AddOrRetract::Retract(row) => {
            let total = sums.at(old.ids[row] as usize);
            *total = change(*total, leaving[row], true);
        }
        AddOrRetract::Add(row) => {
            let total = sums.at(new.ids[row] as usize);
            if new_nulls.is_empty() || !new_nulls[row] {
                *total = change(*total, arriving[row], false);
            }
            let (sum, count) = *total;
            out.push(value(sum, count), count == 0);
        }
    });
    out
}

/// Builder of a column whose values may be null.
pub(super) struct NullableColumn<T> {
    values: Vec<T>,
    nulls: Vec<bool>,
}

/// Collects values with their counts; a value whose count is zero is null.
pub(super) fn null_where_empty<T>(of: impl Iterator<Item = (T, i64)>) -> NullableColumn<T> {
    let mut out = NullableColumn::with_capacity(of.size_hint().0);
    of.for_each(|(value, count)| out.push(value, count == 0));
    out
}

impl<T> NullableColumn<T> {
    pub(super) fn into_column(self, data: fn(Vec<T>) -> Data) -> Column {
        Column::with_nulls(data(self.values), self.nulls)
    }

    fn with_capacity(values: usize) -> Self {
        Self { values: Vec::with_capacity(values), nulls: vec![] }
    }

    #[inline]
    fn push(&mut self, value: T, null: bool) {
        if null || !self.nulls.is_empty() {
            self.nulls.resize(self.values.len(), false);
            self.nulls.push(null);
        }
        self.values.push(value);
    }
}

/// Adds a number to a sum of whole numbers, or retracts it. Wraps around like other arithmetic on longs and
/// stays exact when values are retracted; Siddhi 5.1 then loses the digits beyond 2^53.
#[inline]
pub(super) fn update_integer_sum((sum, count): (i64, i64), n: i64, leaves: bool) -> (i64, i64) {
    match leaves {
        true => (sum.wrapping_sub(n), count - 1),
        false => (sum.wrapping_add(n), count + 1),
    }
}

/// Adds a number to a sum of doubles, or retracts it. Rounding errors stay in the sum, even when all values
/// were retracted.
#[inline]
pub(super) fn update_float_sum((sum, count): (f64, i64), n: f64, leaves: bool) -> (f64, i64) {
    match leaves {
        true => (sum - n, count - 1),
        false => (sum + n, count + 1),
    }
}

#[inline]
pub(super) fn update_count(count: i64, leaves: bool) -> i64 {
    if leaves { count - 1 } else { count + 1 }
}

/// Returns the values as longs; the value of a null is arbitrary.
pub(super) fn longs(column: &Column) -> Cow<'_, [i64]> {
    match column.data() {
        Data::Long(values) => Cow::Borrowed(values),
        Data::Int(values) => values.iter().map(|n| i64::from(*n)).collect(),
        _ => (0..column.len()).map(|i| column.get(i).as_i64().unwrap_or(0)).collect(),
    }
}

/// Returns the values as doubles; the value of a null is arbitrary.
pub(super) fn doubles(column: &Column) -> Cow<'_, [f64]> {
    match column.data() {
        Data::Double(values) => Cow::Borrowed(values),
        Data::Float(values) => values.iter().map(|n| f64::from(*n)).collect(),
        Data::Long(values) => values.iter().map(|n| *n as f64).collect(),
        Data::Int(values) => values.iter().map(|n| f64::from(*n)).collect(),
        _ => (0..column.len()).map(|i| column.get(i).as_f64().unwrap_or(0.0)).collect(),
    }
}

//! Minimum or maximum by group, where no event expires individually.

use std::cmp::Ordering;

use tidemill_types::FieldType;

use super::sums::GroupIds;
use crate::columns::batch::EventKind;
use crate::columns::column::{Column, Data};
use crate::columns::shareable::{BlockVec, Values, each_form};
use crate::columns::value::{Key, Value, order};
use crate::columns::value_ref::ValueRef;

/// The minimum or maximum of each group.
#[derive(Clone)]
pub(super) struct MinMaxAccumulator {
    greatest: bool,
    best: MinMaxValues,
}

#[derive(Clone)]
enum MinMaxValues {
    Long(BlockVec<Option<i64>>),
    Double(BlockVec<Option<f64>>),
    /// Values of any other type.
    Any(BlockVec<Value>),
}

/// Evaluates an expression for the values of each type.
macro_rules! each {
    ($best:expr, $v:ident => $do:expr) => {
        match $best {
            MinMaxValues::Long($v) => $do,
            MinMaxValues::Double($v) => $do,
            MinMaxValues::Any($v) => $do,
        }
    };
}

impl MinMaxAccumulator {
    /// Creates an accumulator without groups; `ty` is the type of the values.
    pub(super) fn new(ty: FieldType, greatest: bool) -> Self {
        let best = match ty {
            FieldType::Long => MinMaxValues::Long(BlockVec::default()),
            FieldType::Double => MinMaxValues::Double(BlockVec::default()),
            _ => MinMaxValues::Any(BlockVec::default()),
        };
        Self { greatest, best }
    }

    pub(super) fn grow(&mut self, groups: usize) {
        each!(&mut self.best, best => best.grow(groups, &Default::default()));
    }

    pub(super) fn reset(&mut self) {
        each!(&mut self.best, best => best.fill(&Default::default()));
    }

    /// Lets clones share the values.
    pub(super) fn share(&mut self) {
        each!(&mut self.best, best => best.share());
    }

    pub(super) fn value(&self, group: usize) -> Value {
        match &self.best {
            MinMaxValues::Long(best) => best.get(group).map_or(Value::Null, Value::Long),
            MinMaxValues::Double(best) => best.get(group).map_or(Value::Null, Value::Double),
            MinMaxValues::Any(best) => best.get(group).clone(),
        }
    }

    /// Sets a group's value to a saved one. Errors: the value has another type.
    pub(super) fn set(&mut self, group: usize, value: Value) -> Result<(), ()> {
        match (&mut self.best, value) {
            (MinMaxValues::Any(best), value) => *best.get_mut(group) = value,
            (MinMaxValues::Long(best), Value::Null) => *best.get_mut(group) = None,
            (MinMaxValues::Double(best), Value::Null) => *best.get_mut(group) = None,
            (MinMaxValues::Long(best), Value::Long(n)) => *best.get_mut(group) = Some(n),
            (MinMaxValues::Double(best), Value::Double(n)) => *best.get_mut(group) = Some(n),
            _ => return Err(()),
        }
        Ok(())
    }

    /// Prefetches the values of these groups.
    pub(super) fn prefetch(&self, ids: &[u32]) {
        each!(&self.best, best => best.prefetch_all(ids));
    }

    /// Returns the value of a group without a copy.
    #[inline]
    pub(super) fn value_ref(&self, group: usize) -> ValueRef<'_> {
        match &self.best {
            MinMaxValues::Long(best) => best.get(group).map_or(ValueRef::Null, ValueRef::Long),
            MinMaxValues::Double(best) => best.get(group).map_or(ValueRef::Null, ValueRef::Double),
            MinMaxValues::Any(best) => best.get(group).borrowed(),
        }
    }

    /// Adds a value.
    pub(super) fn add(&mut self, group: usize, value: &Value) {
        self.add_ref(group, &value.borrowed());
    }

    /// Adds a value as [`Self::add`] does.
    #[inline]
    pub(super) fn add_ref(&mut self, group: usize, value: &ValueRef<'_>) {
        let greatest = self.greatest;
        match (&mut self.best, value) {
            (_, ValueRef::Null) => {}
            (MinMaxValues::Long(best), value) => {
                let Some(n) = value.as_i64() else { return };
                update_best(best.get_mut(group), n, greatest, i64::cmp);
            }
            (MinMaxValues::Double(best), value) => {
                let Some(n) = value.as_f64() else { return };
                update_best(best.get_mut(group), n, greatest, |a, b| order(*a, *b));
            }
            (MinMaxValues::Any(best), value) => {
                let (best, value) = (best.get_mut(group), value.to_value());
                let order = || Key(value.clone()).cmp(&Key(best.clone()));
                if best.is_null() || is_better(order(), greatest) {
                    *best = value;
                }
            }
        }
    }

    /// Processes many events and returns the value after each that is `wanted`.
    pub(super) fn update_batch(
        &mut self,
        ty: FieldType,
        ids: GroupIds<'_>,
        kinds: &[EventKind],
        arg: Option<&Column>,
        wanted: impl Fn(EventKind) -> bool,
    ) -> Column {
        let plain = arg.filter(|arg| arg.nulls().is_empty() && !kinds.contains(&EventKind::Reset));
        let greatest = self.greatest;
        macro_rules! typed {
            ($best:ident, $numbers:ident, $variant:ident, $compare:expr) => {{
                let mut out = Vec::with_capacity(kinds.len());
                for (row, kind) in kinds.iter().enumerate() {
                    let best = $best.at(ids.get(row));
                    if *kind == EventKind::Current {
                        update_best(best, $numbers[row], greatest, $compare);
                    }
                    if wanted(*kind) {
                        out.push(best.unwrap_or_default());
                    }
                }
                Column::of(Data::$variant(out))
            }};
        }
        // if no event expires and no value is null, there is a value after each event
        let all = kinds.iter().all(|kind| *kind == EventKind::Current);
        match (&mut self.best, plain.filter(|_| all).map(Column::data)) {
            (MinMaxValues::Long(best), Some(Data::Long(numbers))) => {
                each_form!(best, best => typed!(best, numbers, Long, i64::cmp))
            }
            (MinMaxValues::Double(best), Some(Data::Double(numbers))) => {
                each_form!(best, best => typed!(best, numbers, Double, |a, b| order(*a, *b)))
            }
            _ => {
                let mut out = Column::new(ty);
                for (row, kind) in kinds.iter().enumerate() {
                    match kind {
                        EventKind::Reset => {
                            self.reset();
                            continue;
                        }
                        EventKind::Current => {
                            self.add(ids.get(row), &arg.map_or(Value::Null, |arg| arg.get(row)));
                        }
                        EventKind::Expired => {}
                    }
                    if wanted(*kind) {
                        out.push(self.value(ids.get(row)));
                    }
                }
                out
            }
        }
    }
}

#[inline]
fn update_best<T: Copy>(best: &mut Option<T>, value: T, greatest: bool, compare: fn(&T, &T) -> Ordering) {
    if best.is_none_or(|best| is_better(compare(&value, &best), greatest)) {
        *best = Some(value);
    }
}

#[inline]
fn is_better(order: Ordering, greatest: bool) -> bool {
    if greatest { order.is_gt() } else { order.is_lt() }
}

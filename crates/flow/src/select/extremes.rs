//! The least or greatest value of each group, where nothing ever leaves one by one.

use std::cmp::Ordering;

use tidemill_types::FieldType;

use super::sums::Ids;
use crate::batch::Kind;
use crate::column::{Column, Data};
use crate::tiny::prefetch_all;
use crate::value::{Key, Value, order};

/// One value per group.
pub(super) struct Extremes {
    greatest: bool,
    best: Best,
}

enum Best {
    Long(Vec<Option<i64>>),
    Double(Vec<Option<f64>>),
    /// Of any type.
    Any(Vec<Value>),
}

/// Does the same for the values of each type.
macro_rules! each {
    ($best:expr, $v:ident => $do:expr) => {
        match $best {
            Best::Long($v) => $do,
            Best::Double($v) => $do,
            Best::Any($v) => $do,
        }
    };
}

impl Extremes {
    /// Without groups; `ty` is the type of the values.
    pub(super) fn new(ty: FieldType, greatest: bool) -> Self {
        let best = match ty {
            FieldType::Long => Best::Long(vec![]),
            FieldType::Double => Best::Double(vec![]),
            _ => Best::Any(vec![]),
        };
        Self { greatest, best }
    }

    pub(super) fn grow(&mut self, groups: usize) {
        each!(&mut self.best, best => best.resize(groups, Default::default()));
    }

    pub(super) fn reset(&mut self) {
        each!(&mut self.best, best => best.fill(Default::default()));
    }

    pub(super) fn value(&self, group: usize) -> Value {
        match &self.best {
            Best::Long(best) => best[group].map_or(Value::Null, Value::Long),
            Best::Double(best) => best[group].map_or(Value::Null, Value::Double),
            Best::Any(best) => best[group].clone(),
        }
    }

    /// Takes a group's value back. Errors: that it is of another type.
    pub(super) fn set(&mut self, group: usize, value: Value) -> Result<(), ()> {
        match (&mut self.best, value) {
            (Best::Any(best), value) => best[group] = value,
            (Best::Long(best), Value::Null) => best[group] = None,
            (Best::Double(best), Value::Null) => best[group] = None,
            (Best::Long(best), Value::Long(n)) => best[group] = Some(n),
            (Best::Double(best), Value::Double(n)) => best[group] = Some(n),
            _ => return Err(()),
        }
        Ok(())
    }

    /// Asks for the memory of these groups.
    pub(super) fn expect(&self, ids: &[u32]) {
        each!(&self.best, best => prefetch_all(best, ids));
    }

    /// A value arrives.
    pub(super) fn add(&mut self, group: usize, value: &Value) {
        let greatest = self.greatest;
        match (&mut self.best, value) {
            (_, Value::Null) => {}
            (Best::Long(best), value) => {
                let Some(n) = value.as_i64() else { return };
                extend(&mut best[group], n, greatest, i64::cmp);
            }
            (Best::Double(best), value) => {
                let Some(n) = value.as_f64() else { return };
                extend(&mut best[group], n, greatest, |a, b| order(*a, *b));
            }
            (Best::Any(best), value) => {
                let best = &mut best[group];
                let order = || Key(value.clone()).cmp(&Key(best.clone()));
                if best.is_null() || beats(order(), greatest) {
                    *best = value.clone();
                }
            }
        }
    }

    /// Works off many events; returns the value behind each that is `wanted`.
    pub(super) fn run(
        &mut self,
        ty: FieldType,
        ids: Ids<'_>,
        kinds: &[Kind],
        arg: Option<&Column>,
        wanted: impl Fn(Kind) -> bool,
    ) -> Column {
        let plain = arg.filter(|arg| arg.nulls().is_empty() && !kinds.contains(&Kind::Reset));
        let greatest = self.greatest;
        macro_rules! typed {
            ($best:ident, $numbers:ident, $variant:ident, $compare:expr) => {{
                let mut out = Vec::with_capacity(kinds.len());
                for (row, kind) in kinds.iter().enumerate() {
                    let best = &mut $best[ids.get(row)];
                    if *kind == Kind::Current {
                        extend(best, $numbers[row], greatest, $compare);
                    }
                    if wanted(*kind) {
                        out.push(best.unwrap_or_default());
                    }
                }
                Column::of(Data::$variant(out))
            }};
        }
        // where nothing leaves and no value is null, each event has one
        let all = kinds.iter().all(|kind| *kind == Kind::Current);
        match (&mut self.best, plain.filter(|_| all).map(Column::data)) {
            (Best::Long(best), Some(Data::Long(numbers))) => typed!(best, numbers, Long, i64::cmp),
            (Best::Double(best), Some(Data::Double(numbers))) => {
                typed!(best, numbers, Double, |a, b| order(*a, *b))
            }
            _ => {
                let mut out = Column::new(ty);
                for (row, kind) in kinds.iter().enumerate() {
                    match kind {
                        Kind::Reset => {
                            self.reset();
                            continue;
                        }
                        Kind::Current => {
                            self.add(ids.get(row), &arg.map_or(Value::Null, |arg| arg.get(row)));
                        }
                        Kind::Expired => {}
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
fn extend<T: Copy>(best: &mut Option<T>, value: T, greatest: bool, compare: fn(&T, &T) -> Ordering) {
    if best.is_none_or(|best| beats(compare(&value, &best), greatest)) {
        *best = Some(value);
    }
}

#[inline]
fn beats(order: Ordering, greatest: bool) -> bool {
    if greatest { order.is_gt() } else { order.is_lt() }
}

//! Accumulators of a selection: the state of its aggregates, by group.

use std::borrow::Cow;

use bumpalo::Bump;
use serde_json::Value as Json;
use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::OutputEvents;
use super::min_max::MinMaxAccumulator;
use super::sums::{
    AddOrRetract, AggregateInput, AggregateUpdates, GroupIds, accumulate_sums, doubles, longs,
    null_where_empty, update_count, update_float_sum, update_integer_sum, update_sums, update_sums_sliding,
};
use crate::columns::batch::EventKind;
use crate::columns::column::{Column, Data};
use crate::columns::shareable::{BlockVec, Values, each_form};
use crate::columns::value::Value;
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::expr::{RowExpr, RowFrame, RowSource, keep};
use crate::registry::{AggregateCall, Aggregator, AggregatorConstructor, BuiltinAggregate};
use crate::window::EvictionCounts;

/// State of one aggregate for each group, indexed by group id.
///
/// The common aggregates use arrays and process many events in one loop; others are an object per group.
pub(super) enum GroupAccumulators {
    /// Sum of whole numbers, with the count of values.
    IntegerSum(BlockVec<(i64, i64)>),
    /// Sum or mean of doubles, with the count of values.
    FloatSum { sums: BlockVec<(f64, i64)>, mean: bool },
    /// Count of events.
    Count(BlockVec<i64>),
    /// Minimum or maximum where no event expires individually.
    MinMax(MinMaxAccumulator),
    /// Any other aggregate.
    Boxed { make: AggregatorConstructor, states: Vec<Box<dyn Aggregator>> },
}

impl GroupAccumulators {
    /// Creates accumulators without groups. `leaving`: whether events expire individually, not only by
    /// resets.
    pub(super) fn new(call: &AggregateCall, leaving: bool) -> Self {
        match (call.make)().builtin() {
            Some(BuiltinAggregate::IntegerSum) => Self::IntegerSum(BlockVec::default()),
            Some(BuiltinAggregate::FloatSum) => Self::FloatSum { sums: BlockVec::default(), mean: false },
            Some(BuiltinAggregate::Mean) => Self::FloatSum { sums: BlockVec::default(), mean: true },
            Some(BuiltinAggregate::Count) => Self::Count(BlockVec::default()),
            Some(BuiltinAggregate::Min) if !leaving => Self::MinMax(MinMaxAccumulator::new(call.ty, false)),
            Some(BuiltinAggregate::Max) if !leaving => Self::MinMax(MinMaxAccumulator::new(call.ty, true)),
            _ => Self::Boxed { make: call.make.clone(), states: vec![] },
        }
    }

    /// Returns whether the accumulator processes many events in one loop that cannot fail.
    pub(super) fn is_typed(&self) -> bool {
        !matches!(self, Self::Boxed { .. })
    }

    /// Extends the state to `groups` groups.
    pub(super) fn grow(&mut self, groups: usize) {
        match self {
            Self::IntegerSum(sums) => sums.grow(groups, &(0, 0)),
            Self::FloatSum { sums, .. } => sums.grow(groups, &(0.0, 0)),
            Self::Count(counts) => counts.grow(groups, &0),
            Self::MinMax(extremes) => extremes.grow(groups),
            Self::Boxed { make, states } => states.resize_with(groups, || make()),
        }
    }

    /// Resets all groups to their initial state.
    pub(super) fn reset(&mut self) {
        match self {
            Self::IntegerSum(sums) => sums.fill(&(0, 0)),
            Self::FloatSum { sums, .. } => sums.fill(&(0.0, 0)),
            Self::Count(counts) => counts.fill(&0),
            Self::MinMax(extremes) => extremes.reset(),
            Self::Boxed { states, .. } => states.iter_mut().for_each(|s| s.reset()),
        }
    }

    /// Adds one event to its group, or retracts it if it expired. Errors: the aggregate fails.
    pub(super) fn update(&mut self, group: usize, kind: EventKind, args: &[Value]) -> Result<(), EvalError> {
        let leaves = kind == EventKind::Expired;
        match self {
            Self::IntegerSum(sums) => {
                if let Some(n) = args[0].as_i64() {
                    let total = sums.get_mut(group);
                    *total = update_integer_sum(*total, n, leaves);
                }
            }
            Self::FloatSum { sums, .. } => {
                if let Some(n) = args[0].as_f64() {
                    let total = sums.get_mut(group);
                    *total = update_float_sum(*total, n, leaves);
                }
            }
            Self::Count(counts) => {
                let count = counts.get_mut(group);
                *count = update_count(*count, leaves);
            }
            Self::MinMax(_) if leaves => {}
            Self::MinMax(extremes) => extremes.add(group, &args[0]),
            Self::Boxed { states, .. } if leaves => states[group].remove(args)?,
            Self::Boxed { states, .. } => states[group].add(args)?,
        }
        Ok(())
    }

    /// Adds or retracts as [`Self::update`] does; the arguments are those of a single row.
    #[inline]
    pub(super) fn update_by_row<'a, S: RowSource<'a>>(
        &mut self,
        group: usize,
        kind: EventKind,
        args: &'a [RowExpr],
        frame: &RowFrame<'_, 'a, S>,
    ) -> Result<(), EvalError> {
        let leaves = kind == EventKind::Expired;
        match self {
            Self::IntegerSum(sums) => {
                if let Some(n) = args[0].long(frame) {
                    let total = sums.get_mut(group);
                    *total = update_integer_sum(*total, n, leaves);
                }
            }
            Self::FloatSum { sums, .. } => {
                if let Some(n) = args[0].double(frame) {
                    let total = sums.get_mut(group);
                    *total = update_float_sum(*total, n, leaves);
                }
            }
            Self::Count(counts) => {
                let count = counts.get_mut(group);
                *count = update_count(*count, leaves);
            }
            Self::MinMax(_) if leaves => {}
            Self::MinMax(extremes) => extremes.add_ref(group, &args[0].value(frame)),
            Self::Boxed { states, .. } => {
                let args: SmallVec<[Value; 2]> = args.iter().map(|arg| arg.value(frame).to_value()).collect();
                match leaves {
                    true => states[group].remove(&args)?,
                    false => states[group].add(&args)?,
                }
            }
        }
        Ok(())
    }

    /// Returns the value of a group after a current event as [`Self::value_after`] does; a string is copied into
    /// `arena`. `is_null` returns whether the argument was null.
    #[inline]
    pub(super) fn value_after_row<'a>(
        &self,
        group: usize,
        is_null: impl FnOnce() -> bool,
        arena: &'a Bump,
    ) -> ValueRef<'a> {
        match self {
            Self::IntegerSum(sums) => match *sums.get(group) {
                (_, 0) if is_null() => ValueRef::Null,
                (sum, _) => ValueRef::Long(sum),
            },
            Self::FloatSum { sums, mean: false } => match *sums.get(group) {
                (_, 0) if is_null() => ValueRef::Null,
                (sum, _) => ValueRef::Double(sum),
            },
            Self::FloatSum { sums, mean: true } => match *sums.get(group) {
                (_, 0) => ValueRef::Null,
                (sum, count) => ValueRef::Double(sum / count as f64),
            },
            Self::Count(counts) => ValueRef::Long(*counts.get(group)),
            Self::MinMax(extremes) => keep(&extremes.value_ref(group), arena),
            Self::Boxed { states, .. } => keep(&states[group].value().borrowed(), arena),
        }
    }

    /// Returns the value of a group.
    pub(super) fn value(&self, group: usize) -> Value {
        match self {
            Self::IntegerSum(sums) => match *sums.get(group) {
                (_, 0) => Value::Null,
                (sum, _) => Value::Long(sum),
            },
            Self::FloatSum { sums, mean } => match *sums.get(group) {
                (_, 0) => Value::Null,
                (sum, count) => Value::Double(if *mean { sum / count as f64 } else { sum }),
            },
            Self::Count(counts) => Value::Long(*counts.get(group)),
            Self::MinMax(extremes) => extremes.value(group),
            Self::Boxed { states, .. } => states[group].value(),
        }
    }

    /// Returns the value of a group after an event. Differs from [`Self::value`] for a sum: after a value was
    /// added it is not null, even if the count is zero because as many values were retracted before.
    pub(super) fn value_after(&self, group: usize, kind: EventKind, arg: Option<&Value>) -> Value {
        let is_added = kind == EventKind::Current && arg.is_some_and(|arg| !arg.is_null());
        match self {
            Self::IntegerSum(sums) if is_added => Value::Long(sums.get(group).0),
            Self::FloatSum { sums, mean: false } if is_added => Value::Double(sums.get(group).0),
            _ => self.value(group),
        }
    }

    /// Adds `count` arriving events without computing the values between them. Only for typed accumulators:
    /// see [`Self::is_typed`].
    pub(super) fn accumulate(&mut self, ids: GroupIds<'_>, arg: Option<&Column>, count: usize) {
        match (self, arg) {
            (Self::IntegerSum(sums), Some(arg)) => {
                let numbers = (&*longs(arg), arg.nulls());
                each_form!(sums, sums => accumulate_sums(sums, ids, numbers, update_integer_sum));
            }
            (Self::FloatSum { sums, .. }, Some(arg)) => {
                let numbers = (&*doubles(arg), arg.nulls());
                each_form!(sums, sums => accumulate_sums(sums, ids, numbers, update_float_sum));
            }
            (Self::Count(counts), _) => {
                each_form!(counts, counts => (0..count).for_each(|row| *counts.at(ids.get(row)) += 1));
            }
            (total, arg) => {
                for row in 0..count {
                    let arg = arg.map(|arg| arg.get(row));
                    // typed accumulators do not fail
                    total.update(ids.get(row), EventKind::Current, arg.as_slice()).ok();
                }
            }
        }
    }

    /// Returns the values of groups.
    pub(super) fn values(&self, ty: FieldType, groups: &[u32]) -> Column {
        let of = |group: &u32| *group as usize;
        match self {
            Self::IntegerSum(sums) => {
                null_where_empty(groups.iter().map(|g| *sums.get(of(g)))).into_column(Data::Long)
            }
            Self::FloatSum { sums, mean } => {
                let value = |(sum, count): (f64, i64)| (if *mean { sum / count as f64 } else { sum }, count);
                null_where_empty(groups.iter().map(|g| value(*sums.get(of(g))))).into_column(Data::Double)
            }
            Self::Count(counts) => {
                Column::of(Data::Long(groups.iter().map(|g| *counts.get(of(g))).collect()))
            }
            Self::MinMax(_) | Self::Boxed { .. } => {
                let mut out = Column::new(ty);
                groups.iter().for_each(|group| out.push(self.value(of(group))));
                out
            }
        }
    }

    /// Prefetches the state of these groups if there are so many groups that it may not be in the cache.
    fn prefetch(&self, ids: &[u32]) {
        match self {
            Self::IntegerSum(sums) => sums.prefetch_all(ids),
            Self::FloatSum { sums, .. } => sums.prefetch_all(ids),
            Self::Count(counts) => counts.prefetch_all(ids),
            Self::MinMax(extremes) => extremes.prefetch(ids),
            Self::Boxed { .. } => {}
        }
    }

    /// Processes many events and returns the value after each wanted one. Only for typed accumulators: see
    /// [`Self::is_typed`].
    pub(super) fn update_batch(
        &mut self,
        ty: FieldType,
        ids: GroupIds<'_>,
        kinds: &[EventKind],
        args: &[Column],
        wanted: OutputEvents,
    ) -> Column {
        if let GroupIds::Many(ids) = ids {
            self.prefetch(ids);
        }
        let arg = args.first();
        let all = wanted.current && kinds.iter().all(|kind| *kind == EventKind::Current);
        let rows = AggregateInput { ids, kinds, all, wanted };
        match self {
            Self::IntegerSum(sums) => {
                let numbers = arg.map_or_else(Cow::default, longs);
                let nulls = arg.map_or(&[][..], Column::nulls);
                let out = each_form!(sums, sums => {
                    update_sums(sums, rows, (&numbers, nulls), (update_integer_sum, |sum, _| sum, true))
                });
                out.into_column(Data::Long)
            }
            Self::FloatSum { sums, mean } => {
                let numbers = arg.map_or_else(Cow::default, doubles);
                let nulls = arg.map_or(&[][..], Column::nulls);
                let value = |sum: f64, count: i64| if *mean { sum / count as f64 } else { sum };
                let out = each_form!(sums, sums => {
                    update_sums(sums, rows, (&numbers, nulls), (update_float_sum, value, !*mean))
                });
                out.into_column(Data::Double)
            }
            Self::Count(counts) if all => {
                let values = each_form!(counts, counts => {
                    let count = |row: usize| {
                        let count = counts.at(ids.get(row));
                        *count += 1;
                        *count
                    };
                    (0..kinds.len()).map(count).collect()
                });
                Column::of(Data::Long(values))
            }
            Self::Count(counts) => {
                let mut values = Vec::with_capacity(kinds.len());
                for (row, kind) in kinds.iter().enumerate() {
                    if *kind == EventKind::Reset {
                        counts.fill(&0);
                        continue;
                    }
                    let count = counts.get_mut(ids.get(row));
                    *count = update_count(*count, *kind == EventKind::Expired);
                    if wanted.has(*kind) {
                        values.push(*count);
                    }
                }
                Column::of(Data::Long(values))
            }
            Self::MinMax(extremes) => extremes.update_batch(ty, ids, kinds, arg, |kind| wanted.has(kind)),
            Self::Boxed { .. } => {
                let mut out = Column::new(ty);
                for (row, kind) in kinds.iter().enumerate() {
                    if *kind == EventKind::Reset {
                        self.reset();
                        continue;
                    }
                    let g = ids.get(row);
                    let args: smallvec::SmallVec<[Value; 2]> = args.iter().map(|a| a.get(row)).collect();
                    // typed accumulators do not fail
                    self.update(g, *kind, &args).ok();
                    if wanted.has(*kind) {
                        out.push(self.value(g));
                    }
                }
                out
            }
        }
    }

    /// Adds the arriving events, retracts the evicted ones in between, and returns the value after each
    /// arrival. Only for typed accumulators: see [`Self::is_typed`].
    pub(super) fn update_sliding(
        &mut self,
        ty: FieldType,
        slide: &EvictionCounts,
        new: &AggregateUpdates<'_>,
        old: &AggregateUpdates<'_>,
    ) -> Column {
        self.prefetch(new.ids);
        self.prefetch(old.ids);
        match self {
            Self::IntegerSum(sums) => {
                let (arriving, leaving) = (new.numbers(longs), old.numbers(longs));
                let (new, old) = ((new, &*arriving), (old, &*leaving));
                let out = each_form!(sums, sums => {
                    update_sums_sliding(sums, slide, new, old, update_integer_sum, |sum, _| sum)
                });
                out.into_column(Data::Long)
            }
            Self::FloatSum { sums, mean } => {
                let (arriving, leaving) = (new.numbers(doubles), old.numbers(doubles));
                let value = |sum: f64, count: i64| if *mean { sum / count as f64 } else { sum };
                let (new, old) = ((new, &*arriving), (old, &*leaving));
                let out = each_form!(sums, sums => {
                    update_sums_sliding(sums, slide, new, old, update_float_sum, value)
                });
                out.into_column(Data::Double)
            }
            Self::Count(counts) => {
                let mut out = Vec::with_capacity(slide.before.len());
                slide.for_each_step(|step| match step {
                    AddOrRetract::Retract(row) => {
                        let count = counts.get_mut(old.ids[row] as usize);
                        *count = update_count(*count, true);
                    }
                    AddOrRetract::Add(row) => {
                        let count = counts.get_mut(new.ids[row] as usize);
                        *count = update_count(*count, false);
                        out.push(*count);
                    }
                });
                Column::of(Data::Long(out))
            }
            Self::MinMax(_) | Self::Boxed { .. } => {
                let mut out = Column::new(ty);
                slide.for_each_step(|step| {
                    let (of, row, kind) = match step {
                        AddOrRetract::Retract(row) => (old, row, EventKind::Expired),
                        AddOrRetract::Add(row) => (new, row, EventKind::Current),
                    };
                    let arg = of.arg.as_ref().map(|arg| arg.get(row));
                    // typed accumulators do not fail
                    let g = of.ids[row] as usize;
                    self.update(g, kind, arg.as_slice()).ok();
                    if kind == EventKind::Current {
                        out.push(self.value(g));
                    }
                });
                out
            }
        }
    }

    /// Lets [`Self::frozen`] share the state.
    pub(super) fn share(&mut self) {
        match self {
            Self::IntegerSum(sums) => sums.share(),
            Self::FloatSum { sums, .. } => sums.share(),
            Self::Count(counts) => counts.share(),
            Self::MinMax(extremes) => extremes.share(),
            Self::Boxed { .. } => {}
        }
    }

    /// Returns the state of all groups, to be saved later; `None` if it has to be saved now.
    pub(super) fn frozen(&self) -> Option<Self> {
        Some(match self {
            Self::IntegerSum(sums) => Self::IntegerSum(sums.clone()),
            Self::FloatSum { sums, mean } => Self::FloatSum { sums: sums.clone(), mean: *mean },
            Self::Count(counts) => Self::Count(counts.clone()),
            Self::MinMax(extremes) => Self::MinMax(extremes.clone()),
            Self::Boxed { .. } => return None,
        })
    }

    /// Returns the state of a group in the format of the aggregate's own [`Aggregator::save`].
    pub(super) fn save(&self, group: usize) -> Json {
        match self {
            Self::IntegerSum(sums) => serde_json::json!(sums.get(group)),
            Self::FloatSum { sums, .. } => {
                let (sum, count) = sums.get(group);
                serde_json::json!([sum.to_bits(), count])
            }
            Self::Count(counts) => serde_json::json!(counts.get(group)),
            Self::MinMax(extremes) => crate::aggregators::state::encode(&extremes.value(group)),
            Self::Boxed { states, .. } => states[group].save(),
        }
    }

    /// Restores the saved state of a group.
    pub(super) fn restore(&mut self, group: usize, state: &Json) -> Result<(), EvalError> {
        let wrong = || EvalError::state("the saved state does not match this aggregate");
        let pair = || Some((state.get(0)?, state.get(1)?.as_i64()?));
        match self {
            Self::IntegerSum(sums) => {
                let (sum, count) = pair().ok_or_else(wrong)?;
                *sums.get_mut(group) = (sum.as_i64().ok_or_else(wrong)?, count);
            }
            Self::FloatSum { sums, .. } => {
                let (sum, count) = pair().ok_or_else(wrong)?;
                *sums.get_mut(group) = (f64::from_bits(sum.as_u64().ok_or_else(wrong)?), count);
            }
            Self::Count(counts) => *counts.get_mut(group) = state.as_i64().ok_or_else(wrong)?,
            Self::MinMax(extremes) => {
                let value = crate::aggregators::state::decode(state).ok_or_else(wrong)?;
                extremes.set(group, value).map_err(|()| wrong())?;
            }
            Self::Boxed { states, .. } => states[group].restore(state)?,
        }
        Ok(())
    }
}

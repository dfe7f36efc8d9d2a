//! What the aggregates of a selection hold, for all groups.

use std::borrow::Cow;

use serde_json::Value as Json;
use tidemill_types::FieldType;

use super::Wanted;
use super::extremes::Extremes;
use super::sums::{
    Ids, Passing, Rows, Step, counted, decimal, doubles, longs, run_sums, slide_sums, take_sums, values,
    whole,
};
use crate::batch::Kind;
use crate::column::{Column, Data};
use crate::expr::{AggregateCall, Failure};
use crate::registry::{Aggregator, MakeAggregator, Total};
use crate::tiny::prefetch_all;
use crate::value::Value;
use crate::window::Slide;

/// One aggregate's state for each group, by the group's number.
///
/// The common ones are kept in arrays and computed for many events in one loop; any other is an object per group.
pub(super) enum Totals {
    /// A sum of whole numbers.
    Whole(Vec<(i64, i64)>),
    /// A sum or mean of numbers as doubles.
    Decimal { sums: Vec<(f64, i64)>, mean: bool },
    /// A count of events.
    Count(Vec<i64>),
    /// The least or greatest, where nothing ever leaves one by one.
    Extreme(Extremes),
    /// Anything else.
    Each { make: MakeAggregator, states: Vec<Box<dyn Aggregator>> },
}

impl Totals {
    /// Without groups. `leaving` tells whether events leave one by one.
    pub(super) fn new(call: &AggregateCall, leaving: bool) -> Self {
        match (call.make)().total() {
            Some(Total::WholeSum) => Self::Whole(vec![]),
            Some(Total::Sum) => Self::Decimal { sums: vec![], mean: false },
            Some(Total::Mean) => Self::Decimal { sums: vec![], mean: true },
            Some(Total::Count) => Self::Count(vec![]),
            Some(Total::Least) if !leaving => Self::Extreme(Extremes::new(call.ty, false)),
            Some(Total::Greatest) if !leaving => Self::Extreme(Extremes::new(call.ty, true)),
            _ => Self::Each { make: call.make.clone(), states: vec![] },
        }
    }

    /// Whether many events are computed in one loop that cannot fail.
    pub(super) fn is_typed(&self) -> bool {
        !matches!(self, Self::Each { .. })
    }

    /// There are so many groups now.
    pub(super) fn grow(&mut self, groups: usize) {
        match self {
            Self::Whole(sums) => sums.resize(groups, (0, 0)),
            Self::Decimal { sums, .. } => sums.resize(groups, (0.0, 0)),
            Self::Count(counts) => counts.resize(groups, 0),
            Self::Extreme(extremes) => extremes.grow(groups),
            Self::Each { make, states } => states.resize_with(groups, || make()),
        }
    }

    /// Everything left at once.
    pub(super) fn reset(&mut self) {
        match self {
            Self::Whole(sums) => sums.fill((0, 0)),
            Self::Decimal { sums, .. } => sums.fill((0.0, 0)),
            Self::Count(counts) => counts.fill(0),
            Self::Extreme(extremes) => extremes.reset(),
            Self::Each { states, .. } => states.iter_mut().for_each(|s| s.reset()),
        }
    }

    /// One event arrives at its group or leaves it. Errors: why it cannot be worked off.
    pub(super) fn work(&mut self, group: usize, kind: Kind, args: &[Value]) -> Result<(), Failure> {
        let leaves = kind == Kind::Expired;
        match self {
            Self::Whole(sums) => {
                if let Some(n) = args[0].as_i64() {
                    sums[group] = whole(sums[group], n, leaves);
                }
            }
            Self::Decimal { sums, .. } => {
                if let Some(n) = args[0].as_f64() {
                    sums[group] = decimal(sums[group], n, leaves);
                }
            }
            Self::Count(counts) => counts[group] = counted(counts[group], leaves),
            Self::Extreme(_) if leaves => {}
            Self::Extreme(extremes) => extremes.add(group, &args[0]),
            Self::Each { states, .. } if leaves => states[group].remove(args)?,
            Self::Each { states, .. } => states[group].add(args)?,
        }
        Ok(())
    }

    /// The value of a group.
    pub(super) fn value(&self, group: usize) -> Value {
        match self {
            Self::Whole(sums) => match sums[group] {
                (_, 0) => Value::Null,
                (sum, _) => Value::Long(sum),
            },
            Self::Decimal { sums, mean } => match sums[group] {
                (_, 0) => Value::Null,
                (sum, count) => Value::Double(if *mean { sum / count as f64 } else { sum }),
            },
            Self::Count(counts) => Value::Long(counts[group]),
            Self::Extreme(extremes) => extremes.value(group),
            Self::Each { states, .. } => states[group].value(),
        }
    }

    /// The same behind an event: a sum to which something was added is never null, also when as much had left before.
    pub(super) fn value_behind(&self, group: usize, kind: Kind, arg: Option<&Value>) -> Value {
        let is_added = kind == Kind::Current && arg.is_some_and(|arg| !arg.is_null());
        match self {
            Self::Whole(sums) if is_added => Value::Long(sums[group].0),
            Self::Decimal { sums, mean: false } if is_added => Value::Double(sums[group].0),
            _ => self.value(group),
        }
    }

    /// Works off `count` events that arrive, with nobody who looks at the values between them. Only for typed ones: see
    /// [`Self::is_typed`].
    pub(super) fn take(&mut self, ids: Ids<'_>, arg: Option<&Column>, count: usize) {
        match (self, arg) {
            (Self::Whole(sums), Some(arg)) => take_sums(sums, ids, (&longs(arg), arg.nulls()), whole),
            (Self::Decimal { sums, .. }, Some(arg)) => {
                take_sums(sums, ids, (&doubles(arg), arg.nulls()), decimal);
            }
            (Self::Count(counts), _) => (0..count).for_each(|row| counts[ids.get(row)] += 1),
            (total, arg) => {
                for row in 0..count {
                    let arg = arg.map(|arg| arg.get(row));
                    // typed ones do not fail
                    total.work(ids.get(row), Kind::Current, arg.as_slice()).ok();
                }
            }
        }
    }

    /// The values of groups.
    pub(super) fn values(&self, ty: FieldType, groups: &[u32]) -> Column {
        let of = |group: &u32| *group as usize;
        match self {
            Self::Whole(sums) => values(groups.iter().map(|g| sums[of(g)])).into_column(Data::Long),
            Self::Decimal { sums, mean } => {
                let value = |(sum, count): (f64, i64)| (if *mean { sum / count as f64 } else { sum }, count);
                values(groups.iter().map(|g| value(sums[of(g)]))).into_column(Data::Double)
            }
            Self::Count(counts) => Column::of(Data::Long(groups.iter().map(|g| counts[of(g)]).collect())),
            Self::Extreme(_) | Self::Each { .. } => {
                let mut out = Column::new(ty);
                groups.iter().for_each(|group| out.push(self.value(of(group))));
                out
            }
        }
    }

    /// Asks for the memory of these groups, where there are so many that it may be far away.
    fn expect(&self, ids: &[u32]) {
        match self {
            Self::Whole(sums) => prefetch_all(sums, ids),
            Self::Decimal { sums, .. } => prefetch_all(sums, ids),
            Self::Count(counts) => prefetch_all(counts, ids),
            Self::Extreme(extremes) => extremes.expect(ids),
            Self::Each { .. } => {}
        }
    }

    /// Works off many events; returns the value behind each that is wanted. Only for typed ones: see
    /// [`Self::is_typed`].
    pub(super) fn run(
        &mut self,
        ty: FieldType,
        ids: Ids<'_>,
        kinds: &[Kind],
        args: &[Column],
        wanted: Wanted,
    ) -> Column {
        if let Ids::Many(ids) = ids {
            self.expect(ids);
        }
        let arg = args.first();
        let all = wanted.current && kinds.iter().all(|kind| *kind == Kind::Current);
        let rows = Rows { ids, kinds, all, wanted };
        match self {
            Self::Whole(sums) => {
                let numbers = arg.map_or_else(Cow::default, longs);
                let nulls = arg.map_or(&[][..], Column::nulls);
                let out = run_sums(sums, rows, (&numbers, nulls), (whole, |sum, _| sum, true));
                out.into_column(Data::Long)
            }
            Self::Decimal { sums, mean } => {
                let numbers = arg.map_or_else(Cow::default, doubles);
                let nulls = arg.map_or(&[][..], Column::nulls);
                let value = |sum: f64, count: i64| if *mean { sum / count as f64 } else { sum };
                let out = run_sums(sums, rows, (&numbers, nulls), (decimal, value, !*mean));
                out.into_column(Data::Double)
            }
            Self::Count(counts) if all => {
                let count = |row: usize| {
                    let count = &mut counts[ids.get(row)];
                    *count += 1;
                    *count
                };
                Column::of(Data::Long((0..kinds.len()).map(count).collect()))
            }
            Self::Count(counts) => {
                let mut values = Vec::with_capacity(kinds.len());
                for (row, kind) in kinds.iter().enumerate() {
                    if *kind == Kind::Reset {
                        counts.fill(0);
                        continue;
                    }
                    let g = ids.get(row);
                    counts[g] = counted(counts[g], *kind == Kind::Expired);
                    if wanted.has(*kind) {
                        values.push(counts[g]);
                    }
                }
                Column::of(Data::Long(values))
            }
            Self::Extreme(extremes) => extremes.run(ty, ids, kinds, arg, |kind| wanted.has(kind)),
            Self::Each { .. } => {
                let mut out = Column::new(ty);
                for (row, kind) in kinds.iter().enumerate() {
                    if *kind == Kind::Reset {
                        self.reset();
                        continue;
                    }
                    let g = ids.get(row);
                    let args: smallvec::SmallVec<[Value; 2]> = args.iter().map(|a| a.get(row)).collect();
                    // typed ones do not fail
                    self.work(g, *kind, &args).ok();
                    if wanted.has(*kind) {
                        out.push(self.value(g));
                    }
                }
                out
            }
        }
    }

    /// Works off events that arrive, and those that leave between them; returns the value behind each arrival. Only for
    /// typed ones: see [`Self::is_typed`].
    pub(super) fn slide(
        &mut self,
        ty: FieldType,
        slide: &Slide,
        new: &Passing<'_>,
        old: &Passing<'_>,
    ) -> Column {
        self.expect(new.ids);
        self.expect(old.ids);
        match self {
            Self::Whole(sums) => {
                let (arriving, leaving) = (new.numbers(longs), old.numbers(longs));
                let out = slide_sums(sums, slide, (new, &arriving), (old, &leaving), whole, |sum, _| sum);
                out.into_column(Data::Long)
            }
            Self::Decimal { sums, mean } => {
                let (arriving, leaving) = (new.numbers(doubles), old.numbers(doubles));
                let value = |sum: f64, count: i64| if *mean { sum / count as f64 } else { sum };
                let out = slide_sums(sums, slide, (new, &arriving), (old, &leaving), decimal, value);
                out.into_column(Data::Double)
            }
            Self::Count(counts) => {
                let mut out = Vec::with_capacity(slide.before.len());
                slide.each(|step| match step {
                    Step::Leaves(row) => {
                        let g = old.ids[row] as usize;
                        counts[g] = counted(counts[g], true);
                    }
                    Step::Arrives(row) => {
                        let g = new.ids[row] as usize;
                        counts[g] = counted(counts[g], false);
                        out.push(counts[g]);
                    }
                });
                Column::of(Data::Long(out))
            }
            Self::Extreme(_) | Self::Each { .. } => {
                let mut out = Column::new(ty);
                slide.each(|step| {
                    let (of, row, kind) = match step {
                        Step::Leaves(row) => (old, row, Kind::Expired),
                        Step::Arrives(row) => (new, row, Kind::Current),
                    };
                    let arg = of.arg.as_ref().map(|arg| arg.get(row));
                    // typed ones do not fail
                    let g = of.ids[row] as usize;
                    self.work(g, kind, arg.as_slice()).ok();
                    if kind == Kind::Current {
                        out.push(self.value(g));
                    }
                });
                out
            }
        }
    }

    /// The state of a group, as the aggregate itself would save it.
    pub(super) fn save(&self, group: usize) -> Json {
        match self {
            Self::Whole(sums) => serde_json::json!([sums[group].0, sums[group].1]),
            Self::Decimal { sums, .. } => serde_json::json!([sums[group].0.to_bits(), sums[group].1]),
            Self::Count(counts) => serde_json::json!(counts[group]),
            Self::Extreme(extremes) => crate::aggregators::state::encode(&extremes.value(group)),
            Self::Each { states, .. } => states[group].save(),
        }
    }

    /// Takes the saved state of a group back.
    pub(super) fn restore(&mut self, group: usize, state: &Json) -> Result<(), Failure> {
        let wrong = || Failure("the saved state is not one of this aggregate".into());
        let pair = || Some((state.get(0)?, state.get(1)?.as_i64()?));
        match self {
            Self::Whole(sums) => {
                let (sum, count) = pair().ok_or_else(wrong)?;
                sums[group] = (sum.as_i64().ok_or_else(wrong)?, count);
            }
            Self::Decimal { sums, .. } => {
                let (sum, count) = pair().ok_or_else(wrong)?;
                sums[group] = (f64::from_bits(sum.as_u64().ok_or_else(wrong)?), count);
            }
            Self::Count(counts) => counts[group] = state.as_i64().ok_or_else(wrong)?,
            Self::Extreme(extremes) => {
                let value = crate::aggregators::state::decode(state).ok_or_else(wrong)?;
                extremes.set(group, value).map_err(|()| wrong())?;
            }
            Self::Each { states, .. } => states[group].restore(state)?,
        }
        Ok(())
    }
}

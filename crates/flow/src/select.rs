//! The select clause: what of a chunk comes out.
//!
//! | | comes out of a chunk |
//! | --- | --- |
//! | no aggregates, no group by | every event |
//! | aggregates | the last event |
//! | group by | the last event of each group |
//!
//! of those of a wanted kind that pass `having`.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use tidemill_types::FieldType;

use crate::batch::{Batch, Kind};
use crate::column::Column;
use crate::expr::{AggregateCall, Expr, Failure, Frame, Host};
use crate::registry::Aggregator;
use crate::value::Value;

/// The slot of the input row in the expressions of a selection.
pub const INPUT: usize = 0;
/// The slot of the values of its aggregates.
pub const AGGREGATES: usize = 1;
/// The slot of the output row, in `having`.
pub const OUTPUT: usize = 2;

/// Which events a query is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Those that arrived.
    pub current: bool,
    /// Those that left.
    pub expired: bool,
}

impl Wanted {
    fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Current => self.current,
            Kind::Expired => self.expired,
            Kind::Reset => false,
        }
    }
}

/// A compiled select clause.
#[derive(Clone)]
pub struct Plan {
    /// Name and value of each output column.
    pub items: Vec<(String, Expr)>,
    /// The aggregates in items and `having`.
    pub aggregates: Vec<AggregateCall>,
    /// What makes a group.
    pub group_by: Vec<Expr>,
    /// What an output must satisfy.
    pub having: Option<Expr>,
    /// Output columns to sort by, and whether downwards.
    pub order_by: Vec<(usize, bool)>,
    /// How many outputs of an emission are left out first.
    pub offset: usize,
    /// How many come out at most.
    pub limit: Option<usize>,
    /// Which events come out.
    pub wanted: Wanted,
    /// Every event comes out, whatever there are of aggregates and groups.
    pub every_event: bool,
}

impl Plan {
    /// The types of the output columns.
    pub fn types(&self) -> Vec<FieldType> {
        self.items.iter().map(|(_, expr)| expr.ty).collect()
    }
}

/// What the aggregates of a selection have seen.
pub struct Selector {
    plan: Arc<Plan>,
    /// The aggregates' states by group.
    groups: HashMap<String, Vec<Box<dyn Aggregator>>>,
    values: Vec<Column>,
}

/// An output that may come out of a chunk.
struct Candidate {
    row: Vec<Value>,
    kind: Kind,
    time: i64,
    group: String,
}

impl Selector {
    /// A selection that has seen nothing.
    pub fn new(plan: impl Into<Arc<Plan>>) -> Self {
        let plan = plan.into();
        let values = plan.aggregates.iter().map(|a| Column::new(a.ty)).collect();
        Self { plan, groups: HashMap::new(), values }
    }

    /// The compiled clause.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What comes out of each chunk of `input`, as a chunk; chunks of which nothing comes out are left out.
    ///
    /// Errors: the first failure of an expression; what was worked in before stays.
    pub fn process(&mut self, input: &Batch, host: &dyn Host) -> Result<Batch, Failure> {
        let mut out = Batch::new(self.plan.types());
        for (rows, clock) in input.chunks() {
            let candidates = self.chunk(input, rows, clock, host)?;
            for candidate in self.arrange(candidates) {
                for (column, value) in out.columns.iter_mut().zip(candidate.row) {
                    column.push(value);
                }
                out.times.push(candidate.time);
                out.kinds.push(candidate.kind);
                if !self.plan.group_by.is_empty() {
                    out.groups.push(candidate.group);
                }
            }
            out.end_chunk(clock);
        }
        Ok(out)
    }

    fn chunk(
        &mut self,
        input: &Batch,
        rows: std::ops::Range<usize>,
        clock: i64,
        host: &dyn Host,
    ) -> Result<Vec<Candidate>, Failure> {
        let grouped = !self.plan.group_by.is_empty();
        let last_only = !self.plan.every_event && (grouped || !self.plan.aggregates.is_empty());
        let mut found: Vec<Candidate> = Vec::new();
        // the place of each group's candidate
        let mut places: HashMap<String, usize> = HashMap::new();
        for row in rows {
            let (kind, time) = (input.kinds[row], input.times[row]);
            if kind == Kind::Reset {
                self.groups.values_mut().flatten().for_each(|a| a.reset());
                continue;
            }
            let source = Some((input.columns.as_slice(), row));
            let frame = Frame { rows: &[source], time, now: clock, host };
            let group = group_key(&self.plan.group_by, &frame)?;
            self.aggregate(&group, kind, &frame)?;
            if !self.plan.wanted.has(kind) {
                continue;
            }
            let aggregates = Some((self.values.as_slice(), 0));
            let frame = Frame { rows: &[source, aggregates], time, now: clock, host };
            let values =
                self.plan.items.iter().map(|(_, x)| x.eval(&frame)).collect::<Result<Vec<_>, _>>()?;
            if let Some(having) = &self.plan.having {
                let output = one_row(&self.plan.items, &values);
                let frame = Frame { rows: &[source, aggregates, Some((&output, 0))], time, now: clock, host };
                if !having.is_true(&frame)? {
                    continue;
                }
            }
            let candidate = Candidate { row: values, kind, time, group };
            if !last_only {
                found.push(candidate);
            } else if let Some(place) = places.get(&candidate.group) {
                found[*place] = candidate;
            } else {
                places.insert(candidate.group.clone(), found.len());
                found.push(candidate);
            }
        }
        Ok(found)
    }

    /// Works an event into the aggregates of its group and reads their values.
    fn aggregate(&mut self, group: &str, kind: Kind, frame: &Frame<'_>) -> Result<(), Failure> {
        if self.plan.aggregates.is_empty() {
            return Ok(());
        }
        if !self.groups.contains_key(group) {
            let made = self.plan.aggregates.iter().map(|a| (a.make)()).collect();
            self.groups.insert(group.to_owned(), made);
        }
        let states = self.groups.get_mut(group).expect("inserted above");
        for ((state, call), value) in states.iter_mut().zip(&self.plan.aggregates).zip(&mut self.values) {
            let args = call.args.iter().map(|a| a.eval(frame)).collect::<Result<Vec<_>, _>>()?;
            match kind {
                Kind::Expired => state.remove(&args)?,
                _ => state.add(&args)?,
            }
            value.truncate(0);
            value.push(state.value());
        }
        Ok(())
    }

    /// Order, offset and limit of one emission.
    fn arrange(&self, mut found: Vec<Candidate>) -> Vec<Candidate> {
        let plan = &self.plan;
        if !plan.order_by.is_empty() {
            // runs of current and of expired events are sorted apart
            for run in found.chunk_by_mut(|a, b| a.kind == b.kind) {
                run.sort_by(|a, b| order(&plan.order_by, &a.row, &b.row));
            }
        }
        if plan.offset > 0 {
            found.drain(..plan.offset.min(found.len()));
        }
        found.truncate(plan.limit.unwrap_or(usize::MAX));
        found
    }

    /// The states of the aggregates by group.
    pub fn save(&self) -> serde_json::Value {
        let groups = self.groups.iter().map(|(group, states)| {
            let states: Vec<_> = states.iter().map(|s| s.save()).collect();
            (group.clone(), serde_json::Value::Array(states))
        });
        serde_json::Value::Object(groups.collect())
    }

    /// Takes saved states back.
    pub fn restore(&mut self, state: &serde_json::Value) -> Result<(), Failure> {
        let wrong = || Failure("no state of a selection".into());
        self.groups.clear();
        for (group, saved) in state.as_object().ok_or_else(wrong)? {
            let mut states: Vec<Box<dyn Aggregator>> =
                self.plan.aggregates.iter().map(|a| (a.make)()).collect();
            let saved = saved.as_array().filter(|s| s.len() == states.len()).ok_or_else(wrong)?;
            for (state, saved) in states.iter_mut().zip(saved) {
                state.restore(saved)?;
            }
            self.groups.insert(group.clone(), states);
        }
        Ok(())
    }
}

/// The text of the values, one behind the other.
pub fn group_key(group_by: &[Expr], frame: &Frame<'_>) -> Result<String, Failure> {
    let mut key = String::new();
    for (i, expr) in group_by.iter().enumerate() {
        if i > 0 {
            key.push('\u{1f}');
        }
        key.push_str(&expr.eval(frame)?.to_string());
    }
    Ok(key)
}

fn one_row(items: &[(String, Expr)], values: &[Value]) -> Vec<Column> {
    let columns = items.iter().zip(values).map(|((_, expr), value)| {
        let mut column = Column::new(expr.ty);
        column.push(value.clone());
        column
    });
    columns.collect()
}

/// Nulls last, upwards and downwards.
fn order(by: &[(usize, bool)], a: &[Value], b: &[Value]) -> Ordering {
    for (column, down) in by {
        let (x, y) = (&a[*column], &b[*column]);
        let ordering = match (x.is_null(), y.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if *down => compare(y, x),
            (false, false) => compare(x, y),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    Ordering::Equal
}

/// Texts by UTF-16 code units, false before true, numbers by value.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => a.encode_utf16().cmp(b.encode_utf16()),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        _ => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or(f64::NAN).total_cmp(&b.as_f64().unwrap_or(f64::NAN)),
        },
    }
}

//! Sorts the conditions on the rows of an event table: those on time, on the key, and the others.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::base::Base;
use crate::hot::column::physical;
use crate::hot::scan::{HotSelection, TimeRange};
use crate::time_cast::without_time_cast;

/// Selected rows of an event table.
pub(super) struct Selected {
    pub selection: HotSelection,
    /// Condition that reads other columns than time and key.
    pub rows: Option<Expr>,
}

impl Selected {
    /// Returns the rows that satisfy the conditions of `base`.
    pub fn of(base: &Base<'_>) -> Option<Self> {
        let mut selection = HotSelection { times: TimeRange::ALL, keys: None, by_time_field: false };
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for condition in &base.conditions {
            if condition.is_volatile() {
                return None;
            }
            if let Some((bound, by_field)) = time_bound(base, condition) {
                selection.times.from = selection.times.from.max(bound.from);
                selection.times.last = selection.times.last.min(bound.last);
                selection.by_time_field |= by_field;
            } else if is_of_key(base, condition) {
                keys.push(condition.clone());
            } else {
                rows.push(condition.clone());
            }
        }
        if let (Some(condition), Some(key)) = (conjunction(keys), base.source.roles.key) {
            let schema = std::sync::Arc::new(base.source.schema.project(&[key]).ok()?);
            selection.keys = Some(physical(&condition, &schema)?);
        }
        Some(Self { selection, rows: conjunction(rows) })
    }
}

fn is_of_key(base: &Base<'_>, condition: &Expr) -> bool {
    let columns = condition.column_refs();
    columns.len() == 1 && columns.into_iter().all(|c| base.is_key(&Expr::Column(c.clone())))
}

/// Returns the times for which `condition` is true if it compares the time with a constant, and whether it names the
/// declared time field.
fn time_bound(base: &Base<'_>, condition: &Expr) -> Option<(TimeRange, bool)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let (time, op, constant) = match (left.as_ref(), right.as_ref()) {
        (time, Expr::Literal(constant, _)) => (time, *op, constant),
        (Expr::Literal(constant, _), time) => (time, op.swap()?, constant),
        _ => return None,
    };
    let by_field = base.is_time(without_time_cast(time))?;
    // the largest time that is not after the constant, and the smallest that is not before it
    let (floor, ceil) = match constant {
        ScalarValue::TimestampNanosecond(Some(ns), _) => {
            let floor = ns.div_euclid(1_000);
            (floor, floor + i64::from(ns.rem_euclid(1_000) != 0))
        }
        ScalarValue::TimestampMicrosecond(Some(us), _) => (*us, *us),
        ScalarValue::TimestampMillisecond(Some(ms), _) => (ms.checked_mul(1_000)?, ms.checked_mul(1_000)?),
        ScalarValue::TimestampSecond(Some(s), _) => (s.checked_mul(1_000_000)?, s.checked_mul(1_000_000)?),
        _ => return None,
    };
    let all = TimeRange::ALL;
    let range = match op {
        Operator::Gt => TimeRange { from: floor.checked_add(1)?, ..all },
        Operator::GtEq => TimeRange { from: ceil, ..all },
        Operator::Lt => TimeRange { last: ceil.checked_sub(1)?, ..all },
        Operator::LtEq => TimeRange { last: floor, ..all },
        Operator::Eq => TimeRange { from: ceil, last: floor },
        _ => return None,
    };
    Some((range, by_field))
}

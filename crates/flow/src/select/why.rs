//! Report of the groups that `having` rejects.

use super::groups::decode;
use super::{SelectPlan, Selector, one_row};
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::explain::{HavingReport, LISTED_MAX, NamedValue};
use crate::expr::{EvalContext, Expr, Frame, INPUT, Node, OUTPUT};

/// Maximum number of groups that a report checks, the newest first, so that it does not delay processing.
const GROUPS_MAX: usize = 10_000;

impl Selector {
    /// Reports the groups that `having` rejects with their current aggregate values; `None` without `having`.
    /// The caller fills in the source text of the condition.
    pub(crate) fn why(&self, now: i64, host: &dyn EvalContext) -> Option<HavingReport> {
        let plan = &*self.plan;
        let having = plan.having.as_ref()?;
        let by_itself = HavingReport { condition: String::new(), groups: None, failing: 0, some: vec![] };
        if plan.aggregates.is_empty() || !looks_at_groups(plan, having) {
            return Some(by_itself);
        }
        let groups = if plan.group_by.is_empty() { 1 } else { self.groups.len() };
        let (mut failing, mut some) = (0, Vec::new());
        let looked_at = groups.min(GROUPS_MAX);
        for group in (groups - looked_at..groups).rev() {
            let Some(out) = self.group_failing_having(group, having, now, host) else { continue };
            failing += 1;
            if some.len() < LISTED_MAX {
                some.push(out);
            }
        }
        Some(HavingReport { groups: Some(looked_at), failing, some, ..by_itself })
    }

    /// Returns the output of a group if the condition does not hold for it.
    fn group_failing_having(
        &self,
        group: usize,
        having: &Expr,
        now: i64,
        host: &dyn EvalContext,
    ) -> Option<Vec<NamedValue>> {
        let plan = &*self.plan;
        let key = match plan.group_by.is_empty() {
            true => vec![],
            false => {
                let types: Vec<_> = plan.group_by.iter().map(|x| x.ty).collect();
                decode(self.groups.key(u32::try_from(group).ok()?), &types)?
            }
        };
        let input = group_row(plan, &key);
        let totals: Vec<Value> = self.accumulators.iter().map(|total| total.value(group)).collect();
        let totals: Vec<Column> = plan
            .aggregates
            .iter()
            .zip(&totals)
            .map(|(call, value)| {
                let mut column = Column::new(call.ty);
                column.push(value.clone());
                column
            })
            .collect();
        let rows = [Some((input.as_slice(), 0)), Some((totals.as_slice(), 0))];
        let frame = Frame { rows: &rows, time: now, now, host };
        let known = |expr: &Expr| sees_only_groups(plan, expr);
        let values: Vec<Value> = plan
            .items
            .iter()
            .map(|(_, x)| if known(x) { x.eval(&frame).unwrap_or_default() } else { Value::Null })
            .collect();
        let output = one_row(&plan.items, &values);
        let rows = [rows[0], rows[1], Some((output.as_slice(), 0))];
        if matches!(having.is_true(&Frame { rows: &rows, ..frame }), Ok(true)) {
            return None;
        }
        let shown = plan.items.iter().zip(&values).filter(|((_, x), _)| known(x));
        Some(shown.map(|((name, _), value)| NamedValue::new(name, value)).collect())
    }
}

/// Returns whether an expression reads no column of the input except `group by` columns.
fn sees_only_groups(plan: &SelectPlan, expr: &Expr) -> bool {
    let grouped = |column: usize| {
        plan.group_by
            .iter()
            .any(|by| matches!(by.node, Node::Column { slot: INPUT, column: c } if c == column))
    };
    let mut only = true;
    expr.walk(&mut |x| {
        if let Node::Column { slot: INPUT, column } = x.node {
            only &= grouped(column);
        }
    });
    only
}

/// Returns whether `having` reads only groups and aggregates, also through the outputs that it names.
fn looks_at_groups(plan: &SelectPlan, having: &Expr) -> bool {
    let mut only = sees_only_groups(plan, having);
    having.walk(&mut |x| {
        if let Node::Column { slot: OUTPUT, column } = x.node {
            only &= plan.items.get(column).is_some_and(|(_, item)| sees_only_groups(plan, item));
        }
    });
    only
}

/// Returns an input row with the group's values in the `group by` columns; no other column of it is read.
fn group_row(plan: &SelectPlan, key: &[Value]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for (by, value) in plan.group_by.iter().zip(key) {
        let Node::Column { slot: INPUT, column } = by.node else { continue };
        while columns.len() <= column {
            columns.push(Column::new(by.ty));
        }
        columns[column] = Column::new(by.ty);
        columns[column].push(value.clone());
    }
    columns
}

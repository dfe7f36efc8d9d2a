//! Rewrites partitions that are equivalent to `group by` with the key in front: one query with state for all
//! keys costs a hundredth of a query per key.

use std::sync::Arc;

use super::PartitionPlan;
use crate::expr::vector::is_plain;
use crate::expr::{Expr, Node};
use crate::plan::{AppPlan, PlanElement};
use crate::query::{QueryPlan, Target};

/// Returns the plan with such partitions replaced by queries. Its output is unchanged.
pub(crate) fn rewrite_as_group_by(plan: Arc<AppPlan>) -> Arc<AppPlan> {
    let flat = |element: &PlanElement| match element {
        PlanElement::Query(_) => None,
        PlanElement::Partition(number) => as_query(&plan.partitions[*number]),
    };
    let flat: Vec<Option<QueryPlan>> = plan.elements.iter().map(flat).collect();
    if flat.iter().all(Option::is_none) {
        return plan;
    }
    let mut plan = Arc::unwrap_or_clone(plan);
    for (element, query) in plan.elements.iter_mut().zip(flat) {
        if let Some(query) = query {
            *element = PlanElement::Query(plan.queries.len());
            plan.queries.push(query);
        }
    }
    Arc::new(plan)
}

/// Returns the only query of a partition by one column, with the key in front of its groups; `None` if the
/// rewrite does not apply.
fn as_query(partition: &PartitionPlan) -> Option<QueryPlan> {
    let key = partition.as_group_by()?;
    let Node::Column { slot: crate::expr::INPUT, column } = key.node else { return None };
    let [query] = partition.queries.as_slice() else { return None };
    let select = &query.select;
    let plain = select.is_columnar() && select.items.iter().all(|(_, expr)| is_plain(expr));
    if query.rate.is_some()
        || !query.before.is_empty()
        || !matches!(query.target, Target::Stream(_))
        || !plain
    {
        return None;
    }
    let mut query = QueryPlan::clone(query);
    query.cut_by = Some(column);
    if !query.select.aggregates.is_empty() {
        Arc::make_mut(&mut query.select).group_by.insert(0, Expr::column(crate::expr::INPUT, column, key.ty));
    }
    Some(query)
}

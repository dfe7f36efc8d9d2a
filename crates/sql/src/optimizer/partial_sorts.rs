//! Keeps the keys of sorts by partition that are constant in each partition only.
//!
//! ```sql
//! SELECT 1 AS a, x FROM t UNION ALL SELECT 2, x FROM u ORDER BY a DESC, x DESC LIMIT 3
//! ```
//!
//! DataFusion sorts each side by `x` alone, as `a` does not change there, and merges the sides by `a` and `x`. With a limit,
//! the sorts share a bound, which the side that is done first sets: rows of the other side with a smaller `x` are then dropped
//! although their `a` puts them in front. A sort by all keys of the merge has the right bound.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::equivalence::AcrossPartitions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// Optimizer rule that sorts by all keys of the merge above, or without the shared bound if the merge is not directly above.
#[derive(Debug)]
struct WholeSortKeys;

impl PhysicalOptimizerRule for WholeSortKeys {
    fn name(&self) -> &str {
        "whole_sort_keys"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let with_keys = plan.transform_up(|node| {
            let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else {
                return Ok(Transformed::no(node));
            };
            let Some(sort) = merge.input().downcast_ref::<SortExec>().filter(|sort| has_bound(sort)) else {
                return Ok(Transformed::no(node));
            };
            let whole = SortExec::new(merge.expr().clone(), sort.input().clone())
                .with_preserve_partitioning(true)
                .with_fetch(sort.fetch());
            let merge = SortPreservingMergeExec::new(merge.expr().clone(), Arc::new(whole));
            Ok(Transformed::yes(Arc::new(merge.with_fetch(node.fetch()))))
        })?;
        let without_bound = with_keys.data.transform_up(|node| match node.downcast_ref::<SortExec>() {
            Some(sort) if has_bound(sort) && lacks_keys(sort) => {
                Ok(Transformed::yes(Arc::new(sort.with_fetch(None)) as Arc<dyn ExecutionPlan>))
            }
            _ => Ok(Transformed::no(node)),
        });
        without_bound.data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns whether partitions that are sorted apart share a bound.
fn has_bound(sort: &SortExec) -> bool {
    sort.preserve_partitioning()
        && sort.fetch().is_some()
        && sort.input().output_partitioning().partition_count() > 1
}

/// Returns whether the input has columns with one value in each partition which are no keys of the sort.
fn lacks_keys(sort: &SortExec) -> bool {
    let constants = sort.input().equivalence_properties().constants();
    constants.iter().any(|constant| {
        constant.across_partitions == AcrossPartitions::Heterogeneous
            && !sort.expr().iter().any(|key| key.expr.eq(&constant.expr))
    })
}

/// Returns the rules with this one before filters are pushed that follow from bounds.
pub(crate) fn whole(
    mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let at = rules.iter().rposition(|rule| rule.name().starts_with("FilterPushdown")).unwrap_or(rules.len());
    rules.insert(at, Arc::new(WholeSortKeys));
    rules
}

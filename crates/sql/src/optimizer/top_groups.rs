//! Keeps the limit of a query out of aggregates that would reserve memory for all of it.
//!
//! ```sql
//! SELECT DISTINCT origin FROM t ORDER BY origin LIMIT 2000000000
//! ```
//!
//! DataFusion finds the first groups of an order in a heap and a table that have room for as many groups as the limit says, before
//! there is a row, and apart from the memory of the session. For a large limit the allocator ends the process. Without the limit, the
//! groups are counted as those of other queries, and the sort above cuts them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// Groups up to which an aggregate may keep the first ones of an order: about 600 bytes for each, in each partition.
const GROUPS_MAX: usize = 4_096;

/// Optimizer rule that takes large limits out of aggregates with an order.
#[derive(Debug)]
struct BoundedTopGroups;

impl PhysicalOptimizerRule for BoundedTopGroups {
    fn name(&self) -> &str {
        "bounded_top_groups"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let bounded = plan.transform_up(|node| match node.downcast_ref::<AggregateExec>() {
            Some(aggregate) if reserves_much(aggregate) => {
                let whole = aggregate.with_new_limit_options(None);
                Ok(Transformed::yes(Arc::new(whole) as Arc<dyn ExecutionPlan>))
            }
            _ => Ok(Transformed::no(node)),
        });
        bounded.data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn reserves_much(aggregate: &AggregateExec) -> bool {
    let limit = aggregate.limit_options();
    limit.is_some_and(|limit| limit.descending.is_some() && limit.limit > GROUPS_MAX)
}

/// Returns the rules with this one behind all that set limits.
pub(crate) fn bounded(
    mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules.push(Arc::new(BoundedTopGroups));
    rules
}

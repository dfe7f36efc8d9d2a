//! Pushes filters through operators only where columns have names of their own.
//!
//! ```sql
//! SELECT a.x FROM s AS a RIGHT JOIN r AS b ON a.id = b.x WHERE a.x IS NOT DISTINCT FROM 2
//! ```
//!
//! DataFusion's physical push-down finds the columns of a filter in the input of an operator by their names, without the table.
//! Above a join there may be two of a name, and the filter on `a.x` became one on `b.x`.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

/// One of DataFusion's rules `FilterPushdown`, for plans in which no operator has two columns of a name.
#[derive(Debug)]
struct PushDownByName(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for PushDownByName {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match plan.exists(|node| Ok(repeats_name(node)))? {
            true => Ok(plan),
            false => self.0.optimize(plan, config),
        }
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn repeats_name(node: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = node.schema();
    let mut names = HashSet::with_capacity(schema.fields().len());
    !schema.fields().iter().all(|field| names.insert(field.name().as_str()))
}

/// Returns the rules with those replaced that push filters.
pub(crate) fn checked(
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rules = rules.into_iter().map(|rule| match rule.name().starts_with("FilterPushdown") {
        true => Arc::new(PushDownByName(rule)) as _,
        false => rule,
    });
    rules.collect()
}

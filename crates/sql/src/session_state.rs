//! What all queries of a session share in DataFusion: memory, spill space, settings, rules and functions.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::SessionConfig;
use tidemill_types::{Error, Result};

use crate::asof::PlanAsofJoins;
use crate::catalog::{CATALOG, DEFAULT_SCHEMA};
use crate::error::from_datafusion;
use crate::execution::limits::StatementLimits;
use crate::gap_fill::{FillGaps, GapFillQueryPlanner};
use crate::hot::ServeFromHotData;
use crate::optimizer::global_aggregates::GuardGlobalAggregates;
use crate::optimizer::set_operations::CountedSetOperations;
use crate::optimizer::sort_keys::SortKeysAsColumns;
use crate::subqueries::ThreeValuedSubqueries;
use crate::times::MicrosecondTimes;
use crate::{
    SqlOptions, Tables, execution::deadline, functions, optimizer::constant_last, optimizer::partial_sorts,
    optimizer::top_groups, optimizer::unique_names, plans::rerun,
};

/// Restricts the directories that DataFusion makes for spilled rows to the owner of the process.
fn restrict_spilled_rows(environment: &RuntimeEnv, spill_dir: &Path) -> Result<()> {
    // they are made with the first file
    let _first =
        environment.disk_manager.create_tmp_file("permissions").map_err(|e| from_datafusion(&e, None))?;
    let restrict = || -> std::io::Result<()> {
        for entry in std::fs::read_dir(spill_dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::set_permissions(entry.path(), Permissions::from_mode(0o700))?;
            }
        }
        Ok(())
    };
    restrict().map_err(|e| {
        let what = format!("{}: cannot be restricted to its owner", spill_dir.display());
        Error::unavailable(what).with_source(e)
    })
}

/// Creates the memory pool, the spill space and the object store, which all queries share.
pub(crate) fn environment(
    tables: &dyn Tables,
    options: &SqlOptions,
    limits: &StatementLimits,
) -> Result<Arc<RuntimeEnv>> {
    let mode = match &options.spill_dir {
        Some(dir) => {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
                Error::unavailable(format!("the spill directory {} cannot be made", dir.display()))
                    .with_source(e)
            })?;
            DiskManagerMode::Directories(vec![dir.clone()])
        }
        None => DiskManagerMode::Disabled,
    };
    let disk =
        DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(options.spill_bytes);
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(limits.memory.clone())
        .with_disk_manager_builder(disk)
        .build_arc()
        .map_err(|e| from_datafusion(&e, None))?;
    if let Some(dir) = &options.spill_dir {
        restrict_spilled_rows(&environment, dir)?;
    }
    let (url, store) = tables.object_store();
    environment.register_object_store(&url, store);
    Ok(environment)
}

/// Creates the state that each query copies.
pub(crate) fn session_state(options: &SqlOptions, environment: Arc<RuntimeEnv>) -> Result<SessionState> {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.target_partitions.max(1))
        .with_default_catalog_and_schema(CATALOG, DEFAULT_SCHEMA)
        .with_create_default_catalog_and_schema(false);
    let settings = config.options_mut();
    // names keep their case, so that events.TakeOffEvent needs no quotes; `names` corrects the rest
    settings.sql_parser.enable_ident_normalization = false;
    settings.sql_parser.collect_spans = true;
    settings.execution.time_zone = Some("UTC".to_owned());
    // late materialization: other columns are decoded only for rows that pass the filter
    settings.execution.parquet.pushdown_filters = true;
    // `x IS FALSE` is never null, which DataFusion knows of its expression and not of its operator; the check would refuse
    // some queries that group by it
    settings.execution.skip_physical_aggregate_schema_check = true;
    settings.explain.show_sizes = false;
    // a session with little memory must not spend it all on reservations for merging spilled data
    let reserve = options.memory_bytes / (8 * options.target_partitions.max(1));
    settings.execution.sort_spill_reservation_bytes =
        reserve.min(settings.execution.sort_spill_reservation_bytes);
    let rules = partial_sorts::whole(unique_names::checked(PhysicalOptimizer::new().rules));
    let mut physical = deadline::physical(top_groups::bounded(rules));
    physical.push(Arc::new(rerun::AllowRerun) as Arc<dyn PhysicalOptimizerRule + Send + Sync>);
    let mut logical = constant_last::ordered(Optimizer::new().rules);
    // they move JSON functions below joins of subqueries and forget columns there
    logical.retain(|rule| !matches!(rule.name(), "extract_leaf_expressions" | "push_down_leaf_projections"));
    logical.push(Arc::new(ServeFromHotData) as Arc<dyn OptimizerRule + Send + Sync>);
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment)
        .with_default_features()
        .with_expr_planners(functions::planners())
        .with_query_planner(Arc::new(GapFillQueryPlanner { rows_max: options.gap_rows_max }))
        .with_analyzer_rules(analyzer_rules(options))
        .with_optimizer_rules(deadline::logical(logical))
        .with_physical_optimizer_rules(physical)
        .build();
    functions::register(&mut state).map_err(|e| from_datafusion(&e, None))?;
    Ok(state)
}

/// Returns DataFusion's rules, and ours before and after them.
fn analyzer_rules(options: &SqlOptions) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![Arc::new(MicrosecondTimes)];
    rules.extend(Analyzer::new().rules);
    rules.push(Arc::new(PlanAsofJoins));
    rules.push(Arc::new(FillGaps));
    rules.push(Arc::new(CountedSetOperations));
    rules.push(Arc::new(ThreeValuedSubqueries));
    rules.push(Arc::new(SortKeysAsColumns));
    rules.push(Arc::new(GuardGlobalAggregates));
    rules.push(Arc::new(functions::BoundFunctions { bytes_max: options.function_bytes }));
    rules
}

/// Returns the state for queries that read few rows: more threads would take longer to start than they save.
pub(crate) fn one_thread(state: &SessionState) -> SessionState {
    let mut state = state.clone();
    let options = state.config_mut().options_mut();
    options.execution.target_partitions = 1;
    options.optimizer.repartition_file_scans = false;
    state
}

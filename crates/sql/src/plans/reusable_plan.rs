//! Physical plans that can be executed many times.
//!
//! A plan can be kept if none of its operators holds rows that change: its event tables are served from hot data, which
//! each execution binds to a new snapshot, and its collections are small and still have the documents with which it was
//! planned. Everything else that a plan depends on is checked before each use: names, columns, documents.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as PlanResult, internal_err};
use datafusion::datasource::{MemTable, source_as_provider};
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::prelude::SessionConfig;
use tidemill_types::Result;
use tidemill_zones::TableSnapshot;

use crate::catalog::{QuerySnapshots, ResolvedName};
use crate::docs::DocsTable;
use crate::events::{EventsTable, OpenFiles};
use crate::execution::work::Work;
use crate::hot::{Bindings, HotScan, HotScanExec, HotScanTable, HotStore, TabletReader};
use crate::plans::origins::Origins;
use crate::schema_name::SchemaName;
use crate::{MissingFields, Moment, Tables};

/// Documents of a collection up to which plans over it are kept.
const DOCUMENTS_MAX: usize = 4_096;
/// Bytes of documents up to which plans over a collection are kept: a plan keeps its documents alive.
const DOCUMENT_BYTES_MAX: usize = 4 << 20;

/// A plan that can be executed many times, each time over the rows of a new snapshot.
#[derive(Debug)]
pub(crate) struct ReusablePlan {
    physical: Arc<dyn ExecutionPlan>,
    config: SessionConfig,
    scans: Vec<(u64, Arc<HotScan>)>,
    names: Vec<ResolvedName>,
    /// Tables of streams, and the columns that they had.
    events: Vec<(String, SchemaRef)>,
    documents: Vec<(String, Arc<Vec<Bytes>>)>,
    missing: MissingFields,
    files: Arc<OpenFiles>,
    origins: Origins,
}

/// Snapshots of the tables of a plan, by the names of their streams.
pub(crate) type Snapshots = HashMap<String, TableSnapshot>;

impl ReusablePlan {
    /// Creates the plan of a query whose optimized plan [`is_of_resident_tables`]; `None` if a table that it uses
    /// cannot be checked before the next use.
    pub fn new(
        physical: Arc<dyn ExecutionPlan>,
        config: SessionConfig,
        snapshots: &QuerySnapshots,
        missing: MissingFields,
        files: Arc<OpenFiles>,
        origins: Origins,
    ) -> PlanResult<Option<Self>> {
        if has_scalar_subquery(&physical)? {
            return Ok(None);
        }
        let scans = HotScanExec::all(&physical)?;
        let names = snapshots.resolved_names();
        let (mut events, mut documents) = (Vec::new(), Vec::new());
        for ResolvedName { found: (schema, name), .. } in &names {
            match schema {
                SchemaName::Events => match snapshots.event_snapshot(name) {
                    Some(snapshot) => events.push((name.clone(), snapshot.schema)),
                    None => return Ok(None),
                },
                SchemaName::Docs => match snapshots.documents(name).filter(|d| are_few(d)) {
                    Some(found) => documents.push((name.clone(), found)),
                    None => return Ok(None),
                },
                SchemaName::System => return Ok(None),
            }
        }
        Ok(Some(Self { physical, config, scans, names, events, documents, missing, files, origins }))
    }

    /// Returns new snapshots of the tables, all of one moment, or `None` if the plan does not fit them.
    ///
    /// Errors: those of [`Tables::moment`].
    pub fn snapshots(&self, tables: &Arc<dyn Tables>) -> Result<Option<Snapshots>> {
        if self.names.iter().any(|name| !name.is_exact()) {
            let names = QuerySnapshots::new(tables.clone(), self.files.clone(), self.missing, None);
            if !names.finds_same(&self.names) {
                return Ok(None);
            }
        }
        let streams: Vec<&str> = self.events.iter().map(|(name, _)| name.as_str()).collect();
        let collections: Vec<&str> = self.documents.iter().map(|(name, _)| name.as_str()).collect();
        let Moment { streams, collections } = tables.moment(&streams, &collections)?;
        for ((_, planned), found) in self.documents.iter().zip(collections) {
            let found = match (found, self.missing) {
                (Some(found), _) => found,
                (None, MissingFields::Null) => vec![],
                (None, MissingFields::Refused) => return Ok(None),
            };
            // the plan keeps its documents alive, so none of another content can have the address of one of them
            let same = |(a, b): (&Bytes, &Bytes)| a.as_ptr() == b.as_ptr() && a.len() == b.len();
            if found.len() != planned.len() || !found.iter().zip(planned.iter()).all(same) {
                return Ok(None);
            }
        }
        let mut snapshots = Snapshots::with_capacity(self.events.len());
        for ((name, planned), snapshot) in self.events.iter().zip(streams) {
            let Some(snapshot) = snapshot else { return Ok(None) };
            if !Arc::ptr_eq(planned, &snapshot.schema) && *planned != snapshot.schema {
                return Ok(None);
            }
            snapshots.insert(name.clone(), snapshot);
        }
        Ok(Some(snapshots))
    }

    /// Returns the hot data of the snapshots if all of it is in memory.
    pub fn bind_resident(&self, store: &HotStore, snapshots: &Snapshots) -> PlanResult<Option<Bindings>> {
        let mut bindings = Bindings::default();
        for (number, scan) in &self.scans {
            let Some(snapshot) = snapshots.get(scan.table.as_ref()) else { return Ok(None) };
            match store.bind_resident(scan, snapshot)? {
                Some(bound) => _ = bindings.0.insert(*number, bound),
                None => return Ok(None),
            }
        }
        Ok(Some(bindings))
    }

    pub fn scans(&self) -> &[(u64, Arc<HotScan>)] {
        &self.scans
    }

    pub fn files(&self) -> &Arc<OpenFiles> {
        &self.files
    }

    /// Returns the tables from which the columns of the result come.
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    /// Returns an operator tree for one execution, and its context.
    pub fn instance(
        &self,
        bindings: Bindings,
        environment: Arc<RuntimeEnv>,
        work: Arc<Work>,
    ) -> PlanResult<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
        let config = self.config.clone().with_extension(Arc::new(bindings)).with_extension(work);
        Ok((reset_plan_states(self.physical.clone())?, Arc::new(task_context(config, environment))))
    }
}

/// Returns whether a plan executes subqueries for their value. All instances of such a plan keep the values in one place, so
/// that two executions at the same time would read each other's.
fn has_scalar_subquery(physical: &Arc<dyn ExecutionPlan>) -> PlanResult<bool> {
    physical.exists(|node| Ok(node.name() == "ScalarSubqueryExec"))
}

/// Returns the context of an execution. It has no functions: operators refer to theirs themselves, and only
/// `information_schema.routines`, which no plan that is kept reads, lists those of the context.
fn task_context(config: SessionConfig, environment: Arc<RuntimeEnv>) -> TaskContext {
    TaskContext::new(
        None,
        String::new(),
        config,
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        environment,
    )
}

/// Binds scans to the hot data of `snapshots`, and decodes what is missing; `None` if a scan cannot be served from it.
pub(crate) async fn bind(
    scans: &[(u64, Arc<HotScan>)],
    store: Option<&HotStore>,
    snapshots: &Snapshots,
    reader: &TabletReader,
) -> PlanResult<Option<Bindings>> {
    let mut bindings = Bindings::default();
    for (number, scan) in scans {
        let (Some(store), Some(snapshot)) = (store, snapshots.get(scan.table.as_ref())) else {
            return internal_err!("a scan of hot data of `{}`, which the query did not plan", scan.table);
        };
        match store.bind(scan, snapshot, reader).await? {
            Some(bound) => _ = bindings.0.insert(*number, bound),
            None => return Ok(None),
        }
    }
    Ok(Some(bindings))
}

/// Returns whether all rows that `plan` reads are in memory: hot data of event tables and few documents.
pub(crate) fn is_of_resident_tables(plan: &LogicalPlan) -> PlanResult<bool> {
    let (mut scans, mut resident) = (0, true);
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            scans += 1;
            resident &= is_resident(scan);
        }
        // what these nodes describe is not the plan that they are part of
        resident &= !matches!(
            node,
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_)
        );
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(resident && scans > 0)
}

/// Returns whether `plan` reads only tables of the system whose rows were computed for it, or no table.
pub(crate) fn is_of_system_tables(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut small = true;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            small &= source_as_provider(&scan.source)
                .is_ok_and(|provider| provider.is::<MemTable>() || provider.is::<StreamingTable>());
        }
        // it runs another plan by tasks
        small &= !matches!(node, LogicalPlan::Analyze(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(small)
}

fn is_resident(scan: &TableScan) -> bool {
    let Ok(provider) = source_as_provider(&scan.source) else { return false };
    if let Some(events) = provider.downcast_ref::<EventsTable>() {
        let columns = scan.projection.as_ref().is_none_or(|p| !p.is_empty());
        return columns
            && events
                .hot_source()
                .is_some_and(|hot| hot.scan_rows(scan.projection.as_ref(), events.measured()).is_some());
    }
    if let Some(documents) = provider.downcast_ref::<DocsTable>() {
        return are_few(documents.documents());
    }
    provider.is::<HotScanTable>()
}

fn are_few(documents: &[Bytes]) -> bool {
    documents.len() <= DOCUMENTS_MAX && documents.iter().map(Bytes::len).sum::<usize>() <= DOCUMENT_BYTES_MAX
}

/// Returns whether a plan that has not been optimized has the same meaning at any time: no `now()`, no `random()`.
pub(crate) fn is_timeless(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut timeless = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr {
                    timeless &= call.func.signature().volatility == Volatility::Immutable;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(timeless)
}

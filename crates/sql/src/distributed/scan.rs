//! Scans of tablets, as they are sent to nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use datafusion::scalar::ScalarValue;
use object_store::path::Path;
use tidemill_types::Error;
use tidemill_zones::Checksums;

use super::placement::node_of;
use crate::error::to_datafusion;
use crate::events::ScannedTablet;
use crate::schema_name::SchemaName;

/// File of a scan.
#[derive(Debug, Clone)]
pub(super) struct ScannedFile {
    /// Path in the object store.
    pub path: Path,
    /// Length in bytes.
    pub size: u64,
    /// Checksums that reads verify, if the file has some.
    pub checksums: Option<Arc<Checksums>>,
}

/// Result that a scan makes of the rows of its files.
#[derive(Debug, Clone)]
pub(super) struct ScanSpec {
    /// Columns of the table.
    pub schema: SchemaRef,
    /// Columns of the result.
    pub projection: Option<ProjectionExprs>,
    /// Condition on the columns of the table. Rows that do not fulfil it are left out.
    pub predicate: Option<Arc<dyn PhysicalExpr>>,
}

/// Files of a scan by the nodes that read them.
#[derive(Debug)]
pub(super) struct Shares {
    /// Schema and name of the table.
    pub table: (SchemaName, String),
    /// In the order of the names of nodes; without nodes that read none.
    pub nodes: BTreeMap<String, Vec<ScannedFile>>,
}

impl Shares {
    /// Returns the length of the files of a node.
    pub fn bytes(&self, node: &str) -> u64 {
        self.nodes.get(node).map_or(0, |files| files.iter().map(|file| file.size).sum())
    }

    /// Returns the length of all files.
    pub fn all_bytes(&self) -> u64 {
        self.nodes.keys().map(|node| self.bytes(node)).sum()
    }

    /// Returns the number and the length of the files of a node.
    pub fn describe(&self, node: &str) -> String {
        let files = self.nodes.get(node).map_or(0, Vec::len);
        format!("{node} {files} files, {} bytes", self.bytes(node))
    }
}

/// A scan of whole tablets that a plan has.
pub(super) struct TabletScan<'p> {
    config: &'p FileScanConfig,
    pub spec: ScanSpec,
    pub shares: Shares,
    /// Reason for which the scan stays at this node, whatever is above it.
    pub refusal: Option<&'static str>,
}

impl<'p> TabletScan<'p> {
    /// Returns the scan that an operator is, with its files shared out to `nodes`; `None` for any other operator.
    pub fn of(plan: &'p Arc<dyn ExecutionPlan>, nodes: &[String]) -> Result<Option<Self>> {
        let source = plan.downcast_ref::<DataSourceExec>();
        let Some((config, parquet)) = source.and_then(|s| s.downcast_to_file_source::<ParquetSource>())
        else {
            return Ok(None);
        };
        let ends_early =
            config.limit.is_some() || config.preserve_order || !config.output_ordering.is_empty();
        let mut refusal = ends_early.then_some("it ends after a few rows");
        let mut table = None;
        // parts of a file are whole files together
        let mut files: BTreeMap<&Path, ScannedFile> = BTreeMap::new();
        for file in config.file_groups.iter().flat_map(FileGroup::iter) {
            let Some(tablet) = file.extensions.get::<ScannedTablet>() else { return Ok(None) };
            table.get_or_insert_with(|| tablet.table.clone());
            if tablet.is_lookup {
                refusal = Some("it looks for keys or ids, which the indexes of files find");
            }
            let PartitionedFile { object_meta, .. } = file;
            files.entry(&object_meta.location).or_insert_with(|| ScannedFile {
                path: object_meta.location.clone(),
                size: object_meta.size,
                checksums: tablet.checksums.clone(),
            });
        }
        let Some(table) = table else { return Ok(None) };
        let mut shares = Shares { table, nodes: BTreeMap::new() };
        for (path, file) in files {
            let node = node_of(nodes, path.as_ref()).to_owned();
            shares.nodes.entry(node).or_default().push(file);
        }
        let spec = ScanSpec {
            schema: parquet.table_schema().table_schema().clone(),
            projection: parquet.projection().cloned(),
            predicate: parquet.filter().map(snapshot_physical_expr).transpose()?,
        };
        Ok(Some(Self { config, spec, shares, refusal }))
    }

    /// Returns whether a condition leaves rows out.
    pub fn has_condition(&self) -> bool {
        let literal = self.spec.predicate.as_ref().map(|predicate| predicate.downcast_ref::<Literal>());
        match literal {
            None => false,
            Some(Some(literal)) => *literal.value() != ScalarValue::Boolean(Some(true)),
            Some(None) => true,
        }
    }

    /// Returns the same scan of the files of one node; `None` if it reads none.
    pub fn of_node(&self, node: &str) -> Option<Arc<dyn ExecutionPlan>> {
        let own = self.shares.nodes.get(node)?;
        let is_own = |file: &&PartitionedFile| own.iter().any(|o| o.path == file.object_meta.location);
        let groups = self.config.file_groups.iter();
        let groups = groups.map(|group| FileGroup::new(group.iter().filter(is_own).cloned().collect()));
        let groups: Vec<FileGroup> = groups.filter(|group| !group.is_empty()).collect();
        let statistics = self.config.statistics().to_inexact();
        let config = FileScanConfigBuilder::from(self.config.clone())
            .with_file_groups(groups)
            .with_statistics(statistics)
            .build();
        Some(DataSourceExec::from_data_source(config))
    }
}

/// Leaf of a fragment: the scan of the tablets of the node that executes it.
#[derive(Debug)]
pub(super) struct TabletScanExec {
    pub spec: ScanSpec,
    pub files: Vec<ScannedFile>,
    properties: Arc<PlanProperties>,
}

impl TabletScanExec {
    /// Creates the leaf in the place of `scan`.
    pub fn new(spec: ScanSpec, scan: &Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            scan.equivalence_properties().clone(),
            Partitioning::UnknownPartitioning(1),
            scan.pipeline_behavior(),
            scan.boundedness(),
        );
        Self { spec, files: Vec::new(), properties: Arc::new(properties) }
    }

    /// Returns the leaf with files.
    pub fn with_files(&self, files: Vec<ScannedFile>) -> Self {
        Self { spec: self.spec.clone(), files, properties: self.properties.clone() }
    }
}

impl DisplayAs for TabletScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TabletScanExec")?;
        match &self.spec.predicate {
            Some(predicate) => write!(f, ": predicate={predicate}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for TabletScanExec {
    fn name(&self) -> &str {
        "TabletScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Err(to_datafusion(Error::internal("a fragment is executed by the node that it is sent to")))
    }
}

//! `events.<stream>`: the tablets of a snapshot, read from the object store, and its tail, scanned in memory.
//!
//! Tablets that cannot match the filter are pruned during planning by the bounds in the Delta log. Row groups
//! and pages are pruned during the scan by the statistics, page index and Bloom filters in the files. Filters
//! are pushed down into the Parquet scan. Without a filter, `count(*)` is answered from the log alone. Small tables, and
//! columns that are scanned repeatedly, are read from their hot data ([`crate::hot`]).

mod bounds;
mod metadata;
mod reader;
mod report;
mod tail;
mod width;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::{TableType, source_as_provider};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, TableProviderFilterPushDown};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use tidemill_types::Error;
use tidemill_zones::{CheckedStore, Checksums, TableSnapshot, Tablet};
use url::Url;

use crate::hot::{HotScanExec, HotSource, TabletReader};
use crate::schema_name::SchemaName;

pub(crate) use reader::{NamedReaders, OpenFiles};
pub(crate) use report::ScanReports;
pub(crate) use tail::conform_one;
pub(crate) use width::{RowWidth, TabletWidths, text_bytes};

/// State shared by the tables of one query.
#[derive(Debug, Clone)]
pub(crate) struct ScanContext {
    /// URL under which the tablets' object store is registered.
    pub store: Url,
    pub files: Arc<OpenFiles>,
    pub reports: Arc<ScanReports>,
}

/// Tablet that a scan reads as a file, beside what DataFusion knows of files.
#[derive(Debug)]
pub(crate) struct ScannedTablet {
    /// Schema and name of its table.
    pub table: (SchemaName, String),
    /// Checksums that reads verify, if it has some.
    pub checksums: Option<Arc<Checksums>>,
    /// True if the scan looks for rows by their keys or ids, which indexes of files find.
    pub is_lookup: bool,
}

/// Snapshot of the table of a stream.
#[derive(Debug)]
pub(crate) struct EventsTable {
    /// Schema and name.
    name: (SchemaName, String),
    schema: SchemaRef,
    tablets: Arc<[Arc<Tablet>]>,
    tail: Vec<RecordBatch>,
    context: ScanContext,
    hot: Option<Arc<HotSource>>,
    key: Option<usize>,
    time: usize,
    /// Columns that make an event unique.
    id: Vec<usize>,
    /// Bytes of the texts of a row, once they have been measured.
    row_bytes: AtomicUsize,
}

impl EventsTable {
    /// Creates the table `name` at `snapshot`. `hot` is the hot data of this snapshot, if queries may be served
    /// from it.
    ///
    /// Errors: `Internal` when a batch of the tail does not fit the table's schema.
    pub fn new(
        name: (SchemaName, &str),
        snapshot: TableSnapshot,
        context: ScanContext,
        hot: Option<Arc<HotSource>>,
    ) -> tidemill_types::Result<Self> {
        let tail = tail::conform(snapshot.tail, &snapshot.schema)
            .map_err(|e| Error::internal("the tail does not fit its table").with_source(e))?;
        let TableSnapshot { schema, tablets, key, time, id, .. } = snapshot;
        let name = (name.0, name.1.to_owned());
        let row_bytes = AtomicUsize::default();
        Ok(Self { name, schema, tablets, tail, context, hot, key, time, id, row_bytes })
    }

    /// Returns the name of the table in its schema.
    pub fn name(&self) -> &str {
        &self.name.1
    }

    /// Returns whether it is the table of a stream, and no system table.
    pub fn is_stream(&self) -> bool {
        self.name.0 == SchemaName::Events
    }

    /// Returns the columns.
    pub fn columns(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns a table with the same columns and no rows.
    pub fn emptied(&self) -> Arc<Self> {
        Arc::new(Self {
            name: self.name.clone(),
            schema: self.schema.clone(),
            tablets: Arc::from([]),
            tail: vec![],
            context: ScanContext {
                store: self.context.store.clone(),
                files: Arc::default(),
                reports: Arc::default(),
            },
            hot: None,
            key: self.key,
            time: self.time,
            id: self.id.clone(),
            row_bytes: AtomicUsize::default(),
        })
    }

    /// Returns the names of the columns that order the rows: the key, if the table has one, and the time.
    pub fn order_columns(&self) -> (Option<String>, String) {
        let name = |index: usize| self.schema.field(index).name().clone();
        (self.key.map(name), name(self.time))
    }

    /// Returns the hot data of the table, if queries may be served from it.
    pub fn hot_source(&self) -> Option<&Arc<HotSource>> {
        self.hot.as_ref()
    }

    /// Returns the tablets that may have rows for which all `filters` are true.
    fn matching_tablets(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<&Tablet>> {
        let Some(filter) = conjunction(filters.iter().cloned()).filter(|_| !self.tablets.is_empty()) else {
            return Ok(self.tablets.iter().map(Arc::as_ref).collect());
        };
        let schema = DFSchema::try_from(self.schema.clone())?;
        let filter = state.create_physical_expr(filter, &schema)?;
        let predicate =
            PruningPredicateBuilder::new().with_file_schema(self.schema.clone()).try_build(filter)?;
        if predicate.always_true() {
            return Ok(self.tablets.iter().map(Arc::as_ref).collect());
        }
        let may_match =
            predicate.prune(&bounds::TabletBounds { schema: &self.schema, tablets: &self.tablets })?;
        Ok(self
            .tablets
            .iter()
            .zip(may_match)
            .filter_map(|(tablet, may)| may.then_some(tablet.as_ref()))
            .collect())
    }

    /// Returns whether a filter names the keys or ids of rows. Bloom filters and page indexes of files find few rows faster than a
    /// scan of memory.
    pub fn names_rows(&self, filter: &Expr) -> bool {
        let indexed = |expr: &Expr| match expr {
            Expr::Column(column) => {
                self.schema.index_of(&column.name).is_ok_and(|i| self.key == Some(i) || self.id.contains(&i))
            }
            _ => false,
        };
        let constant = |expr: &Expr| matches!(expr, Expr::Literal(..) | Expr::Placeholder(_));
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                self.names_rows(left) || self.names_rows(right)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                self.names_rows(left) && self.names_rows(right)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                indexed(left) && constant(right) || constant(left) && indexed(right)
            }
            Expr::InList(list) => !list.negated && indexed(&list.expr) && list.list.iter().all(constant),
            _ => false,
        }
    }

    /// Returns the bytes of the texts of a row, if they have been measured; else 0.
    pub fn measured(&self) -> usize {
        self.row_bytes.load(Ordering::Relaxed)
    }

    /// Returns the scan of the tablets' rows from their decoded columns, if those are kept.
    fn scan_decoded(
        &self,
        state: &dyn Session,
        tablets: &[&Tablet],
        projection: Option<&Vec<usize>>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(hot) = &self.hot else { return Ok(None) };
        let statistics: Vec<Statistics> =
            tablets.iter().map(|t| bounds::statistics(t, &self.schema)).collect();
        let statistics = bounds::merge_statistics(&statistics, &self.schema)?;
        let reader = TabletReader {
            environment: state.runtime_env().clone(),
            store: self.context.store.clone(),
            files: self.context.files.clone(),
            text_bytes_max: hot.column_bytes_max(),
        };
        let threads = state.config().target_partitions();
        let scan = hot.scan_tablets(tablets, projection, statistics, reader, threads, self.measured());
        Ok(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>))
    }

    fn scan_tablets(
        &self,
        state: &dyn Session,
        tablets: &[&Tablet],
        projection: Option<&Vec<usize>>,
        (limit, is_lookup): (Option<usize>, bool),
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let environment = state.runtime_env();
        let store_url = ObjectStoreUrl::parse(&self.context.store[..url::Position::BeforePath])?;
        let store = environment.object_store(&store_url)?;
        let store = Arc::new(CheckedStore::new(store, tablets.iter().copied()));
        let cache = environment.cache_manager.get_file_metadata_cache();
        let options = state.default_table_options().parquet;
        let source = ParquetSource::new(self.schema.clone())
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(reader::NamedReaders::new(
                store,
                cache,
                self.context.files.clone(),
            )))
            .with_enable_page_index(true)
            .with_bloom_filter_on_read(true);
        let statistics: Vec<Statistics> =
            tablets.iter().map(|t| bounds::statistics(t, &self.schema)).collect();
        let total = bounds::merge_statistics(&statistics, &self.schema)?;
        let files = tablets.iter().zip(statistics).map(|(tablet, statistics)| {
            let mut file = PartitionedFile::new("", tablet.size);
            // set directly: `PartitionedFile::new` would escape the path a second time
            file.object_meta.location = tablet.path.clone();
            let (table, checksums) = (self.name.clone(), tablet.checksums().cloned());
            file.extensions.insert(ScannedTablet { table, checksums, is_lookup });
            file.with_statistics(Arc::new(statistics))
        });
        let groups = group_files(files.collect(), state.config().target_partitions());
        let config = FileScanConfigBuilder::new(store_url, Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(total)
            .with_limit(limit)
            .with_projection_indices(projection.cloned())?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn scan_tail(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let groups = tail::group_batches(&self.tail, state.config().target_partitions());
        let source = MemorySourceConfig::try_new(&groups, self.schema.clone(), projection.cloned())?;
        Ok(DataSourceExec::from_data_source(source.with_show_sizes(false)))
    }
}

/// Returns the length of the files of all tables that a plan reads.
pub(crate) fn file_bytes(plan: &LogicalPlan) -> Result<u64> {
    let mut bytes = 0_u64;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(table) = provider.downcast_ref::<EventsTable>()
        {
            bytes = bytes.saturating_add(table.tablets.iter().map(|tablet| tablet.size).sum());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

/// Distributes the files over at most `groups` groups of about equal size in bytes.
pub(crate) fn group_files(mut files: Vec<PartitionedFile>, groups: usize) -> Vec<FileGroup> {
    files.sort_by_key(|f| std::cmp::Reverse(f.object_meta.size));
    let mut filled: Vec<(u64, FileGroup)> = Vec::new();
    for file in files {
        if filled.len() < groups.max(1) {
            filled.push((file.object_meta.size, FileGroup::new(vec![file])));
        } else if let Some((bytes, group)) = filled.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            *bytes += file.object_meta.size;
            group.push(file);
        }
    }
    filled.into_iter().map(|(_, group)| group).collect()
}

#[async_trait]
impl TableProvider for EventsTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Returns `Inexact` for all filters: the tail's scan does not filter, so DataFusion keeps the filter
    /// above it.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // without columns only the number of rows counts, which needs no row in memory
        let columns = projection.is_none_or(|p| !p.is_empty());
        if let Some(scan) =
            self.hot.as_ref().filter(|_| columns).and_then(|hot| hot.scan_rows(projection, self.measured()))
        {
            return Ok(Arc::new(HotScanExec::new(Arc::new(scan), None)?));
        }
        let tablets = self.matching_tablets(state, filters)?;
        let mut parts = Vec::with_capacity(2);
        let mut source = "read from files";
        if !tablets.is_empty() {
            let is_lookup = filters.iter().any(|filter| self.names_rows(filter));
            let decoded = match columns && limit.is_none() && !is_lookup {
                true => self.scan_decoded(state, &tablets, projection)?,
                false => None,
            };
            parts.push(match decoded {
                Some(scan) => {
                    source = "read from decoded columns";
                    scan
                }
                None => self.scan_tablets(state, &tablets, projection, (limit, is_lookup))?,
            });
        }
        self.context.reports.push(self.name.0, &self.name.1, || {
            let tail_rows = self.tail.iter().map(RecordBatch::num_rows).sum();
            report::of_zones(&self.tablets, &tablets, tail_rows, source)
        });
        if !self.tail.is_empty() {
            parts.push(self.scan_tail(state, projection)?);
        }
        match parts.len() {
            0 => Ok(Arc::new(EmptyExec::new(datafusion::physical_plan::project_schema(
                &self.schema,
                projection,
            )?))),
            1 => Ok(parts.remove(0)),
            _ => UnionExec::try_new(parts),
        }
    }
}

//! Fragments of the statements of other nodes.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use bytes::Bytes;
use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileScanConfigBuilder, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream, execute_stream,
};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use prost::Message;
use tidemill_access::Principal;
use tidemill_types::ipc::BatchEncoder;
use tidemill_types::{Error, Result};
use tidemill_zones::CheckedStore;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::message::{FragmentMessage, decode_plan, encode_end, encode_rows, versions};
use super::scan::{ScanSpec, ScannedFile};
use crate::StatementPhase;
use crate::error::{ended, from_datafusion};
use crate::events::{NamedReaders, OpenFiles, group_files};
use crate::execution::statements::kept_text;
use crate::execution::work::Work;
use crate::interrupt::interruptible;
use crate::output::{Format, pieces};
use crate::query::{EncodedQuery, QueryMessage, QueryResult, ResultHead, Watchdog};
use crate::session::{Shared, Sql};

/// Origin of fragments in the list of statements.
const ORIGIN: &str = "node";
/// Replies that wait for their reader.
const REPLIES_READY: usize = 2;

impl Sql {
    /// Executes a fragment of a statement of another node, which has checked the rights of its caller. Returns the replies; dropping the stream
    /// ends the work.
    ///
    /// Errors: in the stream: `Unavailable` if the node cannot take it now or has another version, those of a query.
    pub fn run_fragment(&self, fragment: &Bytes) -> BoxStream<'static, Result<Bytes>> {
        match self.shared().run_fragment(fragment) {
            Ok(replies) => replies,
            Err(error) => stream::once(async move { Err(error) }).boxed(),
        }
    }
}

impl Shared {
    /// Starts a fragment.
    fn run_fragment(self: &Arc<Self>, fragment: &Bytes) -> Result<BoxStream<'static, Result<Bytes>>> {
        let message = FragmentMessage::decode(fragment.clone()).map_err(|e| {
            Error::unavailable(format!("it cannot read the fragment of another version: {e}"))
        })?;
        if message.versions != versions() {
            return Err(Error::unavailable(format!(
                "it has version {}, and the node of the statement {}",
                versions(),
                message.versions
            )));
        }
        let running = self.fragments.take()?;
        let limit = Duration::from_millis(message.time_left_ms).min(self.options.query_timeout);
        let text = format!("part of a statement of node {}: {}", message.node, message.statement);
        let principal = Principal::system();
        let (statement, expired) = self.statements.begin(kept_text(&text), ORIGIN, &principal, limit);
        let reader = statement.reader();
        let watchdog = Watchdog { expired, task: Some(self.time_limit(statement.statement())) };
        let (messages_in, messages) = mpsc::channel(REPLIES_READY);
        let work = Work::new(statement, self.fragments.places.clone());
        let shared = self.clone();
        self.start_thread(work, move |work| shared.execute_fragment(work, message, messages_in, running))?;
        let head = ResultHead::new(Arc::new(arrow::datatypes::Schema::empty()), Vec::new());
        let bytes_max = self.options.collect_bytes_max;
        let result = QueryResult::new(head, messages, bytes_max, self.closing.clone(), watchdog, reader);
        Ok(EncodedQuery { result, format: Format::Arrow }.boxed())
    }

    async fn execute_fragment(
        self: Arc<Self>,
        work: Arc<Work>,
        fragment: FragmentMessage,
        messages: mpsc::Sender<QueryMessage>,
        running: OwnedSemaphorePermit,
    ) {
        let last = match self.forward_fragment(&work, &fragment, &messages).await {
            Ok(None) => return,
            Ok(Some(rows)) => {
                work.statement().set_outcome(None);
                let _ = messages.send(QueryMessage::Encoded(encode_end(rows))).await;
                QueryMessage::End
            }
            Err(error) => {
                let error = self.closing.explain(error);
                work.statement().set_outcome(Some(&error));
                QueryMessage::Failed(error)
            }
        };
        drop((work, running));
        // a reader that is gone needs it no longer
        let _ = messages.send(last).await;
    }

    /// Sends the rows of a fragment. Returns how many there are; `None` if the reader is gone.
    async fn forward_fragment(
        &self,
        work: &Arc<Work>,
        fragment: &FragmentMessage,
        messages: &mpsc::Sender<QueryMessage>,
    ) -> Result<Option<u64>> {
        work.statement().set_phase(StatementPhase::Planning);
        let files = Arc::new(OpenFiles::new(self.tables.tablet_keys()));
        let mut batches = self.start_fragment(work, fragment, &files).await?;
        work.statement().set_phase(StatementPhase::Running);
        let (mut encoder, mut rows) = (BatchEncoder::default(), 0_u64);
        while let Some(batch) = batches.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(files.name_damaged(from_datafusion(&error, None)).await),
            };
            rows += batch.num_rows() as u64;
            work.statement().add_rows(batch.num_rows());
            for piece in pieces(batch) {
                let reply = encode_rows(&mut encoder, &piece)?;
                if messages.send(QueryMessage::Encoded(reply)).await.is_err() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(rows))
    }

    async fn start_fragment(
        &self,
        work: &Arc<Work>,
        fragment: &FragmentMessage,
        files: &Arc<OpenFiles>,
    ) -> Result<SendableRecordBatchStream> {
        let failed = |e| from_datafusion(&e, None);
        let mut config = self.state.config().clone().with_extension(work.clone());
        let rows = usize::try_from(fragment.batch_rows).unwrap_or(usize::MAX);
        let usual = config.batch_size();
        config.options_mut().execution.batch_size =
            ConfigNonZeroUsize::try_new(rows.clamp(1, usual)).map_err(failed)?;
        let threads = config.target_partitions();
        let context = TaskContext::from(&self.state).with_session_config(config);
        let scan = {
            let (state, files) = (self.state.clone(), files.clone());
            let store = self.tables.object_store().0;
            move |spec, tablets| {
                let url = ObjectStoreUrl::parse(&store[..url::Position::BeforePath])?;
                tablet_scan(&state, url, spec, tablets, &files, threads)
            }
        };
        let plan = decode_plan(&fragment.plan, &self.state, &context, scan).map_err(failed)?;
        let is_dictionary = |ty: &DataType| matches!(ty, DataType::Dictionary(..));
        if plan.schema().fields().iter().any(|field| is_dictionary(field.data_type())) {
            return Err(Error::invalid("a fragment of a statement has columns that are dictionaries"));
        }
        let plan: Arc<dyn ExecutionPlan> = match plan.output_ordering() {
            _ if plan.output_partitioning().partition_count() == 1 => plan,
            Some(order) => Arc::new(SortPreservingMergeExec::new(order.clone(), plan)),
            None => Arc::new(CoalescePartitionsExec::new(plan)),
        };
        let plan = interruptible(plan).map_err(failed)?;
        work.become_long().await.map_err(|stop| ended(&stop))?;
        execute_stream(plan, Arc::new(context)).map_err(failed)
    }
}

/// Returns the scan of these files, by as many threads as a plan of this node has.
fn tablet_scan(
    state: &datafusion::execution::SessionState,
    url: ObjectStoreUrl,
    spec: ScanSpec,
    files: Vec<ScannedFile>,
    open: &Arc<OpenFiles>,
    threads: usize,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let ScanSpec { schema, projection, predicate } = spec;
    let environment = state.runtime_env();
    let sums = files.iter().filter_map(|file| Some((file.path.clone(), file.checksums.clone()?)));
    let store = Arc::new(CheckedStore::with_checksums(environment.object_store(&url)?, sums));
    let cache = environment.cache_manager.get_file_metadata_cache();
    let source = ParquetSource::new(schema)
        .with_table_parquet_options(state.default_table_options().parquet)
        .with_parquet_file_reader_factory(Arc::new(NamedReaders::new(store, cache, open.clone())))
        .with_enable_page_index(true)
        .with_bloom_filter_on_read(true);
    let source = match predicate {
        Some(predicate) => source.with_predicate(predicate),
        None => source,
    };
    let source: Arc<dyn FileSource> = match &projection {
        Some(projection) => source.try_pushdown_projection(projection)?.unwrap_or_else(|| Arc::new(source)),
        None => Arc::new(source),
    };
    let partitioned = |file: ScannedFile| {
        let mut partitioned = PartitionedFile::new("", file.size);
        // set directly: `PartitionedFile::new` would escape the path a second time
        partitioned.object_meta.location = file.path;
        partitioned
    };
    let groups = group_files(files.into_iter().map(partitioned).collect(), threads);
    let config = FileScanConfigBuilder::new(url, source).with_file_groups(groups).build();
    let scan = DataSourceExec::from_data_source(config);
    // parts of large files for the threads that have none
    let scan = scan.clone().repartitioned(threads, state.config_options())?.unwrap_or(scan);
    Ok(scan)
}

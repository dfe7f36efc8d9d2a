//! Statements with parameters that ask for rows by keys or ids: `SELECT velocity FROM readings WHERE truck = $1 AND time = $2`.
//!
//! Programs send such a statement many times, each time with other values, over connections that know its text only. The first execution
//! keeps its template under the text, so that the others parse and optimize nothing.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};
use tidemill_types::Result;

use crate::MissingFields;
use crate::catalog::QuerySnapshots;
use crate::error::{ended, from_datafusion};
use crate::events::OpenFiles;
use crate::execution::work::Work;
use crate::hot::{HotAccess, HotScanExec};
use crate::interrupt::{interruptible, starts_tasks};
use crate::optimizer::{batch_size, width};
use crate::plans::origins::{self, Origins};
use crate::plans::template::{KeptTemplate, StartedTemplate, Template};
use crate::query::QueryRequest;
use crate::session::Shared;

/// Rows of a statement, the files that they are read from, and where its columns come from.
type StartedLookup = (SendableRecordBatchStream, Arc<OpenFiles>, Origins);

impl Shared {
    /// Starts a statement with the values of its parameters; `None` for a statement of another kind. The caller may read all streams.
    ///
    /// Errors: those of a statement that is planned.
    pub async fn start_lookup(
        &self,
        request: &QueryRequest,
        work: &Arc<Work>,
    ) -> Result<Option<StartedLookup>> {
        let (text, missing) = (request.text.as_ref(), request.missing);
        // a field that does not exist is a column of its statement alone
        if request.parameters.is_empty() || missing != MissingFields::Refused || !self.lookups.keeps(text) {
            return Ok(None);
        }
        let kept = match self.lookups.get(text, missing) {
            Some(kept) => kept,
            None => {
                let kept = Arc::new(self.plan_lookup(request).await?);
                self.lookups.put(text, missing, kept.clone());
                kept
            }
        };
        let Some(lookup) = kept.as_ref() else { return Ok(None) };
        // a name that is written in another way may be that of another table by now
        let started = match lookup.is_of_same_tables(&self.tables) {
            true => self.start_template(&lookup.template, request, work).await?,
            false => StartedTemplate::Stale,
        };
        match started {
            StartedTemplate::Running(stream, files) => Ok(Some((stream, files, lookup.origins.clone()))),
            StartedTemplate::Stale => {
                self.lookups.remove(text, missing, &kept);
                Ok(None)
            }
            StartedTemplate::Unfit => {
                self.lookups.put(text, missing, Arc::new(None));
                Ok(None)
            }
        }
    }

    /// Starts a template with the values of a request, over new snapshots.
    ///
    /// Errors: those of [`Template::bind`]; `LimitReached` for memory.
    pub async fn start_template(
        &self,
        template: &Template,
        request: &QueryRequest,
        work: &Arc<Work>,
    ) -> Result<StartedTemplate> {
        let failed = |e| from_datafusion(&e, None);
        let files = Arc::new(OpenFiles::default());
        let hot = self.hot.as_ref().map(HotAccess::rows);
        let snapshots = QuerySnapshots::new(self.tables.clone(), files.clone(), request.missing, hot);
        let Some(plan) = template.bind(&request.parameters, &snapshots)? else {
            return Ok(StartedTemplate::Stale);
        };
        let state = if template.is_lookup { &self.lookup_state } else { &self.state };
        let usual = state.config().batch_size();
        let rows = batch_size::rows_per_batch(&plan, usual, self.options.function_bytes).map_err(failed)?;
        let width = width::of_plan(&plan, state, &self.widths).await.map_err(failed)?;
        let batch_bytes = width::batch_bytes(self.options.memory_bytes);
        if rows.min(width::rows_per_batch(width, usual, batch_bytes)) != usual {
            return Ok(StartedTemplate::Unfit);
        }
        let physical = state.query_planner().create_physical_plan(&plan, state).await.map_err(failed)?;
        let physical = interruptible(physical).map_err(failed)?;
        if !HotScanExec::all(&physical).map_err(failed)?.is_empty() {
            return Ok(StartedTemplate::Unfit);
        }
        work.reserve_pages(width.page_bytes).await.map_err(|stop| ended(&stop))?;
        if starts_tasks(&physical) {
            work.become_long().await.map_err(|stop| ended(&stop))?;
        }
        let config = self.state.config().clone().with_extension(work.clone());
        // `information_schema.routines` lists the functions of the context
        let context = TaskContext::from(&self.state).with_session_config(config);
        let stream = execute_stream(physical, Arc::new(context)).map_err(failed)?;
        Ok(StartedTemplate::Running(stream, files))
    }

    async fn plan_lookup(&self, request: &QueryRequest) -> Result<Option<KeptTemplate>> {
        let query = self.plan_alone(request, None).await?;
        let names = query.snapshots.resolved_names();
        let origins = origins::of_plan(&query.plan, &query.snapshots);
        let template = self.prepare(query)?.template.filter(|template| template.is_lookup);
        Ok(template.map(|template| KeptTemplate { template, names, origins }))
    }
}

//! Statements with parameters that ask for rows by keys or ids: `SELECT velocity FROM readings WHERE truck = $1 AND time = $2`.
//!
//! Programs send such a statement many times, each time with other values, over connections that know its text only. The first execution
//! keeps its template under the text, so that the others parse and optimize nothing.

use std::sync::Arc;

use datafusion::physical_plan::SendableRecordBatchStream;
use tidemill_types::Result;

use crate::MissingFields;
use crate::catalog::{QuerySnapshots, ResolvedName};
use crate::events::OpenFiles;
use crate::execution::work::Work;
use crate::plans::origins::{self, Origins};
use crate::plans::template::{StartedTemplate, Template};
use crate::query::QueryRequest;
use crate::session::Shared;

/// What is kept of a statement.
#[derive(Debug)]
pub(crate) struct Lookup {
    template: Template,
    /// Names of its tables.
    names: Vec<ResolvedName>,
    origins: Origins,
}

impl Lookup {
    fn is_of_same_tables(&self, shared: &Shared) -> bool {
        let now = || QuerySnapshots::new(shared.tables.clone(), Arc::default(), MissingFields::Refused, None);
        self.names.iter().all(ResolvedName::is_exact) || now().finds_same(&self.names)
    }
}

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
        if request.parameters.is_empty()
            || missing != MissingFields::Refused
            || self.options.cached_plans == 0
        {
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
        let started = match lookup.is_of_same_tables(self) {
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

    async fn plan_lookup(&self, request: &QueryRequest) -> Result<Option<Lookup>> {
        let query = self.plan_alone(request, None).await?;
        let names = query.snapshots.resolved_names();
        let origins = origins::of_plan(&query.plan, &query.snapshots);
        let template = self.prepare(query)?.template.filter(|template| template.is_lookup);
        Ok(template.map(|template| Lookup { template, names, origins }))
    }
}

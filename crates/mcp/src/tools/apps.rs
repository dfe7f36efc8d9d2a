//! The deployed app, and changed ones that are not deployed.
//!
//! An app is one whole: its explanation has the names of all queries, and the errors of a changed file may have any name. So a caller
//! needs rights on all of it.

use futures::StreamExt;
use serde_json::{Map, Value as Json};
use tidemill_access::{Action, Resource};
use tidemill_database::{EncodedReply, Format, QueryRequest};
use tidemill_types::{Error, Result};

use super::{ORIGIN, cut, on_engine};
use crate::arguments::{BacktestArguments, ExplainArguments, FileArgument};
use crate::engine::{ChangedFile, PreparedBacktest};
use crate::handler::ToolContext;

/// Events that a backtest shows of each stream, on each side.
const SHOWN: usize = 10;

fn changed(files: Vec<FileArgument>) -> Vec<ChangedFile> {
    files.into_iter().map(|FileArgument { name, text }| ChangedFile { name, text }).collect()
}

/// Explains where the queries of the deployed app run, or those of one with changed files.
pub(crate) async fn explain(context: ToolContext, arguments: ExplainArguments) -> Result<String> {
    let principal = context.principal.clone();
    let files = changed(arguments.files);
    principal.may(if files.is_empty() { Action::Read } else { Action::Author }, &Resource::all_rules())?;
    let bytes_max = context.options.answer_bytes;
    on_engine(&context.engine, context.options.tool_timeout, move |engine| {
        let may_read = |name: &str| principal.can(Action::Read, &Resource::query(name));
        if !engine.queries()?.iter().all(|query| may_read(&query.name)) {
            // the error has no name of a query
            principal.may(Action::Read, &Resource::query("*"))?;
        }
        let text = engine.explain(files)?;
        Ok(if text.is_empty() { "The app has no queries.".to_owned() } else { cut(text, bytes_max) })
    })
    .await
}

/// Compares the output of changed queries with that of the deployed ones over stored events.
pub(crate) async fn backtest(context: ToolContext, arguments: BacktestArguments) -> Result<String> {
    let BacktestArguments { files, from, to, show } = arguments;
    context.principal.may(Action::Author, &Resource::all_rules())?;
    let (engine, options) = (&context.engine, context.options.clone());
    let files = changed(files);
    let mut backtest = on_engine(engine, options.tool_timeout, move |engine| {
        engine.backtest(files, from.as_deref(), to.as_deref())
    })
    .await?;
    let mut size = HistorySize::default();
    for (stream, query) in backtest.history() {
        size.read(&context, &mut *backtest, &stream, query).await?;
    }
    let show = show.unwrap_or(SHOWN);
    let (events_max, bytes_max) = (options.events_max, options.answer_bytes);
    on_engine(engine, options.tool_timeout, move |_| Ok(cut(backtest.run(show, events_max)?, bytes_max)))
        .await
}

/// Size of the events of a backtest.
#[derive(Default)]
struct HistorySize {
    events: usize,
    bytes: usize,
}

impl HistorySize {
    /// Adds the events of a stream to a backtest, with the rights of the caller.
    ///
    /// Errors: those of the statement; `LimitReached` for too many events.
    async fn read(
        &mut self,
        context: &ToolContext,
        backtest: &mut dyn PreparedBacktest,
        stream: &str,
        query: String,
    ) -> Result<()> {
        let options = &context.options;
        let request = QueryRequest::new(query, ORIGIN, context.principal.reading_only());
        let EncodedReply { mut pieces, .. } = context.database.query_encoded(request, Format::Ndjson).await?;
        let mut rest: Vec<u8> = vec![];
        while let Some(piece) = pieces.next().await {
            rest.extend_from_slice(&piece?);
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let begun = rest.split_off(end + 1);
            self.bytes += rest.len();
            for line in rest.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.events += 1;
                if self.events > options.events_max || self.bytes > options.events_bytes_max {
                    return Err(Error::limit(format!(
                        "the queries read more than {} events, or {} bytes of them, in that time: choose a shorter one with from and to",
                        options.events_max, options.events_bytes_max
                    )));
                }
                let row: Map<String, Json> = serde_json::from_slice(line)
                    .map_err(|e| Error::internal("a row of the history is not JSON").with_source(e))?;
                backtest.add(stream, row)?;
            }
            rest = begun;
        }
        Ok(())
    }
}

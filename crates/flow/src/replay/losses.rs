//! Losses: events of failed queries whose stream has no fault stream, counted with an example.

use crate::columns::batch::Batch;
use crate::eval_error::EvalError;
use crate::functions::json_text::tagged_json;

/// Loss of one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryLoss {
    /// Query name.
    pub query: String,
    /// Number of failures.
    pub times: u64,
    /// Number of events that these failures have lost; a failed timer loses none.
    pub events: u64,
    /// Reason of the first failure.
    pub reason: String,
    /// The first lost event: stream, time and values.
    pub example: Option<String>,
}

/// Counts the failures that an [`OutputHandler`](crate::runtime::OutputHandler) receives.
#[derive(Debug, Default)]
pub struct LossCounter {
    by_query: Vec<QueryLoss>,
    /// The last failure, until it is known what happened to its events.
    pending: Option<(String, EvalError)>,
}

impl LossCounter {
    /// Handles [`OutputHandler::failure`](crate::runtime::OutputHandler::failure).
    pub fn failure(&mut self, query: &str, failure: &EvalError) {
        self.end_call();
        self.pending = Some((query.to_owned(), failure.clone()));
    }

    /// Handles [`OutputHandler::failed_events`](crate::runtime::OutputHandler::failed_events).
    pub fn failed_events(&mut self, stream: &str, events: &Batch, kept: bool) {
        let Some((query, failure)) = self.pending.take().filter(|_| !kept) else { return };
        let first = (!events.is_empty()).then(|| {
            let values: Vec<_> = events.columns.iter().map(|column| tagged_json(&column.get(0))).collect();
            format!("{stream} at {}: {}", events.times[0], serde_json::Value::from(values))
        });
        self.add(query, failure, events.len() as u64, first);
    }

    /// Ends a call: a pending failure without events was that of a timer.
    pub fn end_call(&mut self) {
        if let Some((query, failure)) = self.pending.take() {
            self.add(query, failure, 0, None);
        }
    }

    fn add(&mut self, query: String, failure: EvalError, events: u64, example: Option<String>) {
        match self.by_query.iter_mut().find(|lost| lost.query == query) {
            Some(lost) => {
                lost.times += 1;
                lost.events += events;
                lost.example = lost.example.take().or(example);
            }
            None => self.by_query.push(QueryLoss {
                query,
                times: 1,
                events,
                reason: failure.to_string(),
                example,
            }),
        }
    }

    /// Returns the losses by query, in order of the first failure.
    pub fn by_query(&self) -> &[QueryLoss] {
        &self.by_query
    }
}

//! Events that are lost because a query fails and the stream has no fault stream: counted, with an example.

use crate::batch::Batch;
use crate::expr::EvalError;
use crate::replay::json_of;

/// What one query lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryLoss {
    /// The query.
    pub query: String,
    /// How often it failed.
    pub times: u64,
    /// How many events it was given then; none where it failed in a timer.
    pub events: u64,
    /// Why it failed the first time.
    pub reason: String,
    /// The first event that was lost: its stream, its time, its values.
    pub example: Option<String>,
}

/// Counts what a [`Sink`](crate::runtime::OutputHandler) is told of failures.
#[derive(Debug, Default)]
pub struct LossCounter {
    by_query: Vec<QueryLoss>,
    /// The failure of which it is not known yet what becomes of its events.
    pending: Option<(String, EvalError)>,
}

impl LossCounter {
    /// See [`Sink::failure`](crate::runtime::OutputHandler::failure).
    pub fn failure(&mut self, query: &str, failure: &EvalError) {
        self.end_call();
        self.pending = Some((query.to_owned(), failure.clone()));
    }

    /// See [`Sink::failed_events`](crate::runtime::OutputHandler::failed_events).
    pub fn failed_events(&mut self, stream: &str, events: &Batch, kept: bool) {
        let Some((query, failure)) = self.pending.take().filter(|_| !kept) else { return };
        let first = (!events.is_empty()).then(|| {
            let values: Vec<_> = events.columns.iter().map(|column| json_of(&column.get(0))).collect();
            format!("{stream} at {}: {}", events.times[0], serde_json::Value::from(values))
        });
        self.add(query, failure, events.len() as u64, first);
    }

    /// Nothing more is told of the call: a failure that had no events was one of a timer.
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
            None => self.by_query.push(QueryLoss { query, times: 1, events, reason: failure.0, example }),
        }
    }

    /// By query, in the order in which they failed first.
    pub fn by_query(&self) -> &[QueryLoss] {
        &self.by_query
    }
}

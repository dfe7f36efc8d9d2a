//! Answers to the calls of a sink, on their way to the sources that take them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidemill_connect::{SinkBatch, SourceConnector, SourceOutput, write_value};
use tidemill_types::{Error, Result, row_value};
use tokio::time::{Instant, sleep};

/// Maximum time a sink waits for its sources to start, and the interval at which it checks.
const SOURCES_WAIT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(10));

/// App and id of a sink.
pub(crate) type SinkKey = (String, String);

/// Sources that take the answers of calls, running or not. `F` is what a source takes of them.
pub(crate) struct Routes<F>(Mutex<BTreeMap<SinkKey, Vec<Route<F>>>>);

struct Route<F> {
    id: u64,
    filter: F,
    /// Output for answers while the source runs.
    output: Option<SourceOutput>,
}

impl<F> Routes<F> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Adds a source, until the registration is dropped.
    pub(crate) fn register(&'static self, key: SinkKey, filter: F) -> Registration<F> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.lock().entry(key.clone()).or_default().push(Route { id, filter, output: None });
        Registration { routes: self, key, id }
    }

    /// Returns the outputs of the running sources that take an answer.
    pub(crate) fn outputs(&self, key: &SinkKey, takes: impl Fn(&F) -> bool) -> Vec<SourceOutput> {
        let routes = self.0.lock();
        let own = routes.get(key).map_or(&[][..], Vec::as_slice);
        own.iter().filter(|route| takes(&route.filter)).filter_map(|route| route.output.clone()).collect()
    }

    /// Waits until the sources of the answers run, so that no answer gets lost.
    ///
    /// Errors: `Unavailable` if one of them does not.
    pub(crate) async fn wait_for_sources(&self, key: &SinkKey) -> Result<()> {
        let (most, interval) = SOURCES_WAIT;
        let end = Instant::now() + most;
        loop {
            let (known, running) = {
                let routes = self.0.lock();
                let own = routes.get(key).map_or(&[][..], Vec::as_slice);
                (own.len(), own.iter().filter(|route| route.output.is_some()).count())
            };
            match Instant::now() >= end {
                _ if known != 0 && running == known => return Ok(()),
                // an app may be content with sending
                true if known == 0 => return Ok(()),
                true => {
                    let message = format!("a source of the answers to sink.id='{}' does not run", key.1);
                    return Err(Error::unavailable(message));
                }
                false => sleep(interval).await,
            }
        }
    }
}

/// A source's place among the routes, until it is dropped. It is the source itself: it forwards answers while it runs.
pub(crate) struct Registration<F: 'static> {
    routes: &'static Routes<F>,
    key: SinkKey,
    id: u64,
}

impl<F> Registration<F> {
    fn set_output(&self, output: Option<SourceOutput>) {
        let mut routes = self.routes.0.lock();
        let own = routes.get_mut(&self.key).and_then(|all| all.iter_mut().find(|route| route.id == self.id));
        if let Some(own) = own {
            own.output = output;
        }
    }
}

#[async_trait]
impl<F: Send + Sync> SourceConnector for Registration<F> {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        self.set_output(Some(output.clone()));
        let _running = Running(self);
        output.report_connected();
        std::future::pending().await
    }
}

impl<F> Drop for Registration<F> {
    fn drop(&mut self) {
        let mut routes = self.routes.0.lock();
        if let Some(all) = routes.get_mut(&self.key) {
            all.retain(|route| route.id != self.id);
            if all.is_empty() {
                routes.remove(&self.key);
            }
        }
    }
}

/// Ends the running of a source when it is dropped.
struct Running<'r, F: 'static>(&'r Registration<F>);

impl<F> Drop for Running<'_, F> {
    fn drop(&mut self) {
        self.0.set_output(None);
    }
}

/// Returns the attributes of the event that made a call, for `trp:` in the sources of its answer.
pub(crate) fn attributes(names: &[String], batch: &SinkBatch, row: usize) -> Vec<(String, String)> {
    let mut all = vec![];
    for (column, name) in names.iter().enumerate() {
        let value = row_value(&batch.rows, column, row);
        if !value.is_absent() {
            let mut text = String::new();
            write_value(&value, &mut text);
            all.push((name.clone(), text));
        }
    }
    all
}

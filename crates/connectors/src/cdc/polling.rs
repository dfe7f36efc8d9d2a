//! New rows by queries.

use std::time::Instant;

use async_trait::async_trait;
use tidemill_connect::{Message, SourceConnector, SourceOutput};
use tidemill_relational::{ChangeOperation, ChangePoller, ChangeSettings, PolledRow};
use tidemill_types::{Error, Result};

use super::options::PollingOptions;
use super::progress::{Splits, decoded, encoded, send, store};
use super::transaction::row_message;

/// Rows of a query.
const ROWS: usize = 4096;
/// Rows with the same value that are read at once.
const SAME_VALUE_ROWS_MAX: usize = 1 << 20;

/// Source that polls a table.
pub(super) struct Polling {
    settings: ChangeSettings,
    options: PollingOptions,
    splits: Splits,
}

/// Integer that is left out, since when.
type Gap = Option<(i64, Instant)>;

impl Polling {
    pub(super) fn new(settings: ChangeSettings, options: PollingOptions) -> Self {
        Self { settings, options, splits: Splits::default() }
    }

    async fn poll(&self, output: &SourceOutput) -> Result<()> {
        let mut poller = ChangePoller::connect(&self.settings, &self.options.column).await?;
        let waits = self.options.gap_timeout.is_some();
        if waits && !poller.has_integers() {
            return Err(Error::invalid(format!(
                "`wait.on.missed.record` needs a column of integers, but `{}` has times",
                self.options.column
            )));
        }
        if output.position(&self.splits.polled).is_none() {
            let position = match self.options.snapshot {
                true => 0,
                false => poller.greatest().await?.map_or(0, |value| encoded(value).saturating_add(1)),
            };
            store(output, &self.splits.polled, position).await?;
        }
        output.report_connected();
        let mut gap = None;
        loop {
            let after = decoded(output.position(&self.splits.polled).unwrap_or_default());
            let (mut rows, is_more) = whole_values(&mut poller, after).await?;
            let found = rows.len();
            if waits && let Some(after) = after {
                self.keep_gapless(&mut rows, after, &mut gap);
            }
            let is_held = rows.len() < found;
            if let Some(last) = rows.last() {
                let position = encoded(last.value).saturating_add(1);
                let messages = rows.into_iter().map(message).collect();
                send(output, &self.splits.polled, messages, position).await?;
            }
            if !is_more || is_held {
                tokio::time::sleep(self.options.interval).await;
            }
        }
    }

    /// Leaves out the rows behind an integer that is missing, until it has been waited for long enough.
    fn keep_gapless(&self, rows: &mut Vec<PolledRow>, after: i64, gap: &mut Gap) {
        let mut previous = after;
        for index in 0..rows.len() {
            let value = rows.get(index).map_or(previous, |row| row.value);
            let missing = previous.saturating_add(1);
            if value > missing {
                let since = match *gap {
                    Some((known, since)) if known == missing => since,
                    _ => gap.insert((missing, Instant::now())).1,
                };
                if self.options.gap_timeout.is_none_or(|timeout| since.elapsed() < timeout) {
                    rows.truncate(index);
                    return;
                }
                tracing::warn!(table = %self.settings.table, missing, before = value, "rows that are missing are passed over");
            }
            previous = value;
        }
    }
}

#[async_trait]
impl SourceConnector for Polling {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let at = format!("{}, table `{}`", self.settings.url, self.settings.table);
        let polled = self.poll(output).await;
        polled.map_err(|e| Error::new(e.kind(), format!("{at}: {}", e.message())))
    }
}

fn message(row: PolledRow) -> Message {
    row_message(row.json, ChangeOperation::Insert, None, encoded(row.value))
}

/// Returns the next rows, with all rows of each value, because the next query begins behind the last value; and whether
/// there may be more.
async fn whole_values(poller: &mut ChangePoller, after: Option<i64>) -> Result<(Vec<PolledRow>, bool)> {
    let mut limit = ROWS;
    loop {
        let mut rows = poller.poll(after, limit).await?;
        if rows.len() < limit {
            return Ok((rows, false));
        }
        let last = rows.last().map(|row| row.value);
        let whole = rows.partition_point(|row| Some(row.value) < last);
        if whole > 0 {
            rows.truncate(whole);
            return Ok((rows, true));
        }
        limit *= 4;
        if limit > SAME_VALUE_ROWS_MAX {
            return Err(Error::limit(format!(
                "more than {SAME_VALUE_ROWS_MAX} rows have the same value in the polled column; poll another column, or use \
                 mode='listening'"
            )));
        }
    }
}

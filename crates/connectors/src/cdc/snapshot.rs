//! The rows that are in the table when a source begins.
//!
//! They are read in the order of their keys, so that a source that was interrupted continues behind the last
//! key. By then it does not see the table as it was before: the rows that are left come as they are at a
//! later position of the log. Changes of these rows before that position are in them already and are left
//! out. This takes a primary key of one integer column; without one, an interrupted snapshot restarts.

use tidemill_connect::SourceOutput;
use tidemill_relational::{ChangeLog, ChangeOperation, ChangeStart, ChangedRow};
use tidemill_types::{Error, Result, Timestamp};

use super::progress::{Splits, decoded, encoded, send, store};
use super::transaction::row_message;

/// Rows that are handed over together.
const CHUNK_ROWS: usize = 2048;

/// Positions of later looks at the table: for each look, the position of the keys that were read before, and
/// the position of the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LaterLooks(Vec<(u64, u64)>);

impl LaterLooks {
    fn names(index: usize) -> (String, String) {
        (format!("snapshot key {index}"), format!("snapshot log {index}"))
    }

    /// Reads what is stored.
    pub(super) fn stored(output: &SourceOutput) -> Self {
        let mut looks = vec![];
        loop {
            let (key, log) = Self::names(looks.len());
            match (output.position(&key), output.position(&log)) {
                (Some(key), Some(log)) => looks.push((key, log)),
                _ => return Self(looks),
            }
        }
    }

    async fn add(&mut self, key: u64, log: u64, output: &SourceOutput) -> Result<()> {
        let names = Self::names(self.0.len());
        store(output, &names.0.into(), key).await?;
        store(output, &names.1.into(), log).await?;
        self.0.push((key, log));
        Ok(())
    }

    /// Returns whether a look has seen this change of the transaction `id`.
    pub(super) fn have_seen(&self, row: &ChangedRow, id: u64) -> bool {
        let Some(key) = row.key else { return false };
        let number = encoded(key);
        // the last look that covers the key
        let look = self.0.iter().rfind(|(from, _)| number >= *from);
        look.is_some_and(|(_, log)| id < *log)
    }

    /// Returns whether the changes from this transaction on need not be compared.
    pub(super) fn are_over(&self, id: u64) -> bool {
        self.0.iter().all(|(_, log)| id >= *log)
    }
}

/// Begins to read the log of a source that has not begun yet, or that was interrupted in its snapshot. Hands over the rows of
/// the table.
///
/// Errors: those of the server; the source stops.
pub(super) async fn run(
    log: &mut ChangeLog,
    output: &SourceOutput,
    splits: &Splits,
    slot_is_own: bool,
) -> Result<u64> {
    let has_key = log.has_integer_key();
    let (begin, after) = match output.position(&splits.snapshot_log) {
        Some(begin) if has_key => {
            log.begin(ChangeStart::At(begin)).await?;
            let later = log.begin_snapshot().await?;
            let read = output.position(&splits.snapshot).unwrap_or_default();
            LaterLooks::stored(output).add(read, later, output).await?;
            (begin, decoded(read))
        }
        _ => {
            let replace = slot_is_own && output.position(&splits.prepared).is_some();
            if output.position(&splits.snapshot).is_some() {
                tracing::warn!(
                    "the snapshot was interrupted and begins anew, so its first rows come twice: the table has no primary key of \
                     one integer column"
                );
            }
            store(output, &splits.prepared, 1).await?;
            let begin = log.begin(ChangeStart::Now { replace, snapshot: true }).await?;
            if has_key {
                store(output, &splits.snapshot_log, begin).await?;
            }
            (begin, None)
        }
    };
    output.report_connected();
    log.open_snapshot(after).await?;
    copy(log, output, splits, has_key).await?;
    Ok(begin)
}

async fn copy(log: &mut ChangeLog, output: &SourceOutput, splits: &Splits, has_key: bool) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // changes that are read later are not before these rows
    let time = Timestamp(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
    let mut position = output.position(&splits.snapshot).unwrap_or_default();
    let mut last = None;
    loop {
        let rows = log.snapshot(CHUNK_ROWS).await?;
        if rows.is_empty() {
            break;
        }
        let mut messages = Vec::with_capacity(rows.len());
        for row in rows {
            let number = match (has_key, row.key) {
                (true, Some(key)) => encoded(key),
                (true, None) => return Err(Error::unavailable("a row of the table has no key")),
                (false, _) => position,
            };
            position = number.saturating_add(1);
            messages.push(row_message(row.json, ChangeOperation::Insert, Some(time), number));
        }
        last = Some(send(output, &splits.snapshot, messages, position).await?);
    }
    match last {
        Some(receipt) => receipt.wait().await.map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_a_later_look_has_seen_are_left_out() {
        // keys up to 10 were read first, up to 20 at position 100 of the log, and the others at 200
        let looks = LaterLooks(vec![(encoded(10) + 1, 100), (encoded(20) + 1, 200)]);
        let row =
            |key| ChangedRow { operation: ChangeOperation::Update, json: Default::default(), key: Some(key) };
        let seen = |key, id| looks.have_seen(&row(key), id);
        assert!(!seen(10, 50), "the first look was before all changes");
        assert!(seen(11, 50) && seen(20, 99) && !seen(20, 100) && !seen(11, 150));
        assert!(seen(21, 150) && seen(i64::MAX, 199) && !seen(21, 200));
        assert!(!looks.are_over(199) && looks.are_over(200));
    }
}

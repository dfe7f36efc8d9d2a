//! The transaction that is being read.

use tidemill_connect::{Message, SourceOutput};
use tidemill_relational::{ChangeOperation, ChangedRow};
use tidemill_types::{Result, Timestamp};

use super::progress::{Splits, send, store};

/// Rows and bytes of a transaction from which on it is handed over in parts.
const PART: (usize, usize) = (8192, 8 << 20);

/// Transaction whose rows arrive.
pub(super) struct CdcTransaction {
    id: u64,
    time: Timestamp,
    messages: Vec<Message>,
    bytes: usize,
    /// Rows that are in the log of events already.
    skip: u64,
    is_in_parts: bool,
}

/// Returns the message of a row.
pub(super) fn message(row: ChangedRow, time: Option<Timestamp>, number: u64) -> Message {
    row_message(row.json, row.operation, time, number)
}

/// Returns the message of a row.
pub(super) fn row_message(
    json: bytes::Bytes,
    operation: ChangeOperation,
    time: Option<Timestamp>,
    number: u64,
) -> Message {
    let mut properties = vec![("operation".to_owned(), operation.name().to_owned())];
    if let Some(time) = time {
        properties.push(("ts_ms".into(), time.micros().div_euclid(1000).to_string()));
    }
    Message { properties, time, number, ..Message::new(json) }
}

impl CdcTransaction {
    /// Begins a transaction. Parts of it may already be in the log of events.
    pub(super) fn begin(id: u64, time: Timestamp, output: &SourceOutput, splits: &Splits) -> Self {
        let position = |split: &str| output.position(split).unwrap_or_default();
        let is_in_parts = output.position(&splits.transaction) == Some(id);
        let skip = match is_in_parts {
            true => position(&splits.rows).saturating_sub(position(&splits.rows_before)),
            false => 0,
        };
        Self { id, time, messages: vec![], bytes: 0, skip, is_in_parts }
    }

    /// Returns its number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Adds a row.
    ///
    /// Errors: the source stops.
    pub(super) async fn push(
        &mut self,
        row: ChangedRow,
        output: &SourceOutput,
        splits: &Splits,
    ) -> Result<()> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        self.bytes += row.json.len() + 128;
        self.messages.push(message(row, Some(self.time), self.id));
        if self.messages.len() < PART.0 && self.bytes < PART.1 {
            return Ok(());
        }
        if !self.is_in_parts {
            store(output, &splits.rows_before, output.position(&splits.rows).unwrap_or_default()).await?;
            store(output, &splits.transaction, self.id).await?;
            self.is_in_parts = true;
        }
        self.send_part(output, splits).await
    }

    async fn send_part(&mut self, output: &SourceOutput, splits: &Splits) -> Result<()> {
        let first = output.position(&splits.rows).unwrap_or_default();
        let mut messages = std::mem::take(&mut self.messages);
        let mut next = first;
        for message in &mut messages {
            message.number = next;
            next += 1;
        }
        self.bytes = 0;
        send(output, &splits.rows, messages, next).await.map(drop)
    }

    /// Ends the transaction, and returns the rows that have to be handed over together with the position behind it.
    ///
    /// Errors: the source stops.
    pub(super) async fn end(mut self, output: &SourceOutput, splits: &Splits) -> Result<Vec<Message>> {
        if self.is_in_parts && !self.messages.is_empty() {
            self.send_part(output, splits).await?;
        }
        Ok(self.messages)
    }

    /// Returns whether the transaction has to be stored.
    pub(super) fn has_rows(&self) -> bool {
        self.is_in_parts || !self.messages.is_empty()
    }
}

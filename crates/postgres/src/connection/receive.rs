//! `COPY … FROM STDIN`: the client sends rows until it says that they are all.

use tidemill_database::{CheckedEvents, target_fields};
use tidemill_types::{DecodedRows, Error};
use tokio::time::{Instant, timeout_at};

use super::Connection;
use super::execute::interruptible;
use crate::command::{CopyFormat, CopyIn};
use crate::copy_in::CopyDecoder;
use crate::error::{PgError, Result, code};
use crate::messages::input::{Format, Message};
use crate::messages::output;
use crate::settings::STATEMENT_TIMEOUT;

/// Bytes of a message that are decoded before other connections of the thread have their turn.
const PIECE_BYTES: usize = 64 << 10;

/// Rows of a copy so far.
#[derive(Default)]
struct ReceivedRows {
    events: CheckedEvents,
    /// Rows that were appended.
    stored: u64,
    rejected: usize,
}

impl Connection {
    /// Receives the rows of a copy, which are appended when the transaction ends, or in parts if the session asks for that. Returns
    /// their number.
    ///
    /// Errors: the stream or a column does not exist, or may not be written; a row does not fit; the client gives up. Nothing is stored
    /// then, but for the parts.
    pub(super) async fn copy_in(&mut self, copy: &CopyIn) -> Result<u64> {
        let mut decoder = self.begin_copy(copy).await?;
        let is_binary = copy.options.format == CopyFormat::Binary;
        let format = if is_binary { Format::Binary } else { Format::Text };
        output::copy_in(&mut self.wire.output, decoder.columns(), format);
        self.wire.flush().await?;
        let in_parts = !self.session.transaction.is_open() && !self.session.settings.copies_atomically();
        let mut received = ReceivedRows::default();
        let done = self.receive(&mut decoder, &mut received, in_parts).await;
        // other statements of the transaction keep their memory
        let kept = self.session.pending.reserve(0);
        if let Err(error) = done.and(kept) {
            return Err(match received.stored {
                0 => error,
                stored => error.with_hint(format!(
                    "{stored} rows before it were stored, as tidemill.copy_atomic is off: send the others again."
                )),
            });
        }
        let count = received.stored + received.events.len() as u64;
        self.tell_rejected(received.rejected);
        match in_parts {
            true => self.append(received.events, false).await.map(|_| ())?,
            false => self.session.pending.push(received.events)?,
        }
        Ok(count)
    }

    async fn begin_copy(&self, copy: &CopyIn) -> Result<CopyDecoder> {
        let at = |error: &Error, position: usize| PgError {
            position: Some(position),
            ..PgError::of_database(error, "")
        };
        let CopyIn { schema, table, columns, options } = copy;
        let principal = &self.session.principal;
        let stream = self.shared.database.open_stream(schema.as_deref(), &table.name, principal).await;
        let stream = stream.map_err(|error| at(&error, table.position))?;
        let fields = match columns {
            None => (0..stream.schema.fields.len()).collect(),
            Some(columns) => {
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                let found = target_fields(&stream.schema, &names);
                found.map_err(|(column, error)| at(&error, columns[column].position))?
            }
        };
        let settings = &self.session.settings;
        Ok(CopyDecoder::new(
            options.clone(),
            stream,
            fields,
            settings.zone().clone(),
            settings.bad_rows(),
            self.shared.options.message_bytes_max,
        ))
    }

    async fn receive(
        &mut self,
        decoder: &mut CopyDecoder,
        received: &mut ReceivedRows,
        in_parts: bool,
    ) -> Result<()> {
        let started = Instant::now();
        // a request between two messages counts as well
        let mut cancelled = Box::pin(self.session.key.cancelled());
        loop {
            let limit = self.session.settings.duration(STATEMENT_TIMEOUT);
            let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            match interruptible(&mut cancelled, left, self.next_of_copy()).await? {
                Message::CopyData(data) => {
                    for piece in data.chunks(PIECE_BYTES) {
                        decoder.feed(piece)?;
                        if decoder.is_full() {
                            self.take_batch(decoder, received, in_parts).await?;
                        }
                        tokio::task::yield_now().await;
                    }
                }
                Message::CopyDone => break,
                Message::CopyFail(reason) => {
                    return Err(PgError::new(code::CANCELLED, format!("COPY from stdin failed: {reason}")));
                }
                // clients may send them before the data
                Message::Flush | Message::Sync => {}
                other => {
                    return Err(PgError::protocol(format!(
                        "unexpected message during COPY from stdin: expected CopyData, CopyDone or CopyFail, found {other:?}"
                    )));
                }
            }
        }
        decoder.finish()?;
        self.take_batch(decoder, received, in_parts).await
    }

    /// Takes the rows that are decoded, and appends them if the copy is stored in parts.
    async fn take_batch(
        &mut self,
        decoder: &mut CopyDecoder,
        received: &mut ReceivedRows,
        in_parts: bool,
    ) -> Result<()> {
        let DecodedRows { rows, rejected, .. } = decoder.take()?;
        received.rejected += rejected.len();
        rows.parts.into_iter().for_each(|(stream, batch)| received.events.push(stream, batch));
        received.events.reject(rejected);
        self.session.pending.reserve(received.events.bytes())?;
        if in_parts {
            let events = std::mem::take(&mut received.events);
            let count = events.len() as u64;
            self.append(events, false).await?;
            received.stored += count;
        }
        Ok(())
    }

    /// Waits for the next message of a copy.
    ///
    /// Errors: fatal: the client has gone, or has sent nothing for too long.
    async fn next_of_copy(&mut self) -> Result<Message> {
        self.wire.release();
        let (bytes_max, transfer, idle) = {
            let options = &self.shared.options;
            (options.message_bytes_max, options.transfer_timeout, options.idle_transaction_timeout)
        };
        let idle_until = Instant::now() + idle;
        let mut arrives_until = None;
        loop {
            if let Some((letter, content)) = self.wire.take(bytes_max)? {
                return Message::decode(letter, content);
            }
            let until = match self.wire.has_input() {
                true => *arrives_until.get_or_insert_with(|| Instant::now() + transfer),
                false => idle_until,
            };
            match timeout_at(until, self.wire.fill()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    return Err(PgError::fatal(
                        code::CONNECTION_FAILURE,
                        "the client has closed the connection",
                    ));
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(PgError::protocol("the data of a COPY did not arrive in time")),
            }
        }
    }
}

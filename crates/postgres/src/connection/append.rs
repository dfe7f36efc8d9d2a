//! Statements that write events, and the end of their transactions.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::StreamExt;
use tidemill_database::{
    AppendReceipt, AppendRequest, ChangeGate, CheckedEvents, ColumnOrigin, StagedInsert,
};
use tidemill_types::{EventId, Offset, PartitionId};

use super::Connection;
use super::execute::interruptible;
use crate::error::{PgError, Result, code};
use crate::messages::output;
use crate::portal::{OpenRows, Portal, PortalRows};
use crate::settings::STATEMENT_TIMEOUT;
use crate::shared::PROTOCOL;
use crate::values::column::Column;

impl Connection {
    /// Checks the rows of an `INSERT`, which are appended when the transaction ends, or now if the reply has to tell which of them were
    /// stored. Returns the rows of `RETURNING`.
    ///
    /// Errors: those of the statement; it was cancelled; its reply could not be given before the transaction ends.
    pub(super) async fn insert(&mut self, portal: &mut Portal) -> Result<PortalRows> {
        let text = portal.statement.text.clone();
        let failed = |error| PgError::of_database(&error, &text);
        let request = self.session.request(&text).with_parameters(portal.values.clone());
        let staged = {
            let cancelled = self.session.key.cancelled();
            let limit = self.session.settings.duration(STATEMENT_TIMEOUT);
            let stage = async {
                tokio::select! {
                    staged = self.shared.database.stage(request) => staged.map_err(failed),
                    gone = self.wire.closed() => gone,
                }
            };
            interruptible(cancelled, limit, stage).await?
        };
        let rejected = staged.rejected.len();
        let (count, rows) = match (staged.reports_stored(), self.session.transaction.is_open()) {
            (false, _) => {
                self.session.pending.push(staged.events())?;
                (staged.rows.num_rows() as u64, None)
            }
            (true, true) => {
                let rows = rows_before_commit(&staged)?;
                self.session.pending.push(staged.events())?;
                (staged.rows.num_rows() as u64, Some(rows))
            }
            (true, false) => {
                self.end_implicit_transaction().await?;
                let receipt = self.append(staged.events(), true).await?;
                let outcome = staged.outcome(&receipt).map_err(failed)?;
                (outcome.count, outcome.rows)
            }
        };
        self.tell_rejected(rejected);
        portal.tag = Some(format!("INSERT 0 {count}"));
        match rows {
            Some(rows) => {
                let origins =
                    staged.returning.as_ref().map_or_else(Vec::new, |returning| returning.origins());
                self.open_batch(rows, &origins, portal)
            }
            None => Ok(PortalRows::Ended),
        }
    }

    fn open_batch(
        &self,
        rows: RecordBatch,
        origins: &[Option<ColumnOrigin>],
        portal: &Portal,
    ) -> Result<PortalRows> {
        let columns = Column::all(rows.schema_ref(), origins)?;
        let batches = futures::stream::iter([Ok(rows)]).boxed();
        let zone = self.session.settings.zone().clone();
        let rows = OpenRows::new(columns.into(), portal.formats.clone(), zone, batches, "");
        Ok(PortalRows::Open(Box::new(rows)))
    }

    /// Deletes or changes events. Returns how many.
    ///
    /// It is cancelled before it changes the first one, or is finished.
    pub(super) async fn change(&self, text: &str) -> Result<i64> {
        let gate = Arc::new(ChangeGate::default());
        let request = self.session.request(text).with_gate(gate.clone());
        let changed = async {
            let failed = |error| PgError::of_database(&error, text);
            let mut reply = self.shared.database.query(request).await.map_err(failed)?;
            let mut count = 0;
            while let Some(batch) = reply.batches.next().await {
                let batch = batch.map_err(failed)?;
                let numbers =
                    batch.columns().first().and_then(|column| column.as_primitive_opt::<Int64Type>());
                count += numbers.map_or(0, |numbers| numbers.iter().flatten().sum());
            }
            Ok(count)
        };
        let mut changed = std::pin::pin!(changed);
        match self.interruptible(changed.as_mut()).await {
            Err(error) if error.code == code::CANCELLED && !gate.cancel() => changed.await,
            done => done,
        }
    }

    /// Tells how many rows of a statement were not stored.
    pub(super) fn tell_rejected(&mut self, rejected: usize) {
        if rejected > 0 {
            let notice = PgError::notice(format!("{rejected} rows did not fit and were not stored"))
                .with_hint("system.rejected has them, with the reasons.");
            output::error(&mut self.wire.output, &notice);
        }
    }

    /// Appends the events of messages outside of `BEGIN`.
    ///
    /// Errors: those of [`Self::append`]; the events are dropped.
    pub(super) async fn end_implicit_transaction(&mut self) -> Result<()> {
        match self.session.transaction.is_open() {
            true => Ok(()),
            false => self.append_pending().await,
        }
    }

    /// Appends the events of a transaction that commits.
    ///
    /// Errors: those of [`Self::append`]; the transaction has ended.
    pub(super) async fn append_transaction(&mut self) -> Result<()> {
        let is_open = self.session.transaction.status() == output::TransactionStatus::Open;
        if !is_open {
            return Ok(());
        }
        let appended = self.append_pending().await;
        if appended.is_err() {
            self.session.run(&crate::command::Command::Rollback)?;
        }
        appended
    }

    async fn append_pending(&mut self) -> Result<()> {
        if self.session.pending.is_empty() {
            return Ok(());
        }
        let events = self.session.pending.take();
        let appended = self.append(events, false).await;
        self.session.pending.truncate(0);
        appended.map(|_| ())
    }

    /// Appends events with the present rights of the user. Nothing stops it.
    ///
    /// Errors: those of the database.
    pub(super) async fn append(
        &mut self,
        events: CheckedEvents,
        reports_stored: bool,
    ) -> Result<AppendReceipt> {
        if events.is_empty() {
            return Ok(AppendReceipt { accepted: 0, stored: Some(Vec::new()) });
        }
        self.session.renew(self.shared.options.access.as_deref())?;
        let principal = self.session.principal.clone();
        let request = AppendRequest { events, origin: PROTOCOL, principal, reports_stored };
        self.shared.database.append(request).await.map_err(|error| PgError::of_database(&error, ""))
    }
}

/// Returns the rows of `RETURNING` of events that are not appended yet.
///
/// Errors: they have addresses, or the reply depends on events that were seen before.
fn rows_before_commit(staged: &StagedInsert) -> Result<RecordBatch> {
    let refused = |part: &str, why: &str| {
        Err(PgError::not_supported(format!(
            "{part} inside of a transaction is not supported: {why} when it commits. Send it outside of BEGIN, or leave it out: an event \
             whose id was seen before is not stored twice"
        )))
    };
    if staged.skips_duplicates {
        return refused("ON CONFLICT DO NOTHING", "which events were seen before is known");
    }
    let Some(returning) = &staged.returning else { return refused("RETURNING", "it is known") };
    if returning.uses_addresses() {
        return refused("RETURNING of _partition, _offset or _row", "events get their addresses");
    }
    if !staged.stream.id.is_empty() {
        return refused("RETURNING for a stream with an id", "which events were seen before is known");
    }
    let nowhere = EventId { partition: PartitionId(0), offset: Offset(0), row: 0 };
    let rows = returning.rows(&staged.rows, &vec![nowhere; staged.rows.num_rows()]);
    rows.map_err(|error| PgError::of_database(&error, ""))
}

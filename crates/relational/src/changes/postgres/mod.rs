//! PostgreSQL's logical replication.

mod output;
pub(super) mod poll;
mod setup;
mod snapshot;
mod stream;
mod values;
mod wire;

use super::{ChangeSettings, ChangeStart, SnapshotRow};
use crate::error::DbError;
use setup::SourceTable;
use stream::Stream;
use wire::Wire;

/// Connection that reads the changes of a table.
pub struct PostgresLog {
    settings: ChangeSettings,
    wire: Wire,
    table: SourceTable,
    stream: Stream,
    snapshot: Snapshot,
}

/// State of the copy of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Snapshot {
    /// No copy.
    None,
    /// The transaction that sees the table is open. A slot that was created only for it is dropped at the end.
    Open { has_slot: bool },
    /// Rows are on their way.
    Copying { has_slot: bool },
}

impl PostgresLog {
    pub(super) async fn connect(settings: &ChangeSettings) -> Result<Self, DbError> {
        let mut wire = Wire::connect(settings, true).await.map_err(|e| setup::login_error(settings, e))?;
        let table = setup::prepare(&mut wire, settings).await?;
        Ok(Self {
            settings: settings.clone(),
            wire,
            table,
            stream: Stream::default(),
            snapshot: Snapshot::None,
        })
    }

    pub(super) async fn begin(&mut self, start: ChangeStart) -> Result<u64, DbError> {
        let slot = setup::find_slot(&mut self.wire, &self.settings.slot).await?;
        let position = match (start, slot) {
            (ChangeStart::At(position), Some(_)) => position,
            (ChangeStart::At(_), None) => {
                return Err(DbError::invalid(format!(
                    "the replication slot `{}` is gone, and with it the changes since the source was last connected; \
                     give the source another name, or another `slot.name`, to begin anew",
                    self.settings.slot
                )));
            }
            (ChangeStart::Now { replace: true, .. }, Some(_)) => {
                setup::drop_slot(&mut self.wire, &self.settings.slot).await?;
                self.create_slot().await?
            }
            (ChangeStart::Now { snapshot: true, .. }, Some(_)) => {
                return Err(DbError::invalid(format!(
                    "there is a replication slot `{0}` already, so the rows of the table cannot be read at its position; write \
                     `snapshot.mode='never'` to read on from there, or type SELECT pg_drop_replication_slot('{0}')",
                    self.settings.slot
                )));
            }
            (ChangeStart::Now { .. }, Some(confirmed)) => confirmed,
            (ChangeStart::Now { .. }, None) => self.create_slot().await?,
        };
        self.stream.start_at(position);
        Ok(position)
    }

    async fn create_slot(&mut self) -> Result<u64, DbError> {
        let position = setup::create_slot(&mut self.wire, &self.settings.slot, false).await?;
        self.snapshot = Snapshot::Open { has_slot: false };
        Ok(position)
    }

    pub(super) async fn begin_snapshot(&mut self) -> Result<u64, DbError> {
        let position = setup::create_slot(&mut self.wire, &snapshot_slot(&self.settings), true).await?;
        self.snapshot = Snapshot::Open { has_slot: true };
        Ok(position)
    }

    pub(super) fn has_integer_key(&self) -> bool {
        self.table.integer_key.is_some()
    }

    pub(super) async fn open_snapshot(&mut self, after: Option<i64>) -> Result<(), DbError> {
        let Snapshot::Open { has_slot } = self.snapshot else {
            return Err(DbError::unavailable("there is no snapshot of the table"));
        };
        self.wire.start(&self.table.copy_statement(after)).await?;
        self.wire.await_copy(b'H').await?;
        self.snapshot = Snapshot::Copying { has_slot };
        Ok(())
    }

    pub(super) async fn snapshot(&mut self, count: usize) -> Result<Vec<SnapshotRow>, DbError> {
        let mut rows = vec![];
        while let Snapshot::Copying { has_slot } = self.snapshot
            && rows.len() < count
        {
            match self.wire.copied().await? {
                std::ops::ControlFlow::Continue(line) => {
                    rows.push(snapshot::row(&line, &self.table, &self.settings)?);
                }
                std::ops::ControlFlow::Break(()) => self.snapshot = Snapshot::Open { has_slot },
            }
        }
        Ok(rows)
    }

    pub(super) async fn listen(&mut self) -> Result<(), DbError> {
        match self.snapshot {
            Snapshot::None => {}
            Snapshot::Copying { .. } => {
                return Err(DbError::unavailable("the snapshot was not read to its end"));
            }
            Snapshot::Open { has_slot } => {
                self.wire.query("COMMIT").await?;
                if has_slot {
                    setup::drop_slot(&mut self.wire, &snapshot_slot(&self.settings)).await?;
                }
                self.snapshot = Snapshot::None;
            }
        }
        self.stream.start(&mut self.wire, &self.settings).await
    }

    pub(super) async fn next(&mut self) -> Result<super::LogItem, DbError> {
        self.stream.next(&mut self.wire, &self.table, &self.settings).await
    }

    pub(super) async fn keep_alive(&mut self) -> Result<(), DbError> {
        self.stream.keep_alive(&mut self.wire).await
    }

    pub(super) async fn confirm(&mut self, position: u64) -> Result<(), DbError> {
        self.stream.confirm(&mut self.wire, position).await
    }
}

/// Returns the name of a slot that lives as long as the connection.
fn snapshot_slot(settings: &ChangeSettings) -> String {
    let name: String = settings.slot.chars().take(50).collect();
    format!("{name}_again")
}

//! Polling of a column.

use std::ops::ControlFlow;

use super::super::ChangeSettings;
use super::super::poll::{Polled, PolledRow, missing_column, wrong_column};
use super::setup::{self, SourceTable, quote};
use super::snapshot;
use super::values::{is_integer, is_time};
use super::wire::Wire;
use crate::error::DbError;

/// Connection that polls a table.
pub struct PostgresPoller {
    settings: ChangeSettings,
    wire: Wire,
    table: SourceTable,
    /// The column, quoted.
    column: String,
    kind: Polled,
}

impl PostgresPoller {
    pub(in super::super) async fn connect(settings: &ChangeSettings, column: &str) -> Result<Self, DbError> {
        let mut wire = Wire::connect(settings, false).await?;
        let table = setup::find(&mut wire, settings).await?;
        let names = || table.columns.iter().map(|column| column.name.as_str());
        let same = |known: &&setup::SourceColumn| known.name.eq_ignore_ascii_case(column);
        let exact = table.columns.iter().find(|known| known.name == column);
        let found = exact.or_else(|| table.columns.iter().find(same));
        let found = found.ok_or_else(|| missing_column(&settings.table, column, names()))?;
        let kind = match found.type_oid {
            oid if is_integer(oid) => Polled::Integer,
            oid if is_time(oid) => Polled::Time,
            _ => return Err(wrong_column(column)),
        };
        let column = quote(&found.name);
        Ok(Self { settings: settings.clone(), wire, table, column, kind })
    }

    pub(in super::super) fn kind(&self) -> Polled {
        self.kind
    }

    fn value(&self) -> String {
        match self.kind {
            Polled::Integer => self.column.clone(),
            Polled::Time => format!("(extract(epoch FROM {}) * 1000000)::bigint", self.column),
        }
    }

    pub(in super::super) async fn greatest(&mut self) -> Result<Option<i64>, DbError> {
        let (value, table) = (self.value(), self.table.quoted());
        let sql = format!(
            "SELECT {value} FROM {table} WHERE {0} IS NOT NULL ORDER BY {0} DESC LIMIT 1",
            self.column
        );
        let rows = self.wire.query(&sql).await?;
        Ok(rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok()))
    }

    pub(in super::super) async fn poll(
        &mut self,
        after: Option<i64>,
        count: usize,
    ) -> Result<Vec<PolledRow>, DbError> {
        let names: Vec<String> = self.table.columns.iter().map(|column| quote(&column.name)).collect();
        let condition = match (after, self.kind) {
            (None, _) => format!("{} IS NOT NULL", self.column),
            (Some(after), Polled::Integer) => format!("{} > {after}", self.column),
            (Some(after), Polled::Time) => format!(
                "{} > '1970-01-01 00:00:00+00'::timestamptz + {after} * interval '1 microsecond'",
                self.column
            ),
        };
        let sql = format!(
            "COPY (SELECT {}, {} FROM {} WHERE {condition} ORDER BY {} LIMIT {count}) TO STDOUT",
            names.join(", "),
            self.value(),
            self.table.quoted(),
            self.column
        );
        self.wire.start(&sql).await?;
        self.wire.await_copy(b'H').await?;
        let mut rows = vec![];
        while let ControlFlow::Continue(line) = self.wire.copied().await? {
            rows.push(snapshot::polled_row(&line, &self.table, &self.settings)?);
        }
        Ok(rows)
    }
}

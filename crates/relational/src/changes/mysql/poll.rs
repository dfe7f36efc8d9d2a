//! Polling of a column.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use super::super::poll::{Polled, PolledRow, missing_column, wrong_column};
use super::super::{ChangeSettings, RowWriter};
use super::snapshot::integer;
use super::table::{Form, MySqlTable};
use super::values;
use crate::dialect::Dialect;
use crate::drivers::mysql::{error, open};
use crate::error::DbError;

/// Connection that polls a table.
pub struct MySqlPoller {
    settings: ChangeSettings,
    connection: Conn,
    table: MySqlTable,
    /// The column, quoted.
    column: String,
    kind: Polled,
}

impl MySqlPoller {
    pub(in super::super) async fn connect(settings: &ChangeSettings, column: &str) -> Result<Self, DbError> {
        let mut connection = open(&settings.url, settings.user(), settings.password()).await?;
        let table = MySqlTable::find(&mut connection, settings).await?;
        let found = table.columns.iter().find(|known| known.name.eq_ignore_ascii_case(column));
        let names = || table.columns.iter().map(|column| column.name.as_str());
        let found = found.ok_or_else(|| missing_column(&settings.table, column, names()))?;
        let kind = match found.form {
            Form::Integer(_) => Polled::Integer,
            Form::Date | Form::DateTime | Form::Timestamp => Polled::Time,
            _ => return Err(wrong_column(column)),
        };
        let column = Dialect::MySql.quote(&found.name);
        Ok(Self { settings: settings.clone(), connection, table, column, kind })
    }

    pub(in super::super) fn kind(&self) -> Polled {
        self.kind
    }

    fn value(&self) -> String {
        match self.kind {
            Polled::Integer => self.column.clone(),
            Polled::Time => format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {})", self.column),
        }
    }

    pub(in super::super) async fn greatest(&mut self) -> Result<Option<i64>, DbError> {
        let (value, table) = (self.value(), self.table.quoted());
        let sql = format!(
            "SELECT {value} FROM {table} WHERE {0} IS NOT NULL ORDER BY {0} DESC LIMIT 1",
            self.column
        );
        let row: Option<Row> = self.connection.exec_first(sql, ()).await.map_err(error)?;
        Ok(row.and_then(|row| row.as_ref(0).and_then(integer)))
    }

    pub(in super::super) async fn poll(
        &mut self,
        after: Option<i64>,
        count: usize,
    ) -> Result<Vec<PolledRow>, DbError> {
        let names = self.table.columns.iter().map(|column| Dialect::MySql.quote(&column.name));
        let condition = match (after, self.kind) {
            (None, _) => format!("{} IS NOT NULL", self.column),
            (Some(after), Polled::Integer) => format!("{} > {after}", self.column),
            (Some(after), Polled::Time) => {
                format!("{} > TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {after} MICROSECOND", self.column)
            }
        };
        let sql = format!(
            "SELECT {}, {} FROM {} WHERE {condition} ORDER BY {} LIMIT {count}",
            names.collect::<Vec<_>>().join(", "),
            self.value(),
            self.table.quoted(),
            self.column
        );
        let rows: Vec<Row> = self.connection.exec(sql, ()).await.map_err(error)?;
        Ok(rows.into_iter().filter_map(|row| self.converted(row)).collect())
    }

    fn converted(&self, row: Row) -> Option<PolledRow> {
        let mut values = row.unwrap();
        let value = integer(&values.pop()?)?;
        let mut out = RowWriter::default();
        for (column, value) in self.table.columns.iter().zip(values) {
            let lower = column.name.to_lowercase();
            let wanted = |name: &str| self.settings.wanted.get(name).copied();
            if lower != column.name {
                values::write(column, value.clone(), wanted(&lower), out.name("", &lower));
            }
            values::write(column, value, wanted(&column.name), out.name("", &column.name));
        }
        Some(PolledRow { value, json: out.finish() })
    }
}

//! Statements of apps.
//!
//! A statement that writes is a transaction, which also stores its position and the number of its rows: one that comes again
//! after a crash does nothing.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_connect::{StoredRow, TypedValue, runtime};
use tidemill_types::{Error, EventId, FieldType, Offset, PartitionId, Result};

use crate::database::DatabaseConnection;
use crate::dialect::Dialect;
use crate::error::{DbError, DbErrorKind};
use crate::param::Param;
use crate::position::{PositionTable, StoredPosition};
use crate::text_format::check;
use crate::url::DatabaseUrl;

/// Rows that one query may return.
const FOUND_ROWS_MAX: usize = 1_000_000;

/// Executes the statements of an app in one database, over a connection that is made when it is first used.
pub struct StatementRunner {
    url: DatabaseUrl,
    user: Option<String>,
    password: Option<String>,
    positions: PositionTable,
    connection: Option<StatementConnection>,
}

struct StatementConnection {
    db: DatabaseConnection,
    known: BTreeMap<PartitionId, StoredPosition>,
}

impl StatementRunner {
    /// Creates a runner whose positions are stored under `writer`.
    ///
    /// Errors: the name is too long.
    pub fn new(
        url: DatabaseUrl,
        user: Option<String>,
        password: Option<String>,
        writer: &str,
    ) -> Result<Self, String> {
        let positions = PositionTable::new(url.dialect, writer)?;
        Ok(Self { url, user, password, positions, connection: None })
    }

    /// Returns the rows of a query.
    ///
    /// Errors: `Unavailable` if the database cannot be reached, `Invalid` if it refuses, `LimitReached` for more than
    /// a million rows.
    pub fn query(
        &mut self,
        statement: &str,
        parameters: &[TypedValue],
        columns: &[FieldType],
    ) -> Result<Vec<StoredRow>> {
        let sql = numbered(statement, self.url.dialect, parameters).map_err(Error::invalid)?;
        let params = self.params(parameters)?;
        let rows = self.with_connection(false, async |connection, _| {
            connection.db.query(&sql, &params, columns).await
        })?;
        match rows.len() > FOUND_ROWS_MAX {
            true => Err(Error::limit(format!("more than {FOUND_ROWS_MAX} rows are found; narrow the query"))),
            false => Ok(rows),
        }
    }

    /// Executes a statement unless the database has the writes of `at`. Returns the number of rows; `None` for an earlier
    /// statement than the last one.
    ///
    /// Errors: those of [`Self::query`].
    pub fn execute(
        &mut self,
        statement: &str,
        parameters: &[TypedValue],
        at: Option<EventId>,
    ) -> Result<Option<u64>> {
        let sql = numbered(statement, self.url.dialect, parameters).map_err(Error::invalid)?;
        let params = self.params(parameters)?;
        self.with_connection(true, async |connection, positions| {
            let known = at.and_then(|at| connection.known.get(&at.partition)).cloned();
            if let (Some(at), Some(known)) = (at, &known)
                && at <= known.last
            {
                let rows = known.refused.iter().next().map(|count| count.offset.0);
                return Ok(rows.filter(|_| at == known.last));
            }
            let batch = known.map_or(0, |known| known.batch) + 1;
            connection.db.begin().await?;
            let rows = connection.db.execute(&sql, &params).await?;
            if let Some(last) = at {
                // the column for refused events has the number of rows
                let count = EventId { partition: last.partition, offset: Offset(rows), row: 0 };
                let position = StoredPosition { last, refused: BTreeSet::from([count]), batch, epoch: 0 };
                positions.write(&mut connection.db, &position).await?;
                connection.db.commit().await?;
                connection.known.insert(last.partition, position);
            } else {
                connection.db.commit().await?;
            }
            Ok(Some(rows))
        })
    }

    fn params<'v>(&self, parameters: &'v [TypedValue]) -> Result<Vec<Param<'v>>> {
        let param = |(ty, value): &'v TypedValue| {
            check(self.url.dialect, value).map_err(Error::invalid)?;
            Ok(Param { ty: *ty, value: value.clone() })
        };
        parameters.iter().map(param).collect()
    }

    fn with_connection<T>(
        &mut self,
        writes: bool,
        work: impl AsyncFn(&mut StatementConnection, &PositionTable) -> Result<T, DbError>,
    ) -> Result<T> {
        let Self { url, user, password, positions, connection: slot } = self;
        let done = runtime().block_on(async {
            if slot.is_none() {
                let db = DatabaseConnection::connect(url, user.as_deref(), password.as_deref()).await?;
                *slot = Some(StatementConnection { db, known: BTreeMap::new() });
            }
            let Some(connection) = slot.as_mut() else {
                return Err(DbError::unavailable("there is no connection"));
            };
            // a user that only reads need not create tables
            if writes && connection.known.is_empty() {
                connection.known = positions.open(&mut connection.db).await?;
            }
            let done = work(connection, positions).await;
            match &done {
                Err(e) if e.kind == DbErrorKind::Unavailable => *slot = None,
                Err(_) if writes && connection.db.rollback().await.is_err() => *slot = None,
                _ => {}
            }
            done
        });
        done.map_err(|e| Error::from(e.context(&self.url)))
    }
}

/// Returns a statement with the database's marks for parameters in place of `?`. Quoted texts and comments stay as they
/// are; `??` is a question mark.
fn numbered(statement: &str, dialect: Dialect, parameters: &[TypedValue]) -> Result<String, String> {
    let mut out = String::with_capacity(statement.len());
    let mut found = 0;
    let mut rest = statement;
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '\'' | '"' | '`' => 1 + rest[1..].find(c).map_or(rest.len() - 1, |end| end + 1),
            '[' if dialect == Dialect::SqlServer => {
                1 + rest[1..].find(']').map_or(rest.len() - 1, |end| end + 1)
            }
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '?' if rest.starts_with("??") => {
                out.push('?');
                rest = &rest[2..];
                continue;
            }
            '?' => {
                if let Some((ty, _)) = parameters.get(found) {
                    out.push_str(&dialect.parameter(found, *ty));
                }
                found += 1;
                rest = &rest[1..];
                continue;
            }
            c => c.len_utf8(),
        };
        out.push_str(&rest[..skipped]);
        rest = &rest[skipped..];
    }
    match found == parameters.len() {
        true => Ok(out),
        false => Err(format!("the statement has {found} `?`, but there are {} parameters", parameters.len())),
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::Value;

    use super::*;

    #[test]
    fn question_marks_are_parameters_unless_they_are_quoted() {
        let two = [(FieldType::Int, Value::Int(1)), (FieldType::String, Value::Str("x".into()))];
        let of = |text| numbered(text, Dialect::PostgreSql, &two);
        assert_eq!(
            of("SELECT '?', \"?\" FROM t WHERE a = ? AND b ?? 'it''s?' -- ?\n OR c = ? /* ? */").unwrap(),
            "SELECT '?', \"?\" FROM t WHERE a = $1::integer AND b ? 'it''s?' -- ?\n OR c = $2::text /* ? */"
        );
        assert_eq!(of("SELECT ?").unwrap_err(), "the statement has 1 `?`, but there are 2 parameters");
        assert_eq!(numbered("é = ?", Dialect::MySql, &two[..1]).unwrap(), "é = ?");
        let brackets = numbered("[what?] = ? OR a[1] = ?", Dialect::SqlServer, &two).unwrap();
        assert_eq!(brackets, "[what?] = @P1 OR a[1] = @P2");
        assert_eq!(numbered("a = ? AND b = ?", Dialect::Oracle, &two).unwrap(), "a = :1 AND b = :2");
    }
}

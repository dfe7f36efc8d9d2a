//! How far a writer came, counted in the database itself.
//!
//! The position is written in the transaction of the rows: both are there or neither. Each write counts up a number
//! that it has read before, so that of two writers with the same name, such as a program that was restarted and its
//! predecessor whose last transaction still runs, only one can commit.
//!
//! Where partitions move between processes, a position also has the epoch of the owner that wrote it, and is not replaced by one of a
//! smaller epoch: a former owner that continues writes nothing any more, and learns that it is one.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_types::{EventId, FieldType, Offset, PartitionId, Value};

use crate::database::DatabaseConnection;
use crate::dialect::{Dialect, SQL_SERVER_COLLATION};
use crate::error::{DbError, DbErrorKind};
use crate::existing::late;
use crate::param::Param;
use crate::schema::create_if_missing;

/// Name of the table.
const TABLE: &str = "tidemill_position";
/// Error of Oracle about a table that is missing.
const NO_TABLE: &str = "ORA-00942";
/// Longest name of a writer in characters.
const NAME_MAX: usize = 255;

/// Position of a writer in one partition of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPosition {
    /// Last event that was processed.
    pub last: EventId,
    /// Events of the last batch that the database refused. They may be tried again.
    pub refused: BTreeSet<EventId>,
    /// Number of batches that were written.
    pub batch: i64,
    /// Epoch of the owner of the partition that wrote it; 0 where partitions do not move.
    pub epoch: u64,
}

/// Positions of one writer.
#[derive(Debug, Clone)]
pub struct PositionTable {
    writer: String,
    insert: String,
    update: String,
    select: String,
    create: String,
    probe: String,
    add_epoch: String,
}

impl PositionTable {
    /// Creates the access to the positions of `writer`.
    ///
    /// Errors: the name is too long.
    pub fn new(dialect: Dialect, writer: &str) -> Result<Self, String> {
        if writer.chars().count() > NAME_MAX {
            return Err(format!("the name `{writer}` is longer than {NAME_MAX} characters"));
        }
        let p = |index, ty| dialect.parameter(index, ty);
        let (text, int, long) = (FieldType::String, FieldType::Int, FieldType::Long);
        let suffix = match dialect {
            Dialect::MySql => " ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            Dialect::PostgreSql | Dialect::Sqlite | Dialect::SqlServer | Dialect::Oracle => "",
        };
        let (name, large) = match dialect {
            Dialect::PostgreSql | Dialect::Sqlite => (format!("varchar({NAME_MAX})"), "text"),
            Dialect::MySql => (format!("varchar({NAME_MAX})"), "longtext"),
            Dialect::Oracle => (format!("varchar2({NAME_MAX} char)"), "clob"),
            Dialect::SqlServer => {
                (format!("nvarchar({NAME_MAX}) COLLATE {SQL_SERVER_COLLATION}"), "nvarchar(max)")
            }
        };
        // Oracle takes an empty text for NULL
        let not_null = if dialect == Dialect::Oracle { "" } else { " NOT NULL" };
        let (integer, bigint) = (dialect.scalar_type(int), dialect.scalar_type(long));
        let columns = format!(
            "sink {name} NOT NULL, log_partition {integer} NOT NULL, log_offset {bigint} NOT NULL, \
             log_row {integer} NOT NULL, batch {bigint} NOT NULL, refused {large}{not_null}, \
             epoch {bigint} DEFAULT 0 NOT NULL, PRIMARY KEY (sink, log_partition)){suffix}"
        );
        Ok(Self {
            writer: writer.to_owned(),
            create: create_if_missing(dialect, TABLE, &columns),
            select: format!(
                "SELECT log_partition, log_offset, log_row, batch, refused, epoch FROM {TABLE} WHERE sink = {}",
                p(0, text)
            ),
            probe: format!("SELECT epoch FROM {TABLE} WHERE 1 = 0"),
            add_epoch: format!("ALTER TABLE {TABLE} ADD epoch {bigint} DEFAULT 0 NOT NULL"),
            insert: format!(
                "INSERT INTO {TABLE} (log_offset, log_row, batch, refused, epoch, sink, log_partition) \
                 VALUES ({}, {}, {}, {}, {}, {}, {})",
                p(0, long),
                p(1, int),
                p(2, long),
                p(3, text),
                p(4, long),
                p(5, text),
                p(6, int)
            ),
            update: format!(
                "UPDATE {TABLE} SET log_offset = {}, log_row = {}, batch = {}, refused = {}, epoch = {} \
                 WHERE sink = {} AND log_partition = {} AND batch = {} AND epoch <= {}",
                p(0, long),
                p(1, int),
                p(2, long),
                p(3, text),
                p(4, long),
                p(5, text),
                p(6, int),
                p(7, long),
                p(8, long)
            ),
        })
    }

    /// Describes the statements, one a line, for tests.
    pub fn describe(&self) -> Vec<String> {
        let Self { create, probe, add_epoch, select, insert, update, .. } = self;
        [create, probe, add_epoch, select, insert, update].map(Clone::clone).to_vec()
    }

    /// Creates the table if it is missing, adds the column `epoch` to one of an earlier release, and reads the positions.
    ///
    /// Errors: those of the server.
    pub async fn open(
        &self,
        db: &mut DatabaseConnection,
    ) -> Result<BTreeMap<PartitionId, StoredPosition>, DbError> {
        let context = |e: DbError| e.context(format!("table `{TABLE}`, which counts what was written"));
        if db.dialect() == Dialect::Oracle {
            match self.probe(db).await {
                Err(e) if e.code == NO_TABLE => db.run(&self.create).await.map_err(|e| context(late(e)))?,
                // a table without the column
                _ => {}
            }
        } else {
            db.run(&self.create).await.map_err(|e| context(late(e)))?;
        }
        self.add_epoch(db).await.map_err(context)?;
        self.read(db).await.map_err(context)
    }

    /// Asks for the column `epoch`.
    async fn probe(&self, db: &mut DatabaseConnection) -> Result<(), DbError> {
        db.query(&self.probe, &[], &[FieldType::Long]).await.map(drop)
    }

    /// Adds the column `epoch` to a table of an earlier release.
    async fn add_epoch(&self, db: &mut DatabaseConnection) -> Result<(), DbError> {
        if self.probe(db).await.is_ok() {
            return Ok(());
        }
        let Err(failed) = db.run(&self.add_epoch).await else { return Ok(()) };
        // another process may have added it meanwhile
        match self.probe(db).await {
            Ok(()) => Ok(()),
            Err(_) => Err(failed.context(format!(
                "the column `epoch` is missing and cannot be added; add it as a user that may: `{}`",
                self.add_epoch
            ))),
        }
    }

    /// Reads the positions.
    ///
    /// Errors: those of the server.
    pub async fn read(
        &self,
        db: &mut DatabaseConnection,
    ) -> Result<BTreeMap<PartitionId, StoredPosition>, DbError> {
        let types = [
            FieldType::Int,
            FieldType::Long,
            FieldType::Int,
            FieldType::Long,
            FieldType::String,
            FieldType::Long,
        ];
        let writer = Param { ty: FieldType::String, value: Value::str(&self.writer) };
        let rows = db.query(&self.select, &[writer], &types).await?;
        let mut positions = BTreeMap::new();
        for row in rows {
            let position = stored(&row).ok_or_else(|| {
                DbError::invalid(format!("the row of `{}` has an impossible value", self.writer))
            })?;
            positions.insert(position.last.partition, position);
        }
        Ok(positions)
    }

    /// Writes the position of a partition, whose last batch had the number `position.batch - 1`, 0 if there was none.
    ///
    /// Errors: those of the server; another writer of the same name was faster, or has a later epoch.
    pub async fn write(&self, db: &mut DatabaseConnection, position: &StoredPosition) -> Result<(), DbError> {
        let long = |value: i64| Param { ty: FieldType::Long, value: Value::Int(value) };
        let int = |value: i64| Param { ty: FieldType::Int, value: Value::Int(value) };
        let text = |value: &str| Param { ty: FieldType::String, value: Value::Str(value.to_owned().into()) };
        let EventId { partition, offset, row } = position.last;
        let too_far = || DbError::invalid(format!("the position {} is out of range", position.last));
        let offset = i64::try_from(offset.0).map_err(|_| too_far())?;
        let (partition, row) = (i32::try_from(partition.0), i32::try_from(row));
        let (Ok(partition), Ok(row)) = (partition, row) else { return Err(too_far()) };
        let epoch = i64::try_from(position.epoch).map_err(|_| too_far())?;
        let refused: Vec<String> =
            position.refused.iter().map(|id| format!("{}-{}", id.offset, id.row)).collect();
        let mut params = vec![
            long(offset),
            int(row.into()),
            long(position.batch),
            text(&refused.join(",")),
            long(epoch),
            text(&self.writer),
            int(partition.into()),
        ];
        let overtaken = || {
            DbError::unavailable(format!(
                "another connection writes as `{}` at the same time; its position is read again",
                self.writer
            ))
        };
        if position.batch == 1 {
            return match db.execute(&self.insert, &params).await {
                Err(e) if e.kind == DbErrorKind::RowRefused => Err(overtaken()),
                other => other.map(drop),
            };
        }
        params.push(long(position.batch - 1));
        params.push(long(epoch));
        match db.execute(&self.update, &params).await? {
            1 => Ok(()),
            _ => Err(overtaken()),
        }
    }
}

fn stored(row: &[Value<'_>]) -> Option<StoredPosition> {
    let [
        Value::Int(partition),
        Value::Int(offset),
        Value::Int(event_row),
        Value::Int(batch),
        refused,
        Value::Int(epoch),
    ] = row
    else {
        return None;
    };
    let partition = PartitionId(u32::try_from(*partition).ok()?);
    let id = |offset: u64, row: u32| EventId { partition, offset: Offset(offset), row };
    let refused = match refused {
        Value::Str(text) => text.as_ref(),
        _ => "",
    };
    let refused = refused.split(',').filter(|part| !part.is_empty()).map(|part| {
        let (offset, row) = part.split_once('-')?;
        Some(id(offset.parse().ok()?, row.parse().ok()?))
    });
    Some(StoredPosition {
        last: id(u64::try_from(*offset).ok()?, u32::try_from(*event_row).ok()?),
        refused: refused.collect::<Option<_>>()?,
        batch: *batch,
        epoch: u64::try_from(*epoch).ok()?,
    })
}

//! Connection of a table.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidemill_types::{EventId, FieldType, PartitionId};

use super::TableRow;
use crate::bulk::{BulkWriter, Mapping, Operation};
use crate::database::DatabaseConnection;
use crate::error::{DbError, DbErrorKind};
use crate::existing::ExistingTable;
use crate::expression::{Expression, SqlColumn, SqlStatement, SqlWriter};
use crate::options::StoreOptions;
use crate::param::Param;
use crate::position::{PositionTable, StoredPosition};
use crate::text_format::check;

/// Writers with temporary tables that a connection has at most.
const WRITERS_MAX: usize = 32;

pub struct TableConnection {
    pub db: DatabaseConnection,
    existing: ExistingTable,
    /// In the order of the declaration.
    columns: Vec<SqlColumn>,
    known: BTreeMap<PartitionId, StoredPosition>,
    writers: HashMap<String, BulkWriter>,
    in_transaction: bool,
    /// True if the last call can be repeated although it failed.
    is_repeatable: bool,
}

impl TableConnection {
    pub async fn open(options: &StoreOptions, positions: &PositionTable) -> Result<Self, DbError> {
        let connected =
            DatabaseConnection::connect(&options.url, options.user.as_deref(), options.password.as_deref());
        let mut db = connected.await?;
        let opened = async {
            let existing = ExistingTable::open(&mut db, &options.schema, options.creates_table).await?;
            Ok((existing, positions.open(&mut db).await?))
        };
        let (existing, known) = opened.await.map_err(|e: DbError| e.context(&options.url))?;
        let mut columns = vec![];
        for declared in &options.schema.columns {
            let missing = || DbError::invalid(format!("there is no column `{}`", declared.name));
            let column = existing.column(&declared.name).ok_or_else(missing)?;
            columns.push(SqlColumn::new(db.dialect(), column, declared.ty));
        }
        Ok(Self {
            db,
            existing,
            columns,
            known,
            writers: HashMap::new(),
            in_transaction: false,
            is_repeatable: true,
        })
    }

    /// Returns the quoted name of the table.
    pub fn table(&self) -> String {
        self.existing.name.quoted(self.db.dialect())
    }

    /// Returns the columns of a result.
    pub fn selected(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.selected.as_str()).collect();
        names.join(", ")
    }

    pub fn columns(&self) -> &[SqlColumn] {
        &self.columns
    }

    /// Starts a statement.
    pub fn writer(&self, start: &str) -> SqlWriter<'_> {
        SqlWriter::new(self.db.dialect(), &self.columns).text(start)
    }

    /// Returns the query of `selected` from the rows for which `condition` holds, which returns `rows` rows at most.
    pub fn search(
        &self,
        selected: &str,
        condition: &Expression,
        rows: usize,
    ) -> Result<SqlStatement, DbError> {
        let (dialect, table) = (self.db.dialect(), self.table());
        let found = SqlStatement::search(dialect, &self.columns, &table, selected, condition, rows);
        found.map_err(DbError::invalid)
    }

    /// Returns whether rows are unique by exactly these columns.
    pub fn is_unique_by(&self, columns: &[usize]) -> bool {
        let dialect = self.db.dialect();
        let is = |name: &str, column: &usize| self.columns[*column].quoted == dialect.quote(name);
        self.existing.unique_keys.iter().any(|key| {
            key.len() == columns.len() && key.iter().all(|name| columns.iter().any(|column| is(name, column)))
        })
    }

    /// Returns the parameters of a statement for each set of values.
    ///
    /// Errors: a parameter is missing, or has a value that the database has not.
    pub fn params<'v>(
        &self,
        statement: &'v SqlStatement,
        sets: &'v [TableRow],
    ) -> Result<Vec<Vec<Param<'v>>>, DbError> {
        let checked = |values: &'v TableRow| {
            let params = statement.params(values).map_err(DbError::invalid)?;
            for param in &params {
                check(self.db.dialect(), &param.value).map_err(DbError::invalid)?;
            }
            Ok(params)
        };
        sets.iter().map(checked).collect()
    }

    pub async fn query_each(
        &mut self,
        statement: &SqlStatement,
        sets: &[TableRow],
        types: &[FieldType],
    ) -> Result<Vec<Vec<TableRow>>, DbError> {
        let params = self.params(statement, sets)?;
        self.is_repeatable = true;
        self.db.query_each(&statement.sql, &params, types).await
    }

    /// Returns the writer for an operation; `sources` has the column of the rows for each column that is written.
    pub async fn bulk_writer(
        &mut self,
        operation: Operation,
        sources: &[(usize, usize)],
        keys: &[usize],
    ) -> Result<BulkWriter, DbError> {
        let name = format!("{operation:?} {sources:?} {keys:?}");
        if let Some(writer) = self.writers.get(&name) {
            return Ok(writer.clone());
        }
        if self.writers.len() >= WRITERS_MAX {
            return Err(DbError::invalid(format!("one table is written in more than {WRITERS_MAX} ways")));
        }
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|sql| {
                let found =
                    self.existing.columns.iter().find(|c| self.db.dialect().quote(&c.name) == sql.quoted);
                found.map_or(String::new(), |c| c.name.clone())
            })
            .collect();
        let mapping = |(column, source): &(usize, usize)| Mapping {
            source: *source,
            column: names[*column].clone(),
            ty: self.columns[*column].ty,
        };
        let mappings: Vec<Mapping> = sources.iter().map(mapping).collect();
        let keys: Vec<String> = keys.iter().map(|column| names[*column].clone()).collect();
        let staging = format!("tidemill_batch_{}", self.writers.len());
        let dialect = self.db.dialect();
        let writer = BulkWriter::new(dialect, &self.existing, &mappings, operation, &keys, &staging)
            .map_err(DbError::invalid)?;
        writer.prepare(&mut self.db).await?;
        self.writers.insert(name, writer.clone());
        Ok(writer)
    }

    pub fn known_events(&self) -> Vec<EventId> {
        self.known.values().map(|position| position.last).collect()
    }

    /// Returns whether the database has the writes of an event.
    pub fn has(&self, event: EventId) -> bool {
        self.known.get(&event.partition).is_some_and(|known| event <= known.last)
    }

    pub async fn begin(&mut self) -> Result<(), DbError> {
        self.is_repeatable = true;
        self.in_transaction = true;
        self.db.begin().await
    }

    /// Commits, with the position if there is one.
    pub async fn commit(&mut self, positions: &PositionTable, event: Option<EventId>) -> Result<(), DbError> {
        let position = event.map(|last| {
            let batch = self.known.get(&last.partition).map_or(0, |known| known.batch) + 1;
            StoredPosition { last, refused: BTreeSet::new(), batch, epoch: 0 }
        });
        match &position {
            Some(position) => positions.write(&mut self.db, position).await?,
            // whether a commit without an answer took place is not known
            None => self.is_repeatable = false,
        }
        self.db.commit().await?;
        self.in_transaction = false;
        self.known.extend(position.map(|position| (position.last.partition, position)));
        Ok(())
    }

    pub fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    /// Returns the connection if it can be used again.
    pub async fn reusable_after<T>(mut self, done: &Result<T, DbError>) -> Option<Self> {
        match done {
            Err(e) if e.kind == DbErrorKind::Unavailable => None,
            _ if self.in_transaction => {
                self.db.rollback().await.ok()?;
                self.in_transaction = false;
                Some(self)
            }
            _ => Some(self),
        }
    }
}

//! Store that keeps the rows of a table in Redis.
//!
//! Rows are read, changed here and written in one transaction with the position of the write, so a record that is
//! applied again after a crash writes nothing twice. The transaction fails, and is repeated, if another client has
//! changed what was read.

mod layout;
mod options;
mod plan;
mod session;
mod workspace;
mod write;

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use tidemill_connect::{
    OptionError, OptionSpec, Options, RefusedRow, RowScope, StoreContext, StoreExpr, StoreType, StoreUpdate,
    StoredRow, TableStore, TypedValue, WritePosition, all_values, batch_of, runtime, typed_values,
};
use tidemill_types::{EventId, FieldType, Result};

use self::layout::Layout;
use self::options::{STORE_OPTIONS, store_settings, time_to_live};
use self::plan::RowLocation;
use self::session::Session;
use self::write::Write;
use crate::stores::StoreCalls;

/// Type of store.
pub(super) struct RedisStoreType;

impl StoreType for RedisStoreType {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn summary(&self) -> &'static str {
        "Keeps the rows of a table in Redis, found by primary key and by indexes."
    }

    fn options(&self) -> &'static [OptionSpec] {
        STORE_OPTIONS
    }

    fn table_option(&self) -> Option<&'static str> {
        Some("table.name")
    }

    fn finds_ranges(&self) -> bool {
        false
    }

    fn create(&self, options: &Options, context: &StoreContext) -> Result<Box<dyn TableStore>, OptionError> {
        if let Some(field) = context.schema.fields.iter().find(|field| field.ty == FieldType::Object) {
            let message =
                format!("the column `{}` is an object, which a table in Redis cannot have", field.name);
            return Err(OptionError::connector(message));
        }
        let table = options.get("table.name").unwrap_or(&context.table).to_owned();
        let session = Session {
            settings: store_settings(options)?,
            layout: Layout::new(table, context),
            ttl: time_to_live(options),
            position_key: format!("tidemill:position:{}/{}", context.writer, context.table),
            connection: None,
        };
        let calls = StoreCalls { table: context.table.clone(), monitor: context.monitor.clone() };
        Ok(Box::new(RedisStore { session, calls }))
    }
}

struct RedisStore {
    session: Session,
    calls: StoreCalls,
}

impl RedisStore {
    /// Returns the values of rows. Further columns of the batch, such as the event time, are dropped.
    fn rows(&self, batch: &RecordBatch) -> Vec<StoredRow> {
        let mut rows = all_values(batch);
        rows.iter_mut().for_each(|row| row.truncate(self.session.layout.types.len()));
        rows
    }

    fn write(&mut self, write: &Write<'_>, at: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        let at = at.map(|at| EventId { partition: at.partition, offset: at.offset, row: at.call });
        let session = &mut self.session;
        self.calls.until_reached(|| {
            let written = runtime().block_on(session.write(write, at));
            if written.is_err() {
                session.connection = None;
            }
            written
        })
    }
}

impl TableStore for RedisStore {
    fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        limit: Option<usize>,
    ) -> Result<RecordBatch> {
        let plan = condition
            .map_or(Ok(RowLocation::All), |condition| RowLocation::of(condition, &self.session.layout))?;
        let given = typed_values(parameters).into_iter().next().unwrap_or_default();
        let limit = limit.unwrap_or(usize::MAX);
        let session = &mut self.session;
        let rows = self.calls.until_reached(|| {
            let found = runtime().block_on(session.find(condition, &plan, &given, limit));
            if found.is_err() {
                session.connection = None;
            }
            found
        })?;
        batch_of(&self.session.layout.schema, &rows)
    }

    fn insert(&mut self, rows: &RecordBatch, at: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        self.write(&Write::Insert(self.rows(rows)), at)
    }

    fn delete(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        self.write(&Write::Delete { condition, parameters: typed_values(parameters) }, at)
    }

    fn update(
        &mut self,
        change: &StoreUpdate,
        parameters: &RecordBatch,
        insert: Option<&RecordBatch>,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let insert = insert.map(|rows| self.rows(rows));
        self.write(&Write::Update { change, parameters: typed_values(parameters), insert }, at)
    }
}

impl Session {
    async fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        plan: &RowLocation<'_>,
        given: &[TypedValue],
        limit: usize,
    ) -> Result<Vec<StoredRow>> {
        let mut search = RowSearch { condition, given, limit, found: vec![], seen: BTreeSet::new() };
        match plan {
            RowLocation::All => {
                let mut cursor = 0;
                // a condition that does not depend on the row may be false for all
                while search.may_find(&self.layout) {
                    let (next, keys) = self.scan(cursor).await?;
                    self.search(keys, &mut search).await?;
                    cursor = next;
                    if cursor == 0 {
                        break;
                    }
                }
            }
            _ => {
                let places = plan.places(&self.layout, given);
                self.search(places.keys, &mut search).await?;
                for set in places.sets {
                    let members = self.members(&set, false).await?;
                    self.search(members.into_iter().collect(), &mut search).await?;
                }
            }
        }
        self.touch(&search.found).await?;
        Ok(search.found.into_iter().map(|(_, row)| row).collect())
    }

    /// Adds those rows at keys that a search looks for.
    async fn search(&mut self, keys: Vec<String>, search: &mut RowSearch<'_>) -> Result<()> {
        let keys: Vec<String> = keys.into_iter().filter(|key| search.seen.insert(key.clone())).collect();
        let mut connection = self.connection().await?;
        for keys in keys.chunks(1000) {
            let keys: Vec<&String> = keys.iter().collect();
            let rows = self.read(&mut connection, redis::pipe(), &keys).await?;
            for (key, row) in keys.into_iter().zip(rows) {
                if search.found.len() >= search.limit {
                    return Ok(());
                }
                // a key of something else has no row
                let Ok(Some(row)) = row else { continue };
                let scope = RowScope { types: &self.layout.types, row: &row, parameters: search.given };
                if search.condition.is_none_or(|condition| scope.holds(condition))
                    && self.layout.is_key_of(key, &row)
                {
                    search.found.push((key.clone(), row));
                }
            }
        }
        Ok(())
    }
}

/// Rows that are looked for, and those that were found.
struct RowSearch<'s> {
    condition: Option<&'s StoreExpr>,
    given: &'s [TypedValue],
    limit: usize,
    found: Vec<(String, StoredRow)>,
    /// Keys that were looked at: a list of keys may have one twice.
    seen: BTreeSet<String>,
}

impl RowSearch<'_> {
    fn may_find(&self, layout: &Layout) -> bool {
        let scope = RowScope { types: &layout.types, row: &[], parameters: self.given };
        self.found.len() < self.limit && self.condition.is_none_or(|condition| scope.holds(condition))
    }
}

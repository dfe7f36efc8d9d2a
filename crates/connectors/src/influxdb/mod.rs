//! Store that keeps the rows of a table in InfluxDB 1.x, by its HTTP interface.
//!
//! A row is a point: the columns with an index are its tags, the column `time` is its time in milliseconds, and the others are
//! its fields. Tags and time say which point it is, so a write that is repeated writes the same point.

mod client;
mod condition;
mod layout;
mod line;

use arrow_array::RecordBatch;
use tidemill_connect::{
    Catalog, OptionError, OptionSpec, Options, RefusedRow, RowScope, StoreContext, StoreExpr, StoreType,
    StoreUpdate, StoredRow, TableStore, TypedValue, WritePosition, all_values, batch_of, is_missing, runtime,
    typed_values,
};
use tidemill_types::{Error, Result, Value};

use self::client::{InfluxClient, Written};
use self::condition::{InfluxCondition, Translation};
use self::layout::Layout;
use crate::stores::StoreCalls;

/// Adds it to the catalog.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_store(InfluxStoreType);
}

/// Options of the store, as Siddhi's store has them.
const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("url", "Address of the server.")
        .alias("influxdb.url")
        .default("http://localhost:8086")
        .secret(),
    OptionSpec::text("username", "User.").alias("influxdb.username"),
    OptionSpec::text("password", "Password.").alias("influxdb.password").secret(),
    OptionSpec::text("influxdb.database", "Database; made if there is none.").alias("database").required(),
    OptionSpec::text("retention.policy", "Retention policy of the database.").default("autogen"),
    OptionSpec::text("table.name", "Measurement; default: the name of the table."),
];

/// Type of store.
struct InfluxStoreType;

impl StoreType for InfluxStoreType {
    fn name(&self) -> &'static str {
        "influxdb"
    }

    fn summary(&self) -> &'static str {
        "Keeps the rows of a table in InfluxDB 1.x."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn table_option(&self) -> Option<&'static str> {
        Some("table.name")
    }

    /// Aggregations are refused: their buckets are read and written again, which is not shown to be exact here.
    fn finds_ranges(&self) -> bool {
        false
    }

    fn create(&self, options: &Options, context: &StoreContext) -> Result<Box<dyn TableStore>, OptionError> {
        let measurement = options.get("table.name").unwrap_or(&context.table);
        let layout = Layout::new(measurement, options.text("retention.policy"), context)?;
        let calls = StoreCalls { table: context.table.clone(), monitor: context.monitor.clone() };
        Ok(Box::new(InfluxStore { client: InfluxClient::new(options)?, layout, calls }))
    }
}

struct InfluxStore {
    client: InfluxClient,
    layout: Layout,
    calls: StoreCalls,
}

impl InfluxStore {
    fn translate(&self, condition: Option<&StoreExpr>, given: &[TypedValue]) -> Result<InfluxCondition> {
        let translation = Translation { layout: &self.layout, parameters: given };
        condition.map_or(Ok(InfluxCondition::Always), |x| translation.condition(x))
    }

    /// Returns the rows that satisfy a condition.
    fn select(&self, condition: &InfluxCondition, limit: Option<usize>) -> Result<Vec<StoredRow>> {
        let Some(filter) = condition.filter() else { return Ok(vec![]) };
        let statement = self.layout.select(&filter, limit);
        let answer = self.calls.until_reached(|| runtime().block_on(self.client.query(&statement)))?;
        self.layout.rows(&answer)
    }

    /// Writes rows. Returns why some are refused, by their index.
    fn write(&self, rows: &[&StoredRow]) -> Result<Vec<(usize, String)>> {
        let mut refused = vec![];
        let mut lines = vec![];
        for (at, row) in rows.iter().enumerate() {
            match self.layout.line(row) {
                Ok(line) => lines.push((at, line)),
                Err(why) => refused.push((at, why)),
            }
        }
        for part in lines.chunks(client::LINES_MAX) {
            let text: Vec<&str> = part.iter().map(|(_, line)| line.as_str()).collect();
            let send = |lines: &[&str]| {
                let body = lines.join("\n");
                let policy = &self.layout.policy;
                self.calls.until_reached(|| runtime().block_on(self.client.write(&body, policy)))
            };
            if let Written::Refused(why) = send(&text)? {
                if let [(at, _)] = part {
                    refused.push((*at, why));
                    continue;
                }
                // a line that is written again is the same point
                for (at, line) in part {
                    if let Written::Refused(why) = send(&[line.as_str()])? {
                        refused.push((*at, why));
                    }
                }
            }
        }
        refused.sort_unstable_by_key(|(at, _)| *at);
        Ok(refused)
    }

    fn delete_where(&self, filter: &str) -> Result<()> {
        let statement = self.layout.delete(filter);
        self.calls.until_reached(|| runtime().block_on(self.client.query(&statement))).map(drop)
    }

    /// Changes rows that are there.
    ///
    /// Errors: why a row cannot be changed, in the inner result.
    fn change(
        &self,
        rows: &[StoredRow],
        set: &[(usize, StoreExpr)],
        given: &[TypedValue],
    ) -> Result<Result<(), String>> {
        let types = self.layout.types();
        let mut changed = vec![];
        for row in rows {
            let scope = RowScope { types: &types, row, parameters: given };
            let mut new = row.clone();
            for (column, x) in set {
                if let Some(cell) = new.get_mut(*column) {
                    *cell = scope.value(x).1;
                }
            }
            let became_null = row.iter().zip(&new).position(|(old, new)| !is_missing(old) && is_missing(new));
            if let Some(column) = became_null {
                let name = self.layout.name(column);
                return Ok(Err(format!(
                    "`{name}` cannot become null: InfluxDB keeps the value that a point has"
                )));
            }
            changed.push(new);
        }
        let refused = self.write(&changed.iter().collect::<Vec<_>>())?;
        if let Some((_, why)) = refused.into_iter().next() {
            return Ok(Err(why));
        }
        // only when the new points are there: a crash in between leaves both, and the repeated write ends it
        for (old, new) in rows.iter().zip(&changed) {
            if !self.layout.is_same_point(old, new) {
                self.delete_where(&self.layout.identity(old))?;
            }
        }
        Ok(Ok(()))
    }
}

impl TableStore for InfluxStore {
    fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        limit: Option<usize>,
    ) -> Result<RecordBatch> {
        let given = typed_values(parameters).into_iter().next().unwrap_or_default();
        let rows = self.select(&self.translate(condition, &given)?, limit)?;
        batch_of(&self.layout.schema, &rows)
    }

    fn insert(&mut self, rows: &RecordBatch, _: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        let rows = all_values(rows);
        let refused = self.write(&rows.iter().collect::<Vec<_>>())?;
        Ok(refused.into_iter().map(|(row, reason)| RefusedRow { row, reason }).collect())
    }

    fn delete(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        _: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        for given in typed_values(parameters) {
            let condition = self.translate(condition, &given)?;
            let Some(filter) = condition.filter() else { continue };
            if condition.has_fields() {
                // only tags and times can be named by a deletion
                for row in self.select(&condition, None)? {
                    self.delete_where(&self.layout.identity(&row))?;
                }
            } else {
                self.delete_where(&filter)?;
            }
        }
        Ok(vec![])
    }

    fn update(
        &mut self,
        change: &StoreUpdate,
        parameters: &RecordBatch,
        insert: Option<&RecordBatch>,
        _: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        if change.set.iter().any(|(_, x)| x.reads_row()) {
            return Err(Error::invalid(
                "a table in InfluxDB cannot be updated by values of its own rows: without transactions an update that a \
                 crash repeats would count twice; set values of the event",
            ));
        }
        let inserted = insert.map(all_values).unwrap_or_default();
        let mut refused = vec![];
        for (row, given) in typed_values(parameters).iter().enumerate() {
            let found = self.select(&self.translate(Some(&change.condition), given)?, None)?;
            let done = match (found.is_empty(), inserted.get(row)) {
                (true, Some(new)) => {
                    self.write(&[new])?.into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
                }
                _ => self.change(&found, &change.set, given)?,
            };
            if let Err(reason) = done {
                refused.push(RefusedRow { row, reason });
            }
        }
        Ok(refused)
    }
}

/// Returns the text of a value.
fn text_of(value: &Value<'_>) -> String {
    match value {
        Value::Str(text) => text.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        _ => String::new(),
    }
}

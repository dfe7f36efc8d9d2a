//! Rows of an `INSERT`, checked one after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::{Expr, LogicalPlan};
use futures::StreamExt;
use tidemill_access::{Action, Principal, Resource};
use tidemill_database::{
    BadRows, Description, OpenStream, Parameter, Returning, StagedInsert, target_fields,
};
use tidemill_types::decode::CellValue;
use tidemill_types::{
    BadRow, DecodedRows, Error, EventId, Field, FieldType, Offset, PartitionId, Result, RowDecoder,
    RowOrigin, StreamSchema, Timestamp,
};

use super::arrow_cells::FieldColumn;
use super::cell::{ValuesCell, text_cell, value_cell};
use super::parts::place_of;
use super::{Insert, InsertSource};
use crate::MissingFields;
use crate::catalog::QuerySnapshots;
use crate::error::{ended, from_datafusion};
use crate::execution::work::{self, Work};
use crate::pg_catalog::{INFORMATION_SCHEMA, PG_CATALOG};
use crate::plans::parameters::ParameterTypes;
use crate::query::QueryRequest;
use crate::schema_name::SchemaName;
use crate::session::Shared;
use crate::visible_tables::with_hint;

/// An `INSERT` whose stream and columns are known.
struct Target {
    insert: Insert,
    stream: OpenStream,
    /// Fields that it writes, by index.
    fields: Vec<usize>,
}

impl Shared {
    /// Returns the stream that a statement writes.
    ///
    /// Errors: those of [`tidemill_database::Database::open_stream`].
    pub fn open_stream(&self, schema: &str, name: &str, principal: &Principal) -> Result<OpenStream> {
        let no_stream = |schema: &str, name: &str| {
            Error::invalid(format!(
                "{schema}.{name} has no events: events are inserted into streams, the tables of the schema events"
            ))
        };
        if [PG_CATALOG, INFORMATION_SCHEMA].iter().any(|catalog| schema.eq_ignore_ascii_case(catalog)) {
            return Err(no_stream(schema, name));
        }
        // who may write a stream may read it
        let tables = self.visible(self.tables.clone(), principal);
        let names = QuerySnapshots::new(tables, Arc::default(), MissingFields::Refused, None);
        let (schema, name) = names.locate(schema, name).map_err(|e| with_hint(e, principal))?;
        if schema != SchemaName::Events {
            return Err(no_stream(schema.name(), &name));
        }
        principal.may(Action::Write, &Resource::stream(&name))?;
        self.tables.open_stream(&name)?.ok_or_else(|| {
            Error::invalid(format!(
                "events.{name} has no events to come: the app does not declare the stream any more"
            ))
        })
    }

    fn target(&self, request: &QueryRequest) -> Result<Target> {
        let insert = Insert::parse(&self.state, &request.text, self.options.text_bytes_max)?;
        let stream = self.open_stream(&insert.schema, &insert.table, &request.principal);
        let stream = stream.map_err(|e| e.context(&insert.table_place))?;
        let named = |columns: &[(String, String)]| {
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            let found = target_fields(&stream.schema, &names);
            // the hint has names of columns only, which the caller may write
            found.map_err(|(at, error)| Error::new(error.kind(), error.to_string()).context(&columns[at].1))
        };
        let fields = match &insert.columns {
            Some(columns) => named(columns)?,
            None => (0..stream.schema.fields.len()).collect(),
        };
        if let Some(conflict) = insert.conflict.as_ref().filter(|conflict| !conflict.0.is_empty()) {
            let found: BTreeSet<usize> = named(&conflict.0)?.into_iter().collect();
            if found != stream.schema.id.iter().copied().collect() {
                return Err(no_unique_constraint(&stream.schema).context(&conflict.0[0].1));
            }
        }
        Ok(Target { insert, stream, fields })
    }

    /// Returns the parameters of an `INSERT`, and the columns of `RETURNING`, if it has some.
    ///
    /// Errors: those in its text.
    pub async fn describe_insert(&self, request: &QueryRequest) -> Result<Description> {
        let target = self.target(request)?;
        let returning = self.plan_returning(&target.insert, request, &target.stream.schema).await?;
        let origins = returning.as_ref().map_or_else(Vec::new, |rows| rows.origins());
        let columns =
            returning.map_or_else(|| Arc::new(arrow::datatypes::Schema::empty()), |rows| rows.schema());
        let mut parameters: Vec<Option<DataType>> = Vec::new();
        match &target.insert.source {
            InsertSource::Defaults => {}
            InsertSource::Values(rows) => {
                target.check_widths(rows, &request.text)?;
                let of_expressions = self.expressions(request, &target, rows)?;
                if let Some(query) = &of_expressions.query {
                    let planned = self.plan_alone(query, None).await?;
                    parameters = ParameterTypes::described(&planned.plan)?;
                }
                parameters.resize(of_expressions.parameters, None);
                for (cell, field) in rows.iter().flat_map(|row| row.iter().zip(target.written())) {
                    if let Some(ValuesCell::Parameter(number)) = cell.for_field(field.ty) {
                        parameters[number - 1].get_or_insert_with(|| field.ty.arrow());
                    }
                }
            }
            InsertSource::Query => {
                let query = target.query(request);
                let planned = self.plan_alone(&query, None).await?;
                target.check_width(planned.plan.schema().fields().len(), &request.text)?;
                parameters = ParameterTypes::described(&planned.plan)?;
                for (number, field) in parameters_of_columns(&planned.plan).into_iter().zip(target.written())
                {
                    if let Some(ty) = number.and_then(|number| parameters.get_mut(number - 1)) {
                        ty.get_or_insert_with(|| field.ty.arrow());
                    }
                }
            }
        }
        Ok(Description { parameters, columns, origins })
    }

    /// Checks the rows of an `INSERT`.
    ///
    /// Errors: those in its text, and of its query; `Invalid` for a row that does not fit, unless bad rows are kept.
    pub async fn stage_insert(
        self: &Arc<Self>,
        work: &Arc<Work>,
        request: &QueryRequest,
    ) -> Result<StagedInsert> {
        let target = self.target(request)?;
        let schema = target.stream.schema.clone();
        let returning = self.plan_returning(&target.insert, request, &schema).await?;
        let mut rows = Rows::new(&target.stream, request.bad_rows);
        match &target.insert.source {
            InsertSource::Defaults => {
                check_parameters(&BTreeSet::new(), request)?;
                rows.push(&[]);
            }
            InsertSource::Values(cells) => {
                target.check_widths(cells, &request.text)?;
                self.push_values(work, request, &target, cells, &mut rows).await?;
            }
            InsertSource::Query => self.push_query(work, request, &target, &mut rows).await?,
        }
        let DecodedRows { rows: events, rejected, .. } = rows.decoder.finish();
        if let Some(bad) = rejected.first().filter(|_| request.bad_rows == BadRows::Refuse) {
            return Err(target.refusal(bad, rejected.len(), &request.text));
        }
        let events = events.parts.into_iter().next().map(|(_, batch)| shrunk(batch)).transpose()?;
        let events = events.unwrap_or_else(|| RecordBatch::new_empty(schema.batch_schema()));
        let returning = returning.map(|rows| Arc::new(rows) as Arc<dyn Returning>);
        if let Some(returning) = &returning {
            // an expression that fails does so before anything is stored
            let nowhere = EventId { partition: PartitionId(0), offset: Offset(0), row: 0 };
            returning.rows(&events, &vec![nowhere; events.num_rows()])?;
        }
        let skips_duplicates = target.insert.conflict.is_some();
        Ok(StagedInsert { stream: schema, rows: events, rejected, skips_duplicates, returning })
    }

    async fn push_values(
        self: &Arc<Self>,
        work: &Arc<Work>,
        request: &QueryRequest,
        target: &Target,
        cells: &[Vec<ValuesCell>],
        rows: &mut Rows,
    ) -> Result<()> {
        let values = self.expressions(request, target, cells)?;
        check_values(values.parameters, request)?;
        let mut evaluated = Vec::new().into_iter();
        if let Some(query) = &values.query {
            if request.text.to_ascii_lowercase().contains("select") {
                self.caught_up().await?;
            }
            let batch = self.only_row(work, query).await?;
            let columns = batch.columns().iter().zip(&values.wanted).map(|(array, (_, column))| {
                FieldColumn::new(array, &target.stream.schema.fields[target.fields[*column]])
            });
            evaluated = columns.collect::<Result<Vec<_>>>()?.into_iter();
        }
        for cells in cells {
            // expressions of a row are in its order
            let columns: Vec<Option<FieldColumn>> = cells
                .iter()
                .zip(target.written())
                .map(|(cell, field)| cell.for_field(field.ty).is_none().then(|| evaluated.next()).flatten())
                .collect();
            let mut row = Vec::with_capacity(cells.len());
            for ((cell, field), column) in cells.iter().zip(target.written()).zip(&columns) {
                let value = match (cell.for_field(field.ty), column) {
                    (Some(cell), _) => literal(cell, field.ty, &request.parameters)?,
                    (None, Some(column)) => column.cell(0),
                    (None, None) => return Err(Error::internal("an expression of an INSERT has no value")),
                };
                row.extend(value.map(|value| (field.name.as_str(), value)));
            }
            rows.push(&row);
            work::check().map_err(|stop| ended(&stop))?;
        }
        Ok(())
    }

    async fn push_query(
        self: &Arc<Self>,
        work: &Arc<Work>,
        request: &QueryRequest,
        target: &Target,
        rows: &mut Rows,
    ) -> Result<()> {
        self.caught_up().await?;
        let query = target.query(request);
        let (planned, mut stream) = self.start_new(work, &query).await?;
        target.check_width(stream.schema().fields().len(), &request.text)?;
        let memory = MemoryConsumer::new("INSERT").register(&self.state.runtime_env().memory_pool);
        while let Some(batch) = stream.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(planned.files.name_damaged(from_datafusion(&error, None)).await),
            };
            memory.try_grow(batch.get_array_memory_size()).map_err(|e| from_datafusion(&e, None))?;
            if memory.size() > self.options.collect_bytes_max {
                return Err(Error::limit(format!(
                    "the rows of an INSERT have more than {} bytes (`sql.collect_bytes_max`): insert fewer at once",
                    self.options.collect_bytes_max
                )));
            }
            let columns: Vec<(&Field, FieldColumn)> = batch
                .columns()
                .iter()
                .zip(target.written())
                .map(|(array, field)| FieldColumn::new(array, field).map(|column| (field, column)))
                .collect::<Result<_>>()?;
            let mut row = Vec::with_capacity(columns.len());
            for at in 0..batch.num_rows() {
                row.clear();
                let values = columns.iter().map(|(field, column)| (field.name.as_str(), column.cell(at)));
                row.extend(values.filter_map(|(name, value)| Some((name, value?))));
                rows.push(&row);
            }
            work::check().map_err(|stop| ended(&stop))?;
        }
        Ok(())
    }

    /// Runs a query that has one row.
    async fn only_row(self: &Arc<Self>, work: &Arc<Work>, query: &QueryRequest) -> Result<RecordBatch> {
        let (planned, mut stream) = self.start_new(work, query).await?;
        let mut only = None;
        while let Some(batch) = stream.next().await {
            match batch {
                Ok(batch) if batch.num_rows() > 0 => only = Some(batch),
                Ok(_) => {}
                Err(error) => return Err(planned.files.name_damaged(from_datafusion(&error, None)).await),
            }
        }
        only.filter(|batch| batch.num_rows() == 1)
            .ok_or_else(|| Error::invalid("an expression of VALUES has several rows: expected one value"))
    }

    /// Waits until what was acknowledged is applied, for a statement that reads.
    async fn caught_up(&self) -> Result<()> {
        let tables = self.tables.clone();
        let waited = tokio::task::spawn_blocking(move || tables.catch_up()).await;
        waited.map_err(|_| self.closing.ended_early())?
    }

    /// Returns the query for the expressions of `VALUES`.
    fn expressions(
        &self,
        request: &QueryRequest,
        target: &Target,
        rows: &[Vec<ValuesCell>],
    ) -> Result<Expressions> {
        let (mut used, mut in_query, mut wanted) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            for (column, (cell, field)) in row.iter().zip(target.written()).enumerate() {
                used.extend(cell.parameters());
                if cell.for_field(field.ty).is_none() {
                    in_query.extend(cell.parameters());
                    wanted.push((at, column));
                }
            }
        }
        let parameters = used.len();
        check_numbers(&used)?;
        if wanted.is_empty() {
            return Ok(Expressions { query: None, wanted, parameters });
        }
        // a query has each of its parameters
        let others: Vec<usize> = used.difference(&in_query).copied().collect();
        let text = target.insert.parts.expressions(&request.text, &wanted, &others);
        let text =
            text.ok_or_else(|| Error::internal("the expressions of an INSERT were not found in its text"))?;
        Ok(Expressions {
            query: Some(QueryRequest { text: text.into(), ..request.clone() }),
            wanted,
            parameters,
        })
    }
}

/// Expressions of `VALUES`.
struct Expressions {
    /// The query with a column for each of them; `None` without any.
    query: Option<QueryRequest>,
    /// Their rows and columns, in order.
    wanted: Vec<(usize, usize)>,
    /// Number of parameters of the statement.
    parameters: usize,
}

impl Target {
    /// Returns the fields that the statement writes.
    fn written(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().map(|at| &self.stream.schema.fields[*at])
    }

    fn query(&self, request: &QueryRequest) -> QueryRequest {
        QueryRequest { text: self.insert.parts.query(&request.text).into(), ..request.clone() }
    }

    /// Checks that rows have a value for each column. Without a list of columns, the last ones may be left out.
    fn check_widths(&self, rows: &[Vec<ValuesCell>], text: &str) -> Result<()> {
        let parts = &self.insert.parts;
        let place = |row: usize, column: usize| parts.place_of_cell(text, row, column).unwrap_or_default();
        let first = rows.first().map_or(0, Vec::len);
        for (at, row) in rows.iter().enumerate() {
            if row.len() > self.fields.len() {
                return Err(more_values(self.fields.len()).context(place(at, self.fields.len())));
            }
            if row.len() != first {
                return Err(Error::invalid(format!(
                    "VALUES lists must all be the same length: expected {first} values as in row 1, found {} in row {}",
                    row.len(),
                    at + 1
                ))
                .context(place(at, 0)));
            }
        }
        self.check_columns(first).map_err(|e| e.context(place(0, 0)))
    }

    fn check_width(&self, found: usize, text: &str) -> Result<()> {
        let checked = match found > self.fields.len() {
            true => Err(more_values(self.fields.len())),
            false => self.check_columns(found),
        };
        checked.map_err(|e| e.context(place_of(text, self.insert.parts.source.start)))
    }

    fn check_columns(&self, found: usize) -> Result<()> {
        match self.insert.columns.is_some() && found < self.fields.len() {
            true => Err(Error::invalid(format!(
                "INSERT has more target columns than expressions: expected {} values, found {found}",
                self.fields.len()
            ))),
            false => Ok(()),
        }
    }

    /// Returns the error for a row that does not fit, with its place if it is in the text.
    fn refusal(&self, bad: &BadRow, count: usize, text: &str) -> Error {
        let row = usize::try_from(bad.origin.number).unwrap_or(usize::MAX);
        let more = match count {
            1 => String::new(),
            2 => "; 1 more row does not fit".to_owned(),
            count => format!("; {} more rows do not fit", count - 1),
        };
        let error = Error::invalid(format!("row {}: {}{more}", row.saturating_add(1), bad.message));
        // a part of an object is `field.part`
        let is_of = |field: &Field| {
            let rest = bad.message.strip_prefix("field `").and_then(|rest| rest.strip_prefix(&field.name));
            rest.is_some_and(|rest| rest.starts_with(['`', '.', '[']))
        };
        let column = self.written().position(is_of);
        match self.insert.parts.place_of_cell(text, row, column.unwrap_or(0)) {
            Some(place) => error.context(place),
            None => error,
        }
    }
}

/// Rows that are checked.
struct Rows {
    decoder: RowDecoder,
    now: Timestamp,
    count: u64,
    keeps_bad: bool,
}

impl Rows {
    fn new(stream: &OpenStream, bad_rows: BadRows) -> Self {
        let decoder = RowDecoder::new(std::slice::from_ref(&stream.schema), None);
        Self { decoder, now: (stream.clock)(), count: 0, keeps_bad: bad_rows == BadRows::Keep }
    }

    fn push(&mut self, row: &[(&str, CellValue<'_>)]) {
        // what `system.rejected` has of a row can be sent again over HTTP
        let text = match self.keeps_bad {
            true => {
                let object = row.iter().map(|(name, cell)| ((*name).to_owned(), cell.to_json()));
                serde_json::Value::Object(object.collect()).to_string()
            }
            false => String::new(),
        };
        let origin = RowOrigin::of_row(self.count);
        self.decoder.push_cells(origin, 0, row.iter().copied(), self.now, text.as_bytes());
        self.count += 1;
    }
}

/// Returns a batch without the room for more rows, as a transaction may keep many of one row.
fn shrunk(batch: RecordBatch) -> Result<RecordBatch> {
    let (schema, mut columns, _) = batch.into_parts();
    columns.iter_mut().for_each(|column| column.shrink_to_fit());
    RecordBatch::try_new(schema, columns)
        .map_err(|e| Error::internal("the columns of a batch do not fit it").with_source(e))
}

/// Returns the value of a literal or a parameter; `None` for null.
fn literal<'c>(
    cell: &'c ValuesCell,
    ty: FieldType,
    parameters: &'c [Parameter],
) -> Result<Option<CellValue<'c>>> {
    Ok(Some(match cell {
        ValuesCell::Missing => return Ok(None),
        ValuesCell::Bool(value) => CellValue::Bool(*value),
        ValuesCell::Int(value) => CellValue::Int(*value),
        ValuesCell::Float(value) => CellValue::Float(*value),
        ValuesCell::Text(text) => text_cell(text, ty),
        ValuesCell::Parameter(number) => {
            let value = parameters.get(number - 1);
            let value = value.ok_or_else(|| Error::internal("a parameter of an INSERT has no value"))?;
            return value_cell(*number, value, ty);
        }
        ValuesCell::Cast(..) | ValuesCell::Expression(_) => {
            return Err(Error::internal("an expression of an INSERT was taken for a literal"));
        }
    }))
}

fn more_values(columns: usize) -> Error {
    Error::invalid(format!(
        "INSERT has more expressions than target columns: expected at most {columns} values"
    ))
}

fn no_unique_constraint(stream: &StreamSchema) -> Error {
    let id: Vec<&str> = stream.id.iter().map(|at| stream.fields[*at].name.as_str()).collect();
    let advice = match id.is_empty() {
        true => "the stream declares no id, so no event is the duplicate of another one".to_owned(),
        false => format!("the id of the stream is ({})", id.join(", ")),
    };
    Error::invalid(format!("there is no unique constraint matching the ON CONFLICT specification: {advice}"))
}

fn check_parameters(used: &BTreeSet<usize>, request: &QueryRequest) -> Result<()> {
    check_numbers(used)?;
    check_values(used.len(), request)
}

/// Checks that no parameter is left out.
fn check_numbers(used: &BTreeSet<usize>) -> Result<()> {
    match (1..=used.len()).find(|number| !used.contains(number)) {
        Some(missing) => {
            Err(Error::invalid(format!("the query has {} parameters and no ${missing}", used.len())))
        }
        None => Ok(()),
    }
}

/// Checks the number of values.
fn check_values(parameters: usize, request: &QueryRequest) -> Result<()> {
    let found = request.parameters.len();
    match found == parameters {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the query has {parameters} parameters: expected {parameters} values, found {found}"
        ))),
    }
}

/// Returns the number of the parameter that each column of a query is, if it is one.
fn parameters_of_columns(plan: &LogicalPlan) -> Vec<Option<usize>> {
    let LogicalPlan::Projection(projection) = plan else { return Vec::new() };
    let number = |expr: &Expr| match expr.clone().unalias() {
        Expr::Placeholder(placeholder) => placeholder.id.strip_prefix('$')?.parse().ok().filter(|n| *n > 0),
        _ => None,
    };
    projection.expr.iter().map(number).collect()
}

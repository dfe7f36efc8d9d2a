//! Rows of the database behind SQL.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use futures::StreamExt;
use futures::future::BoxFuture;
use tidemill_access::Principal;
use tidemill_database::{Database, QueryRequest};

use crate::error::{Outcome, StatementError, refuse};
use crate::rows::{AggregateScan, AggregatedRow, Reservation, Row, RowScan, RowSource};
use crate::sql;
use crate::value::InfluxValue;

/// Rows of the streams that a caller may read.
pub(crate) struct DatabaseRows {
    pub database: Arc<dyn Database>,
    pub principal: Principal,
    pub origin: &'static str,
}

impl DatabaseRows {
    /// Calls `take` with each batch of a statement.
    async fn batches(
        &self,
        text: String,
        mut take: impl FnMut(RecordBatch) -> Outcome<()> + Send,
    ) -> Outcome<()> {
        let request = QueryRequest::new(text, self.origin, self.principal.clone());
        let mut batches = self.database.query(request).await?.batches;
        while let Some(batch) = batches.next().await {
            take(batch?)?;
        }
        Ok(())
    }
}

impl RowSource for DatabaseRows {
    fn scan<'a>(&'a self, scan: RowScan<'a>, memory: &'a Reservation) -> BoxFuture<'a, Outcome<Vec<Row>>> {
        Box::pin(async move {
            let mut rows = Vec::new();
            self.batches(sql::scan(&scan), |batch| {
                let times = Times::new(batch.column(0))?;
                let columns = BatchColumns::new(&batch, 1)?;
                for index in 0..batch.num_rows() {
                    let Some(time) = times.at(index)? else { continue };
                    let row = Row { time, values: columns.0.iter().map(|column| column.at(index)).collect() };
                    memory.take(row.bytes())?;
                    rows.push(row);
                }
                Ok(())
            })
            .await?;
            Ok(rows)
        })
    }

    fn aggregate<'a>(
        &'a self,
        aggregation: AggregateScan<'a>,
        memory: &'a Reservation,
    ) -> BoxFuture<'a, Outcome<Option<Vec<AggregatedRow>>>> {
        Box::pin(async move {
            let keys = aggregation.dimensions.len();
            let first = keys + usize::from(aggregation.intervals.is_some());
            let mut rows = Vec::new();
            self.batches(sql::aggregation(&aggregation), |batch| {
                let texts =
                    BatchColumns::new(&batch.project(&(0..keys).collect::<Vec<_>>()).map_err(internal)?, 0)?;
                let starts = match aggregation.intervals {
                    Some(_) => Some(Times::new(batch.column(keys))?),
                    None => None,
                };
                let mut at = first;
                let mut columns = Vec::new();
                for aggregate in &aggregation.aggregates {
                    let value = ColumnValues::new(batch.column(at))?;
                    let time =
                        if aggregate.has_time { Some(Times::new(batch.column(at + 1))?) } else { None };
                    at += 1 + usize::from(aggregate.has_time);
                    columns.push((value, time));
                }
                for index in 0..batch.num_rows() {
                    let key = texts.0.iter().map(|column| column.text(index)).collect();
                    let start = match &starts {
                        Some(starts) => starts.at(index)?.unwrap_or_default(),
                        None => 0,
                    };
                    let mut values = Vec::with_capacity(columns.len());
                    for (value, time) in &columns {
                        let time = time.as_ref().map(|time| time.at(index)).transpose()?.flatten();
                        values.push((value.at(index), time));
                    }
                    memory.take(64 + 64 * values.len() + 32 * keys)?;
                    rows.push(AggregatedRow { key, start, values });
                }
                Ok(())
            })
            .await?;
            Ok(Some(rows))
        })
    }

    fn distinct<'a>(
        &'a self,
        scan: RowScan<'a>,
        memory: &'a Reservation,
    ) -> BoxFuture<'a, Outcome<Vec<Vec<String>>>> {
        Box::pin(async move {
            let mut rows = Vec::new();
            self.batches(sql::distinct(&scan), |batch| {
                let columns = BatchColumns::new(&batch, 0)?;
                for index in 0..batch.num_rows() {
                    let row: Vec<String> = columns.0.iter().map(|column| column.text(index)).collect();
                    memory.take(row.iter().map(|text| text.len() + 32).sum())?;
                    rows.push(row);
                }
                Ok(())
            })
            .await?;
            Ok(rows)
        })
    }
}

fn internal(error: impl std::fmt::Display) -> StatementError {
    StatementError::new(format!("internal error: {error}"))
}

/// Times in nanoseconds.
struct Times(ArrayRef);

impl Times {
    fn new(column: &ArrayRef) -> Outcome<Self> {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        Ok(Self(cast(column, &micros).map_err(internal)?))
    }

    fn at(&self, index: usize) -> Outcome<Option<i64>> {
        let times = self.0.as_primitive::<TimestampMicrosecondType>();
        if times.is_null(index) {
            return Ok(None);
        }
        match times.value(index).checked_mul(1000) {
            Some(time) => Ok(Some(time)),
            None => refuse(
                "an event has a time outside of the years 1677 to 2262: choose a range with `time >= …`",
            ),
        }
    }
}

/// Columns of a batch from a place on.
struct BatchColumns(Vec<ColumnValues>);

impl BatchColumns {
    fn new(batch: &RecordBatch, first: usize) -> Outcome<Self> {
        batch.columns()[first..].iter().map(ColumnValues::new).collect::<Outcome<_>>().map(Self)
    }
}

/// Values of a column, in one of the types of InfluxQL.
enum ColumnValues {
    Floats(ArrayRef),
    Integers(ArrayRef),
    Booleans(ArrayRef),
    Texts(ArrayRef),
}

impl ColumnValues {
    fn new(column: &ArrayRef) -> Outcome<Self> {
        let to = |data_type: &DataType| cast(column, data_type).map_err(internal);
        Ok(match column.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => {
                Self::Floats(to(&DataType::Float64)?)
            }
            DataType::Boolean => Self::Booleans(column.clone()),
            found if found.is_integer() => Self::Integers(to(&DataType::Int64)?),
            _ => Self::Texts(to(&DataType::Utf8)?),
        })
    }

    fn at(&self, index: usize) -> Option<InfluxValue> {
        match self {
            Self::Floats(array) => {
                let array = array.as_primitive::<Float64Type>();
                array.is_valid(index).then(|| InfluxValue::Float(array.value(index)))
            }
            Self::Integers(array) => {
                let array = array.as_primitive::<Int64Type>();
                array.is_valid(index).then(|| InfluxValue::Integer(array.value(index)))
            }
            Self::Booleans(array) => {
                let array = array.as_boolean();
                array.is_valid(index).then(|| InfluxValue::Boolean(array.value(index)))
            }
            Self::Texts(array) => {
                let array = array.as_string::<i32>();
                array.is_valid(index).then(|| InfluxValue::Text(array.value(index).into()))
            }
        }
    }

    fn text(&self, index: usize) -> String {
        match self.at(index) {
            Some(InfluxValue::Text(text)) => text.to_string(),
            Some(InfluxValue::Integer(value)) => value.to_string(),
            Some(InfluxValue::Float(value)) => value.to_string(),
            Some(InfluxValue::Boolean(value)) => value.to_string(),
            None => String::new(),
        }
    }
}

//! Inputs of expressions: a row of a batch or an emitted event, and the documents bound to it.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, BooleanArray, RecordBatch, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};
use bson::raw::RawDocument;
use tidemill_docs::DocBytes;
use tidemill_types::decode::FieldValue;
use tidemill_types::{Error, FieldType, Result, StreamSchema};

use super::value::RuleValue;

/// The columns of a batch, downcast by type, so that reading a value is a match and an index.
#[derive(Debug)]
pub struct Columns<'a> {
    /// Declared fields, then `_time`, then `_extra`.
    pub columns: Vec<Column<'a>>,
    /// Number of rows of the batch.
    pub rows: usize,
    time: usize,
}

/// One column.
#[derive(Debug)]
pub struct Column<'a> {
    /// The values; those at null rows are meaningless.
    pub data: ColumnData<'a>,
    /// Validity of the rows; all have a value when `None`.
    pub nulls: Option<&'a NullBuffer>,
}

/// The values of a column.
#[derive(Debug, Clone, Copy)]
pub enum ColumnData<'a> {
    /// `bool`
    Bool(&'a BooleanArray),
    /// `int`
    I32(&'a [i32]),
    /// `long`
    I64(&'a [i64]),
    /// `float`
    F32(&'a [f32]),
    /// `double`
    F64(&'a [f64]),
    /// `string`, and the JSON text of `object`.
    Str(&'a StringArray),
    /// `time`
    Time(&'a [i64]),
}

impl<'a> Columns<'a> {
    /// Downcasts the columns of `batch`.
    ///
    /// Errors: `Internal` when the batch does not have the schema of `StreamSchema::batch_schema`.
    pub fn new(schema: &StreamSchema, batch: &'a RecordBatch) -> Result<Self> {
        let wrong = |what: String| {
            Err(Error::internal(format!(
                "internal error: a batch of stream `{}` has {what}, which does not match the declared columns",
                schema.name
            )))
        };
        if batch.num_columns() != schema.fields.len() + 2 {
            return wrong(format!("{} columns", batch.num_columns()));
        }
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (position, array) in batch.columns().iter().enumerate() {
            let declared = schema.fields.get(position).map(|f| f.ty);
            let is_time = position == schema.fields.len();
            let fits = |data: &ColumnData<'_>| match declared {
                Some(ty) => data.is_of(ty),
                None if is_time => data.is_of(FieldType::Time) && array.null_count() == 0,
                None => data.is_of(FieldType::String),
            };
            match ColumnData::of(array.as_ref()).filter(fits) {
                Some(data) => columns.push(Column { data, nulls: array.nulls() }),
                None => return wrong(format!("column {position} of type {}", array.data_type())),
            }
        }
        Ok(Self { columns, rows: batch.num_rows(), time: schema.fields.len() })
    }

    /// Returns the event time of `row` in microseconds.
    pub fn time(&self, row: usize) -> i64 {
        match self.columns[self.time].data {
            ColumnData::Time(values) => values[row],
            // checked in `new`
            _ => 0,
        }
    }

    /// Returns the value in `column` of `row`; an Arrow null is missing.
    #[inline]
    pub fn value(&self, column: usize, row: usize) -> RuleValue<'a> {
        let Column { data, nulls } = &self.columns[column];
        if nulls.is_some_and(|n| n.is_null(row)) {
            return RuleValue::Missing;
        }
        match data {
            ColumnData::Bool(a) => RuleValue::Bool(a.value(row)),
            ColumnData::I32(v) => RuleValue::Int(v[row].into()),
            ColumnData::I64(v) => RuleValue::Int(v[row]),
            ColumnData::F32(v) => RuleValue::Float(v[row].into()),
            ColumnData::F64(v) => RuleValue::Float(v[row]),
            ColumnData::Str(a) => RuleValue::str(a.value(row)),
            ColumnData::Time(v) => RuleValue::Time(v[row]),
        }
    }
}

impl<'a> ColumnData<'a> {
    /// Returns whether columns of this kind hold fields of type `ty`.
    fn is_of(&self, ty: FieldType) -> bool {
        match self {
            Self::Bool(_) => ty == FieldType::Bool,
            Self::I32(_) => ty == FieldType::Int,
            Self::I64(_) => ty == FieldType::Long,
            Self::F32(_) => ty == FieldType::Float,
            Self::F64(_) => ty == FieldType::Double,
            Self::Str(_) => matches!(ty, FieldType::String | FieldType::Object),
            Self::Time(_) => ty == FieldType::Time,
        }
    }

    fn of(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean()),
            DataType::Int32 => Self::I32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Self::I64(array.as_primitive::<Int64Type>().values()),
            DataType::Float32 => Self::F32(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => Self::F64(array.as_primitive::<Float64Type>().values()),
            DataType::Utf8 => Self::Str(array.as_string::<i32>()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Self::Time(array.as_primitive::<TimestampMicrosecondType>().values())
            }
            _ => return None,
        })
    }
}

/// One event.
#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    /// A row of a batch.
    Batch(&'a Columns<'a>, usize),
    /// An event emitted in this run: its declared fields in order, and its time.
    Cells(&'a [FieldValue], i64),
}

impl<'a> Row<'a> {
    /// Returns the value in `column`.
    #[inline]
    pub fn value(&self, column: usize) -> RuleValue<'a> {
        match self {
            Self::Batch(columns, row) => columns.value(column, *row),
            Self::Cells(cells, time) => match cells.get(column) {
                Some(cell) => cell_value(cell),
                None if column == cells.len() => RuleValue::Time(*time),
                None => RuleValue::Missing,
            },
        }
    }

    /// Returns the event time, which is the value of `now`.
    #[inline]
    pub fn now(&self) -> i64 {
        match self {
            Self::Batch(columns, row) => columns.time(*row),
            Self::Cells(_, time) => *time,
        }
    }
}

/// Converts a cell to a value.
pub fn cell_value(cell: &FieldValue) -> RuleValue<'_> {
    match cell {
        FieldValue::Missing => RuleValue::Missing,
        FieldValue::Bool(b) => RuleValue::Bool(*b),
        FieldValue::Int(n) => RuleValue::Int(*n),
        FieldValue::Float(x) => RuleValue::Float(*x),
        FieldValue::Text(s) => RuleValue::str(s),
        FieldValue::Time(t) => RuleValue::Time(t.0),
        FieldValue::Span(d) => RuleValue::Span(d.0),
    }
}

/// Converts the value of an event column to a cell; documents and arrays become JSON text.
pub fn value_cell(value: &RuleValue<'_>) -> FieldValue {
    match value {
        RuleValue::Missing | RuleValue::Null => FieldValue::Missing,
        RuleValue::Bool(b) => FieldValue::Bool(*b),
        RuleValue::Int(n) => FieldValue::Int(*n),
        RuleValue::Float(x) => FieldValue::Float(*x),
        RuleValue::Str(s) => FieldValue::Text(s.as_ref().to_owned()),
        RuleValue::Time(t) => FieldValue::Time(tidemill_types::Timestamp(*t)),
        RuleValue::Span(d) => FieldValue::Span(tidemill_types::Duration(*d)),
        RuleValue::Bson(_) | RuleValue::Owned(_) => FieldValue::Text(value.to_json().to_string()),
    }
}

/// Limit on the documents that one rule may look up.
pub const SLOTS_MAX: usize = 12;

/// An event and the documents bound so far; an empty slot is `None`.
#[derive(Debug, Clone, Copy)]
pub struct Bindings<'a> {
    /// The event.
    pub row: Row<'a>,
    /// The documents by slot.
    pub docs: [Option<&'a DocBytes>; SLOTS_MAX],
}

impl<'a> Bindings<'a> {
    /// Creates a frame without documents.
    pub fn new(row: Row<'a>) -> Self {
        Self { row, docs: [None; SLOTS_MAX] }
    }

    /// Creates a frame with documents by slot, at most [`SLOTS_MAX`].
    pub fn bound(row: Row<'a>, docs: &'a [Option<DocBytes>]) -> Self {
        let mut frame = Self::new(row);
        frame.docs.iter_mut().zip(docs).for_each(|(slot, doc)| *slot = doc.as_ref());
        frame
    }

    /// Returns the document in `slot`.
    #[inline]
    pub fn doc(&self, slot: usize) -> Option<&'a RawDocument> {
        // a document is validated when it enters the store
        self.docs[slot].and_then(|bytes| RawDocument::from_bytes(bytes.as_ref()).ok())
    }

    /// Returns a copy of the frame with `doc` in `slot`.
    #[inline]
    pub fn with<'b>(&self, slot: usize, doc: &'b DocBytes) -> Bindings<'b>
    where
        'a: 'b,
    {
        let mut bound: Bindings<'b> = *self;
        bound.docs[slot] = Some(doc);
        bound
    }
}

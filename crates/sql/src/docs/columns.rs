//! Decoding of documents into Arrow columns. Each document is walked once; only projected fields are decoded.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::array::{ArrayRef, NullArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use bytes::Bytes;

use super::column_type::ColumnType;
use super::raw_bson::{FieldPositions, Raw, elements, tag};
use super::{Column, json};

/// Decoder of documents into batches of the projected columns.
pub(super) struct Decoder {
    schema: SchemaRef,
    /// One builder per projected field.
    fields: Vec<Builder>,
    kinds: Vec<ColumnType>,
    index: HashMap<Box<[u8]>, usize>,
    whole: Option<StringBuilder>,
    /// Index into `fields` of each column of the schema; `None` for the whole document.
    order: Vec<Option<usize>>,
    layout: FieldPositions,
    scratch: String,
}

enum Builder {
    /// Number of rows: a `NullBuilder` keeps its rows for the next batch.
    Absent(usize),
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Double(Float64Builder),
    Time(TimestampMicrosecondBuilder),
    Text(StringBuilder),
}

impl Decoder {
    /// Creates a decoder for `columns`, which are the fields of `schema`.
    pub fn new(schema: SchemaRef, columns: &[Column]) -> Self {
        let mut decoder = Self {
            schema,
            fields: vec![],
            kinds: vec![],
            index: HashMap::new(),
            whole: None,
            order: vec![],
            layout: FieldPositions::default(),
            scratch: String::new(),
        };
        for column in columns {
            match column {
                Column::Whole => {
                    decoder.whole = Some(StringBuilder::new());
                    decoder.order.push(None);
                }
                Column::Field { name, kind } => {
                    decoder.order.push(Some(decoder.fields.len()));
                    decoder.index.insert(name.clone(), decoder.fields.len());
                    decoder.fields.push(Builder::new(*kind));
                    decoder.kinds.push(*kind);
                }
            }
        }
        decoder
    }

    /// Decodes the documents into one batch.
    pub fn decode(&mut self, documents: &[Bytes]) -> Result<RecordBatch, ArrowError> {
        let mut found: Vec<Option<Raw<'_>>> = vec![None; self.fields.len()];
        for document in documents {
            self.find(document, &mut found);
            for (index, value) in found.iter_mut().enumerate() {
                let value = value.take();
                self.fields[index].push(self.kinds[index], value, &mut self.scratch);
            }
            if let Some(whole) = &mut self.whole {
                self.scratch.clear();
                json::write_document(&mut self.scratch, document);
                whole.append_value(&self.scratch);
            }
        }
        self.finish(documents.len())
    }

    /// Fills `found` with the projected fields of the document. If a name occurs more than once, the first
    /// value counts.
    fn find<'d>(&mut self, document: &'d [u8], found: &mut [Option<Raw<'d>>]) {
        let mut missing = found.len();
        if missing == 0 {
            return;
        }
        let index = &self.index;
        for (place, (name, value)) in elements(document).enumerate() {
            let Some(field) = self.layout.target(place, name, |name| index.get(name).copied()) else {
                continue;
            };
            if found[field].is_none() {
                found[field] = Some(value);
                missing -= 1;
                if missing == 0 {
                    return;
                }
            }
        }
    }

    fn finish(&mut self, rows: usize) -> Result<RecordBatch, ArrowError> {
        let mut fields: Vec<Option<ArrayRef>> = self.fields.iter_mut().map(|b| Some(b.finish())).collect();
        let mut columns = Vec::with_capacity(self.order.len());
        for place in &self.order {
            let column = match place {
                Some(index) => fields.get_mut(*index).and_then(Option::take),
                None => self.whole.as_mut().map(|w| Arc::new(w.finish()) as ArrayRef),
            };
            columns.extend(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
    }
}

impl Builder {
    fn new(kind: ColumnType) -> Self {
        match kind {
            ColumnType::Absent => Self::Absent(0),
            ColumnType::Bool => Self::Bool(BooleanBuilder::new()),
            ColumnType::Int => Self::Int(Int64Builder::new()),
            ColumnType::Double => Self::Double(Float64Builder::new()),
            ColumnType::Time => Self::Time(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            ColumnType::Null | ColumnType::Text | ColumnType::Id | ColumnType::Decimal | ColumnType::Json => {
                Self::Text(StringBuilder::new())
            }
        }
    }

    fn push(&mut self, kind: ColumnType, value: Option<Raw<'_>>, scratch: &mut String) {
        let value = value.filter(|v| !matches!(v.tag, tag::NULL | tag::UNDEFINED));
        match self {
            Self::Absent(rows) => *rows += 1,
            Self::Bool(b) => b.append_option(value.map(Raw::bool)),
            Self::Int(b) => b.append_option(value.map(integer)),
            Self::Double(b) => b.append_option(value.map(|v| match v.tag {
                tag::DOUBLE => v.f64(),
                _ => integer(v) as f64,
            })),
            // BSON dates are milliseconds; a value whose microseconds overflow i64 is clamped
            Self::Time(b) => b.append_option(value.map(|v| v.i64().saturating_mul(1000))),
            Self::Text(b) => match value {
                None => b.append_null(),
                Some(value) if kind == ColumnType::Text && value.tag == tag::STRING => {
                    b.append_value(value.text())
                }
                Some(value) => {
                    scratch.clear();
                    write_text(scratch, kind, value);
                    b.append_value(&scratch);
                }
            },
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Absent(rows) => Arc::new(NullArray::new(std::mem::take(rows))),
            Self::Bool(b) => Arc::new(b.finish()),
            Self::Int(b) => Arc::new(b.finish()),
            Self::Double(b) => Arc::new(b.finish()),
            Self::Time(b) => Arc::new(b.finish()),
            Self::Text(b) => Arc::new(b.finish()),
        }
    }
}

fn integer(value: Raw<'_>) -> i64 {
    match value.tag {
        tag::INT32 => value.i32().into(),
        _ => value.i64(),
    }
}

fn write_text(out: &mut String, kind: ColumnType, value: Raw<'_>) {
    match (kind, value.tag) {
        (ColumnType::Text | ColumnType::Id, tag::OBJECT_ID) => json::write_hex(out, value.bytes),
        (ColumnType::Decimal, tag::DECIMAL) => match value.decimal() {
            Some(decimal) => out.push_str(&decimal.to_string()),
            None => out.push_str("null"),
        },
        _ => json::write_value(out, value),
    }
}

//! Batches and schemas as they travel: with types that all clients read.
//!
//! Views become plain texts, dictionaries become their values, and every column may have nulls, as a statement has the same columns then
//! before and while it runs.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_flight::{IpcMessage, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use bytes::Bytes;
use tidemill_types::{Error, Result};

/// Returns the columns that clients get.
pub(crate) fn wire_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), wire_type(field.data_type()), true))
        .collect();
    Arc::new(Schema::new(fields))
}

/// Returns a batch with the columns of a [`wire_schema`].
///
/// Errors: `Internal` for a column that cannot be converted.
pub(crate) fn wire_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let (found, expected) = (batch.num_columns(), schema.fields().len());
    if found != expected {
        return Err(Error::internal(format!(
            "a batch of the result has {found} columns instead of {expected}"
        )));
    }
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        match column.data_type() == field.data_type() {
            true => Ok(column.clone()),
            false => cast(column, field.data_type()),
        }
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = columns
        .collect::<Result<Vec<_>, ArrowError>>()
        .and_then(|columns| RecordBatch::try_new_with_options(schema.clone(), columns, &options));
    batch.map_err(|e| Error::internal("a result cannot be converted for the wire").with_source(e))
}

/// Returns a schema as a message of Arrow IPC, with its length in front.
///
/// Errors: `Internal` for a schema that Arrow IPC does not support.
pub(crate) fn schema_bytes(schema: &Schema) -> Result<Bytes> {
    let options = IpcWriteOptions::default();
    let message: Result<IpcMessage, ArrowError> = SchemaAsIpc::new(schema, &options).try_into();
    message.map(|message| message.0).map_err(|e| Error::internal("a schema cannot be written").with_source(e))
}

fn wire_type(ty: &DataType) -> DataType {
    match ty {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, value) => wire_type(value),
        DataType::List(item) | DataType::ListView(item) => DataType::List(wire_field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => DataType::LargeList(wire_field(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(wire_field(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(wire_field).collect()),
        other => other.clone(),
    }
}

fn wire_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), wire_type(field.data_type()), field.is_nullable()))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Int64Array, ListArray, StringViewArray, StructArray};

    use super::*;

    #[test]
    fn views_and_dictionaries_become_plain_at_any_depth() {
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None]));
        let kinds: DictionaryArray<Int32Type> = vec![Some("x"), Some("x")].into_iter().collect();
        let object =
            StructArray::from(vec![(Arc::new(Field::new("v", DataType::Utf8View, true)), views.clone())]);
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None]);
        let columns: [(&str, ArrayRef); 5] = [
            ("view", views),
            ("kind", Arc::new(kinds)),
            ("object", Arc::new(object)),
            ("list", Arc::new(list)),
            ("n", Arc::new(Int64Array::from(vec![1, 2]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let schema = wire_schema(&batch.schema());
        let types: Vec<String> = schema.fields().iter().map(|field| field.data_type().to_string()).collect();
        assert_eq!(types[..2], ["Utf8", "Utf8"]);
        assert!(types[2].contains("Utf8") && !types[2].contains("View"), "{}", types[2]);
        assert!(schema.fields().iter().all(|field| field.is_nullable()));
        let wire = wire_batch(&batch, &schema).unwrap();
        assert_eq!(wire.schema(), schema);
        assert_eq!(wire.column(1).as_string::<i32>().value(1), "x");
        assert_eq!(wire.column(2).as_struct().column(0).as_string::<i32>().value(0), "a");
        assert!(wire_batch(&batch.project(&[4]).unwrap(), &wire_schema(&Schema::empty())).is_err());
    }
}

use arrow_array::{DictionaryArray, Int16Array, NullArray, StringViewArray, TimestampNanosecondArray};
use proptest::prelude::*;

use super::*;

fn attributes() -> Attributes {
    let types = [
        FieldType::Bool,
        FieldType::Int,
        FieldType::Long,
        FieldType::Float,
        FieldType::Double,
        FieldType::String,
        FieldType::Time,
        FieldType::Object,
    ];
    types.iter().map(|ty| (format!("a_{ty}"), *ty)).collect()
}

/// Returns a value of each type, made from a number and a string, or nulls.
fn row(n: Option<i32>, text: &str) -> Vec<Value> {
    let Some(n) = n else { return vec![Value::Null; 8] };
    let list = Json::from(vec![Json::from(n), Json::from(text)]);
    vec![
        Value::Bool(n % 2 == 0),
        Value::Int(n),
        Value::Long(i64::from(n) << 31),
        Value::Float(n as f32 / 8.0),
        Value::Double(f64::from(n) / 3.0),
        Value::text(text),
        Value::Long(n.into()),
        Value::Object(OpaqueValue::Json(list.into())),
    ]
}

fn texts(columns: &[Column]) -> Vec<Vec<String>> {
    columns.iter().map(|c| (0..c.len()).map(|i| format!("{:?}", c.get(i))).collect()).collect()
}

proptest! {
    #[test]
    fn columns_come_back_as_they_went(rows in prop::collection::vec((any::<Option<i32>>(), ".{0,9}"), 0..40)) {
        let attributes = attributes();
        let mut before: Vec<Column> = attributes.iter().map(|(_, ty)| Column::new(*ty)).collect();
        for (n, text) in &rows {
            before.iter_mut().zip(row(*n, text)).for_each(|(column, value)| column.push(value));
        }
        let batch = record_batch(before.clone(), &attributes).unwrap();
        prop_assert_eq!(batch.num_rows(), rows.len());
        prop_assert_eq!(batch.schema(), schema(&attributes));
        let half = batch.slice(rows.len() / 2, rows.len() - rows.len() / 2);
        let after = texts(&columns(batch, &attributes).unwrap());
        prop_assert_eq!(&after, &texts(&before));
        let half = texts(&columns(half, &attributes).unwrap());
        let wanted: Vec<_> = after.iter().map(|c| c[rows.len() / 2..].to_vec()).collect();
        prop_assert_eq!(half, wanted);
    }
}

#[test]
fn other_arrays_are_read_where_nothing_is_lost() {
    let read =
        |array: ArrayRef, ty| column(array, ty).map(|c| texts(&[c]).remove(0)).map_err(|e| e.to_string());
    let small: ArrayRef = Arc::new(Int16Array::from(vec![Some(7), None]));
    assert_eq!(read(small.clone(), FieldType::Int).unwrap(), ["Int(7)", "Null"]);
    assert_eq!(read(small.clone(), FieldType::Long).unwrap(), ["Long(7)", "Null"]);
    assert_eq!(read(small.clone(), FieldType::Double).unwrap(), ["Double(7.0)", "Null"]);
    assert_eq!(
        read(small, FieldType::String).unwrap_err(),
        "a column of Arrow type Int16 cannot be converted to `string`"
    );
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    assert_eq!(
        read(wide, FieldType::Int).unwrap_err(),
        "a column of Arrow type Int64 cannot be converted to `int`"
    );
    let nanos: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_999_999, -1]));
    assert_eq!(read(nanos.clone(), FieldType::Time).unwrap(), ["Long(1)", "Long(-1)"]);
    assert_eq!(read(nanos, FieldType::Long).unwrap(), ["Long(1)", "Long(-1)"]);
    let views: ArrayRef =
        Arc::new(StringViewArray::from(vec![Some("a text of more than twelve bytes"), None]));
    assert_eq!(
        read(views, FieldType::String).unwrap(),
        ["Str(\"a text of more than twelve bytes\")", "Null"]
    );
    let words: DictionaryArray<Int32Type> =
        [Some("up"), None, Some("down"), Some("up")].into_iter().collect();
    assert_eq!(
        read(Arc::new(words), FieldType::String).unwrap(),
        ["Str(\"up\")", "Null", "Str(\"down\")", "Str(\"up\")"]
    );
    assert_eq!(read(Arc::new(NullArray::new(1)), FieldType::Bool).unwrap(), ["Null"]);
    let json: ArrayRef = Arc::new(StringArray::from(vec!["5", "{\"a\": 1", "null"]));
    assert!(read(json, FieldType::Object).unwrap_err().starts_with("row 1: not valid JSON: EOF"));
}

#[test]
fn memory_that_nobody_else_holds_is_taken_over() {
    let array: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let at = array.as_primitive::<Int64Type>().values().as_ptr();
    let column = column(array, FieldType::Long).unwrap();
    let Data::Long(values) = column.data() else { panic!("{column:?}") };
    assert_eq!(values.as_ptr(), at);
    let array = super::array(column, FieldType::Long).unwrap();
    assert_eq!(array.as_primitive::<Int64Type>().values().as_ptr(), at);
}

#[test]
fn a_field_that_is_not_there_is_named() {
    let attributes = vec![("price".to_owned(), FieldType::Double)];
    let batch = record_batch(vec![Column::new(FieldType::Double)], &attributes).unwrap();
    let error = columns(batch.clone(), &vec![("prise".to_owned(), FieldType::Double)]).unwrap_err();
    assert_eq!(error.to_string(), "the batch has no field `prise`. Did you mean `price`?");
    let error = columns(batch, &vec![("price".to_owned(), FieldType::Bool)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "field `price`: a column of Arrow type Float64 cannot be converted to `bool`"
    );
}

use arrow_array::types::Int8Type;
use arrow_array::{
    BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, DictionaryArray,
    DurationMicrosecondArray, FixedSizeBinaryArray, Float32Array, Int8Array, Int32Array, LargeStringArray,
    ListArray, RunArray, StringViewArray, StructArray, Time32SecondArray, Time64MicrosecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
};
use arrow_schema::Fields;
use tidemill_types::{Value, row_value};

use super::*;
use crate::conversion::Conversion;

/// Converts a column to a field and returns each value, or the reason why it does not fit.
fn read_as(array: ArrayRef, field: Field) -> Result<Vec<String>, String> {
    let column = ArrowField::new("c", array.data_type().clone(), true);
    read_column(column, array, field)
}

fn read_column(column: ArrowField, array: ArrayRef, field: Field) -> Result<Vec<String>, String> {
    let schema = tidemill_types::StreamSchema {
        name: "S".into(),
        fields: vec![field],
        key: None,
        id: vec![],
        time: None,
    };
    let conversion = Conversion::new(&[Arc::new(column)], &Arc::new(schema)).map_err(|e| e.to_string())?;
    let rows = array.len();
    let converted =
        conversion.convert(&[array], rows, tidemill_types::Timestamp(0)).map_err(|e| e.to_string())?;
    let mut good = 0;
    let mut refused = converted.refused.into_iter().peekable();
    let mut out = Vec::new();
    for row in 0..rows {
        out.push(match refused.next_if(|(at, _)| *at == row) {
            Some((_, reason)) => reason,
            None => {
                good += 1;
                match row_value(&converted.batch, 0, good - 1) {
                    Value::Missing => "-".to_owned(),
                    Value::Str(text) => text.to_string(),
                    other => other.to_string(),
                }
            }
        });
    }
    Ok(out)
}

fn field(ty: FieldType) -> Field {
    Field::new("c", ty)
}

fn decimals(values: &[i128], precision: u8, scale: i8) -> ArrayRef {
    let array = Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap();
    Arc::new(array)
}

#[test]
fn values_that_fit_are_read() {
    use FieldType as F;
    let dictionary = DictionaryArray::<Int8Type>::from_iter([Some("x"), None, Some("x")]);
    let runs: RunArray<arrow_array::types::Int32Type> = ["u", "u", "v"].into_iter().collect();
    let huge: ArrayRef = Arc::new(StringArray::from(vec!["1234567890123456789012345678901234567890.1"]));
    let huge = cast(&huge, &T::Decimal256(60, 1)).unwrap();
    let cases: Vec<(ArrayRef, F, &[&str])> = vec![
        (
            Arc::new(Date32Array::from(vec![Some(18787), None, Some(-1)])),
            F::Time,
            &["2021-06-09T00:00:00Z", "-", "1969-12-31T00:00:00Z"],
        ),
        (Arc::new(Date32Array::from(vec![18787])), F::String, &["2021-06-09"]),
        (Arc::new(Date32Array::from(vec![18787])), F::Long, &["1623196800000"]),
        (Arc::new(Date32Array::from(vec![18787])), F::Object, &["\"2021-06-09\""]),
        (Arc::new(Date64Array::from(vec![1_623_196_800_000])), F::Time, &["2021-06-09T00:00:00Z"]),
        (Arc::new(Date64Array::from(vec![1_623_196_800_000])), F::String, &["2021-06-09"]),
        (decimals(&[-150, 0, 1], 18, 2), F::Double, &["-1.5", "0", "0.01"]),
        (decimals(&[-150, 0, 1], 12, 2), F::Double, &["-1.5", "0", "0.01"]),
        (decimals(&[-150, 7], 18, 2), F::String, &["-1.50", "0.07"]),
        (decimals(&[-150], 18, 2), F::Object, &["-1.50"]),
        (decimals(&[-300, 500], 18, 2), F::Long, &["-3", "5"]),
        (decimals(&[-300], 18, 2), F::Int, &["-3"]),
        (decimals(&[-150], 18, 2), F::Float, &["-1.5"]),
        (huge.clone(), F::String, &["1234567890123456789012345678901234567890.1"]),
        (huge, F::Double, &["1234567890123456800000000000000000000000"]),
        (Arc::new(UInt64Array::from(vec![5, i64::MAX as u64])), F::Long, &["5", "9223372036854775807"]),
        (Arc::new(UInt64Array::from(vec![5, u64::MAX])), F::Double, &["5", "18446744073709552000"]),
        (Arc::new(UInt64Array::from(vec![u64::MAX])), F::Object, &["18446744073709551615"]),
        (Arc::new(UInt64Array::from(vec![1000])), F::Time, &["1970-01-01T00:00:01Z"]),
        (Arc::new(Int64Array::from(vec![7])), F::Int, &["7"]),
        (Arc::new(Float64Array::from(vec![7.0, -2.0])), F::Long, &["7", "-2"]),
        (Arc::new(Float64Array::from(vec![0.5, f64::INFINITY])), F::Float, &["0.5", "inf"]),
        (Arc::new(Float32Array::from(vec![0.5])), F::Double, &["0.5"]),
        (Arc::new(Time32SecondArray::from(vec![37_020])), F::String, &["10:17:00"]),
        (Arc::new(Time32SecondArray::from(vec![37_020])), F::Int, &["37020000"]),
        (Arc::new(Time64MicrosecondArray::from(vec![37_020_000_001])), F::String, &["10:17:00.000001"]),
        (Arc::new(Time64MicrosecondArray::from(vec![37_020_000_000])), F::Long, &["37020000"]),
        (Arc::new(DurationMicrosecondArray::from(vec![1_500_000])), F::Long, &["1500"]),
        (Arc::new(DurationMicrosecondArray::from(vec![1_500_000])), F::String, &["PT1.5S"]),
        (Arc::new(TimestampSecondArray::from(vec![1_623_240_000])), F::String, &["2021-06-09T12:00:00Z"]),
        (
            Arc::new(TimestampNanosecondArray::from(vec![1_623_240_000_000_000_001])),
            F::String,
            &["2021-06-09T12:00:00.000000001Z"],
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![1_623_240_000]).with_timezone("+02:00")),
            F::Time,
            &["2021-06-09T12:00:00Z"],
        ),
        (Arc::new(LargeStringArray::from(vec!["a", "b"])), F::String, &["a", "b"]),
        (
            Arc::new(StringViewArray::from(vec!["2021-06-09T12:00:00Z", "2021-06-09"])),
            F::Time,
            &["2021-06-09T12:00:00Z", "2021-06-09T00:00:00Z"],
        ),
        (Arc::new(StringViewArray::from(vec!["a"])), F::Object, &["\"a\""]),
        (Arc::new(dictionary.clone()), F::String, &["x", "-", "x"]),
        (Arc::new(dictionary), F::Object, &["\"x\"", "-", "\"x\""]),
        (Arc::new(runs), F::String, &["u", "u", "v"]),
        (Arc::new(BinaryArray::from(vec!["é".as_bytes()])), F::String, &["é"]),
        (Arc::new(BinaryViewArray::from(vec![&b"x"[..]])), F::String, &["x"]),
        (Arc::new(BinaryArray::from(vec![&b"\xff\x00"[..]])), F::Object, &["\"ff00\""]),
        (Arc::new(FixedSizeBinaryArray::try_from_iter([b"ab"].into_iter()).unwrap()), F::String, &["ab"]),
        (Arc::new(BooleanArray::from(vec![true])), F::Bool, &["true"]),
    ];
    for (array, ty, expected) in cases {
        let shown = format!("{} as {ty}", array.data_type());
        assert_eq!(
            read_as(array, field(ty)).as_deref(),
            Ok(&expected.iter().map(|e| (*e).to_owned()).collect::<Vec<_>>()[..]),
            "{shown}"
        );
    }
}

#[test]
fn a_value_that_does_not_fit_refuses_its_row() {
    use FieldType as F;
    let cases: Vec<(ArrayRef, F, &[&str])> = vec![
        (
            Arc::new(UInt64Array::from(vec![1, 1 << 63, 2])),
            F::Long,
            &["1", "field `c`: expected long (a whole number of 64 bits), found 9223372036854775808", "2"],
        ),
        (
            Arc::new(Int64Array::from(vec![1 << 31])),
            F::Int,
            &["field `c`: expected int (a whole number of 32 bits), found 2147483648"],
        ),
        (
            decimals(&[-150, -100], 18, 2),
            F::Long,
            &["field `c`: expected long (a whole number of 64 bits), found -1.50", "-1"],
        ),
        (
            Arc::new(Float64Array::from(vec![0.5, f64::NAN, 1e300])),
            F::Long,
            &[
                "field `c`: expected long (a whole number of 64 bits), found 0.5",
                "field `c`: expected long (a whole number of 64 bits), found NaN",
                "field `c`: expected long (a whole number of 64 bits), found 1e300",
            ],
        ),
        (
            Arc::new(Float64Array::from(vec![1e300])),
            F::Float,
            &["field `c`: expected float (a number up to 3.4e38), found 1e300"],
        ),
        (
            Arc::new(DurationMicrosecondArray::from(vec![1, 2000])),
            F::Long,
            &["field `c`: expected long (a whole number of 64 bits), found PT0.000001S", "2"],
        ),
        (
            Arc::new(BinaryArray::from(vec![&b"\xff"[..], b"a"])),
            F::String,
            &["field `c`: expected string (text in quotes), found bytes that are no UTF-8: ff", "a"],
        ),
        (
            Arc::new(StringArray::from(vec!["soon"])),
            F::Time,
            &[
                "field `c`: expected time (RFC 3339 such as \"2013-01-01T10:17:00Z\", or milliseconds since 1970), found text \"soon\"",
            ],
        ),
        (
            Arc::new(Int64Array::from(vec![1_357_035_420_000_001])),
            F::Time,
            &[
                "field `c`: expected time (RFC 3339 such as \"2013-01-01T10:17:00Z\", or milliseconds since 1970), found 1357035420000001; if it counts microseconds, declare `c: time(us)`",
            ],
        ),
    ];
    for (array, ty, expected) in cases {
        let shown = format!("{} as {ty}", array.data_type());
        let expected: Vec<String> = expected.iter().map(|e| (*e).to_owned()).collect();
        assert_eq!(read_as(array, field(ty)), Ok(expected), "{shown}");
    }
}

#[test]
fn a_type_that_never_fits_refuses_the_column_and_says_what_does() {
    let int: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let decimal = decimals(&[1], 38, 2);
    let date: ArrayRef = Arc::new(Date32Array::from(vec![1]));
    let list: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>([Some([Some(1)])]));
    for (array, ty, expected) in [
        (
            int,
            FieldType::String,
            "field `c`: `string` cannot be read from Int32: declare it `int` or `object`, which takes every value",
        ),
        (
            decimal,
            FieldType::Time,
            "field `c`: `time` cannot be read from Decimal128(38, 2): declare it `object`, which takes every value",
        ),
        (
            date,
            FieldType::Double,
            "field `c`: `double` cannot be read from Date32: declare it `time` or `object`, which takes every value",
        ),
        (
            list,
            FieldType::Double,
            "field `c`: `double` cannot be read from List(Int32): declare it `object`, which takes every value",
        ),
    ] {
        assert_eq!(read_as(array, field(ty)).unwrap_err(), expected);
    }
}

#[test]
fn texts_are_the_json_text_of_objects() {
    let texts: ArrayRef =
        Arc::new(StringViewArray::from(vec!["{\"x\": 1}", "{x", "[1]", "{\"x\":1,\"x\":2}"]));
    let expected = ["{\"x\": 1}", "\"{x\"", "[1]", "field `c.x` occurs twice"];
    assert_eq!(read_as(texts, field(FieldType::Object)).unwrap(), expected);
}

#[test]
fn uuids_are_texts() {
    let bytes: [u8; 16] = *b"\x12\x3e\x45\x67\xe8\x9b\x12\xd3\xa4\x56\x42\x66\x14\x17\x40\x00";
    let array: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter([bytes].into_iter()).unwrap());
    let plain = ArrowField::new("c", array.data_type().clone(), true);
    let arrow = plain.clone().with_metadata([("ARROW:extension:name".to_owned(), UUID.to_owned())].into());
    let avro = plain.with_metadata([("logicalType".to_owned(), "uuid".to_owned())].into());
    let text = "123e4567-e89b-12d3-a456-426614174000";
    for column in [arrow, avro] {
        let read = |ty| read_column(column.clone(), array.clone(), field(ty)).unwrap();
        assert_eq!(read(FieldType::String), [text]);
        assert_eq!(read(FieldType::Object), [format!("\"{text}\"")]);
    }
}

#[test]
fn values_of_another_kind_are_kept_where_the_field_says_so() {
    let kept = Field { mismatch: tidemill_types::Mismatch::Keep, ..Field::new("n", FieldType::Int) };
    let schema = tidemill_types::StreamSchema {
        name: "S".into(),
        fields: vec![kept, Field::new("m", FieldType::Int)],
        key: None,
        id: vec![],
        time: None,
    };
    let column = |name: &str| Arc::new(ArrowField::new(name, T::Float64, true));
    let conversion = Conversion::new(&[column("n"), column("m")], &Arc::new(schema)).unwrap();
    let n: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 1.5, 2.5]));
    let m: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 2.5]));
    let converted = conversion.convert(&[n, m], 3, tidemill_types::Timestamp(0)).unwrap();
    assert_eq!(
        converted.refused,
        [(2, "field `m`: expected int (a whole number of 32 bits), found 2.5".to_owned())]
    );
    let row = |row| {
        (0..4)
            .map(|column| row_value(&converted.batch, column, row).to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(row(0), "1 1 1970-01-01T00:00:00Z missing");
    assert_eq!(row(1), r#"missing 2 1970-01-01T00:00:00Z "{\"n\":1.5}""#);
}

#[test]
fn a_key_that_occurs_twice_refuses_its_row() {
    let member = |n: i32| Arc::new(Int32Array::from(vec![n])) as ArrayRef;
    let fields = Fields::from(vec![
        ArrowField::new("a", T::Int32, true),
        ArrowField::new("b", T::Int32, true),
        ArrowField::new("a", T::Int32, true),
    ]);
    let object: ArrayRef = Arc::new(StructArray::new(fields, vec![member(1), member(2), member(3)], None));
    assert_eq!(read_as(object, field(FieldType::Object)).unwrap(), ["field `c.a` occurs twice"]);
    let plain: ArrayRef = Arc::new(Int8Array::from(vec![1]));
    assert_eq!(read_as(plain, field(FieldType::Object)).unwrap(), ["1"]);
}

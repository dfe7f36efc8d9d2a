use super::*;
use crate::{Field, Value, row_value};

fn builder() -> BatchBuilder {
    let field = |name: &str, ty| Field { name: name.into(), ty };
    BatchBuilder::new(Arc::new(StreamSchema {
        name: "S".into(),
        fields: vec![
            field("id", FieldType::String),
            field("n", FieldType::Int),
            field("x", FieldType::Double),
            field("at", FieldType::Time),
            field("any", FieldType::Object),
            field("f", FieldType::Float),
        ],
        key: Some(0),
        id: vec![],
        time: Some(3),
    }))
}

#[test]
fn bad_rows_leave_no_trace() {
    let mut b = builder();
    b.push_json(
        br#"{"id":"a","n":1,"x":2,"at":"2013-01-01T00:00:00Z","more":{"k":[1]},"any":[1,2]}"#,
        Timestamp(5),
    )
    .unwrap();
    for (row, message) in [
        (r#"{"id":7}"#, "field `id`: expected string (text in quotes), found 7"),
        (r#"{"n":3000000000}"#, "field `n`: expected int (a whole number of 32 bits), found 3000000000"),
        (r#"{"n":1.5}"#, "field `n`: expected int (a whole number of 32 bits), found 1.5"),
        (r#"[1]"#, "invalid type: sequence, expected a JSON object with the fields of S at byte 0"),
        (r#"{"id":"a""#, "not JSON: EOF while parsing an object at byte 9"),
        (r#"not json"#, "not JSON: expected ident at byte 2"),
        (r#"{"id":"a","id":"b"}"#, "field `id` is there twice"),
        (r#"{"id":null,"id":"b"}"#, "field `id` is there twice"),
        (r#"{"more":1,"id":"a","more":1}"#, "field `more` is there twice"),
        (r#"{"x":1e400}"#, "field `x`: expected double (a number up to 1.8e308), found 1e400"),
        (r#"{"x":-1e400}"#, "field `x`: expected double (a number up to 1.8e308), found -1e400"),
        (r#"{"f":1e39}"#, "field `f`: expected float (a number up to 3.4e38), found 1e39"),
        (r#"{} {}"#, "not JSON: trailing characters at byte 4"),
    ] {
        assert_eq!(b.push_json(row.as_bytes(), Timestamp(5)).unwrap_err().to_string(), message);
    }
    b.push_json(br#"{"n":null,"id":"b\u00e9"}"#, Timestamp(5)).unwrap();
    let batch = b.finish();
    assert_eq!(batch.num_rows(), 2);
    let show = |row: usize| -> Vec<String> {
        (0..batch.num_columns()).map(|c| row_value(&batch, c, row).to_string()).collect()
    };
    assert_eq!(
        show(0),
        [
            r#""a""#,
            "1",
            "2",
            "2013-01-01T00:00:00Z",
            r#""[1,2]""#,
            "missing",
            "2013-01-01T00:00:00Z",
            r#""{\"more\":{\"k\":[1]}}""#
        ]
    );
    assert_eq!(show(1)[0], r#""bé""#);
    assert!(matches!(row_value(&batch, 1, 1), Value::Missing));
    assert!(matches!(row_value(&batch, 6, 1), Value::Time(Timestamp(5))));
}

#[test]
fn text_cells() {
    let mut b = builder();
    let columns = [Ok(0), Ok(1), Err("note".to_owned())];
    b.push_text(columns.iter().zip(["a", "12", "late"]), Timestamp(1)).unwrap();
    let error = b.push_text(columns.iter().zip(["a", "12x", ""]), Timestamp(1)).unwrap_err();
    assert_eq!(error.to_string(), "field `n`: expected int (a whole number of 32 bits), found text \"12x\"");
    assert_eq!(b.finish().num_rows(), 1);
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let mut b = builder();
    b.push_json("\u{feff}{\"n\":1}".as_bytes(), Timestamp(5)).unwrap();
    assert_eq!(b.len(), 1);
}

#[test]
fn text_that_is_too_large_a_number_is_not_infinity() {
    let mut b = builder();
    let (x, f) = (Ok(2), Ok(5));
    for (cell, field) in [("1e400", &x), ("1e39", &f)] {
        assert!(b.push_text([(field, cell)], Timestamp(5)).is_err(), "{cell}");
    }
    for (cell, field) in [("1e39", &x), ("inf", &x), ("-inf", &f), ("1e38", &f)] {
        b.push_text([(field, cell)], Timestamp(5)).unwrap();
    }
}

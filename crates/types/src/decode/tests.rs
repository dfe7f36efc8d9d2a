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
        (r#"{"id":"a""#, "EOF while parsing an object at byte 9"),
        (r#"{} {}"#, "trailing characters at byte 4"),
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
            "2013-01-01T00:00:00Z",
            r#""{\"more\":{\"k\":[1]}}""#
        ]
    );
    assert_eq!(show(1)[0], r#""bé""#);
    assert!(matches!(row_value(&batch, 1, 1), Value::Missing));
    assert!(matches!(row_value(&batch, 5, 1), Value::Time(Timestamp(5))));
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

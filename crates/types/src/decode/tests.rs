use super::*;
use crate::{EpochUnit, Field, Value, row_value};

fn builder() -> BatchBuilder {
    let field = |name: &str, ty| Field::new(name, ty);
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
fn values_of_another_type_are_kept_where_the_field_says_so() {
    let mut schema = StreamSchema::clone(&builder().schema);
    for field in &mut schema.fields[1..3] {
        field.mismatch = Mismatch::Keep;
    }
    let mut b = BatchBuilder::new(Arc::new(schema));
    let mut extra = |row: &str| {
        b.push_json(row.as_bytes(), Timestamp(5)).map_err(|e| e.to_string())?;
        let batch = b.finish();
        assert!(row_value(&batch, 1, 0).is_absent(), "{row}");
        Ok::<_, String>(row_value(&batch, 7, 0).to_string())
    };
    assert_eq!(extra(r#"{"n":1.5,"x":[1],"more":2}"#).unwrap(), r#""{\"n\":1.5,\"x\":[1],\"more\":2}""#);
    assert_eq!(extra(r#"{"n":"5"}"#).unwrap(), r#""{\"n\":\"5\"}""#);
    assert_eq!(extra(r#"{"n":"x","n":5}"#).unwrap_err(), "field `n` occurs twice");
    assert_eq!(extra(r#"{"n":{"b":1,"b":2}}"#).unwrap_err(), "field `n.b` occurs twice");
    assert_eq!(
        extra(r#"{"n":5,"id":1}"#).unwrap_err(),
        "field `id`: expected string (text in quotes), found 1"
    );

    let cells = [(CellTarget::Field(0), "a"), (CellTarget::Field(1), "five"), (CellTarget::Field(2), "1.5")];
    b.push_text(cells.iter().map(|(target, cell)| (target, *cell)), Timestamp(5)).unwrap();
    let mut values = vec![FieldValue::Missing; 6];
    values[1] = FieldValue::Text("five".into());
    values[2] = FieldValue::Time(Timestamp(1_000_000));
    b.push_values(&values, Timestamp(5)).unwrap();
    let batch = b.finish();
    assert_eq!(row_value(&batch, 2, 0).to_string(), "1.5");
    assert_eq!(row_value(&batch, 7, 0).to_string(), r#""{\"n\":\"five\"}""#);
    assert_eq!(row_value(&batch, 7, 1).to_string(), r#""{\"n\":\"five\",\"x\":\"1970-01-01T00:00:01Z\"}""#);
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
        (r#"{"id":"a""#, "not valid JSON: EOF while parsing an object at byte 9"),
        (r#"not json"#, "not valid JSON: expected ident at byte 2"),
        (r#"{"id":"a","id":"b"}"#, "field `id` occurs twice"),
        (r#"{"id":null,"id":"b"}"#, "field `id` occurs twice"),
        (r#"{"more":1,"id":"a","more":1}"#, "field `more` occurs twice"),
        (
            r#"{"x":"12.5"}"#,
            "field `x`: expected double (a number up to 1.8e308), found \"12.5\", a number in quotes: write it without them",
        ),
        (r#"{"n":"x"}"#, "field `n`: expected int (a whole number of 32 bits), found \"x\""),
        (r#"{"any":{"b":1,"c":2,"b":3}}"#, "field `any.b` occurs twice"),
        (r#"{"any":[{},{"b":1,"b":3}]}"#, "field `any[1].b` occurs twice"),
        (r#"{"more":{"c":{"b":1,"\u0062":3}}}"#, "field `more.c.b` occurs twice"),
        (r#"{"x":1e400}"#, "field `x`: expected double (a number up to 1.8e308), found 1e400"),
        (r#"{"x":-1e400}"#, "field `x`: expected double (a number up to 1.8e308), found -1e400"),
        (r#"{"f":1e39}"#, "field `f`: expected float (a number up to 3.4e38), found 1e39"),
        (r#"{} {}"#, "not valid JSON: trailing characters at byte 4"),
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
    let columns =
        [CellTarget::Field(0), CellTarget::Field(1), CellTarget::Extra("note".into()), CellTarget::Ignored];
    b.push_text(columns.iter().zip(["a", "12", "late", "x"]), Timestamp(1)).unwrap();
    let error = b.push_text(columns.iter().zip(["a", "12x", "", ""]), Timestamp(1)).unwrap_err();
    assert_eq!(error.to_string(), "field `n`: expected int (a whole number of 32 bits), found text \"12x\"");
    let batch = b.finish();
    assert_eq!(batch.num_rows(), 1);
    let extra = row_value(&batch, batch.num_columns() - 1, 0);
    assert_eq!(extra.to_string(), r#""{\"note\":\"late\"}""#);
}

#[test]
fn truth_values_of_text_have_many_spellings() {
    for (texts, expected) in [
        (["true", "TRUE", "True", "t", "yes", "Y", "on", "1"], Some(true)),
        (["false", "FALSE", "False", "F", "no", "n", "OFF", "0"], Some(false)),
        (["", "2", "tru", "truee", "-1", "0.0", " true", "null"], None),
    ] {
        for text in texts {
            assert_eq!(bool_from_text(text), expected, "{text}");
        }
    }
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
    let (x, f) = (CellTarget::Field(2), CellTarget::Field(5));
    for (cell, field) in [("1e400", &x), ("1e39", &f)] {
        assert!(b.push_text([(field, cell)], Timestamp(5)).is_err(), "{cell}");
    }
    for (cell, field) in [("1e39", &x), ("inf", &x), ("-inf", &f), ("1e38", &f)] {
        b.push_text([(field, cell)], Timestamp(5)).unwrap();
    }
}

/// Returns a builder with one time field for each unit, and one without a unit.
fn times() -> BatchBuilder {
    let fields =
        EpochUnit::ALL.map(|unit| Field { unit: Some(unit), ..Field::new(unit.symbol(), FieldType::Time) });
    BatchBuilder::new(Arc::new(StreamSchema {
        name: "S".into(),
        fields: fields.into_iter().chain([Field::new("plain", FieldType::Time)]).collect(),
        key: None,
        id: vec![],
        time: None,
    }))
}

/// Parses `text` as field `index` from a cell, a JSON number and a JSON string, which must agree.
fn read_time(index: usize, text: &str) -> Result<i64, String> {
    let mut builder = times();
    let name = builder.schema.fields[index].name.clone();
    let micros = |builder: &mut BatchBuilder| match row_value(&builder.finish(), index, 0) {
        Value::Time(time) => time.0,
        other => panic!("{other}"),
    };
    let cell =
        builder.push_text([(&CellTarget::Field(index), text)], Timestamp(0)).map(|()| micros(&mut builder));
    let quoted = format!("{{\"{name}\":\"{text}\"}}");
    let quoted = builder.push_json(quoted.as_bytes(), Timestamp(0)).map(|()| micros(&mut builder));
    assert_eq!(cell.as_ref().ok(), quoted.as_ref().ok(), "{name} {text}");
    let date = text.len() == 8 && name == "plain";
    if serde_json::from_str::<serde_json::Number>(text).is_ok() && !date {
        let number = format!("{{\"{name}\":{text}}}");
        let number = builder.push_json(number.as_bytes(), Timestamp(0)).map(|()| micros(&mut builder));
        assert_eq!(cell.as_ref().ok(), number.as_ref().ok(), "{name} {text}");
    }
    cell.map_err(|e| e.to_string())
}

#[test]
fn times_count_in_the_declared_unit() {
    const S: usize = 0;
    const MS: usize = 1;
    const US: usize = 2;
    const NS: usize = 3;
    const PLAIN: usize = 4;
    for (field, text, micros) in [
        (S, "1357035420", 1_357_035_420_000_000),
        (S, "1357035420.25", 1_357_035_420_250_000),
        (S, "1.35703542e9", 1_357_035_420_000_000),
        (S, "-1", -1_000_000),
        (MS, "1357035420000", 1_357_035_420_000_000),
        (MS, "0.0019", 1),
        (US, "1357035420000001", 1_357_035_420_000_001),
        (US, "20130101", 20_130_101),
        (NS, "1357035420000001999", 1_357_035_420_000_001),
        (NS, "-1999", -1),
        (NS, "999.9", 0),
        (PLAIN, "1357035420000", 1_357_035_420_000_000),
        (PLAIN, "0", 0),
        (PLAIN, "20130101", 1_356_998_400_000_000),
        (PLAIN, "2013-01-01T10:17:00Z", 1_357_035_420_000_000),
        (NS, "2013-01-01T10:17:00.0000019Z", 1_357_035_420_000_001),
    ] {
        assert_eq!(read_time(field, text), Ok(micros), "{text}");
    }
    for (field, text, message) in [
        (
            PLAIN,
            "1357035420000001",
            "field `plain`: expected time (RFC 3339 such as \"2013-01-01T10:17:00Z\", or milliseconds since 1970), \
             found text \"1357035420000001\"; if it counts microseconds, declare `plain: time(us)`",
        ),
        (
            S,
            "1357035420000001999",
            "field `s`: expected time(s) (RFC 3339 such as \"2013-01-01T10:17:00Z\", or seconds since 1970), \
             found text \"1357035420000001999\"; if it counts nanoseconds, declare `s: time(ns)`",
        ),
        (
            NS,
            "soon",
            "field `ns`: expected time(ns) (RFC 3339 such as \"2013-01-01T10:17:00Z\", or nanoseconds since 1970), \
             found text \"soon\"",
        ),
    ] {
        assert_eq!(read_time(field, text), Err(message.to_owned()));
    }
    for text in ["", "-", ".5", "1_000", "1e", "0x10", "1e400", "--1", "1 ", "NaN", "253402300800000000000"] {
        let read: Vec<_> = EpochUnit::ALL.into_iter().filter_map(|unit| unit.parse(text)).collect();
        assert_eq!(read, [], "{text}");
    }
}

/// Random instants in nanoseconds since 1970, from a fixed seed: every unit parses the same instant as RFC
/// 3339 does, truncated to the precision of the unit.
#[test]
fn units_agree_with_rfc_3339() {
    let mut seed = 0x5eed_u64;
    for _ in 0..20_000 {
        // splitmix64
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let nanos = (mixed ^ (mixed >> 31)).cast_signed() >> (seed % 40);
        let text = jiff::Timestamp::from_nanosecond(nanos.into()).unwrap().to_string();
        let expected = Timestamp::parse(&text).unwrap();
        assert_eq!(EpochUnit::Nanos.parse(&nanos.to_string()), Some(expected), "{nanos}");
        for (unit, digits) in [(EpochUnit::Seconds, 9), (EpochUnit::Millis, 6), (EpochUnit::Micros, 3)] {
            let scale = 10_u64.pow(digits);
            let (whole, fraction) = (nanos.unsigned_abs() / scale, nanos.unsigned_abs() % scale);
            let sign = if nanos < 0 { "-" } else { "" };
            let decimal = format!("{sign}{whole}.{fraction:0width$}", width = digits as usize);
            assert_eq!(unit.parse(&decimal), Some(expected), "{decimal} {unit:?}");
        }
    }
}

#[test]
fn json_text_of_a_cell_is_kept_as_it_is() {
    let mut b = builder();
    let json = CellValue::Json(r#"{"b":1.50,"a":[]}"#);
    b.push_cells([("id", json), ("any", json), ("more", json)], Timestamp(5)).unwrap();
    let batch = b.finish();
    for column in [0, 4] {
        assert_eq!(row_value(&batch, column, 0).to_string(), r#""{\"b\":1.50,\"a\":[]}""#);
    }
    assert_eq!(row_value(&batch, 7, 0).to_string(), r#""{\"more\":{\"b\":1.50,\"a\":[]}}""#);
    b.set_keep_mismatches(true);
    b.push_cells([("n", json)], Timestamp(5)).unwrap();
    assert_eq!(row_value(&b.finish(), 7, 0).to_string(), r#""{\"n\":{\"b\":1.50,\"a\":[]}}""#);
}

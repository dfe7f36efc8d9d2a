use bson::{Bson, Decimal128, doc};

use super::*;
use crate::values::order::compare;

fn raw(value: impl Into<Bson>) -> OwnedRawValue {
    OwnedRawValue::from_bson(&value.into()).unwrap()
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

/// Returns values from the smallest to the largest; values of one row are equal.
fn ladder() -> Vec<Vec<Bson>> {
    let edge = 1_i64 << 53;
    vec![
        vec![Bson::MinKey],
        vec![Bson::Undefined],
        vec![Bson::Null],
        vec![Bson::Double(f64::NAN), decimal("NaN")],
        vec![Bson::Double(f64::NEG_INFINITY), decimal("-Infinity")],
        vec![decimal("-1E+6000")],
        vec![Bson::Double(f64::MIN)],
        vec![Bson::Int64(i64::MIN), Bson::Double(i64::MIN as f64), decimal("-9223372036854775808")],
        vec![Bson::Int64(i64::MIN + 1), decimal("-9223372036854775807")],
        vec![Bson::Int64(-edge - 1), decimal("-9007199254740993")],
        vec![Bson::Int64(-edge), Bson::Double(-edge as f64)],
        // the double nearest to -1.1 is below it
        vec![Bson::Double(-1.1)],
        vec![decimal("-1.1")],
        vec![Bson::Int32(-1), Bson::Int64(-1), Bson::Double(-1.0), decimal("-1.000")],
        vec![decimal("-1E-6000")],
        vec![Bson::Int32(0), Bson::Double(0.0), Bson::Double(-0.0), decimal("0E+5"), decimal("-0")],
        vec![decimal("1E-6000")],
        vec![Bson::Double(f64::MIN_POSITIVE)],
        vec![decimal("0.1")],
        vec![Bson::Double(0.1)],
        vec![decimal("0.1000000000000000055511151231257828")],
        vec![Bson::Double(0.5), decimal("0.5")],
        vec![Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0), decimal("1.00")],
        vec![decimal("1.1")],
        vec![Bson::Double(1.1)],
        vec![Bson::Int64(edge), Bson::Double(edge as f64)],
        vec![Bson::Int64(edge + 1), decimal("9007199254740993")],
        vec![decimal("9007199254740993.5")],
        vec![Bson::Int64(edge + 2), Bson::Double((edge + 2) as f64)],
        vec![Bson::Int64(i64::MAX), decimal("9223372036854775807")],
        vec![Bson::Double(9_223_372_036_854_775_808.0), decimal("9223372036854775808")],
        vec![Bson::Double(f64::MAX)],
        vec![decimal("1E+6000")],
        vec![Bson::Double(f64::INFINITY), decimal("Infinity")],
        vec!["".into()],
        vec!["\0".into()],
        vec!["\0\0".into()],
        vec!["\u{1}".into()],
        vec!["a".into(), Bson::Symbol("a".into())],
        vec!["a\0".into()],
        vec!["a\0b".into()],
        vec!["ab".into()],
        vec!["é".into()],
        vec![doc! {}.into()],
        vec![doc! { "b": 1 }.into(), doc! { "b": 1.0 }.into()],
        vec![doc! { "b": 1, "a": 0 }.into()],
        vec![doc! { "ba": 0 }.into()],
        vec![doc! { "a": "x" }.into()],
        vec![Bson::Array(vec![])],
        vec![Bson::Array(vec![1.into()])],
        vec![Bson::Array(vec![1.into(), 0.into()])],
        vec![Bson::Array(vec![2.into()])],
        vec![Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![9] })],
        vec![Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0, 0] })],
        vec![Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![0, 0] })],
        vec![Bson::ObjectId(bson::oid::ObjectId::from_bytes([1; 12]))],
        vec![false.into()],
        vec![true.into()],
        vec![Bson::DateTime(bson::DateTime::from_millis(-1))],
        vec![Bson::DateTime(bson::DateTime::from_millis(1))],
        vec![Bson::Timestamp(bson::Timestamp { time: 1, increment: 9 })],
        vec![Bson::Timestamp(bson::Timestamp { time: 0x9000_0000, increment: 0 })],
        vec![Bson::RegularExpression(bson::Regex {
            pattern: "a".try_into().unwrap(),
            options: "i".try_into().unwrap(),
        })],
        vec![Bson::JavaScriptCode("x".into())],
        vec![Bson::MaxKey],
    ]
}

#[test]
fn keys_and_comparison_follow_the_ladder() {
    let ladder = ladder();
    for (i, row) in ladder.iter().enumerate() {
        for (j, other) in ladder.iter().enumerate() {
            for (a, b) in row.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
                let (x, y) = (raw(a.clone()), raw(b.clone()));
                assert_eq!(compare(x.as_raw(), y.as_raw()), i.cmp(&j), "compare {a} with {b}");
                assert_eq!(
                    Key::of_raw(x.as_raw()).cmp(&Key::of_raw(y.as_raw())),
                    i.cmp(&j),
                    "keys of {a} and {b}"
                );
                let (mut p, mut q) = (KeyBuf::new(), KeyBuf::new());
                put_descending(&mut p, x.as_raw(), None);
                put_descending(&mut q, y.as_raw(), None);
                assert_eq!(p.cmp(&q), j.cmp(&i), "descending keys of {a} and {b}");
            }
        }
    }
}

#[test]
fn keys_of_views_are_keys_of_values() {
    for value in [
        Bson::Int32(7),
        Bson::Int64(1 << 60),
        Bson::Double(0.5),
        "text".into(),
        true.into(),
        Bson::Null,
        doc! { "a": 1 }.into(),
    ] {
        let doc = bson::RawDocumentBuf::try_from(&doc! { "v": value.clone() }).unwrap();
        let view = crate::get_path(&doc, "v");
        assert_eq!(Key::of(&view), Key::of_raw(raw(value).as_raw()), "{view}");
    }
}

#[test]
fn common_keys_lie_inline() {
    assert_eq!(std::mem::size_of::<Key>(), 32);
    for value in [
        Bson::Int64(i64::MAX - 1),
        "a text of 21 bytes...".into(),
        Bson::ObjectId(bson::oid::ObjectId::from_bytes([9; 12])),
    ] {
        let key = Key::of_raw(raw(value.clone()).as_raw());
        assert!(matches!(value, Bson::Int64(_)) || key.heap_bytes() == 0, "{value}");
    }
}

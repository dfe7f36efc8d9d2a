use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray};
use arrow::datatypes::Int64Type;
use datafusion::logical_expr::ColumnarValue;

use super::growth::Growth;

fn text(value: &str) -> ColumnarValue {
    ColumnarValue::Scalar(value.into())
}

fn number(value: i64) -> ColumnarValue {
    ColumnarValue::Scalar(value.into())
}

fn texts(values: &[Option<&str>]) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(StringArray::from(values.to_vec())))
}

fn bytes(function: &str, args: &[ColumnarValue], rows: usize) -> u128 {
    Growth::of(function).unwrap().bytes(args, rows, 1_000).unwrap()
}

#[test]
fn sizes_follow_from_the_arguments() {
    assert_eq!(bytes("repeat", &[text("xyz"), number(2_000_000_000)], 1), 14_000_000_000);
    assert_eq!(bytes("repeat", &[text("xyz"), number(-1)], 1), 0);
    let times: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    assert_eq!(bytes("repeat", &[text("xyz"), ColumnarValue::Array(times)], 3), 28);
    // a constant next to a column counts once per row
    assert_eq!(bytes("concat", &[text("xyz"), texts(&[Some("a"), None, Some("bcd")])], 3), 13);
    assert_eq!(bytes("generate_series", &[number(5), number(14), number(3)], 1), 32);
    assert_eq!(bytes("generate_series", &[number(i64::MIN), number(i64::MAX)], 1), (1 << 64) * 8);
    assert_eq!(bytes("lpad", &[text("x"), number(100)], 1), 401);
    assert_eq!(bytes("arrow_cast", &[number(1), text("FixedSizeBinary(2000000000)")], 1), 16_000_000_000);
    assert_eq!(bytes("arrow_cast", &[number(1), text("Timestamp(Nanosecond, None)")], 1), 0);
    assert_eq!(Growth::of("abs"), None);
}

#[test]
fn what_is_quickly_refused_is_counted() {
    // the cheap bound assumes a replacement per character, but there is one
    let long = format!("{}b", "a".repeat(500));
    assert_eq!(bytes("replace", &[text(&long), text("b"), text("ccc")], 1), 504);
    let ten = "c".repeat(10);
    assert_eq!(bytes("regexp_replace", &[text(&long), text("b"), text(&ten), text("g")], 1), 511);
    assert_eq!(bytes("regexp_replace", &[text(&long), text("a"), text(&ten), text("g")], 1), 5_501);
    // the replacement references the match twice
    assert_eq!(bytes("regexp_replace", &[text(&long), text("(a+)"), text("$1-$1"), text("g")], 1), 1_506);
}

#[test]
fn lists_have_the_size_of_their_own_elements() {
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1), Some(2), Some(3)]),
        Some(vec![]),
    ]);
    let lists = ColumnarValue::Array(Arc::new(lists));
    let times: ArrayRef = Arc::new(Int64Array::from(vec![0, 1_000]));
    // the long list is repeated 0 times, the empty one 1,000 times
    assert_eq!(bytes("array_repeat", &[lists.clone(), ColumnarValue::Array(times)], 2), 8_000);
    assert_eq!(bytes("array_to_string", &[lists, text("--")], 2), 32 + 3 * 34);
}

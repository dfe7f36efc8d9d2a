//! The same values by text and by the binary format.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use bytes::{Bytes, BytesMut};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use tidemill_database::Parameter;
use tidemill_types::Value;

use super::{ColumnEncoder, Style};
use crate::messages::input::Format;
use crate::values::parameters;
use crate::values::types::{ParameterType, PgType};

/// Returns the value of the first row in a format, without its length.
fn encoded(array: &ArrayRef, format: Format, zone: &TimeZone) -> Bytes {
    let style = Style { format, zone: zone.clone() };
    let encoder = ColumnEncoder::new(array, PgType::of(array.data_type()), style).unwrap();
    let mut out = BytesMut::new();
    encoder.encode(0, &mut out).unwrap();
    let out = out.freeze();
    assert_eq!(u32::from_be_bytes(*out.first_chunk().unwrap()) as usize, out.len() - 4);
    out.slice(4..)
}

/// Reads what was written as a client's value, and returns it as text.
fn back(array: &ArrayRef, format: Format, zone: &TimeZone) -> String {
    let bytes = encoded(array, format, zone);
    let ty = ParameterType::of_oid(PgType::of(array.data_type()).oid());
    let Parameter::Value(value) = parameters::decode(1, Some(&bytes), ty, format, zone).unwrap() else {
        panic!("no list was sent")
    };
    match value {
        // what the database reads a text as does not depend on zeros at its end
        Value::Str(text) if text.contains('.') => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        Value::Str(text) => text.into_owned(),
        Value::Float(number) => format!("{:x}", number.to_bits()),
        other => other.to_string(),
    }
}

fn check(array: ArrayRef) -> Result<(), TestCaseError> {
    for zone in ["UTC", "America/St_Johns"] {
        let zone = TimeZone::get(zone).unwrap();
        let (text, binary) = (back(&array, Format::Text, &zone), back(&array, Format::Binary, &zone));
        // the text of a time of the calendar has a space
        prop_assert_eq!(text.replace(' ', "T"), binary.replace(' ', "T"), "{:?}", array);
    }
    Ok(())
}

/// Microseconds of the years 1 to 9999, without the seconds in which some zones had offsets with seconds.
const MICROS: std::ops::Range<i64> = -62_135_596_800_000_000..253_402_300_800_000_000;

proptest! {
    #[test]
    fn values_are_the_same_by_text_and_by_the_binary_format(
        flag: bool, small: i16, int: i32, big: i64, single: f32, double: f64, text in "[^\0]*",
        micros in MICROS, of_day in 0_i64..86_400_000_000, scale in 0_i8..18,
    ) {
        check(Arc::new(BooleanArray::from(vec![flag])))?;
        check(Arc::new(Int16Array::from(vec![small])))?;
        check(Arc::new(Int32Array::from(vec![int])))?;
        check(Arc::new(Int64Array::from(vec![big])))?;
        check(Arc::new(Float64Array::from(vec![double])))?;
        // the text of a float of 32 bits is the shortest that leads back to it, and not its value in 64 bits
        let array: ArrayRef = Arc::new(Float32Array::from(vec![single]));
        let shown = encoded(&array, Format::Text, &TimeZone::UTC);
        let shown: f32 = std::str::from_utf8(&shown).unwrap().parse().unwrap();
        let binary = encoded(&array, Format::Binary, &TimeZone::UTC);
        let binary = f32::from_be_bytes(binary.as_ref().try_into().unwrap());
        prop_assert!(shown.to_bits() == binary.to_bits() || shown.is_nan() && binary.is_nan());
        check(Arc::new(StringArray::from(vec![text.trim_end_matches(['0', '.'])])))?;
        check(Arc::new(Time64MicrosecondArray::from(vec![of_day])))?;
        check(Arc::new(TimestampMicrosecondArray::from(vec![micros])))?;
        check(Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC")))?;
        let days = i32::try_from(micros.div_euclid(86_400_000_000)).unwrap();
        check(Arc::new(Date32Array::from(vec![days])))?;
        let decimal = Decimal128Array::from(vec![i128::from(big)]);
        check(Arc::new(decimal.with_precision_and_scale(38, scale).unwrap()))?;
    }
}

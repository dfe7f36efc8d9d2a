//! Values of OTLP/JSON: integers may be texts, ids are hexadecimal, bytes are Base64, and null means the default.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::common::{AnyValue, ArrayValue, KeyValueList, Value};

/// Reads a value that is the default if it is null.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(d).map(Option::unwrap_or_default)
}

/// Integer of a type: a number without fraction, or the text of one.
struct Integer<T>(T);

impl<'de, T> Deserialize<'de> for Integer<T>
where
    T: FromStr + TryFrom<i64> + TryFrom<u64>,
{
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct IntegerVisitor<T>(PhantomData<T>);
        impl<T: FromStr + TryFrom<i64> + TryFrom<u64>> Visitor<'_> for IntegerVisitor<T> {
            type Value = Integer<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let bits = 8 * size_of::<T>();
                write!(f, "a whole number of {bits} bits in range, or the text of one")
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Self::Value, E> {
                T::try_from(n).map(Integer).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Self::Value, E> {
                T::try_from(n).map(Integer).map_err(|_| E::invalid_value(Unexpected::Unsigned(n), &self))
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<Self::Value, E> {
                // within the range in which whole numbers are floats, as 1e3 is one
                let whole = (x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0).then_some(x as i64);
                let value = whole.and_then(|n| T::try_from(n).ok());
                value.map(Integer).ok_or_else(|| E::invalid_value(Unexpected::Float(x), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(Integer).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        d.deserialize_any(IntegerVisitor(PhantomData))
    }
}

/// Reads an integer.
pub(super) fn integer<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr + TryFrom<i64> + TryFrom<u64> + Default,
{
    Option::<Integer<T>>::deserialize(d).map(|n| n.map_or_else(T::default, |n| n.0))
}

/// Reads an integer that may be missing.
pub(super) fn optional_integer<'de, D, T>(d: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr + TryFrom<i64> + TryFrom<u64>,
{
    Option::<Integer<T>>::deserialize(d).map(|n| n.map(|n| n.0))
}

/// Reads an array of integers.
pub(super) fn integers<'de, D, T>(d: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr + TryFrom<i64> + TryFrom<u64>,
{
    let all: Option<Vec<Integer<T>>> = Option::deserialize(d)?;
    Ok(all.unwrap_or_default().into_iter().map(|n| n.0).collect())
}

/// Float: a number, the text of one, `NaN`, `Infinity` or `-Infinity`.
struct Float(f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct FloatVisitor;
        impl Visitor<'_> for FloatVisitor {
            type Value = Float;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, the text of one, `NaN`, `Infinity` or `-Infinity`")
            }

            fn visit_f64<E: Error>(self, x: f64) -> Result<Float, E> {
                Ok(Float(x))
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Float, E> {
                Ok(Float(n as f64))
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Float, E> {
                Ok(Float(n as f64))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Float, E> {
                let x = match text {
                    "NaN" => Some(f64::NAN),
                    "Infinity" => Some(f64::INFINITY),
                    "-Infinity" => Some(f64::NEG_INFINITY),
                    text => text.parse::<f64>().ok().filter(|x| x.is_finite()),
                };
                x.map(Float).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        d.deserialize_any(FloatVisitor)
    }
}

/// Reads a float.
pub(super) fn float<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Option::<Float>::deserialize(d).map(|x| x.map_or(0.0, |x| x.0))
}

/// Reads a float that may be missing.
pub(super) fn optional_float<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    Option::<Float>::deserialize(d).map(|x| x.map(|x| x.0))
}

/// Reads an array of floats.
pub(super) fn floats<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<f64>, D::Error> {
    let all: Option<Vec<Float>> = Option::deserialize(d)?;
    Ok(all.unwrap_or_default().into_iter().map(|x| x.0).collect())
}

/// Reads an id in hexadecimal digits.
pub(super) fn id<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(d)?.unwrap_or_default();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => digit(*high).zip(digit(*low)).map(|(high, low)| (high * 16 + low) as u8),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().ok_or_else(|| {
        let shown: String = text.chars().take(60).collect();
        D::Error::invalid_value(Unexpected::Str(&shown), &"an id in pairs of hexadecimal digits")
    })
}

/// Bytes in Base64, of the usual alphabet or that for addresses, with or without padding.
struct Base64(Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let text = String::deserialize(d)?.replace('-', "+").replace('_', "/");
        let bytes = GeneralPurpose::new(&STANDARD, config).decode(text);
        bytes.map(Base64).map_err(|e| D::Error::custom(format!("not Base64: {e}")))
    }
}

/// Value of an attribute as JSON has it: one of these.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AnyValueJson {
    string_value: Option<String>,
    bool_value: Option<bool>,
    int_value: Option<Integer<i64>>,
    double_value: Option<Float>,
    array_value: Option<ArrayValue>,
    kvlist_value: Option<KeyValueList>,
    bytes_value: Option<Base64>,
}

impl TryFrom<AnyValueJson> for AnyValue {
    type Error = &'static str;

    fn try_from(json: AnyValueJson) -> Result<Self, Self::Error> {
        let all = [
            json.string_value.map(Value::Text),
            json.bool_value.map(Value::Bool),
            json.int_value.map(|n| Value::Int(n.0)),
            json.double_value.map(|x| Value::Double(x.0)),
            json.array_value.map(Value::ArrayValue),
            json.kvlist_value.map(Value::Keys),
            json.bytes_value.map(|bytes| Value::Bytes(bytes.0)),
        ];
        let mut found = all.into_iter().flatten();
        match (found.next(), found.next()) {
            (value, None) => Ok(Self { value }),
            _ => Err("an attribute has values of two types"),
        }
    }
}

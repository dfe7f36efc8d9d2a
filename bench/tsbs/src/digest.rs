//! Results in one form for all systems: a line for each row, sorted, and the digest of the lines.

use anyhow::{Result, bail};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, TimeUnit, TimestampMicrosecondType};
use sha2::{Digest, Sha256};
use tidemill::{QueryRows, Timestamp};

/// Significant digits of a number: systems add up in different orders.
const DIGITS: usize = 9;
/// Hexadecimal digits of a digest.
const DIGEST_DIGITS: usize = 16;

/// Returns the rows as lines of values separated by commas, sorted. Null and NaN are empty; a number has nine significant
/// digits; a time is in UTC without fractions of a second.
pub fn lines(rows: &QueryRows, key: Option<usize>) -> Result<Vec<String>> {
    let mut lines = Vec::with_capacity(rows.num_rows());
    for batch in &rows.batches {
        let wanted = batch.columns().iter().enumerate().filter(|(i, _)| key.is_none_or(|key| key == *i));
        let columns = wanted.map(|(_, column)| Column::of(column)).collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|column| column.text(row)).collect();
            lines.push(values.join(","));
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

/// Returns the digest of lines.
pub fn digest(lines: &[String]) -> String {
    let hash = Sha256::digest(format!("{}\n", lines.join("\n")).as_bytes());
    let mut digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(DIGEST_DIGITS);
    digits
}

/// A column in one of the few forms that results have.
enum Column {
    Text(ArrayRef),
    Number(ArrayRef),
    Bool(ArrayRef),
    Time(ArrayRef),
}

impl Column {
    fn of(array: &ArrayRef) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Self::Text(cast(array, &DataType::Utf8)?)
            }
            DataType::Dictionary(..) => return Self::of(&cast(array, &DataType::Utf8)?),
            DataType::Boolean => Self::Bool(array.clone()),
            DataType::Timestamp(..) | DataType::Date32 => {
                Self::Time(cast(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?)
            }
            ty if ty.is_numeric() => Self::Number(cast(array, &DataType::Float64)?),
            DataType::Null => Self::Text(cast(array, &DataType::Utf8)?),
            other => bail!("expected text, a number, a boolean or a time in the result, found {other}"),
        })
    }

    fn text(&self, row: usize) -> String {
        match self {
            Self::Text(array) | Self::Number(array) | Self::Bool(array) | Self::Time(array)
                if array.is_null(row) =>
            {
                String::new()
            }
            Self::Text(array) => array.as_string::<i32>().value(row).to_owned(),
            Self::Number(array) => number_text(array.as_primitive::<Float64Type>().value(row)),
            Self::Bool(array) => array.as_boolean().value(row).to_string(),
            Self::Time(array) => time_text(array.as_primitive::<TimestampMicrosecondType>().value(row)),
        }
    }
}

fn time_text(micros: i64) -> String {
    let text = Timestamp(micros).to_string();
    text.get(..19).map_or(text.clone(), str::to_owned)
}

/// Writes a number with nine significant digits, as C's `%.9g` does.
fn number_text(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if value.is_nan() {
        return String::new();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:.*e}", DIGITS - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..DIGITS as i32).contains(&exponent) {
        let decimals = (DIGITS as i32 - 1 - exponent).max(0) as usize;
        return without_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_nine_significant_digits() {
        let cases = [
            (0.1 + 0.2, "0.3"),
            (24.0, "24"),
            (1.24136568, "1.24136568"),
            (1e9, "1e+09"),
            (123_456_789.0, "123456789"),
            (1_234_567_891.0, "1.23456789e+09"),
            (0.000_012_345_678_91, "1.23456789e-05"),
            (-0.0, "0"),
            (-68.69, "-68.69"),
            (0.000_1, "0.0001"),
        ];
        for (value, expected) in cases {
            assert_eq!(number_text(value), expected);
        }
        assert_eq!(time_text(1_451_606_400_000_000), "2016-01-01T00:00:00");
    }

    #[test]
    fn an_empty_result_has_a_digest() {
        assert_eq!(digest(&[]), "01ba4719c80b6fe9");
    }
}

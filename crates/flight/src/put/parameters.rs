//! Values of parameters: columns of Arrow as values of the database.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTimestampType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use tidemill_types::{Error, Result, Timestamp, Value};

use crate::prepared::ParameterRows;

/// Maximum rows of values that are bound at once.
const ROWS_MAX: usize = 65_536;

/// Returns the rows of values of batches, whose columns are the parameters in order.
///
/// Errors: `Invalid` for another number of columns, and for a value that no parameter has; `LimitReached` for too many rows.
pub(super) fn rows(batches: &[RecordBatch], parameters: usize) -> Result<ParameterRows> {
    let mut rows = vec![];
    for batch in batches {
        if batch.num_columns() != parameters {
            return Err(Error::invalid(format!(
                "the statement has {parameters} parameters: expected as many columns of values, found {}",
                batch.num_columns()
            )));
        }
        if rows.len() + batch.num_rows() > ROWS_MAX {
            return Err(Error::limit(format!(
                "more than {ROWS_MAX} rows of values were sent: bind fewer at once"
            )));
        }
        for row in 0..batch.num_rows() {
            let values = (1..).zip(batch.columns()).map(|(number, column)| {
                value(column, row)
                    .map_err(|e| e.context(format!("row {}, parameter ${number}", rows.len() + 1)))
            });
            let values = values.collect::<Result<Vec<_>>>()?;
            rows.push(values);
        }
    }
    match rows.is_empty() {
        true => Err(Error::invalid("no row of values was sent: send one for each run of the statement")),
        false => Ok(rows),
    }
}

fn value(column: &ArrayRef, row: usize) -> Result<Value<'static>> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match column.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
        DataType::Int8 => int::<Int8Type>(column, row),
        DataType::Int16 => int::<Int16Type>(column, row),
        DataType::Int32 => int::<Int32Type>(column, row),
        DataType::Int64 => int::<Int64Type>(column, row),
        DataType::UInt8 => int::<UInt8Type>(column, row),
        DataType::UInt16 => int::<UInt16Type>(column, row),
        DataType::UInt32 => int::<UInt32Type>(column, row),
        DataType::UInt64 => {
            let number = column.as_primitive::<UInt64Type>().value(row);
            let number = i64::try_from(number);
            Value::Int(
                number.map_err(|_| Error::invalid("the number is 2^63 or more: send it as a decimal"))?,
            )
        }
        DataType::Float16 => Value::Float(column.as_primitive::<Float16Type>().value(row).into()),
        DataType::Float32 => Value::Float(column.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Value::Float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => text(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text(column.as_string::<i64>().value(row)),
        DataType::Utf8View => text(column.as_string_view().value(row)),
        DataType::Binary => bytes(column.as_binary::<i32>().value(row))?,
        DataType::LargeBinary => bytes(column.as_binary::<i64>().value(row))?,
        DataType::BinaryView => bytes(column.as_binary_view().value(row))?,
        DataType::FixedSizeBinary(_) => bytes(column.as_fixed_size_binary().value(row))?,
        DataType::Timestamp(TimeUnit::Second, _) => time::<TimestampSecondType>(column, row, 1_000_000)?,
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            time::<TimestampMillisecondType>(column, row, 1_000)?
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => time::<TimestampMicrosecondType>(column, row, 1)?,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanos = column.as_primitive::<TimestampNanosecondType>().value(row);
            match nanos % 1_000 {
                0 => Value::Time(Timestamp(nanos / 1_000)),
                _ => {
                    return Err(Error::invalid(format!(
                        "the time has {nanos} nanoseconds since 1970, and times have microseconds: cut it, as nothing else is equal to it"
                    )));
                }
            }
        }
        // the place of the parameter reads these from their texts
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => match array_value_to_string(column, row) {
            Ok(shown) => Value::Str(shown.into()),
            Err(e) => return Err(Error::invalid(format!("the value is out of the range of its type: {e}"))),
        },
        DataType::Interval(IntervalUnit::YearMonth) => {
            interval(column.as_primitive::<IntervalYearMonthType>().value(row), 0, 0)
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = column.as_primitive::<IntervalDayTimeType>().value(row);
            interval(0, value.days, i128::from(value.milliseconds) * 1_000_000)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = column.as_primitive::<IntervalMonthDayNanoType>().value(row);
            interval(value.months, value.days, value.nanoseconds.into())
        }
        DataType::Duration(unit) => {
            let (number, nanos) = match unit {
                TimeUnit::Second => (column.as_primitive::<DurationSecondType>().value(row), 1_000_000_000),
                TimeUnit::Millisecond => {
                    (column.as_primitive::<DurationMillisecondType>().value(row), 1_000_000)
                }
                TimeUnit::Microsecond => (column.as_primitive::<DurationMicrosecondType>().value(row), 1_000),
                TimeUnit::Nanosecond => (column.as_primitive::<DurationNanosecondType>().value(row), 1),
            };
            interval(0, 0, i128::from(number) * nanos)
        }
        // ADBC and JDBC send plain columns; a list or an object would need a value of its own kind
        other => {
            return Err(Error::invalid(format!(
                "a value of type {other} is not supported: expected a number, a text, a time, a date, an interval, true, false or null"
            )));
        }
    })
}

fn int<T: ArrowPrimitiveType<Native: Into<i64>>>(column: &ArrayRef, row: usize) -> Value<'static> {
    Value::Int(column.as_primitive::<T>().value(row).into())
}

fn text(text: &str) -> Value<'static> {
    Value::Str(text.to_owned().into())
}

fn bytes(bytes: &[u8]) -> Result<Value<'static>> {
    let text = std::str::from_utf8(bytes);
    text.map(self::text)
        .map_err(|_| Error::invalid("the bytes are not UTF-8, and the database has no other values of bytes"))
}

fn time<T: ArrowTimestampType>(column: &ArrayRef, row: usize, micros: i64) -> Result<Value<'static>> {
    let number = column.as_primitive::<T>().value(row);
    let time = number
        .checked_mul(micros)
        .ok_or_else(|| Error::invalid("the time is out of the range of microseconds"));
    time.map(|time| Value::Time(Timestamp(time)))
}

fn interval(months: i32, days: i32, nanos: i128) -> Value<'static> {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) = (nanos.abs() / 1_000_000_000, nanos.abs() % 1_000_000_000);
    Value::Str(format!("{months} months {days} days {sign}{seconds}.{rest:09} seconds").into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::IntervalMonthDayNano;
    use arrow_array::{
        BinaryArray, BooleanArray, Date32Array, Decimal128Array, DurationMillisecondArray, Float32Array,
        Int16Array, IntervalMonthDayNanoArray, LargeStringArray, ListArray, NullArray, StringViewArray,
        Time64MicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
        UInt64Array,
    };

    use super::*;

    fn one(column: impl Array + 'static) -> Result<Value<'static>> {
        value(&(Arc::new(column) as ArrayRef), 0)
    }

    #[test]
    fn values_of_all_types_are_read_exactly() {
        let decimal = Decimal128Array::from(vec![-12_345_i128]).with_precision_and_scale(10, 2).unwrap();
        let long = IntervalMonthDayNano { months: -14, days: 3, nanoseconds: 3_723_000_000_001 };
        for (found, expected) in [
            (one(BooleanArray::from(vec![true])), "true"),
            (one(Int16Array::from(vec![-7])), "-7"),
            (one(UInt64Array::from(vec![7])), "7"),
            (one(Float32Array::from(vec![1.5])), "1.5"),
            (one(LargeStringArray::from(vec!["é"])), "\"é\""),
            (one(StringViewArray::from(vec!["x"])), "\"x\""),
            (one(BinaryArray::from(vec![&b"ab"[..]])), "\"ab\""),
            (one(decimal), "\"-123.45\""),
            (one(Date32Array::from(vec![19_782])), "\"2024-02-29\""),
            (one(Time64MicrosecondArray::from(vec![3_723_000_001])), "\"01:02:03.000001\""),
            (one(TimestampSecondArray::from(vec![1])), "1970-01-01T00:00:01Z"),
            (one(TimestampMillisecondArray::from(vec![-1]).with_timezone("UTC")), "1969-12-31T23:59:59.999Z"),
            (one(TimestampNanosecondArray::from(vec![1_000])), "1970-01-01T00:00:00.000001Z"),
            (
                one(IntervalMonthDayNanoArray::from(vec![long])),
                "\"-14 months 3 days 3723.000000001 seconds\"",
            ),
            (one(DurationMillisecondArray::from(vec![-1_500])), "\"0 months 0 days -1.500000000 seconds\""),
            (one(Int16Array::from(vec![None])), "null"),
            (one(NullArray::new(1)), "null"),
        ] {
            assert_eq!(found.unwrap().to_string(), expected);
        }
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
        for (refused, part) in [
            (one(UInt64Array::from(vec![u64::MAX])), "2^63"),
            (one(BinaryArray::from(vec![&b"\xff"[..]])), "UTF-8"),
            (one(TimestampNanosecondArray::from(vec![1_001])), "microseconds"),
            (one(TimestampSecondArray::from(vec![i64::MAX])), "range"),
            (one(list), "not supported"),
        ] {
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn each_row_is_a_run_with_as_many_values_as_parameters() {
        let batch = |numbers: Vec<i16>| {
            RecordBatch::try_from_iter([("a", Arc::new(Int16Array::from(numbers)) as ArrayRef)]).unwrap()
        };
        assert_eq!(rows(&[batch(vec![1, 2]), batch(vec![3])], 1).unwrap().len(), 3);
        assert!(rows(&[batch(vec![1])], 2).unwrap_err().to_string().contains("has 2 parameters"));
        assert!(rows(&[batch(vec![])], 1).unwrap_err().to_string().contains("no row"));
        assert!(
            rows(&[batch(vec![0; 40_000]), batch(vec![0; 40_000])], 1)
                .unwrap_err()
                .to_string()
                .contains("65536")
        );
    }
}

//! Values of a column in the one form that its type has here.

use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, DecimalType, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array,
    Decimal256Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, LargeBinaryArray, LargeStringArray, ListArray, StringArray, StringViewArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use bytes::{BufMut, BytesMut};
use jiff::tz::TimeZone;

use super::{floats, json, text, with_length};
use crate::error::{PgError, Result, code};
use crate::values::catalog_type::CatalogType;
use crate::values::numeric;
use crate::values::times::{EPOCH_DAYS, EPOCH_MICROS};
use crate::values::types::Scalar;

/// Values that are not lists.
pub(super) enum Values {
    Bool(BooleanArray),
    Int2(Int16Array),
    Int4(Int32Array),
    Int8(Int64Array),
    /// Numbers of objects.
    Oid(Int64Array),
    Float4(Float32Array),
    Float8(Float64Array),
    Decimal(Decimal128Array),
    WideDecimal(Decimal256Array),
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
    BytesView(BinaryViewArray),
    Date(Date32Array),
    Time(Time64MicrosecondArray),
    Timestamp(TimestampMicrosecondArray),
    TimestampTz(TimestampMicrosecondArray),
    Interval(IntervalMonthDayNanoArray),
}

/// Lists of values.
pub(super) struct ListValues {
    lists: ListArray,
    /// The values of all lists, one after the other.
    items: Values,
    /// Oid of the items.
    item: u32,
    /// True for items that are counted from 0.
    is_vector: bool,
}

/// Converts a column to another type of Arrow.
///
/// Errors: a value does not fit, which would be a null otherwise.
fn cast(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if column.data_type() == to {
        return Ok(column.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, to, &options).map_err(|e| {
        PgError::new(code::OUT_OF_RANGE, format!("a value of type {} does not fit: {e}", column.data_type()))
    })
}

impl Values {
    /// Converts the values of a column that `Scalar::of` knows as `scalar`.
    pub fn new(column: &ArrayRef, scalar: Scalar) -> Result<Self> {
        let to = |ty: DataType| cast(column, &ty);
        let plain = match column.data_type() {
            DataType::Dictionary(_, values) => cast(column, values)?,
            DataType::RunEndEncoded(_, values) => cast(column, values.data_type())?,
            _ => column.clone(),
        };
        let microseconds = |zone| DataType::Timestamp(TimeUnit::Microsecond, zone);
        Ok(match scalar {
            Scalar::Bool => Self::Bool(to(DataType::Boolean)?.as_boolean().clone()),
            Scalar::Int2 => Self::Int2(to(DataType::Int16)?.as_primitive::<Int16Type>().clone()),
            Scalar::Int4 => Self::Int4(to(DataType::Int32)?.as_primitive::<Int32Type>().clone()),
            Scalar::Int8 => Self::Int8(to(DataType::Int64)?.as_primitive::<Int64Type>().clone()),
            Scalar::Float4 => Self::Float4(to(DataType::Float32)?.as_primitive::<Float32Type>().clone()),
            Scalar::Float8 => Self::Float8(to(DataType::Float64)?.as_primitive::<Float64Type>().clone()),
            Scalar::Numeric => match plain.data_type() {
                DataType::Decimal256(..) => Self::WideDecimal(plain.as_primitive::<Decimal256Type>().clone()),
                DataType::Decimal32(precision, scale)
                | DataType::Decimal64(precision, scale)
                | DataType::Decimal128(precision, scale) => {
                    let decimal = cast(&plain, &DataType::Decimal128(*precision, *scale))?;
                    Self::Decimal(decimal.as_primitive::<Decimal128Type>().clone())
                }
                _ => {
                    let decimal = cast(&plain, &DataType::Decimal128(20, 0))?;
                    Self::Decimal(decimal.as_primitive::<Decimal128Type>().clone())
                }
            },
            Scalar::Text => match plain.data_type() {
                DataType::LargeUtf8 => Self::LargeText(plain.as_string::<i64>().clone()),
                DataType::Utf8View => Self::TextView(plain.as_string_view().clone()),
                _ => Self::Text(cast(&plain, &DataType::Utf8)?.as_string::<i32>().clone()),
            },
            Scalar::Bytes => match plain.data_type() {
                DataType::LargeBinary => Self::LargeBytes(plain.as_binary::<i64>().clone()),
                DataType::BinaryView => Self::BytesView(plain.as_binary_view().clone()),
                _ => Self::Bytes(cast(&plain, &DataType::Binary)?.as_binary::<i32>().clone()),
            },
            Scalar::Json => Self::Text(json::texts(column)?),
            Scalar::Date => Self::Date(to(DataType::Date32)?.as_primitive::<Date32Type>().clone()),
            Scalar::Time => {
                let times = to(DataType::Time64(TimeUnit::Microsecond))?;
                Self::Time(times.as_primitive::<Time64MicrosecondType>().clone())
            }
            Scalar::Timestamp => {
                let times = to(microseconds(None))?;
                Self::Timestamp(times.as_primitive::<TimestampMicrosecondType>().clone())
            }
            Scalar::TimestampTz => {
                // the instant is the same in all zones
                let zone = match plain.data_type() {
                    DataType::Timestamp(_, zone) => zone.clone(),
                    _ => None,
                };
                let times = cast(&plain, &microseconds(zone))?;
                Self::TimestampTz(times.as_primitive::<TimestampMicrosecondType>().clone())
            }
            Scalar::Interval => {
                let intervals = to(DataType::Interval(IntervalUnit::MonthDayNano))?;
                Self::Interval(intervals.as_primitive::<IntervalMonthDayNanoType>().clone())
            }
        })
    }

    /// Gives values the type of a column of a catalog.
    pub fn name(&mut self, ty: CatalogType) {
        if let (Self::Int8(numbers), true) = (&*self, ty.has_oids()) {
            *self = Self::Oid(numbers.clone());
        }
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Bool(array) => array,
            Self::Int2(array) => array,
            Self::Int4(array) => array,
            Self::Int8(array) | Self::Oid(array) => array,
            Self::Float4(array) => array,
            Self::Float8(array) => array,
            Self::Decimal(array) => array,
            Self::WideDecimal(array) => array,
            Self::Text(array) => array,
            Self::LargeText(array) => array,
            Self::TextView(array) => array,
            Self::Bytes(array) => array,
            Self::LargeBytes(array) => array,
            Self::BytesView(array) => array,
            Self::Date(array) => array,
            Self::Time(array) => array,
            Self::Timestamp(array) | Self::TimestampTz(array) => array,
            Self::Interval(array) => array,
        }
    }

    pub fn is_null(&self, row: usize) -> bool {
        self.array().is_null(row)
    }

    /// Appends a value as text.
    pub fn put_text(&self, row: usize, zone: &TimeZone, out: &mut BytesMut) -> Result<()> {
        match self {
            Self::Text(texts) => put_characters(texts.value(row), out),
            Self::LargeText(texts) => put_characters(texts.value(row), out),
            Self::TextView(texts) => put_characters(texts.value(row), out),
            other => {
                // few bytes, and a vector on the stack would not be faster than the allocator
                let mut text = Vec::with_capacity(32);
                other.put_formatted(row, zone, &mut text);
                out.extend_from_slice(&text);
                Ok(())
            }
        }
    }

    fn put_formatted(&self, row: usize, zone: &TimeZone, out: &mut Vec<u8>) {
        // a vector takes all that is written
        let _ = match self {
            Self::Bool(array) => return out.push(if array.value(row) { b't' } else { b'f' }),
            Self::Int2(array) => write!(out, "{}", array.value(row)),
            Self::Int4(array) => write!(out, "{}", array.value(row)),
            Self::Int8(array) | Self::Oid(array) => write!(out, "{}", array.value(row)),
            Self::Float4(array) => return floats::put_single(array.value(row), out),
            Self::Float8(array) => return floats::put_double(array.value(row), out),
            Self::Decimal(array) => write!(out, "{}", decimal(array, row)),
            Self::WideDecimal(array) => write!(out, "{}", wide_decimal(array, row)),
            Self::Text(array) => write!(out, "{}", array.value(row)),
            Self::LargeText(array) => write!(out, "{}", array.value(row)),
            Self::TextView(array) => write!(out, "{}", array.value(row)),
            Self::Bytes(array) => return text::put_hexadecimal(array.value(row), out),
            Self::LargeBytes(array) => return text::put_hexadecimal(array.value(row), out),
            Self::BytesView(array) => return text::put_hexadecimal(array.value(row), out),
            Self::Date(array) => return text::put_date(array.value(row).into(), out),
            Self::Time(array) => return text::put_time(array.value(row), out),
            Self::Timestamp(array) => return text::put_timestamp(array.value(row), None, out),
            Self::TimestampTz(array) => return text::put_timestamp(array.value(row), Some(zone), out),
            Self::Interval(array) => return text::put_interval(array.value(row), out),
        };
    }

    /// Appends a value in the binary format.
    ///
    /// Errors: a time before the first that the protocol has.
    pub fn put_binary(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        match self {
            Self::Bool(array) => out.put_u8(array.value(row).into()),
            Self::Int2(array) => out.put_i16(array.value(row)),
            Self::Int4(array) => out.put_i32(array.value(row)),
            Self::Int8(array) => out.put_i64(array.value(row)),
            Self::Oid(array) => {
                let oid = u32::try_from(array.value(row));
                out.put_u32(oid.map_err(|_| {
                    PgError::new(code::OUT_OF_RANGE, "a number of an object is out of range")
                })?);
            }
            Self::Float4(array) => out.put_f32(array.value(row)),
            Self::Float8(array) => out.put_f64(array.value(row)),
            Self::Decimal(array) => numeric::encode(&decimal(array, row), out),
            Self::WideDecimal(array) => numeric::encode(&wide_decimal(array, row), out),
            Self::Text(array) => return put_characters(array.value(row), out),
            Self::LargeText(array) => return put_characters(array.value(row), out),
            Self::TextView(array) => return put_characters(array.value(row), out),
            Self::Bytes(array) => out.put_slice(array.value(row)),
            Self::LargeBytes(array) => out.put_slice(array.value(row)),
            Self::BytesView(array) => out.put_slice(array.value(row)),
            Self::Date(array) => {
                out.put_i32(array.value(row).checked_sub(EPOCH_DAYS).ok_or_else(too_early)?);
            }
            Self::Time(array) => out.put_i64(array.value(row)),
            Self::Timestamp(array) | Self::TimestampTz(array) => {
                out.put_i64(array.value(row).checked_sub(EPOCH_MICROS).ok_or_else(too_early)?);
            }
            Self::Interval(array) => {
                let interval = array.value(row);
                out.put_i64(interval.nanoseconds / 1_000);
                out.put_i32(interval.days);
                out.put_i32(interval.months);
            }
        }
        Ok(())
    }
}

fn too_early() -> PgError {
    PgError::new(
        code::TIME_OUT_OF_RANGE,
        "a time is earlier than the binary format can say: read it as text, or select it AS text",
    )
}

/// Appends a text.
///
/// Errors: it has a zero byte, which no text of a client may have.
fn put_characters(text: &str, out: &mut BytesMut) -> Result<()> {
    if text.as_bytes().contains(&0) {
        return Err(PgError::new(
            code::UNTRANSLATABLE,
            "a text has the character U+0000, which clients cannot read: select encode(column, 'hex'), or leave the column out",
        ));
    }
    out.put_slice(text.as_bytes());
    Ok(())
}

fn decimal(array: &Decimal128Array, row: usize) -> String {
    digits::<Decimal128Type>(array.value(row), array.precision(), array.scale())
}

fn wide_decimal(array: &Decimal256Array, row: usize) -> String {
    digits::<Decimal256Type>(array.value(row), array.precision(), array.scale())
}

/// Returns the digits of a decimal. One with a negative scale has zeros at its end.
fn digits<T: DecimalType>(value: T::Native, precision: u8, scale: i8) -> String {
    let text = T::format_decimal(value, precision, scale.max(0));
    match usize::try_from(-i16::from(scale)) {
        Ok(zeros) if zeros > 0 && text != "0" => text + &"0".repeat(zeros),
        _ => text,
    }
}

impl ListValues {
    /// Converts the lists of a column whose items `Scalar::of` knows as `item`.
    pub fn new(column: &ArrayRef, item: Scalar) -> Result<Self> {
        let field = match column.data_type() {
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::FixedSizeList(field, _) => field.clone(),
            other => return Err(PgError::new(code::INTERNAL, format!("{other} is not a list"))),
        };
        let lists = cast(column, &DataType::List(field))?.as_list::<i32>().clone();
        let items = lists.values();
        let items = match items.data_type() {
            // nulls only
            DataType::Null => Values::Text(StringArray::new_null(items.len())),
            _ => Values::new(items, item)?,
        };
        Ok(Self { lists, items, item: item.oid(), is_vector: false })
    }

    /// Gives lists the type of a column of a catalog.
    pub fn name(&mut self, ty: CatalogType) {
        self.items.name(ty);
        self.item = ty.item_oid().unwrap_or(self.item);
        self.is_vector = ty.is_vector();
    }

    pub fn is_null(&self, row: usize) -> bool {
        self.lists.is_null(row)
    }

    /// Returns the places of the items of a row.
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let offsets = self.lists.value_offsets();
        // offsets are not negative
        offsets[row] as usize..offsets[row + 1] as usize
    }

    /// Appends a list as text: `{1,NULL,"a b"}`, or `1 2` for a vector.
    pub fn put_text(&self, row: usize, zone: &TimeZone, out: &mut BytesMut) -> Result<()> {
        if self.is_vector {
            for (number, at) in self.range(row).enumerate() {
                if number > 0 {
                    out.put_u8(b' ');
                }
                self.items.put_text(at, zone, out)?;
            }
            return Ok(());
        }
        let mut list = vec![b'{'];
        let mut item = BytesMut::new();
        for (number, at) in self.range(row).enumerate() {
            if number > 0 {
                list.push(b',');
            }
            if self.items.is_null(at) {
                list.extend_from_slice(b"NULL");
                continue;
            }
            item.clear();
            self.items.put_text(at, zone, &mut item)?;
            text::put_item(&item, &mut list);
        }
        list.push(b'}');
        out.extend_from_slice(&list);
        Ok(())
    }

    /// Appends a list in the binary format: dimensions, whether it has nulls, the type of its items, length, first index, items.
    pub fn put_binary(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        let range = self.range(row);
        out.put_u32(u32::from(!range.is_empty()));
        out.put_u32(u32::from(range.clone().any(|at| self.items.is_null(at))));
        out.put_u32(self.item);
        if range.is_empty() {
            return Ok(());
        }
        // lengths of Arrow's lists have 31 bits
        out.put_u32(range.len() as u32);
        out.put_u32(u32::from(!self.is_vector));
        for at in range {
            match self.items.is_null(at) {
                true => out.put_i32(-1),
                false => with_length(out, |out| self.items.put_binary(at, out))?,
            }
        }
        Ok(())
    }
}

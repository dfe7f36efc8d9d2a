//! Per-row sizes and values of a function's arguments, without expanding constants to arrays.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;

/// One value for all rows, or one per row.
#[derive(Debug)]
pub(super) enum PerRow<T> {
    All(T),
    Each(Vec<T>),
}

impl<T: Copy + Default> PerRow<T> {
    pub fn at(&self, row: usize) -> T {
        match self {
            Self::All(value) => *value,
            Self::Each(values) => values.get(row).copied().unwrap_or_default(),
        }
    }
}

fn array_of(arg: &ColumnarValue) -> Result<(ArrayRef, bool)> {
    Ok(match arg {
        ColumnarValue::Array(array) => (array.clone(), false),
        ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
    })
}

fn per_row<T: Copy + Default>(values: Vec<T>, scalar: bool) -> PerRow<T> {
    match (scalar, values.first()) {
        (true, first) => PerRow::All(first.copied().unwrap_or_default()),
        (false, _) => PerRow::Each(values),
    }
}

/// Returns the bytes of each row's value.
pub(super) fn bytes(arg: &ColumnarValue) -> Result<PerRow<u128>> {
    let (array, scalar) = array_of(arg)?;
    Ok(per_row(row_bytes(&array), scalar))
}

/// Returns the number of elements of each row's list; 1 for other types.
pub(super) fn elements(arg: &ColumnarValue) -> Result<PerRow<u128>> {
    let (array, scalar) = array_of(arg)?;
    let counts = (0..array.len()).map(|row| match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().value_length(row) as u128,
        DataType::LargeList(_) => array.as_list::<i64>().value_length(row) as u128,
        DataType::FixedSizeList(_, n) => *n as u128,
        _ => 1,
    });
    Ok(per_row(counts.collect(), scalar))
}

/// Returns each row's value as an integer; times are microseconds. Nulls and other types are 0.
pub(super) fn integers(arg: &ColumnarValue) -> Result<PerRow<i64>> {
    let (array, scalar) = array_of(arg)?;
    let numbers = match array.data_type() {
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            cast(&array, &DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None))
                .and_then(|times| cast(&times, &DataType::Int64))
        }
        _ => cast(&array, &DataType::Int64),
    };
    let Ok(numbers) = numbers else { return Ok(PerRow::All(0)) };
    let numbers: &Int64Array = numbers.as_primitive();
    Ok(per_row(numbers.iter().map(Option::unwrap_or_default).collect(), scalar))
}

/// Returns the bytes that each value takes, children included.
fn row_bytes(array: &ArrayRef) -> Vec<u128> {
    let rows = array.len();
    let of_list = |bounds: &dyn Fn(usize) -> (usize, usize), values: &ArrayRef| {
        let mut sums = Vec::with_capacity(values.len() + 1);
        sums.push(0_u128);
        for bytes in row_bytes(values) {
            sums.push(sums.last().copied().unwrap_or_default() + bytes);
        }
        let sum = |at: usize| sums.get(at).copied().unwrap_or_default();
        (0..rows)
            .map(|row| {
                let (start, end) = bounds(row);
                sum(end) - sum(start) + 4
            })
            .collect()
    };
    match array.data_type() {
        DataType::Utf8 => {
            let texts = array.as_string::<i32>();
            (0..rows).map(|row| texts.value_length(row) as u128).collect()
        }
        DataType::LargeUtf8 => {
            let texts = array.as_string::<i64>();
            (0..rows).map(|row| texts.value_length(row) as u128).collect()
        }
        DataType::Utf8View => {
            let texts = array.as_string_view();
            (0..rows).map(|row| if texts.is_null(row) { 0 } else { texts.value(row).len() as u128 }).collect()
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            (0..rows).map(|row| values.value_length(row) as u128).collect()
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>();
            (0..rows).map(|row| values.value_length(row) as u128).collect()
        }
        DataType::BinaryView => {
            let values = array.as_binary_view();
            (0..rows)
                .map(|row| if values.is_null(row) { 0 } else { values.value(row).len() as u128 })
                .collect()
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let at = lists.value_offsets();
            of_list(&|row| (at[row] as usize, at[row + 1] as usize), lists.values())
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let at = lists.value_offsets();
            of_list(&|row| (at[row] as usize, at[row + 1] as usize), lists.values())
        }
        DataType::FixedSizeList(_, n) => {
            let n = *n as usize;
            of_list(&|row| (row * n, (row + 1) * n), array.as_fixed_size_list().values())
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            let at = maps.value_offsets();
            let entries: ArrayRef = std::sync::Arc::new(maps.entries().clone());
            of_list(&|row| (at[row] as usize, at[row + 1] as usize), &entries)
        }
        DataType::Struct(_) => {
            let mut total = vec![0; rows];
            for column in array.as_struct().columns() {
                for (total, bytes) in total.iter_mut().zip(row_bytes(column)) {
                    *total += bytes;
                }
            }
            total
        }
        other => {
            let known = other.primitive_width().map(|w| w as u128);
            // dictionaries, unions: the size of the whole array, divided evenly
            let share = || (array.get_array_memory_size() as u128).div_ceil(rows.max(1) as u128);
            vec![known.unwrap_or_else(share); rows]
        }
    }
}

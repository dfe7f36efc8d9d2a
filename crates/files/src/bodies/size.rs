//! Size of batches after their encodings are removed.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType as T;
use tidemill_types::{Error, Result};

/// Bytes that a row counts beside its values, and a value without bytes: about those of the shortest JSON.
const LEAST_BYTES: u64 = 4;

/// Returns the type that values may share memory in without a bound, if there is one in `ty`.
pub(super) fn check_type(ty: &T) -> Result<(), &T> {
    match ty {
        T::RunEndEncoded(..) | T::ListView(_) | T::LargeListView(_) | T::Union(..) => Err(ty),
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) | T::Map(item, _) => {
            check_type(item.data_type())
        }
        T::Struct(fields) => fields.iter().try_for_each(|field| check_type(field.data_type())),
        T::Dictionary(_, values) => check_type(values),
        _ => Ok(()),
    }
}

/// Returns the bytes of the values of a batch, each counted as often as it occurs.
///
/// Errors: a column cannot be measured.
pub(super) fn decoded_bytes(batch: &RecordBatch) -> Result<u64> {
    let rows = (batch.num_rows() as u64).saturating_mul(LEAST_BYTES);
    Ok(rows.saturating_add(columns_bytes(batch.columns())?))
}

fn columns_bytes(columns: &[ArrayRef]) -> Result<u64> {
    columns.iter().try_fold(0_u64, |sum, column| Ok(sum.saturating_add(array_bytes(column)?)))
}

fn array_bytes(array: &ArrayRef) -> Result<u64> {
    let least = (array.len() as u64).saturating_mul(LEAST_BYTES);
    let values = match array.data_type() {
        T::Null => 0,
        T::Utf8View => array.as_string_view().views().iter().map(|view| view_bytes(*view)).sum(),
        T::BinaryView => array.as_binary_view().views().iter().map(|view| view_bytes(*view)).sum(),
        T::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let largest = largest_value(dictionary.values())?;
            return Ok(largest.saturating_mul(array.len() as u64).saturating_add(least));
        }
        T::List(_) => array_bytes(array.as_list::<i32>().values())?,
        T::LargeList(_) => array_bytes(array.as_list::<i64>().values())?,
        T::FixedSizeList(..) => array_bytes(array.as_fixed_size_list().values())?,
        T::Map(..) => columns_bytes(array.as_map().entries().columns())?,
        T::Struct(_) => columns_bytes(array.as_struct().columns())?,
        _ => {
            let bytes = array.to_data().get_slice_memory_size();
            bytes.map_err(|e| Error::invalid("a column has no size").with_source(e))? as u64
        }
    };
    Ok(values.saturating_add(least))
}

/// Returns the length in a view, its lowest 32 bits.
fn view_bytes(view: u128) -> u64 {
    u64::from(view as u32)
}

/// Returns the bytes of the largest value of a dictionary; for nested ones, of all together.
fn largest_value(values: &ArrayRef) -> Result<u64> {
    fn largest(offsets: impl Iterator<Item = u64>) -> u64 {
        let (mut most, mut last) = (0, None);
        for offset in offsets {
            most = most.max(last.map_or(0, |last| offset - last));
            last = Some(offset);
        }
        most
    }
    Ok(match values.data_type() {
        T::Utf8 => largest(values.as_string::<i32>().offsets().iter().map(|offset| *offset as u64)),
        T::LargeUtf8 => largest(values.as_string::<i64>().offsets().iter().map(|offset| *offset as u64)),
        T::Binary => largest(values.as_binary::<i32>().offsets().iter().map(|offset| *offset as u64)),
        T::LargeBinary => largest(values.as_binary::<i64>().offsets().iter().map(|offset| *offset as u64)),
        T::Utf8View => values.as_string_view().views().iter().map(|v| view_bytes(*v)).max().unwrap_or(0),
        T::BinaryView => values.as_binary_view().views().iter().map(|v| view_bytes(*v)).max().unwrap_or(0),
        ty if ty.primitive_width().is_some() => 16,
        _ => array_bytes(values)?,
    })
}

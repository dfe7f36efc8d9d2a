//! Columns of Arrow's batches as values of rows.
//!
//! A batch is prepared once for each column: its type is matched, and what has many spellings in Arrow (dictionaries, units of time,
//! narrow integers) is converted to one. What is left for each cell is a look at the value and its bytes:
//!
//! ```text
//! RecordBatch ── per column: ColumnEncoder::new ──▶ [ColumnEncoder]
//!                per row:    for each of them: encode ──▶ length, bytes │ length, bytes │ …
//! ```

mod floats;
mod json;
mod text;
mod values;

use arrow_array::{Array, ArrayRef};
use bytes::{BufMut, BytesMut};
use jiff::tz::TimeZone;

use crate::error::{PgError, Result, code};
use crate::messages::input::Format;
use crate::values::types::PgType;
use values::{ListValues, Values};

/// Form of values as bytes: their format, and the zone of instants as text.
#[derive(Debug, Clone)]
pub(crate) struct Style {
    pub format: Format,
    pub zone: TimeZone,
}

/// A column of a batch, ready to be written row by row.
pub(crate) struct ColumnEncoder {
    values: EncodedValues,
    style: Style,
}

enum EncodedValues {
    Null,
    Scalar(Values),
    List(ListValues),
}

impl ColumnEncoder {
    /// Prepares a column that the client knows as `ty`.
    ///
    /// Errors: a value is out of the range of its type in the protocol; the column is of another type than was described.
    pub fn new(column: &ArrayRef, ty: PgType, style: Style) -> Result<Self> {
        let found = PgType::of(column.data_type());
        if let PgType::Catalog(named) = ty {
            let mut encoder = Self::new(column, named.base(), style)?;
            match &mut encoder.values {
                EncodedValues::Scalar(values) => values.name(named),
                EncodedValues::List(list) => list.name(named),
                EncodedValues::Null => {}
            }
            return Ok(encoder);
        }
        let values = match (ty, found) {
            _ if column.data_type().is_null() => EncodedValues::Null,
            (PgType::Scalar(wanted), PgType::Scalar(scalar)) if wanted == scalar => {
                EncodedValues::Scalar(Values::new(column, scalar)?)
            }
            (PgType::Array(wanted), PgType::Array(item)) if wanted == item => {
                EncodedValues::List(ListValues::new(column, item)?)
            }
            // its type was not known before the values of the parameters were
            (PgType::TEXT, _) => return Self::as_text(column, found, style),
            _ => {
                return Err(PgError::not_supported(format!(
                    "a column was described as {} and is {} now: prepare the statement again",
                    ty.name(),
                    found.name()
                )));
            }
        };
        Ok(Self { values, style })
    }

    /// Prepares a column whose values are texts, whatever their format.
    fn as_text(column: &ArrayRef, found: PgType, style: Style) -> Result<Self> {
        Self::new(column, found, Style { format: Format::Text, ..style })
    }

    /// Returns whether the value of a row is null.
    pub fn is_null(&self, row: usize) -> bool {
        match &self.values {
            EncodedValues::Null => true,
            EncodedValues::Scalar(values) => values.is_null(row),
            EncodedValues::List(list) => list.is_null(row),
        }
    }

    /// Appends the value of a row with its length before it, which is -1 for null.
    ///
    /// Errors: the value is longer than 1 GiB, or is out of the range of its type.
    pub fn encode(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        if self.is_null(row) {
            out.put_i32(-1);
            return Ok(());
        }
        with_length(out, |out| self.encode_value(row, out))
    }

    /// Appends the value of a row, which is not null, without its length.
    ///
    /// Errors: as for [`Self::encode`].
    pub fn encode_value(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        match (&self.values, self.style.format) {
            (EncodedValues::Null, _) => Ok(()),
            (EncodedValues::Scalar(values), Format::Text) => values.put_text(row, &self.style.zone, out),
            (EncodedValues::Scalar(values), Format::Binary) => values.put_binary(row, out),
            (EncodedValues::List(list), Format::Text) => list.put_text(row, &self.style.zone, out),
            (EncodedValues::List(list), Format::Binary) => list.put_binary(row, out),
        }
    }
}

/// Maximum bytes of a value, as PostgreSQL has it.
const VALUE_BYTES_MAX: usize = (1 << 30) - 1;

/// Appends what `write` appends with its length before it.
fn with_length(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut) -> Result<()>) -> Result<()> {
    let start = out.len();
    out.put_u32(0);
    write(out)?;
    let length = out.len() - start - 4;
    if length > VALUE_BYTES_MAX {
        return Err(PgError::new(code::TOO_LARGE, format!("a value of {length} bytes: the limit is 1 GiB")));
    }
    // below 1 GiB, and the four bytes were appended above
    out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;

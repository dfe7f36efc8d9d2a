//! Columns of a result as clients know them.

use arrow_schema::{DataType, Field, Schema};

use crate::error::{PgError, Result, code};
use crate::values::types::PgType;

/// Maximum columns of a result: their number has two bytes, and drivers take it as signed.
const COLUMNS_MAX: usize = 32_767;

/// A column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub name: String,
    pub ty: PgType,
    /// Precision and scale of a decimal, as PostgreSQL packs them; -1 for none.
    pub modifier: i32,
}

impl Column {
    /// Creates a column of texts.
    pub fn text(name: &str) -> Self {
        Self { name: name.to_owned(), ty: PgType::TEXT, modifier: -1 }
    }

    pub fn new(field: &Field) -> Self {
        let ty = PgType::of_field(field);
        let modifier = match field.data_type() {
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale)
                if *scale >= 0 =>
            {
                (i32::from(*precision) << 16) + i32::from(*scale) + 4
            }
            _ => -1,
        };
        Self { name: field.name().clone(), ty, modifier }
    }

    /// Returns the columns of a result.
    ///
    /// Errors: there are more than the protocol can say.
    pub fn all(schema: &Schema) -> Result<Vec<Self>> {
        let count = schema.fields().len();
        if count > COLUMNS_MAX {
            return Err(PgError::new(
                code::TOO_LARGE,
                format!("the result has {count} columns: the protocol has {COLUMNS_MAX} at most"),
            ));
        }
        Ok(schema.fields().iter().map(|field| Self::new(field)).collect())
    }
}

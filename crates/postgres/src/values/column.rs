//! Columns of a result as clients know them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use tidemill_database::ColumnOrigin;

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
    /// Column of a table that it is.
    pub origin: Option<ColumnOrigin>,
}

impl Column {
    /// Creates a column of texts.
    pub fn text(name: &str) -> Self {
        Self { name: name.to_owned(), ty: PgType::TEXT, modifier: -1, origin: None }
    }

    pub fn new(field: &Field, origin: Option<ColumnOrigin>) -> Self {
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
        Self { name: field.name().clone(), ty, modifier, origin }
    }

    /// Returns the columns of a result, whose origins may be left out.
    ///
    /// Errors: there are more than the protocol can say.
    pub fn all(schema: &Schema, origins: &[Option<ColumnOrigin>]) -> Result<Vec<Self>> {
        let count = schema.fields().len();
        if count > COLUMNS_MAX {
            return Err(PgError::new(
                code::TOO_LARGE,
                format!("the result has {count} columns: the protocol has {COLUMNS_MAX} at most"),
            ));
        }
        let column = |(at, field): (usize, &Arc<Field>)| Self::new(field, origins.get(at).copied().flatten());
        Ok(schema.fields().iter().enumerate().map(column).collect())
    }
}

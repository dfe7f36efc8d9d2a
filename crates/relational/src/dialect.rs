//! What differs in the SQL of the databases.

use std::fmt;

use tidemill_types::FieldType;

use crate::schema::Column;

/// Length of strings if the user declares none, in characters; that of the reference.
const STRING_LENGTH: u32 = 254;
/// Longest `VARCHAR` of MariaDB and MySQL with four bytes a character and room for other columns.
const MYSQL_VARCHAR_MAX: u32 = 8_000;
/// Longest `VARCHAR` of PostgreSQL.
const POSTGRES_VARCHAR_MAX: u32 = 10_485_760;

/// Language of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL.
    PostgreSql,
    /// MariaDB and MySQL.
    MySql,
    /// SQLite.
    Sqlite,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PostgreSql => "PostgreSQL",
            Self::MySql => "MariaDB/MySQL",
            Self::Sqlite => "SQLite",
        })
    }
}

impl Dialect {
    /// Quotes a name.
    pub fn quote(self, name: &str) -> String {
        match self {
            Self::PostgreSql | Self::Sqlite => format!("\"{}\"", name.replace('"', "\"\"")),
            Self::MySql => format!("`{}`", name.replace('`', "``")),
        }
    }

    /// Returns the name that an unquoted name means when a table is created: PostgreSQL folds it to lower case.
    pub fn fold(self, name: &str) -> String {
        match self {
            Self::PostgreSql => name.to_lowercase(),
            Self::MySql | Self::Sqlite => name.to_owned(),
        }
    }

    /// Returns the parameter with this index, from 0, of type `ty`.
    pub fn parameter(self, index: usize, ty: FieldType) -> String {
        match self {
            Self::PostgreSql => format!("${}::{}", index + 1, self.scalar_type(ty)),
            Self::MySql => "?".to_owned(),
            Self::Sqlite => format!("?{}", index + 1),
        }
    }

    /// Returns the type that values of `ty` have in expressions; strings without a length.
    pub fn scalar_type(self, ty: FieldType) -> &'static str {
        match (self, ty) {
            (Self::PostgreSql, FieldType::Bool) => "boolean",
            (Self::PostgreSql, FieldType::Float) => "real",
            (Self::PostgreSql, FieldType::Double) => "double precision",
            (Self::PostgreSql, FieldType::String | FieldType::Object) => "text",
            (Self::PostgreSql, FieldType::Time) => "timestamptz",
            (Self::MySql, FieldType::Bool) => "tinyint(1)",
            (Self::MySql, FieldType::Float) => "float",
            (Self::MySql, FieldType::Double) => "double",
            (Self::MySql, FieldType::String | FieldType::Object) => "longtext",
            (Self::MySql, FieldType::Time) => "datetime(6)",
            (Self::Sqlite, FieldType::Bool) => "boolean",
            (Self::Sqlite, FieldType::Float) => "real",
            (Self::Sqlite, FieldType::Double) => "double",
            (Self::Sqlite, FieldType::String | FieldType::Object) => "text",
            (Self::Sqlite, FieldType::Time) => "timestamp",
            (_, FieldType::Int) => "integer",
            (_, FieldType::Long) => "bigint",
        }
    }

    /// Returns the type of a column that is created.
    pub fn column_type(self, column: &Column) -> String {
        let length = column.length.unwrap_or(STRING_LENGTH);
        match (self, column.ty) {
            (Self::PostgreSql, FieldType::Object) => "jsonb".into(),
            (Self::MySql, FieldType::Object) => "json".into(),
            (Self::PostgreSql, FieldType::String) if length <= POSTGRES_VARCHAR_MAX => {
                format!("varchar({length})")
            }
            (Self::MySql, FieldType::String) if length <= MYSQL_VARCHAR_MAX => format!("varchar({length})"),
            (_, ty) => self.scalar_type(ty).into(),
        }
    }
}

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
/// Longest `NVARCHAR` of SQL Server, in units of UTF-16.
const SQL_SERVER_NVARCHAR_MAX: u32 = 4_000;
/// Longest `VARCHAR2` of Oracle.
const ORACLE_VARCHAR2_MAX: u32 = 4_000;
/// Order of texts in created tables of SQL Server, which tells upper from lower case as SiddhiQL does.
pub const SQL_SERVER_COLLATION: &str = "Latin1_General_100_BIN2";

/// Language of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL.
    PostgreSql,
    /// MariaDB and MySQL.
    MySql,
    /// SQLite.
    Sqlite,
    /// SQL Server.
    SqlServer,
    /// Oracle.
    Oracle,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PostgreSql => "PostgreSQL",
            Self::MySql => "MariaDB/MySQL",
            Self::Sqlite => "SQLite",
            Self::SqlServer => "SQL Server",
            Self::Oracle => "Oracle",
        })
    }
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::PostgreSql, Self::MySql, Self::Sqlite, Self::SqlServer, Self::Oracle];

    /// Quotes a name.
    pub fn quote(self, name: &str) -> String {
        match self {
            Self::PostgreSql | Self::Sqlite | Self::Oracle => format!("\"{}\"", name.replace('"', "\"\"")),
            Self::MySql => format!("`{}`", name.replace('`', "``")),
            Self::SqlServer => format!("[{}]", name.replace(']', "]]")),
        }
    }

    /// Returns the name that an unquoted name means when a table is created: PostgreSQL folds it to lower case,
    /// Oracle to upper case.
    pub fn fold(self, name: &str) -> String {
        match self {
            Self::PostgreSql => name.to_lowercase(),
            Self::Oracle => name.to_uppercase(),
            Self::MySql | Self::Sqlite | Self::SqlServer => name.to_owned(),
        }
    }

    /// Returns the parameter with this index, from 0, of type `ty`.
    pub fn parameter(self, index: usize, ty: FieldType) -> String {
        match self {
            Self::PostgreSql => format!("${}::{}", index + 1, self.scalar_type(ty)),
            Self::MySql => "?".to_owned(),
            Self::Sqlite => format!("?{}", index + 1),
            Self::SqlServer => format!("@P{}", index + 1),
            Self::Oracle => format!(":{}", index + 1),
        }
    }

    /// Returns whether conditions are values, which can be compared, stored and selected.
    pub fn has_boolean_values(self) -> bool {
        !matches!(self, Self::SqlServer | Self::Oracle)
    }

    /// Returns what stands behind `SELECT ` and at the end of a query so that it returns `rows` rows at most.
    pub fn limit(self, rows: usize) -> (String, String) {
        match self {
            Self::SqlServer => (format!("TOP ({rows}) "), String::new()),
            Self::Oracle => (String::new(), format!(" FETCH FIRST {rows} ROWS ONLY")),
            Self::PostgreSql | Self::MySql | Self::Sqlite => (String::new(), format!(" LIMIT {rows}")),
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
            (Self::SqlServer, FieldType::Bool) => "bit",
            (Self::SqlServer, FieldType::Int) => "int",
            (Self::SqlServer, FieldType::Float) => "real",
            (Self::SqlServer, FieldType::Double) => "float",
            (Self::SqlServer, FieldType::String | FieldType::Object) => "nvarchar(max)",
            (Self::SqlServer, FieldType::Time) => "datetime2(6)",
            (Self::Oracle, FieldType::Bool) => "number(1)",
            (Self::Oracle, FieldType::Int) => "number(10)",
            (Self::Oracle, FieldType::Long) => "number(19)",
            (Self::Oracle, FieldType::Float) => "binary_float",
            (Self::Oracle, FieldType::Double) => "binary_double",
            (Self::Oracle, FieldType::String | FieldType::Object) => "clob",
            (Self::Oracle, FieldType::Time) => "timestamp(6)",
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
            (Self::Oracle, FieldType::String) if length <= ORACLE_VARCHAR2_MAX => {
                format!("varchar2({length} char)")
            }
            (Self::SqlServer, FieldType::String) if length <= SQL_SERVER_NVARCHAR_MAX => {
                format!("nvarchar({length})")
            }
            (_, ty) => self.scalar_type(ty).into(),
        }
    }
}

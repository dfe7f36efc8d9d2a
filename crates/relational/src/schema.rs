//! Tables as they are declared, and the statements that create them.

use std::fmt;

use tidemill_types::{FieldType, did_you_mean};

use crate::dialect::{Dialect, SQL_SERVER_COLLATION};

/// Name of a table, with the schema (PostgreSQL, SQL Server, Oracle) or database (MariaDB, MySQL) that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// Schema or database; without one, that of the connection.
    pub schema: Option<String>,
    /// Name.
    pub name: String,
}

impl TableName {
    /// Parses `table` or `schema.table`.
    ///
    /// Errors: a part is empty.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        let bad = |part: &str| part.is_empty() || part.contains('\0');
        if bad(name) || schema.is_some_and(bad) {
            return Err(format!("`{text}` is no name of a table; write `table` or `schema.table`"));
        }
        Ok(Self { schema: schema.map(str::to_owned), name: name.to_owned() })
    }

    /// Returns the quoted name.
    pub fn quoted(&self, dialect: Dialect) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", dialect.quote(schema), dialect.quote(&self.name)),
            None => dialect.quote(&self.name),
        }
    }

    /// Returns the name under which the table is created.
    pub fn folded(&self, dialect: Dialect) -> Self {
        Self { schema: self.schema.as_deref().map(|s| dialect.fold(s)), name: dialect.fold(&self.name) }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Type of its values.
    pub ty: FieldType,
    /// Greatest length of strings in characters; 254 without one.
    pub length: Option<u32>,
}

impl Column {
    /// Creates a column.
    pub fn new(name: impl Into<String>, ty: FieldType) -> Self {
        Self { name: name.into(), ty, length: None }
    }
}

/// Declaration of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSchema {
    /// Name.
    pub name: TableName,
    /// Columns in order.
    pub columns: Vec<Column>,
    /// Columns of the primary key; empty without one.
    pub primary_key: Vec<usize>,
    /// Columns of each index.
    pub indexes: Vec<Vec<usize>>,
}

impl TableSchema {
    /// Returns the statements that create the table and its indexes. Each is executed as a whole or not at all; only
    /// Oracle needs several.
    pub fn create_statements(&self, dialect: Dialect) -> Vec<String> {
        let name = self.name.folded(dialect);
        let list = |columns: &[usize]| {
            let names = columns.iter().map(|c| dialect.quote(&dialect.fold(&self.columns[*c].name)));
            names.collect::<Vec<_>>().join(", ")
        };
        let mut parts: Vec<String> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let name = dialect.quote(&dialect.fold(&column.name));
                let not_null = if self.primary_key.contains(&index) { " NOT NULL" } else { "" };
                let collation = match (dialect, column.ty) {
                    (Dialect::SqlServer, FieldType::String | FieldType::Object) => {
                        format!(" COLLATE {SQL_SERVER_COLLATION}")
                    }
                    _ => String::new(),
                };
                format!("{name} {}{collation}{not_null}", dialect.column_type(column))
            })
            .collect();
        if !self.primary_key.is_empty() {
            parts.push(format!("PRIMARY KEY ({})", list(&self.primary_key)));
        }
        // MariaDB and MySQL compare without regard to case by default, SiddhiQL does not
        let suffix = match dialect {
            Dialect::PostgreSql | Dialect::Sqlite | Dialect::SqlServer | Dialect::Oracle => "",
            Dialect::MySql => " ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        };
        let table = name.quoted(dialect);
        let mut statements = vec![];
        for (number, columns) in self.indexes.iter().enumerate() {
            let number = if number == 0 { String::new() } else { format!("_{}", number + 1) };
            let index = dialect.quote(&dialect.fold(&format!("{}_INDEX{number}", self.name.name)));
            match dialect {
                // several statements that are sent as one are a transaction
                Dialect::PostgreSql | Dialect::Oracle => {
                    statements.push(format!("CREATE INDEX {index} ON {table} ({})", list(columns)));
                }
                Dialect::Sqlite => statements
                    .push(format!("CREATE INDEX IF NOT EXISTS {index} ON {table} ({})", list(columns))),
                Dialect::MySql | Dialect::SqlServer => {
                    parts.push(format!("INDEX {index} ({})", list(columns)));
                }
            }
        }
        let create = create_if_missing(dialect, &table, &format!("{}){suffix}", parts.join(", ")));
        statements.insert(0, create);
        match dialect {
            Dialect::Oracle => statements,
            _ => vec![statements.join("; ")],
        }
    }
}

/// Returns the statement that creates a table of a quoted name, unless there is one: Oracle
/// only creates it. `rest` follows the opening parenthesis.
pub fn create_if_missing(dialect: Dialect, table: &str, rest: &str) -> String {
    match dialect {
        Dialect::SqlServer => {
            let name = table.replace('\'', "''");
            format!("IF OBJECT_ID(N'{name}') IS NULL CREATE TABLE {table} ({rest}")
        }
        // the caller has looked for it
        Dialect::Oracle => format!("CREATE TABLE {table} ({rest}"),
        Dialect::PostgreSql | Dialect::MySql | Dialect::Sqlite => {
            format!("CREATE TABLE IF NOT EXISTS {table} ({rest}")
        }
    }
}

/// Parses the lengths of strings as the option `field.length` has them: `name:100, text:2000`.
///
/// Errors: something else, or an unknown name.
pub fn parse_lengths<'n>(
    text: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<Vec<(String, u32)>, String> {
    let mut lengths = vec![];
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, length) = part
            .split_once(':')
            .ok_or_else(|| format!("expected `name:length, …` such as `symbol:100`, found `{part}`"))?;
        let (name, length) = (name.trim(), length.trim());
        if !names.clone().any(|known| known == name) {
            return Err(format!("there is no column `{name}`{}", did_you_mean(name, names.clone())));
        }
        let length: u32 =
            length.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                format!("the length of `{name}` must be an integer above 0, found `{length}`")
            })?;
        lengths.push((name.to_owned(), length));
    }
    Ok(lengths)
}

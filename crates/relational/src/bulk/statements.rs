//! The statements of a writer.

mod mysql;
mod oracle;
mod postgres;
mod sql_server;
mod sqlite;

use tidemill_types::FieldType;

use super::{Mapping, Operation};
use crate::dialect::Dialect;
use crate::existing::{ExistingColumn, ExistingTable};

/// Column that is written.
#[derive(Debug, Clone)]
pub struct Target {
    /// Column of the rows.
    pub source: usize,
    /// Name in the database.
    pub name: String,
    pub quoted: String,
    pub ty: FieldType,
    pub is_key: bool,
    /// Type to which a parameter is converted, if the database does not do so by itself.
    cast: Option<String>,
    /// True if MariaDB and MySQL can have it in an index without a length.
    is_indexable: bool,
}

impl Target {
    pub fn new(dialect: Dialect, mapping: &Mapping, column: &ExistingColumn) -> Self {
        let is_text = ["varchar", "text", "bpchar", "name"].contains(&column.base_type.as_str());
        // a conversion to varchar(n) would cut the text silently
        let needs_cast = match mapping.ty {
            FieldType::String | FieldType::Object => !is_text,
            _ => false,
        };
        let base = column.base_type.to_ascii_lowercase();
        Self {
            source: mapping.source,
            quoted: dialect.quote(&column.name),
            name: column.name.clone(),
            ty: mapping.ty,
            is_key: false,
            cast: (dialect == Dialect::PostgreSql && needs_cast).then(|| column.sql_type.clone()),
            is_indexable: !(base.ends_with("text") || base.ends_with("blob") || base == "json"),
        }
    }

    /// Returns the parameter with this index for a value of the column.
    fn parameter(&self, dialect: Dialect, index: usize) -> String {
        let parameter = dialect.parameter(index, self.ty);
        match &self.cast {
            Some(cast) => format!("{parameter}::{cast}"),
            None => parameter,
        }
    }
}

/// Statements of a writer. All names are quoted.
#[derive(Debug, Clone)]
pub struct Statements {
    pub table: String,
    pub columns: String,
    /// Writes one row by parameters.
    pub row: String,
    /// Column of each parameter of `row`.
    pub row_params: Vec<usize>,
    /// Name of the temporary table.
    pub staging: String,
    pub create_staging: Option<String>,
    /// Empties the temporary table outside of a transaction.
    pub truncate_staging: Option<String>,
    /// Empties the temporary table within a transaction.
    pub delete_staging: String,
    /// Makes the server find rows by the index of the key while `apply` runs, where it would not do so by itself.
    pub use_index: Option<&'static str>,
    /// Applies the rows of the temporary table.
    pub apply: Option<String>,
}

impl Statements {
    pub fn new(
        dialect: Dialect,
        operation: Operation,
        table: &ExistingTable,
        targets: &[Target],
        is_unique: bool,
        staging: &str,
    ) -> Self {
        let table = table.name.quoted(dialect);
        let write = Write { dialect, operation, table, targets, is_unique, staging };
        match dialect {
            Dialect::PostgreSql => postgres::statements(&write),
            Dialect::MySql => mysql::statements(&write),
            Dialect::Sqlite => sqlite::statements(&write),
            Dialect::SqlServer => sql_server::statements(&write),
            Dialect::Oracle => oracle::statements(&write),
        }
    }

    /// Returns the statement that inserts `count` rows.
    pub fn insert_rows(
        &self,
        dialect: Dialect,
        verb: &str,
        table: &str,
        targets: &[Target],
        count: usize,
    ) -> String {
        let row = |number: usize| {
            let parameter =
                |(index, t): (usize, &Target)| t.parameter(dialect, number * targets.len() + index);
            format!("({})", targets.iter().enumerate().map(parameter).collect::<Vec<_>>().join(", "))
        };
        let rows: Vec<String> = (0..count).map(row).collect();
        format!("{verb} INTO {table} ({}) VALUES {}", self.columns, rows.join(", "))
    }

    /// Describes the statements, one a line, for tests.
    pub fn describe(&self) -> Vec<String> {
        let named = |name: &str, sql: &Option<String>| sql.as_ref().map(|sql| format!("{name}: {sql}"));
        let delete = self.create_staging.as_ref().map(|_| self.delete_staging.clone());
        let params: Vec<String> = self.row_params.iter().map(ToString::to_string).collect();
        let row = format!("{} -- columns {}", self.row, params.join(", "));
        [
            named("create", &self.create_staging),
            named("reset", &self.truncate_staging),
            named("delete", &delete),
            named("apply", &self.apply),
            named("row", &Some(row)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Write operation, from which the module of each database makes statements.
struct Write<'t> {
    dialect: Dialect,
    operation: Operation,
    /// Quoted.
    table: String,
    /// Columns of keys first.
    targets: &'t [Target],
    /// True if rows are unique by the key.
    is_unique: bool,
    /// Name of the temporary table, not quoted.
    staging: &'t str,
}

impl Write<'_> {
    fn columns(&self) -> String {
        join(self.targets, ", ", |t| t.quoted.clone())
    }

    fn keys(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| target.is_key)
    }

    fn others(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| !target.is_key)
    }

    /// Returns the condition that rows of the table `t` and the temporary table `s` have the same key.
    fn on(&self) -> String {
        join(self.keys(), " AND ", |t| format!("t.{0} = s.{0}", t.quoted))
    }

    /// Returns the statement that writes one row, and the column of each of its parameters. An upsert is an insert
    /// that ends with `conflict`.
    fn row(&self, conflict: &str) -> (String, Vec<usize>) {
        let Self { dialect, operation, table, targets, .. } = self;
        let mut params = vec![];
        let mut parameter = |index: usize| {
            params.push(index);
            targets[index].parameter(*dialect, params.len() - 1)
        };
        let indices = 0..targets.len();
        let sql = match operation {
            Operation::Insert | Operation::Upsert => {
                let values = indices.map(&mut parameter).collect::<Vec<_>>().join(", ");
                let insert = format!("INSERT INTO {table} ({}) VALUES ({values})", self.columns());
                match operation {
                    Operation::Upsert => format!("{insert} {conflict}"),
                    _ => insert,
                }
            }
            Operation::Update | Operation::Delete => {
                let mut equation = |index: usize| format!("{} = {}", targets[index].quoted, parameter(index));
                let (keys, others): (Vec<usize>, Vec<usize>) =
                    indices.partition(|index| targets[*index].is_key);
                let set = others.into_iter().map(&mut equation).collect::<Vec<_>>().join(", ");
                let on = keys.into_iter().map(&mut equation).collect::<Vec<_>>().join(" AND ");
                match operation {
                    Operation::Update => format!("UPDATE {table} SET {set} WHERE {on}"),
                    _ => format!("DELETE FROM {table} WHERE {on}"),
                }
            }
        };
        (sql, params)
    }

    /// Returns what an upsert does with a key that the table has, in PostgreSQL and SQLite.
    fn on_conflict(&self) -> String {
        let names = join(self.keys(), ", ", |t| t.quoted.clone());
        let set = join(self.others(), ", ", |t| format!("{0} = excluded.{0}", t.quoted));
        let action = if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {set}") };
        format!("ON CONFLICT ({names}) DO {action}")
    }
}

fn join<'t>(
    targets: impl IntoIterator<Item = &'t Target>,
    separator: &str,
    part: impl Fn(&Target) -> String,
) -> String {
    targets.into_iter().map(part).collect::<Vec<_>>().join(separator)
}

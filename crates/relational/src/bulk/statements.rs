//! The statements of a writer.

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
    /// Whether MariaDB and MySQL can have it in an index without a length.
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

/// PostgreSQL has no statistics of a temporary table. It takes its rows for wider than they are, and a batch for so large a
/// part of the other table that it reads all of it. Ends with the transaction.
const USE_INDEX: &str = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

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
        let staging = dialect.quote(staging);
        let columns = join(targets, ", ", |t| t.quoted.clone());
        let (row, row_params) = row_statement(dialect, operation, &table, targets);
        let keys: Vec<&Target> = targets.iter().filter(|target| target.is_key).collect();
        let on = join(keys.iter().copied(), " AND ", |t| format!("t.{0} = s.{0}", t.quoted));
        let others: Vec<&Target> = targets.iter().filter(|target| !target.is_key).collect();
        // the temporary table has few rows, and the other one is found by its key
        let join_by_key = if is_unique { "STRAIGHT_JOIN" } else { "JOIN" };
        let apply = match (operation, dialect) {
            (Operation::Insert, _) => None,
            (Operation::Update, Dialect::PostgreSql | Dialect::Sqlite) => {
                let set = join(others, ", ", |t| format!("{0} = s.{0}", t.quoted));
                Some(format!("UPDATE {table} AS t SET {set} FROM {staging} AS s WHERE {on}"))
            }
            (Operation::Update, Dialect::MySql) => {
                let set = join(others, ", ", |t| format!("t.{0} = s.{0}", t.quoted));
                Some(format!("UPDATE {staging} AS s {join_by_key} {table} AS t ON {on} SET {set}"))
            }
            (Operation::Upsert, _) => {
                let conflict = on_conflict(dialect, targets);
                // without WHERE MariaDB takes ON for that of a join
                Some(format!(
                    "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging} WHERE true {conflict}"
                ))
            }
            (Operation::Delete, Dialect::PostgreSql) => {
                Some(format!("DELETE FROM {table} AS t USING {staging} AS s WHERE {on}"))
            }
            (Operation::Delete, Dialect::Sqlite) => {
                let names = join(keys.iter().copied(), ", ", |t| t.quoted.clone());
                Some(format!("DELETE FROM {table} WHERE ({names}) IN (SELECT {names} FROM {staging})"))
            }
            (Operation::Delete, Dialect::MySql) => {
                Some(format!("DELETE t FROM {staging} AS s {join_by_key} {table} AS t ON {on}"))
            }
        };
        let create_staging = apply.as_ref().map(|_| match dialect {
            Dialect::PostgreSql => format!(
                "CREATE TEMPORARY TABLE IF NOT EXISTS {staging} ON COMMIT DELETE ROWS AS \
                 SELECT {columns} FROM {table} WITH NO DATA"
            ),
            Dialect::Sqlite => format!(
                "CREATE TEMPORARY TABLE IF NOT EXISTS {staging} AS SELECT {columns} FROM {table} LIMIT 0"
            ),
            Dialect::MySql => {
                // keys that are equal for the server, such as texts of other case, are one: the last row wins
                let unique = match keys.iter().all(|key| key.is_indexable) {
                    true => format!(" (UNIQUE KEY ({}))", join(keys, ", ", |t| t.quoted.clone())),
                    false => String::new(),
                };
                format!(
                    "CREATE TEMPORARY TABLE IF NOT EXISTS {staging}{unique} ENGINE=InnoDB AS \
                     SELECT {columns} FROM {table} LIMIT 0"
                )
            }
        });
        // PostgreSQL empties it at the end of each transaction
        let truncate_staging = match dialect {
            Dialect::PostgreSql => None,
            Dialect::MySql => Some(format!("TRUNCATE TABLE {staging}")),
            Dialect::Sqlite => Some(format!("DELETE FROM {staging}")),
        };
        let joins = matches!(operation, Operation::Update | Operation::Delete);
        Self {
            use_index: (dialect == Dialect::PostgreSql && joins && is_unique).then_some(USE_INDEX),
            truncate_staging: truncate_staging.filter(|_| apply.is_some()),
            delete_staging: format!("DELETE FROM {staging}"),
            table,
            columns,
            row,
            row_params,
            staging,
            create_staging,
            apply,
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
}

fn on_conflict(dialect: Dialect, targets: &[Target]) -> String {
    let others: Vec<&Target> = targets.iter().filter(|target| !target.is_key).collect();
    let keys = || targets.iter().filter(|target| target.is_key);
    match (dialect, others.is_empty()) {
        (Dialect::PostgreSql | Dialect::Sqlite, is_empty) => {
            let names = join(keys(), ", ", |t| t.quoted.clone());
            let set = join(others, ", ", |t| format!("{0} = excluded.{0}", t.quoted));
            let action = if is_empty { "NOTHING".to_owned() } else { format!("UPDATE SET {set}") };
            format!("ON CONFLICT ({names}) DO {action}")
        }
        (Dialect::MySql, false) => {
            let set = join(others, ", ", |t| format!("{0} = VALUES({0})", t.quoted));
            format!("ON DUPLICATE KEY UPDATE {set}")
        }
        (Dialect::MySql, true) => {
            let set = join(keys(), ", ", |t| format!("{0} = VALUES({0})", t.quoted));
            format!("ON DUPLICATE KEY UPDATE {set}")
        }
    }
}

fn row_statement(
    dialect: Dialect,
    operation: Operation,
    table: &str,
    targets: &[Target],
) -> (String, Vec<usize>) {
    let mut params = vec![];
    let mut parameter = |index: usize| {
        params.push(index);
        targets[index].parameter(dialect, params.len() - 1)
    };
    let indices = 0..targets.len();
    let columns = join(targets, ", ", |t| t.quoted.clone());
    let sql = match operation {
        Operation::Insert | Operation::Upsert => {
            let values = indices.map(&mut parameter).collect::<Vec<_>>().join(", ");
            let insert = format!("INSERT INTO {table} ({columns}) VALUES ({values})");
            match operation {
                Operation::Upsert => format!("{insert} {}", on_conflict(dialect, targets)),
                _ => insert,
            }
        }
        Operation::Update | Operation::Delete => {
            let mut equation = |index: usize| format!("{} = {}", targets[index].quoted, parameter(index));
            let (keys, others): (Vec<usize>, Vec<usize>) = indices.partition(|index| targets[*index].is_key);
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

fn join<'t>(
    targets: impl IntoIterator<Item = &'t Target>,
    separator: &str,
    part: impl Fn(&Target) -> String,
) -> String {
    targets.into_iter().map(part).collect::<Vec<_>>().join(separator)
}

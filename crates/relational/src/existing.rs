//! Tables as they are in a database.

mod oracle;
mod sql_server;

use tidemill_types::{FieldType, Value, did_you_mean};

use crate::database::DatabaseConnection;
use crate::dialect::Dialect;
use crate::error::{DbError, DbErrorKind};
use crate::param::Param;
use crate::schema::{TableName, TableSchema};

/// Table of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingTable {
    /// Name as the database has it.
    pub name: TableName,
    /// Columns in order.
    pub columns: Vec<ExistingColumn>,
    /// Columns of the primary key and of each other unique key.
    pub unique_keys: Vec<Vec<String>>,
}

/// Column of a table of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingColumn {
    /// Name as the database has it.
    pub name: String,
    /// Type as the database shows it, such as `character varying(254)`.
    pub sql_type: String,
    /// Name of the type without lengths.
    pub base_type: String,
    /// True if a row must have a value: NULL is refused and the column has no default.
    pub must_have_value: bool,
    /// True if the database computes the value.
    pub is_generated: bool,
}

impl ExistingTable {
    /// Finds a table: by its exact name, or by the name that it has in lower case, in Oracle
    /// in upper case.
    ///
    /// Errors: those of the server; a table without transactions.
    pub async fn find(db: &mut DatabaseConnection, name: &TableName) -> Result<Option<Self>, DbError> {
        match db.dialect() {
            Dialect::PostgreSql => find_in_postgres(db, name).await,
            Dialect::MySql => find_in_mysql(db, name).await,
            Dialect::Sqlite => find_in_sqlite(db, name).await,
            Dialect::SqlServer => sql_server::find(db, name).await,
            Dialect::Oracle => oracle::find(db, name).await,
        }
    }

    /// Finds the table, and creates it if it is missing and `create` is set. Checks that its columns can take the
    /// values of those that are declared.
    ///
    /// Errors: those of the server; the table is missing, or a column of it, or has another type.
    pub async fn open(
        db: &mut DatabaseConnection,
        schema: &TableSchema,
        create: bool,
    ) -> Result<Self, DbError> {
        let mut found = Self::find(db, &schema.name).await?;
        if found.is_none() && create {
            for statement in schema.create_statements(db.dialect()) {
                let created = db.run(&statement).await;
                created.map_err(|e| late(e).context(format!("table `{}` cannot be created", schema.name)))?;
            }
            found = Self::find(db, &schema.name).await?;
        }
        let Some(table) = found else {
            let hint = if create { "" } else { "; create it, or write `create.table='true'`" };
            return Err(DbError::invalid(format!("there is no table `{}`{hint}", schema.name)));
        };
        table.check(db.dialect(), schema).map_err(DbError::invalid)?;
        Ok(table)
    }

    /// Returns the column that a name means: exactly, or without regard to case if only one is called so.
    pub fn column(&self, name: &str) -> Option<&ExistingColumn> {
        let exact = self.columns.iter().find(|column| column.name == name);
        exact.or_else(|| {
            let mut same =
                self.columns.iter().filter(|column| column.name.to_lowercase() == name.to_lowercase());
            same.next().filter(|_| same.next().is_none())
        })
    }

    /// Returns whether rows are unique by exactly these columns of the database.
    pub fn is_unique_by(&self, columns: &[&str]) -> bool {
        self.unique_keys.iter().any(|key| {
            key.len() == columns.len() && columns.iter().all(|column| key.iter().any(|part| part == column))
        })
    }

    fn check(&self, dialect: Dialect, schema: &TableSchema) -> Result<(), String> {
        let mut problems = vec![];
        for declared in &schema.columns {
            match self.column(&declared.name) {
                None => {
                    let known = self.columns.iter().map(|c| c.name.as_str());
                    problems.push(format!(
                        "it has no column `{}`{}",
                        declared.name,
                        did_you_mean(&declared.name, known)
                    ));
                }
                Some(column) if column.is_generated => {
                    problems.push(format!("the column `{}` is computed by the database", column.name));
                }
                Some(column) if !takes(dialect, &column.base_type, declared.ty) => {
                    let expected = dialect.column_type(declared);
                    problems.push(format!(
                        "the column `{}` has the type {}, but values of the type `{}` need {expected}",
                        column.name, column.sql_type, declared.ty
                    ));
                }
                Some(_) => {}
            }
        }
        for column in self.columns.iter().filter(|column| column.must_have_value) {
            let is_declared = |c: &crate::Column| self.column(&c.name).is_some_and(|c| c.name == column.name);
            if !schema.columns.iter().any(is_declared) {
                problems.push(format!(
                    "the column `{}` must have a value (NOT NULL without a default), and no attribute is written to it",
                    column.name
                ));
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!("table `{}` does not fit: {}", self.name, problems.join("; "))),
        }
    }
}

/// Two clients that create a table at once meet in the catalog: one of them has to try again.
pub(crate) fn late(e: DbError) -> DbError {
    let is_late =
        e.kind == DbErrorKind::RowRefused || ["42P07", "2714", "ORA-00955"].contains(&e.code.as_str());
    DbError { kind: if is_late { DbErrorKind::Unavailable } else { e.kind }, ..e }
}

/// Returns whether columns of the database's type `base` take values of type `ty`. A value that is out of range or too
/// long is refused when it comes.
fn takes(dialect: Dialect, base: &str, ty: FieldType) -> bool {
    let base = base.to_ascii_lowercase();
    let is = |names: &[&str]| names.contains(&base.as_str());
    match dialect {
        Dialect::Sqlite => return takes_in_sqlite(&base, ty),
        Dialect::SqlServer => return sql_server::takes(&base, ty),
        Dialect::Oracle => return oracle::takes(&base, ty),
        Dialect::PostgreSql | Dialect::MySql => {}
    }
    let is_text = match dialect {
        Dialect::PostgreSql => is(&["varchar", "text", "bpchar", "name", "citext"]),
        _ => is(&["varchar", "char", "text", "tinytext", "mediumtext", "longtext"]),
    };
    let is_integer = is(&["int2", "int4", "int8", "smallint", "mediumint", "int", "bigint"]);
    let is_exact = is_integer || is(&["numeric", "decimal"]);
    let is_number = is_exact || is(&["float4", "float8", "float", "double", "real"]);
    match ty {
        FieldType::Bool => match dialect {
            Dialect::PostgreSql => is(&["bool"]),
            _ => is_integer || is(&["tinyint", "bit"]),
        },
        FieldType::Int | FieldType::Long => is_exact || is(&["tinyint"]),
        FieldType::Float | FieldType::Double => is_number && !is_integer,
        FieldType::String => match dialect {
            // all types have a form as text, but numbers and such are a mistake
            Dialect::PostgreSql => !is_number && !is(&["bool", "bytea"]),
            _ => {
                is_text
                    || is(&[
                        "json",
                        "enum",
                        "set",
                        "uuid",
                        "date",
                        "datetime",
                        "time",
                        "timestamp",
                        "year",
                        "inet4",
                        "inet6",
                    ])
            }
        },
        FieldType::Time => is(&["timestamptz", "timestamp", "datetime"]),
        FieldType::Object => is_text || is(&["json", "jsonb"]),
    }
}

/// The same for SQLite, in which the words in a type decide what becomes of values.
fn takes_in_sqlite(base: &str, ty: FieldType) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| base.contains(word));
    let is_integer = has(&["int"]);
    let is_text = !is_integer && has(&["char", "clob", "text"]);
    let is_real = !is_integer && !is_text && has(&["real", "floa", "doub"]);
    let is_exact = !is_text && !is_real && has(&["num", "dec", "bool"]);
    match ty {
        FieldType::Bool | FieldType::Int | FieldType::Long => is_integer || is_exact,
        FieldType::Float | FieldType::Double => is_real || (is_exact && !has(&["bool"])),
        FieldType::String | FieldType::Time => !is_integer && !is_real && !is_exact && base != "blob",
        FieldType::Object => is_text || base.is_empty(),
    }
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Str(text) => text.as_ref().to_owned(),
        _ => String::new(),
    }
}

fn string(value: &str) -> Param<'_> {
    Param { ty: FieldType::String, value: Value::str(value) }
}

async fn find_in_postgres(
    db: &mut DatabaseConnection,
    name: &TableName,
) -> Result<Option<ExistingTable>, DbError> {
    let dialect = Dialect::PostgreSql;
    let (exact, folded) = (name.quoted(dialect), name.folded(dialect).quoted(dialect));
    let sql = "SELECT c.oid::int8, n.nspname::text, c.relname::text FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.oid = coalesce(to_regclass($1::text), to_regclass($2::text))";
    let types = [FieldType::Long, FieldType::String, FieldType::String];
    let found = db.query(sql, &[string(&exact), string(&folded)], &types).await?;
    let Some([Value::Int(oid), schema, table]) = found.first().map(Vec::as_slice) else { return Ok(None) };
    let oid = [Param { ty: FieldType::Long, value: Value::Int(*oid) }];
    let sql = "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), t.typname::text, \
         a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> '' OR a.attidentity = 'a' \
         FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
         WHERE a.attrelid = $1::int8 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
    let types = [FieldType::String, FieldType::String, FieldType::String, FieldType::Bool, FieldType::Bool];
    let columns = db.query(sql, &oid, &types).await?;
    let sql = "SELECT i.indexrelid::int8, a.attname::text FROM pg_index i \
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) \
         WHERE i.indrelid = $1::int8 AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL \
         ORDER BY 1";
    let keys = db.query(sql, &oid, &[FieldType::Long, FieldType::String]).await?;
    Ok(Some(ExistingTable {
        name: TableName { schema: Some(text(schema)), name: text(table) },
        columns: existing_columns(&columns),
        unique_keys: grouped(&keys),
    }))
}

async fn find_in_mysql(
    db: &mut DatabaseConnection,
    name: &TableName,
) -> Result<Option<ExistingTable>, DbError> {
    let sql = "SELECT table_schema, table_name, coalesce(engine, table_type) FROM information_schema.tables \
         WHERE table_schema = coalesce(?, database()) AND table_name IN (?, ?) ORDER BY table_name <> ? LIMIT 1";
    let types = [FieldType::String; 3];
    let schema =
        Param { ty: FieldType::String, value: name.schema.as_deref().map_or(Value::Missing, Value::str) };
    let lower = name.name.to_lowercase();
    let params = [schema, string(&name.name), string(&lower), string(&name.name)];
    let found = db.query(sql, &params, &types).await?;
    let Some([schema, table, engine]) = found.first().map(Vec::as_slice) else { return Ok(None) };
    let (schema, table, engine) = (text(schema), text(table), text(engine));
    if ["MyISAM", "Aria", "MEMORY", "CSV", "ARCHIVE", "BLACKHOLE"].contains(&engine.as_str()) {
        return Err(DbError::invalid(format!(
            "table `{table}` uses the storage engine {engine}, which has no transactions; \
             ALTER TABLE {table} ENGINE=InnoDB helps"
        )));
    }
    let sql = "SELECT column_name, column_type, data_type, \
         is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%auto_increment%' AND extra NOT LIKE '%GENERATED%', \
         extra LIKE '%GENERATED%' FROM information_schema.columns \
         WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position";
    let types = [FieldType::String, FieldType::String, FieldType::String, FieldType::Bool, FieldType::Bool];
    let params = [string(&schema), string(&table)];
    let columns = db.query(sql, &params, &types).await?;
    let sql = "SELECT index_name, column_name FROM information_schema.statistics \
         WHERE table_schema = ? AND table_name = ? AND non_unique = 0 ORDER BY index_name, seq_in_index";
    let keys = db.query(sql, &params, &[FieldType::String; 2]).await?;
    Ok(Some(ExistingTable {
        columns: existing_columns(&columns),
        unique_keys: grouped(&keys),
        name: TableName { schema: name.schema.as_ref().map(|_| schema), name: table },
    }))
}

async fn find_in_sqlite(
    db: &mut DatabaseConnection,
    name: &TableName,
) -> Result<Option<ExistingTable>, DbError> {
    if let Some(schema) = name.schema.as_deref().filter(|schema| !schema.eq_ignore_ascii_case("main")) {
        let message = format!("SQLite has no schema `{schema}`; write only the name of the table");
        return Err(DbError::invalid(message));
    }
    let sql =
        "SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE";
    let found = db.query(sql, &[string(&name.name)], &[FieldType::String]).await?;
    let Some([table]) = found.first().map(Vec::as_slice) else { return Ok(None) };
    let table = text(table);
    // a key of one INTEGER column has values by itself
    let sql = "SELECT name, type, lower(trim(substr(type, 1, instr(type || '(', '(') - 1))), \
         \"notnull\" AND dflt_value IS NULL AND NOT (pk > 0 AND upper(type) = 'INTEGER'), hidden IN (2, 3) \
         FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid";
    let types = [FieldType::String, FieldType::String, FieldType::String, FieldType::Bool, FieldType::Bool];
    let columns = db.query(sql, &[string(&table)], &types).await?;
    let sql = "SELECT '' AS key, name FROM pragma_table_xinfo(?1) WHERE pk > 0 \
         UNION ALL SELECT l.name, i.name FROM pragma_index_list(?1) l, pragma_index_info(l.name) i \
         WHERE l.\"unique\" AND NOT l.partial AND l.origin <> 'pk' ORDER BY 1";
    let keys = db.query(sql, &[string(&table)], &[FieldType::String; 2]).await?;
    Ok(Some(ExistingTable {
        name: TableName { schema: None, name: table },
        columns: existing_columns(&columns),
        unique_keys: grouped(&keys),
    }))
}

fn existing_columns(rows: &[Vec<Value<'static>>]) -> Vec<ExistingColumn> {
    let is = |value: &Value<'_>| matches!(value, Value::Bool(true));
    let column = |row: &Vec<Value<'static>>| {
        let [name, sql_type, base_type, must_have_value, is_generated] = row.as_slice() else { return None };
        Some(ExistingColumn {
            name: text(name),
            sql_type: text(sql_type),
            base_type: text(base_type),
            must_have_value: is(must_have_value),
            is_generated: is(is_generated),
        })
    };
    rows.iter().filter_map(column).collect()
}

/// Returns the columns of each index; `rows` has index and column, ordered by index.
fn grouped(rows: &[Vec<Value<'static>>]) -> Vec<Vec<String>> {
    let mut keys: Vec<(String, Vec<String>)> = vec![];
    for row in rows {
        let [index, column] = row.as_slice() else { continue };
        let index = index_name(index);
        match keys.last_mut() {
            Some((last, columns)) if *last == index => columns.push(text(column)),
            _ => keys.push((index, vec![text(column)])),
        }
    }
    keys.into_iter().map(|(_, columns)| columns).collect()
}

fn index_name(value: &Value<'_>) -> String {
    match value {
        Value::Int(oid) => oid.to_string(),
        other => text(other),
    }
}

//! What must be at the server before changes can be read: the table, a publication, a replication slot.

use super::super::{ChangeOperation, ChangeSettings};
use super::values::is_integer;
use super::wire::{TextRow, Wire};
use crate::dialect::Dialect;
use crate::error::DbError;

/// The table whose changes are read.
#[derive(Debug)]
pub(super) struct SourceTable {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) columns: Vec<SourceColumn>,
    /// Column of the primary key, if that is one column of integers.
    pub(super) integer_key: Option<usize>,
}

/// A column that is not computed.
#[derive(Debug)]
pub(super) struct SourceColumn {
    pub(super) name: String,
    pub(super) type_oid: u32,
}

impl SourceTable {
    pub(super) fn quoted(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }

    pub(super) fn key_name(&self) -> Option<&String> {
        self.columns.get(self.integer_key?).map(|column| &column.name)
    }

    /// Returns the statement that copies the rows, those behind a key.
    pub(super) fn copy_statement(&self, after: Option<i64>) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| quote(&column.name)).collect();
        let condition = match self.key_name().map(|name| quote(name)) {
            None => String::new(),
            Some(key) => {
                let after = after.map_or(String::new(), |after| format!(" WHERE {key} > {after}"));
                format!("{after} ORDER BY {key}")
            }
        };
        format!("COPY (SELECT {} FROM {}{condition}) TO STDOUT", names.join(", "), self.quoted())
    }
}

pub(super) fn quote(name: &str) -> String {
    Dialect::PostgreSql.quote(name)
}

/// Returns a text as a literal. `standard_conforming_strings` need not be on.
pub(super) fn literal(text: &str) -> String {
    match text.contains('\\') {
        false => format!("'{}'", text.replace('\'', "''")),
        true => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
    }
}

/// Returns a position as the server writes it.
pub(super) fn lsn(position: u64) -> String {
    format!("{:X}/{:X}", position >> 32, position & 0xFFFF_FFFF)
}

fn parse_lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let part = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(u64::from(part(high)?) << 32 | u64::from(part(low)?))
}

/// Adds what helps if the user may not replicate.
pub(super) fn login_error(settings: &ChangeSettings, e: DbError) -> DbError {
    match e.code.as_str() {
        "42501" => {
            let user = settings.user().unwrap_or_default();
            let hint = format!("type ALTER ROLE {} REPLICATION", quote(user));
            DbError { message: format!("{}; {hint}", e.message), ..e }
        }
        _ => e,
    }
}

/// Finds the table, and creates or changes the publication.
///
/// Errors: those of the server; the table or the server's settings do not suffice.
pub(super) async fn prepare(wire: &mut Wire, settings: &ChangeSettings) -> Result<SourceTable, DbError> {
    set_search_path(wire, settings).await?;
    let level = wire.query("SHOW wal_level").await?;
    let level = level.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default();
    if level != "logical" {
        return Err(DbError::invalid(format!(
            "the server's `wal_level` is `{level}`, so it logs no changes of rows; type ALTER SYSTEM SET wal_level = \
             'logical' and restart it, or use mode='polling'"
        )));
    }
    let found = find_table(wire, settings).await?;
    if !found.is_logged {
        let message = format!("`{}` is no table, so the server logs no changes of it", settings.table);
        return Err(DbError::invalid(message));
    }
    check_identity(&found, settings)?;
    prepare_publication(wire, settings, &found).await?;
    Ok(found.table)
}

/// Finds a table or view, to read it by queries.
///
/// Errors: those of the server; the table does not exist.
pub(super) async fn find(wire: &mut Wire, settings: &ChangeSettings) -> Result<SourceTable, DbError> {
    set_search_path(wire, settings).await?;
    find_table(wire, settings).await.map(|found| found.table)
}

async fn set_search_path(wire: &mut Wire, settings: &ChangeSettings) -> Result<(), DbError> {
    if let Some(path) = &settings.url.search_path {
        let names: Vec<String> = path.split(',').map(|name| quote(name.trim())).collect();
        wire.query(&format!("SET search_path TO {}", names.join(", "))).await?;
    }
    Ok(())
}

/// A table with what of old rows is logged.
struct FoundTable {
    table: SourceTable,
    is_partitioned: bool,
    /// True for a table, false for a view.
    is_logged: bool,
    /// True if old rows are logged completely.
    is_identity_full: bool,
    /// Columns of old rows that are logged.
    identity: Vec<String>,
}

async fn find_table(wire: &mut Wire, settings: &ChangeSettings) -> Result<FoundTable, DbError> {
    let name = &settings.table;
    let dialect = Dialect::PostgreSql;
    let (exact, folded) = (literal(&name.quoted(dialect)), literal(&name.folded(dialect).quoted(dialect)));
    let sql = format!(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = coalesce(to_regclass({exact}), to_regclass({folded}))"
    );
    let rows = wire.query(&sql).await?;
    let Some([Some(oid), Some(schema), Some(table), Some(kind), Some(identity)]) =
        rows.first().map(Vec::as_slice)
    else {
        return Err(DbError::invalid(format!("there is no table `{name}`")));
    };
    let columns = find_columns(wire, oid).await?;
    let keys: Vec<&FoundColumn> = columns.iter().filter(|column| column.is_primary).collect();
    let integer_key = match keys.as_slice() {
        [only] if is_integer(only.type_oid) => columns.iter().position(|column| column.is_primary),
        _ => None,
    };
    let is_logged = |column: &FoundColumn| match identity.as_str() {
        "d" => column.is_primary,
        "i" => column.is_identity,
        "f" => true,
        _ => false,
    };
    Ok(FoundTable {
        is_partitioned: kind == "p",
        is_logged: matches!(kind.as_str(), "r" | "p"),
        is_identity_full: identity == "f",
        identity: columns.iter().filter(|c| is_logged(c)).map(|c| c.name.clone()).collect(),
        table: SourceTable {
            schema: schema.clone(),
            name: table.clone(),
            columns: columns
                .into_iter()
                .map(|c| SourceColumn { name: c.name, type_oid: c.type_oid })
                .collect(),
            integer_key,
        },
    })
}

struct FoundColumn {
    name: String,
    type_oid: u32,
    is_primary: bool,
    is_identity: bool,
}

async fn find_columns(wire: &mut Wire, table: &str) -> Result<Vec<FoundColumn>, DbError> {
    let in_index = |kind: &str| {
        format!(
            "EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.{kind} AND a.attnum = ANY (i.indkey))"
        )
    };
    let sql = format!(
        "SELECT a.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END, {}, {} FROM pg_attribute a \
         JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = {table} AND a.attnum > 0 AND NOT a.attisdropped \
         AND to_jsonb(a) ->> 'attgenerated' IS NOT DISTINCT FROM '' ORDER BY a.attnum",
        in_index("indisprimary"),
        in_index("indisreplident")
    );
    let rows = wire.query(&sql).await?;
    let column = |row: &TextRow| {
        let [Some(name), Some(oid), primary, identity] = row.as_slice() else { return None };
        let is = |flag: &Option<String>| flag.as_deref() == Some("t");
        Some(FoundColumn {
            name: name.clone(),
            type_oid: oid.parse().ok()?,
            is_primary: is(primary),
            is_identity: is(identity),
        })
    };
    Ok(rows.iter().filter_map(column).collect())
}

/// Checks that old rows are logged as far as they are needed. A table without an identity would refuse the updates of
/// everyone once they are published.
fn check_identity(found: &FoundTable, settings: &ChangeSettings) -> Result<(), DbError> {
    let needs_old = settings.wants(ChangeOperation::Update) || settings.wants(ChangeOperation::Delete);
    if found.is_identity_full || !needs_old {
        return Ok(());
    }
    let (table, quoted) = (&settings.table, found.table.quoted());
    let help = format!("type ALTER TABLE {quoted} REPLICA IDENTITY FULL");
    if found.identity.is_empty() {
        return Err(DbError::invalid(format!(
            "the table `{table}` has no replica identity (a primary key), without which PostgreSQL refuses updates and deletes \
             of a table whose changes are read; {help}"
        )));
    }
    let is_missing = |name: &&String| {
        let column = name.strip_prefix("before_").unwrap_or_default();
        let is_column = found.table.columns.iter().any(|known| known.name == column);
        is_column && !found.identity.iter().any(|known| known == column)
    };
    match settings.wanted.keys().find(is_missing) {
        None => Ok(()),
        Some(attribute) => Err(DbError::invalid(format!(
            "the attribute `{attribute}` has no value, because PostgreSQL logs only the key ({}) of old rows of the table \
             `{table}`; {help}",
            found.identity.join(", ")
        ))),
    }
}

async fn prepare_publication(
    wire: &mut Wire,
    settings: &ChangeSettings,
    found: &FoundTable,
) -> Result<(), DbError> {
    let name = &settings.publication;
    let table = &found.table;
    let sql = format!(
        "SELECT p.pubinsert, p.pubupdate, p.pubdelete, EXISTS (SELECT FROM pg_publication_tables t \
         WHERE t.pubname = p.pubname AND t.schemaname = {} AND t.tablename = {}) FROM pg_publication p WHERE p.pubname = {}",
        literal(&table.schema),
        literal(&table.name),
        literal(name)
    );
    let rows = wire.query(&sql).await?;
    let published: Vec<&str> = settings.operations.iter().map(|operation| operation.name()).collect();
    let published = published.join(", ");
    let (quoted, table) = (quote(name), table.quoted());
    let Some(row) = rows.first() else {
        let by_root = if found.is_partitioned { ", publish_via_partition_root = true" } else { "" };
        let sql =
            format!("CREATE PUBLICATION {quoted} FOR TABLE {table} WITH (publish = '{published}'{by_root})");
        return match wire.query(&sql).await {
            Ok(_) => Ok(()),
            Err(e) if e.code == "42501" => {
                Err(DbError { message: format!("{}; let the owner of the table type {sql}", e.message), ..e })
            }
            Err(e) => Err(e),
        };
    };
    let is = |index: usize| row.get(index).is_some_and(|flag| flag.as_deref() == Some("t"));
    let has = |(index, operation): (usize, &ChangeOperation)| is(index) == settings.wants(*operation);
    let has_more = |(index, operation): (usize, &ChangeOperation)| is(index) || !settings.wants(*operation);
    let mut all = ChangeOperation::ALL.iter().enumerate();
    match settings.owns_publication {
        true if is(3) && all.all(has) => Ok(()),
        true => {
            // one statement at a time, because together they would be one transaction
            wire.query(&format!("ALTER PUBLICATION {quoted} SET TABLE {table}")).await?;
            wire.query(&format!("ALTER PUBLICATION {quoted} SET (publish = '{published}')")).await?;
            Ok(())
        }
        false if !is(3) => Err(DbError::invalid(format!(
            "the publication `{name}` does not have the table `{}`; type ALTER PUBLICATION {quoted} ADD TABLE {table}",
            settings.table
        ))),
        false if !all.all(has_more) => Err(DbError::invalid(format!(
            "the publication `{name}` does not have all of {published}; type ALTER PUBLICATION {quoted} SET (publish = \
             '{published}')"
        ))),
        false => Ok(()),
    }
}

/// Returns the position that a slot has confirmed, if there is such a slot.
///
/// Errors: those of the server; the slot is of another kind or in another database.
pub(super) async fn find_slot(wire: &mut Wire, name: &str) -> Result<Option<u64>, DbError> {
    let sql = format!(
        "SELECT confirmed_flush_lsn, coalesce(plugin, 'physical'), database = current_database() \
         FROM pg_replication_slots WHERE slot_name = {}",
        literal(name)
    );
    let rows = wire.query(&sql).await?;
    let Some([position, plugin, is_here]) = rows.first().map(Vec::as_slice) else { return Ok(None) };
    if plugin.as_deref() != Some("pgoutput") || is_here.as_deref() != Some("t") {
        return Err(DbError::invalid(format!(
            "the replication slot `{name}` belongs to another database or plug-in (`{}`); expected `pgoutput`; write another \
             `slot.name`",
            plugin.as_deref().unwrap_or_default()
        )));
    }
    Ok(Some(position.as_deref().and_then(parse_lsn).unwrap_or_default()))
}

/// Creates a slot, in a transaction that sees the tables as they are at its position, and returns the position. The server
/// waits until no transaction is open that began before.
///
/// Errors: those of the server.
pub(super) async fn create_slot(wire: &mut Wire, name: &str, is_temporary: bool) -> Result<u64, DbError> {
    let temporary = if is_temporary { " TEMPORARY" } else { "" };
    wire.query("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ").await?;
    let sql = format!("CREATE_REPLICATION_SLOT {}{temporary} LOGICAL pgoutput USE_SNAPSHOT", quote(name));
    let rows = wire.query(&sql).await?;
    let position = rows.first().and_then(|row| row.get(1).cloned().flatten());
    position
        .and_then(|text| parse_lsn(&text))
        .ok_or_else(|| DbError::unavailable("the server did not say where the replication slot begins"))
}

/// Drops a slot that is not in use.
///
/// Errors: those of the server.
pub(super) async fn drop_slot(wire: &mut Wire, name: &str) -> Result<(), DbError> {
    wire.query(&format!("DROP_REPLICATION_SLOT {}", quote(name))).await.map(drop)
}

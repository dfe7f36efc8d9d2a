//! Databases, schemas, roles, settings and sessions.

use arrow::array::RecordBatch;
use datafusion::common::Result;
use tidemill_database::StatementPhase;

use crate::pg_catalog::definitions::Definition;
use crate::pg_catalog::objects::{DATABASE_OID, OWNER_OID, Objects};
use crate::pg_catalog::rows::{Cell, Rows};
use crate::schema_name::CATALOG;

/// Oid of the only tablespace.
pub(in crate::pg_catalog) const TABLESPACE: i64 = 1663;
pub(in crate::pg_catalog) const TABLESPACE_NAME: &str = "pg_default";
/// Number of UTF-8 among PostgreSQL's encodings.
const UTF8: i64 = 6;

pub(super) fn access_methods(definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["oid", "amname", "amtype"]);
    rows.push([Cell::Int(2), "heap".into(), "t".into()]);
    rows.push([Cell::Int(403), "btree".into(), "i".into()]);
    rows.finish()
}

pub(super) fn languages(definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["oid", "lanname", "lanowner"]);
    rows.push([Cell::Int(12), "internal".into(), OWNER_OID.into()]);
    rows.finish()
}

/// Returns `pg_collation`: texts are compared by their bytes.
pub(super) fn collations(definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "oid",
            "collname",
            "collnamespace",
            "collowner",
            "collprovider",
            "collisdeterministic",
            "collencoding",
            "collcollate",
            "collctype",
        ],
    );
    for (oid, name, provider, locale) in
        [(100, "default", "d", None), (950, "C", "c", Some("C")), (951, "POSIX", "c", Some("POSIX"))]
    {
        rows.push([
            Cell::Int(oid),
            name.into(),
            Cell::Int(11),
            OWNER_OID.into(),
            provider.into(),
            true.into(),
            Cell::Int(-1),
            locale.into(),
            locale.into(),
        ]);
    }
    rows.finish()
}

pub(super) fn databases(definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "oid",
            "datname",
            "datdba",
            "encoding",
            "datlocprovider",
            "datallowconn",
            "datconnlimit",
            "dattablespace",
            "datcollate",
            "datctype",
        ],
    );
    rows.push([
        DATABASE_OID.into(),
        CATALOG.into(),
        OWNER_OID.into(),
        Cell::Int(UTF8),
        "c".into(),
        true.into(),
        Cell::Int(-1),
        Cell::Int(TABLESPACE),
        "C".into(),
        "C".into(),
    ]);
    rows.finish()
}

pub(super) fn tablespaces(definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["oid", "spcname", "spcowner"]);
    rows.push([Cell::Int(TABLESPACE), TABLESPACE_NAME.into(), OWNER_OID.into()]);
    rows.finish()
}

pub(super) fn namespaces(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["oid", "nspname", "nspowner"]);
    for schema in objects.schemas() {
        rows.push([schema.oid.into(), schema.name.into(), OWNER_OID.into()]);
    }
    rows.finish()
}

/// Returns `pg_roles`, `pg_authid` or `pg_user`: the administrator and the caller.
pub(super) fn roles(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let all = objects.roles();
    if definition.name == "pg_user" {
        let mut rows = Rows::new(definition, ["usename", "usesysid", "usesuper", "passwd"]);
        for (oid, name, is_administrator) in all {
            rows.push([name.to_owned().into(), oid.into(), is_administrator.into(), "********".into()]);
        }
        return rows.finish();
    }
    let mut rows =
        Rows::new(definition, ["oid", "rolname", "rolsuper", "rolinherit", "rolcanlogin", "rolconnlimit"]);
    for (oid, name, is_administrator) in all {
        rows.push([
            oid.into(),
            name.to_owned().into(),
            is_administrator.into(),
            true.into(),
            true.into(),
            Cell::Int(-1),
        ]);
    }
    rows.finish()
}

pub(super) fn settings(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "name",
            "setting",
            "category",
            "context",
            "vartype",
            "source",
            "boot_val",
            "reset_val",
            "pending_restart",
        ],
    );
    for setting in objects.session.iter().flat_map(|session| &session.settings) {
        let is_default = setting.default.as_ref() == Some(&setting.value);
        rows.push([
            setting.name.clone().into(),
            setting.value.clone().into(),
            "Session".into(),
            "user".into(),
            "string".into(),
            Cell::from(if is_default { "default" } else { "session" }),
            setting.default.clone().into(),
            setting.default.clone().into(),
            false.into(),
        ]);
    }
    rows.finish()
}

/// Returns `pg_stat_activity`: the statements that run, of those that the caller manages. Their numbers are those of
/// `KILL QUERY`.
pub(super) fn activity(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "datid",
            "datname",
            "pid",
            "usename",
            "application_name",
            "query_start",
            "state_change",
            "state",
            "query",
            "backend_type",
        ],
    );
    for statement in objects.statements() {
        if !StatementPhase::BEFORE_END.contains(&statement.phase) {
            continue;
        }
        rows.push([
            DATABASE_OID.into(),
            CATALOG.into(),
            Cell::Int(i64::try_from(statement.id).unwrap_or(i64::MAX)),
            statement.caller.into(),
            statement.origin.into(),
            Cell::Time(statement.started.0),
            Cell::Time(statement.started.0),
            "active".into(),
            statement.text.into(),
            "client backend".into(),
        ]);
    }
    rows.finish()
}

/// Returns `pg_stat_gssapi` for the session of the statement, which has no GSSAPI.
pub(super) fn encryption(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["pid", "gss_authenticated", "encrypted"]);
    if let Some(session) = &objects.session {
        rows.push([session.process.into(), false.into(), false.into()]);
    }
    rows.finish()
}

//! `information_schema`: the catalogs of the SQL standard.

use arrow::array::RecordBatch;
use datafusion::common::{Result, internal_err};
use tidemill_types::column;

use crate::error::to_datafusion;
use crate::pg_catalog::column_type::type_of;
use crate::pg_catalog::definitions::{self, Definition, TypeDefinition};
use crate::pg_catalog::functions::{may_change, sql_type};
use crate::pg_catalog::objects::{OWNER, Objects, PG_CATALOG, Relation};
use crate::pg_catalog::rows::{Cell, Rows};
use crate::schema_name::CATALOG;

/// Returns the rows of a catalog of the standard.
///
/// Errors: those of the owner of the data; internal: there is no such catalog.
pub(super) async fn rows(
    objects: &Objects,
    definition: &'static Definition,
    name: &str,
) -> Result<RecordBatch> {
    match name {
        "applicable_roles" => Rows::new(definition, ["grantee"]).finish(),
        "column_privileges" => column_privileges(objects, definition).await,
        "columns" => columns(objects, definition).await,
        "constraint_column_usage" => column_usage(objects, definition),
        "constraint_table_usage" => table_usage(objects, definition),
        "enabled_roles" => {
            let mut rows = Rows::new(definition, ["role_name"]);
            rows.push([objects.principal.name().to_owned().into()]);
            rows.finish()
        }
        "information_schema_catalog_name" => {
            let mut rows = Rows::new(definition, ["catalog_name"]);
            rows.push([CATALOG.into()]);
            rows.finish()
        }
        "key_column_usage" => key_columns(objects, definition),
        "role_table_grants" | "table_privileges" => table_privileges(objects, definition),
        "character_sets" => {
            let mut rows = Rows::new(
                definition,
                [
                    "character_set_name",
                    "character_repertoire",
                    "form_of_use",
                    "default_collate_catalog",
                    "default_collate_schema",
                    "default_collate_name",
                ],
            );
            rows.push([
                "UTF8".into(),
                "UCS".into(),
                "UTF8".into(),
                CATALOG.into(),
                PG_CATALOG.into(),
                "C".into(),
            ]);
            rows.finish()
        }
        "schemata" => {
            let mut rows = Rows::new(definition, ["catalog_name", "schema_name", "schema_owner"]);
            for schema in objects.schemas() {
                rows.push([CATALOG.into(), schema.name.into(), OWNER.into()]);
            }
            rows.finish()
        }
        "table_constraints" => table_constraints(objects, definition),
        "tables" => tables(objects, definition),
        "views" => {
            let mut rows =
                Rows::new(definition, ["table_catalog", "table_schema", "table_name", "check_option"]);
            for relation in objects.relations().iter().filter(|relation| relation.kind == "v") {
                rows.push([
                    CATALOG.into(),
                    relation.schema.into(),
                    relation.name.clone().into(),
                    "NONE".into(),
                ]);
            }
            rows.finish()
        }
        other => internal_err!("{other} has no rows"),
    }
}

fn yes_or_no(value: bool) -> Cell {
    if value { "YES".into() } else { "NO".into() }
}

fn tables(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        ["table_catalog", "table_schema", "table_name", "table_type", "is_insertable_into", "is_typed"],
    );
    for relation in objects.relations() {
        rows.push([
            CATALOG.into(),
            relation.schema.into(),
            relation.name.clone().into(),
            Cell::from(if relation.kind == "v" { "VIEW" } else { "BASE TABLE" }),
            yes_or_no(may_change(objects, relation)),
            "NO".into(),
        ]);
    }
    rows.finish()
}

/// Returns precision, radix and scale of numbers of a type.
fn numeric(ty: &TypeDefinition, modifier: i64) -> (Option<i64>, Option<i64>, Option<i64>) {
    match ty.name {
        "int2" => (Some(16), Some(2), Some(0)),
        "int4" => (Some(32), Some(2), Some(0)),
        "int8" => (Some(64), Some(2), Some(0)),
        "float4" => (Some(24), Some(2), None),
        "float8" => (Some(53), Some(2), None),
        "numeric" if modifier >= 4 => (Some((modifier - 4) >> 16), Some(10), Some((modifier - 4) & 0xffff)),
        "numeric" => (None, Some(10), None),
        _ => (None, None, None),
    }
}

/// Returns whether `UPDATE` may set a column.
fn is_updatable(relation: &Relation, name: &str) -> bool {
    relation.schema == "events"
        && (name == column::EXTRA || !relation.column_comments.iter().any(|(commented, _)| commented == name))
}

async fn columns(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "ordinal_position",
            "is_nullable",
            "data_type",
            "character_octet_length",
            "numeric_precision",
            "numeric_precision_radix",
            "numeric_scale",
            "datetime_precision",
            "udt_catalog",
            "udt_schema",
            "udt_name",
            "dtd_identifier",
            "is_self_referencing",
            "is_identity",
            "identity_cycle",
            "is_generated",
            "is_updatable",
        ],
    );
    for relation in objects.relations() {
        let columns = objects.columns(relation).await.map_err(to_datafusion)?;
        for (at, field) in columns.fields().iter().enumerate() {
            let (oid, modifier) = type_of(field);
            let Some(ty) = definitions::type_of_oid(oid) else { continue };
            let (precision, radix, scale) = numeric(ty, modifier);
            let is_list = ty.category == "A" && ty.element != 0;
            let octets = matches!(ty.name, "text" | "varchar" | "bpchar").then_some(1_i64 << 30);
            let times = match ty.name {
                "date" => Some(0_i64),
                "time" | "timestamp" | "timestamptz" | "interval" => Some(6),
                _ => None,
            };
            rows.push([
                CATALOG.into(),
                relation.schema.into(),
                relation.name.clone().into(),
                field.name().clone().into(),
                (at + 1).into(),
                yes_or_no(field.is_nullable()),
                if is_list { "ARRAY".into() } else { sql_type(ty, -1).into() },
                octets.into(),
                precision.into(),
                radix.into(),
                scale.into(),
                times.into(),
                CATALOG.into(),
                "pg_catalog".into(),
                ty.name.into(),
                (at + 1).to_string().into(),
                "NO".into(),
                "NO".into(),
                "NO".into(),
                "NEVER".into(),
                yes_or_no(is_updatable(relation, field.name())),
            ]);
        }
    }
    rows.finish()
}

fn table_constraints(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "constraint_type",
            "is_deferrable",
            "initially_deferred",
            "enforced",
            "nulls_distinct",
        ],
    );
    for relation in objects.relations() {
        for constraint in &relation.constraints {
            rows.push([
                CATALOG.into(),
                relation.schema.into(),
                constraint.name.clone().into(),
                CATALOG.into(),
                relation.schema.into(),
                relation.name.clone().into(),
                Cell::from(if constraint.is_primary { "PRIMARY KEY" } else { "UNIQUE" }),
                "NO".into(),
                "NO".into(),
                "YES".into(),
                Cell::from((!constraint.is_primary).then_some("YES")),
            ]);
        }
    }
    rows.finish()
}

fn key_columns(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "ordinal_position",
        ],
    );
    for relation in objects.relations() {
        for constraint in &relation.constraints {
            for (at, name) in constraint.columns.iter().enumerate() {
                rows.push([
                    CATALOG.into(),
                    relation.schema.into(),
                    constraint.name.clone().into(),
                    CATALOG.into(),
                    relation.schema.into(),
                    relation.name.clone().into(),
                    name.clone().into(),
                    (at + 1).into(),
                ]);
            }
        }
    }
    rows.finish()
}

fn column_usage(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
        ],
    );
    for relation in objects.relations() {
        for constraint in &relation.constraints {
            for name in &constraint.columns {
                rows.push([
                    CATALOG.into(),
                    relation.schema.into(),
                    relation.name.clone().into(),
                    name.clone().into(),
                    CATALOG.into(),
                    relation.schema.into(),
                    constraint.name.clone().into(),
                ]);
            }
        }
    }
    rows.finish()
}

fn table_usage(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "table_catalog",
            "table_schema",
            "table_name",
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
        ],
    );
    for relation in objects.relations() {
        for constraint in &relation.constraints {
            rows.push([
                CATALOG.into(),
                relation.schema.into(),
                relation.name.clone().into(),
                CATALOG.into(),
                relation.schema.into(),
                constraint.name.clone().into(),
            ]);
        }
    }
    rows.finish()
}

/// Returns what the caller may do with a table.
fn privileges(objects: &Objects, relation: &Relation) -> Vec<&'static str> {
    match may_change(objects, relation) {
        true => vec!["INSERT", "SELECT", "UPDATE", "DELETE"],
        false => vec!["SELECT"],
    }
}

fn table_privileges(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "grantor",
            "grantee",
            "table_catalog",
            "table_schema",
            "table_name",
            "privilege_type",
            "is_grantable",
            "with_hierarchy",
        ],
    );
    for relation in objects.relations() {
        for privilege in privileges(objects, relation) {
            rows.push([
                OWNER.into(),
                objects.principal.name().to_owned().into(),
                CATALOG.into(),
                relation.schema.into(),
                relation.name.clone().into(),
                privilege.into(),
                "NO".into(),
                yes_or_no(privilege == "SELECT"),
            ]);
        }
    }
    rows.finish()
}

async fn column_privileges(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "grantor",
            "grantee",
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "privilege_type",
            "is_grantable",
        ],
    );
    for relation in objects.relations() {
        let columns = objects.columns(relation).await.map_err(to_datafusion)?;
        for field in columns.fields() {
            let may_change = may_change(objects, relation);
            let insert = (may_change && !field.name().starts_with('_')).then_some("INSERT");
            let update = (may_change && is_updatable(relation, field.name())).then_some("UPDATE");
            for privilege in insert.into_iter().chain(["SELECT"]).chain(update) {
                rows.push([
                    OWNER.into(),
                    objects.principal.name().to_owned().into(),
                    CATALOG.into(),
                    relation.schema.into(),
                    relation.name.clone().into(),
                    field.name().clone().into(),
                    privilege.into(),
                    "NO".into(),
                ]);
            }
        }
    }
    rows.finish()
}

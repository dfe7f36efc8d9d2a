//! Relations, their columns, constraints, indexes and comments.

use arrow::array::RecordBatch;
use datafusion::common::Result;

use super::Wanted;
use crate::error::to_datafusion;
use crate::pg_catalog::column_type::type_of;
use crate::pg_catalog::definitions::{self, Definition};
use crate::pg_catalog::functions::index_definition;
use crate::pg_catalog::objects::{Constraint, OWNER, OWNER_OID, Objects, Relation};
use crate::pg_catalog::rows::{Cell, Rows};

/// Oids of the access methods of tables and of indexes.
const HEAP: i64 = 2;
const BTREE: i64 = 403;
/// Oids of `pg_class` and `pg_namespace`.
const CLASS: i64 = 1259;
const NAMESPACE: i64 = 2615;

/// Returns `pg_class`: tables, views, and the indexes of constraints.
pub(super) async fn classes(
    objects: &Objects,
    definition: &'static Definition,
    wanted: &Wanted,
) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "oid",
            "relname",
            "relnamespace",
            "relowner",
            "relam",
            "relfilenode",
            "reltuples",
            "relhasindex",
            "relpersistence",
            "relkind",
            "relnatts",
            "relispopulated",
            "relreplident",
        ],
    );
    for relation in objects.relations() {
        let is_table = relation.kind == "r";
        let columns = match wanted.column("relnatts") {
            true => objects.columns(relation).await.map_err(to_datafusion)?.fields().len(),
            false => 0,
        };
        rows.push([
            relation.oid.into(),
            relation.name.clone().into(),
            relation.schema_oid.into(),
            OWNER_OID.into(),
            Cell::Int(if is_table { HEAP } else { 0 }),
            Cell::Int(if is_table { relation.oid.into() } else { 0 }),
            Cell::Int(-1),
            (!relation.constraints.is_empty()).into(),
            "p".into(),
            relation.kind.into(),
            columns.into(),
            true.into(),
            Cell::from(if relation.is_catalog() { "n" } else { "d" }),
        ]);
        for constraint in &relation.constraints {
            rows.push([
                constraint.index.into(),
                constraint.name.clone().into(),
                relation.schema_oid.into(),
                OWNER_OID.into(),
                Cell::Int(BTREE),
                constraint.index.into(),
                Cell::Int(-1),
                false.into(),
                "p".into(),
                "i".into(),
                constraint.columns.len().into(),
                true.into(),
                "n".into(),
            ]);
        }
    }
    rows.finish()
}

/// Returns `pg_attribute`: the columns of relations and of indexes.
pub(super) async fn attributes(
    objects: &Objects,
    definition: &'static Definition,
    wanted: &Wanted,
) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "attrelid",
            "attname",
            "atttypid",
            "attstattarget",
            "attlen",
            "attnum",
            "attndims",
            "attcacheoff",
            "atttypmod",
            "attbyval",
            "attalign",
            "attstorage",
            "attnotnull",
            "attislocal",
            "attcollation",
        ],
    );
    for relation in objects.relations() {
        let is_wanted = wanted.relation(relation.oid)
            || relation.constraints.iter().any(|constraint| wanted.relation(constraint.index));
        if !is_wanted {
            continue;
        }
        let columns = objects.columns(relation).await.map_err(to_datafusion)?;
        let mut push = |oid: u32, at: usize, name: &str| {
            let Ok(field) = columns.field_with_name(name) else { return };
            let (type_oid, modifier) = type_of(field);
            let Some(ty) = definitions::type_of_oid(type_oid) else { return };
            rows.push([
                oid.into(),
                name.to_owned().into(),
                type_oid.into(),
                Cell::Int(-1),
                Cell::Int(ty.length),
                (at + 1).into(),
                Cell::Int((ty.element != 0 && ty.category == "A").into()),
                Cell::Int(-1),
                Cell::Int(modifier),
                ty.is_by_value.into(),
                ty.alignment.into(),
                ty.storage.into(),
                (!field.is_nullable() && oid == relation.oid).into(),
                true.into(),
                ty.collation.into(),
            ]);
        };
        if wanted.relation(relation.oid) {
            for (at, field) in columns.fields().iter().enumerate() {
                push(relation.oid, at, field.name());
            }
        }
        for constraint in relation.constraints.iter().filter(|constraint| wanted.relation(constraint.index)) {
            for (at, name) in constraint.columns.iter().enumerate() {
                push(constraint.index, at, name);
            }
        }
    }
    rows.finish()
}

/// Returns the numbers of the columns of a constraint.
async fn column_numbers(objects: &Objects, relation: &Relation, constraint: &Constraint) -> Result<Vec<i64>> {
    let columns = objects.columns(relation).await.map_err(to_datafusion)?;
    let number = |name: &String| columns.index_of(name).ok().and_then(|at| i64::try_from(at + 1).ok());
    Ok(constraint.columns.iter().filter_map(number).collect())
}

/// Returns `pg_index`.
pub(super) async fn indexes(
    objects: &Objects,
    definition: &'static Definition,
    wanted: &Wanted,
) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "indexrelid",
            "indrelid",
            "indnatts",
            "indnkeyatts",
            "indisunique",
            "indisprimary",
            "indimmediate",
            "indisvalid",
            "indisready",
            "indislive",
            "indkey",
            "indcollation",
            "indclass",
            "indoption",
        ],
    );
    for relation in objects.relations() {
        for constraint in &relation.constraints {
            let count = constraint.columns.len();
            let numbers = match wanted.column("indkey") {
                true => column_numbers(objects, relation, constraint).await?,
                false => vec![],
            };
            rows.push([
                constraint.index.into(),
                relation.oid.into(),
                count.into(),
                count.into(),
                true.into(),
                constraint.is_primary.into(),
                true.into(),
                true.into(),
                true.into(),
                true.into(),
                numbers.into(),
                vec![0; count].into(),
                vec![0; count].into(),
                vec![0; count].into(),
            ]);
        }
    }
    rows.finish()
}

/// Returns `pg_constraint`.
pub(super) async fn constraints(
    objects: &Objects,
    definition: &'static Definition,
    wanted: &Wanted,
) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "oid",
            "conname",
            "connamespace",
            "contype",
            "convalidated",
            "conrelid",
            "conindid",
            "confupdtype",
            "confdeltype",
            "confmatchtype",
            "conislocal",
            "connoinherit",
            "conkey",
        ],
    );
    for relation in objects.relations() {
        for constraint in &relation.constraints {
            let numbers = match wanted.column("conkey") {
                true => column_numbers(objects, relation, constraint).await?,
                false => vec![],
            };
            rows.push([
                constraint.oid.into(),
                constraint.name.clone().into(),
                relation.schema_oid.into(),
                constraint.kind().into(),
                true.into(),
                relation.oid.into(),
                constraint.index.into(),
                " ".into(),
                " ".into(),
                " ".into(),
                true.into(),
                true.into(),
                numbers.into(),
            ]);
        }
    }
    rows.finish()
}

/// Returns `pg_description`: comments of schemas, relations and columns.
pub(super) async fn descriptions(
    objects: &Objects,
    definition: &'static Definition,
    _: &Wanted,
) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["objoid", "classoid", "objsubid", "description"]);
    for schema in objects.schemas() {
        rows.push([schema.oid.into(), Cell::Int(NAMESPACE), Cell::Int(0), schema.comment.into()]);
    }
    for relation in objects.relations() {
        if let Some(comment) = &relation.comment {
            rows.push([relation.oid.into(), Cell::Int(CLASS), Cell::Int(0), comment.clone().into()]);
        }
        if relation.column_comments.is_empty() {
            continue;
        }
        let columns = objects.columns(relation).await.map_err(to_datafusion)?;
        for (name, comment) in &relation.column_comments {
            let Ok(at) = columns.index_of(name) else { continue };
            rows.push([relation.oid.into(), Cell::Int(CLASS), (at + 1).into(), (*comment).into()]);
        }
    }
    rows.finish()
}

/// Returns `pg_tables`.
pub(super) fn tables(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        ["schemaname", "tablename", "tableowner", "hasindexes", "hasrules", "hastriggers", "rowsecurity"],
    );
    for relation in objects.relations().iter().filter(|relation| relation.kind == "r") {
        rows.push([
            relation.schema.into(),
            relation.name.clone().into(),
            OWNER.into(),
            (!relation.constraints.is_empty()).into(),
            false.into(),
            false.into(),
            false.into(),
        ]);
    }
    rows.finish()
}

/// Returns `pg_views`.
pub(super) fn views(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["schemaname", "viewname", "viewowner"]);
    for relation in objects.relations().iter().filter(|relation| relation.kind == "v") {
        rows.push([relation.schema.into(), relation.name.clone().into(), OWNER.into()]);
    }
    rows.finish()
}

/// Returns `pg_indexes`.
pub(super) fn index_definitions(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["schemaname", "tablename", "indexname", "indexdef"]);
    for relation in objects.relations() {
        for constraint in &relation.constraints {
            rows.push([
                relation.schema.into(),
                relation.name.clone().into(),
                constraint.name.clone().into(),
                index_definition(relation, constraint).into(),
            ]);
        }
    }
    rows.finish()
}

/// Returns `pg_stat_user_tables`: the number of rows of each table. What is not counted here is null.
pub(super) fn row_counts(
    objects: &Objects,
    definition: &'static Definition,
    wanted: &Wanted,
) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["relid", "schemaname", "relname", "n_live_tup", "n_dead_tup"]);
    for relation in objects.relations().iter().filter(|relation| !relation.is_catalog()) {
        let count = match wanted.column("n_live_tup") {
            true => objects.row_count(relation).map_err(to_datafusion)?,
            false => 0,
        };
        rows.push([
            relation.oid.into(),
            relation.schema.into(),
            relation.name.clone().into(),
            Cell::Int(count),
            Cell::Int(0),
        ]);
    }
    rows.finish()
}

//! Types and functions.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use datafusion::common::Result;

use crate::pg_catalog::definitions::{self, Definition};
use crate::pg_catalog::objects::{FunctionKind, OWNER_OID, Objects, PG_CATALOG_OID};
use crate::pg_catalog::oid::Oids;
use crate::pg_catalog::rows::{Cell, Rows};

/// Oid of the type `"any"`.
const ANY: i64 = 2276;
/// Oid of the language of built-in functions.
const INTERNAL: i64 = 12;

pub(super) fn types(definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "oid",
            "typname",
            "typnamespace",
            "typowner",
            "typlen",
            "typbyval",
            "typtype",
            "typcategory",
            "typispreferred",
            "typisdefined",
            "typdelim",
            "typelem",
            "typarray",
            "typinput",
            "typoutput",
            "typreceive",
            "typsend",
            "typalign",
            "typstorage",
            "typtypmod",
            "typcollation",
        ],
    );
    for ty in definitions::types() {
        let [input, output, receive, send] = ty.functions.map(|(_, oid)| Cell::from(oid));
        rows.push([
            ty.oid.into(),
            ty.name.into(),
            PG_CATALOG_OID.into(),
            OWNER_OID.into(),
            Cell::Int(ty.length),
            ty.is_by_value.into(),
            ty.kind.into(),
            ty.category.into(),
            ty.is_preferred.into(),
            true.into(),
            ty.delimiter.into(),
            ty.element.into(),
            ty.list.into(),
            input,
            output,
            receive,
            send,
            ty.alignment.into(),
            ty.storage.into(),
            Cell::Int(-1),
            ty.collation.into(),
        ]);
    }
    rows.finish()
}

/// A function as catalogs list it.
pub(in crate::pg_catalog) struct FunctionRow {
    pub oid: u32,
    pub name: String,
    pub kind: FunctionKind,
}

/// Returns the functions of SQL, and those that read and write the values of types, by name.
pub(in crate::pg_catalog) fn function_rows(functions: &[(String, FunctionKind)]) -> Vec<FunctionRow> {
    let mut own: BTreeMap<&str, u32> = BTreeMap::new();
    for (name, oid) in definitions::types().iter().flat_map(|ty| ty.functions) {
        if oid != 0 {
            own.insert(name, oid);
        }
    }
    let mut oids = Oids::default();
    let of_types = own.into_iter().map(|(name, oid)| FunctionRow {
        oid,
        name: name.to_owned(),
        kind: FunctionKind::Scalar,
    });
    let of_sql = functions.iter().map(|(name, kind)| FunctionRow {
        oid: oids.give("function", "", name),
        name: name.clone(),
        kind: *kind,
    });
    of_sql.collect::<Vec<_>>().into_iter().chain(of_types).collect()
}

/// Returns `pg_proc`. The functions of SQL take arguments of many types, so all are described as those of any.
pub(super) fn functions(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(
        definition,
        [
            "oid",
            "proname",
            "pronamespace",
            "proowner",
            "prolang",
            "procost",
            "provariadic",
            "prokind",
            "provolatile",
            "proparallel",
            "pronargs",
            "prorettype",
            "proargtypes",
            "prosrc",
        ],
    );
    for function in &objects.function_rows().all {
        let kind = match function.kind {
            FunctionKind::Scalar => "f",
            FunctionKind::Aggregate => "a",
            FunctionKind::Window => "w",
        };
        rows.push([
            function.oid.into(),
            function.name.clone().into(),
            PG_CATALOG_OID.into(),
            OWNER_OID.into(),
            Cell::Int(INTERNAL),
            Cell::Int(1),
            Cell::Int(ANY),
            kind.into(),
            "s".into(),
            "s".into(),
            Cell::Int(1),
            Cell::Int(ANY),
            vec![ANY].into(),
            function.name.clone().into(),
        ]);
    }
    rows.finish()
}

pub(super) fn aggregates(objects: &Objects, definition: &'static Definition) -> Result<RecordBatch> {
    let mut rows = Rows::new(definition, ["aggfnoid", "aggkind", "aggtranstype"]);
    for function in &objects.function_rows().all {
        if function.kind == FunctionKind::Aggregate {
            rows.push([function.oid.into(), "n".into(), Cell::Int(ANY)]);
        }
    }
    rows.finish()
}

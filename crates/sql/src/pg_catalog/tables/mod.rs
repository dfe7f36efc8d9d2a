//! Rows of the catalogs that have some, one function for each.

mod operators;
mod relations;
mod server;
mod standard;
mod types;

use arrow::array::RecordBatch;
use datafusion::common::Result;

use super::definitions::Definition;
use super::objects::Objects;
use super::rows;

pub(super) use operators::written_operators;
pub(super) use server::{TABLESPACE, TABLESPACE_NAME};
pub(super) use types::{FunctionRow, function_rows};

/// Columns and relations that a statement asks for, as far as it saves work.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Columns; `None` for all.
    pub columns: Option<Vec<String>>,
    /// Relations of whose columns rows are wanted; `None` for all.
    pub relations: Option<Vec<i64>>,
}

impl Wanted {
    /// Returns whether a column is wanted.
    fn column(&self, name: &str) -> bool {
        self.columns.as_ref().is_none_or(|columns| columns.iter().any(|column| column == name))
    }

    /// Returns whether rows of a relation are wanted.
    fn relation(&self, oid: u32) -> bool {
        self.relations.as_ref().is_none_or(|relations| relations.contains(&oid.into()))
    }
}

/// Column of a catalog by which rows of few relations are wanted.
pub(super) fn relation_column(definition: &Definition) -> Option<&'static str> {
    (definition.oid == ATTRIBUTE).then_some("attrelid")
}

const ATTRIBUTE: u32 = 1249;

/// Returns the rows of a catalog.
///
/// Errors: those of the owner of the data.
pub(super) async fn rows(
    objects: &Objects,
    definition: &'static Definition,
    wanted: &Wanted,
) -> Result<RecordBatch> {
    match (definition.schema, definition.name) {
        _ if definition.is_empty => Ok(rows::none(definition)),
        (_, "pg_aggregate") => types::aggregates(objects, definition),
        (_, "pg_am") => server::access_methods(definition),
        (_, "pg_attribute") => relations::attributes(objects, definition, wanted).await,
        (_, "pg_authid" | "pg_roles" | "pg_user") => server::roles(objects, definition),
        (_, "pg_cast") => operators::casts(definition),
        (_, "pg_class") => relations::classes(objects, definition, wanted).await,
        (_, "pg_collation") => server::collations(definition),
        (_, "pg_constraint") => relations::constraints(objects, definition, wanted).await,
        (_, "pg_database") => server::databases(definition),
        (_, "pg_description") => relations::descriptions(objects, definition, wanted).await,
        (_, "pg_index") => relations::indexes(objects, definition, wanted).await,
        (_, "pg_indexes") => relations::index_definitions(objects, definition),
        (_, "pg_language") => server::languages(definition),
        (_, "pg_namespace") => server::namespaces(objects, definition),
        (_, "pg_operator") => operators::operators(definition),
        (_, "pg_proc") => types::functions(objects, definition),
        (_, "pg_settings") => server::settings(objects, definition),
        (_, "pg_stat_activity") => server::activity(objects, definition),
        (_, "pg_stat_gssapi") => server::encryption(objects, definition),
        (_, "pg_stat_user_tables") => relations::row_counts(objects, definition, wanted),
        (_, "pg_tables") => relations::tables(objects, definition),
        (_, "pg_tablespace") => server::tablespaces(definition),
        (_, "pg_type") => types::types(definition),
        (_, "pg_views") => relations::views(objects, definition),
        (_, name) => standard::rows(objects, definition, name).await,
    }
}

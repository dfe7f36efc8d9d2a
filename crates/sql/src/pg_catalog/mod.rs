//! PostgreSQL's catalogs, `pg_catalog` and `information_schema`, over the objects that a caller may read.
//!
//! ```text
//! \d events."Reading" ─▶ rewrite: OPERATOR(…), ::regclass, ARRAY(SELECT …) in other words
//!                     ─▶ provider: pg_class, pg_attribute … as tables; tables: their rows, made when they are scanned
//!                     ─▶ functions: format_type, pg_table_is_visible … over the same objects
//!                            objects: schemas, relations, columns, constraints with their oids
//!                            definitions: names and columns of the catalogs, PostgreSQL's types
//! ```
//!
//! A statement that names nothing of this is planned as if the module did not exist.

mod column_type;
mod declared;
mod definitions;
mod functions;
mod objects;
mod oid;
mod provider;
mod quoting;
mod rewrite;
mod rows;
mod single_value;
mod tables;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result as PlanResult;
use datafusion::datasource::TableType;
use datafusion::execution::{FunctionRegistry, SessionState};
use tidemill_types::{Error, Result};

use provider::CatalogTable;

pub(crate) use functions::is_vector;
pub(crate) use objects::{FunctionKind, INFORMATION_SCHEMA, Objects, PG_CATALOG, relation_oids};
pub(crate) use rewrite::{Mentions, call, rewrite, without_marks};

/// Tables of `information_schema` that are DataFusion's: functions and settings of SQL.
const OF_DATAFUSION: [&str; 3] = ["routines", "parameters", "df_settings"];

/// Adds the functions of the catalogs to the state of a statement that names some.
pub(crate) fn register(state: &mut SessionState, objects: &Arc<Objects>) -> PlanResult<()> {
    functions::register(state, objects)?;
    state.register_udaf(Arc::new(single_value::single_value()))?;
    state.register_udtf(rewrite::KEYWORDS, Arc::new(functions::Keywords));
    Ok(())
}

/// Returns the functions of SQL, without aliases, by name.
pub(crate) fn functions_of(state: &SessionState) -> Vec<(String, FunctionKind)> {
    let scalar = state.scalar_functions().keys().map(|name| (name.clone(), FunctionKind::Scalar));
    let aggregate = state.aggregate_functions().keys().map(|name| (name.clone(), FunctionKind::Aggregate));
    let window = state.window_functions().keys().map(|name| (name.clone(), FunctionKind::Window));
    let own = functions::names().map(|name| (name.to_owned(), FunctionKind::Scalar));
    let mut all: Vec<(String, FunctionKind)> = scalar.chain(aggregate).chain(window).chain(own).collect();
    all.retain(|(name, _)| !name.starts_with("__"));
    all.sort_unstable();
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

/// Returns whether an unqualified name is that of a catalog.
pub(crate) fn is_catalog(name: &str) -> bool {
    definitions::find(PG_CATALOG, name).is_some()
}

/// Checks that a schema of the catalogs has a table.
///
/// Errors: `NotFound` with the nearest name.
pub(crate) fn check(schema: &str, name: &str) -> Result<()> {
    let is_of_datafusion = schema == INFORMATION_SCHEMA && OF_DATAFUSION.contains(&name);
    if is_of_datafusion || definitions::find(schema, name).is_some() {
        return Ok(());
    }
    Err(Error::not_found(format!(
        "there is no table `{schema}.{name}`: not all of PostgreSQL's catalogs exist here. Those that exist: \
         SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"
    )))
}

/// A schema of the catalogs.
#[derive(Debug)]
pub(crate) struct CatalogSchema {
    pub name: &'static str,
    pub objects: Arc<Objects>,
    /// DataFusion's tables of `information_schema`.
    pub others: Option<Arc<dyn SchemaProvider>>,
}

impl CatalogSchema {
    /// Returns a catalog by its name.
    pub fn catalog(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let definition = definitions::find(self.name, name)?;
        Some(Arc::new(CatalogTable { definition, objects: self.objects.clone() }))
    }
}

#[async_trait]
impl SchemaProvider for CatalogSchema {
    fn table_names(&self) -> Vec<String> {
        let own = definitions::all().iter().filter(|definition| definition.schema == self.name);
        own.map(|definition| definition.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.catalog(name) {
            return Ok(Some(table));
        }
        match &self.others {
            Some(others) if OF_DATAFUSION.contains(&name) => others.table(name).await,
            _ => Ok(None),
        }
    }

    async fn table_type(&self, name: &str) -> PlanResult<Option<TableType>> {
        Ok(self.catalog(name).map(|table| table.table_type()))
    }

    fn table_exist(&self, name: &str) -> bool {
        check(self.name, name).is_ok()
    }
}

//! Relational databases: PostgreSQL, MariaDB, MySQL, SQL Server, Oracle and SQLite.

mod data_source;
mod sink;
mod store;

use tidemill_connect::Catalog;

/// Adds sink and store, and the data sources of stream functions.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_sink(sink::RdbmsSinkType);
    catalog.add_store(store::RdbmsStoreType);
    catalog.set_data_sources(data_source::RdbmsDataSourceType);
}

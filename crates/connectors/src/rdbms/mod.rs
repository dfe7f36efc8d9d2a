//! Relational databases: PostgreSQL, MariaDB, MySQL and SQLite.

mod sink;
mod store;

use tidemill_connect::Catalog;

/// Adds sink and store.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_sink(sink::RdbmsSinkType);
    catalog.add_store(store::RdbmsStoreType);
}

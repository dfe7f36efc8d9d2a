//! Connectors to other systems, one folder for each.
//!
//! A connector implements [`tidemill_connect::SourceType`], [`tidemill_connect::SinkType`] or both; names and options are those
//! of SiddhiQL's connectors. [`catalog`] has all of them, with the mappers.

use tidemill_connect::Catalog;

/// Returns all connectors and mappers.
pub fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    tidemill_mappers::add_all(&mut catalog);
    catalog
}

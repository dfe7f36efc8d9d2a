//! Mappers: events from messages and messages from events, one module for each format.
//!
//! A mapper implements [`tidemill_connect::SourceMapper`], [`tidemill_connect::SinkMapper`] or both; names, options and
//! default forms are those of SiddhiQL's mappers. [`add_all`] adds them to a catalog.

mod json;

use tidemill_connect::Catalog;

/// Adds all mappers to a catalog.
pub fn add_all(catalog: &mut Catalog) {
    catalog.add_source_mapper(json::JsonSourceType).add_sink_mapper(json::JsonSinkType);
}

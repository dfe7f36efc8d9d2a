//! Redis: streams and channels as sources and sinks, and tables.

mod channels;
mod client;
mod entry;
mod group;
mod options;
mod sink;
mod source;
mod store;

use tidemill_connect::Catalog;

/// Adds the source, the sink and the store.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::RedisSourceType).add_sink(sink::RedisSinkType);
    catalog.add_store(store::RedisStoreType);
}

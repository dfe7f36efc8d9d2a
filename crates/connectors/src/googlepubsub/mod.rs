//! Google Cloud Pub/Sub by its REST interface: subscriptions as a source, topics as a sink.

mod account;
mod client;
mod sink;
mod source;

use tidemill_connect::Catalog;

/// Adds the source and the sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::PubSubSourceType).add_sink(sink::PubSubSinkType);
}

//! NATS: subjects, with and without JetStream, as sources and sinks.

mod client;
mod jetstream;
mod options;
mod sink;
mod source;

use tidemill_connect::Catalog;

/// Adds the source and the sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::NatsSourceType).add_sink(sink::NatsSinkType);
}

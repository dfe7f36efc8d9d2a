//! Apache Kafka: topics as sources, with one split per partition, and as sinks.

mod client;
mod limits;
mod new_topic;
mod positions;
mod sequence;
mod sink;
mod source;
mod transactions;

use tidemill_connect::Catalog;

/// Adds the source and the sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::KafkaSourceType).add_sink(sink::KafkaSinkType);
}

//! RabbitMQ, AMQP 0.9.1: queues as sources, exchanges as sinks.

mod client;
mod options;
mod properties;
mod rendering;
mod sink;
mod source;

use tidemill_connect::Catalog;

/// Adds the source and the sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::RabbitSourceType).add_sink(sink::RabbitSinkType);
}

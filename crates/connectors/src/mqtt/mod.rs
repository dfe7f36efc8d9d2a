//! MQTT 3.1.1 and 5: topics as sources and sinks.

mod client;
mod options;
mod sink;
mod source;

use tidemill_connect::Catalog;

/// Adds the source and the sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::MqttSourceType).add_sink(sink::MqttSinkType);
}

//! AMQP 1.0, which the brokers of JMS speak beside their own protocols: queues and topics as sources and sinks, under the names
//! `jms` and `ibmmq`.

mod address;
mod client;
mod ibmmq;
mod jms;
mod jndi;
mod message;
mod settings;
mod sink;
mod source;

use tidemill_connect::Catalog;

/// Adds the sources and the sinks.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog
        .add_source(jms::JmsSourceType)
        .add_sink(jms::JmsSinkType)
        .add_source(ibmmq::IbmMqSourceType)
        .add_sink(ibmmq::IbmMqSinkType);
}

//! Connectors to other systems, one folder for each.
//!
//! A connector implements [`tidemill_connect::SourceType`], [`tidemill_connect::SinkType`] or both; names and options are those
//! of SiddhiQL's connectors. [`catalog`] has all of them, with the mappers.

mod amqp;
mod cause;
mod cdc;
mod client_tls;
mod email;
mod fanout;
mod file;
mod googlepubsub;
mod grpc;
mod hl7;
mod http;
mod influxdb;
mod kafka;
mod logins;
mod mongodb;
mod mqtt;
mod nats;
mod object_store;
mod pairs;
mod ports;
mod prometheus;
mod property_text;
mod rabbitmq;
mod rdbms;
mod receipts;
mod redis;
mod routes;
mod shortened;
mod simulator;
mod snmp;
mod stores;
mod tcp;
mod tls;
mod unavailable;
mod waiting;
mod websocket;

use tidemill_connect::Catalog;

/// Returns all connectors and mappers.
pub fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    tidemill_mappers::add_all(&mut catalog);
    amqp::add(&mut catalog);
    cdc::add(&mut catalog);
    email::add(&mut catalog);
    file::add(&mut catalog);
    prometheus::add(&mut catalog);
    unavailable::add_all(&mut catalog);
    googlepubsub::add(&mut catalog);
    grpc::add(&mut catalog);
    hl7::add(&mut catalog);
    http::add(&mut catalog);
    influxdb::add(&mut catalog);
    kafka::add(&mut catalog);
    mongodb::add(&mut catalog);
    mqtt::add(&mut catalog);
    nats::add(&mut catalog);
    object_store::add(&mut catalog);
    rabbitmq::add(&mut catalog);
    rdbms::add(&mut catalog);
    redis::add(&mut catalog);
    simulator::add(&mut catalog);
    snmp::add(&mut catalog);
    tcp::add(&mut catalog);
    websocket::add(&mut catalog);
    catalog
}

//! Connectors to other systems, one folder for each.
//!
//! A connector implements [`tidemill_connect::SourceType`], [`tidemill_connect::SinkType`] or both; names and options are those
//! of SiddhiQL's connectors. [`catalog`] has all of them, with the mappers.

#[cfg(feature = "amqp")]
mod amqp;
mod cause;
#[cfg(feature = "databases")]
mod cdc;
#[cfg(any(
    feature = "amqp",
    feature = "grpc",
    feature = "mqtt",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "websocket"
))]
mod client_tls;
#[cfg(feature = "email")]
mod email;
mod fanout;
mod file;
mod googlepubsub;
#[cfg(feature = "grpc")]
mod grpc;
mod hl7;
mod http;
mod influxdb;
#[cfg(feature = "kafka")]
mod kafka;
mod logins;
#[cfg(feature = "mongodb-store")]
mod mongodb;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
mod object_store;
mod pairs;
mod ports;
mod prometheus;
mod property_text;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "databases")]
mod rdbms;
mod receipts;
#[cfg(feature = "redis")]
mod redis;
mod routes;
mod shortened;
mod simulator;
#[cfg(feature = "snmp")]
mod snmp;
mod stores;
mod tcp;
mod tls;
mod unavailable;
mod waiting;
#[cfg(feature = "websocket")]
mod websocket;

use tidemill_connect::Catalog;

/// Adds the connectors of a module, or, without its feature, notes what to build for their names.
macro_rules! add_with_feature {
    ($catalog:ident, $($feature:literal $module:ident [$($name:literal),+];)+) => {
        $(
            #[cfg(feature = $feature)]
            $module::add(&mut $catalog);
            #[cfg(not(feature = $feature))]
            for name in [$($name),+] {
                $catalog.add_not_built(name, $feature);
            }
        )+
    };
}

/// Returns all connectors and mappers.
pub fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    tidemill_mappers::add_all(&mut catalog);
    file::add(&mut catalog);
    prometheus::add(&mut catalog);
    unavailable::add_all(&mut catalog);
    googlepubsub::add(&mut catalog);
    hl7::add(&mut catalog);
    http::add(&mut catalog);
    influxdb::add(&mut catalog);
    object_store::add(&mut catalog);
    simulator::add(&mut catalog);
    tcp::add(&mut catalog);
    add_with_feature! {
        catalog,
        "amqp" amqp ["ibmmq", "jms"];
        "databases" cdc ["cdc"];
        "email" email ["email"];
        "grpc" grpc ["grpc", "grpc-call", "grpc-call-response", "grpc-service", "grpc-service-response"];
        "kafka" kafka ["kafka"];
        "mongodb-store" mongodb ["mongodb"];
        "mqtt" mqtt ["mqtt"];
        "nats" nats ["nats"];
        "rabbitmq" rabbitmq ["rabbitmq"];
        "databases" rdbms ["rdbms"];
        "redis" redis ["redis"];
        "snmp" snmp ["snmp"];
        "websocket" websocket ["websocket", "websocket-server"];
    }
    catalog
}

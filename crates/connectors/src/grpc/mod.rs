//! gRPC: the service `EventService` of SiddhiQL's connectors, and methods that users define.
//!
//! `EventService` has the methods `consume`, which takes an event, and `process`, which answers it with another. An event is
//! a message with the text `payload` (1) and the map `headers` (2). Messages of other services are what the mapper
//! reads and writes, usually `protobuf`.

mod call;
mod client;
mod message;
mod method;
mod service;
mod sink;
mod source;

use tidemill_connect::Catalog;

/// Adds the sources and sinks.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog
        .add_source(source::GrpcSourceType)
        .add_source(service::GrpcServiceSourceType)
        .add_sink(service::GrpcServiceResponseSinkType)
        .add_sink(sink::GrpcSinkType)
        .add_sink(call::GrpcCallSinkType)
        .add_source(call::GrpcCallResponseSourceType);
}

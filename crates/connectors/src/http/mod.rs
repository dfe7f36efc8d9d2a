//! HTTP: webhooks and services, sinks, calls with responses, polling, server-sent events.

pub(crate) mod auth;
mod call;
pub(crate) mod client;
pub(crate) mod options;
mod poll;
pub(crate) mod receiver;
pub(crate) mod server;
mod service;
pub(crate) mod sink;
mod sse;

use tidemill_connect::Catalog;

/// Adds the sources and sinks.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog
        .add_source(receiver::HttpSourceType)
        .add_source(service::HttpServiceSourceType)
        .add_sink(service::HttpServiceResponseSinkType)
        .add_sink(sink::HttpSinkType)
        .add_source(poll::HttpPollSourceType);
    sse::add(catalog);
    for (sink, source) in [("http-call", "http-call-response"), ("http-request", "http-response")] {
        catalog
            .add_sink(call::HttpCallSinkType { name: sink })
            .add_source(call::HttpCallResponseSourceType { name: source });
    }
}

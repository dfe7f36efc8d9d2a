//! WebSocket, RFC 6455: as client `websocket` and as server `websocket-server`, each as source and as sink.

mod client;
mod connection;
mod server;
mod server_sink;
mod sink;
mod source;

use tidemill_connect::Catalog;

/// Adds the sources and sinks.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog
        .add_source(source::WebSocketSourceType)
        .add_source(source::WebSocketServerSourceType)
        .add_sink(sink::WebSocketSinkType)
        .add_sink(server_sink::WebSocketServerSinkType);
}

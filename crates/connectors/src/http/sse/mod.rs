//! Server-sent events, the stream format of `text/event-stream`: a source that reads it and a sink that serves it.

mod parser;
mod sink;
mod source;

use tidemill_connect::Catalog;

/// Adds the source and the sink, which has two names.
pub(super) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::SseSourceType);
    for name in ["sse", "sse-server"] {
        catalog.add_sink(sink::SseSinkType { name });
    }
}

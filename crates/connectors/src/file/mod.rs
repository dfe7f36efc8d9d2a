//! Files: as lines, matches or whole contents with the source `file`, changes of a directory with
//! `fileeventlistener`, and the sink `file`.

mod after;
mod identity;
mod list;
mod listener;
mod options;
mod reader;
mod records;
mod sink;
mod source;
mod state;
mod target;
mod uri;

use tidemill_connect::Catalog;

/// Adds the sources and the sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::FileSourceType);
    catalog.add_source(listener::FileListenerType);
    catalog.add_sink(sink::FileSinkType);
}

//! Sources: each is read in order and resumes at its stored position without losing or duplicating rows.

mod append;
mod documents;
mod reader;
mod reshape;
mod spec;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

use tidemill_connect::Source;
use tidemill_types::Result;

use crate::node::Node;
use crate::process::spawn::spawn;
pub use append::append_with_retry;
pub use documents::{for_each_document, parse_document};
use reader::SourceReader;
use spec::SourceSpec;

/// Starts a thread that loads the app's documents and then reads all its sources, each on its own thread.
pub fn start(node: &Arc<Node>) -> Result<Vec<JoinHandle<()>>> {
    let shared = node.clone();
    let body = move || match shared.cluster.get() {
        None => run(&SourceReader::alone(&shared)),
        Some(_) if has_sources(&shared) => reader::take_turns(&shared, run),
        Some(_) => {}
    };
    Ok(vec![spawn("sources".into(), body)?])
}

/// Returns whether the app reads events or documents by itself.
fn has_sources(node: &Node) -> bool {
    !node.app.deployment.app.documents.is_empty() || !spec::of_app(node).is_empty()
}

fn run(reader: &SourceReader) {
    let node = reader.node();
    for config in &node.app.deployment.app.documents {
        if let Err(e) = documents::load_documents(reader, config) {
            reader.report(&config.collection, &e);
        }
    }
    // rules need the documents, so they are applied before the first event is sent
    node.host.in_flight.wait_until_drained_or(|| reader.is_stopping());
    if reader.is_stopping() {
        return;
    }
    let specs = spec::of_app(node);
    std::thread::scope(|scope| {
        for spec in &specs {
            scope.spawn(move || {
                if let Err(e) = read_source(reader, spec) {
                    reader.report(spec.name(), &e);
                }
            });
        }
    });
}

/// Reads a source of a caller from where it was opened to its end. Its position is stored under its name.
pub fn read_to_end(node: &Arc<Node>, source: &mut dyn Source, stream: &str) -> Result<()> {
    let name = source.name().to_owned();
    append::append_source(&SourceReader::alone(node), source, &name, stream)
}

/// Returns the position that is stored under `name`, up to which every partition has the rows of that source; `None` if no
/// row of it was read.
///
/// Errors: `Unavailable` while a partition cannot be asked.
pub fn stored_position(node: &Node, name: &str) -> Result<Option<u64>> {
    let known = node.progress()?.iter().any(|partition| partition.sources.contains_key(name));
    known.then(|| append::SourcePositions::read(node, name).map(|positions| positions.start())).transpose()
}

/// Returns the names under which positions are stored in any partition, in order.
///
/// Errors: `Unavailable` while a partition cannot be asked.
pub fn stored_names(node: &Node) -> Result<Vec<String>> {
    let names: BTreeSet<String> =
        node.progress()?.into_iter().flat_map(|partition| partition.sources.into_keys()).collect();
    Ok(names.into_iter().collect())
}

/// Reads a source from its stored position to its end.
fn read_source(reader: &SourceReader, spec: &SourceSpec) -> Result<()> {
    let mut source = spec.open(reader.node())?;
    append::append_source(reader, source.as_mut(), spec.name(), spec.stream())
}

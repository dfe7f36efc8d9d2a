//! Sources: each is read in order and resumes at its stored position without losing or duplicating rows.

mod append;
mod documents;
mod reshape;
mod spec;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

use tidemill_connect::Source;
use tidemill_types::Result;

use crate::core::Core;
use crate::host::spawn::spawn;
pub use append::append_with_retry;
pub use documents::{for_each_document, parse_document};
use spec::SourceSpec;

/// Starts a thread that loads the app's documents and then reads all its sources, each on its own thread.
pub fn start(core: &Arc<Core>) -> Result<Vec<JoinHandle<()>>> {
    let shared = core.clone();
    Ok(vec![spawn("sources".into(), move || run(&shared))?])
}

fn run(core: &Arc<Core>) {
    for config in &core.deployment.app.documents {
        if let Err(e) = documents::load_documents(core, config) {
            core.health.report_source_problem(&config.collection, &e);
        }
    }
    // rules need the documents, so they are applied before the first event is sent
    core.in_flight.wait_until_drained_or(|| core.sources_stopping());
    if core.sources_stopping() {
        return;
    }
    let specs = spec::of_app(core);
    std::thread::scope(|scope| {
        for spec in &specs {
            scope.spawn(move || {
                if let Err(e) = read_source(core, spec) {
                    core.health.report_source_problem(spec.name(), &e);
                }
            });
        }
    });
}

/// Reads a source of a caller from where it was opened to its end. Its position is stored under its name.
pub fn read_to_end(core: &Arc<Core>, source: &mut dyn Source, stream: &str) -> Result<()> {
    let name = source.name().to_owned();
    append::append_source(core, source, &name, stream)
}

/// Returns the position that is stored under `name`, up to which every partition has the rows of that source; `None` if no
/// row of it was read.
pub fn stored_position(core: &Core, name: &str) -> Option<u64> {
    let known = core.partitions().iter().any(|p| p.view().sources.contains_key(name));
    known.then(|| append::SourcePositions::read(core, name).start())
}

/// Returns the names under which positions are stored in any partition, in order.
pub fn stored_names(core: &Core) -> Vec<String> {
    let views: Vec<_> = core.partitions().iter().map(|p| p.view()).collect();
    let names: BTreeSet<&String> = views.iter().flat_map(|view| view.sources.keys()).collect();
    names.into_iter().cloned().collect()
}

/// Reads a source from its stored position to its end.
fn read_source(core: &Arc<Core>, spec: &SourceSpec) -> Result<()> {
    let mut source = spec.open(core)?;
    append::append_source(core, source.as_mut(), spec.name(), spec.stream())
}

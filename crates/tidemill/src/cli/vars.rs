//! Options of all commands that read an app.

use std::path::Path;

use tidemill::{App, catalog, connectors};
use tidemill_flow::{Connectors, Registry};

/// Values for the variables of an app.
#[derive(clap::Args)]
pub struct VarArgs {
    /// Give a variable `${NAME}` of the app a value, in place of the one in its [vars].
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    connections: ConnectionArgs,
}

/// What becomes of an app's connections to other systems.
#[derive(clap::Args)]
pub struct ConnectionArgs {
    /// Leave out the app's sources and sinks, whatever their types and options: files, other systems.
    #[arg(long)]
    without_io: bool,
}

impl ConnectionArgs {
    /// Returns what becomes of the connections.
    pub fn connectors(&self) -> Connectors {
        if self.without_io { Connectors::Ignored(catalog().clone()) } else { connectors() }
    }
}

impl VarArgs {
    /// Reads the app in the directory or file `app`.
    ///
    /// Errors: those of [`App::read`].
    pub fn read_app(&self, app: &Path) -> tidemill::Result<App> {
        let read = App::read(app, &self.set)?;
        tracing::debug!(
            app = read.name,
            rules = read.rules.len(),
            queries = read.queries.len(),
            "the app was read"
        );
        if read.rules.is_empty() && read.queries.is_empty() {
            eprintln!(
                "note: {}: there are no *.rules and no *.siddhi files in it, so the app has documents and SQL only",
                app.display()
            );
        }
        Ok(read.with_connectors(self.connections.connectors()))
    }

    /// Returns the registry with which queries compile.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::standard();
        tidemill_engine::document_tables::register(&mut registry);
        registry.set_connectors(self.connections.connectors());
        registry
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, for example data=/path/to/files".into()),
    }
}

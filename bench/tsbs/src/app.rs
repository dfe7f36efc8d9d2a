//! The app that keeps the streams of a data set.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use tidemill::App;

use crate::dataset::{Dataset, Table};

/// Returns the declarations of the streams. With `unique`, the first of the points of a truck with the same time wins.
fn streams(unique: bool) -> String {
    let id = if unique { "id tags_id, time" } else { "" };
    format!(
        "\
event readings {{
  time: time(us), tags_id: int, latitude: double, longitude: double, elevation: double, velocity: double,
  heading: double, grade: double, fuel_consumption: double,
}} key tags_id {id} time time;

event diagnostics {{ time: time(us), tags_id: int, fuel_state: double, current_load: double, status: int }}
  key tags_id {id} time time;

event tags {{
  id: int, name: string, fleet: string, driver: string, model: string, device_version: string,
  load_capacity: double, fuel_capacity: double, nominal_fuel_consumption: double,
}} key id;
"
    )
}

/// When the tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushes {
    /// As the defaults say.
    Usual,
    /// Only when the benchmark says so: everything stays in memory until then.
    OnDemand,
}

/// How the app is set up.
#[derive(Debug, Clone)]
pub struct AppOptions {
    /// Partitions of the log.
    pub partitions: u32,
    /// When the tables are written.
    pub flushes: Flushes,
    /// Whether truck and time identify a point.
    pub unique: bool,
    /// More lines of `[settings]`, as `NAME = VALUE`.
    pub settings: Vec<String>,
}

/// Returns the app without sources.
pub fn app(dir: &Path, options: &AppOptions) -> Result<App> {
    write_and_read(dir, options, "")
}

/// Returns the app with a source for each table, and the number of rows that they have. The files are written into `dir`,
/// without the numbers of points.
pub fn app_with_sources(dir: &Path, options: &AppOptions, dataset: &Dataset) -> Result<(App, u64)> {
    let (mut sources, mut rows) = (String::new(), 0);
    for table in Table::ALL {
        let (name, path) = (table.name(), dir.join(format!("{}.csv", table.name())));
        rows += dataset.write_without_seq(table, &path)?;
        // writing to a string does not fail
        let _ = write!(
            sources,
            "[[source]]\nname = \"{name}\"\ntype = \"file\"\nformat = \"csv\"\nstream = \"{name}\"\npath = {path:?}\n"
        );
    }
    Ok((write_and_read(dir, options, &sources)?, rows))
}

fn write_and_read(dir: &Path, options: &AppOptions, sources: &str) -> Result<App> {
    let dir = dir.join("app");
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("trucks.rules"), streams(options.unique))?;
    let mut settings = vec![format!("partitions = {}", options.partitions)];
    if options.flushes == Flushes::OnDemand {
        settings.extend(
            [
                "flush_interval = \"1 day\"",
                "flush_bytes = \"1024GiB\"",
                "tail_bytes = \"1024GiB\"",
                "unflushed_bytes = \"1024GiB\"",
            ]
            .map(str::to_owned),
        );
    }
    settings.extend(options.settings.iter().cloned());
    let toml = format!("name = \"trucks\"\n{sources}[settings]\n{}\n", settings.join("\n"));
    std::fs::write(dir.join("app.toml"), toml)?;
    Ok(App::read(&dir, &[])?)
}

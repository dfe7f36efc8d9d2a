//! Developer tasks: `cargo xtask layers` checks the structure of the crates and their prose, `cargo xtask structure` and
//! `cargo xtask prose` print them.

mod files;
mod prose;
mod structure;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Allowed dependencies between our crates, as drawn in docs/ARCHITECTURE.md. A dependency on a higher layer
/// usually means that a type belongs one layer lower.
const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("test-servers", &[]),
    ("fuzzing", &[]),
    ("encryption", &["types"]),
    ("log", &["types", "encryption"]),
    ("log-kafka", &["types", "log"]),
    ("lang", &["types"]),
    ("docs", &["types"]),
    ("zones", &["types", "encryption"]),
    ("connect", &["types"]),
    ("tls", &["types"]),
    ("script", &["types"]),
    ("access", &["types"]),
    ("gateway", &["types"]),
    ("cluster", &["types"]),
    ("rpc", &["types", "gateway", "tls"]),
    ("database", &["types", "access"]),
    ("mappers", &["types", "connect"]),
    ("files", &["types", "connect", "mappers"]),
    ("relational", &["types", "connect", "lang", "tls"]),
    ("connectors", &["types", "connect", "tls", "mappers", "relational"]),
    ("rules", &["types", "lang", "docs"]),
    ("flow", &["types", "lang", "connect", "script"]),
    ("sql", &["types", "access", "docs", "zones", "database"]),
    (
        "engine",
        &[
            "types",
            "gateway",
            "cluster",
            "rpc",
            "encryption",
            "log",
            "lang",
            "docs",
            "rules",
            "flow",
            "zones",
            "connect",
            "files",
        ],
    ),
    (
        "server",
        &[
            "types", "access", "gateway", "mappers", "files", "docs", "rules", "engine", "database",
            "influxql",
        ],
    ),
    ("mongo", &["types", "access", "gateway", "log", "script", "docs", "engine"]),
    ("postgres", &["types", "access", "gateway", "database"]),
    ("flight", &["types", "access", "gateway", "database"]),
    ("mcp", &["types", "access", "database"]),
    ("influxql", &["types", "access", "database"]),
    (
        "tidemill",
        &[
            "types",
            "access",
            "gateway",
            "encryption",
            "log",
            "log-kafka",
            "lang",
            "docs",
            "files",
            "connect",
            "connectors",
            "mappers",
            "rules",
            "script",
            "flow",
            "zones",
            "database",
            "sql",
            "engine",
            "server",
            "mongo",
            "postgres",
            "flight",
            "mcp",
        ],
    ),
];

/// Crates that must build without these heavy dependencies, so that they build and test in seconds.
const LIGHT: &[&str] = &[
    "types",
    "access",
    "gateway",
    "cluster",
    "rpc",
    "encryption",
    "connect",
    "tls",
    "mappers",
    "relational",
    "log",
    "lang",
    "docs",
    "rules",
    "script",
    "database",
    "flow",
    "postgres",
    "flight",
    "influxql",
    "mcp",
];
const HEAVY: &[&str] = &["datafusion", "deltalake-core", "parquet", "axum"];

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("layers") => check(Path::new("crates")),
        Some("structure") => structure::read(Path::new("crates")).map(|crates| {
            print!("{}", structure::table(&crates));
            Vec::new()
        }),
        Some("prose") => prose::read(Path::new(".")).map(|found| {
            match std::env::args().nth(2) {
                Some(name) => print!("{}", prose::list(found.get(&name).map_or(&[], Vec::as_slice))),
                None => print!("{}", prose::table(&found)),
            }
            Vec::new()
        }),
        _ => {
            eprintln!("usage: cargo xtask layers | structure | prose [CRATE]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns violations in the dependencies between crates and in the imports between the modules of a crate.
fn check(crates: &Path) -> Result<Vec<String>> {
    let mut problems = layers(crates)?;
    problems.extend(structure::problems(&structure::read(crates)?));
    problems.extend(prose::problems(&prose::read(Path::new("."))?));
    Ok(problems)
}

/// Returns the dependencies in the crates' manifests that point up, sideways or at a heavy crate.
fn layers(crates: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let allowed: BTreeMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    for entry in std::fs::read_dir(crates).with_context(|| crates.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let manifest = path.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        let Some(may_use) = allowed.get(name.as_str()) else {
            problems.push(format!("{}: give the crate its place in xtask's LAYERS", manifest.display()));
            continue;
        };
        let manifest_toml: toml::Table = text.parse().with_context(|| manifest.display().to_string())?;
        let dependencies = manifest_toml.get("dependencies").and_then(|d| d.as_table());
        for dependency in dependencies.into_iter().flat_map(|d| d.keys()) {
            if let Some(ours) = dependency.strip_prefix("tidemill-")
                && !may_use.contains(&ours)
            {
                problems.push(format!(
                    "{}: `{name}` must not use `{ours}`; it may use {may_use:?}",
                    manifest.display()
                ));
            }
            if LIGHT.contains(&name.as_str()) && HEAVY.contains(&dependency.as_str()) {
                problems.push(format!(
                    "{}: `{name}` builds in seconds and must not use `{dependency}`",
                    manifest.display()
                ));
            }
        }
    }
    Ok(problems)
}

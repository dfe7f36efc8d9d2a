//! `tidemill connectors`: the types of sources, sinks, stores and mappers with their options.

use std::process::ExitCode;

use anyhow::bail;
use tidemill::catalog;
use tidemill_connect::{OptionKind, OptionSpec, StoreType};
use tidemill_engine::document_tables::DocumentStoreType;
use tidemill_types::did_you_mean;

/// Lists the types of sources, sinks, stores and mappers, or the options of one type.
///
/// Besides these, every app has sources and sinks of type inMemory, log and file; docs/siddhi.md has their options.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  tidemill connectors\n  tidemill connectors json")]
pub struct ConnectorsArgs {
    /// Name of a type. Sources, sinks, stores and mappers of this name are shown with their options.
    #[arg(value_name = "TYPE")]
    name: Option<String>,
}

/// Type of source, sink, store or mapper.
struct Described {
    role: &'static str,
    name: &'static str,
    summary: &'static str,
    guarantee: Option<&'static str>,
    options: &'static [OptionSpec],
}

pub fn connectors(args: ConnectorsArgs) -> anyhow::Result<ExitCode> {
    let all = described();
    match &args.name {
        None => list(&all),
        Some(name) => {
            let found: Vec<_> = all.iter().filter(|one| one.name.eq_ignore_ascii_case(name)).collect();
            if found.is_empty() {
                let hint = did_you_mean(name, all.iter().map(|one| one.name));
                bail!(
                    "there is no source, sink, store or mapper `{name}`{hint}; `tidemill connectors` lists all"
                );
            }
            found.into_iter().for_each(show);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn described() -> Vec<Described> {
    let catalog = catalog();
    let sources = catalog.sources().map(|t| Described {
        role: "source",
        name: t.name(),
        summary: t.summary(),
        guarantee: Some(t.guarantee().name()),
        options: t.options(),
    });
    let sinks = catalog.sinks().map(|t| Described {
        role: "sink",
        name: t.name(),
        summary: t.summary(),
        guarantee: Some(t.guarantee().name()),
        options: t.options(),
    });
    let other = |role, name, summary, options| Described { role, name, summary, guarantee: None, options };
    let store = |t: &dyn StoreType| other("store", t.name(), t.summary(), t.options());
    let stores = catalog.stores().map(store).chain([store(&DocumentStoreType)]);
    let source_mappers =
        catalog.source_mappers().map(|t| other("mapper of sources", t.name(), t.summary(), t.options()));
    let sink_mappers =
        catalog.sink_mappers().map(|t| other("mapper of sinks", t.name(), t.summary(), t.options()));
    sources.chain(sinks).chain(stores).chain(source_mappers).chain(sink_mappers).collect()
}

fn list(all: &[Described]) {
    let width = all.iter().map(|one| one.name.len()).max().unwrap_or_default();
    let mut role = "";
    for one in all {
        if one.role != role {
            role = one.role;
            println!("{}{role}:", if one.role == all[0].role { "" } else { "\n" });
        }
        let guarantee = one.guarantee.map_or_else(String::new, |guarantee| format!(" ({guarantee})"));
        println!("  {:width$}  {}{guarantee}", one.name, one.summary);
    }
}

fn show(one: &Described) {
    println!("{} {}: {}", one.role, one.name, one.summary);
    if let Some(guarantee) = one.guarantee {
        println!("  delivery: {guarantee}");
    }
    for option in one.options {
        println!("  {:30} {}", option.name, option.summary);
        println!("  {:30} {}", "", values(option));
    }
    println!();
}

/// Describes the values of an option.
fn values(option: &OptionSpec) -> String {
    let kind = match option.kind {
        OptionKind::Text => "text".to_owned(),
        OptionKind::Flag => "true or false".to_owned(),
        OptionKind::Integer { min, max: i64::MAX } => format!("integer from {min}"),
        OptionKind::Integer { min, max } => format!("integer from {min} to {max}"),
        OptionKind::Duration => "duration such as `5 sec`, or milliseconds".to_owned(),
        OptionKind::OneOf(all) => format!("one of {}", all.join(", ")),
    };
    let default = option.default.map(|default| format!("default {default}"));
    let required = option.required.then(|| "required".to_owned());
    let dynamic = option.dynamic.then(|| "may contain {{attribute}}".to_owned());
    let secret = option.secret.then(|| "confidential".to_owned());
    let notes = [Some(kind), required, default, dynamic, secret];
    notes.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

//! Declarations of streams for files.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use tidemill::App;
use tidemill_files::{
    InferredStream, infer_avro, infer_csv, infer_json_lines, infer_line_protocol, infer_parquet,
};

use super::LoadFormat;
use super::columns::ColumnArgs;
use super::inputs::{Input, Place};
use super::source::{fetch, reader};

/// Rows that are looked at.
const ROWS: usize = 10_000;

/// Prints the declaration of a stream for `input`, or writes it as an app into the new directory `create`.
pub fn infer(
    name: &str,
    input: &Input,
    columns: &ColumnArgs,
    create: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let streams = streams_of(input, columns).with_context(|| input.to_string())?;
    ensure!(!streams.is_empty(), "{input}: there is no row from which a stream could be declared");
    if let [only] = streams.as_slice()
        && input.format == LoadFormat::Csv
        && columns.delimiter_is_assumed()
        && let Some((delimiter, shown)) = other_delimiter(only)
    {
        bail!(
            "{input}: the header has one column with `{shown}` in its name: if that separates columns, add `--delimiter \
             '{delimiter}'`, otherwise `--delimiter ,`"
        );
    }
    let declarations: Vec<String> = streams
        .iter()
        .map(|stream| stream.declaration(stream.name.as_deref().unwrap_or(name)))
        .collect::<tidemill::Result<_>>()
        .with_context(|| input.to_string())?;
    let options = load_options(&streams, columns);
    let hint = if options.is_empty() { String::new() } else { format!("// load with{options}\n") };
    let text = format!("{hint}{}", declarations.join("\n"));
    let app = App::from_rules("loaded", &text);
    tidemill_engine::compile(&app)
        .map_err(|e| anyhow::anyhow!("{input}: the declaration is not valid: {e}"))?;
    let Some(dir) = create else {
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    };
    let file = dir.join("streams.rules");
    ensure!(!dir.exists(), "{}: exists already; expected a new directory for the app", dir.display());
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&file, &text))
        .with_context(|| file.display().to_string())?;
    println!("{} written; load with `--app {}{options}`:\n{text}", file.display(), dir.display());
    Ok(ExitCode::SUCCESS)
}

/// Returns the delimiter that the only column of a header seems to contain, for the command line and for people.
fn other_delimiter(stream: &InferredStream) -> Option<(&'static str, &'static str)> {
    let [field] = stream.fields.as_slice() else { return None };
    let name = stream.renames.iter().find(|(_, to)| *to == field.name).map_or(&field.name, |(from, _)| from);
    [(';', ";", ";"), ('\t', "\\t", "\\t"), ('|', "|", "|")]
        .into_iter()
        .find(|(character, ..)| name.contains(*character))
        .map(|(_, option, shown)| (option, shown))
}

/// Returns the options with which the file has to be loaded into the declared streams.
fn load_options(streams: &[InferredStream], columns: &ColumnArgs) -> String {
    let renames = streams.iter().flat_map(|stream| &stream.renames);
    let renames = renames.map(|(name, field)| format!(" --rename {}", quoted(&format!("{name}={field}"))));
    columns.given() + &renames.collect::<String>()
}

/// Quotes an argument for a shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn streams_of(input: &Input, columns: &ColumnArgs) -> anyhow::Result<Vec<InferredStream>> {
    let rows = || reader(input, Arc::default());
    Ok(match input.format {
        LoadFormat::Csv => vec![infer_csv(rows()?, ROWS, columns.layout(), &columns.options())?],
        LoadFormat::Ndjson => vec![infer_json_lines(rows()?, ROWS)?],
        LoadFormat::LineProtocol => infer_line_protocol(rows()?, ROWS)?,
        LoadFormat::Avro => vec![infer_avro(rows()?)?],
        LoadFormat::Parquet => match &input.place {
            Place::File(path) => vec![infer_parquet(File::open(path)?)?],
            _ => vec![infer_parquet(fetch(rows()?, &input.to_string())?.reopen()?)?],
        },
    })
}

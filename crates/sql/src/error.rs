//! Mapping of DataFusion errors to the error kinds of `tidemill_types`.

mod messages;
mod node_lost;
mod places;
mod type_names;

use std::time::Duration;

use arrow::error::ArrowError;
use datafusion::common::{SchemaError, Span};
use datafusion::error::DataFusionError;
use datafusion::parquet::errors::ParquetError;
use object_store::Error as StoreError;
use tidemill_types::budget::Stop;
use tidemill_types::{Error, ErrorKind, did_you_mean};

pub(crate) use node_lost::NodeLost;
pub(crate) use type_names::in_words;

/// Returns an error of ours as DataFusion carries it; [`from_datafusion`] finds it again.
pub(crate) fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Returns the error for a constant text that cannot be what is expected in its place. `message` begins with the text.
pub(crate) fn literal_error<T>(message: &str) -> Result<T, DataFusionError> {
    Err(to_datafusion(Error::invalid(message)))
}

/// Maps a DataFusion error to the error for the caller. `text` is the query, used to quote the location;
/// without it the location is omitted.
pub(crate) fn from_datafusion(error: &DataFusionError, text: Option<&str>) -> Error {
    let mapped = map(error);
    let Some(text) = text else { return mapped };
    let Some(span) = span_of(error) else {
        return match places::of_words(text, mapped.message()) {
            Some(at) if mapped.kind() == ErrorKind::Invalid => {
                mapped.context(place(text, at.line, at.column))
            }
            _ => mapped,
        };
    };
    let mapped = match quoted(text, &span) {
        Some(name) if mapped.message().starts_with(NO_COLUMN) => Error::new(
            mapped.kind(),
            format!(
                "{}. If it is text, write it in single quotes: '{name}'",
                mapped.message().trim_end_matches('.')
            ),
        ),
        _ => mapped,
    };
    mapped.context(place(text, span.start.line, span.start.column))
}

/// Error text of DataFusion for a subquery that it could not plan as a join.
const NO_SUBQUERY: &str = "Physical plan does not support logical expression";

const NO_COLUMN: &str = "there is no column";

/// Returns the name at `span` if it is in double quotes.
fn quoted<'t>(text: &'t str, span: &Span) -> Option<&'t str> {
    let line = text.lines().nth(usize::try_from(span.start.line.checked_sub(1)?).ok()?)?;
    let skip = usize::try_from(span.start.column.checked_sub(1)?).ok()?;
    let (start, _) = line.char_indices().nth(skip)?;
    let rest = line[start..].strip_prefix('"')?;
    rest.split_once('"').map(|(name, _)| name)
}

/// Returns the error for a result with more rows than a session allows.
pub(crate) fn too_many_rows(most: usize) -> Error {
    Error::limit(format!("the query returns more than {most} rows (`sql.rows_max`): add LIMIT or aggregate"))
}

/// Returns the error for a query that takes longer than a session allows.
pub(crate) fn too_long(limit: Duration) -> Error {
    Error::limit(format!(
        "the query took longer than {limit:?} (`sql.query_timeout`): select a shorter time range, or raise the limit"
    ))
}

/// Returns the error for a statement that has to end.
pub(crate) fn ended(stop: &Stop) -> Error {
    match stop {
        Stop::Time(limit) => too_long(*limit),
        other => Error::from(other.clone()),
    }
}

/// Formats a location as `line 1, column 8`, followed by the source line if the text has several lines and
/// this one is short enough.
///
/// Lines and columns count from 1; columns are in characters.
pub(crate) fn place(text: &str, line: u64, column: u64) -> String {
    const SHOWN_MAX: usize = 160;
    let head = format!("line {line}, column {column}");
    let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    match text.lines().nth(index) {
        Some(source) if source.chars().count() <= SHOWN_MAX && text.lines().count() > 1 => {
            format!("{head} (`{}`)", source.trim())
        }
        _ => head,
    }
}

/// Returns the outermost span that any layer of the error has.
pub(crate) fn span_of(error: &DataFusionError) -> Option<Span> {
    match error {
        DataFusionError::Diagnostic(diagnostic, inner) => diagnostic.span.or_else(|| span_of(inner)),
        DataFusionError::Context(_, inner) => span_of(inner),
        DataFusionError::Shared(inner) => span_of(inner),
        DataFusionError::Collection(all) => all.iter().find_map(span_of),
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::FieldNotFound { field, .. } | SchemaError::AmbiguousReference { field } => {
                field.spans.first()
            }
            _ => None,
        },
        _ => None,
    }
}

fn map(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::Diagnostic(_, inner) | DataFusionError::Context(_, inner) => map(inner),
        DataFusionError::Shared(inner) => map(inner),
        DataFusionError::Collection(all) => all.first().map_or_else(|| Error::internal("empty error"), map),
        DataFusionError::External(inner) => external(inner.as_ref()),
        DataFusionError::SchemaError(inner, _) => schema(inner),
        DataFusionError::SQL(inner, _) => Error::invalid(inner.to_string()),
        DataFusionError::Plan(message) | DataFusionError::Execution(message) => {
            Error::invalid(in_words(&messages::shorten(message).unwrap_or_else(|| tidy(message))))
        }
        DataFusionError::Configuration(message) => Error::invalid(tidy(message)),
        DataFusionError::NotImplemented(message) if message.contains(NO_SUBQUERY) => Error::invalid(
            "a subquery in this place, or of this form, is not supported: join the tables instead, or select its value under a \
             name in a query in FROM, and use the name",
        ),
        DataFusionError::NotImplemented(message) => {
            Error::invalid(format!("not supported: {}", in_words(&tidy(message))))
        }
        DataFusionError::ResourcesExhausted(message) => exhausted(message),
        DataFusionError::ArrowError(inner, _) => arrow(inner),
        DataFusionError::ParquetError(inner) => parquet(inner),
        DataFusionError::ObjectStore(inner) => store(inner),
        DataFusionError::IoError(inner) => Error::unavailable(format!("disk: {inner}")),
        DataFusionError::ExecutionJoin(inner) => Error::internal(format!("a query thread failed: {inner}")),
        // DataFusion reports an invalid pattern of `~` or LIKE as an internal error
        DataFusionError::Internal(message) if message.contains(NO_PATTERN) => pattern(message),
        DataFusionError::Internal(message)
        | DataFusionError::Substrait(message)
        | DataFusionError::Ffi(message) => Error::internal(tidy(message)),
    }
}

/// Maps an error that passed through DataFusion. An [`Error`] keeps its kind.
fn external(inner: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    if let Some(ours) = inner.downcast_ref::<Error>() {
        return Error::new(ours.kind(), ours.to_string());
    }
    if let Some(stop) = inner.downcast_ref::<Stop>() {
        return ended(stop);
    }
    if let Some(lost) = inner.downcast_ref::<NodeLost>() {
        return lost.error();
    }
    if let Some(nested) = inner.downcast_ref::<DataFusionError>() {
        return map(nested);
    }
    if let Some(nested) = inner.downcast_ref::<ArrowError>() {
        return arrow(nested);
    }
    if let Some(nested) = inner.downcast_ref::<ParquetError>() {
        return parquet(nested);
    }
    if let Some(nested) = inner.downcast_ref::<StoreError>() {
        return store(nested);
    }
    if let Some(pattern) = inner.downcast_ref::<regex::Error>() {
        return Error::invalid(format!("{BAD_PATTERN}: {pattern}"));
    }
    Error::internal(inner.to_string())
}

const NO_PATTERN: &str = "Regular expression did not compile: ";
const BAD_PATTERN: &str = "the regular expression cannot be used, make it shorter or its repetitions fewer";

fn pattern(message: &str) -> Error {
    let message = tidy(message);
    let why = message.split_once(NO_PATTERN).map_or(message.as_str(), |(_, why)| why);
    Error::invalid(format!("{BAD_PATTERN}: {why}"))
}

fn schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let wanted = field.flat_name();
            let known: Vec<String> = if field.relation.is_some() {
                valid_fields.iter().map(|c| c.flat_name()).collect()
            } else {
                valid_fields.iter().map(|c| c.name.clone()).collect()
            };
            let known = known.iter().map(String::as_str);
            Error::invalid(format!("{NO_COLUMN} `{wanted}`{}", did_you_mean(&wanted, known)))
        }
        SchemaError::AmbiguousReference { field } => Error::invalid(format!(
            "column `{0}` is in more than one of the tables: write which, for example `t.{0}`",
            field.name
        )),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            Error::invalid(format!("two columns are called `{name}`: rename one with AS"))
        }
    }
}

fn arrow(error: &ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(inner) => external(inner.as_ref()),
        ArrowError::DivideByZero => Error::invalid("division by zero"),
        ArrowError::CastError(m)
        | ArrowError::ParseError(m)
        | ArrowError::ComputeError(m)
        | ArrowError::ArithmeticOverflow(m)
        | ArrowError::InvalidArgumentError(m) => match m.contains(NO_PATTERN) {
            true => pattern(m),
            false => Error::invalid(messages::no_interval(m).unwrap_or_else(|| in_words(&tidy(m)))),
        },
        ArrowError::MemoryError(m) => Error::limit(tidy(m)),
        ArrowError::ParquetError(m) => Error::corrupt(tidy(m)),
        // when spilled batches are written, the limit error arrives wrapped in an I/O error
        ArrowError::IoError(message, _) if message.contains("used disk space") => exhausted(message),
        ArrowError::IoError(m, _) => Error::unavailable(tidy(m)),
        other => Error::internal(other.to_string()),
    }
}

fn parquet(error: &ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => external(inner.as_ref()),
        other => Error::corrupt(other.to_string()),
    }
}

fn store(error: &StoreError) -> Error {
    match error {
        StoreError::Generic { source, .. } if source.is::<Error>() => external(source.as_ref()),
        StoreError::NotFound { path, .. } => {
            Error::corrupt(format!("{path}: the table names this file, but the store does not have it"))
        }
        other => Error::unavailable(other.to_string()),
    }
}

fn exhausted(message: &str) -> Error {
    let what = match message.contains("disk space") {
        true => "spill space (`sql.spill_bytes`)",
        false => "memory (`sql.memory_bytes`)",
    };
    Error::limit(format!(
        "the query needs more {what} than there is: select less, or raise the limit. {}",
        first_sentence(&tidy(message))
    ))
}

/// Removes the text that DataFusion adds for its own developers.
fn tidy(message: &str) -> String {
    let cut = message.find("\n\nbacktrace:").unwrap_or(message.len());
    let message = &message[..cut];
    let cut = message.find(".\nThis issue was likely caused by a bug").unwrap_or(message.len());
    message[..cut].trim().replace('\n', " ")
}

/// Returns the message up to the end of its first sentence.
fn first_sentence(message: &str) -> &str {
    let end = [". ", " with top memory consumers"].iter().filter_map(|e| message.find(e)).min();
    &message[..end.unwrap_or(message.len())]
}

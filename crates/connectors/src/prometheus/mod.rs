//! Prometheus: a sink that keeps a metric of events, for scraping or for a push gateway, and a source that scrapes.

mod metric;
mod samples;
mod server;
mod sink;
mod source;

use tidemill_connect::{Catalog, OptionError};

/// Adds source and sink to a catalog.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::PrometheusSourceType).add_sink(sink::PrometheusSinkType);
}

/// Types of metrics.
const TYPES: &[&str] = &["counter", "gauge", "histogram", "summary"];

/// Parses pairs such as `'key1:value1','key2:value2'`; the quotes may be left out.
fn parse_pairs(option: &str, text: &str) -> Result<Vec<(String, String)>, OptionError> {
    let mut pairs = vec![];
    for pair in text.split(',').map(|pair| pair.trim().trim_matches('\'').trim()) {
        if pair.is_empty() {
            continue;
        }
        match pair.split_once(':') {
            Some((key, value)) if !key.trim().is_empty() => {
                pairs.push((key.trim().to_owned(), value.trim().to_owned()));
            }
            _ => {
                let message = format!("expected pairs `'key1:value1','key2:value2'`, found `{pair}`");
                return Err(OptionError::option(option, message));
            }
        }
    }
    Ok(pairs)
}

/// Returns whether a text is the name of a metric.
fn is_metric_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// Returns the name of the metric of a connector: an option, or the name of the stream.
fn metric_name(written: Option<&str>, stream: &str) -> Result<String, OptionError> {
    let name = written.unwrap_or(stream);
    match is_metric_name(name) {
        true => Ok(name.to_owned()),
        false => Err(OptionError::option(
            "metric.name",
            format!("`{name}` is no name of a metric: expected letters, digits, `_` and `:`"),
        )),
    }
}

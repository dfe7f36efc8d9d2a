//! Labels of a series or an exemplar.

use tidemill_types::{FieldType, StreamSchema};

use super::messages::Label;
use super::streams::SAMPLES;
use crate::telemetry::{JsonText, Row, RowCell};

/// Bytes that the labels of a series may have. Symbols can be used many times, so few bytes can name many.
const BYTES_MAX: usize = 1 << 20;
/// Label of the metric's name.
const NAME: &str = "__name__";

/// Labels in order of their names, without those that have no value.
pub(super) struct Labels<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Labels<'a> {
    /// Errors: a name is empty, or occurs twice; they are too large.
    pub(super) fn new(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let (mut labels, mut bytes) = (vec![], 0);
        for (name, value) in all {
            if name.is_empty() {
                return Err(format!("a label has no name; its value is `{}`", shown(value)));
            }
            bytes += name.len() + value.len();
            if bytes > BYTES_MAX {
                return Err(format!("the labels take more than {BYTES_MAX} bytes"));
            }
            // one without a value is as one that is missing
            if !value.is_empty() {
                labels.push((name, value));
            }
        }
        labels.sort_unstable();
        match labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(format!("the label `{}` occurs twice", shown(pair[0].0))),
            None => Ok(Self(labels)),
        }
    }

    pub(super) fn of_pairs(labels: &'a [Label]) -> Result<Self, String> {
        Self::new(labels.iter().map(|label| (label.name.as_str(), label.value.as_str())))
    }

    /// Creates the labels with these places of their names and values among the symbols.
    ///
    /// Errors: those of [`Self::new`]; a place that there is not, a name without a value.
    pub(super) fn of_places(places: &[u32], symbols: &'a [String]) -> Result<Self, String> {
        if !places.len().is_multiple_of(2) {
            return Err(format!("labels_refs: expected pairs of a name and a value, found {}", places.len()));
        }
        let symbol = |place: u32| symbol(place, symbols);
        let mut failed = None;
        let pairs = places.chunks_exact(2).map_while(|pair| match (symbol(pair[0]), symbol(pair[1])) {
            (Ok(name), Ok(value)) => Some((name, value)),
            (Err(e), _) | (_, Err(e)) => {
                failed = Some(e);
                None
            }
        });
        let labels = Self::new(pairs)?;
        failed.map_or(Ok(labels), Err)
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.binary_search_by_key(&name, |(name, _)| name).ok().map(|at| self.0[at].1)
    }

    /// Returns the name of the metric.
    ///
    /// Errors: it is missing.
    pub(super) fn metric_name(&self) -> Result<&'a str, String> {
        self.get(NAME).ok_or_else(|| format!("a series without the label `{NAME}`"))
    }

    /// Adds the labels to a row as an object, without the name of the metric, which is a column.
    pub(super) fn add_to(&self, column: &'a str, row: &mut Row<'a, '_>) {
        let mut text = JsonText::new();
        text.raw("{");
        for (n, (name, value)) in self.0.iter().filter(|(name, _)| *name != NAME).enumerate() {
            text.raw(if n == 0 { "" } else { "," });
            text.text(name);
            text.raw(":");
            text.text(value);
        }
        text.raw("}");
        row.json(column, Some(text.finish()));
    }

    /// Adds the labels that the stream has columns for. They are not part of the identity, which has all labels already.
    pub(super) fn add_columns(&self, columns: &'a [String], row: &mut Row<'a, '_>) {
        for column in columns {
            if let Some(value) = self.get(column) {
                row.push_unhashed(column, RowCell::Text(value.into()));
            }
        }
    }
}

/// Returns the columns of a stream that get the values of labels: `job`, `instance`, and those of texts that it has beyond the usual ones.
pub(super) fn label_columns(schema: Option<&StreamSchema>) -> Vec<String> {
    let is_usual = |name: &str| SAMPLES.has_column(name) || matches!(name, "trace_id" | "exemplar_labels");
    let is_label = |name: &str| matches!(name, "job" | "instance") || !is_usual(name);
    let fields = schema.map_or(&[] as &[_], |schema| &schema.fields);
    let texts = fields.iter().filter(|field| field.ty == FieldType::String);
    texts.map(|field| field.name.clone()).filter(|name| is_label(name)).collect()
}

/// Returns a symbol.
///
/// Errors: this place is beyond the last one.
pub(super) fn symbol(place: u32, symbols: &[String]) -> Result<&str, String> {
    let found = usize::try_from(place).ok().and_then(|place| symbols.get(place));
    found
        .map(String::as_str)
        .ok_or_else(|| format!("the symbol {place} is not among the {} of the request", symbols.len()))
}

fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(60)]
}

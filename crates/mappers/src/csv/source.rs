//! Events from rows.

use std::sync::Arc;

use tidemill_connect::{
    AttributeSource, EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper,
    SourceMapperType, resolve_attributes,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{FieldType, StreamSchema};

use super::rows::{CsvCell, Unclosed, rows};
use super::{DELIMITER, delimiter};
use crate::read::{parse_value, property_value, push_event, text_of};

/// Type of the mapper of rows that arrive.
pub(crate) struct CsvSourceType;

const OPTIONS: &[OptionSpec] = &[
    DELIMITER,
    OptionSpec::flag(
        "header.present",
        "false",
        "Whether the first of several rows of a message is a header, as is a single row with the names of the attributes.",
    ),
    OptionSpec::flag("header", "false", "The same as `header.present`."),
    OptionSpec::flag(
        "fail.on.unknown.attribute",
        "true",
        "Whether an event that lacks an attribute is rejected; otherwise the attribute is null.",
    ),
    OptionSpec::flag(
        "event.grouping.enabled",
        "false",
        "Has no effect: a message may have several rows in any case.",
    ),
];

impl SourceMapperType for CsvSourceType {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn summary(&self) -> &'static str {
        "Rows such as `WSO2,55.6,100`, in the order of the attributes or by column numbers."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn create(
        &self,
        options: &Options,
        attributes: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        let column = |text: &str| {
            text.trim()
                .parse()
                .map_err(|_| format!("expected the number of a column, from 0 on, found `{text}`"))
        };
        let columns = match attributes.is_empty() {
            true => (0..schema.fields.len()).map(AttributeSource::Path).collect(),
            false => resolve_attributes(attributes, schema, column)?,
        };
        Ok(Box::new(CsvSource {
            delimiter: delimiter(options)?,
            header: options.flag("header.present") || options.flag("header"),
            complete: options.flag("fail.on.unknown.attribute"),
            columns,
        }))
    }
}

struct CsvSource {
    delimiter: String,
    header: bool,
    complete: bool,
    columns: Vec<AttributeSource<usize>>,
}

impl SourceMapper for CsvSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let Some(text) = text_of(message, out) else { return };
        let mut all = rows(text, &self.delimiter).peekable();
        if all.peek().is_none() {
            return out.reject(message, "the message has no row", text.as_bytes());
        }
        let mut first = self.header;
        while let Some(row) = all.next() {
            let (cells, text) = match row {
                Ok(row) => row,
                Err(Unclosed(text)) => {
                    return out.reject(message, "a text has no quote at its end", text.as_bytes());
                }
            };
            let is_first = std::mem::take(&mut first);
            if is_first && (all.peek().is_some() || self.has_names(&cells, out.schema())) {
                continue;
            }
            self.map_row(message, &cells, text, out);
        }
    }
}

impl CsvSource {
    /// Returns whether a row has the names of the attributes in place of their values.
    fn has_names(&self, cells: &[CsvCell], schema: &StreamSchema) -> bool {
        self.columns.iter().zip(&schema.fields).all(|(column, field)| match column {
            AttributeSource::Property(_) => true,
            AttributeSource::Path(column) => cells.get(*column).is_some_and(|c| c.text.trim() == field.name),
        })
    }

    fn map_row(&self, message: &Message, cells: &[CsvCell], text: &str, out: &mut EventBuilder) {
        push_event(message, out, text.as_bytes(), self.complete, |index, field| match &self.columns[index] {
            AttributeSource::Property(name) => property_value(message, name, field),
            AttributeSource::Path(column) => match cells.get(*column) {
                None => Ok(None),
                Some(CsvCell { text, quoted: false }) if text.trim() == "null" => {
                    Ok(Some(FieldValue::Missing))
                }
                Some(cell) if cell.text.trim().is_empty() && field.ty != FieldType::String => Ok(None),
                Some(cell) => parse_value(field, &cell.text).map(Some),
            },
        });
    }
}

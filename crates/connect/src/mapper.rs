//! What a mapper implements: events from messages, messages from events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_types::decode::{BatchBuilder, CellTarget, CellValue, FieldValue};
use tidemill_types::{BadRow, DecodedRows, InterleavedBatches, Result, RowOrigin, StreamSchema, Timestamp};

use crate::config::{MapperConfig, NamedText};
use crate::message::{Message, Payload};
use crate::options::{OptionError, OptionSpec, Options};

/// Type of mapper that reads messages.
pub trait SourceMapperType: Send + Sync {
    /// Returns the name that users write.
    fn name(&self) -> &'static str;
    /// Returns its purpose in one sentence.
    fn summary(&self) -> &'static str;
    /// Returns all options that it takes; none by default.
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }
    /// Creates a mapper of messages to events of `schema`.
    ///
    /// Errors: options or attributes that make no sense together.
    fn create(
        &self,
        options: &Options,
        attributes: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError>;
}

/// Reads messages.
pub trait SourceMapper: Send {
    /// Adds the events of a message to `out`; what cannot be read is rejected there with a reason.
    fn map(&mut self, message: &Message, out: &mut EventBuilder);
}

/// Type of mapper that writes messages.
pub trait SinkMapperType: Send + Sync {
    /// Returns the name that users write.
    fn name(&self) -> &'static str;
    /// Returns its purpose in one sentence.
    fn summary(&self) -> &'static str;
    /// Returns all options that it takes; none by default.
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }
    /// Creates a mapper of events of `schema` to messages.
    ///
    /// Errors: options or payload that make no sense together.
    fn create(
        &self,
        options: &Options,
        payload: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SinkMapper>, OptionError>;
}

/// Writes messages.
pub trait SinkMapper: Send {
    /// Makes messages of the events in `rows`: each event is in one message, in order. An event that cannot be
    /// represented is in none; it is added to `refused` with the reason.
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload>;
}

/// Event that a mapper cannot represent, or that the other side refuses for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// Row in the batch.
    pub row: usize,
    /// Reason, without confidential values.
    pub reason: String,
}

/// Collects the events of messages.
pub struct EventBuilder {
    schema: Arc<StreamSchema>,
    builder: BatchBuilder,
    row_numbers: Vec<u64>,
    rejected: Vec<BadRow>,
    now: Timestamp,
}

impl EventBuilder {
    /// Creates a builder of events of `schema`.
    pub fn new(schema: Arc<StreamSchema>) -> Self {
        Self {
            builder: BatchBuilder::new(schema.clone()),
            schema,
            row_numbers: vec![],
            rejected: vec![],
            now: Timestamp(0),
        }
    }

    /// Returns the schema of the events.
    pub fn schema(&self) -> &Arc<StreamSchema> {
        &self.schema
    }

    /// Sets the event time of messages that have none.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Sets whether values of other types are kept, as [`BatchBuilder::set_keep_mismatches`] says.
    pub fn set_keep_mismatches(&mut self, keep: bool) {
        self.builder.set_keep_mismatches(keep);
    }

    /// Returns the event time of a message that says nothing else.
    pub fn time_of(&self, message: &Message) -> Timestamp {
        message.time.unwrap_or(self.now)
    }

    /// Adds an event of typed values, one for each field. `time` replaces the time of the message.
    ///
    /// Errors: a value does not fit its field.
    pub fn push_values(
        &mut self,
        message: &Message,
        values: &[FieldValue],
        time: Option<Timestamp>,
    ) -> Result<()> {
        let time = time.unwrap_or_else(|| self.time_of(message));
        self.builder.push_values(values, time)?;
        self.row_numbers.push(message.number);
        Ok(())
    }

    /// Adds an event that is a JSON object with the names of the fields, directly or below `event`. If it must be
    /// `complete`, no field may be missing.
    ///
    /// Errors: `object` is not a JSON object, or a value does not fit its field.
    pub fn push_json(&mut self, message: &Message, object: &[u8], complete: bool) -> Result<()> {
        let time = self.time_of(message);
        self.builder.set_complete(complete);
        self.builder.push_json(object, time)?;
        self.row_numbers.push(message.number);
        Ok(())
    }

    /// Adds an event of named values, with the time `time` unless the stream's time field is among them.
    ///
    /// Errors: a name occurs twice, or a value does not fit its field.
    pub fn push_cells<'c>(
        &mut self,
        message: &Message,
        cells: impl IntoIterator<Item = (&'c str, CellValue<'c>)>,
        time: Timestamp,
    ) -> Result<()> {
        self.builder.push_cells(cells, time)?;
        self.row_numbers.push(message.number);
        Ok(())
    }

    /// Adds an event of texts, which are parsed by the types of their fields.
    ///
    /// Errors: a text does not fit its field.
    pub fn push_texts<'t>(
        &mut self,
        message: &Message,
        cells: impl Iterator<Item = (&'t CellTarget, &'t str)>,
    ) -> Result<()> {
        let time = self.time_of(message);
        self.builder.push_text(cells, time)?;
        self.row_numbers.push(message.number);
        Ok(())
    }

    /// Rejects a message, or the part `text` of it.
    pub fn reject(&mut self, message: &Message, reason: impl std::fmt::Display, text: &[u8]) {
        let origin = RowOrigin::of_row(message.number);
        let reason = match message.has_no_value {
            true => format!("the message has no value (in Kafka a tombstone: its key was deleted): {reason}"),
            false => reason.to_string(),
        };
        self.rejected.push(BadRow::new(origin, Some(&self.schema.name), reason, text));
    }

    /// Returns the number of events and rejections since the last [`Self::finish`].
    pub fn len(&self) -> usize {
        self.row_numbers.len() + self.rejected.len()
    }

    /// Returns whether there are no events and no rejections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the numbers of events and of rejections since the last [`Self::finish`].
    pub fn counts(&self) -> (usize, usize) {
        (self.row_numbers.len(), self.rejected.len())
    }

    /// Returns the reasons of the rejections from number `first` on.
    pub fn reasons_from(&self, first: usize) -> Vec<String> {
        self.rejected.iter().skip(first).map(|bad| bad.message.clone()).collect()
    }

    /// Returns what was collected since the last call.
    pub fn finish(&mut self) -> DecodedRows {
        let mut rows = InterleavedBatches::default();
        if !self.builder.is_empty() {
            rows.parts.push((self.schema.clone(), self.builder.finish()));
        }
        DecodedRows {
            rows,
            row_numbers: std::mem::take(&mut self.row_numbers),
            rejected: std::mem::take(&mut self.rejected),
        }
    }
}

/// Source of the value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeSource<P> {
    /// A transport property.
    Property(String),
    /// A path in the language of the mapper.
    Path(P),
}

/// Resolves `@attributes`: returns the source of the value for each field of `schema`. By name for all
/// fields, or by position for all. `parse` parses a path.
///
/// Errors: a name that is not an attribute, a missing attribute, a wrong path.
pub fn resolve_attributes<P>(
    attributes: &[NamedText],
    schema: &StreamSchema,
    mut parse: impl FnMut(&str) -> Result<P, String>,
) -> Result<Vec<AttributeSource<P>>, OptionError> {
    use crate::options::OptionPlace;
    let at = |index, message: String| OptionError {
        place: OptionPlace::Attribute(index),
        message,
        expected: vec![],
        is_open: false,
    };
    let by_name = attributes.iter().filter(|a| a.name.is_some()).count();
    if by_name != 0 && by_name != attributes.len() {
        return Err(at(0, "either all attributes have names or none".into()));
    }
    if by_name == 0 && attributes.len() != schema.fields.len() {
        let (expected, found) = (schema.fields.len(), attributes.len());
        return Err(at(0, format!("expected {expected} attributes as in the stream, found {found}")));
    }
    let mut found: Vec<Option<AttributeSource<P>>> = schema.fields.iter().map(|_| None).collect();
    for (index, attribute) in attributes.iter().enumerate() {
        let field = match &attribute.name {
            None => index,
            Some(name) => schema.field_index(name).ok_or_else(|| {
                let known = schema.fields.iter().map(|f| f.name.as_str());
                at(
                    index,
                    format!(
                        "the stream has no attribute `{name}`{}",
                        tidemill_types::did_you_mean(name, known)
                    ),
                )
            })?,
        };
        let source = match attribute.text.trim().strip_prefix("trp:") {
            Some(name) => AttributeSource::Property(name.to_owned()),
            None => AttributeSource::Path(parse(&attribute.text).map_err(|e| at(index, e))?),
        };
        if found[field].replace(source).is_some() {
            return Err(at(index, format!("the attribute `{}` is written twice", schema.fields[field].name)));
        }
    }
    let mut all = vec![];
    for (source, field) in found.into_iter().zip(&schema.fields) {
        all.push(source.ok_or_else(|| at(0, format!("the attribute `{}` is missing", field.name)))?);
    }
    Ok(all)
}

/// Returns the mapper that a connector has if none is written.
pub(crate) fn default_mapper() -> MapperConfig {
    MapperConfig { kind: "passThrough".into(), ..MapperConfig::default() }
}

#[cfg(test)]
mod tests {
    use tidemill_types::{Field, FieldType};

    use super::*;

    #[test]
    fn a_message_without_a_value_is_rejected_as_such() {
        let fields = vec![Field::new("n", FieldType::Long)];
        let schema = StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None };
        let mut events = EventBuilder::new(Arc::new(schema));
        events.reject(&Message::default(), "not valid JSON", b"");
        events.reject(&Message { has_no_value: true, ..Message::default() }, "not valid JSON", b"");
        assert_eq!(
            events.reasons_from(0),
            [
                "not valid JSON",
                "the message has no value (in Kafka a tombstone: its key was deleted): not valid JSON"
            ]
        );
    }
}

//! What mappers of messages that leave share: templates, texts of values, grouping.

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidemill_connect::{
    NamedText, OptionError, OptionPlace, OptionSpec, Payload, RefusedRow, Template, is_template, shown_value,
    write_value,
};
use tidemill_types::{StreamSchema, Value, did_you_mean};

/// Combines events that leave together into one message. The same option of all mappers that can.
pub(crate) const GROUPING: OptionSpec = OptionSpec::flag(
    "event.grouping.enabled",
    "false",
    "Whether events that leave together become one message.",
);

/// Creates an error about `@payload`.
pub(crate) fn payload_error(message: impl Into<String>) -> OptionError {
    OptionError { place: OptionPlace::Payload, message: message.into(), expected: vec![], is_open: false }
}

/// Returns the template of a mapper that takes one, if it is written.
///
/// Errors: several texts, texts with names, an unknown attribute.
pub(crate) fn single_template(
    payload: &[NamedText],
    schema: &StreamSchema,
) -> Result<Option<Template>, OptionError> {
    match payload {
        [] => Ok(None),
        [NamedText { name: None, text }] => Template::parse(text, schema).map(Some).map_err(payload_error),
        _ => Err(payload_error("expected one template without a name").expected(["@payload('…')"])),
    }
}

/// Value of a key in `@payload(key='…')`.
pub(crate) enum PayloadValue {
    /// The value of an attribute, with its type.
    Column(usize),
    /// A text.
    Template(Template),
}

impl PayloadValue {
    /// Parses the name of an attribute, a text between backquotes, which stays as it is, or a template.
    ///
    /// Errors: a text that is neither, or an unknown attribute.
    pub(crate) fn parse(text: &str, schema: &StreamSchema) -> Result<Self, String> {
        if let Some(column) = schema.field_index(text.trim()) {
            return Ok(Self::Column(column));
        }
        let constant = text.trim().strip_prefix('`').and_then(|text| text.strip_suffix('`'));
        match constant {
            Some(constant) => Ok(Self::Template(Template::parse(constant, schema)?)),
            None if is_template(text) => Ok(Self::Template(Template::parse(text, schema)?)),
            None => {
                let hint = did_you_mean(text, schema.fields.iter().map(|f| f.name.as_str()));
                Err(format!("the stream has no attribute `{text}`{hint}; write a text as '`{text}`'"))
            }
        }
    }
}

/// Refuses `@payload` for a mapper without templates.
pub(crate) fn no_payload(payload: &[NamedText], mapper: &str) -> Result<(), OptionError> {
    match payload {
        [] => Ok(()),
        _ => Err(payload_error(format!(
            "the mapper `{mapper}` writes all attributes in order; remove `@payload`"
        ))),
    }
}

/// Returns the text of an attribute; `None` if it is null.
pub(crate) fn value_text(rows: &RecordBatch, column: usize, row: usize) -> Option<String> {
    let value = shown_value(rows, column, row);
    (!value.is_absent()).then(|| {
        let mut text = String::new();
        write_value(&value, &mut text);
        text
    })
}

/// Makes messages of the events in `rows`: one of each, or, if they are `grouped`, one of those that follow one
/// another. `event` makes the part of an event, `message` the message of parts.
///
/// Errors of either are reasons why events cannot be represented.
pub(crate) fn messages<T>(
    rows: &RecordBatch,
    refused: &mut Vec<RefusedRow>,
    grouped: bool,
    mut event: impl FnMut(usize) -> Result<T, String>,
    message: impl Fn(Vec<T>) -> Result<Bytes, String>,
) -> Vec<Payload> {
    let mut groups: Vec<(usize, Vec<T>)> = vec![];
    for row in 0..rows.num_rows() {
        match event(row) {
            Err(reason) => refused.push(RefusedRow { row, reason }),
            Ok(part) => match groups.last_mut() {
                Some((first, parts)) if grouped && *first + parts.len() == row => parts.push(part),
                _ => groups.push((row, vec![part])),
            },
        }
    }
    let mut payloads = vec![];
    for (row, parts) in groups {
        let rows = parts.len();
        match message(parts) {
            Ok(bytes) => payloads.push(Payload { bytes, row, rows }),
            Err(reason) => {
                let all = (row..row + rows).map(|row| RefusedRow { row, reason: reason.clone() });
                refused.extend(all);
            }
        }
    }
    payloads
}

/// Returns the reason that a float cannot be written in a format that has numbers only.
pub(crate) fn check_number(name: &str, value: &Value<'_>, format: &str) -> Result<(), String> {
    match value {
        Value::Float(x) if !x.is_finite() => {
            Err(format!("attribute `{name}` is {x}, which {format} cannot represent"))
        }
        _ => Ok(()),
    }
}

/// Creates the error that a format has no place for an attribute of the same name.
pub(crate) fn missing_field(message: String) -> OptionError {
    OptionError::connector(message).of_mapper()
}

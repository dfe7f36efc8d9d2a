//! Texts from events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidemill_connect::{
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SinkMapperType, Template,
    write_value,
};
use tidemill_types::{FieldType, StreamSchema, Value};

use super::{DELIMITER, Layout, NEW_LINE};
use crate::write::{GROUPING, messages, payload_error, single_template, value_text};

/// Type of the mapper of texts that leave.
pub(crate) struct TextSinkType;

const OPTIONS: &[OptionSpec] = &[
    GROUPING,
    DELIMITER,
    NEW_LINE,
    OptionSpec::flag(
        "mustache.enabled",
        "false",
        "Whether `{{a}}` in the template is escaped as in HTML; `{{{a}}}` is not.",
    ),
];

impl SinkMapperType for TextSinkType {
    fn name(&self) -> &'static str {
        "text"
    }

    fn summary(&self) -> &'static str {
        "Lines such as `symbol:\"WSO2\",`, or a template."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn create(
        &self,
        options: &Options,
        payload: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SinkMapper>, OptionError> {
        let form = match (single_template(payload, schema), payload) {
            (_, [NamedText { name: None, text }]) if options.flag("mustache.enabled") => {
                Form::Mustache(mustache(text, schema)?)
            }
            (template, _) => template?.map_or(Form::Lines, Form::Template),
        };
        Ok(Box::new(TextSink { schema: schema.clone(), layout: Layout::new(options)?, form }))
    }
}

enum Form {
    Lines,
    Template(Template),
    /// Templates that follow one another, and whether values in them are escaped.
    Mustache(Vec<(Template, bool)>),
}

struct TextSink {
    schema: Arc<StreamSchema>,
    layout: Layout,
    form: Form,
}

impl SinkMapper for TextSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let event = |row| match &self.form {
            Form::Lines => self.lines(rows, row),
            Form::Template(template) => Ok(template.render(rows, row)),
            Form::Mustache(parts) => Ok(parts.iter().map(|part| rendered(part, rows, row)).collect()),
        };
        let message = |texts: Vec<String>| Ok(Bytes::from(texts.join(&self.layout.separator)));
        messages(rows, refused, self.layout.grouped, event, message)
    }
}

impl TextSink {
    /// Returns `name:value` lines. There are no escapes in this form: a text that would end earlier than it does is
    /// refused.
    fn lines(&self, rows: &RecordBatch, row: usize) -> Result<String, String> {
        let mut lines = vec![];
        for (column, field) in self.schema.fields.iter().enumerate() {
            let text = value_text(rows, column, row);
            let is_string = field.ty == FieldType::String;
            let Some(text) = text else {
                lines.push(format!("{}:null", field.name));
                continue;
            };
            let ends_early = self.layout.value_end(&text, is_string.then_some('"')).is_some();
            if ends_early || (self.layout.grouped && text.contains(&self.layout.separator)) {
                return Err(format!(
                    "the text of attribute `{}` contains what ends it; write a template with @payload",
                    field.name
                ));
            }
            lines.push(match is_string {
                true => format!("{}:\"{text}\"", field.name),
                false => format!("{}:{text}", field.name),
            });
        }
        Ok(lines.join(&format!(",{}", self.layout.new_line)))
    }
}

fn mustache(text: &str, schema: &StreamSchema) -> Result<Vec<(Template, bool)>, OptionError> {
    let parse = |text: &str| Template::parse(text, schema).map_err(payload_error);
    let mut parts = vec![];
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("{{{")
        && let Some((name, behind)) = behind.split_once("}}}")
    {
        parts.push((parse(before)?, true));
        parts.push((parse(&format!("{{{{{name}}}}}"))?, false));
        rest = behind;
    }
    parts.push((parse(rest)?, true));
    Ok(parts)
}

fn rendered((template, escaped): &(Template, bool), rows: &RecordBatch, row: usize) -> String {
    template.render_with(rows, row, &|_, value, out| {
        let mut text = String::new();
        match value {
            Value::Missing | Value::Null => {}
            value => write_value(value, &mut text),
        }
        for c in text.chars() {
            match c {
                '&' if *escaped => out.push_str("&amp;"),
                '<' if *escaped => out.push_str("&lt;"),
                '>' if *escaped => out.push_str("&gt;"),
                '"' if *escaped => out.push_str("&quot;"),
                '\'' if *escaped => out.push_str("&#39;"),
                '`' if *escaped => out.push_str("&#96;"),
                '=' if *escaped => out.push_str("&#61;"),
                c => out.push(c),
            }
        }
    })
}

//! XML from events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidemill_connect::{
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SinkMapperType, Template,
    write_value,
};
use tidemill_types::StreamSchema;

use super::INSTANCE;
use super::tree::{Document, is_name};
use crate::write::{GROUPING, messages, single_template, value_text};

/// Type of the mapper of XML messages that leave.
pub(crate) struct XmlSinkType;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::flag(
        "validate.xml",
        "false",
        "Whether an event is refused if its template gives no valid XML.",
    ),
    OptionSpec::text(
        "enclosing.element",
        "Element around the events, such as `<portfolio>`; by default `<events>`, and none around a template.",
    ),
    GROUPING,
];

impl SinkMapperType for XmlSinkType {
    fn name(&self) -> &'static str {
        "xml"
    }

    fn summary(&self) -> &'static str {
        "XML, by default `<events><event><symbol>WSO2</symbol></event></events>`, or a template."
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
        let template = single_template(payload, schema)?;
        let enclosing = match (options.get("enclosing.element"), &template) {
            (Some(element), _) => Some(element),
            (None, None) => Some("<events>"),
            (None, Some(_)) => None,
        };
        let enclosing = enclosing.map(tags).transpose().map_err(|e| {
            OptionError::option("enclosing.element", e).of_mapper().expected(["'<portfolio>'"])
        })?;
        if template.is_none()
            && let Some(field) = schema.fields.iter().find(|field| !is_name(&field.name))
        {
            let message = format!("`{}` is no name of an XML element", field.name);
            return Err(OptionError::connector(message).of_mapper().expected(["@payload('…')"]));
        }
        let grouped = options.flag("event.grouping.enabled");
        if grouped && enclosing.is_none() {
            let error = OptionError::connector("a group of events needs an element around it").of_mapper();
            return Err(error.expected(["enclosing.element='<events>'"]));
        }
        Ok(Box::new(XmlSink {
            schema: schema.clone(),
            template,
            enclosing: enclosing.unwrap_or_default(),
            grouped,
            validated: options.flag("validate.xml"),
        }))
    }
}

/// Returns the tags at the beginning and the end of an element that is written as `<a b="c">` or as its name.
fn tags(element: &str) -> Result<(String, String), String> {
    let inside = element.trim().trim_start_matches('<').trim_end_matches('>');
    let name = inside.split_whitespace().next().unwrap_or_default();
    let (open, close) = (format!("<{inside}>"), format!("</{name}>"));
    Document::parse(&format!("{open}{close}")).map_err(|e| format!("`{element}` is no element: {e}"))?;
    Ok((open, close))
}

struct XmlSink {
    schema: Arc<StreamSchema>,
    template: Option<Template>,
    enclosing: (String, String),
    grouped: bool,
    validated: bool,
}

impl SinkMapper for XmlSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let (open, close) = &self.enclosing;
        let event = |row| {
            let text = match &self.template {
                None => self.default_form(rows, row)?,
                Some(template) => rendered(template, rows, row)?,
            };
            if self.validated {
                let message = format!("{open}{text}{close}");
                Document::parse(&message).map_err(|e| format!("the payload is {e}"))?;
            }
            Ok(text)
        };
        let message = |texts: Vec<String>| Ok(Bytes::from(format!("{open}{}{close}", texts.concat())));
        messages(rows, refused, self.grouped, event, message)
    }
}

impl XmlSink {
    fn default_form(&self, rows: &RecordBatch, row: usize) -> Result<String, String> {
        let mut text = String::from("<event>");
        for (column, field) in self.schema.fields.iter().enumerate() {
            let name = &field.name;
            match value_text(rows, column, row) {
                None => text += &format!("<{name} xmlns:xsi=\"{INSTANCE}\" xsi:nil=\"true\"/>"),
                Some(value) => {
                    text += &format!("<{name}>");
                    escape(&value, false, &mut text).map_err(|e| format!("attribute `{name}`: {e}"))?;
                    text += &format!("</{name}>");
                }
            }
        }
        Ok(text + "</event>")
    }
}

fn rendered(template: &Template, rows: &RecordBatch, row: usize) -> Result<String, String> {
    let problem = std::cell::RefCell::new(Ok(()));
    let text = template.render_with(rows, row, &|_, value, out| {
        let mut text = String::new();
        write_value(value, &mut text);
        if let Err(e) = escape(&text, true, out) {
            *problem.borrow_mut() = Err(e);
        }
    });
    problem.into_inner().map(|()| text)
}

/// Writes a text with references for what has a meaning in XML: in a template also for the ends of lines and tabs, which
/// would become blanks inside of an attribute.
///
/// Errors: a control character, which XML has no form for.
fn escape(text: &str, in_template: bool, out: &mut String) -> Result<(), String> {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' if in_template => out.push_str("&quot;"),
            '\'' if in_template => out.push_str("&apos;"),
            '\r' => out.push_str("&#13;"),
            '\n' | '\t' if in_template => out.push_str(&format!("&#{};", c as u32)),
            '\n' | '\t' => out.push(c),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                return Err(format!("the character U+{:04X} cannot be written in XML", c as u32));
            }
            c => out.push(c),
        }
    }
    Ok(())
}

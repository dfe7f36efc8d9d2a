//! `@sink(type='log')`: writes one line per event of a stream.

use std::fmt::Write as _;

use serde_json::Value as Json;
use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::Annotation;

use super::connector::ConnectedStream;
use super::mapped::MessageWriter;
use super::topic::TopicTemplate;
use crate::columns::batch::Batch;
use crate::columns::value::Value;
use crate::functions::json_text::tagged_json;
use crate::registry::Connectors;
use crate::stream_functions::Priority;

/// Mappers with a form of their own in the log.
const MAPPERS: [&str; 4] = ["csv", "json", "passThrough", "text"];

/// Sink that formats events as lines. The caller that runs the app writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSink {
    /// Start of each line.
    prefix: String,
    /// Priority of the lines.
    pub priority: Priority,
    mapper: LogMapper,
    attributes: Vec<String>,
}

/// Format of an event, after the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LogMapper {
    /// `Event{timestamp=1000, data=[a, 1], isExpired=false}`
    PassThrough,
    /// `{"event":{"symbol":"a","volume":1}}`
    Json,
    /// `symbol:"a", volume:1`
    Text,
    /// `a,1`
    Csv,
    /// `@payload("…{{symbol}}…")`
    Payload(TopicTemplate),
    /// A mapper of the catalog.
    Message(MessageWriter),
}

impl LogSink {
    /// Compiles the annotation of a stream. Errors: an unknown priority or mapper, a payload with an
    /// unknown attribute.
    pub(super) fn of(
        annotation: &Annotation,
        stream: &ConnectedStream<'_>,
        app: Option<&str>,
        connectors: &Connectors,
    ) -> Result<Self, Diagnostic> {
        let name = stream.name;
        let prefix = match (annotation.element("prefix"), app) {
            (Some(prefix), _) => prefix.value.value.clone(),
            (None, Some(app)) => format!("{app} : {name}"),
            (None, None) => name.to_owned(),
        };
        let priority = match annotation.element("priority") {
            None => Priority::Info,
            Some(p) => Priority::parse(&p.value.value).map_err(|e| Diagnostic::error("F0608", p.span, e))?,
        };
        let mapper = mapper(annotation, stream, connectors)?;
        let attributes = stream.attributes.iter().map(|(name, _)| name.clone()).collect();
        Ok(Self { prefix, priority, mapper, attributes })
    }

    /// Returns whether lines appear at the default log level: those of priority `ERROR`, `WARN` and `INFO`.
    pub fn is_shown_by_default(&self) -> bool {
        matches!(self.priority, Priority::Error | Priority::Warn | Priority::Info)
    }

    /// Formats event `row` as a line without a line end. Line breaks in strings are kept.
    pub fn line(&self, events: &Batch, row: usize) -> String {
        let mut line = format!("{} : ", self.prefix);
        let values = events.columns.iter().map(|column| column.get(row));
        // writing to a string cannot fail
        let _ = match &self.mapper {
            LogMapper::PassThrough => {
                let values: Vec<String> = values.map(|v| v.to_string()).collect();
                let (time, values) = (events.times[row], values.join(", "));
                write!(line, "Event{{timestamp={time}, data=[{values}], isExpired=false}}")
            }
            LogMapper::Json => {
                // a `serde_json` map would sort the fields
                let fields = self.attributes.iter().zip(values);
                let fields = fields
                    .map(|(name, value)| format!("{}:{}", Json::from(name.as_str()), tagged_json(&value)));
                write!(line, "{{\"event\":{{{}}}}}", fields.collect::<Vec<_>>().join(","))
            }
            LogMapper::Text => {
                let fields = self.attributes.iter().zip(values).map(|(name, value)| match value {
                    Value::Str(text) => format!("{name}:\"{text}\""),
                    value => format!("{name}:{value}"),
                });
                write!(line, "{}", fields.collect::<Vec<_>>().join(", "))
            }
            LogMapper::Csv => {
                let cells = values.map(|value| match value {
                    Value::Null => String::new(),
                    value => csv_cell(&value.to_string()),
                });
                write!(line, "{}", cells.collect::<Vec<_>>().join(","))
            }
            LogMapper::Payload(payload) => write!(line, "{}", payload.of(events, row)),
            LogMapper::Message(writer) => write!(line, "{}", writer.text(events, row)),
        };
        line
    }

    /// Writes the lines of these events through `tracing`.
    pub fn trace(&self, events: &Batch) {
        (0..events.len()).for_each(|row| self.priority.write(&self.line(events, row)));
    }
}

/// Quotes a CSV cell if necessary.
fn csv_cell(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn mapper(
    annotation: &Annotation,
    stream: &ConnectedStream<'_>,
    connectors: &Connectors,
) -> Result<LogMapper, Diagnostic> {
    let Some(map) = annotation.nested().find(|n| n.is("map")) else { return Ok(LogMapper::PassThrough) };
    let Some(ty) = map.element("type") else {
        return Err(Diagnostic::error("F0601", map.span, "a mapper needs a `type`")
            .expected(MAPPERS.map(|t| format!("type='{t}'"))));
    };
    // lines have forms of their own, without line breaks; options and other formats are those of the mappers
    let has_options = map.elements().any(|e| !e.has_key("type"));
    if let Some(catalog) = connectors.catalog()
        && (has_options || !MAPPERS.contains(&ty.value.value.as_str()))
    {
        return MessageWriter::compile(annotation, map, stream, catalog).map(LogMapper::Message);
    }
    super::check_known(&MAPPERS, &ty.value.value, "log mapper", ty.span)?;
    let payload = map.nested().find(|n| n.is("payload"));
    if let Some(other) = map.nested().find(|n| !n.is("payload")) {
        let message = format!("`@{}` is not supported in a mapper of the sink `log`", other.name.name);
        return Err(Diagnostic::error("F0612", other.span, message).expected(["@payload('…')"]));
    }
    match (ty.value.value.as_str(), payload) {
        (kind @ ("passThrough" | "csv"), Some(payload)) => {
            let message = format!("`@payload` needs the mapper json or text, found {kind}");
            Err(Diagnostic::error("F0612", payload.span, message))
        }
        (_, Some(payload)) => match payload.elements().next() {
            Some(text) => TopicTemplate::parse(text, stream.attributes).map(LogMapper::Payload),
            None => {
                let message = "`@payload` needs a template";
                Err(Diagnostic::error("F0612", payload.span, message).expected(["@payload('…')"]))
            }
        },
        ("json", None) => Ok(LogMapper::Json),
        ("text", None) => Ok(LogMapper::Text),
        ("csv", None) => Ok(LogMapper::Csv),
        _ => Ok(LogMapper::PassThrough),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_types::FieldType;

    use super::*;
    use crate::Registry;
    use crate::columns::column::Column;
    use crate::eval_error::EvalError;
    use crate::replay;
    use crate::runtime::{AppRuntime, OutputHandler};

    #[derive(Default)]
    struct Lines(Vec<String>);

    impl OutputHandler for Lines {
        fn events(&mut self, _: &str, _: &Batch) {}

        fn emission(&mut self, _: &str, _: &Batch) {}

        fn failure(&mut self, query: &str, failure: &EvalError) {
            panic!("{query}: {}", failure);
        }

        fn logged(&mut self, log: &LogSink, events: &Batch) {
            self.0.extend((0..events.len()).map(|row| log.line(events, row)));
        }
    }

    fn lines(annotation: &str) -> Vec<String> {
        let text = format!(
            "@app:name('Plant') define stream In (s string, n long, b bool);
             {annotation} define stream Out (s string, n long, b bool);
             from In select s, n, b insert into Out;"
        );
        let plan = replay::compile("a.siddhi", &text, &Registry::standard(), &|_| None).unwrap();
        let stream = plan.catalog.find("In").unwrap();
        let mut app = AppRuntime::new(Arc::new(plan));
        let mut seen = Lines::default();
        app.start(0, &mut seen);
        for values in [
            [Value::text("a,\"b\""), Value::Long(1), Value::Bool(true)],
            [Value::Null, Value::Null, Value::Null],
        ] {
            let columns = values.into_iter().zip([FieldType::String, FieldType::Long, FieldType::Bool]);
            let columns = columns.map(|(value, ty)| {
                let mut column = Column::new(ty);
                column.push(value);
                column
            });
            app.send(stream, columns.collect(), vec![1000], &mut seen).unwrap();
        }
        seen.0
    }

    #[test]
    fn events_become_lines() {
        for (annotation, expected) in [
            (
                "@sink(type='log')",
                [
                    "Plant : Out : Event{timestamp=1000, data=[a,\"b\", 1, true], isExpired=false}",
                    "Plant : Out : Event{timestamp=1000, data=[null, null, null], isExpired=false}",
                ],
            ),
            (
                "@sink(type='log', prefix='OUT', @map(type='json'))",
                [
                    r#"OUT : {"event":{"s":"a,\"b\"","n":1,"b":true}}"#,
                    r#"OUT : {"event":{"s":null,"n":null,"b":null}}"#,
                ],
            ),
            (
                "@sink(type='log', prefix='OUT', @map(type='text'))",
                ["OUT : s:\"a,\"b\"\", n:1, b:true", "OUT : s:null, n:null, b:null"],
            ),
            (
                "@sink(type='log', prefix='OUT', @map(type='csv'))",
                ["OUT : \"a,\"\"b\"\"\",1,true", "OUT : ,,"],
            ),
            (
                "@sink(type='log', prefix='OUT', @map(type='text', @payload('{{n}} of {{s}}')))",
                ["OUT : 1 of a,\"b\"", "OUT : null of null"],
            ),
        ] {
            assert_eq!(lines(annotation), expected, "{annotation}");
        }
    }
}

//! `[[source]]` and `[[sink]]` of connectors in `app.toml`.
//!
//! Each is compiled as the annotation that it stands for, before a definition of its stream, so both ways have the same
//! types, options, checks and names in lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use tidemill_types::{Error, FieldType, Result, StreamSchema, did_you_mean};
use toml::de::ValueDeserializer;

use crate::app::AppFile;
use crate::app::app_toml::{ConnectorTable, line_of, meant};

/// Connector of `app.toml`.
#[derive(Debug, Clone, PartialEq)]
pub struct AppConnector {
    /// True for a source, false for a sink.
    is_source: bool,
    /// Line of the table in `app.toml`, from 1.
    line: usize,
    /// Lines of its keys; those of tables in it have their names in front.
    lines: BTreeMap<String, usize>,
    toml: ConnectorToml,
    /// Contents of `app.toml`.
    file: Arc<str>,
}

/// Part of an annotation, with the line of `app.toml` on which it is written.
enum Part {
    Text(usize, String),
    /// An annotation in the annotation: its name and parts.
    Annotation(String, Vec<Part>),
}

impl Part {
    fn line(&self) -> usize {
        match self {
            Self::Text(line, _) => *line,
            Self::Annotation(_, parts) => parts.iter().map(Self::line).min().unwrap_or_default(),
        }
    }
}

/// Text whose parts are on the lines that they have in `app.toml`.
struct AppTomlLines {
    text: String,
    line: usize,
}

impl AppTomlLines {
    fn push(&mut self, text: &str) {
        self.line += text.matches('\n').count();
        self.text += text;
    }

    /// Adds an annotation, its parts in the order of their lines.
    fn annotation(&mut self, name: &str, mut parts: Vec<Part>) {
        parts.sort_by_key(Part::line);
        self.push(name);
        self.push("(");
        for (index, part) in parts.into_iter().enumerate() {
            let space = if index == 0 { "" } else { ", " };
            self.push(if part.line() > self.line { space.trim_end() } else { space });
            while self.line < part.line() {
                self.push("\n");
            }
            match part {
                Part::Text(_, text) => self.push(&text),
                Part::Annotation(name, parts) => self.annotation(&name, parts),
            }
        }
        self.push(")");
    }
}

/// The table as written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectorToml {
    #[serde(rename = "type")]
    kind: String,
    stream: String,
    name: Option<String>,
    on_error: Option<String>,
    #[serde(default)]
    options: toml::Table,
    map: Option<MapToml>,
}

/// `map` of a connector as written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapToml {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    options: toml::Table,
    /// A table of attributes, or a list in the order of the stream's.
    attributes: Option<toml::Value>,
    payload: Option<String>,
}

impl AppConnector {
    /// Reads a table.
    ///
    /// Errors: `Invalid` with the line for missing, unknown and misplaced keys.
    pub fn read(is_source: bool, table: &ConnectorTable<'_>) -> Result<Self> {
        let role = if is_source { "source" } else { "sink" };
        let toml = ConnectorToml::deserialize(ValueDeserializer::from(table.value.clone())).map_err(|e| {
            let line = e.span().map_or(table.line, |span| line_of(table.text, span.start));
            Error::invalid(format!("line {line}: [[{role}]]: {}", meant(e.message())))
        })?;
        let connector =
            Self { is_source, line: table.line, lines: table.lines.clone(), toml, file: table.text.into() };
        if is_source && connector.toml.on_error.is_some() {
            return Err(connector.refused("on_error", "`on_error` belongs to a sink"));
        }
        // values that no annotation can have are refused before streams are known
        connector.parts()?;
        Ok(connector)
    }

    /// Returns an error about a key, with its line.
    fn refused(&self, key: &str, message: &str) -> Error {
        let role = if self.is_source { "source" } else { "sink" };
        Error::invalid(format!("line {}: [[{role}]]: {message}", self.line_of(key)))
    }

    /// Returns the line of a key; that of the table if the key is not written.
    fn line_of(&self, key: &str) -> usize {
        self.lines.get(key).copied().unwrap_or(self.line)
    }

    /// Returns the contents of `app.toml`.
    pub fn app_toml(&self) -> &str {
        &self.file
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        let ConnectorToml { name, kind, stream, .. } = &self.toml;
        let way = if self.is_source { "to" } else { "from" };
        name.clone().unwrap_or_else(|| format!("{kind} {way} {stream}"))
    }

    /// Returns the SiddhiQL file that it stands for. Each option is on the line that it has in `app.toml`.
    ///
    /// Errors: `Invalid` if its stream is not among `streams`.
    pub fn file(&self, streams: &[Arc<StreamSchema>]) -> Result<AppFile> {
        let name = &self.toml.stream;
        let stream = streams.iter().find(|stream| stream.name == *name).ok_or_else(|| {
            let hint = did_you_mean(name, streams.iter().map(|stream| stream.name.as_str()));
            Error::invalid(format!("app.toml: line {}: no stream `{name}`{hint}", self.line_of("stream")))
        })?;
        let attribute = |field: &tidemill_types::Field| match field.ty {
            FieldType::Time => format!("{} long", field.name),
            ty => format!("{} {ty}", field.name),
        };
        let attributes: Vec<String> = stream.fields.iter().map(attribute).collect();
        let is_stream = |action: &String| action.eq_ignore_ascii_case("stream");
        let fault_stream = match self.toml.on_error.as_ref().is_some_and(is_stream) {
            true => "@OnError(action='STREAM') ",
            false => "",
        };
        let mut text = AppTomlLines { text: "\n".repeat(self.line.saturating_sub(1)), line: self.line };
        text.push(fault_stream);
        text.annotation(if self.is_source { "@source" } else { "@sink" }, self.parts()?);
        text.push(&format!(" define stream {name} ({});\n", attributes.join(", ")));
        Ok(AppFile { name: format!("app.toml/{}", self.name()), text: text.text })
    }

    /// Returns the parts of the annotation.
    fn parts(&self) -> Result<Vec<Part>> {
        let ConnectorToml { kind, on_error, options, map, .. } = &self.toml;
        let mut parts = vec![self.part("type", "type", kind)?];
        if let Some(action) = on_error {
            parts.push(self.part("on_error", "on.error", action)?);
        }
        parts.extend(self.options("options", options)?);
        if let Some(map) = map {
            parts.push(Part::Annotation("@map".to_owned(), self.map_parts(map)?));
        }
        Ok(parts)
    }

    fn map_parts(&self, map: &MapToml) -> Result<Vec<Part>> {
        let mut parts = vec![self.part("map.type", "type", &map.kind)?];
        parts.extend(self.options("map.options", &map.options)?);
        let attributes = "map.attributes";
        match &map.attributes {
            None => {}
            Some(_) if !self.is_source => {
                let message = "`map.attributes` belongs to a source; a sink has `map.payload`";
                return Err(self.refused(attributes, message));
            }
            Some(toml::Value::Table(named)) => {
                let named = self.options(attributes, named)?;
                parts.push(Part::Annotation("@attributes".to_owned(), named));
            }
            Some(toml::Value::Array(list)) => {
                let line = self.line_of(attributes);
                let mut values = Vec::new();
                for item in list {
                    let text = self.value(attributes, attributes, item)?;
                    values.push(Part::Text(line, self.quoted(attributes, &text)?));
                }
                parts.push(Part::Annotation("@attributes".to_owned(), values));
            }
            Some(other) => {
                return Err(self.refused(attributes, &not_a_text(attributes, other, "a table or a list")));
            }
        }
        match &map.payload {
            None => {}
            Some(_) if self.is_source => {
                let message = "`map.payload` belongs to a sink; a source has `map.attributes`";
                return Err(self.refused("map.payload", message));
            }
            Some(payload) => {
                let text = format!("@payload({})", self.quoted("map.payload", payload)?);
                parts.push(Part::Text(self.line_of("map.payload"), text));
            }
        }
        Ok(parts)
    }

    /// Returns the options of a table; options with dots in their names may be written as tables in tables.
    fn options(&self, key: &str, options: &toml::Table) -> Result<Vec<Part>> {
        let mut all = vec![];
        self.collect_options(key, "", options, &mut all)?;
        Ok(all)
    }

    fn collect_options(
        &self,
        key: &str,
        prefix: &str,
        options: &toml::Table,
        all: &mut Vec<Part>,
    ) -> Result<()> {
        for (name, value) in options {
            let (key, name) = (format!("{key}.{name}"), format!("{prefix}{name}"));
            match value {
                toml::Value::Table(inner) => self.collect_options(&key, &format!("{name}."), inner, all)?,
                value => all.push(self.part(&key, &name, &self.value(&key, &name, value)?)?),
            }
        }
        Ok(())
    }

    /// Returns an option with its value, on the line of `key`.
    fn part(&self, key: &str, name: &str, value: &str) -> Result<Part> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':');
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(self.refused(key, &format!("`{name}` is not a name of an option")));
        }
        // names such as `ssl-ca` are texts in SiddhiQL
        let name = match name.contains(['-', ':']) {
            true => self.quoted(key, name)?,
            false => name.to_owned(),
        };
        Ok(Part::Text(self.line_of(key), format!("{name}={}", self.quoted(key, value)?)))
    }

    /// Returns the text of a value.
    fn value(&self, key: &str, name: &str, value: &toml::Value) -> Result<String> {
        match value {
            toml::Value::String(text) => Ok(text.clone()),
            toml::Value::Integer(n) => Ok(n.to_string()),
            toml::Value::Float(x) => Ok(x.to_string()),
            toml::Value::Boolean(b) => Ok(b.to_string()),
            other => Err(self.refused(key, &not_a_text(name, other, "a text, a number, true or false"))),
        }
    }

    fn quoted(&self, key: &str, text: &str) -> Result<String> {
        quoted(text).ok_or_else(|| {
            let message = "a value must not have three double quotes in a row, or one at its end beside other lines or quotes";
            self.refused(key, message)
        })
    }
}

fn not_a_text(name: &str, value: &toml::Value, expected: &str) -> String {
    format!("`{name}`: expected {expected}, found a value of the type {}", value.type_str())
}

/// Returns a text in quotes of SiddhiQL; `None` if no kind of quotes can have it.
fn quoted(text: &str) -> Option<String> {
    let is_plain = !text.contains(|c: char| c == '"' || u32::from(c) < 0x20);
    let mark = match text {
        _ if is_plain && !text.contains('\'') => "'",
        _ if is_plain => "\"",
        _ if !text.contains("\"\"\"") && !text.ends_with('"') => "\"\"\"",
        _ => return None,
    };
    Some(format!("{mark}{text}{mark}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::app_toml::ConnectorTables;
    use tidemill_types::Field;

    /// Reads a table whose first key is on line 4.
    fn connector(is_source: bool, text: &str) -> Result<AppConnector> {
        let name = if is_source { "source" } else { "sink" };
        let text = format!("\n\n[[{name}]]\n{}", text.replace("\n[map]", &format!("\n[{name}.map]")));
        let table = ConnectorTables::parse(&text).get(name, 0).unwrap();
        AppConnector::read(is_source, &table)
    }

    fn streams() -> Vec<Arc<StreamSchema>> {
        let fields = [("k", FieldType::String), ("at", FieldType::Time)];
        let fields = fields.map(|(name, ty)| Field::new(name, ty)).to_vec();
        vec![Arc::new(StreamSchema { name: "Orders".into(), fields, key: None, id: vec![], time: None })]
    }

    #[test]
    fn tables_are_annotations() {
        let source = connector(
            true,
            "type = 'kafka'\nstream = 'Orders'\noptions = { bootstrap.servers = 'a:1', partition = 2, 'x' = \"it's\" }\n\
             [map]\ntype = 'json'\nattributes = { k = '$.key', at = '$.t' }",
        );
        let file = source.unwrap().file(&streams()).unwrap();
        assert_eq!(file.name, "app.toml/kafka to Orders");
        assert_eq!(
            file.text,
            "\n\n@source(\ntype='kafka',\n\nbootstrap.servers='a:1', partition='2', x=\"it's\",\n\n@map(type='json',\n\
             @attributes(at='$.t', k='$.key'))) define stream Orders (k string, at long);\n"
        );
        let sink = connector(
            false,
            "type = 'http'\nstream = 'Orders'\nname = 'shop'\non_error = 'STREAM'\noptions = { publisher.url = 'u' }\n\
             map = { type = 'text', options = { regex.A = 'a' }, payload = '{\"k\": \"{{k}}\"}' }",
        );
        let file = sink.unwrap().file(&streams()).unwrap();
        assert_eq!(file.name, "app.toml/shop");
        assert_eq!(
            file.text.trim(),
            "@OnError(action='STREAM') @sink(\ntype='http',\n\n\non.error='STREAM',\npublisher.url='u',\n\
             @map(type='text', regex.A='a', @payload(\"\"\"{\"k\": \"{{k}}\"}\"\"\"))) define stream Orders (k string, at long);"
        );
    }

    #[test]
    fn wrong_tables_say_what_is_wrong() {
        for (is_source, text, message) in [
            (true, "type = 'kafka'", "line 3: [[source]]: missing field `stream`"),
            (
                true,
                "type = 'kafka'\nstream = 'Orders'\ntopic = 'x'",
                "line 6: [[source]]: unknown key `topic`, expected one of `type`, `stream`, `name`, `on_error`, `options`, `map`",
            ),
            (
                true,
                "type = 'kafka'\nstream = 'Orders'\non_error = 'LOG'",
                "line 6: [[source]]: `on_error` belongs to a sink",
            ),
            (
                false,
                "type = 'http'\nstream = 'Orders'\noptions = { url = [1] }",
                "line 6: [[sink]]: `url`: expected a text, a number, true or false, found a value of the type array",
            ),
            (
                false,
                "type = 'http'\nstream = 'Orders'\nmap = { type = 'json', attributes = ['a'] }",
                "line 6: [[sink]]: `map.attributes` belongs to a source; a sink has `map.payload`",
            ),
            (
                true,
                "type = 'http'\nstream = 'Orders'\noptions = { 'a b' = 1 }",
                "line 6: [[source]]: `a b` is not a name of an option",
            ),
        ] {
            assert_eq!(connector(is_source, text).unwrap_err().to_string(), message);
        }
        let unknown = connector(true, "type = 'kafka'\nstream = 'Order'").unwrap();
        assert_eq!(
            unknown.file(&streams()).unwrap_err().to_string(),
            "app.toml: line 5: no stream `Order`. Did you mean `Orders`?"
        );
    }
}

//! `[[source]]` and `[[sink]]` of connectors in `app.toml`.
//!
//! Each is compiled as the annotation that it stands for, before a definition of its stream, so both ways have the same
//! types, options, checks and names in lists.

use std::sync::Arc;

use serde::Deserialize;
use tidemill_types::{Error, FieldType, Result, StreamSchema, did_you_mean};

use crate::app::AppFile;

/// Connector of `app.toml`.
#[derive(Debug, Clone, PartialEq)]
pub struct AppConnector {
    /// Whether events come in.
    is_source: bool,
    /// Line of the table in `app.toml`, from 1.
    line: usize,
    toml: ConnectorToml,
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
    /// Reads a table that begins on `line`.
    ///
    /// Errors: `Invalid` with the line for missing, unknown and misplaced keys.
    pub fn read(is_source: bool, line: usize, table: toml::Table) -> Result<Self> {
        let role = if is_source { "source" } else { "sink" };
        let at = |message: String| Error::invalid(format!("line {line}: [[{role}]]: {message}"));
        let toml = ConnectorToml::deserialize(table).map_err(|e| at(e.message().to_owned()))?;
        if is_source && toml.on_error.is_some() {
            return Err(at("`on_error` belongs to a sink".into()));
        }
        let connector = Self { is_source, line, toml };
        // values that no annotation can have are refused before streams are known
        connector.annotation().map_err(|e| at(e.message().to_owned()))?;
        Ok(connector)
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        let ConnectorToml { name, kind, stream, .. } = &self.toml;
        let way = if self.is_source { "to" } else { "from" };
        name.clone().unwrap_or_else(|| format!("{kind} {way} {stream}"))
    }

    /// Returns the SiddhiQL file that it stands for, with as many lines as `app.toml` has before it.
    ///
    /// Errors: `Invalid` if its stream is not among `streams`.
    pub fn file(&self, streams: &[Arc<StreamSchema>]) -> Result<AppFile> {
        let name = &self.toml.stream;
        let stream = streams.iter().find(|stream| stream.name == *name).ok_or_else(|| {
            let hint = did_you_mean(name, streams.iter().map(|stream| stream.name.as_str()));
            Error::invalid(format!("app.toml: line {}: no stream `{name}`{hint}", self.line))
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
        let text = format!(
            "{}{fault_stream}{} define stream {name} ({});\n",
            "\n".repeat(self.line.saturating_sub(1)),
            self.annotation()?,
            attributes.join(", ")
        );
        Ok(AppFile { name: format!("app.toml/{}", self.name()), text })
    }

    fn annotation(&self) -> Result<String> {
        let ConnectorToml { kind, on_error, options, map, .. } = &self.toml;
        let mut parts = vec![element("type", kind)?];
        if let Some(action) = on_error {
            parts.push(element("on.error", action)?);
        }
        parts.extend(elements(options)?);
        if let Some(map) = map {
            parts.push(map.annotation(self.is_source)?);
        }
        let role = if self.is_source { "source" } else { "sink" };
        Ok(format!("@{role}({})", parts.join(", ")))
    }
}

impl MapToml {
    fn annotation(&self, is_source: bool) -> Result<String> {
        let mut parts = vec![element("type", &self.kind)?];
        parts.extend(elements(&self.options)?);
        match &self.attributes {
            None => {}
            Some(_) if !is_source => {
                return Err(Error::invalid("`map.attributes` belongs to a source; a sink has `map.payload`"));
            }
            Some(toml::Value::Table(named)) => {
                parts.push(format!("@attributes({})", elements(named)?.join(", ")));
            }
            Some(toml::Value::Array(list)) => {
                let values = list.iter().map(|value| quoted(&text_of("map.attributes", value)?));
                parts.push(format!("@attributes({})", values.collect::<Result<Vec<_>>>()?.join(", ")));
            }
            Some(other) => return Err(not_a_text("map.attributes", other, "a table or a list")),
        }
        match &self.payload {
            None => {}
            Some(_) if is_source => {
                return Err(Error::invalid("`map.payload` belongs to a sink; a source has `map.attributes`"));
            }
            Some(payload) => parts.push(format!("@payload({})", quoted(payload)?)),
        }
        Ok(format!("@map({})", parts.join(", ")))
    }
}

/// Returns the options of a table; options with dots in their names may be written as tables in tables.
fn elements(options: &toml::Table) -> Result<Vec<String>> {
    let mut all = vec![];
    for (name, value) in options {
        match value {
            toml::Value::Table(inner) => {
                let dotted = inner.iter().map(|(part, value)| (format!("{name}.{part}"), value.clone()));
                all.extend(elements(&dotted.collect())?);
            }
            value => all.push(element(name, &text_of(name, value)?)?),
        }
    }
    Ok(all)
}

fn element(name: &str, value: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':');
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(Error::invalid(format!("`{name}` is not a name of an option")));
    }
    // names such as `ssl-ca` are texts in SiddhiQL
    let name = match name.contains(['-', ':']) {
        true => quoted(name)?,
        false => name.to_owned(),
    };
    Ok(format!("{name}={}", quoted(value)?))
}

fn text_of(name: &str, value: &toml::Value) -> Result<String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(n) => Ok(n.to_string()),
        toml::Value::Float(x) => Ok(x.to_string()),
        toml::Value::Boolean(b) => Ok(b.to_string()),
        other => Err(not_a_text(name, other, "a text, a number, true or false")),
    }
}

fn not_a_text(name: &str, value: &toml::Value, expected: &str) -> Error {
    Error::invalid(format!("`{name}`: expected {expected}, found a value of the type {}", value.type_str()))
}

fn quoted(text: &str) -> Result<String> {
    let is_plain = !text.contains(|c: char| c == '"' || u32::from(c) < 0x20);
    let mark = match text {
        _ if is_plain && !text.contains('\'') => "'",
        _ if is_plain => "\"",
        _ if !text.contains("\"\"\"") && !text.ends_with('"') => "\"\"\"",
        _ => {
            return Err(Error::invalid(
                "a value must not have three double quotes in a row, or one at its end beside other lines or quotes",
            ));
        }
    };
    Ok(format!("{mark}{text}{mark}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::Field;

    fn connector(is_source: bool, text: &str) -> Result<AppConnector> {
        AppConnector::read(is_source, 3, toml::from_str(text).unwrap())
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
            "\n\n@source(type='kafka', bootstrap.servers='a:1', partition='2', x=\"it's\", \
             @map(type='json', @attributes(at='$.t', k='$.key'))) define stream Orders (k string, at long);\n"
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
            "@OnError(action='STREAM') @sink(type='http', on.error='STREAM', publisher.url='u', \
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
                "line 3: [[source]]: unknown field `topic`, expected one of `type`, `stream`, `name`, `on_error`, `options`, `map`",
            ),
            (
                true,
                "type = 'kafka'\nstream = 'Orders'\non_error = 'LOG'",
                "line 3: [[source]]: `on_error` belongs to a sink",
            ),
            (
                false,
                "type = 'http'\nstream = 'Orders'\noptions = { url = [1] }",
                "line 3: [[sink]]: `url`: expected a text, a number, true or false, found a value of the type array",
            ),
            (
                false,
                "type = 'http'\nstream = 'Orders'\nmap = { type = 'json', attributes = ['a'] }",
                "line 3: [[sink]]: `map.attributes` belongs to a source; a sink has `map.payload`",
            ),
            (
                true,
                "type = 'http'\nstream = 'Orders'\noptions = { 'a b' = 1 }",
                "line 3: [[source]]: `a b` is not a name of an option",
            ),
        ] {
            assert_eq!(connector(is_source, text).unwrap_err().to_string(), message);
        }
        let unknown = connector(true, "type = 'kafka'\nstream = 'Order'").unwrap();
        assert_eq!(
            unknown.file(&streams()).unwrap_err().to_string(),
            "app.toml: line 3: no stream `Order`. Did you mean `Orders`?"
        );
    }
}

//! Events from Avro.

use std::sync::Arc;

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value as Avro;
use tidemill_connect::{
    EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper, SourceMapperType,
};
use tidemill_types::StreamSchema;

use super::from_avro::{field_value, json};
use super::schema::AvroSchema;
use super::{DEFINITION, ID, NAME, PASSWORD, REGISTRY, SchemaSource, Schemas, USERNAME};
use crate::json::{JsonSource, paths_source};
use crate::read::push_event;

/// Type of the mapper of Avro messages that arrive.
pub(crate) struct AvroSourceType;

const OPTIONS: &[OptionSpec] = &[
    DEFINITION,
    REGISTRY,
    USERNAME,
    PASSWORD,
    ID,
    NAME,
    OptionSpec::flag(
        "fail.on.missing.attribute",
        "true",
        "Whether an event that lacks an attribute is rejected; otherwise the attribute is null.",
    ),
    OptionSpec::flag(
        "use.avro.deserializer",
        "false",
        "Whether messages begin with a zero and the id of their schema in 4 bytes, as serializers of Kafka write them.",
    ),
];

impl SourceMapperType for AvroSourceType {
    fn name(&self) -> &'static str {
        "avro"
    }

    fn summary(&self) -> &'static str {
        "Avro records, by default with the names of the attributes, or values at JSON paths."
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
        let complete = options.flag("fail.on.missing.attribute");
        let paths = match attributes.is_empty() {
            true => None,
            false => Some(paths_source(attributes, schema, complete)?),
        };
        let schemas = Schemas::new(options, schema)?;
        Ok(Box::new(AvroSource { schemas, framed: options.flag("use.avro.deserializer"), complete, paths }))
    }
}

struct AvroSource {
    schemas: Schemas,
    framed: bool,
    complete: bool,
    paths: Option<JsonSource>,
}

impl SourceMapper for AvroSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        match self.read(&message.payload) {
            Err(reason) => out.reject(message, reason, &message.payload),
            Ok(Avro::Array(events)) if events.is_empty() => {
                out.reject(message, "the array has no event", &message.payload);
            }
            Ok(Avro::Array(events)) => events.iter().for_each(|event| self.map_event(message, event, out)),
            Ok(event) => self.map_event(message, &event, out),
        }
    }
}

impl AvroSource {
    fn read(&mut self, message: &[u8]) -> Result<Avro, String> {
        let (writer, reader, body) = match (self.framed, message) {
            (false, body) => (self.schemas.own()?.0, None, body),
            (true, [0, a, b, c, d, body @ ..]) => {
                let (writer, reader) = self.framed_schemas(i32::from_be_bytes([*a, *b, *c, *d]))?;
                (writer, reader, body)
            }
            (true, _) => return Err("expected a zero and the id of the schema in 4 bytes".to_owned()),
        };
        let error = |e: apache_avro::Error| format!("not Avro of the schema: {e}");
        let decoder = GenericDatumReader::builder(&writer.schema);
        let decoder = decoder.maybe_reader_schema(reader.as_ref().map(|reader| &reader.schema));
        let mut rest = body;
        let value = decoder.build().map_err(error)?.read_value(&mut rest).map_err(error)?;
        match rest.len() {
            0 => Ok(value),
            behind => Err(format!("bytes behind the value: {behind}; does another schema fit?")),
        }
    }

    /// Returns the schema with which a message was written, and the one to which it is converted.
    fn framed_schemas(&mut self, id: i32) -> Result<(Arc<AvroSchema>, Option<Arc<AvroSchema>>), String> {
        match (&mut self.schemas.registry, &self.schemas.source) {
            (None, _) => Ok((self.schemas.own()?.0, None)),
            (Some(registry), SchemaSource::Known(own)) => Ok((registry.schema_of_id(id)?, Some(own.clone()))),
            (Some(registry), SchemaSource::Id(own)) if *own == id => Ok((registry.schema_of_id(id)?, None)),
            (Some(registry), _) => {
                let writer = registry.schema_of_id(id)?;
                Ok((writer, Some(self.schemas.own()?.0)))
            }
        }
    }

    fn map_event(&self, message: &Message, event: &Avro, out: &mut EventBuilder) {
        match (&self.paths, event) {
            (_, Avro::Union(_, inner)) => self.map_event(message, inner, out),
            (Some(paths), event) => match json(event) {
                Ok(json) => paths.map_value(message, &json, out),
                Err(reason) => out.reject(message, reason, &message.payload),
            },
            (None, Avro::Record(fields)) => {
                push_event(message, out, &message.payload, self.complete, |_, field| {
                    let found = fields.iter().find(|(name, _)| *name == field.name);
                    found.map(|(_, value)| field_value(field, value)).transpose()
                });
            }
            (None, _) => out.reject(message, "expected a record", &message.payload),
        }
    }
}

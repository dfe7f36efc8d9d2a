//! Avro: records of a schema that is written, fetched from a registry, or made of the stream.

mod from_avro;
mod registry;
mod schema;
mod sink;
mod source;
mod to_avro;

use std::sync::Arc;

use tidemill_connect::{OptionError, OptionSpec, Options};
use tidemill_types::StreamSchema;

use self::registry::Registry;
use self::schema::{AvroSchema, stream_schema};

pub(crate) use self::sink::AvroSinkType;
pub(crate) use self::source::AvroSourceType;

const DEFINITION: OptionSpec = OptionSpec::text("schema.def", "Schema of the messages, as JSON.");

const REGISTRY: OptionSpec =
    OptionSpec::text("schema.registry", "URL of a schema registry, such as `http://localhost:8081`.")
        .secret();

const USERNAME: OptionSpec = OptionSpec::text("schema.registry.username", "User of the schema registry.");

const PASSWORD: OptionSpec =
    OptionSpec::text("schema.registry.password", "Password of the schema registry.").secret();

const ID: OptionSpec =
    OptionSpec::integer("schema.id", 0, i32::MAX as i64, "Id of the schema in the registry.");

const NAME: OptionSpec =
    OptionSpec::text("schema.name", "Subject of the schema in the registry, whose latest version is used.");

/// Source of a mapper's schema.
enum SchemaSource {
    Known(Arc<AvroSchema>),
    Id(i32),
    Name(String),
}

/// Schema of a mapper, and the registry that may have it and others.
struct Schemas {
    source: SchemaSource,
    registry: Option<Registry>,
}

impl Schemas {
    /// Errors: a wrong schema, options that make no sense together.
    fn new(options: &Options, stream: &StreamSchema) -> Result<Self, OptionError> {
        let registry = match options.get(REGISTRY.name) {
            None => None,
            Some(url) => {
                let registry = Registry::new(url, options.get(USERNAME.name), options.get(PASSWORD.name));
                Some(registry.map_err(|e| OptionError::option(REGISTRY.name, e).of_mapper())?)
            }
        };
        let id = options.integer(ID.name).and_then(|id| i32::try_from(id).ok());
        let source = match (options.get(DEFINITION.name), id, options.get(NAME.name)) {
            (Some(text), ..) => {
                let schema = AvroSchema::parse(text);
                SchemaSource::Known(schema.map_err(|e| OptionError::option(DEFINITION.name, e).of_mapper())?)
            }
            (None, Some(id), _) if registry.is_some() => SchemaSource::Id(id),
            (None, None, Some(name)) if registry.is_some() => SchemaSource::Name(name.to_owned()),
            (None, None, None) if registry.is_none() => SchemaSource::Known(stream_schema(stream)?),
            (None, None, None) => {
                let error = OptionError::option(REGISTRY.name, "the registry has many schemas").of_mapper();
                return Err(error.expected(["schema.id='…'", "schema.name='…'"]));
            }
            (None, ..) => {
                let error = OptionError::connector("a schema of a registry needs its URL").of_mapper();
                return Err(error.expected(["schema.registry='http://…'"]));
            }
        };
        Ok(Self { source, registry })
    }

    /// Returns the schema of the mapper, with its id if it comes from a registry by name. It is fetched when the first
    /// message needs it.
    ///
    /// Errors: the registry has no such schema or cannot be reached.
    fn own(&mut self) -> Result<(Arc<AvroSchema>, Option<i32>), String> {
        match (&self.source, &mut self.registry) {
            (SchemaSource::Known(schema), _) => Ok((schema.clone(), None)),
            (SchemaSource::Id(id), Some(registry)) => Ok((registry.schema_of_id(*id)?, Some(*id))),
            (SchemaSource::Name(name), Some(registry)) => {
                let (schema, id) = registry.schema_of_name(name)?;
                Ok((schema, Some(id)))
            }
            // `new` has checked that there is one
            (_, None) => Err("there is no schema registry".to_owned()),
        }
    }
}

//! Avro from events.

use std::sync::Arc;

use apache_avro::Schema;
use apache_avro::types::Value as Avro;
use apache_avro::writer::datum::GenericDatumWriter;
use arrow_array::RecordBatch;
use bytes::Bytes;
use tidemill_connect::{
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SinkMapperType, Template,
};
use tidemill_types::{StreamSchema, row_value};

use super::schema::AvroSchema;
use super::{DEFINITION, ID, NAME, PASSWORD, REGISTRY, SchemaSource, Schemas, USERNAME, to_avro};
use crate::json::rendered;
use crate::write::{messages, single_template};

/// Type of the mapper of Avro messages that leave.
pub(crate) struct AvroSinkType;

const OPTIONS: &[OptionSpec] = &[
    DEFINITION,
    REGISTRY,
    USERNAME,
    PASSWORD,
    ID,
    NAME,
    OptionSpec::flag(
        "use.avro.serializer",
        "false",
        "Whether messages begin with a zero and the id of the schema in 4 bytes, as serializers of Kafka write them.",
    ),
];

impl SinkMapperType for AvroSinkType {
    fn name(&self) -> &'static str {
        "avro"
    }

    fn summary(&self) -> &'static str {
        "Avro records, by default with the names of the attributes, or from a JSON template."
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
        let schemas = Schemas::new(options, schema)?;
        if let (SchemaSource::Known(avro), None) = (&schemas.source, &template) {
            check_names(avro, schema).map_err(|e| OptionError::option(DEFINITION.name, e).of_mapper())?;
        }
        let framed = options.flag("use.avro.serializer");
        let id = options.integer(ID.name).and_then(|id| i32::try_from(id).ok());
        if framed && id.is_none() && matches!(schemas.source, SchemaSource::Known(_)) {
            let message = "messages begin with the id of the schema, which is not known";
            let error = OptionError::option("use.avro.serializer", message).of_mapper();
            return Err(error.expected(["schema.id='…'", "schema.registry='…', schema.name='…'"]));
        }
        Ok(Box::new(AvroSink { stream: schema.clone(), schemas, template, framed, id }))
    }
}

/// Errors: the schema has fields that the stream lacks, or is not a record.
fn check_names(avro: &AvroSchema, stream: &StreamSchema) -> Result<(), String> {
    let Schema::Record(record) = &avro.schema else {
        return Err("expected a record, or a template with @payload".to_owned());
    };
    let missing = record.fields.iter().find(|f| f.default.is_none() && stream.field_index(&f.name).is_none());
    match missing {
        None => Ok(()),
        Some(field) => {
            Err(format!("the stream has no attribute for the field `{}`, which has no default", field.name))
        }
    }
}

struct AvroSink {
    stream: Arc<StreamSchema>,
    schemas: Schemas,
    template: Option<Template>,
    framed: bool,
    id: Option<i32>,
}

impl SinkMapper for AvroSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let (schema, id) = match self.schemas.own() {
            Ok((schema, id)) => (schema, self.id.or(id)),
            Err(reason) => {
                let all = (0..rows.num_rows()).map(|row| RefusedRow { row, reason: reason.clone() });
                refused.extend(all);
                return vec![];
            }
        };
        let event = |row| {
            let mut bytes = vec![];
            if self.framed {
                bytes.push(0);
                bytes.extend(id.ok_or("the id of the schema is not known")?.to_be_bytes());
            }
            let value = self.value(&schema, rows, row)?;
            let written = GenericDatumWriter::builder(&schema.schema)
                .build()
                .and_then(|writer| writer.write_value_to_vec(value));
            bytes.extend(written.map_err(|e| format!("the event does not fit the schema: {e}"))?);
            Ok(bytes)
        };
        messages(rows, refused, false, event, |parts| Ok(Bytes::from(parts.concat())))
    }
}

impl AvroSink {
    fn value(&self, schema: &AvroSchema, rows: &RecordBatch, row: usize) -> Result<Avro, String> {
        if let Some(template) = &self.template {
            let text = rendered(template, &self.stream, rows, row);
            let json = serde_json::from_str(&text).map_err(|e| format!("the payload is not JSON: {e}"))?;
            return to_avro::of_json(schema, &schema.schema, &json);
        }
        let Schema::Record(record) = &schema.schema else {
            return Err("the schema is no record; write a template with @payload".to_owned());
        };
        to_avro::record(schema, record, |name| {
            let column = self.stream.field_index(name)?;
            Some((&self.stream.fields[column], row_value(rows, column, row)))
        })
    }
}

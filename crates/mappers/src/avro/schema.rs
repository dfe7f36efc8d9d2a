//! Schemas, checked so that messages from outside cannot exhaust the memory or the stack.

use std::collections::BTreeMap;
use std::sync::Arc;

use apache_avro::Schema;
use serde_json::json;
use tidemill_connect::OptionError;
use tidemill_types::{FieldType, StreamSchema};

/// Greatest number of bytes of a text, a list or a map in a message.
const ALLOCATION_MAX: usize = 64 << 20;

/// Schema with its named types.
#[derive(Debug)]
pub(super) struct AvroSchema {
    /// Schema as it was parsed.
    pub(super) schema: Schema,
    names: BTreeMap<String, Schema>,
}

impl AvroSchema {
    /// Parses a schema.
    ///
    /// Errors: the text is not an Avro schema, the schema contains itself, or it has lists of items without
    /// bytes.
    pub(super) fn parse(text: &str) -> Result<Arc<Self>, String> {
        apache_avro::util::max_allocation_bytes(ALLOCATION_MAX);
        let schema = Schema::parse_str(text).map_err(|e| format!("not an Avro schema: {e}"))?;
        let mut names = BTreeMap::new();
        check(&schema, &mut vec![], &mut names)?;
        Ok(Arc::new(Self { schema, names }))
    }

    /// Returns the type that a reference names, or the type itself.
    pub(super) fn resolve<'s>(&'s self, schema: &'s Schema) -> &'s Schema {
        match schema {
            Schema::Ref { name } => self.names.get(&name.fullname(None)).unwrap_or(schema),
            schema => schema,
        }
    }
}

fn check(
    schema: &Schema,
    open: &mut Vec<String>,
    names: &mut BTreeMap<String, Schema>,
) -> Result<(), String> {
    if let Some(name) = schema.name().filter(|_| !matches!(schema, Schema::Ref { .. })) {
        names.insert(name.fullname(None), schema.clone());
    }
    match schema {
        Schema::Record(record) => {
            open.push(record.name.fullname(None));
            record.fields.iter().try_for_each(|field| check(&field.schema, open, names))?;
            open.pop();
        }
        Schema::Ref { name } => {
            let name = name.fullname(None);
            if open.contains(&name) {
                return Err(format!("the type `{name}` contains itself, which is refused"));
            }
            if !names.contains_key(&name) {
                return Err(format!("the type `{name}` is not defined"));
            }
        }
        Schema::Array(array) => {
            check(&array.items, open, names)?;
            if is_empty(&array.items, names) {
                return Err("an array of items that take no bytes is refused".to_owned());
            }
        }
        Schema::Map(map) => check(&map.types, open, names)?,
        Schema::Union(union) => {
            union.variants().iter().try_for_each(|variant| check(variant, open, names))?;
        }
        _ => {}
    }
    Ok(())
}

/// Returns whether values take no bytes, so that a short message can have any number of them.
fn is_empty(schema: &Schema, names: &BTreeMap<String, Schema>) -> bool {
    match schema {
        Schema::Null => true,
        Schema::Fixed(fixed) => fixed.size == 0,
        Schema::Record(record) => record.fields.iter().all(|field| is_empty(&field.schema, names)),
        Schema::Ref { name } => names.get(&name.fullname(None)).is_some_and(|schema| is_empty(schema, names)),
        _ => false,
    }
}

/// Returns the record that a stream is without a schema of the user's own.
///
/// Errors: a name that Avro does not allow.
pub(super) fn stream_schema(stream: &StreamSchema) -> Result<Arc<AvroSchema>, OptionError> {
    let fields = stream.fields.iter().map(|field| {
        let ty = match field.ty {
            FieldType::Bool => json!("boolean"),
            FieldType::Int => json!("int"),
            FieldType::Long => json!("long"),
            FieldType::Float => json!("float"),
            FieldType::Double => json!("double"),
            FieldType::Time => json!({"type": "long", "logicalType": "timestamp-micros"}),
            FieldType::String | FieldType::Object => json!("string"),
        };
        json!({"name": field.name, "type": ty})
    });
    let fields: Vec<_> = fields.collect();
    let schema = json!({"type": "record", "name": stream.name, "fields": fields});
    AvroSchema::parse(&schema.to_string()).map_err(|e| {
        let message = format!("the stream cannot be an Avro record: {e}");
        OptionError::connector(message).of_mapper().expected(["schema.def='…'"])
    })
}

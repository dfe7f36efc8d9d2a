//! Values of Avro from fields and from JSON, as a schema demands.

use apache_avro::Schema;
use apache_avro::schema::RecordSchema;
use apache_avro::types::Value as Avro;
use serde_json::Value as Json;
use tidemill_types::{EpochUnit, Field, FieldType, Value};

use super::schema::AvroSchema;

/// Returns the record of an event, whose values `value` returns by name.
///
/// Errors: a field of the schema that is not an attribute and has no default, a value that does not fit.
pub(super) fn record<'a>(
    types: &AvroSchema,
    record: &RecordSchema,
    value: impl Fn(&str) -> Option<(&'a Field, Value<'a>)>,
) -> Result<Avro, String> {
    let mut fields = vec![];
    for field in &record.fields {
        let avro = match (value(&field.name), &field.default) {
            (Some((own, value)), _) => of_field(types, &field.schema, own, &value),
            (None, Some(default)) => of_json(types, &field.schema, default),
            (None, None) => Err("the stream has no such attribute, and the schema no default".to_owned()),
        };
        fields.push((field.name.clone(), avro.map_err(|e| format!("field `{}`: {e}", field.name))?));
    }
    Ok(Avro::Record(fields))
}

fn of_field(types: &AvroSchema, schema: &Schema, field: &Field, value: &Value<'_>) -> Result<Avro, String> {
    let schema = types.resolve(schema);
    if let Schema::Union(union) = schema {
        for (index, variant) in union.variants().iter().enumerate() {
            if let Ok(avro) = of_field(types, variant, field, value) {
                return Ok(Avro::Union(index as u32, Box::new(avro)));
            }
        }
        return Err(format!("no type of the union takes {}", value.type_name()));
    }
    let is_json = field.ty == FieldType::Object
        || matches!(schema, Schema::Record(_) | Schema::Array(_) | Schema::Map(_));
    match (schema, value) {
        (Schema::Null, value) if value.is_absent() => Ok(Avro::Null),
        (_, value) if value.is_absent() => {
            Err("the attribute is null, which the schema does not take".into())
        }
        (Schema::String, Value::Str(text)) => Ok(Avro::String(text.to_string())),
        (_, Value::Str(text)) if is_json => {
            let json = serde_json::from_str(text).map_err(|e| format!("expected JSON: {e}"))?;
            of_json(types, schema, &json)
        }
        (Schema::Bytes, Value::Str(text)) => Ok(Avro::Bytes(text.as_bytes().to_vec())),
        (_, Value::Str(text)) => of_json(types, schema, &Json::from(text.as_ref())),
        (Schema::Boolean, Value::Bool(b)) => Ok(Avro::Boolean(*b)),
        (Schema::Float, Value::Float(x)) => Ok(Avro::Float(*x as f32)),
        (Schema::Double, Value::Float(x)) => Ok(Avro::Double(*x)),
        (_, Value::Int(n)) => of_json(types, schema, &Json::from(*n)),
        (Schema::String, Value::Time(time)) => Ok(Avro::String(time.to_string())),
        (Schema::TimestampMillis, Value::Time(t)) => Ok(Avro::TimestampMillis(t.micros().div_euclid(1000))),
        (Schema::TimestampMicros, Value::Time(t)) => Ok(Avro::TimestampMicros(t.micros())),
        (Schema::TimestampNanos, Value::Time(t)) => match t.micros().checked_mul(1000) {
            Some(nanos) => Ok(Avro::TimestampNanos(nanos)),
            None => Err("the time does not fit into nanoseconds".to_owned()),
        },
        (Schema::Long, Value::Time(t)) => Ok(Avro::Long(match field.unit.unwrap_or_default() {
            EpochUnit::Seconds => t.micros().div_euclid(1_000_000),
            EpochUnit::Millis => t.micros().div_euclid(1000),
            EpochUnit::Micros => t.micros(),
            EpochUnit::Nanos => {
                t.micros().checked_mul(1000).ok_or("the time does not fit into nanoseconds")?
            }
        })),
        (_, value) => Err(format!("expected {}, found {}", kind(schema), value.type_name())),
    }
}

/// Returns a value of JSON. For a union, the value may be alone, or below the name of its type as in Avro's own form of
/// JSON. The depth is that of the schema, which does not contain itself.
///
/// Errors: what was expected and what was found.
pub(super) fn of_json(types: &AvroSchema, schema: &Schema, json: &Json) -> Result<Avro, String> {
    let schema = types.resolve(schema);
    let long = || json.as_i64();
    let avro = match schema {
        Schema::Null => json.is_null().then_some(Avro::Null),
        Schema::Boolean => json.as_bool().map(Avro::Boolean),
        Schema::Int => long().and_then(|n| i32::try_from(n).ok()).map(Avro::Int),
        Schema::Date => long().and_then(|n| i32::try_from(n).ok()).map(Avro::Date),
        Schema::TimeMillis => long().and_then(|n| i32::try_from(n).ok()).map(Avro::TimeMillis),
        Schema::Long => long().map(Avro::Long),
        Schema::TimeMicros => long().map(Avro::TimeMicros),
        Schema::TimestampMillis => long().map(Avro::TimestampMillis),
        Schema::TimestampMicros => long().map(Avro::TimestampMicros),
        Schema::TimestampNanos => long().map(Avro::TimestampNanos),
        Schema::LocalTimestampMillis => long().map(Avro::LocalTimestampMillis),
        Schema::LocalTimestampMicros => long().map(Avro::LocalTimestampMicros),
        Schema::LocalTimestampNanos => long().map(Avro::LocalTimestampNanos),
        Schema::Float => json.as_f64().map(|x| Avro::Float(x as f32)),
        Schema::Double => json.as_f64().map(Avro::Double),
        Schema::String => json.as_str().map(|text| Avro::String(text.to_owned())),
        Schema::Bytes => json.as_str().and_then(latin_bytes).map(Avro::Bytes),
        Schema::Fixed(fixed) => json
            .as_str()
            .and_then(latin_bytes)
            .filter(|bytes| bytes.len() == fixed.size)
            .map(|bytes| Avro::Fixed(fixed.size, bytes)),
        Schema::Enum(all) => json.as_str().and_then(|text| {
            let index = all.symbols.iter().position(|symbol| symbol == text)?;
            Some(Avro::Enum(index as u32, text.to_owned()))
        }),
        Schema::Array(array) => match json.as_array() {
            None => None,
            Some(items) => {
                let items = items.iter().map(|item| of_json(types, &array.items, item));
                Some(Avro::Array(items.collect::<Result<_, _>>()?))
            }
        },
        Schema::Map(map) => match json.as_object() {
            None => None,
            Some(entries) => {
                let entries = entries.iter();
                let entries = entries.map(|(key, item)| Ok((key.clone(), of_json(types, &map.types, item)?)));
                Some(Avro::Map(entries.collect::<Result<_, String>>()?))
            }
        },
        Schema::Record(record) => match json.as_object() {
            None => None,
            Some(entries) => Some(record_of_json(types, record, entries)?),
        },
        Schema::Union(union) => {
            let wrapped = json.as_object().filter(|object| object.len() == 1).and_then(|o| o.iter().next());
            let variants = union.variants().iter().enumerate();
            variants
                .clone()
                .find_map(|(index, variant)| {
                    let (name, inner) = wrapped?;
                    let avro = (*name == type_name(types.resolve(variant)))
                        .then(|| of_json(types, variant, inner).ok())??;
                    Some(Avro::Union(index as u32, Box::new(avro)))
                })
                .or_else(|| {
                    variants.clone().find_map(|(index, variant)| {
                        let avro = of_json(types, variant, json).ok()?;
                        Some(Avro::Union(index as u32, Box::new(avro)))
                    })
                })
        }
        _ => return Err(format!("the type {} cannot be written", kind(schema))),
    };
    avro.ok_or_else(|| {
        let found: String = json.to_string().chars().take(60).collect();
        format!("expected {}, found `{found}`", kind(schema))
    })
}

fn record_of_json(
    types: &AvroSchema,
    record: &RecordSchema,
    entries: &serde_json::Map<String, Json>,
) -> Result<Avro, String> {
    let mut fields = vec![];
    for field in &record.fields {
        let avro = match entries.get(&field.name).or(field.default.as_ref()) {
            Some(json) => of_json(types, &field.schema, json),
            None => Err("the value is missing, and the schema has no default".to_owned()),
        };
        fields.push((field.name.clone(), avro.map_err(|e| format!("field `{}`: {e}", field.name))?));
    }
    if let Some(unknown) = entries.keys().find(|key| !record.lookup.contains_key(*key)) {
        return Err(format!("the schema has no field `{unknown}`"));
    }
    Ok(Avro::Record(fields))
}

/// Returns the bytes of a text whose characters stand for one byte each, as in Avro's form of JSON.
fn latin_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(c as u32).ok()).collect()
}

/// Returns the name of a type in a union.
fn type_name(schema: &Schema) -> String {
    match schema.name() {
        Some(name) => name.fullname(None),
        None => match schema {
            Schema::Date | Schema::TimeMillis => "int".to_owned(),
            Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => "long".to_owned(),
            schema => kind(schema),
        },
    }
}

fn kind(schema: &Schema) -> String {
    match schema {
        Schema::Ref { name } => name.fullname(None),
        schema => format!("{:?}", apache_avro::schema::SchemaKind::from(schema)).to_lowercase(),
    }
}

//! Sizes of the rows of an Avro container, derived from its schema without interpreting the values.
//!
//! Counts and lengths in a damaged block are arbitrary. Skipping over its rows first is cheap and ensures
//! that the decoder finds exactly the declared number of rows.

use std::collections::HashMap;

use serde_json::Value as Json;
use tidemill_types::{Error, Result};

/// Maximum nesting depth of a schema and of its values.
const DEPTH_MAX: usize = 64;

#[derive(Debug, Clone)]
enum TypeLayout {
    /// A fixed number of bytes.
    Fixed(usize),
    /// A varint.
    Number,
    /// A varint length, followed by that many bytes.
    Bytes,
    /// Blocks of items, ended by an empty block.
    Array(Box<TypeLayout>),
    /// Consecutive fields.
    Record(Vec<TypeLayout>),
    /// A varint branch index, followed by a value of that branch.
    Union(Vec<TypeLayout>),
    /// A reference to a named type of the schema.
    Named(String),
}

/// Layout of the rows of a file.
#[derive(Debug)]
pub(crate) struct RowLayout {
    row: TypeLayout,
    named: HashMap<String, TypeLayout>,
}

impl RowLayout {
    /// Parses an Avro schema. Errors: the fault of the schema.
    pub(crate) fn parse(schema: &Json) -> Result<Self> {
        let mut named = HashMap::new();
        let row =
            parse(schema, &mut named, "", 0).map_err(|why| Error::invalid(format!("Avro schema: {why}")))?;
        Ok(Self { row, named })
    }

    /// Returns whether `content` consists of exactly `rows` rows.
    pub(crate) fn fits(&self, content: &[u8], rows: u64) -> bool {
        let mut rest = content;
        (0..rows).all(|_| self.skip(&self.row, &mut rest, 0).is_some()) && rest.is_empty()
    }

    fn skip(&self, shape: &TypeLayout, rest: &mut &[u8], depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match shape {
            TypeLayout::Fixed(length) => *rest = rest.get(*length..)?,
            TypeLayout::Number => drop(number(rest)?),
            TypeLayout::Bytes => {
                let length = usize::try_from(number(rest)?).ok()?;
                *rest = rest.get(length..)?;
            }
            TypeLayout::Record(fields) => {
                for field in fields {
                    self.skip(field, rest, depth + 1)?;
                }
            }
            TypeLayout::Union(branches) => {
                let branch = usize::try_from(number(rest)?).ok()?;
                self.skip(branches.get(branch)?, rest, depth + 1)?;
            }
            TypeLayout::Array(item) => loop {
                let count = number(rest)?;
                if count == 0 {
                    break;
                }
                if count < 0 {
                    // The block's length in bytes follows.
                    number(rest)?;
                }
                // Items without bytes would only waste time, so the count is bounded by the remaining bytes.
                let count = usize::try_from(count.unsigned_abs()).ok().filter(|c| *c <= rest.len())?;
                for _ in 0..count {
                    self.skip(item, rest, depth + 1)?;
                }
            },
            TypeLayout::Named(name) => self.skip(self.named.get(name)?, rest, depth + 1)?,
        }
        Some(())
    }
}

#[inline]
fn number(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for (i, byte) in rest.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            *rest = &rest[i + 1..];
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

fn parse(
    schema: &Json,
    named: &mut HashMap<String, TypeLayout>,
    namespace: &str,
    depth: usize,
) -> Result<TypeLayout, String> {
    if depth > DEPTH_MAX {
        return Err(format!("types are nested deeper than {DEPTH_MAX}"));
    }
    let object = match schema {
        Json::String(name) => return Ok(by_name(name, namespace)),
        Json::Array(branches) => {
            let branches = branches.iter().map(|b| parse(b, named, namespace, depth + 1));
            return branches.collect::<Result<_, _>>().map(TypeLayout::Union);
        }
        Json::Object(object) => object,
        other => return Err(format!("`{other}` is no type")),
    };
    let part = |key: &str| object.get(key).ok_or_else(|| format!("a type lacks `{key}`"));
    let ty = part("type")?;
    let Json::String(kind) = ty else { return parse(ty, named, namespace, depth + 1) };
    let own = object.get("namespace").and_then(Json::as_str);
    let full =
        object.get("name").and_then(Json::as_str).map(|name| full_name(name, own.unwrap_or(namespace)));
    // Names inside a record are resolved in its namespace.
    let inside = full.as_deref().and_then(|f| f.rsplit_once('.')).map_or("", |(space, _)| space);
    let shape = match kind.as_str() {
        "array" => {
            return Ok(TypeLayout::Array(Box::new(parse(part("items")?, named, namespace, depth + 1)?)));
        }
        "map" => {
            let value = parse(part("values")?, named, namespace, depth + 1)?;
            return Ok(TypeLayout::Array(Box::new(TypeLayout::Record(vec![TypeLayout::Bytes, value]))));
        }
        "record" | "error" => {
            let fields = part("fields")?.as_array().ok_or("`fields` is no list")?;
            let field = |f: &Json| {
                let ty = f.get("type").ok_or("a field lacks `type`")?;
                parse(ty, named, inside, depth + 1)
            };
            TypeLayout::Record(fields.iter().map(field).collect::<Result<_, _>>()?)
        }
        "enum" => TypeLayout::Number,
        "fixed" => {
            let size = part("size")?.as_u64().and_then(|size| usize::try_from(size).ok());
            TypeLayout::Fixed(size.ok_or("`size` is no number")?)
        }
        name => return Ok(by_name(name, namespace)),
    };
    if let Some(full) = full {
        named.insert(full, shape.clone());
    }
    Ok(shape)
}

fn by_name(name: &str, namespace: &str) -> TypeLayout {
    match name {
        "null" => TypeLayout::Fixed(0),
        "boolean" => TypeLayout::Fixed(1),
        "int" | "long" => TypeLayout::Number,
        "float" => TypeLayout::Fixed(4),
        "double" => TypeLayout::Fixed(8),
        "bytes" | "string" => TypeLayout::Bytes,
        other => TypeLayout::Named(full_name(other, namespace)),
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_take_what_the_schema_says() {
        let schema = json!({"type": "record", "name": "R", "namespace": "a.b", "fields": [
            {"name": "n", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "s", "type": ["null", "string"]},
            {"name": "m", "type": {"type": "map", "values": "double"}},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X"]}},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
            {"name": "g", "type": "F"},
            {"name": "next", "type": ["null", "a.b.R"]},
        ]});
        let shape = RowLayout::parse(&schema).unwrap();
        // 1; "hi"; {"k": 0.0}; X; abc; def; null
        let row = [&[2, 2, 4][..], b"hi", &[2, 2], b"k", &[0; 8], &[0, 0], b"abcdef", &[0]].concat();
        assert!(shape.fits(&row, 1));
        assert!(shape.fits(&[row.clone(), row.clone()].concat(), 2));
        assert!(!shape.fits(&[row.clone(), row.clone()].concat(), 1));
        assert!(!shape.fits(&row, 2));
        assert!(!shape.fits(&row[..row.len() - 1], 1));
        // `next` is a row itself; nesting is allowed up to the limit.
        let nested = [&row[..row.len() - 1], &[2], &row[..]].concat();
        assert!(shape.fits(&nested, 1));
        let deep = [&row[..row.len() - 1], &[2]].concat().repeat(100);
        assert!(!shape.fits(&[deep, row].concat(), 1));
        assert!(RowLayout::parse(&json!({"type": "array"})).is_err());
    }
}

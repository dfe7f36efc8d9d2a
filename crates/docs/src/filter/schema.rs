//! `$jsonSchema`: JSON Schema of draft 4 with `bsonType`.

use regex::Regex;

use super::compiled_regex;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::parse::types_of_alias;
use crate::values::display::display;
use crate::values::key::Key;
use crate::values::order::{compare, equal};
use crate::values::raw::{OwnedRawValue, RawValue, elements, tag};

/// Nesting of a schema.
const DEPTH_MAX: usize = 100;
/// Keywords that say nothing about documents.
const DESCRIPTIONS: [&str; 3] = ["title", "description", "$schema"];

/// A parsed schema: what must hold of a value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schema(Vec<Keyword>);

#[derive(Debug, Clone)]
enum Keyword {
    Types(Vec<u8>),
    Enum(Vec<OwnedRawValue>),
    AllOf(Vec<Schema>),
    AnyOf(Vec<Schema>),
    OneOf(Vec<Schema>),
    Not(Box<Schema>),
    Minimum(OwnedRawValue, bool),
    Maximum(OwnedRawValue, bool),
    MultipleOf(f64),
    MinLength(usize),
    MaxLength(usize),
    Pattern(Regex),
    Required(Vec<String>),
    MinProperties(usize),
    MaxProperties(usize),
    Properties(Vec<(String, Schema)>),
    /// Patterns of names, the names that `properties` knows, and what holds for all others; `None` for not allowed.
    Others {
        known: Vec<String>,
        patterns: Vec<Regex>,
        others: Option<Box<Schema>>,
    },
    PatternProperties(Vec<(Regex, Schema)>),
    Dependencies(Vec<(String, Dependency)>),
    MinItems(usize),
    MaxItems(usize),
    UniqueItems,
    Items(Box<Schema>),
    ItemList(Vec<Schema>, Option<Box<Schema>>, bool),
}

#[derive(Debug, Clone)]
enum Dependency {
    Names(Vec<String>),
    Schema(Schema),
}

fn wrong(keyword: &str, expected: &str, v: RawValue<'_>) -> DocsError {
    DocsError::new(
        ErrorCode::TypeMismatch,
        format!("$jsonSchema keyword '{keyword}' must be {expected}, found {}", display(v)),
    )
}

fn name(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl Schema {
    /// Parses a schema. Errors: keywords that MongoDB does not have, or with wrong values.
    pub fn parse(v: RawValue<'_>) -> Result<Self> {
        Self::nested("$jsonSchema", v, 0)
    }

    fn nested(keyword: &str, v: RawValue<'_>, depth: usize) -> Result<Self> {
        if v.tag != tag::DOCUMENT {
            return Err(wrong(keyword, "an object", v));
        }
        if depth > DEPTH_MAX {
            return Err(DocsError::parse(format!("$jsonSchema nested deeper than {DEPTH_MAX} levels")));
        }
        let field = |wanted: &str| elements(v.bytes).find(|e| e.name == wanted.as_bytes()).map(|e| e.value);
        let is_true = |wanted: &str| field(wanted).is_some_and(|v| v.tag == tag::BOOL && v.bytes == [1]);
        let mut keywords = Vec::new();
        for e in elements(v.bytes) {
            let keyword = name(e.name);
            let v = e.value;
            let count = || {
                let n = v.as_integer().and_then(|n| usize::try_from(n).ok());
                n.ok_or_else(|| wrong(keyword, "a whole number of 0 or more", v))
            };
            let schemas = || {
                let list = if v.tag == tag::ARRAY { elements(v.bytes).collect() } else { Vec::new() };
                if list.is_empty() {
                    return Err(wrong(keyword, "a nonempty array of schemas", v));
                }
                list.into_iter()
                    .map(|e| Self::nested(keyword, e.value, depth + 1))
                    .collect::<Result<Vec<_>>>()
            };
            let number = || match v.tag {
                tag::INT32 | tag::INT64 | tag::DOUBLE | tag::DECIMAL => Ok(OwnedRawValue::of(v)),
                _ => Err(wrong(keyword, "a number", v)),
            };
            let named = || named_schemas(keyword, v, depth);
            keywords.push(match keyword {
                "bsonType" | "type" => Keyword::Types(types(keyword, v)?),
                "enum" if v.tag == tag::ARRAY => {
                    Keyword::Enum(elements(v.bytes).map(|e| OwnedRawValue::of(e.value)).collect())
                }
                "allOf" => Keyword::AllOf(schemas()?),
                "anyOf" => Keyword::AnyOf(schemas()?),
                "oneOf" => Keyword::OneOf(schemas()?),
                "not" => Keyword::Not(Box::new(Self::nested(keyword, v, depth + 1)?)),
                "minimum" => Keyword::Minimum(number()?, is_true("exclusiveMinimum")),
                "maximum" => Keyword::Maximum(number()?, is_true("exclusiveMaximum")),
                "multipleOf" => match float(v).filter(|n| *n > 0.0) {
                    Some(n) => Keyword::MultipleOf(n),
                    None => return Err(wrong(keyword, "a number above 0", v)),
                },
                "minLength" => Keyword::MinLength(count()?),
                "maxLength" => Keyword::MaxLength(count()?),
                "pattern" => match v.text() {
                    Some(pattern) if v.tag == tag::STRING => Keyword::Pattern(compiled_regex(pattern, "")?),
                    _ => return Err(wrong(keyword, "a string", v)),
                },
                "required" => Keyword::Required(names(keyword, v)?),
                "minProperties" => Keyword::MinProperties(count()?),
                "maxProperties" => Keyword::MaxProperties(count()?),
                "properties" => Keyword::Properties(named()?),
                "patternProperties" => {
                    let patterns = named()?.into_iter();
                    let patterns =
                        patterns.map(|(pattern, schema)| Ok((compiled_regex(&pattern, "")?, schema)));
                    Keyword::PatternProperties(patterns.collect::<Result<_>>()?)
                }
                "additionalProperties" => {
                    let keys = |wanted| {
                        field(wanted).map_or(Vec::new(), |v| {
                            elements(v.bytes).map(|e| name(e.name).to_owned()).collect::<Vec<_>>()
                        })
                    };
                    let patterns = keys("patternProperties")
                        .iter()
                        .map(|p| compiled_regex(p, ""))
                        .collect::<Result<_>>()?;
                    let others = match v.tag {
                        tag::BOOL if v.bytes == [1] => continue,
                        tag::BOOL => None,
                        _ => Some(Box::new(Self::nested(keyword, v, depth + 1)?)),
                    };
                    Keyword::Others { known: keys("properties"), patterns, others }
                }
                "dependencies" => Keyword::Dependencies(dependencies(keyword, v, depth)?),
                "minItems" => Keyword::MinItems(count()?),
                "maxItems" => Keyword::MaxItems(count()?),
                "uniqueItems" if is_true("uniqueItems") => Keyword::UniqueItems,
                "items" if v.tag == tag::ARRAY => {
                    let list = elements(v.bytes).map(|e| Self::nested(keyword, e.value, depth + 1));
                    let (others, allowed) = match field("additionalItems") {
                        Some(v) if v.tag == tag::DOCUMENT => {
                            (Some(Box::new(Self::nested("additionalItems", v, depth + 1)?)), true)
                        }
                        Some(v) => (None, v.bytes == [1]),
                        None => (None, true),
                    };
                    Keyword::ItemList(list.collect::<Result<_>>()?, others, allowed)
                }
                "items" => Keyword::Items(Box::new(Self::nested(keyword, v, depth + 1)?)),
                "exclusiveMinimum" | "exclusiveMaximum" | "uniqueItems" if v.tag == tag::BOOL => continue,
                "additionalItems" => continue,
                keyword if DESCRIPTIONS.contains(&keyword) => continue,
                keyword => {
                    return Err(DocsError::parse(format!("Unknown $jsonSchema keyword: {keyword}")));
                }
            });
        }
        Ok(Self(keywords))
    }

    /// Returns whether a value fits the schema.
    pub fn fits(&self, value: RawValue<'_>) -> bool {
        self.0.iter().all(|keyword| keyword.fits(value))
    }
}

fn named_schemas(keyword: &str, v: RawValue<'_>, depth: usize) -> Result<Vec<(String, Schema)>> {
    if v.tag != tag::DOCUMENT {
        return Err(wrong(keyword, "an object", v));
    }
    elements(v.bytes)
        .map(|e| Ok((name(e.name).to_owned(), Schema::nested(keyword, e.value, depth + 1)?)))
        .collect()
}

fn names(keyword: &str, v: RawValue<'_>) -> Result<Vec<String>> {
    let list = if v.tag == tag::ARRAY { elements(v.bytes).collect() } else { Vec::new() };
    if list.is_empty() {
        return Err(wrong(keyword, "a nonempty array of strings", v));
    }
    let text = |v: RawValue<'_>| v.text().filter(|_| v.tag == tag::STRING).map(str::to_owned);
    list.into_iter().map(|e| text(e.value).ok_or_else(|| wrong(keyword, "an array of strings", v))).collect()
}

fn dependencies(keyword: &str, v: RawValue<'_>, depth: usize) -> Result<Vec<(String, Dependency)>> {
    if v.tag != tag::DOCUMENT {
        return Err(wrong(keyword, "an object", v));
    }
    let dependency = |v: RawValue<'_>| match v.tag {
        tag::ARRAY => names(keyword, v).map(Dependency::Names),
        _ => Schema::nested(keyword, v, depth + 1).map(Dependency::Schema),
    };
    elements(v.bytes).map(|e| Ok((name(e.name).to_owned(), dependency(e.value)?))).collect()
}

/// Returns the types of `bsonType` and of JSON Schema's `type`.
fn types(keyword: &str, v: RawValue<'_>) -> Result<Vec<u8>> {
    let mut tags = Vec::new();
    let mut add = |v: RawValue<'_>| {
        let alias = v.text().filter(|_| v.tag == tag::STRING);
        let alias = alias.ok_or_else(|| wrong(keyword, "a string or an array of strings", v))?;
        let alias = if keyword == "type" && alias == "boolean" { "bool" } else { alias };
        let found = types_of_alias(alias);
        tags.extend(found.ok_or_else(|| DocsError::bad_value(format!("Unknown type name alias: {alias}")))?);
        Ok::<_, DocsError>(())
    };
    match v.tag {
        tag::ARRAY => elements(v.bytes).try_for_each(|e| add(e.value))?,
        _ => add(v)?,
    }
    Ok(tags)
}

fn float(v: RawValue<'_>) -> Option<f64> {
    match v.tag {
        tag::DOUBLE => Some(v.f64()),
        tag::INT32 | tag::INT64 => v.as_integer().map(|n| n as f64),
        _ => None,
    }
}

impl Keyword {
    fn fits(&self, value: RawValue<'_>) -> bool {
        let is_number = matches!(value.tag, tag::INT32 | tag::INT64 | tag::DOUBLE | tag::DECIMAL);
        let text = value.text().filter(|_| value.tag == tag::STRING);
        let (is_object, is_array) = (value.tag == tag::DOCUMENT, value.tag == tag::ARRAY);
        match self {
            Self::Types(tags) => tags.contains(&value.tag),
            Self::Enum(values) => values.iter().any(|v| equal(v.as_raw(), value)),
            Self::AllOf(schemas) => schemas.iter().all(|schema| schema.fits(value)),
            Self::AnyOf(schemas) => schemas.iter().any(|schema| schema.fits(value)),
            Self::OneOf(schemas) => schemas.iter().filter(|schema| schema.fits(value)).count() == 1,
            Self::Not(schema) => !schema.fits(value),
            Self::Minimum(least, exclusive) => {
                let order = compare(value, least.as_raw());
                !is_number || order.is_gt() || (!exclusive && order.is_eq())
            }
            Self::Maximum(most, exclusive) => {
                let order = compare(value, most.as_raw());
                !is_number || order.is_lt() || (!exclusive && order.is_eq())
            }
            Self::MultipleOf(divisor) => float(value).is_none_or(|n| n % divisor == 0.0),
            Self::MinLength(least) => text.is_none_or(|text| text.chars().count() >= *least),
            Self::MaxLength(most) => text.is_none_or(|text| text.chars().count() <= *most),
            Self::Pattern(pattern) => text.is_none_or(|text| pattern.is_match(text)),
            _ if is_object => self.fits_object(value),
            _ if is_array => self.fits_array(value),
            _ => true,
        }
    }

    fn fits_object(&self, value: RawValue<'_>) -> bool {
        let has = |wanted: &str| elements(value.bytes).any(|e| e.name == wanted.as_bytes());
        match self {
            Self::Required(names) => names.iter().all(|name| has(name)),
            Self::MinProperties(least) => elements(value.bytes).count() >= *least,
            Self::MaxProperties(most) => elements(value.bytes).count() <= *most,
            Self::Properties(properties) => elements(value.bytes).all(|e| {
                let schema = properties.iter().find(|(name, _)| name.as_bytes() == e.name);
                schema.is_none_or(|(_, schema)| schema.fits(e.value))
            }),
            Self::PatternProperties(patterns) => elements(value.bytes).all(|e| {
                let mut schemas = patterns.iter().filter(|(pattern, _)| pattern.is_match(name(e.name)));
                schemas.all(|(_, schema)| schema.fits(e.value))
            }),
            Self::Others { known, patterns, others } => elements(value.bytes).all(|e| {
                known.iter().any(|known| known.as_bytes() == e.name)
                    || patterns.iter().any(|pattern| pattern.is_match(name(e.name)))
                    || others.as_ref().is_some_and(|schema| schema.fits(e.value))
            }),
            Self::Dependencies(dependencies) => dependencies.iter().all(|(name, dependency)| {
                !has(name)
                    || match dependency {
                        Dependency::Names(names) => names.iter().all(|name| has(name)),
                        Dependency::Schema(schema) => schema.fits(value),
                    }
            }),
            _ => true,
        }
    }

    fn fits_array(&self, value: RawValue<'_>) -> bool {
        match self {
            Self::MinItems(least) => elements(value.bytes).count() >= *least,
            Self::MaxItems(most) => elements(value.bytes).count() <= *most,
            Self::UniqueItems => {
                let mut seen = std::collections::HashSet::new();
                elements(value.bytes).all(|e| seen.insert(Key::of_raw(e.value)))
            }
            Self::Items(schema) => elements(value.bytes).all(|e| schema.fits(e.value)),
            Self::ItemList(schemas, others, allowed) => {
                elements(value.bytes).enumerate().all(|(at, e)| match (schemas.get(at), others) {
                    (Some(schema), _) => schema.fits(e.value),
                    (None, Some(schema)) => schema.fits(e.value),
                    (None, None) => *allowed,
                })
            }
            _ => true,
        }
    }
}

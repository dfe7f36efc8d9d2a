//! Parser for MongoDB's filter documents.

use std::sync::Arc;

use bson::raw::{RawBsonRef, RawDocument};
use regex::{Regex, RegexBuilder};
use tidemill_types::did_you_mean;

use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::expression::{Expression, Variables};
use crate::geo::GeoTest;
use crate::limits::{CLAUSES_MAX, REGEX_BYTES_MAX};
use crate::values::display::display;
use crate::values::key::has_strings;
use crate::values::path::Path;
use crate::values::raw::{OwnedRawValue, RawElement, RawValue, elements, field, tag};

use super::bits::BitTest;
use super::pattern::Pattern;
use super::schema::Schema;
use super::{CollatedTest, Comparison, ExpressionTest, FilterNode, RegexPattern, ValueTest};

const FIELD_OPERATORS: [&str; 25] = [
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$not",
    "$exists",
    "$type",
    "$regex",
    "$options",
    "$size",
    "$all",
    "$elemMatch",
    "$mod",
    "$bitsAllSet",
    "$bitsAnySet",
    "$bitsAllClear",
    "$bitsAnyClear",
    "$geoWithin",
    "$geoIntersects",
    "$near",
    "$nearSphere",
];
const TOP_OPERATORS: [&str; 10] = [
    "$and",
    "$or",
    "$nor",
    "$comment",
    "$expr",
    "$jsonSchema",
    "$text",
    "$where",
    "$alwaysTrue",
    "$alwaysFalse",
];
/// Limit on the nesting of `$not`, `$and` and `$elemMatch`. Valid documents are not deeper than this anyway.
const DEPTH_MAX: usize = 200;

/// Number of conditions and values parsed so far, and the current depth.
pub(super) struct FilterParser<'v> {
    clauses: usize,
    depth: usize,
    /// Number of the operators around that have branches, or negate.
    pub(super) inside: usize,
    /// Number of the operators around in which nothing is searched.
    pub(super) without_search: usize,
    /// Number of the operators around that look at elements of arrays.
    pub(super) in_elements: usize,
    pub(super) has_near: bool,
    pub(super) has_text: bool,
    pub(super) variables: &'v Variables,
}

pub(super) fn document(filter: &[u8]) -> Result<FilterNode> {
    document_with(filter, &Variables::default())
}

pub(super) fn document_with(filter: &[u8], variables: &Variables) -> Result<FilterNode> {
    FilterParser::new(variables).document(filter)
}

/// Parses `{ $gt: 1, $lt: 5 }` to conditions on the pseudo field `""`, for `$pull`.
pub(crate) fn conditions_on_value(operators: &[u8], collation: Option<&Collation>) -> Result<FilterNode> {
    let variables = Variables { collation: collation.cloned(), ..Variables::default() };
    FilterParser::new(&variables).operators(&Path::new(""), operators)
}

/// Returns whether a document has the form `{ $op: … }`.
pub(crate) fn is_operators(doc: &[u8]) -> bool {
    elements(doc)
        .next()
        .is_some_and(|e| e.name.first() == Some(&b'$') && !matches!(e.name, b"$ref" | b"$id" | b"$db"))
}

fn text<'a>(e: &RawElement<'a>) -> &'a str {
    std::str::from_utf8(e.name).unwrap_or_default()
}

fn expected(op: &str, expected: &str, found: RawValue<'_>) -> DocsError {
    DocsError::bad_value(format!("{op} needs {expected}, found {}", display(found)))
}

impl<'v> FilterParser<'v> {
    fn new(variables: &'v Variables) -> Self {
        Self {
            clauses: 0,
            depth: 0,
            inside: 0,
            without_search: 0,
            in_elements: 0,
            has_near: false,
            has_text: false,
            variables,
        }
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(DocsError::parse(format!("filter nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(())
    }

    fn count(&mut self, n: usize) -> Result<()> {
        self.clauses += n;
        if self.clauses > CLAUSES_MAX {
            return Err(DocsError::parse(format!(
                "filter too large: limit of {CLAUSES_MAX} conditions and values"
            )));
        }
        Ok(())
    }

    fn document(&mut self, filter: &[u8]) -> Result<FilterNode> {
        self.enter()?;
        let mut all = Vec::new();
        for e in elements(filter) {
            self.count(1)?;
            match text(&e) {
                "$and" => all.push(FilterNode::All(self.branches("$and", e.value)?)),
                "$or" => all.push(FilterNode::Any(self.inside(|parser| parser.branches("$or", e.value))?)),
                "$nor" => {
                    let branches = self.negated(|parser| parser.branches("$nor", e.value))?;
                    all.push(not(FilterNode::Any(branches)));
                }
                "$comment" | "$alwaysTrue" => {}
                "$alwaysFalse" => all.push(FilterNode::Any(Vec::new())),
                "$jsonSchema" => all.push(FilterNode::Schema(Arc::new(Schema::parse(e.value)?))),
                "$where" => all.push(self.script(filter, &e)?),
                "$text" => all.push(self.text(e.value)?),
                "$expr" => {
                    let expression = Expression::parse_with(as_bson(filter, &e)?, self.variables)?;
                    all.push(FilterNode::Expression(Box::new(ExpressionTest { expression })));
                }
                name if name.starts_with('$') => return Err(unknown_top(name)),
                name => all.push(self.field(&Path::new(name), e.value)?),
            }
        }
        self.depth -= 1;
        Ok(if all.len() == 1 { all.remove(0) } else { FilterNode::All(all) })
    }

    fn branches(&mut self, op: &str, value: RawValue<'_>) -> Result<Vec<FilterNode>> {
        if value.tag != tag::ARRAY || elements(value.bytes).next().is_none() {
            return Err(expected(op, "a nonempty array of filters", value));
        }
        elements(value.bytes)
            .map(|e| match e.value.tag {
                tag::DOCUMENT => self.document(e.value.bytes),
                _ => Err(expected(op, "filters as its elements", e.value)),
            })
            .collect()
    }

    /// Parses `field: value` or `field: { $op: operand }`.
    fn field(&mut self, path: &Path, value: RawValue<'_>) -> Result<FilterNode> {
        match value.tag {
            tag::DOCUMENT if is_operators(value.bytes) => self.operators(path, value.bytes),
            tag::REGEX => Ok(FilterNode::Field(path.clone(), ValueTest::Pattern(regex_value(value)?))),
            _ => Ok(self.equals(path, value)),
        }
    }

    fn operators(&mut self, path: &Path, operators: &[u8]) -> Result<FilterNode> {
        self.enter()?;
        let mut all = Vec::new();
        for e in elements(operators) {
            self.count(1)?;
            let op = text(&e);
            if !op.starts_with('$') {
                return Err(DocsError::bad_value(format!(
                    "unknown operator: {op} in the conditions of '{path}': operators such as $gt cannot be mixed with fields"
                )));
            }
            if let Some(node) = self.operator(path, op, e.value, operators)? {
                all.push(node);
            }
        }
        self.depth -= 1;
        Ok(if all.len() == 1 { all.remove(0) } else { FilterNode::All(all) })
    }

    fn operator(
        &mut self,
        path: &Path,
        op: &str,
        v: RawValue<'_>,
        beside: &[u8],
    ) -> Result<Option<FilterNode>> {
        let compare = |c| self.compare(path, c, v);
        Ok(Some(match op {
            "$eq" => self.equals(path, v),
            "$ne" if v.tag == tag::REGEX => {
                return Err(expected("$ne", "a value ($not takes a regular expression)", v));
            }
            "$ne" => not(self.equals(path, v)),
            "$gt" | "$gte" | "$lt" | "$lte" if v.tag == tag::REGEX => {
                return Err(expected(op, "a value other than a regular expression", v));
            }
            "$gt" => compare(Comparison::Gt),
            "$gte" => compare(Comparison::Gte),
            "$lt" => compare(Comparison::Lt),
            "$lte" => compare(Comparison::Lte),
            "$in" => self.one_of(path, op, v)?,
            "$nin" => not(self.one_of(path, op, v)?),
            "$not" => match v.tag {
                tag::REGEX => not(FilterNode::Field(path.clone(), ValueTest::Pattern(regex_value(v)?))),
                tag::DOCUMENT if is_operators(v.bytes) => {
                    not(self.negated(|parser| parser.operators(path, v.bytes))?)
                }
                _ => {
                    return Err(expected("$not", "a regular expression or a document of operators", v));
                }
            },
            "$exists" => {
                let exists = FilterNode::Field(path.clone(), ValueTest::Exists);
                if is_truthy(v) { exists } else { not(exists) }
            }
            "$type" => FilterNode::Field(path.clone(), ValueTest::Type(types(v)?)),
            "$regex" => FilterNode::Field(path.clone(), ValueTest::Pattern(regex_operator(v, beside)?)),
            "$options" if field(beside, b"$regex").is_some() => return Ok(None),
            "$options" => return Err(DocsError::bad_value("$options needs a $regex")),
            "$size" => match v.as_integer() {
                Some(n) if n >= 0 => FilterNode::Field(path.clone(), ValueTest::Size(n)),
                _ => return Err(expected("$size", "a whole number from 0", v)),
            },
            "$mod" => FilterNode::Field(path.clone(), modulo(v)?),
            "$bitsAllSet" | "$bitsAnySet" | "$bitsAllClear" | "$bitsAnyClear" => {
                FilterNode::Field(path.clone(), ValueTest::Bits(BitTest::parse(op, v)?))
            }
            "$comment" => return Ok(None),
            "$all" => self.all_of(path, v)?,
            "$elemMatch" => self.elem_match(path, v)?,
            "$geoWithin" | "$within" | "$geoIntersects" => {
                FilterNode::Field(path.clone(), ValueTest::Geo(Arc::new(GeoTest::parse(op, v)?)))
            }
            "$near" | "$nearSphere" => self.near(path, op, v, beside)?,
            "$minDistance" | "$maxDistance"
                if ["$near", "$nearSphere"].iter().any(|near| field(beside, near.as_bytes()).is_some()) =>
            {
                return Ok(None);
            }
            _ => return Err(unknown_field_operator(op)),
        }))
    }

    fn equals(&self, path: &Path, v: RawValue<'_>) -> FilterNode {
        self.compare(path, Comparison::Eq, v)
    }

    fn compare(&self, path: &Path, comparison: Comparison, v: RawValue<'_>) -> FilterNode {
        let operand = OwnedRawValue::of(v);
        let test = match &self.variables.collation {
            Some(collation) if has_strings(v) => ValueTest::Collated(Box::new(CollatedTest::new(
                comparison,
                vec![operand],
                Vec::new(),
                collation,
            ))),
            _ => ValueTest::Compare(comparison, operand),
        };
        FilterNode::Field(path.clone(), test)
    }

    fn one_of(&mut self, path: &Path, op: &str, v: RawValue<'_>) -> Result<FilterNode> {
        if v.tag != tag::ARRAY {
            return Err(expected(op, "an array", v));
        }
        let (mut values, mut patterns) = (Vec::new(), Vec::new());
        for e in elements(v.bytes) {
            self.count(1)?;
            match e.value.tag {
                tag::REGEX => patterns.push(regex_value(e.value)?),
                tag::DOCUMENT if is_operators(e.value.bytes) => {
                    return Err(DocsError::bad_value(format!(
                        "cannot nest $ under {op}: found {}",
                        display(e.value)
                    )));
                }
                _ => values.push(OwnedRawValue::of(e.value)),
            }
        }
        let test = match &self.variables.collation {
            Some(collation) if values.iter().any(|value| has_strings(value.as_raw())) => {
                ValueTest::Collated(Box::new(CollatedTest::new(Comparison::Eq, values, patterns, collation)))
            }
            _ => ValueTest::In(values, patterns),
        };
        Ok(FilterNode::Field(path.clone(), test))
    }

    fn all_of(&mut self, path: &Path, v: RawValue<'_>) -> Result<FilterNode> {
        if v.tag != tag::ARRAY {
            return Err(expected("$all", "an array", v));
        }
        let mut all = Vec::new();
        for e in elements(v.bytes) {
            self.count(1)?;
            let first = if e.value.tag == tag::DOCUMENT { elements(e.value.bytes).next() } else { None };
            match first {
                Some(op) if op.name == b"$elemMatch" => all.push(self.elem_match(path, op.value)?),
                Some(op) if op.name.starts_with(b"$") => {
                    return Err(expected("$all", "an array of either values or $elemMatch", e.value));
                }
                _ if e.value.tag == tag::REGEX => {
                    all.push(FilterNode::Field(path.clone(), ValueTest::Pattern(regex_value(e.value)?)))
                }
                _ => all.push(self.equals(path, e.value)),
            }
        }
        // an empty $all matches nothing
        Ok(if all.is_empty() { FilterNode::Any(all) } else { FilterNode::All(all) })
    }

    fn elem_match(&mut self, path: &Path, v: RawValue<'_>) -> Result<FilterNode> {
        if v.tag != tag::DOCUMENT {
            return Err(expected("$elemMatch", "a document", v));
        }
        self.in_elements += 1;
        let parsed = self.elem_match_of(path, v);
        self.in_elements -= 1;
        parsed
    }

    fn elem_match_of(&mut self, path: &Path, v: RawValue<'_>) -> Result<FilterNode> {
        let first = elements(v.bytes).next();
        let on_values = first.is_some_and(|e| e.name.starts_with(b"$") && !TOP_OPERATORS.contains(&text(&e)));
        let test = if on_values {
            let test = self.inside(|parser| parser.operators(&Path::new(""), v.bytes))?;
            ValueTest::ElemMatchValue(Box::new(test))
        } else {
            ValueTest::ElemMatchDocument(Box::new(self.negated(|parser| parser.document(v.bytes))?))
        };
        Ok(FilterNode::Field(path.clone(), test))
    }
}

/// Returns an element of a document as BSON.
pub(super) fn as_bson<'d>(document: &'d [u8], element: &RawElement<'_>) -> Result<RawBsonRef<'d>> {
    let invalid = |e: bson::error::Error| DocsError::new(ErrorCode::InvalidBson, e.to_string());
    let value = RawDocument::from_bytes(document).map_err(invalid)?.get(text(element)).map_err(invalid)?;
    value.ok_or_else(|| DocsError::parse("a filter without its expression"))
}

fn not(node: FilterNode) -> FilterNode {
    FilterNode::Not(Box::new(node))
}

fn is_truthy(v: RawValue<'_>) -> bool {
    match v.tag {
        tag::BOOL => v.bytes.first() == Some(&1),
        tag::NULL | tag::UNDEFINED => false,
        tag::DOUBLE => v.f64() != 0.0,
        _ => v.as_integer() != Some(0),
    }
}

fn unknown_top(name: &str) -> DocsError {
    let why = match name {
        "$function" | "$sampleRate" => {
            let why = format!("{name} is not supported. Top-level operators: {}", TOP_OPERATORS.join(", "));
            return DocsError::new(ErrorCode::NotSupported, why);
        }
        _ if FIELD_OPERATORS.contains(&name) => {
            format!("{name} applies to a field: write {{ field: {{ {name}: … }} }}")
        }
        _ => format!("unknown top level operator: {name}{}", did_you_mean(name, TOP_OPERATORS)),
    };
    DocsError::bad_value(why)
}

fn unknown_field_operator(op: &str) -> DocsError {
    let why = match op {
        _ if TOP_OPERATORS.contains(&op) => {
            format!("{op} is not allowed under a field: write {{ {op}: [ … ] }} at the top level")
        }
        _ => format!("unknown operator: {op}{}", did_you_mean(op, FIELD_OPERATORS)),
    };
    DocsError::bad_value(why)
}

fn modulo(v: RawValue<'_>) -> Result<ValueTest> {
    let parts: Vec<RawValue<'_>> =
        if v.tag == tag::ARRAY { elements(v.bytes).map(|e| e.value).collect() } else { Vec::new() };
    let [divisor, remainder] = parts.as_slice() else {
        return Err(expected("$mod", "an array of divisor and remainder", v));
    };
    match (super::truncated(*divisor), super::truncated(*remainder)) {
        (Some(0), _) => Err(DocsError::bad_value("divisor cannot be 0 in $mod")),
        (Some(divisor), Some(remainder)) => Ok(ValueTest::Mod { divisor, remainder }),
        _ => Err(expected("$mod", "two numbers", v)),
    }
}

/// Parses `"string"`, `2`, `"number"` or an array of them.
fn types(v: RawValue<'_>) -> Result<Vec<u8>> {
    if v.tag != tag::ARRAY {
        return type_tags(v);
    }
    let mut all = Vec::new();
    for e in elements(v.bytes) {
        all.extend(type_tags(e.value)?);
    }
    if all.is_empty() {
        return Err(expected("$type", "at least one type", v));
    }
    Ok(all)
}

/// Returns the types that an alias such as `int` or `number` stands for.
pub(super) fn types_of_alias(alias: &str) -> Option<Vec<u8>> {
    type_tags(OwnedRawValue::string(alias).as_raw()).ok()
}

fn type_tags(v: RawValue<'_>) -> Result<Vec<u8>> {
    const ALL: [u8; 21] = [
        tag::DOUBLE,
        tag::STRING,
        tag::DOCUMENT,
        tag::ARRAY,
        tag::BINARY,
        tag::UNDEFINED,
        tag::OBJECT_ID,
        tag::BOOL,
        tag::DATE,
        tag::NULL,
        tag::REGEX,
        tag::DB_POINTER,
        tag::CODE,
        tag::SYMBOL,
        tag::CODE_WITH_SCOPE,
        tag::INT32,
        tag::TIMESTAMP,
        tag::INT64,
        tag::DECIMAL,
        tag::MIN_KEY,
        tag::MAX_KEY,
    ];
    if v.tag == tag::STRING {
        let name = v.text().unwrap_or_default();
        if name == "number" {
            return Ok(vec![tag::DOUBLE, tag::INT32, tag::INT64, tag::DECIMAL]);
        }
        let found = ALL.into_iter().find(|t| crate::values::raw::type_name(*t) == name);
        let names = ALL.map(crate::values::raw::type_name);
        return found.map(|t| vec![t]).ok_or_else(|| {
            DocsError::bad_value(format!("Unknown type name alias: {name}{}", did_you_mean(name, names)))
        });
    }
    let code = v.as_integer().and_then(|n| if n == -1 { Some(tag::MIN_KEY) } else { u8::try_from(n).ok() });
    code.filter(|c| ALL.contains(c) && v.as_integer() != Some(255))
        .map(|c| vec![c])
        .ok_or_else(|| expected("$type", "a type name such as \"string\" or its number", v))
}

/// Parses a regular expression that is a BSON value.
fn regex_value(v: RawValue<'_>) -> Result<RegexPattern> {
    let mut parts = v.bytes.split(|b| *b == 0).map(|p| std::str::from_utf8(p).unwrap_or_default());
    let (pattern, options) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    build_regex(pattern, options)
}

/// Parses `$regex` with or without `$options`.
fn regex_operator(v: RawValue<'_>, beside: &[u8]) -> Result<RegexPattern> {
    let options = match field(beside, b"$options").map(|e| e.value) {
        None => None,
        Some(o) if o.tag == tag::STRING => o.text(),
        Some(o) => return Err(expected("$options", "a string", o)),
    };
    match v.tag {
        tag::STRING => build_regex(v.text().unwrap_or_default(), options.unwrap_or_default()),
        tag::REGEX => {
            let mut parts = v.bytes.split(|b| *b == 0).map(|p| std::str::from_utf8(p).unwrap_or_default());
            let (pattern, own) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if options.is_some() && !own.is_empty() {
                return Err(DocsError::bad_value("options set in both $regex and $options"));
            }
            build_regex(pattern, options.unwrap_or(own))
        }
        _ => Err(expected("$regex", "a string or a regular expression", v)),
    }
}

fn build_regex(pattern: &str, options: &str) -> Result<RegexPattern> {
    let regex = Pattern::new(pattern, options)?;
    let mut source = Vec::with_capacity(pattern.len() + options.len() + 2);
    source.extend_from_slice(pattern.as_bytes());
    source.push(0);
    source.extend_from_slice(options.as_bytes());
    source.push(0);
    Ok(RegexPattern { regex, source: OwnedRawValue::of(RawValue { tag: tag::REGEX, bytes: &source }) })
}

/// Compiles a regular expression with MongoDB's options. Errors: it is invalid or too large, or an option is unknown.
pub(crate) fn compiled_regex(pattern: &str, options: &str) -> Result<Regex> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX);
    for option in options.chars() {
        match option {
            'i' => builder.case_insensitive(true),
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'x' => builder.ignore_whitespace(true),
            // strings are always Unicode
            'u' => &mut builder,
            other => {
                return Err(DocsError::bad_value(format!(
                    "invalid flag in regex options: {other}: expected i, m, s, u or x"
                )));
            }
        };
    }
    builder.build().map_err(|e| {
        let why = e.to_string();
        let last = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        DocsError::bad_value(format!("Regular expression is invalid: {pattern:?}: {last}"))
    })
}

//! Parser for MongoDB's update documents.

use bson::raw::{RawBsonRef, RawDocument};
use tidemill_types::{Timestamp, did_you_mean};

use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::expression::Variables;
use crate::filter::{Filter, conditions_on_value, is_operators};
use crate::reshape::ReshapeStage;
use crate::sort::{SortOrder, direction};
use crate::values::display::display;
use crate::values::path::Path;
use crate::values::raw::{OwnedRawValue, RawValue, elements, field, tag};

use super::positional::ArrayFilter;
use super::{PullOperator, PushOperator, PushSort, Update, UpdateOperator, arith};

const OPERATORS: [&str; 15] = [
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$push",
    "$pull",
    "$pullAll",
    "$addToSet",
    "$pop",
    "$rename",
    "$currentDate",
    "$setOnInsert",
    "$bit",
];

pub(super) fn parse(update: &RawDocument, now: Timestamp, collation: Option<&Collation>) -> Result<Update> {
    let mut parsed = Update { collation: collation.cloned(), ..Update::new() };
    for e in elements(update.as_bytes()) {
        let op = std::str::from_utf8(e.name).unwrap_or_default();
        if op == "$arrayFilters" && e.value.tag == tag::ARRAY {
            let filters = elements(e.value.bytes).map(|e| ArrayFilter::parse(e.value, collation));
            parsed.array_filters = filters.collect::<Result<_>>()?;
            continue;
        }
        if op == "$pipeline" {
            parsed.pipeline = Some(pipeline(update, now, collation)?);
            continue;
        }
        check_operator(op)?;
        if e.value.tag != tag::DOCUMENT {
            return Err(DocsError::parse(format!(
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: ...}}}} not {{{op}: {}}}",
                e.value.type_name(),
                display(e.value)
            )));
        }
        for operand in elements(e.value.bytes) {
            let path = std::str::from_utf8(operand.name).unwrap_or_default();
            if op == "$rename" {
                let target = rename_target(path, operand.value)?;
                parsed.add(path, UpdateOperator::RenameFrom)?;
                parsed.add(target, UpdateOperator::RenameTo(Path::new(path)))?;
            } else {
                parsed.add(path, change(op, path, operand.value, collation)?)?;
            }
        }
    }
    parsed.check_array_filters()?;
    Ok(parsed)
}

/// Parses the stages of `{ $pipeline: [ … ] }`.
fn pipeline(
    update: &RawDocument,
    now: Timestamp,
    collation: Option<&Collation>,
) -> Result<Vec<ReshapeStage>> {
    let invalid = |e: bson::error::Error| DocsError::new(ErrorCode::InvalidBson, e.to_string());
    let variables = Variables {
        now: Some(bson::DateTime::from_millis(now.0.div_euclid(1000))),
        collation: collation.cloned(),
        ..Variables::default()
    };
    let Some(RawBsonRef::Array(array)) = update.get("$pipeline").map_err(invalid)? else {
        return Err(DocsError::type_mismatch("an update by a pipeline must be an array of stages"));
    };
    let mut stages = Vec::new();
    for stage in array {
        let stage = stage.map_err(invalid)?;
        let stage = stage.as_document().map(|stage| stage.into_iter().collect::<Result<Vec<_>, _>>());
        let stage = stage.transpose().map_err(invalid)?;
        let Some([(name, value)]) = stage.as_deref() else {
            let message = "A pipeline stage specification object must contain exactly one field.";
            return Err(DocsError::new(ErrorCode::NotOneStage, message));
        };
        let name = name.as_str();
        match ReshapeStage::parse(name, *value, &variables)? {
            Some(stage) => stages.push(stage),
            None => {
                return Err(DocsError::new(
                    ErrorCode::InvalidOptions,
                    format!(
                        "{name} is not allowed to be used within an update: expected $addFields, $set, $project, $unset, $replaceRoot or $replaceWith"
                    ),
                ));
            }
        }
    }
    Ok(stages)
}

fn check_operator(op: &str) -> Result<()> {
    if !op.starts_with('$') {
        return Err(DocsError::parse(format!(
            "expected update operators such as $set, found the field '{op}': to change fields write {{$set: {{{op}: …}}}}; to exchange the whole document use replace"
        )));
    }
    match op {
        "$addFields" | "$project" | "$replaceRoot" | "$replaceWith" => Err(DocsError::parse(format!(
            "{op} is a stage: an update by a pipeline is an array, [{{{op}: …}}]"
        ))),
        _ if OPERATORS.contains(&op) => Ok(()),
        _ => Err(DocsError::parse(format!("Unknown modifier: {op}{}", did_you_mean(op, OPERATORS)))),
    }
}

fn change(op: &str, path: &str, v: RawValue<'_>, collation: Option<&Collation>) -> Result<UpdateOperator> {
    let owned = || OwnedRawValue::of(v);
    Ok(match op {
        "$set" => UpdateOperator::Set(owned()),
        "$setOnInsert" => UpdateOperator::SetOnInsert(owned()),
        "$unset" => UpdateOperator::Unset,
        "$inc" => UpdateOperator::Inc(arith::operand(op, path, owned())?),
        "$mul" => UpdateOperator::Mul(arith::operand(op, path, owned())?),
        "$min" => UpdateOperator::Min(owned()),
        "$max" => UpdateOperator::Max(owned()),
        "$currentDate" => UpdateOperator::CurrentDate { timestamp: current_date(path, v)? },
        "$push" => UpdateOperator::Push(Box::new(push(v, collation)?)),
        "$addToSet" => UpdateOperator::AddToSet(add_to_set(v)?),
        "$pullAll" if v.tag == tag::ARRAY => UpdateOperator::PullAll(values(v)),
        "$pullAll" => {
            return Err(DocsError::bad_value(format!(
                "$pullAll requires an array argument but was given a {}",
                v.type_name()
            )));
        }
        "$bit" => UpdateOperator::Bit(arith::bit_operations(path, v)?),
        "$pull" => UpdateOperator::Pull(Box::new(pull(v, collation)?)),
        _ => UpdateOperator::Pop { first: pop(path, v)? },
    })
}

fn values(array: RawValue<'_>) -> Vec<OwnedRawValue> {
    elements(array.bytes).map(|e| OwnedRawValue::of(e.value)).collect()
}

fn rename_target<'v>(path: &str, v: RawValue<'v>) -> Result<&'v str> {
    let target = (v.tag == tag::STRING).then(|| v.text()).flatten();
    let Some(target) = target else {
        return Err(DocsError::bad_value(format!(
            "The 'to' field for $rename must be a string: {path}: {}",
            display(v)
        )));
    };
    if target == path {
        return Err(DocsError::bad_value(format!(
            "The source and target field for $rename must differ: {path}: {target:?}"
        )));
    }
    Ok(target)
}

/// Returns whether to write a timestamp rather than a date.
fn current_date(path: &str, v: RawValue<'_>) -> Result<bool> {
    let wrong = || {
        DocsError::bad_value(format!(
            "$currentDate of '{path}': expected true, {{$type: \"date\"}} or {{$type: \"timestamp\"}}, found {}",
            display(v)
        ))
    };
    match v.tag {
        tag::BOOL => Ok(false),
        tag::DOCUMENT => match field(v.bytes, b"$type").and_then(|e| e.value.text()) {
            Some("date") => Ok(false),
            Some("timestamp") => Ok(true),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn pop(path: &str, v: RawValue<'_>) -> Result<bool> {
    match v.as_integer() {
        Some(1) => Ok(false),
        Some(-1) => Ok(true),
        _ => Err(DocsError::parse(format!("$pop expects 1 or -1, found: {path}: {}", display(v)))),
    }
}

fn push(v: RawValue<'_>, collation: Option<&Collation>) -> Result<PushOperator> {
    let each = if v.tag == tag::DOCUMENT { field(v.bytes, b"$each") } else { None };
    let Some(each) = each else {
        return Ok(PushOperator {
            values: vec![OwnedRawValue::of(v)],
            position: None,
            slice: None,
            sort: None,
        });
    };
    if each.value.tag != tag::ARRAY {
        return Err(DocsError::bad_value(format!(
            "The argument to $each in $push must be an array but it was of type: {}",
            each.value.type_name()
        )));
    }
    let mut parsed = PushOperator { values: values(each.value), position: None, slice: None, sort: None };
    for e in elements(v.bytes) {
        let whole = |name: &str| {
            e.value.as_integer().ok_or_else(|| {
                DocsError::bad_value(format!(
                    "The value for {name} must be an integer value, found {}",
                    display(e.value)
                ))
            })
        };
        match e.name {
            b"$each" => {}
            b"$position" => parsed.position = Some(whole("$position")?),
            b"$slice" => parsed.slice = Some(whole("$slice")?),
            b"$sort" => parsed.sort = Some(push_sort(e.value, collation)?),
            other => {
                return Err(DocsError::bad_value(format!(
                    "Unrecognized clause in $push: {}: expected $each, $position, $slice or $sort",
                    String::from_utf8_lossy(other)
                )));
            }
        }
    }
    Ok(parsed)
}

fn push_sort(v: RawValue<'_>, collation: Option<&Collation>) -> Result<PushSort> {
    if v.tag != tag::DOCUMENT {
        return direction("$sort", v).map(PushSort::Whole);
    }
    let doc = RawDocument::from_bytes(v.bytes)
        .map_err(|e| DocsError::new(ErrorCode::InvalidBson, format!("$sort in $push: {e}")))?;
    let order = SortOrder::parse(doc)?.with_collation(collation.cloned());
    if order.is_empty() {
        return Err(DocsError::bad_value(
            "The $sort pattern in $push is empty: expected fields such as {a: 1}, or 1 or -1",
        ));
    }
    Ok(PushSort::Fields(order))
}

fn add_to_set(v: RawValue<'_>) -> Result<Vec<OwnedRawValue>> {
    let first = if v.tag == tag::DOCUMENT { elements(v.bytes).next() } else { None };
    match first {
        Some(each) if each.name == b"$each" => {
            if each.value.tag != tag::ARRAY {
                return Err(DocsError::type_mismatch(format!(
                    "The argument to $each in $addToSet must be an array but it was of type {}",
                    each.value.type_name()
                )));
            }
            if elements(v.bytes).count() > 1 {
                return Err(DocsError::bad_value(format!(
                    "Found unexpected fields after $each in $addToSet: {}",
                    display(v)
                )));
            }
            Ok(values(each.value))
        }
        _ => Ok(vec![OwnedRawValue::of(v)]),
    }
}

fn pull(v: RawValue<'_>, collation: Option<&Collation>) -> Result<PullOperator> {
    match v.tag {
        tag::DOCUMENT if is_operators(v.bytes) => {
            Ok(PullOperator::Values(Filter::of(conditions_on_value(v.bytes, collation)?)))
        }
        tag::DOCUMENT => {
            let doc = RawDocument::from_bytes(v.bytes)
                .map_err(|e| DocsError::new(ErrorCode::InvalidBson, format!("$pull: {e}")))?;
            Filter::parse_by(doc, collation).map(PullOperator::Documents)
        }
        tag::REGEX => {
            let doc = v.in_document("");
            let doc = RawDocument::from_bytes(&doc)
                .map_err(|e| DocsError::new(ErrorCode::InvalidBson, format!("$pull: {e}")))?;
            Filter::parse(doc).map(PullOperator::Values)
        }
        _ => Ok(PullOperator::Equal(OwnedRawValue::of(v))),
    }
}

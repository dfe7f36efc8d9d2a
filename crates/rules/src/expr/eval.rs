//! Row-at-a-time evaluation of expressions.

use std::sync::Arc;

use bson::RawBsonRef;
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};

use super::row::Bindings;
use super::value::RuleValue;
use super::{Expr, ExprNode, JsonPath, funcs, ops};

/// Evaluates `expr` for the event and documents of `frame`. Never fails: a value that cannot be computed is
/// missing.
pub fn eval<'a>(expr: &'a Expr, frame: &Bindings<'a>) -> RuleValue<'a> {
    match &expr.kind {
        ExprNode::Const(c) => c.value(),
        ExprNode::Event { column, json: false, .. } => frame.row.value(*column),
        ExprNode::Event { column, path, .. } => json_field(&frame.row.value(*column), path),
        ExprNode::Doc { slot, path } => match frame.doc(*slot) {
            Some(doc) => match path {
                Some(path) => RuleValue::from_value(path.get(doc)),
                None => RuleValue::Bson(RawBsonRef::Document(doc)),
            },
            None => RuleValue::Missing,
        },
        ExprNode::Neg(x) => ops::negate(&eval(x, frame)),
        ExprNode::Arith(op, a, b) => ops::arith(*op, eval(a, frame), eval(b, frame)),
        ExprNode::Call(func, args) => call(*func, args, frame),
        ExprNode::If(parts) => match truth(&parts.0, frame) {
            Some(true) => eval(&parts.1, frame),
            Some(false) => eval(&parts.2, frame),
            None => RuleValue::Missing,
        },
        ExprNode::Coalesce(args) => {
            args.iter().map(|x| eval(x, frame)).find(|v| !v.is_absent()).unwrap_or(RuleValue::Missing)
        }
        ExprNode::Object(fields) => RuleValue::Owned(Box::new(RawBson::Document(object(fields, frame)))),
        ExprNode::Array(items) => RuleValue::Owned(Box::new(RawBson::Array(array(items, frame)))),
        // aggregates run as SQL; the resolver rejects them everywhere else
        ExprNode::Aggregate(..) => RuleValue::Missing,
        ExprNode::Not(_)
        | ExprNode::And(_)
        | ExprNode::Or(_)
        | ExprNode::Compare(..)
        | ExprNode::IsNull(..)
        | ExprNode::In(..)
        | ExprNode::InArray(..)
        | ExprNode::Matches(..)
        | ExprNode::Exists(_) => truth(expr, frame).map_or(RuleValue::Missing, RuleValue::Bool),
    }
}

/// Evaluates `expr` as a condition; `None` is missing.
pub fn truth(expr: &Expr, frame: &Bindings<'_>) -> Option<bool> {
    match &expr.kind {
        ExprNode::Not(x) => truth(x, frame).map(|b| !b),
        ExprNode::And(parts) => {
            let mut all = Some(true);
            for part in parts {
                match truth(part, frame) {
                    Some(false) => return Some(false),
                    None => all = None,
                    Some(true) => {}
                }
            }
            all
        }
        ExprNode::Or(parts) => {
            let mut any = Some(false);
            for part in parts {
                match truth(part, frame) {
                    Some(true) => return Some(true),
                    None => any = None,
                    Some(false) => {}
                }
            }
            any
        }
        ExprNode::Compare(op, a, b) => ops::compare(*op, &eval(a, frame), &eval(b, frame)),
        ExprNode::IsNull(x, negated) => Some(eval(x, frame).is_absent() != *negated),
        ExprNode::Exists(x) => Some(!eval(x, frame).is_absent()),
        ExprNode::In(x, list) => {
            let value = eval(x, frame);
            is_in(&value, list.iter().map(|item| eval(item, frame)))
        }
        ExprNode::InArray(x, array) => {
            let value = eval(x, frame);
            match eval(array, frame).as_bson() {
                Some(RawBsonRef::Array(items)) => {
                    is_in(&value, items.into_iter().flatten().map(RuleValue::from_bson))
                }
                _ => None,
            }
        }
        ExprNode::Matches(x, pattern) => match eval(x, frame) {
            RuleValue::Str(text) => Some(pattern.0.is_match(&text)),
            _ => None,
        },
        _ => eval(expr, frame).truth(),
    }
}

/// Returns whether `value` is one of `items`; missing if `value` is absent, or if none is equal and one of
/// them is absent.
fn is_in<'v>(value: &RuleValue<'_>, items: impl Iterator<Item = RuleValue<'v>>) -> Option<bool> {
    if value.is_absent() {
        return None;
    }
    let mut answer = Some(false);
    for item in items {
        match ops::compare(ops::CompareOp::Eq, value, &item) {
            Some(true) => return Some(true),
            Some(false) => {}
            // an item of another type is just not equal; a missing item might have been equal
            None if item.is_absent() => answer = None,
            None => {}
        }
    }
    answer
}

fn call<'a>(func: funcs::Func, args: &'a [Expr], frame: &Bindings<'a>) -> RuleValue<'a> {
    match args {
        [x] => funcs::call(func, &mut [eval(x, frame)]),
        [a, b] => funcs::call(func, &mut [eval(a, frame), eval(b, frame)]),
        _ => {
            let mut values: smallvec::SmallVec<[RuleValue<'a>; 4]> =
                args.iter().map(|x| eval(x, frame)).collect();
            funcs::call(func, &mut values)
        }
    }
}

/// Reads a field inside the JSON text of a column.
fn json_field<'a>(text: &RuleValue<'_>, path: &JsonPath) -> RuleValue<'a> {
    let RuleValue::Str(text) = text else { return RuleValue::Missing };
    let Ok(mut json) = serde_json::from_str::<serde_json::Value>(text) else { return RuleValue::Missing };
    for name in path.iter() {
        let inner = match &mut json {
            serde_json::Value::Object(map) => map.get_mut(name.as_ref()),
            serde_json::Value::Array(items) => name.parse().ok().and_then(|i: usize| items.get_mut(i)),
            _ => None,
        };
        match inner {
            Some(v) => json = v.take(),
            None => return RuleValue::Missing,
        }
    }
    match json_bson(json) {
        Some(value) => RuleValue::from_raw(value),
        None => RuleValue::Missing,
    }
}

/// Converts JSON to BSON; names that start with `$` are read as Extended JSON.
fn json_bson(json: serde_json::Value) -> Option<RawBson> {
    let bson = bson::Bson::try_from(json).ok()?;
    RawBson::try_from(bson).ok()
}

/// Builds a document from the fields whose value is not missing.
pub fn object(fields: &[(Arc<str>, Expr)], frame: &Bindings<'_>) -> RawDocumentBuf {
    let mut doc = RawDocumentBuf::new();
    for (name, expr) in fields {
        if let Some(value) = eval(expr, frame).to_raw_bson() {
            append(&mut doc, name, value);
        }
    }
    doc
}

/// Appends a field. Drops a field whose name contains NUL; the compiler rejects such names.
pub fn append(doc: &mut RawDocumentBuf, name: &str, value: RawBson) {
    if let Ok(name) = bson::raw::CString::try_from(name.to_owned()) {
        doc.append(name, value);
    }
}

fn array(items: &[Expr], frame: &Bindings<'_>) -> RawArrayBuf {
    let mut out = RawArrayBuf::new();
    for value in items.iter().filter_map(|x| eval(x, frame).to_raw_bson()) {
        out.push(value);
    }
    out
}

//! Elements of arrays that a projection selects: `$slice`, `$elemMatch` and the positional operator.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::{Bson, Document};
use tidemill_types::Value;

use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;
use crate::reshape::set_path;

/// The elements of an array at a path.
#[derive(Debug, Clone)]
pub(super) struct ElementSelection {
    path: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Elements to skip, counted from the end if negative, and how many to keep; `None` counts the kept ones from the end.
    Slice(Option<i64>, i64),
    /// The first element that matches as the only element of the pseudo field `""`.
    ElemMatch(Filter),
    /// The element that the query's filter has matched.
    Positional(Filter),
}

impl ElementSelection {
    /// Parses `{ $slice: … }` or `{ $elemMatch: … }`; `None` for another document.
    pub fn parse(path: &str, operator: &RawDocument) -> Result<Option<Self>> {
        let mut fields = operator.into_iter();
        let (Some(Ok((name, value))), None) = (fields.next(), fields.next()) else { return Ok(None) };
        let kind = match (name.as_str(), value) {
            ("$slice", value) => match slice(value) {
                Some(slice) => slice?,
                None => return Ok(None),
            },
            ("$elemMatch", RawBsonRef::Document(_)) => {
                let mut condition = bson::RawDocumentBuf::new();
                condition.append(bson::cstr!(""), operator);
                Kind::ElemMatch(Filter::parse(&condition)?)
            }
            ("$elemMatch", _) => {
                return Err(DocsError::new(
                    ErrorCode::ElemMatchNotObject,
                    format!("elemMatch: Invalid argument, object required, in the projection of '{path}'"),
                ));
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { path: path.to_owned(), kind }))
    }

    pub fn positional(path: &str, filter: Filter) -> Self {
        Self { path: path.to_owned(), kind: Kind::Positional(filter) }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether fields that are not named stay.
    pub fn fits_exclusion(&self) -> bool {
        matches!(self.kind, Kind::Slice(..))
    }

    /// Cuts the array of `target` to the selected elements. `source` is the whole document.
    pub fn apply(&self, source: &[u8], target: &mut Document) -> Result<()> {
        match &self.kind {
            Kind::Slice(skip, count) => {
                visit_arrays(target, &self.path, &mut |array| cut(array, *skip, *count));
            }
            Kind::ElemMatch(filter) => {
                let found = first_match(source, &self.path, filter)?;
                set_path(target, &self.path, found.map(|element| Bson::Array(vec![element])));
            }
            Kind::Positional(filter) => {
                let Some(at) = filter.matched_element(source) else {
                    let message = format!(
                        "positional operator '{}.$' couldn't find a matching element in the array",
                        self.path
                    );
                    return Err(DocsError::new(ErrorCode::NoMatchedElement, message));
                };
                visit_arrays(target, &self.path, &mut |array| cut(array, Some(i64::from(at)), 1));
            }
        }
        Ok(())
    }
}

/// Parses the operand of `$slice`; `None` if it is an expression.
fn slice(value: RawBsonRef<'_>) -> Option<Result<Kind>> {
    let number = |value: RawBsonRef<'_>| match value {
        RawBsonRef::Int32(n) => Some(i64::from(n)),
        RawBsonRef::Int64(n) => Some(n),
        RawBsonRef::Double(n) if n.fract() == 0.0 => Some(n as i64),
        _ => None,
    };
    match value {
        RawBsonRef::Array(array) => pair(array, number),
        value => number(value).map(|count| Ok(Kind::Slice(None, count))),
    }
}

fn pair(array: &RawArray, number: impl Fn(RawBsonRef<'_>) -> Option<i64>) -> Option<Result<Kind>> {
    let mut numbers = array.into_iter().map(|value| number(value.ok()?));
    let (Some(Some(skip)), Some(Some(count)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
        return None;
    };
    Some(match count > 0 {
        true => Ok(Kind::Slice(Some(skip), count)),
        false => Err(DocsError::new(
            ErrorCode::SliceCount,
            format!("$slice expects a count above 0, found {count}"),
        )),
    })
}

fn cut(array: &mut Vec<Bson>, skip: Option<i64>, count: i64) {
    let length = array.len();
    let clamp = |n: i64| usize::try_from(n).unwrap_or(usize::MAX).min(length);
    let (start, count) = match skip {
        None if count < 0 => (length - clamp(count.saturating_neg()), length),
        None => (0, clamp(count)),
        Some(skip) if skip < 0 => (length - clamp(skip.saturating_neg()), clamp(count)),
        Some(skip) => (clamp(skip), clamp(count)),
    };
    array.drain(..start);
    array.truncate(count);
}

/// Calls `change` with the arrays at a path.
fn visit_arrays(document: &mut Document, path: &str, change: &mut dyn FnMut(&mut Vec<Bson>)) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match (document.get_mut(name), rest) {
        (Some(Bson::Array(array)), None) => change(array),
        (Some(Bson::Document(inner)), Some(rest)) => visit_arrays(inner, rest, change),
        (Some(Bson::Array(array)), Some(rest)) => {
            for element in array {
                if let Bson::Document(inner) = element {
                    visit_arrays(inner, rest, change);
                }
            }
        }
        _ => {}
    }
}

/// Returns the first element of the array at a path that matches.
fn first_match(source: &[u8], path: &str, filter: &Filter) -> Result<Option<Bson>> {
    let invalid = |e: bson::error::Error| DocsError::new(ErrorCode::InvalidBson, e.to_string());
    let value = crate::values::path::get_path(RawDocument::from_bytes(source).map_err(invalid)?, path);
    let Value::Bson(RawBsonRef::Array(array)) = value else { return Ok(None) };
    for element in array {
        let element = element.map_err(invalid)?;
        let mut one = bson::RawArrayBuf::new();
        one.push(element);
        let mut document = bson::RawDocumentBuf::new();
        document.append(bson::cstr!(""), one);
        if filter.test(document.as_bytes())? {
            return Bson::try_from(element).map(Some).map_err(invalid);
        }
    }
    Ok(None)
}

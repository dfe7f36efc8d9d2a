//! `$unwind`: one document for each element of an array.

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};
use tidemill_docs::{DocBytes, encoded, set_path};
use tidemill_types::budget;

use super::flow::{Flow, Receiver};
use crate::error::{CommandError, Result};
use crate::fields::type_name;

/// `$unwind`
pub(in crate::commands) struct Unwind {
    path: Vec<String>,
    index: Option<String>,
    keeps_empty: bool,
}

impl Unwind {
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let wrong = |code, message: &str| CommandError { code, message: message.to_owned() };
        let (path, index, keeps_empty) = match value {
            RawBsonRef::String(path) => (path, None, false),
            RawBsonRef::Document(options) => {
                let (mut path, mut index, mut keeps_empty) = (None, None, false);
                for option in options {
                    let (name, value) = option?;
                    match (name.as_str(), value) {
                        ("path", RawBsonRef::String(text)) => path = Some(text),
                        ("includeArrayIndex", RawBsonRef::String(name))
                            if !name.starts_with('$') && !name.is_empty() =>
                        {
                            index = Some(name.to_owned());
                        }
                        ("preserveNullAndEmptyArrays", RawBsonRef::Boolean(flag)) => keeps_empty = flag,
                        (name, _) => {
                            return Err(wrong(
                                28811,
                                &format!("unrecognized or wrong option to $unwind stage: {name}"),
                            ));
                        }
                    }
                }
                (path.ok_or_else(|| wrong(28812, "no path specified to $unwind stage"))?, index, keeps_empty)
            }
            other => {
                let message = format!("$unwind expects a string or an object, found {}", type_name(other));
                return Err(wrong(15981, &message));
            }
        };
        let path = path.strip_prefix('$').filter(|path| !path.is_empty());
        let path =
            path.ok_or_else(|| wrong(28818, "path option to $unwind stage should be prefixed with a '$'"))?;
        Ok(Self { path: path.split('.').map(str::to_owned).collect(), index, keeps_empty })
    }

    /// Passes on the documents that stand for one. Returns whether more are wanted.
    pub(super) fn apply(&self, document: &DocBytes, next: &mut dyn Receiver) -> Result<Flow> {
        let mut source: Document = RawDocument::from_bytes(document)?.try_into()?;
        let path = self.path.join(".");
        let elements = match value_at(&mut source, &self.path) {
            // each document gets one of them, so the array itself is not copied
            Some(Bson::Array(elements)) => std::mem::take(elements),
            None | Some(Bson::Null | Bson::Undefined) if !self.keeps_empty => {
                return Ok(Flow::Continue(()));
            }
            // any other value stands for itself
            _ => {
                self.set_index(&mut source, Bson::Null);
                return next.push(encoded(&source)?);
            }
        };
        if elements.is_empty() && self.keeps_empty {
            set_path(&mut source, &path, None);
            self.set_index(&mut source, Bson::Null);
            return next.push(encoded(&source)?);
        }
        for (index, element) in elements.into_iter().enumerate() {
            budget::step()?;
            set_path(&mut source, &path, Some(element));
            self.set_index(&mut source, Bson::Int64(index as i64));
            if next.push(encoded(&source)?)?.is_break() {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }

    fn set_index(&self, document: &mut Document, index: Bson) {
        if let Some(name) = &self.index {
            set_path(document, name, Some(index));
        }
    }
}

fn value_at<'d>(document: &'d mut Document, path: &[String]) -> Option<&'d mut Bson> {
    let (name, rest) = path.split_first()?;
    let value = document.get_mut(name)?;
    match (rest.is_empty(), value) {
        (true, value) => Some(value),
        (false, Bson::Document(inner)) => value_at(inner, rest),
        (false, _) => None,
    }
}

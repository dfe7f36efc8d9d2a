//! `$unwind`: one document for each element of an array.

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};
use tidemill_docs::{DocBytes, encoded, set_path};

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

    /// Appends the documents that stand for one.
    pub fn apply(&self, document: &DocBytes, out: &mut Vec<DocBytes>) -> Result<()> {
        let mut source: Document = RawDocument::from_bytes(document)?.try_into()?;
        let path = self.path.join(".");
        let elements = match value_at(&source, &self.path) {
            Some(Bson::Array(elements)) => elements.clone(),
            None | Some(Bson::Null | Bson::Undefined) => Vec::new(),
            // any other value stands for itself
            Some(_) => {
                self.set_index(&mut source, Bson::Null);
                out.push(encoded(&source)?);
                return Ok(());
            }
        };
        if elements.is_empty() && self.keeps_empty {
            if matches!(value_at(&source, &self.path), Some(Bson::Array(_))) {
                set_path(&mut source, &path, None);
            }
            self.set_index(&mut source, Bson::Null);
            out.push(encoded(&source)?);
        }
        for (index, element) in elements.into_iter().enumerate() {
            set_path(&mut source, &path, Some(element));
            self.set_index(&mut source, Bson::Int64(index as i64));
            out.push(encoded(&source)?);
        }
        Ok(())
    }

    fn set_index(&self, document: &mut Document, index: Bson) {
        if let Some(name) = &self.index {
            set_path(document, name, Some(index));
        }
    }
}

fn value_at<'d>(document: &'d Document, path: &[String]) -> Option<&'d Bson> {
    let (name, rest) = path.split_first()?;
    let value = document.get(name)?;
    match (rest.is_empty(), value) {
        (true, value) => Some(value),
        (false, Bson::Document(inner)) => value_at(inner, rest),
        (false, _) => None,
    }
}

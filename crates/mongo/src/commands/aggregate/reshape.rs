//! Stages that change each document by expressions: `$project`, `$addFields`, `$unwind`, `$replaceRoot`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use tidemill_docs::{DocBytes, Expression, Projection};

use crate::error::{Code, CommandError, Result};
use crate::fields::{type_name, whole_number};

/// Fields with their expressions, by dotted path.
pub(in crate::commands) struct ComputedFields(Vec<(String, Expression)>);

/// `$project` with expressions.
pub(in crate::commands) struct ComputedProjection {
    /// The fields that are kept as they are; `None` for no field at all.
    kept: Option<Projection>,
    computed: ComputedFields,
}

/// `$unwind`
pub(in crate::commands) struct Unwind {
    path: Vec<String>,
    index: Option<String>,
    keeps_empty: bool,
}

/// Returns whether a projection computes fields, instead of naming fields to keep or to leave out.
pub(super) fn has_expressions(projection: &RawDocument) -> bool {
    projection.into_iter().flatten().any(|(_, value)| !is_flag(value))
}

fn is_flag(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Boolean(_)
    )
}

impl ComputedFields {
    pub fn parse(fields: &RawDocument) -> Result<Self> {
        let mut computed = Vec::new();
        for field in fields {
            let (name, value) = field?;
            computed.push((name.as_str().to_owned(), Expression::parse(value)?));
        }
        Ok(Self(computed))
    }

    /// Sets the fields of `target` to their values on `source`. A field without a value is removed.
    fn set(&self, source: &RawDocument, target: &mut Document) -> Result<()> {
        let values: Vec<_> =
            self.0.iter().map(|(_, expression)| expression.eval(source)).collect::<Result<_, _>>()?;
        for ((path, _), value) in self.0.iter().zip(values) {
            set_path(target, path, value);
        }
        Ok(())
    }

    /// `$addFields`
    pub fn add_to(&self, document: &DocBytes) -> Result<DocBytes> {
        let source = RawDocument::from_bytes(document)?;
        let mut target: Document = source.try_into()?;
        self.set(source, &mut target)?;
        encoded(&target)
    }
}

impl ComputedProjection {
    pub fn parse(projection: &RawDocument) -> Result<Self> {
        let (mut kept, mut computed) = (RawDocumentBuf::new(), RawDocumentBuf::new());
        let (mut keeps_id, mut keeps) = (true, false);
        for field in projection {
            let (name, value) = field?;
            let shown = value == RawBsonRef::Boolean(true) || whole_number(value).is_some_and(|n| n != 0);
            match (name.as_str(), is_flag(value)) {
                ("_id", true) if !shown => keeps_id = false,
                (_, true) if shown => {
                    keeps = true;
                    kept.append(name, 1);
                }
                (name, true) => {
                    let message = format!(
                        "Invalid $project :: caused by :: Cannot do exclusion on field {name} in inclusion projection"
                    );
                    return Err(CommandError { code: 31254, message });
                }
                (_, false) => computed.append(name, value),
            }
        }
        if !keeps_id {
            kept.append(bson::cstr!("_id"), 0);
        } else if !keeps {
            kept.append(bson::cstr!("_id"), 1);
        }
        let kept = (keeps || keeps_id).then(|| Projection::parse(&kept)).transpose()?;
        Ok(Self { kept, computed: ComputedFields::parse(&computed)? })
    }

    pub fn apply(&self, document: &DocBytes) -> Result<DocBytes> {
        let source = RawDocument::from_bytes(document)?;
        let mut target = match &self.kept {
            Some(kept) => Document::try_from(kept.apply(source)?)?,
            None => Document::new(),
        };
        self.computed.set(source, &mut target)?;
        encoded(&target)
    }
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

/// `$replaceRoot`: returns the value of an expression as the document.
pub(super) fn replaced(root: &Expression, document: &DocBytes) -> Result<DocBytes> {
    match root.eval(RawDocument::from_bytes(document)?)? {
        Some(Bson::Document(document)) => encoded(&document),
        other => {
            let found = other.map_or_else(|| "missing".to_owned(), |value| value.to_string());
            Err(CommandError {
                code: 40228,
                message: format!("'newRoot' expression must evaluate to an object, found {found}"),
            })
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

/// Sets the value at a dotted path, in each document of an array on the way; removes it if there is none.
fn set_path(document: &mut Document, path: &str, value: Option<Bson>) {
    let Some((name, rest)) = path.split_once('.') else {
        match value {
            Some(value) => drop(document.insert(path, value)),
            None => drop(document.remove(path)),
        }
        return;
    };
    match document.get_mut(name) {
        Some(Bson::Document(inner)) => set_path(inner, rest, value),
        Some(Bson::Array(elements)) => {
            for element in elements {
                if let Bson::Document(inner) = element {
                    set_path(inner, rest, value.clone());
                }
            }
        }
        _ if value.is_some() => {
            let mut inner = Document::new();
            set_path(&mut inner, rest, value);
            document.insert(name, inner);
        }
        _ => {}
    }
}

/// Encodes a document. Errors: it is larger than a document may be.
fn encoded(document: &Document) -> Result<DocBytes> {
    let bytes = bson::serialize_to_vec(document)?;
    tidemill_docs::validate(bytes).map_err(|error| {
        CommandError::new(Code::ExceededMemoryLimit, format!("a result of a stage: {}", error.message()))
    })
}

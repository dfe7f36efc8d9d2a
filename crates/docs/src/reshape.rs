//! Documents changed by expressions: computed fields, and stages that make a new document of one.

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};

use crate::DocBytes;
use crate::error::{DocsError, ErrorCode, Result};
use crate::expression::{Expression, Variables};
use crate::projection::Projection;

/// Fields with their expressions, by dotted path: MongoDB's `$addFields`.
#[derive(Debug, Clone, Default)]
pub struct ComputedFields(Vec<(String, Expression)>);

impl ComputedFields {
    /// Parses `{ path: expression, … }`; an object that is not an expression has fields of its own.
    ///
    /// Errors: those of the expressions.
    pub fn parse(fields: &RawDocument, variables: &Variables) -> Result<Self> {
        let mut computed = Self::default();
        for field in fields {
            let (name, value) = field.map_err(invalid)?;
            computed.add(name.as_str().to_owned(), value, variables)?;
        }
        Ok(computed)
    }

    pub(crate) fn add(&mut self, path: String, value: RawBsonRef<'_>, variables: &Variables) -> Result<()> {
        if path.split('.').any(|name| name.is_empty() || name.starts_with('$')) {
            return Err(DocsError::parse(format!("{path:?} is not the path of a field")));
        }
        if let RawBsonRef::Document(inner) = value
            && inner.into_iter().flatten().next().is_some_and(|(name, _)| !name.as_str().starts_with('$'))
        {
            for field in inner {
                let (name, value) = field.map_err(invalid)?;
                self.add(format!("{path}.{name}"), value, variables)?;
            }
            return Ok(());
        }
        self.0.push((path, Expression::parse_with(value, variables)?));
        Ok(())
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the fields of `target` to their values on `source`. A field without a value is removed.
    ///
    /// Errors: those of the expressions.
    pub fn set(&self, source: &RawDocument, target: &mut Document) -> Result<()> {
        let values: Vec<_> =
            self.0.iter().map(|(_, expression)| expression.eval(source)).collect::<Result<_>>()?;
        for ((path, _), value) in self.0.iter().zip(values) {
            set_path(target, path, value);
        }
        Ok(())
    }

    /// Returns the document with the fields.
    ///
    /// Errors: those of the expressions; a result that is larger than a document may be.
    pub fn add_to(&self, document: &[u8]) -> Result<DocBytes> {
        let source = RawDocument::from_bytes(document).map_err(invalid)?;
        let mut target: Document = source.try_into().map_err(invalid)?;
        self.set(source, &mut target)?;
        encoded(&target)
    }
}

/// A stage that makes one document of one: those that an update by a pipeline may have.
#[derive(Debug, Clone)]
pub enum ReshapeStage {
    /// `$addFields`, `$set`
    AddFields(ComputedFields),
    /// `$project`, `$unset`
    Project(Projection),
    /// `$replaceRoot`, `$replaceWith`
    ReplaceRoot(Expression),
}

impl ReshapeStage {
    /// Parses a stage; `None` if it is another one.
    ///
    /// Errors: a wrong argument.
    pub fn parse(name: &str, value: RawBsonRef<'_>, variables: &Variables) -> Result<Option<Self>> {
        let document = || match value {
            RawBsonRef::Document(document) => Ok(document),
            _ => Err(DocsError::type_mismatch(format!("{name} expects an object"))),
        };
        Ok(Some(match name {
            "$addFields" | "$set" => Self::AddFields(ComputedFields::parse(document()?, variables)?),
            "$project" => Self::Project(Projection::parse_stage(document()?, variables)?),
            "$unset" => Self::Project(Projection::excluding(value)?),
            "$replaceWith" => Self::ReplaceRoot(Expression::parse_with(value, variables)?),
            "$replaceRoot" => match document()?.get("newRoot").map_err(invalid)? {
                Some(root) => Self::ReplaceRoot(Expression::parse_with(root, variables)?),
                None => {
                    let message = "no newRoot specified for the $replaceRoot stage";
                    return Err(DocsError::new(ErrorCode::NoNewRoot, message));
                }
            },
            _ => return Ok(None),
        }))
    }

    /// Returns the document that the stage makes of one.
    ///
    /// Errors: those of the expressions; a new root that is not an object; a result that is too large.
    pub fn apply(&self, document: &[u8]) -> Result<DocBytes> {
        match self {
            Self::AddFields(fields) => fields.add_to(document),
            Self::Project(projection) => projection.apply_bytes(document),
            Self::ReplaceRoot(root) => {
                match root.eval(RawDocument::from_bytes(document).map_err(invalid)?)? {
                    Some(Bson::Document(document)) => encoded(&document),
                    other => {
                        let found = other.map_or_else(|| "missing".to_owned(), |value| value.to_string());
                        let message =
                            format!("'newRoot' expression must evaluate to an object, found {found}");
                        Err(DocsError::new(ErrorCode::NewRootNotObject, message))
                    }
                }
            }
        }
    }
}

/// Sets the value at a dotted path, in each document of an array on the way; removes it if `value` is `None`.
pub fn set_path(document: &mut Document, path: &str, value: Option<Bson>) {
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
pub fn encoded(document: &Document) -> Result<DocBytes> {
    crate::values::validate::validate(bson::serialize_to_vec(document).map_err(invalid)?)
}

fn invalid(error: impl std::fmt::Display) -> DocsError {
    DocsError::new(ErrorCode::InvalidBson, error.to_string())
}

//! `let` of writes: values that expressions of filters and pipelines read as `$$name`.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};
use bytes::Bytes;
use tidemill_docs::{DocumentCommand, Modification};

use crate::commands::reading::find;
use crate::error::Result;
use crate::fields::Call;
use crate::shared::Shared;

/// The variables of a command as `vars` of a `$let`. The log has no variables beside its commands, so that expressions bind
/// them.
pub(crate) struct LetVariables(Option<RawDocumentBuf>);

impl LetVariables {
    /// Evaluates the variables of a command. Errors: those of their expressions.
    pub fn of(shared: &Shared, call: &Call<'_>) -> Result<Self> {
        if call.get("let").is_none() {
            return Ok(Self(None));
        }
        let mut bound = RawDocumentBuf::new();
        for (name, value) in find::variables(shared, call)?.values {
            let Some(value) = value else { continue };
            let literal = rawdoc! { "$literal": RawBson::try_from(value)? };
            bound.append(bson::raw::CString::try_from(name)?, literal);
        }
        Ok(Self(Some(bound)))
    }

    pub fn as_vars(&self) -> Option<&RawDocument> {
        self.0.as_deref()
    }
}

/// Returns the command with the variables bound in its expressions.
pub(in crate::commands) fn bind(mut command: DocumentCommand, vars: &RawDocument) -> Result<DocumentCommand> {
    let (filter, update) = match &mut command {
        DocumentCommand::Update { filter, update, .. } => (filter, Some(update)),
        DocumentCommand::FindAndModify { filter, change: Modification::Update(update), .. } => {
            (filter, Some(update))
        }
        DocumentCommand::Delete { filter, .. }
        | DocumentCommand::Replace { filter, .. }
        | DocumentCommand::FindAndModify { filter, .. } => (filter, None),
        _ => return Ok(command),
    };
    *filter = bytes(in_filter(RawDocument::from_bytes(filter)?, vars)?);
    if let Some(update) = update {
        *update = bytes(in_update(RawDocument::from_bytes(update)?, vars)?);
    }
    Ok(command)
}

fn bytes(document: RawDocumentBuf) -> Bytes {
    document.into_bytes().into()
}

fn in_expression(expression: RawBsonRef<'_>, vars: &RawDocument) -> RawDocumentBuf {
    let mut bound = RawDocumentBuf::new();
    bound.append(cstr!("vars"), vars);
    bound.append(cstr!("in"), expression);
    rawdoc! { "$let": bound }
}

fn in_filter(filter: &RawDocument, vars: &RawDocument) -> Result<RawDocumentBuf> {
    let mut bound = RawDocumentBuf::new();
    for condition in filter {
        let (name, value) = condition?;
        match (name.as_str(), value) {
            ("$expr", expression) => bound.append(name, in_expression(expression, vars)),
            ("$and" | "$or" | "$nor", RawBsonRef::Array(branches)) => {
                let mut all = RawArrayBuf::new();
                for branch in branches {
                    match branch? {
                        RawBsonRef::Document(branch) => all.push(in_filter(branch, vars)?),
                        other => all.push(other),
                    }
                }
                bound.append(name, all);
            }
            (_, value) => bound.append(name, value),
        }
    }
    Ok(bound)
}

/// Binds the variables in the stages of a pipeline. Operators have no expressions.
pub(in crate::commands) fn in_update(update: &RawDocument, vars: &RawDocument) -> Result<RawDocumentBuf> {
    let Some(RawBsonRef::Array(stages)) = update.get("$pipeline")? else { return Ok(update.to_owned()) };
    let mut bound = RawArrayBuf::new();
    for stage in stages {
        let RawBsonRef::Document(stage) = stage? else { continue };
        let mut new = RawDocumentBuf::new();
        for part in stage {
            let (name, value) = part?;
            match (name.as_str(), value) {
                ("$set" | "$addFields" | "$project" | "$replaceRoot", RawBsonRef::Document(fields)) => {
                    new.append(name, in_fields(fields, vars)?);
                }
                ("$replaceWith", expression) => new.append(name, in_expression(expression, vars)),
                (_, value) => new.append(name, value),
            }
        }
        bound.push(new);
    }
    let mut update = RawDocumentBuf::new();
    update.append(cstr!("$pipeline"), bound);
    Ok(update)
}

/// Binds the variables in the expressions of fields. Numbers and flags stay, as they tell which fields a `$project` keeps.
fn in_fields(fields: &RawDocument, vars: &RawDocument) -> Result<RawDocumentBuf> {
    let mut bound = RawDocumentBuf::new();
    for field in fields {
        let (name, value) = field?;
        match value {
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Boolean(_) => {
                bound.append(name, value);
            }
            expression => bound.append(name, in_expression(expression, vars)),
        }
    }
    Ok(bound)
}

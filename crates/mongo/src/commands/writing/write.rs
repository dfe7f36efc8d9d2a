//! What the commands that write share: durability, and errors of single documents.

use bson::cstr;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use tidemill_docs::{BsonDocument, DocumentCommand};
use tidemill_log::Durability;

use crate::commands::writing::let_variables::{self, LetVariables};
use crate::error::{Result, WriteError};
use crate::fields::Call;

/// Fields that every write has.
pub(in crate::commands) const FIELDS: [&str; 4] = ["ordered", "bypassDocumentValidation", "let", "documents"];

/// Returns the durability that the write concern asks for; `None` for that of the deployment.
///
/// `j: true` waits for the disk. `w` of any number, or `majority`, is met by this one server.
pub(in crate::commands) fn durability(call: &Call<'_>) -> Result<Option<Durability>> {
    let Some(concern) = call.document("writeConcern")? else { return Ok(None) };
    Ok((concern.get("j")? == Some(RawBsonRef::Boolean(true))).then_some(Durability::Fsync))
}

/// Options of a write that apply to all of its statements.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriteOptions<'v> {
    pub durability: Option<Durability>,
    /// True if documents are written without validation.
    bypass_validation: bool,
    /// Variables of `let`, as `vars` of a `$let`.
    variables: Option<&'v RawDocument>,
}

impl<'v> WriteOptions<'v> {
    pub fn of(call: &Call<'_>, variables: &'v LetVariables) -> Result<Self> {
        let bypass_validation = call.flag("bypassDocumentValidation", false)?;
        Ok(Self { durability: durability(call)?, bypass_validation, variables: variables.as_vars() })
    }

    /// Returns the command that the engine gets, with a collation if it is to have another one than its collection.
    pub fn command(
        &self,
        command: DocumentCommand,
        collation: Option<BsonDocument>,
    ) -> Result<DocumentCommand> {
        let command = match self.variables {
            Some(vars) => let_variables::bind(command, vars)?,
            None => command,
        };
        let command = command.with_collation(collation);
        Ok(if self.bypass_validation { command.without_validation() } else { command })
    }
}

/// Errors of the statements of one write.
#[derive(Default)]
pub(in crate::commands) struct WriteErrors(Vec<(usize, WriteError)>);

impl WriteErrors {
    pub fn push(&mut self, index: usize, error: impl Into<WriteError>) {
        self.0.push((index, error.into()));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends `writeErrors` to a reply, if there are some.
    pub fn append_to(self, reply: &mut RawDocumentBuf) {
        if self.0.is_empty() {
            return;
        }
        let mut errors = RawArrayBuf::new();
        for (index, WriteError { error, details }) in self.0 {
            let mut one = RawDocumentBuf::new();
            one.append(cstr!("index"), index as i32);
            one.append(cstr!("code"), error.code);
            for element in &details {
                let Ok((name, value)) = element else { break };
                one.append(name, value);
            }
            one.append(cstr!("errmsg"), error.message);
            errors.push(one);
        }
        reply.append(cstr!("writeErrors"), errors);
    }
}

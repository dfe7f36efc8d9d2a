//! `bulkWrite`: inserts, updates and deletes of several collections in one command, as MongoDB 8.0 has it.

mod operation;

use std::collections::HashMap;

use bson::cstr;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use tidemill_docs::{CommandOutcome, DocBytes};

use crate::commands::catalog::collections::batch_size;
use crate::commands::writing::let_variables::LetVariables;
use crate::commands::writing::write::WriteOptions;
use crate::commands::{writing::delete, writing::insert, writing::update};
use crate::error::{Code, CommandError, Result, WriteError};
use crate::fields::Call;
use crate::namespace::stored_name;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::{first_batch, ok};
use operation::Operation;

/// Maximum operations of one command.
const OPERATIONS_MAX: usize = 100_000;

pub(in crate::commands) fn bulk_write(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["ops", "nsInfo", "ordered", "errorsOnly", "bypassDocumentValidation", "let", "cursor"])?;
    if call.database != "admin" {
        let message = "bulkWrite may only be run against the admin database.";
        return Err(CommandError::new(Code::Unauthorized, message));
    }
    let collections = collections(call)?;
    let sent = call.documents("ops")?;
    if sent.is_empty() || sent.len() > OPERATIONS_MAX {
        let found = sent.len();
        let message =
            format!("Write batch sizes must be between 1 and {OPERATIONS_MAX}. Got {found} operations.");
        return Err(CommandError::new(Code::InvalidLength, message));
    }
    let sent: Vec<Bytes> =
        sent.into_iter().map(|op| Ok(tidemill_docs::validate(op)?)).collect::<Result<_>>()?;
    let operations: Vec<Operation<'_>> = sent
        .iter()
        .enumerate()
        .map(|(at, op)| Operation::parse(at, op, &collections))
        .collect::<Result<_>>()?;
    let variables = LetVariables::of(shared, call)?;
    let mut bulk = Bulk {
        shared,
        write: WriteOptions::of(call, &variables)?,
        ordered: call.flag("ordered", true)?,
        errors_only: call.flag("errorsOnly", false)?,
        counts: Counts::default(),
        results: Vec::new(),
    };
    bulk.run(&operations)?;
    let Bulk { counts, results, .. } = bulk;
    let namespace = "admin.$cmd.bulkWrite".to_owned();
    let batch = first_batch(&shared.cursors, namespace, results, batch_size(call)?, false)?;
    let mut reply = RawDocumentBuf::new();
    if let Some(cursor) = batch.get("cursor")? {
        reply.append(cstr!("cursor"), cursor);
    }
    for (name, count) in [
        (cstr!("nErrors"), counts.errors),
        (cstr!("nInserted"), counts.inserted),
        (cstr!("nMatched"), counts.matched),
        (cstr!("nModified"), counts.modified),
        (cstr!("nUpserted"), counts.upserted),
        (cstr!("nDeleted"), counts.deleted),
    ] {
        reply.append(name, i32::try_from(count).unwrap_or(i32::MAX));
    }
    Ok(ok(reply))
}

/// Returns the names in the store of the collections in `nsInfo`.
fn collections(call: &Call<'_>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for info in call.documents("nsInfo")? {
        let info = RawDocument::from_bytes(&info)?;
        let Some(RawBsonRef::String(namespace)) = info.get("ns")? else {
            let message = "BSON field 'bulkWrite.nsInfo.ns' is missing but a required field";
            return Err(CommandError::new(Code::MissingField, message));
        };
        let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        names.push(stored_name(database, collection)?);
    }
    Ok(names)
}

#[derive(Default)]
struct Counts {
    errors: u64,
    inserted: u64,
    matched: u64,
    modified: u64,
    upserted: u64,
    deleted: u64,
}

/// A command on its way through its operations.
struct Bulk<'s> {
    shared: &'s Shared,
    write: WriteOptions<'s>,
    ordered: bool,
    errors_only: bool,
    counts: Counts,
    results: Vec<DocBytes>,
}

impl Bulk<'_> {
    /// Runs the operations in turn; an ordered command ends at the first error.
    fn run(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let mut at = 0;
        while let Some(next) = operations.get(at) {
            let errors = self.counts.errors;
            match next {
                Operation::Insert(collection, _) => {
                    // inserts one after the other into one collection are written together
                    let is_same =
                        |op: &&Operation<'_>| matches!(op, Operation::Insert(name, _) if name == collection);
                    let run: Vec<Bytes> = operations[at..]
                        .iter()
                        .take_while(is_same)
                        .filter_map(|op| match op {
                            Operation::Insert(_, document) => Some(document.clone()),
                            _ => None,
                        })
                        .collect();
                    let count = run.len();
                    self.insert(at, collection, run)?;
                    at += count;
                }
                Operation::Update(collection, statement) => {
                    let outcome = update::run(self.shared, collection, statement, self.write);
                    self.updated(at, outcome)?;
                    at += 1;
                }
                Operation::Delete(collection, statement) => {
                    let outcome = delete::run(self.shared, collection, statement, self.write);
                    match outcome {
                        Ok(deleted) => {
                            self.counts.deleted += deleted;
                            self.done(at, deleted, |_| Ok(()))?;
                        }
                        Err(error) => self.failed(at, error.into())?,
                    }
                    at += 1;
                }
            }
            if self.ordered && self.counts.errors > errors {
                break;
            }
        }
        Ok(())
    }

    fn insert(&mut self, first: usize, collection: &str, documents: Vec<Bytes>) -> Result<()> {
        let count = documents.len();
        let written = insert::insert_documents(self.shared, collection, documents, self.ordered, self.write);
        let errors = match written {
            Ok((inserted, errors)) => {
                self.counts.inserted += inserted;
                errors
            }
            Err(error) => vec![(0, WriteError::from(error))],
        };
        let mut errors: HashMap<usize, WriteError> = errors.into_iter().collect();
        for at in 0..count {
            match errors.remove(&at) {
                None => self.done(first + at, 1, |_| Ok(()))?,
                Some(error) => {
                    self.failed(first + at, error)?;
                    if self.ordered {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn updated(&mut self, at: usize, outcome: Result<CommandOutcome>) -> Result<()> {
        let mut outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.failed(at, error.into()),
        };
        self.counts.matched += outcome.matched;
        self.counts.modified += outcome.modified;
        if let Some(failed) = outcome.errors.pop() {
            return self.failed(at, failed.error.into());
        }
        let upserted = outcome.upserted_id.take().map(RawBson::try_from).transpose()?;
        self.counts.upserted += u64::from(upserted.is_some());
        self.done(at, outcome.matched + u64::from(upserted.is_some()), |result| {
            result.append(cstr!("nModified"), i32::try_from(outcome.modified).unwrap_or(i32::MAX));
            if let Some(id) = upserted {
                let mut one = RawDocumentBuf::new();
                one.append(cstr!("_id"), id);
                result.append(cstr!("upserted"), one);
            }
            Ok(())
        })
    }

    fn done(
        &mut self,
        at: usize,
        n: u64,
        details: impl FnOnce(&mut RawDocumentBuf) -> Result<()>,
    ) -> Result<()> {
        if self.errors_only {
            return Ok(());
        }
        let mut result = RawDocumentBuf::new();
        result.append(cstr!("ok"), 1.0);
        result.append(cstr!("idx"), i32::try_from(at).unwrap_or(i32::MAX));
        result.append(cstr!("n"), i32::try_from(n).unwrap_or(i32::MAX));
        details(&mut result)?;
        self.results.push(result.into_bytes().into());
        Ok(())
    }

    fn failed(&mut self, at: usize, error: WriteError) -> Result<()> {
        self.counts.errors += 1;
        let mut result = RawDocumentBuf::new();
        result.append(cstr!("ok"), 0.0);
        result.append(cstr!("idx"), i32::try_from(at).unwrap_or(i32::MAX));
        result.append(cstr!("code"), error.error.code);
        for element in &error.details {
            let (name, value) = element?;
            result.append(name, value);
        }
        result.append(cstr!("errmsg"), error.error.message);
        result.append(cstr!("n"), 0);
        self.results.push(result.into_bytes().into());
        Ok(())
    }
}

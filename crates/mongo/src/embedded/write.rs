//! Updates, replacements and deletes.

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};

use super::collection::Collection;
use super::core::{to_bson, unexpected};
use super::direct;
use super::error::{Error, Result};
use super::insert::write_errors;
use super::options::{Hint, UpdateModifications, WriteConcern};
use super::pending::{PendingWrite, only_by_id};
use super::results::{DeleteResult, UpdateResult};
use super::session::ClientSession;
use super::setters::{session_setter, setters};

/// Fields of the command; others belong to its statement.
const OF_COMMAND: [&str; 4] = ["bypassDocumentValidation", "let", "comment", "writeConcern"];

/// Updates documents: [`Collection::update_one`] and [`Collection::update_many`].
#[must_use]
pub struct Update<'a, T> {
    collection: &'a Collection<T>,
    filter: Document,
    update: UpdateModifications,
    multi: bool,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> Update<'a, T> {
    pub(super) fn new(
        collection: &'a Collection<T>,
        filter: Document,
        update: UpdateModifications,
        multi: bool,
    ) -> Self {
        Self { collection, filter, update, multi, options: Document::new(), session: None }
    }

    setters! {
        /// Inserts a document if none matches.
        upsert: bool => "upsert", Bson::from;
        /// Filters for the array elements that `$[name]` selects.
        array_filters: Vec<Document> => "arrayFilters", Bson::from;
        /// Sort order. The first document is updated; for `update_one`.
        sort: Document => "sort", Bson::from;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Variables, which updates do not support yet.
        let_vars: Document => "let", Bson::from;
        /// Allows documents that do not match the validator of the collection.
        bypass_document_validation: bool => "bypassDocumentValidation", Bson::from;
        /// When it returns.
        write_concern: WriteConcern => "writeConcern", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
    }
    session_setter!();

    /// Updates what matches, and waits until it is as safe as the setting `durability` says.
    ///
    /// Errors: the filter or the update is wrong; a key exists, with code 11000; the validator refuses a document, with code 121.
    pub fn run(self) -> Result<UpdateResult> {
        check_update(&self.update)?;
        if !self.multi
            && self.options.is_empty()
            && let UpdateModifications::Document(update) = &self.update
            && let Some(stored) = direct_target(self.collection, &self.filter, self.session.as_deref())
        {
            let command = direct::update_one(stored, &self.filter, update)?;
            return direct::updated(direct::run(self.collection, command)?);
        }
        let statement = doc! { "q": self.filter, "u": self.update.into_bson(), "multi": self.multi };
        run_update(self.collection, self.session, statement, self.options)
    }

    /// Submits an update of one document by its `_id`, and does not wait for it.
    ///
    /// Errors: as [`Self::run`], those of the document excepted; the update has options or is by more than an `_id`.
    pub fn submit(self) -> Result<PendingWrite<UpdateResult>> {
        check_update(&self.update)?;
        let target = direct_target(self.collection, &self.filter, self.session.as_deref());
        match (target, &self.update) {
            (Some(stored), UpdateModifications::Document(update))
                if !self.multi && self.options.is_empty() =>
            {
                let command = direct::update_one(stored, &self.filter, update)?;
                Ok(PendingWrite::new(direct::submit(self.collection, command)?, direct::updated))
            }
            _ => Err(only_by_id()),
        }
    }
}

/// Replaces a document: [`Collection::replace_one`].
#[must_use]
pub struct ReplaceOne<'a, T> {
    collection: &'a Collection<T>,
    filter: Document,
    replacement: Result<bson::RawDocumentBuf>,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> ReplaceOne<'a, T> {
    pub(super) fn new(
        collection: &'a Collection<T>,
        filter: Document,
        replacement: Result<bson::RawDocumentBuf>,
    ) -> Self {
        Self { collection, filter, replacement, options: Document::new(), session: None }
    }

    setters! {
        /// Inserts the document if none matches.
        upsert: bool => "upsert", Bson::from;
        /// Sort order. The first document is replaced.
        sort: Document => "sort", Bson::from;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Variables, which replacements do not support yet.
        let_vars: Document => "let", Bson::from;
        /// Allows a document that does not match the validator of the collection.
        bypass_document_validation: bool => "bypassDocumentValidation", Bson::from;
        /// When it returns.
        write_concern: WriteConcern => "writeConcern", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
    }
    session_setter!();

    /// Replaces the document, and waits until it is as safe as the setting `durability` says.
    ///
    /// Errors: as [`Update::run`]; the document has another `_id`, with code 66, or begins with an operator.
    pub fn run(self) -> Result<UpdateResult> {
        let replacement = self.replacement?;
        check_replacement(&replacement)?;
        if self.options.is_empty()
            && let Some(stored) = direct_target(self.collection, &self.filter, self.session.as_deref())
        {
            let command = direct::replace_one(stored, &self.filter, replacement)?;
            return direct::updated(direct::run(self.collection, command)?);
        }
        let replacement = to_bson(RawBsonRef::Document(&replacement))?;
        let statement = doc! { "q": self.filter, "u": replacement };
        run_update(self.collection, self.session, statement, self.options)
    }

    /// Submits a replacement by `_id`, and does not wait for it.
    ///
    /// Errors: as [`Self::run`], those of the document excepted; it has options or is by more than an `_id`.
    pub fn submit(self) -> Result<PendingWrite<UpdateResult>> {
        let replacement = self.replacement?;
        check_replacement(&replacement)?;
        match direct_target(self.collection, &self.filter, self.session.as_deref()) {
            Some(stored) if self.options.is_empty() => {
                let command = direct::replace_one(stored, &self.filter, replacement)?;
                Ok(PendingWrite::new(direct::submit(self.collection, command)?, direct::updated))
            }
            _ => Err(only_by_id()),
        }
    }
}

/// Deletes documents: [`Collection::delete_one`] and [`Collection::delete_many`].
#[must_use]
pub struct Delete<'a, T> {
    collection: &'a Collection<T>,
    filter: Document,
    multi: bool,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> Delete<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, filter: Document, multi: bool) -> Self {
        Self { collection, filter, multi, options: Document::new(), session: None }
    }

    setters! {
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Variables, which deletes do not support yet.
        let_vars: Document => "let", Bson::from;
        /// When it returns.
        write_concern: WriteConcern => "writeConcern", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
    }
    session_setter!();

    /// Deletes what matches, and waits until that is as safe as the setting `durability` says.
    ///
    /// Errors: the filter is wrong.
    pub fn run(self) -> Result<DeleteResult> {
        if !self.multi
            && self.options.is_empty()
            && let Some(stored) = direct_target(self.collection, &self.filter, self.session.as_deref())
        {
            let command = direct::delete_one(stored, &self.filter)?;
            return direct::deleted(direct::run(self.collection, command)?);
        }
        let statement = doc! { "q": self.filter, "limit": i32::from(!self.multi) };
        let (statement, mut command) =
            with_options(statement, self.options, doc! { "delete": self.collection.name() });
        command.insert("deletes", vec![statement]);
        let reply = self.collection.run(self.session, command)?;
        check_write(&reply)?;
        Ok(DeleteResult { deleted_count: count(&reply, "n")? })
    }

    /// Submits a delete of one document by its `_id`, and does not wait for it.
    ///
    /// Errors: it has options or is by more than an `_id`.
    pub fn submit(self) -> Result<PendingWrite<DeleteResult>> {
        match direct_target(self.collection, &self.filter, self.session.as_deref()) {
            Some(stored) if !self.multi && self.options.is_empty() => {
                let command = direct::delete_one(stored, &self.filter)?;
                Ok(PendingWrite::new(direct::submit(self.collection, command)?, direct::deleted))
            }
            _ => Err(only_by_id()),
        }
    }
}

/// Returns the stored name of the collection if a write by `filter` may run without a command: outside of a transaction, by the `_id`
/// alone, and not of a view.
fn direct_target<'c, T>(
    collection: &'c Collection<T>,
    filter: &Document,
    session: Option<&ClientSession>,
) -> Option<&'c str> {
    let in_transaction = session.is_some_and(ClientSession::is_in_transaction);
    if in_transaction || !direct::is_by_id(filter) {
        return None;
    }
    direct::stored_name(collection)
}

/// Refuses a replacement where operators are expected. A pipeline is checked when it runs.
pub(super) fn check_update(update: &UpdateModifications) -> Result<()> {
    match update {
        UpdateModifications::Document(update)
            if !update.keys().next().is_some_and(|first| first.starts_with('$')) =>
        {
            Err(Error::invalid("an update must begin with an operator such as `$set`"))
        }
        _ => Ok(()),
    }
}

/// Refuses operators where a document is expected.
pub(super) fn check_replacement(replacement: &RawDocument) -> Result<()> {
    let first = replacement.into_iter().next().transpose()?;
    match first.is_some_and(|(name, _)| name.as_str().starts_with('$')) {
        true => Err(Error::invalid("a replacement must not begin with an operator")),
        false => Ok(()),
    }
}

fn run_update<T>(
    collection: &Collection<T>,
    session: Option<&mut ClientSession>,
    statement: Document,
    options: Document,
) -> Result<UpdateResult> {
    let (statement, mut command) = with_options(statement, options, doc! { "update": collection.name() });
    command.insert("updates", vec![statement]);
    let reply = collection.run(session, command)?;
    check_write(&reply)?;
    let upserted_id = match reply.get("upserted").map_err(unexpected)? {
        Some(RawBsonRef::Array(upserted)) => {
            let first = upserted.into_iter().next().transpose()?.and_then(|one| one.as_document());
            first.map(|one| one.get("_id")).transpose()?.flatten().map(to_bson).transpose()?
        }
        _ => None,
    };
    // the reply counts the document that was inserted
    let matched_count = if upserted_id.is_some() { 0 } else { count(&reply, "n")? };
    Ok(UpdateResult { matched_count, modified_count: count(&reply, "nModified")?, upserted_id })
}

/// Returns statement and command with the options that belong to them.
fn with_options(mut statement: Document, options: Document, mut command: Document) -> (Document, Document) {
    for (option, value) in options {
        match OF_COMMAND.contains(&option.as_str()) {
            true => command.insert(option, value),
            false => statement.insert(option, value),
        };
    }
    (statement, command)
}

/// Returns the error of the only statement of a write.
fn check_write(reply: &RawDocument) -> Result<()> {
    let errors = write_errors(reply)?;
    if errors.is_empty() { Ok(()) } else { Err(Error::of_writes(errors).without_documents()) }
}

/// Returns a count of a reply.
pub(super) fn count(reply: &RawDocument, field: &str) -> Result<u64> {
    let value = reply.get(field).map_err(unexpected)?;
    let number = value.and_then(crate::fields::whole_number);
    number.and_then(|n| u64::try_from(n).ok()).ok_or_else(|| unexpected(format!("`{field}` is no count")))
}

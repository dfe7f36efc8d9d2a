//! `$merge`

use bson::oid::ObjectId;
use bson::raw::{CString, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, cstr, rawdoc};
use tidemill_docs::{
    BsonDocument, CommandOutcome, DocBytes, DocsError, DocumentCommand, DuplicateKey, Expression,
    Modification, Variables,
};

use super::outputs::target;
use super::{Context, known, option};
use crate::commands::index::index_spec::ID_INDEX;
use crate::commands::writing::let_variables;
use crate::commands::writing::update::require_collection;
use crate::error::{Code, CommandError, Result, WriteError};
use crate::namespace::namespace_of;

/// Maximum attempts for a document that other writers insert and delete concurrently.
const ATTEMPTS_MAX: usize = 100;

/// `$merge`
pub(in crate::commands) struct MergeStage {
    collection: String,
    on: Vec<String>,
    when_matched: WhenMatched,
    when_not_matched: WhenNotMatched,
}

enum WhenMatched {
    Merge,
    Replace,
    KeepExisting,
    Fail,
    /// An update of the present document by stages, with variables that are evaluated on the new one.
    Pipeline(RawDocumentBuf, Vec<(String, Expression)>),
}

#[derive(Clone, Copy, PartialEq)]
enum WhenNotMatched {
    Insert,
    Discard,
    Fail,
}

/// The unique index of the fields in `on`.
struct UniqueIndex {
    name: String,
    pattern: RawDocumentBuf,
}

impl MergeStage {
    pub fn parse(value: RawBsonRef<'_>, context: &Context<'_>) -> Result<Self> {
        let fail = |message: &str| Err(CommandError::new(Code::FailedToParse, message));
        let RawBsonRef::Document(options) = value else {
            return Ok(Self {
                collection: target("$merge", value, context)?,
                on: vec!["_id".to_owned()],
                when_matched: WhenMatched::Merge,
                when_not_matched: WhenNotMatched::Insert,
            });
        };
        known("$merge", options, &["into", "on", "let", "whenMatched", "whenNotMatched"])?;
        let on = match options.get("on")? {
            None => vec!["_id".to_owned()],
            Some(RawBsonRef::String(path)) => vec![path.to_owned()],
            Some(RawBsonRef::Array(paths)) => {
                let paths = paths.into_iter().map(|path| Ok(path?.as_str().unwrap_or_default().to_owned()));
                paths.collect::<Result<_>>()?
            }
            Some(_) => return fail("`on` of $merge must be a string or an array of strings"),
        };
        let given = match options.get("let")? {
            None => None,
            Some(RawBsonRef::Document(variables)) => Some(variables),
            Some(_) => return fail("`let` of $merge must be an object"),
        };
        let when_matched = match options.get("whenMatched")? {
            None | Some(RawBsonRef::String("merge")) => WhenMatched::Merge,
            Some(RawBsonRef::String("replace")) => WhenMatched::Replace,
            Some(RawBsonRef::String("keepExisting")) => WhenMatched::KeepExisting,
            Some(RawBsonRef::String("fail")) => WhenMatched::Fail,
            Some(RawBsonRef::Array(stages)) => {
                let mut update = RawDocumentBuf::new();
                update.append(cstr!("$pipeline"), stages);
                WhenMatched::Pipeline(update, variables(given, context.variables)?)
            }
            Some(_) => {
                return fail(
                    "`whenMatched` of $merge must be merge, replace, keepExisting, fail or a pipeline",
                );
            }
        };
        if given.is_some() && !matches!(when_matched, WhenMatched::Pipeline(..)) {
            let message = "Cannot use 'let' variables with a 'whenMatched' that is not a pipeline";
            return Err(CommandError { code: 51199, message: message.to_owned() });
        }
        let when_not_matched = match options.get("whenNotMatched")? {
            None | Some(RawBsonRef::String("insert")) => WhenNotMatched::Insert,
            Some(RawBsonRef::String("discard")) => WhenNotMatched::Discard,
            Some(RawBsonRef::String("fail")) => WhenNotMatched::Fail,
            Some(_) => return fail("`whenNotMatched` of $merge must be insert, discard or fail"),
        };
        Ok(Self {
            collection: target("$merge", option("$merge", options, "into")?, context)?,
            on,
            when_matched,
            when_not_matched,
        })
    }

    pub fn apply(&self, context: &Context<'_>, documents: Vec<DocBytes>) -> Result<Vec<DocBytes>> {
        let index = self.unique_index(context)?;
        require_collection(context.shared, &self.collection, None)?;
        for document in documents {
            self.merge(context, &index, &document)?;
        }
        Ok(Vec::new())
    }

    /// Returns the index by which at most one document has the values of the fields in `on`.
    fn unique_index(&self, context: &Context<'_>) -> Result<UniqueIndex> {
        let pattern = |fields: &[String]| -> Result<RawDocumentBuf> {
            let mut pattern = RawDocumentBuf::new();
            for field in fields {
                pattern.append(CString::try_from(field.clone())?, 1);
            }
            Ok(pattern)
        };
        if matches!(self.on.as_slice(), [only] if only == "_id") {
            return Ok(UniqueIndex { name: ID_INDEX.to_owned(), pattern: pattern(&self.on)? });
        }
        let spec = context.shared.engine.collection_spec(&self.collection).ok();
        let collation = context.collation().map(|collation| BsonDocument::new(collation.document()));
        let found = spec.iter().flat_map(|spec| &spec.indexes).find(|index| {
            let fields = index.fields.iter().map(|(field, _)| field);
            index.unique
                && index.partial_filter.is_none()
                && index.collation == collation
                && index.fields.len() == self.on.len()
                && fields.into_iter().all(|field| self.on.contains(field))
        });
        if let Some(index) = found {
            let fields: Vec<_> = index.fields.iter().map(|(field, _)| field.clone()).collect();
            return Ok(UniqueIndex { name: index.name.clone(), pattern: pattern(&fields)? });
        }
        // the key of an entity is its `_id`
        let key = context
            .shared
            .engine
            .read_collection(&self.collection, |part| Ok(part.key_field().map(str::to_owned)));
        let key = key.ok().and_then(|keys| keys.into_iter().flatten().next());
        match (key, self.on.as_slice()) {
            (Some(key), [only]) if key == *only => {
                Ok(UniqueIndex { name: ID_INDEX.to_owned(), pattern: rawdoc! { "_id": 1 } })
            }
            _ => Err(CommandError {
                code: 51183,
                message: format!(
                    "Cannot find index to verify that join fields will be unique: create a unique index of {} in {}",
                    self.on.join(", "),
                    namespace_of(&self.collection)
                ),
            }),
        }
    }

    fn merge(&self, context: &Context<'_>, index: &UniqueIndex, document: &DocBytes) -> Result<()> {
        let document = with_id(document, &self.on)?;
        let (raw, filter) = (&*document, self.filter(&document)?);
        let inserts = self.when_not_matched == WhenNotMatched::Insert;
        let set = |operator: &str| -> Result<Modification> {
            let mut update = RawDocumentBuf::new();
            update.append(CString::try_from(operator.to_owned())?, raw);
            Ok(Modification::Update(update.into_bytes().into()))
        };
        let run = |change: Modification, upsert: bool| -> Result<CommandOutcome> {
            let filter = filter.as_bytes().to_vec().into();
            self.run(context, filter, change, upsert)
        };
        let outcome = match &self.when_matched {
            WhenMatched::Replace => run(Modification::Replace(document.as_bytes().to_vec().into()), inserts)?,
            WhenMatched::Merge => run(set("$set")?, inserts)?,
            WhenMatched::KeepExisting | WhenMatched::Fail => run(set("$setOnInsert")?, inserts)?,
            WhenMatched::Pipeline(update, variables) => {
                let update = bound(update, variables, context, raw)?;
                let change = || Modification::Update(update.as_bytes().to_vec().into());
                let mut attempts = 0;
                loop {
                    let outcome = run(change(), false)?;
                    if outcome.before.is_some() || !inserts {
                        break outcome;
                    }
                    // what is not there is inserted as it is
                    let outcome = run(set("$setOnInsert")?, true)?;
                    if outcome.upserted_id.is_some() {
                        break outcome;
                    }
                    attempts += 1;
                    if attempts == ATTEMPTS_MAX {
                        let message = "other writers insert and delete the document of $merge all the time";
                        return Err(CommandError::new(Code::WriteConflict, message));
                    }
                }
            }
        };
        match (&self.when_matched, outcome.before.is_some(), outcome.upserted_id.is_some()) {
            (WhenMatched::Fail, true, _) => Err(self.duplicate(context, index, &filter)),
            (_, false, false) if self.when_not_matched == WhenNotMatched::Fail => Err(CommandError {
                code: 13113,
                message: "$merge could not find a matching document in the target collection for at least one document in the source collection".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the filter of the document that has the same values of the fields in `on`.
    fn filter(&self, document: &RawDocument) -> Result<RawDocumentBuf> {
        let refused = |code: i32, path: &str| CommandError {
            code,
            message: format!(
                "$merge write error: 'on' field '{path}' cannot be missing, null, undefined or an array"
            ),
        };
        let mut filter = RawDocumentBuf::new();
        for path in &self.on {
            let value = Expression::parse(RawBsonRef::String(&format!("${path}")))?.eval(document)?;
            match value {
                None | Some(Bson::Null | Bson::Undefined) => return Err(refused(51132, path)),
                Some(Bson::Array(_)) => return Err(refused(51185, path)),
                // a document is a value here, and no operators
                Some(value @ (Bson::Document(_) | Bson::RegularExpression(_))) => {
                    let equal = rawdoc! { "$eq": RawBson::try_from(value)? };
                    filter.append(CString::try_from(path.clone())?, equal);
                }
                Some(value) => filter.append(CString::try_from(path.clone())?, RawBson::try_from(value)?),
            }
        }
        Ok(filter)
    }

    fn run(
        &self,
        context: &Context<'_>,
        filter: DocBytes,
        change: Modification,
        upsert: bool,
    ) -> Result<CommandOutcome> {
        let command = DocumentCommand::FindAndModify {
            collection: self.collection.clone(),
            filter,
            sort: None,
            change,
            upsert,
            upsert_id: Some(ObjectId::new()),
        };
        // that of the pipeline, not of the collection
        let collation = match context.collation() {
            Some(collation) => BsonDocument::new(collation.document()),
            None => BsonDocument::new(&rawdoc! { "locale": "simple" }),
        };
        let command = command.with_collation(Some(collation));
        let outcome = context.shared.engine.write_documents(command, None)?;
        match outcome.errors.into_iter().next() {
            Some(failed) => Err(context.shared.fail(failed.error.into())),
            None => Ok(CommandOutcome { errors: Vec::new(), ..outcome }),
        }
    }

    /// Returns the error of a document that is there and should not be.
    fn duplicate(&self, context: &Context<'_>, index: &UniqueIndex, values: &RawDocument) -> CommandError {
        let found = DocsError::duplicate_key(DuplicateKey {
            collection: self.collection.clone(),
            index: index.name.clone(),
            key_pattern: index.pattern.as_bytes().to_vec().into(),
            key_value: values.as_bytes().to_vec().into(),
        });
        let WriteError { error, details } = found.into();
        let message = format!(
            "$merge with whenMatched: fail found an existing document with the same values for the 'on' fields :: caused by :: {}",
            error.message
        );
        context.shared.fail(WriteError { error: CommandError { message, ..error }, details })
    }
}

/// Returns the variables of a pipeline: `new`, and those of `let`.
fn variables(given: Option<&RawDocument>, outer: &Variables) -> Result<Vec<(String, Expression)>> {
    let root = RawBsonRef::String("$$ROOT");
    let mut all = vec![("new".to_owned(), Expression::parse_with(root, outer)?)];
    for variable in given.into_iter().flatten() {
        let (name, value) = variable?;
        match name.as_str() {
            "new" if value == root => {}
            "new" => {
                let message =
                    "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'";
                return Err(CommandError { code: 51273, message: message.to_owned() });
            }
            name if name.chars().next().is_some_and(|c| c.is_lowercase() || !c.is_ascii()) => {
                all.push((name.to_owned(), Expression::parse_with(value, outer)?));
            }
            name => {
                let message = format!("'{name}' starts with an invalid character for a user variable name");
                return Err(CommandError::new(Code::FailedToParse, message));
            }
        }
    }
    Ok(all)
}

/// Returns an update by stages in which the variables have the values of a document.
fn bound(
    update: &RawDocument,
    variables: &[(String, Expression)],
    context: &Context<'_>,
    document: &RawDocument,
) -> Result<RawDocumentBuf> {
    let is_used = |name: &str| {
        let reference = format!("$${name}");
        update.as_bytes().windows(reference.len()).any(|bytes| bytes == reference.as_bytes())
    };
    let mut values = RawDocumentBuf::new();
    let mut bind = |name: &str, value: Bson| -> Result<()> {
        values.append(CString::try_from(name.to_owned())?, rawdoc! { "$literal": RawBson::try_from(value)? });
        Ok(())
    };
    for (name, value) in &context.variables.values {
        if let Some(value) = value
            && is_used(name)
            && variables.iter().all(|(inner, _)| inner != name)
        {
            bind(name, value.clone())?;
        }
    }
    for (name, expression) in variables.iter().filter(|(name, _)| is_used(name)) {
        // a missing field is null: expressions cannot represent a missing value
        bind(name, expression.eval(document)?.unwrap_or(Bson::Null))?;
    }
    match values.is_empty() {
        true => Ok(update.to_owned()),
        false => let_variables::in_update(update, &values),
    }
}

/// Returns the document with an `_id`, if it is found by that and has none.
fn with_id(document: &DocBytes, on: &[String]) -> Result<RawDocumentBuf> {
    let raw = RawDocument::from_bytes(document)?;
    if raw.get("_id")?.is_some() || !on.iter().any(|path| path == "_id") {
        return Ok(raw.to_owned());
    }
    let mut with_id = rawdoc! { "_id": ObjectId::new() };
    for field in raw {
        let (name, value) = field?;
        with_id.append(name, value);
    }
    Ok(with_id)
}

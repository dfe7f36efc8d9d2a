//! `$changeStream`: follows the changes of a collection, a database or all of them.

use std::collections::HashMap;

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{DateTime, Timestamp, Uuid, cstr, rawdoc};
use tidemill_access::Resource;
use tidemill_docs::{ChangeKind, DocBytes, Filter, ReshapeStage, Variables};
use tidemill_engine::{ChangeEvent, ChangePosition, ChangeScope, ChangeStart, ChangeStream, Engine};
use tidemill_types::ErrorKind;

use super::catalog::collection_options;
use super::catalog::collections::batch_size;
use super::pipeline::{Stage, match_filter};
use super::resume_token::{OF_INVALIDATE, is_of_invalidate, position, resumed_fragments, token, token_text};
use super::split_events::SplitEvents;
use super::writing::insert::DOCUMENT_BYTES_MAX;
use crate::cursors::ChangeSource;
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::namespace::{check_database, database_prefix, split_stored_name};
use crate::shared::{Shared, timestamp};
use crate::wire::reply::{self, BATCH_BYTES_MAX, FIRST_BATCH};

/// Stages that may follow, because each makes one change of one change, or drops it.
const STAGES: [&str; 7] =
    ["$match", "$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith"];

/// The last stage, which cuts events.
const SPLIT: &str = "$changeStreamSplitLargeEvent";

/// A cursor over changes.
struct ChangeCursor {
    stream: ChangeStream,
    scope: ChangeScope,
    full_document: FullDocument,
    before: Image,
    /// The stages after `$changeStream`.
    pipeline: Vec<ChangeStage>,
    /// True if changes of definitions and further details of each change are reported.
    expanded: bool,
    /// Identities of the collections when the stream was opened, as a collection may have another name when its changes are read.
    uuids: HashMap<String, Uuid>,
    /// Set once the collection or the database was dropped.
    ended: bool,
    /// Events that are returned in fragments, if the client asks for that.
    split: Option<SplitEvents>,
}

/// A stage that passes changes on.
enum ChangeStage {
    Match(Filter),
    Reshape(ReshapeStage),
}

impl ChangeStage {
    fn parse(stage: &RawDocument, variables: &Variables) -> Result<Self> {
        let mut fields = stage.into_iter();
        let (Some(first), None) = (fields.next().transpose()?, fields.next()) else {
            return Err(not_one_stage());
        };
        if let ("$match", RawBsonRef::Document(filter)) = (first.0.as_str(), first.1) {
            return Ok(Self::Match(match_filter(filter, variables)?));
        }
        match ReshapeStage::parse(first.0.as_str(), first.1, variables)? {
            Some(stage) => Ok(Self::Reshape(stage)),
            None => Err(CommandError::not_supported(format!("`{}` after $changeStream", first.0.as_str()))),
        }
    }

    fn apply(&self, mut documents: Vec<DocBytes>) -> Result<Vec<DocBytes>> {
        match self {
            Self::Match(filter) => {
                documents.retain(|document| {
                    RawDocument::from_bytes(document).is_ok_and(|raw| filter.matches(raw))
                });
                filter.check()?;
            }
            Self::Reshape(stage) => {
                for document in &mut documents {
                    *document = stage.apply(document)?;
                }
            }
        }
        Ok(documents)
    }
}

/// Version of the document that is reported with an update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FullDocument {
    /// With nothing but what it changed.
    Default,
    /// With the present version of the document.
    Lookup,
    Stored(Image),
}

/// Mode in which a stored version of a document is reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Image {
    Off,
    WhenAvailable,
    Required,
}

/// Returns the error of a stage with no field or with several, which would be several stages.
fn not_one_stage() -> CommandError {
    let message = "A pipeline stage specification object must contain exactly one field.";
    CommandError { code: 40323, message: message.to_owned() }
}

/// Returns whether a pipeline follows changes.
pub(super) fn is_change_stream(pipeline: &RawArray) -> bool {
    let first = pipeline.into_iter().next().and_then(Result::ok);
    first.and_then(|stage| stage.as_document()?.get("$changeStream").ok()?).is_some()
}

/// Opens a change stream and returns its first batch.
pub(super) fn open(
    shared: &Shared,
    call: &Call<'_>,
    pipeline: &RawArray,
    variables: &Variables,
) -> Result<RawDocumentBuf> {
    let mut stages = pipeline.into_iter();
    let first = stages.next().transpose()?;
    if first.and_then(|stage| stage.as_document()).is_some_and(|stage| stage.into_iter().count() != 1) {
        return Err(not_one_stage());
    }
    let options = match first.and_then(|stage| stage.as_document()?.get("$changeStream").ok()?) {
        Some(RawBsonRef::Document(options)) => options,
        _ => {
            return Err(CommandError::new(
                Code::TypeMismatch,
                "`$changeStream` expects an object with its options",
            ));
        }
    };
    let mut rest = Vec::new();
    let mut splits = false;
    for stage in stages {
        let stage = stage?;
        let stage = stage.as_document().ok_or_else(|| {
            CommandError::new(Code::TypeMismatch, "Each element of the 'pipeline' array must be an object")
        })?;
        let name = stage.into_iter().next().transpose()?.map_or("", |(name, _)| name.as_str());
        if splits {
            let message = format!("{SPLIT} must be the last stage of a pipeline");
            return Err(CommandError { code: 7_182_802, message });
        }
        if name == SPLIT {
            splits = true;
            continue;
        }
        if !STAGES.contains(&name) && !Stage::is_known(name) {
            let message = format!("Unrecognized pipeline stage name: '{name}'");
            return Err(CommandError::new(Code::UnrecognizedStage, message));
        }
        if !STAGES.contains(&name) {
            let message =
                format!("`{name}` is not allowed after $changeStream: expected one of {}", STAGES.join(", "));
            return Err(CommandError { code: 20, message });
        }
        rest.push(ChangeStage::parse(stage, variables)?);
    }
    let (scope, namespace) = scope(call, options)?;
    let (full_document, before, start) = parse_options(options)?;
    let skipped = resumed_fragments(options);
    if skipped > 0 && !splits {
        let message = format!("the resume token is one of a fragment: go on with the stage {SPLIT}");
        return Err(CommandError { code: 7_182_800, message });
    }
    let split = splits.then(|| SplitEvents::after(skipped));
    let expanded = options.get("showExpandedEvents")? == Some(RawBsonRef::Boolean(true));
    let stream = shared.whole_engine.watch(scope.clone(), start).map_err(history_lost)?;
    let uuids = if expanded { uuids(shared)? } else { HashMap::new() };
    let mut cursor = ChangeCursor {
        stream,
        scope,
        full_document,
        before,
        pipeline: rest,
        expanded,
        uuids,
        ended: false,
        split,
    };
    let size = batch_size(call)?.map_or(FIRST_BATCH, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let (batch, token) = cursor.next(&shared.whole_engine, size)?;
    let id = shared.cursors.open_changes(namespace.clone(), Box::new(cursor))?;
    reply::change_batch("firstBatch", batch, id, &namespace, token)
}

/// Returns the identities of all collections.
fn uuids(shared: &Shared) -> Result<HashMap<String, Uuid>> {
    let names = shared.engine.collection_names()?;
    let uuids = names
        .into_iter()
        .filter_map(|name| {
            let spec = shared.engine.collection_spec(&name).ok()?;
            Some((name, collection_options::uuid(&spec)))
        })
        .collect();
    Ok(uuids)
}

/// Returns what is followed, and the name of the cursor's namespace.
fn scope(call: &Call<'_>, options: &RawDocument) -> Result<(ChangeScope, String)> {
    let all = options.get("allChangesForCluster")? == Some(RawBsonRef::Boolean(true));
    let database = call.database;
    let namespace = format!("{database}.$cmd.aggregate");
    match (call.get(call.name).and_then(whole_number), database, all) {
        (Some(1), "admin", true) => Ok((ChangeScope::All, namespace)),
        (Some(1), _, true) => Err(CommandError::new(
            Code::InvalidOptions,
            "A $changeStream with 'allChangesForCluster' may only be opened on the 'admin' database",
        )),
        (_, _, true) => {
            let message = format!(
                "A $changeStream with 'allChangesForCluster' may only be opened on the 'admin' database with {{aggregate: 1}}, not on \
                 the collection '{}'",
                call.namespace()
            );
            Err(CommandError::new(Code::InvalidOptions, message))
        }
        (Some(1), database, false) => {
            check_database(database)?;
            Ok((ChangeScope::Prefix(database_prefix(database)), namespace))
        }
        (_, _, false) => Ok((ChangeScope::Collection(call.collection()?), call.namespace())),
    }
}

fn parse_options(options: &RawDocument) -> Result<(FullDocument, Image, ChangeStart)> {
    let (mut full_document, mut before) = (FullDocument::Default, Image::Off);
    let mut start = None;
    for option in options {
        let (name, value) = option?;
        match (name.as_str(), value) {
            ("fullDocument", RawBsonRef::String(mode)) => {
                full_document = match mode {
                    "default" => FullDocument::Default,
                    "updateLookup" => FullDocument::Lookup,
                    mode => FullDocument::Stored(image("fullDocument", mode)?),
                }
            }
            ("fullDocumentBeforeChange", RawBsonRef::String("off")) => before = Image::Off,
            ("fullDocumentBeforeChange", RawBsonRef::String(mode)) => {
                before = image("fullDocumentBeforeChange", mode)?;
            }
            ("resumeAfter" | "startAfter", RawBsonRef::Document(token)) => {
                if name.as_str() == "resumeAfter" && is_of_invalidate(token) {
                    let message = "resumeAfter cannot go on after an invalidate event: use startAfter";
                    return Err(CommandError { code: 260, message: message.into() });
                }
                set_start(&mut start, ChangeStart::After(position(token)?))?;
            }
            ("startAtOperationTime", RawBsonRef::Timestamp(time)) => {
                set_start(&mut start, ChangeStart::At(log_time(time)))?;
            }
            ("allChangesForCluster" | "showExpandedEvents", RawBsonRef::Boolean(_))
            | (_, RawBsonRef::Null) => {}
            (name, value) => {
                let message = format!("`$changeStream.{name}` cannot be {value:?}");
                return Err(CommandError::new(Code::BadValue, message));
            }
        }
    }
    Ok((full_document, before, start.unwrap_or(ChangeStart::Now)))
}

fn set_start(start: &mut Option<ChangeStart>, to: ChangeStart) -> Result<()> {
    match start.replace(to) {
        None => Ok(()),
        Some(_) => {
            Err(CommandError { code: 40674, message: "Only one type of resume option is allowed".into() })
        }
    }
}

fn image(option: &str, mode: &str) -> Result<Image> {
    match mode {
        "whenAvailable" => Ok(Image::WhenAvailable),
        "required" => Ok(Image::Required),
        mode => {
            let message = format!(
                "`$changeStream.{option}` cannot be \"{mode}\": expected default, updateLookup, whenAvailable or required"
            );
            Err(CommandError::new(Code::BadValue, message))
        }
    }
}

/// Returns the time of the log that drivers know as a timestamp.
fn log_time(time: Timestamp) -> tidemill_types::Timestamp {
    tidemill_types::Timestamp(i64::from(time.time) * 1_000_000 + i64::from(time.increment))
}

/// Returns the error of a position whose changes are gone, with MongoDB's code.
fn history_lost(error: tidemill_types::Error) -> CommandError {
    match error.kind() {
        ErrorKind::NotFound => CommandError { code: 286, message: error.to_string() },
        ErrorKind::Invalid => CommandError { code: 260, message: error.to_string() },
        _ => error.into(),
    }
}

impl ChangeSource for ChangeCursor {
    fn next(&mut self, engine: &Engine, most: usize) -> Result<(Vec<DocBytes>, RawDocumentBuf)> {
        if let Some(split) = self.split.as_mut().filter(|split| !split.is_empty()) {
            let (batch, resume) = split.next()?;
            return Ok((batch, resume.unwrap_or_else(|| token(self.stream.position()))));
        }
        // for each event the resume token with which it comes again, if it may be cut
        let mut tokens = HashMap::new();
        let (mut documents, mut bytes) = (Vec::<DocBytes>::new(), 0);
        // a document that is looked up may be large although its change is small
        let at_once = if self.full_document == FullDocument::Lookup { 1 } else { most };
        while documents.len() < most && bytes < BATCH_BYTES_MAX && !self.ended {
            let mut before = token_text(self.stream.position());
            let changes = self.stream.next(at_once, BATCH_BYTES_MAX).map_err(history_lost)?;
            for (change, after) in &changes {
                if is_expanded(change.kind) && !self.expanded || !self.reports(&change.collection) {
                    continue;
                }
                let event = self.event(engine, change, after)?.into_bytes();
                let own = token_text(after);
                if event.len() > DOCUMENT_BYTES_MAX {
                    tokens.insert(own.clone(), before);
                }
                before = own;
                bytes += event.len();
                documents.push(event.into());
                let ends = match self.scope {
                    ChangeScope::All => false,
                    ChangeScope::Prefix(_) => is_end_of_database(change),
                    ChangeScope::Collection(_) => {
                        matches!(change.kind, ChangeKind::Drop | ChangeKind::Rename)
                    }
                };
                if ends {
                    documents.push(invalidate(change, after).into_bytes().into());
                    self.ended = true;
                    break;
                }
            }
            if at_once > 1 || changes.is_empty() {
                break;
            }
        }
        for stage in &self.pipeline {
            documents = stage.apply(documents)?;
        }
        for document in &documents {
            if RawDocument::from_bytes(document)?.get("_id")?.is_none() {
                let message = "the pipeline removes `_id`, the resume token, from a change: keep it";
                return Err(CommandError { code: 280, message: message.into() });
            }
        }
        let Some(split) = &mut self.split else { return Ok((documents, token(self.stream.position()))) };
        split.extend(documents, |own| tokens.get(own).cloned())?;
        let (batch, resume) = split.next()?;
        Ok((batch, resume.unwrap_or_else(|| token(self.stream.position()))))
    }

    fn is_at_end(&self) -> bool {
        self.has_told_all() && self.stream.is_at_end()
    }

    fn has_ended(&self) -> bool {
        self.has_told_all() && self.ended
    }
}

impl ChangeCursor {
    /// Returns whether no fragment waits to be returned.
    fn has_told_all(&self) -> bool {
        self.split.as_ref().is_none_or(SplitEvents::is_empty)
    }

    /// Returns whether the stream reports changes of a collection. Only a stream on the collection itself reports those of a
    /// collection of the server, which patterns of collections do not match.
    fn reports(&self, collection: &str) -> bool {
        matches!(self.scope, ChangeScope::Collection(_))
            || Resource::collection(collection) != Resource::SERVER
    }

    fn event(
        &mut self,
        engine: &Engine,
        change: &ChangeEvent,
        after: &ChangePosition,
    ) -> Result<RawDocumentBuf> {
        let operation = match change.kind {
            ChangeKind::Insert => "insert",
            ChangeKind::Update => "update",
            ChangeKind::Replace => "replace",
            ChangeKind::Delete => "delete",
            ChangeKind::Drop if is_end_of_database(change) => "dropDatabase",
            ChangeKind::Drop => "drop",
            ChangeKind::Create => "create",
            ChangeKind::CreateIndex => "createIndexes",
            ChangeKind::DropIndex => "dropIndexes",
            ChangeKind::Modify => "modify",
            ChangeKind::Rename => "rename",
        };
        let mut event = head(operation, change, after);
        if self.expanded
            && let Some(uuid) = self.uuid(engine, change)
        {
            event.append(cstr!("collectionUUID"), bson::Binary::from(uuid));
        }
        if matches!(change.kind, ChangeKind::Insert | ChangeKind::Replace)
            && let Some(document) = &change.document
        {
            event.append(cstr!("fullDocument"), RawDocument::from_bytes(document)?);
        }
        if change.kind == ChangeKind::Update {
            self.append_full_document(engine, change, &mut event)?;
        }
        let (database, collection) = split_stored_name(&change.collection);
        match collection {
            "" => event.append(cstr!("ns"), rawdoc! { "db": database }),
            _ => event.append(cstr!("ns"), rawdoc! { "db": database, "coll": collection }),
        }
        if let Some(id) = &change.id {
            event.append(cstr!("documentKey"), RawDocument::from_bytes(id)?);
        }
        if let Some(update) = &change.update {
            event.append(
                cstr!("updateDescription"),
                self.update_description(RawDocument::from_bytes(update)?)?,
            );
        }
        if change.kind.is_of_collection()
            && let Some(description) = &change.document
        {
            self.append_description(change.kind, RawDocument::from_bytes(description)?, &mut event)?;
        }
        if self.before != Image::Off && !change.kind.is_of_collection() && change.kind != ChangeKind::Insert {
            append_image(&mut event, "fullDocumentBeforeChange", change.before.as_ref(), self.before)?;
        }
        Ok(event)
    }

    /// Returns the identity of the collection of a change.
    fn uuid(&mut self, engine: &Engine, change: &ChangeEvent) -> Option<Uuid> {
        let name = &change.collection;
        let known = match change.kind {
            // another one of that name, or none any more
            ChangeKind::Create => None,
            ChangeKind::Drop | ChangeKind::Rename => self.uuids.remove(name),
            _ => self.uuids.get(name).copied(),
        };
        known.or_else(|| {
            let uuid = collection_options::uuid(&engine.collection_spec(name).ok()?);
            if !matches!(change.kind, ChangeKind::Drop | ChangeKind::Rename) {
                self.uuids.insert(name.clone(), uuid);
            }
            Some(uuid)
        })
    }

    /// Returns what an update changed. `disambiguatedPaths` is included with expanded events only.
    fn update_description(&self, update: &RawDocument) -> Result<RawDocumentBuf> {
        const PATHS: &bson::raw::CStr = cstr!("disambiguatedPaths");
        let mut description = RawDocumentBuf::new();
        let mut has_paths = false;
        for element in update {
            let (name, value) = element?;
            has_paths |= name == PATHS;
            if name != PATHS || self.expanded {
                description.append(name, value);
            }
        }
        if self.expanded && !has_paths {
            description.append(PATHS, RawDocumentBuf::new());
        }
        Ok(description)
    }

    /// Appends how a definition was changed. The new name of a collection is always included.
    fn append_description(
        &self,
        kind: ChangeKind,
        description: &RawDocument,
        event: &mut RawDocumentBuf,
    ) -> Result<()> {
        let mut shown = description.to_owned();
        if kind == ChangeKind::Rename
            && let Some(RawBsonRef::String(to)) = description.get("to")?
        {
            let (database, collection) = split_stored_name(to);
            let to = rawdoc! { "db": database, "coll": collection };
            event.append(cstr!("to"), to.clone());
            shown = rawdoc! { "to": to };
            if let Some(drop_target) = description.get("dropTarget")? {
                shown.append(cstr!("dropTarget"), drop_target);
            }
        }
        if self.expanded {
            event.append(cstr!("operationDescription"), shown);
        }
        Ok(())
    }

    /// Appends the document that an update changed.
    fn append_full_document(
        &self,
        engine: &Engine,
        change: &ChangeEvent,
        event: &mut RawDocumentBuf,
    ) -> Result<()> {
        match self.full_document {
            FullDocument::Default => Ok(()),
            FullDocument::Stored(image) => {
                append_image(event, "fullDocument", change.document.as_ref(), image)
            }
            FullDocument::Lookup => {
                let id = change.id.as_deref().map(RawDocument::from_bytes).transpose()?;
                let id = id.map(|id| id.get("_id")).transpose()?.flatten();
                let documents = engine.document_snapshot()?;
                let id = id.map(tidemill_types::Value::from_bson);
                let found = id.map(|id| documents.get(&change.collection, &id)).transpose()?.flatten();
                append_image(event, "fullDocument", found.as_ref(), Image::WhenAvailable)
            }
        }
    }
}

/// Returns the fields with which each event begins.
fn head(operation: &str, change: &ChangeEvent, after: &ChangePosition) -> RawDocumentBuf {
    let mut event = RawDocumentBuf::new();
    event.append(cstr!("_id"), token(after));
    append_head(&mut event, operation, change);
    event
}

fn append_head(event: &mut RawDocumentBuf, operation: &str, change: &ChangeEvent) {
    event.append(cstr!("operationType"), operation);
    event.append(cstr!("clusterTime"), timestamp(change.time));
    event.append(cstr!("wallTime"), DateTime::from_millis(change.time.0.div_euclid(1000)));
}

/// Returns whether a change is reported only if expanded events are enabled.
fn is_expanded(kind: ChangeKind) -> bool {
    use ChangeKind::{Create, CreateIndex, DropIndex, Modify};
    matches!(kind, Create | CreateIndex | DropIndex | Modify)
}

/// Returns whether a change tells that a whole database is gone.
fn is_end_of_database(change: &ChangeEvent) -> bool {
    change.kind == ChangeKind::Drop && split_stored_name(&change.collection).1.is_empty()
}

/// Returns the event with which the stream of a dropped collection or database ends.
fn invalidate(change: &ChangeEvent, after: &ChangePosition) -> RawDocumentBuf {
    let mut event = RawDocumentBuf::new();
    event.append(cstr!("_id"), rawdoc! { "_data": token_text(after) + OF_INVALIDATE });
    append_head(&mut event, "invalidate", change);
    event
}

fn append_image(
    event: &mut RawDocumentBuf,
    field: &str,
    document: Option<&DocBytes>,
    image: Image,
) -> Result<()> {
    let name = bson::raw::CString::try_from(field.to_owned())?;
    match document {
        Some(document) => event.append(name, RawDocument::from_bytes(document)?),
        None if image == Image::Required => {
            let message = format!(
                "a change has no `{field}`: create the collection with changeStreamPreAndPostImages: {{enabled: true}}"
            );
            return Err(CommandError { code: 51770, message });
        }
        None => event.append(name, bson::RawBson::Null),
    }
    Ok(())
}

/// Returns whether a reply has a batch without changes, so that it may wait for some.
pub(crate) fn is_empty_batch(reply: &RawDocument) -> bool {
    let batch = || reply.get_document("cursor").ok()?.get_array("nextBatch").ok();
    batch().is_some_and(RawArray::is_empty)
}

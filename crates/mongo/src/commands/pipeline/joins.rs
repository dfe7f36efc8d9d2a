//! Stages that read other collections: `$lookup`, `$graphLookup`, `$unionWith`.

use std::collections::{HashMap, HashSet, VecDeque};

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use tidemill_docs::{
    Collation, DocBytes, EvalValue, Expression, Filter, HeldMemory, Key, Variables, encoded, set_path,
    value_bytes,
};
use tidemill_types::budget;

use super::flow::{Chain, HeldDocuments, Receiver, each};
use super::{Context, Pipeline, check_size, known, option, text};
use crate::error::{Code, CommandError, Result};
use crate::fields::whole_number;
use crate::namespace::stored_name;

/// Bytes of an entry of a table besides those of its key.
const ENTRY_BYTES: usize = 64 + size_of::<Key>();
/// Positions of documents that are collected for one step of the budget.
const POSITIONS_PER_STEP: usize = 64;
/// Bytes of documents that are put into another one for one step.
const BYTES_PER_STEP: usize = 256;
/// Bytes of a tree of values for each byte of its document.
const TREE_FACTOR: usize = 4;
/// Documents that one `$graphLookup` may reach.
const REACHED_MAX: usize = 100_000;

/// `$lookup`
pub(in crate::commands) struct Lookup {
    from: Option<String>,
    /// The fields that must be equal, here and there.
    fields: Option<(String, String)>,
    bound: RawDocumentBuf,
    pipeline: Option<RawArrayBuf>,
    target: String,
}

/// Returns the values of a path by which documents are joined: the elements of an array, or null if the path
/// is missing.
fn join_values(document: &DocBytes, path: &Expression) -> Result<Vec<Bson>> {
    Ok(match path.eval(RawDocument::from_bytes(document)?)? {
        Some(Bson::Array(values)) => values,
        Some(value) => vec![value],
        None => vec![Bson::Null],
    })
}

/// Returns the expression of a path.
fn path_of(path: &str) -> Result<Expression> {
    Ok(Expression::parse(RawBsonRef::String(&format!("${path}")))?)
}

/// The documents of a collection by the values at a path.
struct JoinIndex {
    documents: Vec<DocBytes>,
    by_value: HashMap<Key, Vec<usize>>,
    collation: Option<Collation>,
    _held: HeldMemory,
}

impl JoinIndex {
    fn new(
        (documents, mut held): (Vec<DocBytes>, HeldMemory),
        path: &str,
        collation: Option<&Collation>,
    ) -> Result<Self> {
        let path = path_of(path)?;
        let mut by_value: HashMap<Key, Vec<usize>> = HashMap::new();
        for (at, document) in documents.iter().enumerate() {
            budget::step()?;
            for value in join_values(document, &path)? {
                let key = Key::of_bson_by(&value, collation)?;
                held.add(ENTRY_BYTES + key.heap_bytes())?;
                by_value.entry(key).or_default().push(at);
            }
        }
        Ok(Self { documents, by_value, collation: collation.cloned(), _held: held })
    }

    /// Returns the positions of the documents with one of these values, in their order.
    fn positions(&self, values: &[Bson]) -> Result<Vec<usize>> {
        let mut found = Vec::new();
        for value in values {
            let key = Key::of_bson_by(value, self.collation.as_ref())?;
            let more = self.by_value.get(&key).into_iter().flatten().copied();
            found.extend(more);
            budget::steps(1 + (found.len() / POSITIONS_PER_STEP) as u64)?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

impl Lookup {
    pub fn parse(options: &RawDocument) -> Result<Self> {
        known("$lookup", options, &["from", "localField", "foreignField", "let", "pipeline", "as"])?;
        let field = |name: &str| -> Result<Option<String>> {
            options.get(name)?.map(|_| text("$lookup", options, name).map(str::to_owned)).transpose()
        };
        let fields = match (field("localField")?, field("foreignField")?) {
            (Some(local), Some(foreign)) => Some((local, foreign)),
            (None, None) => None,
            _ => {
                let message = "$lookup needs both `localField` and `foreignField`, or none of them";
                return Err(CommandError::new(Code::FailedToParse, message));
            }
        };
        let pipeline = match options.get("pipeline")? {
            Some(RawBsonRef::Array(pipeline)) => Some(pipeline.to_owned()),
            Some(_) => {
                return Err(CommandError::new(Code::TypeMismatch, "`$lookup.pipeline` must be an array"));
            }
            None if fields.is_none() => {
                let message = "$lookup needs `localField` and `foreignField`, or a `pipeline`";
                return Err(CommandError::new(Code::FailedToParse, message));
            }
            None => None,
        };
        let bound = match options.get("let")? {
            Some(RawBsonRef::Document(bound)) => bound.to_owned(),
            Some(_) => return Err(CommandError::new(Code::FailedToParse, "`$lookup.let` must be an object")),
            None => RawDocumentBuf::new(),
        };
        let target = text("$lookup", options, "as")?.to_owned();
        Ok(Self { from: field("from")?, fields, bound, pipeline, target })
    }

    /// Returns the stage that passes on each document with the array of those that it is joined with.
    pub(super) fn joining<'r>(&'r self, context: &'r Context<'r>, next: Chain<'r>) -> Chain<'r> {
        let mut source = None;
        each(next, move |document, next| {
            let source = match &mut source {
                Some(source) => source,
                none => none.insert(JoinSource::new(self, context)?),
            };
            let (found, _held) = source.found(self, context, &document)?;
            next.push(with_array(&document, &self.target, &found)?)
        })
    }

    /// Returns the variables of `let`, evaluated on a document.
    fn variables(&self, outer: &Variables, document: &DocBytes) -> Result<Variables> {
        let mut variables = outer.clone();
        let document = RawDocument::from_bytes(document)?;
        for variable in &*self.bound {
            let (name, value) = variable?;
            let value: EvalValue = Expression::parse_with(value, outer)?.eval(document)?;
            variables.values.push((name.as_str().to_owned(), value));
        }
        Ok(variables)
    }
}

/// Source of a `$lookup`, read once for all documents.
struct JoinSource {
    /// Name in the store of the collection.
    stored: Option<String>,
    /// The documents by the values that must be equal, and the path of those here.
    index: Option<(JoinIndex, Expression)>,
}

impl JoinSource {
    fn new(lookup: &Lookup, context: &Context<'_>) -> Result<Self> {
        let stored = lookup.from.as_ref().map(|from| stored_name(context.database, from)).transpose()?;
        let index = match &lookup.fields {
            None => None,
            Some((local, foreign)) => {
                let documents = match &lookup.from {
                    Some(from) => context.documents_of(from)?,
                    None => Default::default(),
                };
                Some((JoinIndex::new(documents, foreign, context.collation())?, path_of(local)?))
            }
        };
        Ok(Self { stored, index })
    }

    /// Returns the documents that one is joined with, and their memory.
    fn found(
        &self,
        lookup: &Lookup,
        context: &Context<'_>,
        document: &DocBytes,
    ) -> Result<(Vec<DocBytes>, HeldDocuments)> {
        let matching = match &self.index {
            None => None,
            Some((index, local)) => {
                let mut matching = HeldDocuments::default();
                for at in index.positions(&join_values(document, local)?)? {
                    matching.push(index.documents[at].clone())?;
                }
                Some(matching)
            }
        };
        let mut found = match &lookup.pipeline {
            None => matching.unwrap_or_default(),
            Some(pipeline) => {
                let variables = lookup.variables(context.variables, document)?;
                let inner = context.inner(self.stored.as_deref(), &variables)?;
                let pipeline = Pipeline::parse(pipeline, &inner)?;
                match matching {
                    Some(mut matching) => pipeline.run_on(&inner, std::mem::take(&mut matching.documents))?,
                    None => pipeline.run_held(&inner)?,
                }
            }
        };
        Ok((std::mem::take(&mut found.documents), found))
    }
}

/// Returns the document with an array of documents at a path.
///
/// Errors: it would be larger than a document may be.
fn with_array(document: &DocBytes, path: &str, found: &[DocBytes]) -> Result<DocBytes> {
    let bytes = document.len() + found.iter().map(DocBytes::len).sum::<usize>();
    check_size(bytes)?;
    budget::steps(1 + (bytes / BYTES_PER_STEP) as u64)?;
    // a tree takes several times the bytes of its document
    let _held = budget::reserve(TREE_FACTOR * bytes)?;
    let mut array = Vec::with_capacity(found.len());
    for found in found {
        array.push(Bson::Document(RawDocument::from_bytes(found)?.try_into()?));
    }
    let mut document: Document = RawDocument::from_bytes(document)?.try_into()?;
    set_path(&mut document, path, Some(Bson::Array(array)));
    Ok(encoded(&document)?)
}

/// `$graphLookup`
pub(in crate::commands) struct GraphLookup {
    from: String,
    start: Expression,
    connect_from: String,
    connect_to: String,
    target: String,
    depth_max: Option<usize>,
    depth_field: Option<String>,
    restriction: Option<Filter>,
}

impl GraphLookup {
    pub fn parse(options: &RawDocument, variables: &Variables) -> Result<Self> {
        const NAME: &str = "$graphLookup";
        known(
            NAME,
            options,
            &[
                "from",
                "startWith",
                "connectFromField",
                "connectToField",
                "as",
                "maxDepth",
                "depthField",
                "restrictSearchWithMatch",
            ],
        )?;
        let depth_max = options.get("maxDepth")?.map(|depth| {
            whole_number(depth).and_then(|n| usize::try_from(n).ok()).ok_or_else(|| CommandError {
                code: 40100,
                message: "`maxDepth` of $graphLookup must be a whole number of 0 or more".into(),
            })
        });
        let restriction = match options.get("restrictSearchWithMatch")? {
            Some(RawBsonRef::Document(filter)) => Some(super::search::match_filter(filter, variables)?),
            Some(_) => {
                let message = "`restrictSearchWithMatch` of $graphLookup must be an object".into();
                return Err(CommandError { code: 40185, message });
            }
            None => None,
        };
        Ok(Self {
            from: text(NAME, options, "from")?.to_owned(),
            start: Expression::parse_with(option(NAME, options, "startWith")?, variables)?,
            connect_from: text(NAME, options, "connectFromField")?.to_owned(),
            connect_to: text(NAME, options, "connectToField")?.to_owned(),
            target: text(NAME, options, "as")?.to_owned(),
            depth_max: depth_max.transpose()?,
            depth_field: options
                .get("depthField")?
                .map(|_| text(NAME, options, "depthField").map(str::to_owned))
                .transpose()?,
            restriction,
        })
    }

    /// Returns the stage that passes on each document with the array of those that are reached from it.
    pub(super) fn joining<'r>(&'r self, context: &'r Context<'r>, next: Chain<'r>) -> Chain<'r> {
        let mut index = None;
        each(next, move |document, next| {
            let (index, from) = match &mut index {
                Some(index) => index,
                none => none.insert((self.index(context)?, path_of(&self.connect_from)?)),
            };
            let found = self.reached(index, from, &document)?;
            next.push(with_array(&document, &self.target, &found.documents)?)
        })
    }

    fn index(&self, context: &Context<'_>) -> Result<JoinIndex> {
        let (mut foreign, held) = context.documents_of(&self.from)?;
        if let Some(filter) = &self.restriction {
            let mut stopped = Ok(());
            foreign.retain(|document| {
                stopped = stopped.clone().and_then(|()| budget::step());
                stopped.is_ok() && RawDocument::from_bytes(document).is_ok_and(|raw| filter.matches(raw))
            });
            stopped?;
            filter.check()?;
        }
        JoinIndex::new((foreign, held), &self.connect_to, context.collation())
    }

    /// Returns the documents that are reached from one, each once, the closest first.
    fn reached(&self, index: &JoinIndex, from: &Expression, document: &DocBytes) -> Result<HeldDocuments> {
        let start = self.start.eval(RawDocument::from_bytes(document)?)?;
        let start = match start {
            Some(Bson::Array(values)) => values,
            value => vec![value.unwrap_or(Bson::Null)],
        };
        let (mut seen, mut found, mut held) =
            (HashSet::new(), HeldDocuments::default(), HeldMemory::default());
        let mut bytes = document.len();
        let mut queue = VecDeque::from([(start, 0_usize)]);
        while let Some((values, depth)) = queue.pop_front() {
            for at in index.positions(&values)? {
                if !seen.insert(at) {
                    continue;
                }
                if seen.len() > REACHED_MAX {
                    let message =
                        format!("$graphLookup reaches more than {REACHED_MAX} documents: limit its depth");
                    return Err(CommandError::new(Code::ExceededMemoryLimit, message));
                }
                let reached = &index.documents[at];
                bytes += reached.len();
                check_size(bytes)?;
                found.push(match &self.depth_field {
                    None => reached.clone(),
                    Some(field) => {
                        let mut reached: Document = RawDocument::from_bytes(reached)?.try_into()?;
                        set_path(&mut reached, field, Some(Bson::Int64(depth as i64)));
                        encoded(&reached)?
                    }
                })?;
                held.add(ENTRY_BYTES)?;
                if self.depth_max.is_none_or(|most| depth < most) {
                    let values = join_values(reached, from)?;
                    held.add(values.iter().map(value_bytes).sum())?;
                    queue.push_back((values, depth + 1));
                }
            }
        }
        Ok(found)
    }
}

/// `$unionWith`
pub(in crate::commands) struct UnionWith {
    collection: Option<String>,
    pipeline: RawArrayBuf,
}

impl UnionWith {
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        match value {
            RawBsonRef::String(name) => {
                Ok(Self { collection: Some(name.to_owned()), pipeline: RawArrayBuf::new() })
            }
            RawBsonRef::Document(options) => {
                known("$unionWith", options, &["coll", "pipeline"])?;
                let pipeline = match options.get("pipeline")? {
                    Some(RawBsonRef::Array(pipeline)) => pipeline.to_owned(),
                    Some(_) => {
                        return Err(CommandError::new(
                            Code::TypeMismatch,
                            "`$unionWith.pipeline` must be an array",
                        ));
                    }
                    None => RawArrayBuf::new(),
                };
                let collection =
                    options.get("coll")?.map(|_| text("$unionWith", options, "coll").map(str::to_owned));
                Ok(Self { collection: collection.transpose()?, pipeline })
            }
            _ => Err(CommandError::new(Code::FailedToParse, "$unionWith expects a collection or an object")),
        }
    }

    /// Passes on the documents of the other collection.
    pub(super) fn run(&self, context: &Context<'_>, next: &mut dyn Receiver) -> Result<()> {
        let stored = self.collection.as_ref().map(|name| stored_name(context.database, name)).transpose()?;
        let inner = context.inner(stored.as_deref(), context.variables)?;
        Pipeline::parse(&self.pipeline, &inner)?.run_into(&inner, next)
    }
}

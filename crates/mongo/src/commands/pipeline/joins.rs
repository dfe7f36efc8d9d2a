//! Stages that read other collections: `$lookup`, `$graphLookup`, `$unionWith`.

use std::collections::{HashMap, HashSet, VecDeque};

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use tidemill_docs::{Collation, DocBytes, EvalValue, Expression, Filter, Key, Variables, encoded, set_path};

use super::{Context, Pipeline, known, option, text};
use crate::error::{Code, CommandError, Result};
use crate::fields::whole_number;
use crate::namespace::stored_name;

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

/// Returns the values of a path by which documents are joined: elements of arrays, too; null if there is none.
fn join_values(document: &DocBytes, path: &str) -> Result<Vec<Bson>> {
    let value = RawDocumentBuf::from_bytes(document.to_vec())?;
    let path = format!("${path}");
    let found = Expression::parse(RawBsonRef::String(&path))?.eval(&value)?;
    Ok(match found {
        Some(Bson::Array(values)) => values,
        Some(value) => vec![value],
        None => vec![Bson::Null],
    })
}

/// The documents of a collection by the values at a path.
struct JoinIndex {
    documents: Vec<DocBytes>,
    by_value: HashMap<Key, Vec<usize>>,
    collation: Option<Collation>,
}

impl JoinIndex {
    fn new(documents: Vec<DocBytes>, path: &str, collation: Option<&Collation>) -> Result<Self> {
        let mut by_value: HashMap<Key, Vec<usize>> = HashMap::new();
        for (at, document) in documents.iter().enumerate() {
            for value in join_values(document, path)? {
                by_value.entry(Key::of_bson_by(&value, collation)?).or_default().push(at);
            }
        }
        Ok(Self { documents, by_value, collation: collation.cloned() })
    }

    /// Returns the positions of the documents with one of these values, in their order.
    fn positions(&self, values: &[Bson]) -> Result<Vec<usize>> {
        let mut found = Vec::new();
        for value in values {
            let key = Key::of_bson_by(value, self.collation.as_ref())?;
            found.extend(self.by_value.get(&key).into_iter().flatten().copied());
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

    pub fn apply(&self, context: &Context<'_>, documents: Vec<DocBytes>) -> Result<Vec<DocBytes>> {
        let foreign = match &self.from {
            Some(from) => context.documents_of(from)?,
            None => Vec::new(),
        };
        let stored = self.from.as_ref().map(|from| stored_name(context.database, from)).transpose()?;
        let index = match &self.fields {
            Some((_, path)) => Some(JoinIndex::new(foreign, path, context.collation())?),
            None => None,
        };
        let mut joined = Vec::with_capacity(documents.len());
        for document in documents {
            let matching = match (&index, &self.fields) {
                (Some(index), Some((local, _))) => {
                    let positions = index.positions(&join_values(&document, local)?)?;
                    Some(positions.into_iter().map(|at| index.documents[at].clone()).collect())
                }
                _ => None,
            };
            let found = match &self.pipeline {
                None => matching.unwrap_or_default(),
                Some(pipeline) => {
                    let variables = self.variables(context.variables, &document)?;
                    let inner = context.inner(stored.as_deref(), &variables)?;
                    let pipeline = Pipeline::parse(pipeline, &inner)?;
                    match matching {
                        Some(matching) => pipeline.run_on(&inner, matching)?,
                        None => pipeline.run(&inner)?,
                    }
                }
            };
            joined.push(with_array(&document, &self.target, &found)?);
        }
        Ok(joined)
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

/// Returns the document with an array of documents at a path.
fn with_array(document: &DocBytes, path: &str, found: &[DocBytes]) -> Result<DocBytes> {
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
            Some(RawBsonRef::Document(filter)) => Some(Filter::parse_with(filter, variables)?),
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

    pub fn apply(&self, context: &Context<'_>, documents: Vec<DocBytes>) -> Result<Vec<DocBytes>> {
        let mut foreign = context.documents_of(&self.from)?;
        if let Some(filter) = &self.restriction {
            foreign.retain(|document| RawDocument::from_bytes(document).is_ok_and(|raw| filter.matches(raw)));
            filter.check()?;
        }
        let index = JoinIndex::new(foreign, &self.connect_to, context.collation())?;
        let mut joined = Vec::with_capacity(documents.len());
        for document in documents {
            let found = self.reached(&index, &document)?;
            joined.push(with_array(&document, &self.target, &found)?);
        }
        Ok(joined)
    }

    /// Returns the documents that are reached from one, each once, the closest first.
    fn reached(&self, index: &JoinIndex, document: &DocBytes) -> Result<Vec<DocBytes>> {
        let start = self.start.eval(RawDocument::from_bytes(document)?)?;
        let start = match start {
            Some(Bson::Array(values)) => values,
            value => vec![value.unwrap_or(Bson::Null)],
        };
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
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
                found.push(match &self.depth_field {
                    None => reached.clone(),
                    Some(field) => {
                        let mut reached: Document = RawDocument::from_bytes(reached)?.try_into()?;
                        set_path(&mut reached, field, Some(Bson::Int64(depth as i64)));
                        encoded(&reached)?
                    }
                });
                if self.depth_max.is_none_or(|most| depth < most) {
                    queue.push_back((join_values(reached, &self.connect_from)?, depth + 1));
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

    pub fn documents(&self, context: &Context<'_>) -> Result<Vec<DocBytes>> {
        let stored = self.collection.as_ref().map(|name| stored_name(context.database, name)).transpose()?;
        let inner = context.inner(stored.as_deref(), context.variables)?;
        Pipeline::parse(&self.pipeline, &inner)?.run(&inner)
    }
}

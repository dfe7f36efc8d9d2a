//! `explain`: how a command finds its documents.

use std::time::Instant;

use bson::cstr;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use tidemill_docs::{ExplainQuery, Explanation, Filter, FindOptions, SortOrder};
use tidemill_types::ErrorKind;

use crate::commands::pipeline::GeoNear;
use crate::commands::{collation, index::hint, reading::find, reading::order};
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::frame::Request;
use crate::wire::reply::ok;

pub(in crate::commands) fn explain(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["verbosity"])?;
    let run = match call.text("verbosity")? {
        Some("queryPlanner") => false,
        None | Some("executionStats" | "allPlansExecution") => true,
        Some(other) => {
            let message = format!(
                "verbosity string must be one of 'queryPlanner', 'executionStats' or 'allPlansExecution', found '{other}'"
            );
            return Err(CommandError::new(Code::BadValue, message));
        }
    };
    let Some(command) = call.document(call.name)? else {
        return Err(CommandError::new(
            Code::FailedToParse,
            "explain needs the command to explain, an object",
        ));
    };
    let mut body = command.to_owned();
    if command.get("$db")?.is_none() {
        body.append(cstr!("$db"), call.database);
    }
    let request = Request::inner(body);
    let inner = Call::of(&request)?;
    hint::check(shared, &inner)?;
    let mut reply = explained(shared, &inner, run)?;
    reply.append(cstr!("command"), command);
    Ok(ok(reply))
}

/// Explains `aggregate` with `explain: true`.
pub(in crate::commands) fn pipeline(shared: &Shared, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut reply = explained(shared, call, false)?;
    reply.append(cstr!("command"), call.body());
    Ok(ok(reply))
}

/// A query that a command runs, as it was received.
struct ExplainedQuery<'r> {
    filter: &'r RawDocument,
    sort: &'r RawDocument,
    projection: Option<&'r RawDocument>,
    skip: u64,
    limit: Option<u64>,
    counts: bool,
    collation: Option<&'r RawDocument>,
    /// The stage that changes what was found.
    write: Option<&'static str>,
}

impl<'r> ExplainedQuery<'r> {
    fn of(filter: Option<&'r RawDocument>) -> Self {
        Self {
            filter: filter.unwrap_or_else(|| find::empty()),
            sort: find::empty(),
            projection: None,
            skip: 0,
            limit: None,
            counts: false,
            collation: None,
            write: None,
        }
    }

    fn one(filter: Option<&'r RawDocument>, write: &'static str) -> Self {
        Self { limit: Some(1), write: Some(write), ..Self::of(filter) }
    }
}

fn explained(shared: &Shared, call: &Call<'_>, run: bool) -> Result<RawDocumentBuf> {
    let some = |field: &str| Ok::<_, CommandError>(call.count(field)?.filter(|n| *n > 0));
    match call.name {
        "find" => {
            let query = ExplainedQuery {
                sort: call.document("sort")?.unwrap_or_else(|| find::empty()),
                projection: call.document("projection")?.filter(|p| !p.is_empty()),
                skip: call.count("skip")?.unwrap_or(0),
                limit: some("limit")?,
                ..ExplainedQuery::of(call.document("filter")?)
            };
            sections(shared, call, &query, run)
        }
        "count" => {
            let query = ExplainedQuery { counts: true, ..ExplainedQuery::of(call.document("query")?) };
            sections(shared, call, &query, run)
        }
        "distinct" => sections(shared, call, &ExplainedQuery::of(call.document("query")?), run),
        "findAndModify" | "findandmodify" => {
            let write = if call.flag("remove", false)? { "DELETE" } else { "UPDATE" };
            let sort = call.document("sort")?.unwrap_or_else(|| find::empty());
            sections(
                shared,
                call,
                &ExplainedQuery { sort, ..ExplainedQuery::one(call.document("query")?, write) },
                run,
            )
        }
        "update" | "delete" => write_sections(shared, call, run),
        "aggregate" => pipeline_sections(shared, call, run),
        other => {
            let message = format!("Explain failed due to unknown command: {other}");
            Err(CommandError::new(Code::CommandNotFound, message))
        }
    }
}

fn write_sections(shared: &Shared, call: &Call<'_>, run: bool) -> Result<RawDocumentBuf> {
    let (list, stage) = if call.name == "update" { ("updates", "UPDATE") } else { ("deletes", "DELETE") };
    let statements = call.documents(list)?;
    let [statement] = statements.as_slice() else {
        let message = "Explained update and delete commands must have exactly one statement";
        return Err(CommandError::new(Code::InvalidLength, message));
    };
    let statement = RawDocument::from_bytes(statement)?;
    let filter = statement.get("q")?.and_then(|q| q.as_document());
    let many = match call.name {
        "update" => statement.get("multi")? == Some(RawBsonRef::Boolean(true)),
        _ => statement.get("limit")?.and_then(crate::fields::whole_number) == Some(0),
    };
    let collation = statement.get("collation")?.and_then(|collation| collation.as_document());
    let one = ExplainedQuery { collation, ..ExplainedQuery::one(filter, stage) };
    sections(shared, call, &ExplainedQuery { limit: one.limit.filter(|_| !many), ..one }, run)
}

/// Explains the leading `$match` of a pipeline, and names the stages behind it.
fn pipeline_sections(shared: &Shared, call: &Call<'_>, run: bool) -> Result<RawDocumentBuf> {
    let Some(RawBsonRef::Array(pipeline)) = call.get("pipeline") else {
        return Err(CommandError::new(Code::TypeMismatch, "'pipeline' option must be specified as an array"));
    };
    let (mut filter, mut near) = (None, None);
    let mut rest = RawArrayBuf::new();
    for (at, stage) in pipeline.into_iter().enumerate() {
        let stage = stage?;
        match stage.as_document().and_then(|stage| stage.get("$match").ok().flatten()) {
            Some(RawBsonRef::Document(matched)) if at == 0 => filter = Some(matched),
            _ => rest.push(stage),
        }
        let geo_near = stage.as_document().and_then(|stage| stage.get("$geoNear").ok().flatten());
        if let (0, Some(RawBsonRef::Document(options))) = (at, geo_near)
            && let Ok(spec) = shared.engine.collection_spec(&call.collection()?)
        {
            let variables = find::variables(shared, call)?;
            near = Some(GeoNear::parse(options, &variables)?.filter_document(&spec)?);
        }
    }
    let filter = near.as_deref().or(filter);
    let first = sections(shared, call, &ExplainedQuery::of(filter), run)?;
    if rest.is_empty() {
        return Ok(first);
    }
    let mut cursor = RawDocumentBuf::new();
    cursor.append(if near.is_some() { cstr!("$geoNearCursor") } else { cstr!("$cursor") }, first);
    let mut stages = RawArrayBuf::new();
    stages.push(cursor);
    for stage in &rest {
        stages.push(stage?);
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("explainVersion"), "1");
    reply.append(cstr!("stages"), stages);
    Ok(reply)
}

/// Returns `queryPlanner`, and with `run` also `executionStats`.
fn sections(
    shared: &Shared,
    call: &Call<'_>,
    query: &ExplainedQuery<'_>,
    run: bool,
) -> Result<RawDocumentBuf> {
    let collation = collation::of_statement(shared, call, query.collation.or(call.document("collation")?))?;
    let filter = match query.write {
        None => find::read_filter(query.filter, collation.as_ref())?,
        Some(_) => Filter::parse_by(query.filter, collation.as_ref())?,
    };
    let natural = order::natural(Some(query.sort).filter(|sort| !sort.is_empty()), call.get("hint"));
    let sort = if natural.is_some() { SortOrder::default() } else { SortOrder::parse_query(query.sort)? };
    let options = FindOptions {
        bounds: None,
        natural,
        sort: sort.with_collation(collation),
        projection: None,
        skip: query.skip,
        limit: query.limit,
    };
    let request = ExplainQuery {
        filter: &filter,
        options: &options,
        filter_document: query.filter,
        sort_document: query.sort,
        projection_document: query.projection,
        counts: query.counts,
    };
    let started = Instant::now();
    let read = shared.engine.read_collection(&call.collection()?, |c| Ok(c.explain_query(&request, run)?));
    let parts = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        parts => parts?,
    };
    let millis = i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX);
    // each partition plans for itself; the first one stands for all
    let mut plan = match parts.first() {
        Some(part) => part.winning_plan.clone(),
        None => bson::rawdoc! { "stage": "EOF" },
    };
    if let Some(stage) = query.write {
        // a write of one document ends by itself
        if plan.get_str("stage").is_ok_and(|stage| stage == "LIMIT")
            && let Ok(input) = plan.get_document("inputStage")
        {
            plan = input.to_owned();
        }
        let mut write = RawDocumentBuf::new();
        write.append(cstr!("stage"), stage);
        write.append(cstr!("inputStage"), plan);
        plan = write;
    }
    let mut planner = RawDocumentBuf::new();
    planner.append(cstr!("namespace"), call.namespace());
    planner.append(cstr!("parsedQuery"), query.filter);
    planner.append(cstr!("indexFilterSet"), false);
    planner.append(cstr!("winningPlan"), plan.clone());
    planner.append(cstr!("rejectedPlans"), RawArrayBuf::new());
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("explainVersion"), "1");
    reply.append(cstr!("queryPlanner"), planner);
    if run {
        reply.append(cstr!("executionStats"), execution_stats(&parts, query, millis, plan));
    }
    Ok(reply)
}

fn execution_stats(
    parts: &[Explanation],
    query: &ExplainedQuery<'_>,
    millis: i64,
    plan: RawDocumentBuf,
) -> RawDocumentBuf {
    let sum =
        |of: fn(&Explanation) -> u64| i64::try_from(parts.iter().map(of).sum::<u64>()).unwrap_or(i64::MAX);
    let limit = query.limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX);
    // a count returns a number, and a write nothing
    let returned = match query.counts || query.write.is_some() {
        true => 0,
        false => sum(|part| part.returned).min(limit),
    };
    let mut stats = RawDocumentBuf::new();
    stats.append(cstr!("executionSuccess"), true);
    stats.append(cstr!("nReturned"), returned);
    stats.append(cstr!("executionTimeMillis"), millis);
    stats.append(cstr!("totalKeysExamined"), sum(|part| part.keys_examined));
    stats.append(cstr!("totalDocsExamined"), sum(|part| part.docs_examined));
    let mut stages = plan;
    stages.append(cstr!("nReturned"), returned);
    if query.counts {
        stages.append(cstr!("nCounted"), sum(|part| part.returned));
    }
    stats.append(cstr!("executionStages"), stages);
    stats
}

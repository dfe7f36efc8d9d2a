//! Plans as MongoDB's `explain` shows them: stages inside stages.

use std::cell::Cell;

use bson::raw::{CString, RawArrayBuf, RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};

use super::geo::intervals;
use super::{
    AccessPath, AccessPlan, ConditionKind, FieldBounds, IndexAccess, Purpose, conditions, one_of, plan,
};
use crate::collection::Collection;
use crate::error::Result;
use crate::filter::{Filter, FilterNode};
use crate::find::{FindOptions, VisitCounts};
use crate::geo::GeoIndexKind;
use crate::index::IndexId;
use crate::spec::IndexSpec;
use crate::text::TextQuery;
use crate::values::display::display;
use crate::values::key::rank;
use crate::values::raw::{RawValue, tag};

/// A query to explain: as it was received, and what it was parsed to.
#[derive(Debug, Clone, Copy)]
pub struct ExplainQuery<'q> {
    /// The filter.
    pub filter: &'q Filter,
    /// Sort, skip and limit.
    pub options: &'q FindOptions,
    /// The filter as it was received.
    pub filter_document: &'q RawDocument,
    /// The sort as it was received.
    pub sort_document: &'q RawDocument,
    /// The projection as it was received, if there is one.
    pub projection_document: Option<&'q RawDocument>,
    /// True if the documents are counted, not returned.
    pub counts: bool,
}

/// Explanation of how a query is answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The stages, the last one outside.
    pub winning_plan: RawDocumentBuf,
    /// Documents in the result.
    pub returned: u64,
    /// Entries of indexes that were looked at.
    pub keys_examined: u64,
    /// Documents that were looked at.
    pub docs_examined: u64,
}

impl Collection {
    /// Returns the plan of a query; with `run`, also what it looks at when it is run.
    ///
    /// Errors: as [`Self::find`].
    pub fn explain_query(&self, query: &ExplainQuery<'_>, run: bool) -> Result<Explanation> {
        let options = &*self.prepared(query.filter, query.options)?;
        let query = &ExplainQuery { options, ..*query };
        let purpose = if run { Purpose::Read } else { Purpose::Explain };
        let plan = match query.options.natural.filter(|_| query.options.sort.is_empty()) {
            Some(direction) => AccessPlan::scan(self, direction),
            None => plan(self, query.filter, &query.options.sort, purpose),
        };
        let mut explanation = Explanation {
            winning_plan: self.stages(&plan, query),
            returned: 0,
            keys_examined: 0,
            docs_examined: 0,
        };
        if !run || (query.counts && query.filter.is_all()) {
            explanation.returned = if run { self.len() as u64 } else { 0 };
            return Ok(explanation);
        }
        if let Some(count) = self.count_entries(&plan).filter(|_| query.counts) {
            (explanation.returned, explanation.keys_examined) = (count, count);
            return Ok(explanation);
        }
        let counts = VisitCounts { keys: Cell::new(0), documents: Cell::new(0) };
        let found = self.find_by_plan(&plan, query.filter, query.options, &counts)?;
        explanation.returned = found.len() as u64;
        (explanation.keys_examined, explanation.docs_examined) = (counts.keys.get(), counts.documents.get());
        Ok(explanation)
    }

    fn stages(&self, plan: &AccessPlan, query: &ExplainQuery<'_>) -> RawDocumentBuf {
        if query.counts {
            return self.count_stages(plan, query);
        }
        let mut stage = self.access_stage(&plan.access, &query.filter.node, query.filter_document);
        if let Some(why) = plan.missing_id_order {
            stage.append(cstr!("note"), why);
        }
        let options = query.options;
        let to_i64 = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        if !plan.sorted {
            let mut sort = rawdoc! { "stage": "SORT", "sortPattern": query.sort_document.to_owned() };
            sort.append(cstr!("memLimit"), to_i64(self.limits.sort_bytes_max as u64));
            if let Some(limit) = options.limit {
                sort.append(cstr!("limitAmount"), to_i64(limit.saturating_add(options.skip)));
            }
            stage = around(sort, stage);
        }
        if let Some(projection) = query.projection_document {
            let projected = rawdoc! { "stage": "PROJECTION_SIMPLE", "transformBy": projection.to_owned() };
            stage = around(projected, stage);
        }
        if options.skip > 0 {
            stage = around(rawdoc! { "stage": "SKIP", "skipAmount": to_i64(options.skip) }, stage);
        }
        match options.limit {
            Some(limit) if plan.sorted => {
                around(rawdoc! { "stage": "LIMIT", "limitAmount": to_i64(limit) }, stage)
            }
            _ => stage,
        }
    }

    fn count_stages(&self, plan: &AccessPlan, query: &ExplainQuery<'_>) -> RawDocumentBuf {
        if query.filter.is_all() {
            return rawdoc! { "stage": "RECORD_STORE_FAST_COUNT" };
        }
        let input = match &plan.access {
            AccessPath::Index(access) if access.exact => {
                self.index_stage("COUNT_SCAN", access, &query.filter.node)
            }
            access => self.access_stage(access, &query.filter.node, query.filter_document),
        };
        around(rawdoc! { "stage": "COUNT" }, input)
    }

    /// Returns the stages that find the documents and check the filter.
    fn access_stage(&self, access: &AccessPath, node: &FilterNode, filter: &RawDocument) -> RawDocumentBuf {
        let with_filter = |mut stage: RawDocumentBuf| {
            if !filter.is_empty() {
                stage.append(cstr!("filter"), filter);
            }
            stage
        };
        match access {
            AccessPath::Scan | AccessPath::ScanBackward => {
                let mut scan = with_filter(rawdoc! { "stage": "COLLSCAN" });
                let backward = *access == AccessPath::ScanBackward;
                scan.append(cstr!("direction"), if backward { "backward" } else { "forward" });
                scan
            }
            AccessPath::Ids(keys) => {
                let (conditions, complete) = conditions(node);
                if keys.len() == 1 && complete && conditions.len() == 1 {
                    return rawdoc! { "stage": "IDHACK" };
                }
                let values = one_of(&conditions, &"_id".into(), usize::MAX);
                let mut bounds = RawArrayBuf::new();
                for value in values.into_iter().flatten() {
                    bounds.push(point(value.as_raw()));
                }
                let scan = rawdoc! {
                    "stage": "IXSCAN", "keyPattern": { "_id": 1 }, "indexName": "_id_", "isMultiKey": false,
                    "isUnique": true, "isSparse": false, "isPartial": false, "indexVersion": 2,
                    "direction": "forward", "indexBounds": { "_id": bounds },
                };
                around(with_filter(rawdoc! { "stage": "FETCH" }), scan)
            }
            AccessPath::Index(access) if self.index(access.index).is_some_and(|i| i.text.is_some()) => {
                let fetch = with_filter(rawdoc! { "stage": "FETCH" });
                let scan = self.index_stage("IXSCAN", access, node);
                around(self.text_stage(access.index, node), around(fetch, scan))
            }
            AccessPath::Index(access) => {
                let fetch = rawdoc! { "stage": "FETCH" };
                let fetch = if access.exact { fetch } else { with_filter(fetch) };
                around(fetch, self.index_stage("IXSCAN", access, node))
            }
            AccessPath::Near(index) => with_filter(self.near_stage(*index)),
            AccessPath::Union(plans) => {
                let mut inputs = RawArrayBuf::new();
                for (plan, branch) in plans.iter().zip(branches(node, plans.len())) {
                    inputs.push(self.branch_stage(&plan.access, branch));
                }
                let mut or = rawdoc! { "stage": "OR" };
                or.append(cstr!("inputStages"), inputs);
                around(with_filter(rawdoc! { "stage": "FETCH" }), or)
            }
        }
    }

    /// Returns the stage of a branch of an `$or`; the filter is checked outside.
    fn branch_stage(&self, access: &AccessPath, node: &FilterNode) -> RawDocumentBuf {
        match access {
            AccessPath::Index(access) => self.index_stage("IXSCAN", access, node),
            AccessPath::Ids(_) => {
                rawdoc! { "stage": "IXSCAN", "keyPattern": { "_id": 1 }, "indexName": "_id_" }
            }
            AccessPath::Scan | AccessPath::ScanBackward | AccessPath::Near(_) | AccessPath::Union(_) => {
                rawdoc! { "stage": "COLLSCAN" }
            }
        }
    }

    fn text_stage(&self, index: IndexId, node: &FilterNode) -> RawDocumentBuf {
        let mut stage = rawdoc! { "stage": "TEXT_MATCH" };
        let (Some(index), Some(query)) = (self.index(index), text_of(node)) else { return stage };
        stage.append(cstr!("indexName"), index.spec.name.as_str());
        let list = |texts: &mut dyn Iterator<Item = &String>| {
            let mut array = RawArrayBuf::new();
            texts.for_each(|text| array.push(text.as_str()));
            array
        };
        let (negated, phrases, negated_phrases) = query.other_parts();
        let parsed = rawdoc! {
            "terms": list(&mut query.terms().iter()),
            "negatedTerms": list(&mut negated.into_iter()),
            "phrases": list(&mut phrases.iter()),
            "negatedPhrases": list(&mut negated_phrases.iter()),
        };
        stage.append(cstr!("parsedTextQuery"), parsed);
        if let Some(text) = &index.text {
            stage.append(cstr!("textIndexVersion"), text.fields.version);
        }
        stage
    }

    fn near_stage(&self, index: IndexId) -> RawDocumentBuf {
        let mut stage = RawDocumentBuf::new();
        let Some(index) = self.index(index) else { return stage };
        let name = match index.geo.as_ref().map(|geo| geo.kind) {
            Some(GeoIndexKind::Plane) => "GEO_NEAR_2D",
            _ => "GEO_NEAR_2DSPHERE",
        };
        stage.append(cstr!("stage"), name);
        if let Ok(pattern) = RawDocument::from_bytes(&index.spec.key_pattern()) {
            stage.append(cstr!("keyPattern"), pattern);
        }
        stage.append(cstr!("indexName"), index.spec.name.as_str());
        stage.append(cstr!("indexVersion"), 2);
        stage
    }

    fn index_stage(&self, name: &str, access: &IndexAccess, node: &FilterNode) -> RawDocumentBuf {
        let mut stage = RawDocumentBuf::new();
        stage.append(cstr!("stage"), name);
        let Some(index) = self.index(access.index) else { return stage };
        let spec: &IndexSpec = &index.spec;
        if let Ok(pattern) = RawDocument::from_bytes(&spec.key_pattern()) {
            stage.append(cstr!("keyPattern"), pattern);
        }
        stage.append(cstr!("indexName"), spec.name.as_str());
        if let Some(collation) = &index.collation {
            stage.append(cstr!("collation"), collation.document());
        }
        stage.append(cstr!("isMultiKey"), index.multikey());
        stage.append(cstr!("isUnique"), spec.unique);
        stage.append(cstr!("isSparse"), spec.sparse);
        stage.append(cstr!("isPartial"), spec.partial_filter.is_some());
        stage.append(cstr!("indexVersion"), 2);
        stage.append(cstr!("direction"), if access.reverse { "backward" } else { "forward" });
        stage.append(cstr!("indexBounds"), self.bounds(access, node));
        stage
    }

    /// Returns for each field of the index the intervals that are read.
    fn bounds(&self, access: &IndexAccess, node: &FilterNode) -> RawDocumentBuf {
        let mut all = RawDocumentBuf::new();
        let Some(index) = self.index(access.index) else { return all };
        let (conditions, _) = conditions(node);
        let collation = index.collation.as_ref();
        let conditions: Vec<_> = conditions.into_iter().filter(|c| c.fits(collation)).collect();
        let mut add = |path: &str, intervals: Vec<String>| {
            if let Ok(name) = CString::try_from(path.to_owned()) {
                let mut array = RawArrayBuf::new();
                intervals.iter().for_each(|interval| array.push(interval.as_str()));
                all.append(name, array);
            }
        };
        if let Some(wildcard) = &index.wildcard {
            for condition in conditions.iter().filter(|c| wildcard.covers(c.path)).take(1) {
                let intervals = match &condition.kind {
                    ConditionKind::OneOf(values) => {
                        values.iter().map(|value| point(value.as_raw())).collect()
                    }
                    ConditionKind::Range(..) => {
                        let bounds =
                            FieldBounds::find(&conditions, condition.path, index.multikey(), collation);
                        bounds.iter().map(FieldBounds::interval).collect()
                    }
                };
                add(condition.path.as_str(), intervals);
            }
            return all;
        }
        if index.text.is_some() {
            let terms = text_of(node).map_or(Vec::new(), |query| query.terms().to_vec());
            for (path, _) in index.fields.iter() {
                let values = one_of(&conditions, path, usize::MAX);
                let intervals = match index.spec.kind_of(path.as_str()) {
                    Some(_) => terms.iter().map(|term| format!("[{term:?}, {term:?}]")).collect(),
                    None => match values {
                        Some(values) => values.iter().map(|value| point(value.as_raw())).collect(),
                        None => vec!["[MinKey, MaxKey]".to_owned()],
                    },
                };
                add(path.as_str(), intervals);
            }
            return all;
        }
        if let Some(geo) = &index.geo {
            for (path, _) in index.fields.iter() {
                let own = geo.place(path).map(|place| intervals(&access.ranges, place)).unwrap_or_default();
                let all = || vec!["[MinKey, MaxKey]".to_owned()];
                add(path.as_str(), if own.is_empty() { all() } else { own });
            }
            return all;
        }
        for (at, (path, _)) in index.fields.iter().enumerate() {
            let points = one_of(&conditions, path, usize::MAX).filter(|_| at < access.equal);
            let range = || FieldBounds::find(&conditions, path, index.multikey(), collation);
            let intervals = match points {
                Some(values) => values.iter().map(|value| point(value.as_raw())).collect(),
                None if at == access.equal && access.ranged => {
                    range().iter().map(FieldBounds::interval).collect()
                }
                None => vec!["[MinKey, MaxKey]".to_owned()],
            };
            add(path.as_str(), intervals);
        }
        all
    }
}

fn text_of(node: &FilterNode) -> Option<&TextQuery> {
    match node {
        FilterNode::All(nodes) | FilterNode::Any(nodes) => nodes.iter().find_map(text_of),
        FilterNode::Text(query) => Some(query),
        _ => None,
    }
}

/// Returns the branches of the `$or` that a union answers.
fn branches(node: &FilterNode, count: usize) -> &[FilterNode] {
    match node {
        FilterNode::Any(branches) if branches.len() == count => branches,
        FilterNode::All(nodes) => {
            nodes.iter().map(|node| branches(node, count)).find(|found| !found.is_empty()).unwrap_or(&[])
        }
        _ => &[],
    }
}

/// Returns `stage` with `inputStage`.
fn around(mut stage: RawDocumentBuf, input: RawDocumentBuf) -> RawDocumentBuf {
    stage.append(cstr!("inputStage"), input);
    stage
}

fn point(value: RawValue<'_>) -> String {
    let value = display(value);
    format!("[{value}, {value}]")
}

impl FieldBounds<'_> {
    /// Formats the bounds as MongoDB does, `[5, inf.0]`.
    fn interval(&self) -> String {
        let kind = self.either_bound().map_or(0, |value| rank(value.tag));
        let (least, greatest) = match kind {
            n if n == rank(tag::INT32) => ("[-inf.0", "inf.0]"),
            n if n == rank(tag::STRING) => ("[\"\"", "{})"),
            n if n == rank(tag::DATE) => {
                ("[new Date(-9223372036854775808)", "new Date(9223372036854775807)]")
            }
            n if n == rank(tag::BOOL) => ("[false", "true]"),
            _ => ("[MinKey", "MaxKey]"),
        };
        let low = match self.low {
            Some((value, true)) => format!("[{}", display(value)),
            Some((value, false)) => format!("({}", display(value)),
            None => least.to_owned(),
        };
        let high = match self.high {
            Some((value, true)) => format!("{}]", display(value)),
            Some((value, false)) => format!("{})", display(value)),
            None => greatest.to_owned(),
        };
        format!("{low}, {high}")
    }
}

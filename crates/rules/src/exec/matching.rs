//! Finding the documents that a rule's conditions ask for.

use smallvec::SmallVec;
use tidemill_docs::{Collection, DocBytes, Filter, FindOptions, Store};

use crate::catalog::Catalog;
use crate::expr::Frame;
use crate::expr::eval::{append, eval, truth};
use crate::plan::{DocumentSource, Lookup, RulePlan, Step};

/// Most combinations of documents that one rule may match for one event.
pub const MATCHES_MAX: usize = 10_000;

/// The documents bound by the conditions so far, by slot.
pub(crate) type BoundDocuments = SmallVec<[Option<DocBytes>; 4]>;

/// The combinations of documents that match, as they were before the rule did anything.
#[derive(Debug, Default)]
pub(crate) struct DocumentMatches {
    /// `slots` documents for each match, one match after another.
    docs: Vec<Option<DocBytes>>,
    slots: usize,
    count: usize,
}

impl DocumentMatches {
    pub(crate) fn clear(&mut self, slots: usize) {
        self.docs.clear();
        self.slots = slots;
        self.count = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The documents of match `i`, by slot.
    pub(crate) fn get(&self, i: usize) -> &[Option<DocBytes>] {
        &self.docs[i * self.slots..(i + 1) * self.slots]
    }

    fn push(&mut self, frame: &Frame<'_>) {
        self.docs.extend(frame.docs[..self.slots].iter().map(|d| d.cloned()));
        self.count += 1;
    }
}

/// How far the conditions got where none matched: kept for explanations.
#[derive(Debug, Default)]
pub(crate) struct MatchProgress {
    /// Whether to keep anything.
    pub enabled: bool,
    /// The condition on documents that failed last and farthest, and the filter of it.
    pub deepest: Option<(u32, Option<u32>)>,
    /// The documents bound there.
    pub docs: BoundDocuments,
}

impl MatchProgress {
    fn failed(&mut self, step: usize, filter: Option<usize>, frame: &Frame<'_>, slots: usize) {
        if !self.enabled {
            return;
        }
        let here = (step as u32, filter.map(|f| f as u32));
        if self.deepest.is_none_or(|deepest| here > deepest) {
            self.deepest = Some(here);
            self.docs = frame.docs[..slots].iter().map(|d| d.cloned()).collect();
        }
    }
}

/// More combinations than [`MATCHES_MAX`].
#[derive(Debug)]
pub(crate) struct TooManyMatches;

/// Finds every combination of documents for which the conditions of `rule` hold.
pub(crate) struct MatchSearch<'s> {
    pub rule: &'s RulePlan,
    pub catalog: &'s Catalog,
    pub store: &'s Store,
    pub matches: &'s mut DocumentMatches,
    pub progress: &'s mut MatchProgress,
}

impl MatchSearch<'_> {
    /// Goes on at condition `step` with what `frame` binds.
    pub(crate) fn run(&mut self, step: usize, frame: &Frame<'_>) -> Result<(), TooManyMatches> {
        let rule = self.rule;
        match rule.steps.get(step) {
            None => {
                if self.matches.len() == MATCHES_MAX {
                    return Err(TooManyMatches);
                }
                self.matches.push(frame);
                Ok(())
            }
            Some(Step::Filter(check)) => {
                if truth(&check.expr, frame) == Some(true) {
                    return self.run(step + 1, frame);
                }
                self.progress.failed(step, Some(0), frame, rule.slots.len());
                Ok(())
            }
            Some(Step::Lookup(lookup)) => self.look_up(step, lookup, frame),
        }
    }

    fn look_up(&mut self, step: usize, lookup: &Lookup, frame: &Frame<'_>) -> Result<(), TooManyMatches> {
        let mut found = 0;
        let slots = self.rule.slots.len();
        let name = &self.catalog.entities[self.rule.slots[lookup.slot].entity].name;
        let store = self.store;
        let mut each = |doc: &DocBytes| {
            let bound = frame.with(lookup.slot, doc);
            if let Some(filter) = lookup.filters.iter().position(|f| truth(&f.expr, &bound) != Some(true)) {
                if !lookup.negated {
                    self.progress.failed(step, Some(filter), &bound, slots);
                }
                return Ok(true);
            }
            found += 1;
            if lookup.negated {
                self.progress.failed(step, Some(0), &bound, slots);
                return Ok(false);
            }
            self.run(step + 1, &bound).map(|()| true)
        };
        if let Some(collection) = store.collection(name) {
            candidates(collection, &lookup.source, frame, &mut each)?;
        }
        if found == 0 {
            if lookup.negated {
                return self.run(step + 1, frame);
            }
            self.progress.failed(step, None, frame, slots);
        }
        Ok(())
    }
}

/// Calls `each` with the documents that `source` leads to, until it answers `false`.
pub(crate) fn candidates<E>(
    collection: &Collection,
    source: &DocumentSource,
    frame: &Frame<'_>,
    each: &mut impl FnMut(&DocBytes) -> Result<bool, E>,
) -> Result<(), E> {
    match source {
        DocumentSource::Key(value) => {
            let value = eval(value, frame);
            if !value.is_absent()
                && let Some(doc) = collection.get(&value.to_value())
            {
                each(doc)?;
            }
        }
        DocumentSource::Field(path, value) => {
            let value = eval(value, frame);
            if !value.is_absent() {
                for doc in collection.find_by(path, &value.to_value()) {
                    if !each(doc)? {
                        break;
                    }
                }
            }
        }
        DocumentSource::Fields(fields) => {
            let mut wanted = bson::RawDocumentBuf::new();
            for (path, value) in fields {
                match eval(value, frame) {
                    value if value.is_absent() => return Ok(()),
                    value => append(&mut wanted, path, value.to_raw_bson().unwrap_or(bson::RawBson::Null)),
                }
            }
            // the values are scalars or documents under plain paths: that is a filter
            let Ok(filter) = Filter::parse(&wanted) else { return Ok(()) };
            let Ok(docs) = collection.find(&filter, &FindOptions::default()) else { return Ok(()) };
            for doc in &docs {
                if !each(doc)? {
                    break;
                }
            }
        }
        DocumentSource::Scan => {
            for doc in collection.iter() {
                if !each(doc)? {
                    break;
                }
            }
        }
    }
    Ok(())
}

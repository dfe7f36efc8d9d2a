//! Matching: finds the documents that satisfy the conditions of a rule.

use smallvec::SmallVec;
use tidemill_docs::{Collection, DocBytes, Filter, FindOptions, Store};

use crate::catalog::RuleCatalog;
use crate::expr::Bindings;
use crate::expr::eval::{append, eval, truth};
use crate::plan::{DocumentLookup, DocumentSource, RulePlan, Step};

/// Limit on the combinations of documents that one rule may match for one event.
pub const MATCHES_MAX: usize = 10_000;

/// Documents bound by the conditions so far, by slot.
pub(crate) type BoundDocuments = SmallVec<[Option<DocBytes>; 4]>;

/// Matching combinations of documents, as they were before the rule changed anything.
#[derive(Debug, Default)]
pub(crate) struct DocumentMatches {
    /// `slots` documents per match, match after match.
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

    /// Returns the documents of match `i`, by slot.
    pub(crate) fn get(&self, i: usize) -> &[Option<DocBytes>] {
        &self.docs[i * self.slots..(i + 1) * self.slots]
    }

    fn push(&mut self, frame: &Bindings<'_>) {
        self.docs.extend(frame.docs[..self.slots].iter().map(|d| d.cloned()));
        self.count += 1;
    }
}

/// Progress of a search in which no combination matched; recorded for explanations.
#[derive(Debug, Default)]
pub(crate) struct MatchProgress {
    /// True to record progress.
    pub enabled: bool,
    /// The farthest condition on documents that failed and which of its filters did; the first such failure
    /// wins.
    pub deepest: Option<(u32, Option<u32>)>,
    /// Documents bound at that point.
    pub docs: BoundDocuments,
}

impl MatchProgress {
    fn failed(&mut self, step: usize, filter: Option<usize>, frame: &Bindings<'_>, slots: usize) {
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

/// More than [`MATCHES_MAX`] combinations matched.
#[derive(Debug)]
pub(crate) struct TooManyMatches;

/// Depth-first search for every combination of documents that satisfies the conditions of `rule`.
pub(crate) struct MatchSearch<'s> {
    pub rule: &'s RulePlan,
    pub catalog: &'s RuleCatalog,
    pub store: &'s Store,
    pub matches: &'s mut DocumentMatches,
    pub progress: &'s mut MatchProgress,
}

impl MatchSearch<'_> {
    /// Continues at condition `step` with the documents bound in `frame`.
    pub(crate) fn run(&mut self, step: usize, frame: &Bindings<'_>) -> Result<(), TooManyMatches> {
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

    fn look_up(
        &mut self,
        step: usize,
        lookup: &DocumentLookup,
        frame: &Bindings<'_>,
    ) -> Result<(), TooManyMatches> {
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

/// Calls `each` with every candidate document of `source`, until it returns `false`.
pub(crate) fn candidates<E>(
    collection: &Collection,
    source: &DocumentSource,
    frame: &Bindings<'_>,
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
            // the values are scalars or documents under plain paths, which is a valid filter
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

//! Queries: filter, sort, skip, limit, projection.

mod nearest;
mod prepare;

use std::cell::Cell;
use std::ops::ControlFlow;

use hashbrown::HashSet;
use tidemill_types::{Value, budget};

use crate::DocBytes;
use crate::collection::Collection;
use crate::direction::Direction;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::{Comparison, Filter};
use crate::found::{FoundDocuments, FoundOrder};
use crate::index::IndexId;
use crate::memory::HeldMemory;
use crate::plan::{AccessPath, AccessPlan, IndexEntries, KeyRange, Purpose, can_answer_equality, plan};
use crate::projection::Projection;
use crate::rows::{RowIndex, RowIter, StoredDocument};
use crate::sort::SortOrder;
use crate::values::key::Key;
use crate::values::path::Path;
use crate::values::path_values::{LeafArray, any_value};
use crate::values::raw::OwnedRawValue;

/// Sort, projection, skip and limit of a query.
#[derive(Debug, Clone, Default)]
pub struct FindOptions {
    /// Order of the result; if empty, that of the plan, which without an index is the order of insertion.
    pub sort: SortOrder,
    /// Fields to return; all if `None`.
    pub projection: Option<Projection>,
    /// Number of documents to skip.
    pub skip: u64,
    /// Maximum number of documents to return.
    pub limit: Option<u64>,
    /// Bounds in the order of an index, MongoDB's `min` and `max`.
    pub bounds: Option<IndexBounds>,
    /// The order of insertion, or its reverse, in place of that of a plan: MongoDB's `$natural`. A `sort` goes before it.
    pub natural: Option<Direction>,
}

/// Bounds of documents in the order of an index.
#[derive(Debug, Clone)]
pub struct IndexBounds {
    /// The order.
    pub order: SortOrder,
    /// Key of the first document.
    pub low: Option<Key>,
    /// Key after that of the last document.
    pub high: Option<Key>,
}

impl IndexBounds {
    fn contain(&self, doc: &[u8]) -> bool {
        let key = self.order.key(doc);
        self.low.as_ref().is_none_or(|low| key >= *low) && self.high.as_ref().is_none_or(|high| key < *high)
    }
}

/// Number of entries and documents that a query has looked at.
#[derive(Debug, Default)]
pub(crate) struct VisitCounts {
    /// Entries of indexes.
    pub keys: Cell<u64>,
    pub documents: Cell<u64>,
}

/// Bytes charged for a document being sorted, besides its key.
const SORT_ENTRY_BYTES: usize = 48;
/// Documents between two looks at the budget. They are not counted as steps, as a write may find its documents by another plan when
/// the log is applied again.
const DOCUMENTS_PER_LOOK: u32 = 64;

impl Collection {
    /// Returns the documents that match. Without a projection they are shared, not copied.
    ///
    /// Bounds: a sort that no index provides holds keys of up to `sort_bytes_max`; with a limit, those of
    /// about twice `skip + limit` documents. Errors: `LimitReached` when that is not enough.
    pub fn find(&self, filter: &Filter, options: &FindOptions) -> Result<Vec<DocBytes>> {
        let options = &*self.prepared(filter, options)?;
        let plan = self.plan_read(filter, options);
        let slots = self.find_by_plan(&plan, filter, options, &VisitCounts::default())?;
        let mut held = HeldMemory::default();
        held.add(slots.len() * size_of::<DocBytes>())?;
        let docs = slots.into_iter().filter_map(|slot| self.doc_at(slot));
        Ok(match &options.projection {
            None => docs.cloned().collect(),
            Some(projection) => {
                let projected = docs.map(|doc| {
                    budget::step()?;
                    let projected = projection.apply_bytes(doc)?;
                    held.add(projected.len())?;
                    Ok(projected)
                });
                projected.collect::<Result<_>>()?
            }
        })
    }

    /// Finds the documents that match, whole ones whatever the projection of `options` says. Holds their places, not the documents.
    ///
    /// Errors: as [`Self::find`].
    pub fn find_places(&self, filter: &Filter, options: &FindOptions) -> Result<FoundDocuments<'_>> {
        let options = &*self.prepared(filter, options)?;
        let plan = self.plan_read(filter, options);
        let slots = self.find_by_plan(&plan, filter, options, &VisitCounts::default())?;
        Ok(FoundDocuments::new(self, slots, plan.order(self, &options.sort)))
    }

    /// Finds the documents that a write changes, in its order, at most `limit`.
    ///
    /// Errors: as [`Self::find`].
    pub fn find_for_write(
        &self,
        filter: &Filter,
        sort: &SortOrder,
        limit: Option<u64>,
    ) -> Result<FoundDocuments<'_>> {
        let options = FindOptions { sort: sort.clone(), limit, ..FindOptions::default() };
        let options = &*self.prepared(filter, &options)?;
        let slots = self.find_slots(filter, options)?;
        let plan = plan(self, filter, &options.sort, Purpose::Write { all: limit.is_none() });
        let order = match plan.uses(IndexId::OfId) && options.sort.is_empty() {
            true => FoundOrder::Natural(Direction::Ascending),
            false => plan.order(self, &options.sort),
        };
        Ok(FoundDocuments::new(self, slots, order))
    }

    fn plan_read(&self, filter: &Filter, options: &FindOptions) -> AccessPlan {
        match options.natural.filter(|_| options.sort.is_empty()) {
            Some(direction) => AccessPlan::scan(self, direction),
            None => plan(self, filter, &options.sort, Purpose::Read),
        }
    }

    /// Calls `each` for the documents that match, until it breaks; whole ones whatever the projection of `options` says. What needs no
    /// order is not held.
    ///
    /// Errors: as [`Self::find`].
    pub fn find_each(
        &self,
        filter: &Filter,
        options: &FindOptions,
        each: &mut dyn FnMut(&DocBytes) -> ControlFlow<()>,
    ) -> Result<()> {
        let options = &*self.prepared(filter, options)?;
        if !options.sort.is_empty() || options.bounds.is_some() {
            let _ = self.find_places(filter, options)?.iter().try_for_each(each);
            return Ok(());
        }
        let plan = self.plan_read(filter, options);
        let (mut skipped, mut left) = (0, options.limit.unwrap_or(u64::MAX));
        self.visit(&plan, filter, &VisitCounts::default(), |_, doc| {
            if skipped < options.skip {
                skipped += 1;
                return ControlFlow::Continue(());
            }
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            each(doc)?;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    /// Returns the number of documents that match.
    ///
    /// Errors: those of expressions in the filter.
    pub fn count(&self, filter: &Filter) -> Result<u64> {
        if filter.is_all() {
            return Ok(self.len() as u64);
        }
        self.prepared(filter, &FindOptions::default())?;
        let plan = plan(self, filter, &SortOrder::default(), Purpose::Read);
        if let Some(count) = self.count_entries(&plan) {
            return Ok(count);
        }
        let mut count = 0;
        self.visit(&plan, filter, &VisitCounts::default(), |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Returns the number of entries of an index if these are the documents that match.
    pub(crate) fn count_entries(&self, plan: &AccessPlan) -> Option<u64> {
        let AccessPath::Index(access) = &plan.access else { return None };
        let index = self.index(access.index).filter(|_| access.exact)?;
        Some(access.ranges.iter().map(|range| range.entries(index).count() as u64).sum())
    }

    /// Returns the plan that [`Self::find`] would use.
    pub fn explain(&self, filter: &Filter, sort: &SortOrder) -> AccessPlan {
        // the words of a search are known once its index is; without one the plan is that of a query that is refused
        let _ = self.prepared(filter, &FindOptions::default());
        plan(self, filter, sort, Purpose::Explain)
    }

    /// Returns the rows of the documents that match, for a write, in the order of the plan, at most `max`.
    pub(crate) fn matching(&self, filter: &Filter, max: usize) -> Result<Vec<RowIndex>> {
        let options = FindOptions { limit: u64::try_from(max).ok(), ..FindOptions::default() };
        self.find_slots(filter, &options)
    }

    /// Returns the rows of the documents that a write changes: the same ones in the same order, whatever has been built for
    /// queries.
    pub(crate) fn find_slots(&self, filter: &Filter, options: &FindOptions) -> Result<Vec<RowIndex>> {
        let options = &*self.prepared(filter, options)?;
        let all = options.limit.is_none_or(|limit| limit == u64::MAX);
        let plan = plan(self, filter, &options.sort, Purpose::Write { all });
        let counts = VisitCounts::default();
        if !options.sort.is_empty() || !plan.uses(IndexId::OfId) {
            return self.find_by_plan(&plan, filter, options, &counts);
        }
        // those that a scan finds first
        let mut slots = self.find_by_plan(&plan, filter, &FindOptions::default(), &counts)?;
        slots.sort_unstable();
        slots
            .truncate(options.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
        Ok(slots)
    }

    /// Returns the rows that [`Self::find`] returns, and counts what is looked at.
    pub(crate) fn find_by_plan(
        &self,
        plan: &AccessPlan,
        filter: &Filter,
        options: &FindOptions,
        counts: &VisitCounts,
    ) -> Result<Vec<RowIndex>> {
        let skip = usize::try_from(options.skip).unwrap_or(usize::MAX);
        let limit = options.limit.map_or(usize::MAX, |l| usize::try_from(l).unwrap_or(usize::MAX));
        if limit == 0 {
            return Ok(Vec::new());
        }
        if !plan.sorted {
            return self.find_sorted(plan, filter, options, (skip, limit), counts);
        }
        if let AccessPath::Near(index) = plan.access {
            return self.find_nearest(index, filter, options, (skip, limit), counts);
        }
        let clipped = options.bounds.as_ref().and_then(|bounds| self.clipped(plan, bounds));
        let checked = options.bounds.as_ref().filter(|_| clipped.is_none());
        let plan = clipped.as_ref().unwrap_or(plan);
        let (mut passed, mut slots) = (0, Vec::new());
        let (mut held, mut full) = (HeldMemory::default(), Ok(()));
        self.visit(plan, filter, counts, |slot, doc| {
            if checked.is_some_and(|bounds| !bounds.contain(doc)) {
                return ControlFlow::Continue(());
            }
            passed += 1;
            if passed > skip {
                full = held.add(size_of::<RowIndex>());
                slots.push(slot);
            }
            if slots.len() >= limit || full.is_err() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        full?;
        Ok(slots)
    }

    /// Sorts in memory; with a limit, documents that can no longer be among the first are dropped on the way.
    fn find_sorted(
        &self,
        plan: &AccessPlan,
        filter: &Filter,
        options: &FindOptions,
        (skip, limit): (usize, usize),
        counts: &VisitCounts,
    ) -> Result<Vec<RowIndex>> {
        let wanted = skip.saturating_add(limit);
        let trim_at = wanted.saturating_mul(2).max(64);
        let mut found: Vec<(Key, RowIndex)> = Vec::new();
        let mut error = None;
        let mut held = HeldMemory::default();
        self.visit(plan, filter, counts, |slot, doc| {
            if options.bounds.as_ref().is_some_and(|bounds| !bounds.contain(doc)) {
                return ControlFlow::Continue(());
            }
            let key = options.sort.key(doc);
            if let Err(stop) = held.add(SORT_ENTRY_BYTES + key.heap_bytes()) {
                error = Some(stop.into());
                return ControlFlow::Break(());
            }
            found.push((key, slot));
            if found.len() >= trim_at || (found.len() > wanted && held.bytes() > self.limits.sort_bytes_max) {
                found.select_nth_unstable(wanted);
                found.truncate(wanted);
                let kept: usize = found.iter().map(|(k, _)| SORT_ENTRY_BYTES + k.heap_bytes()).sum();
                held.give_back(held.bytes().saturating_sub(kept));
            }
            if held.bytes() > self.limits.sort_bytes_max {
                error = Some(DocsError::new(
                    ErrorCode::SortMemoryExceeded,
                    format!(
                        "Sort exceeded memory limit of {} bytes (sort_bytes_max) after {} documents: add an index with this order, a limit, or a narrower filter",
                        self.limits.sort_bytes_max,
                        found.len()
                    ),
                ));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = error {
            return Err(error);
        }
        // documents with equal keys stay in order of insertion
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, slot)| slot).skip(skip).take(limit).collect())
    }

    /// Returns the plan that reads an index within bounds in its order; `None` if the plan does not read this index, or the index
    /// orders a document otherwise than the bounds do.
    fn clipped(&self, plan: &AccessPlan, bounds: &IndexBounds) -> Option<AccessPlan> {
        let AccessPath::Index(access) = &plan.access else { return None };
        let index = self.index(access.index)?;
        let in_order = index.hashed.is_none()
            && index.wildcard.is_none()
            && index.spec.has_values()
            && !index.multikey();
        let same =
            *index.fields == *bounds.order.fields && index.collation.as_ref() == bounds.order.collation();
        if !in_order || !same {
            return None;
        }
        let mut clipped = plan.clone();
        if let AccessPath::Index(access) = &mut clipped.access {
            access.ranges.iter_mut().for_each(|range| range.clip(bounds.low.as_ref(), bounds.high.as_ref()));
        }
        Some(clipped)
    }

    /// Calls `each` once for every document that matches, until it breaks.
    ///
    /// Errors: the filter cannot tell of a document whether it matches; the work has to end.
    fn visit(
        &self,
        plan: &AccessPlan,
        filter: &Filter,
        counts: &VisitCounts,
        mut each: impl FnMut(RowIndex, &DocBytes) -> ControlFlow<()>,
    ) -> Result<()> {
        let (mut until_look, mut stopped) = (DOCUMENTS_PER_LOOK, Ok(()));
        let mut check_doc = |slot: RowIndex, doc: &DocBytes| {
            counts.documents.set(counts.documents.get() + 1);
            until_look -= 1;
            if until_look == 0 {
                until_look = DOCUMENTS_PER_LOOK;
                stopped = budget::check();
                if stopped.is_err() {
                    return ControlFlow::Break(());
                }
            }
            if filter.matches_bytes(doc) { each(slot, doc) } else { ControlFlow::Continue(()) }
        };
        if let AccessPath::Scan | AccessPath::ScanBackward = plan.access {
            let mut check = |(slot, row): (RowIndex, &StoredDocument)| check_doc(slot, &row.doc);
            let _ = match plan.access {
                AccessPath::ScanBackward => self.rows.iter_backward().try_for_each(&mut check),
                _ => self.rows.iter().try_for_each(&mut check),
            };
            stopped?;
            return filter.check();
        }
        let mut seen = HashSet::new();
        let mut check = |slot: RowIndex, may_repeat: bool| {
            if may_repeat && !seen.insert(slot) {
                return ControlFlow::Continue(());
            }
            self.doc_at(slot).map_or(ControlFlow::Continue(()), |doc| check_doc(slot, doc))
        };
        let _ = match &plan.access {
            AccessPath::Union(plans) => plans
                .iter()
                .try_for_each(|plan| self.visit_rows(&plan.access, counts, &mut |slot, _| check(slot, true))),
            AccessPath::Near(index) => {
                self.all_near(*index, filter).map_or(ControlFlow::Continue(()), |all| {
                    self.visit_rows(&AccessPath::Index(all), counts, &mut check)
                })
            }
            access => self.visit_rows(access, counts, &mut check),
        };
        stopped?;
        filter.check()
    }

    /// Calls `check` for the row of each entry that an access path has, and says whether the row may come again.
    fn visit_rows(
        &self,
        access: &AccessPath,
        counts: &VisitCounts,
        check: &mut dyn FnMut(RowIndex, bool) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut entry = |slot: RowIndex, may_repeat: bool| {
            counts.keys.set(counts.keys.get() + 1);
            check(slot, may_repeat)
        };
        match access {
            // a scan has no entries, and branches of a union are visited one by one
            AccessPath::Scan | AccessPath::ScanBackward | AccessPath::Near(_) | AccessPath::Union(_) => {
                ControlFlow::Continue(())
            }
            AccessPath::Ids(keys) => {
                keys.iter().filter_map(|key| self.slot(key)).try_for_each(|slot| entry(slot, false))
            }
            AccessPath::Index(access) => {
                let Some(index) = self.index(access.index) else { return ControlFlow::Continue(()) };
                let multikey = index.multikey();
                let mut each = |(_, slot): &(Key, RowIndex)| entry(*slot, multikey);
                match access.reverse {
                    true => access
                        .ranges
                        .iter()
                        .rev()
                        .try_for_each(|r| r.entries(index).rev().try_for_each(&mut each)),
                    false => access.ranges.iter().try_for_each(|r| r.entries(index).try_for_each(&mut each)),
                }
            }
        }
    }

    /// Returns the documents whose value at `path` equals `value`, as a filter matches them: an array matches
    /// if one of its elements does, and null matches missing fields. Uses `_id`, an index that starts with
    /// the path, or a scan.
    pub fn find_by<'a>(
        &'a self,
        path: &str,
        value: &Value<'_>,
    ) -> impl Iterator<Item = &'a DocBytes> + use<'a> {
        let value = OwnedRawValue::from_value(value);
        let rows = if !can_answer_equality(&value) {
            FoundRows::All(self.rows.iter())
        } else if path == "_id" {
            FoundRows::One(self.slot(&Key::of_raw(value.as_raw())))
        } else {
            // a compound multikey index may return a document twice
            let index = self
                .indexes
                .iter()
                .find(|i| i.answers_equality(path) && (i.spec.fields.len() == 1 || !i.multikey()));
            match index {
                Some(index) => {
                    FoundRows::Index(KeyRange::equal(value.as_raw(), index.fields[0].1).entries(index))
                }
                None => FoundRows::All(self.rows.iter()),
            }
        };
        let path = Path::new(path);
        rows.docs(self).filter(move |doc| {
            any_value(doc, &path, LeafArray::Expand, &mut |found| Comparison::Eq.finds(found, value.as_raw()))
        })
    }
}

/// The rows that [`Collection::find_by`] checks.
enum FoundRows<'a> {
    One(Option<RowIndex>),
    Index(IndexEntries<'a>),
    All(RowIter<'a>),
}

impl<'a> FoundRows<'a> {
    fn docs(mut self, collection: &'a Collection) -> impl Iterator<Item = &'a DocBytes> {
        std::iter::from_fn(move || match &mut self {
            Self::One(slot) => slot.take().and_then(|s| collection.doc_at(s)),
            Self::Index(range) => range.next().and_then(|(_, s)| collection.doc_at(*s)),
            Self::All(rows) => rows.next().map(|(_, row)| &row.doc),
        })
    }
}

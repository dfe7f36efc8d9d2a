//! Queries: filter, sort, skip, limit, projection.

use std::ops::ControlFlow;

use hashbrown::HashSet;
use tidemill_types::Value;

use crate::DocBytes;
use crate::collection::Collection;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::{Comparison, Filter};
use crate::key::Key;
use crate::path::Path;
use crate::path_values::{LeafArray, any_value};
use crate::plan::{AccessPath, IndexEntries, KeyRange, Plan, can_answer_equality, plan};
use crate::projection::Projection;
use crate::raw::OwnedRawValue;
use crate::rows::{RowIndex, RowIter};
use crate::sort::SortOrder;

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
}

/// Bytes charged for a document being sorted, besides its key.
const SORT_ENTRY_BYTES: usize = 48;

impl Collection {
    /// Returns the documents that match. Without a projection they are shared, not copied.
    ///
    /// Bounds: a sort that no index provides holds keys of up to `sort_bytes_max`; with a limit, those of
    /// about twice `skip + limit` documents. Errors: `LimitReached` when that is not enough.
    pub fn find(&self, filter: &Filter, options: &FindOptions) -> Result<Vec<DocBytes>> {
        let slots = self.find_slots(filter, options)?;
        let docs = slots.into_iter().filter_map(|slot| self.doc_at(slot));
        Ok(match &options.projection {
            None => docs.cloned().collect(),
            Some(projection) => docs.map(|doc| projection.apply_bytes(doc)).collect(),
        })
    }

    /// Returns the number of documents that match.
    pub fn count(&self, filter: &Filter) -> u64 {
        if filter.is_all() {
            return self.len() as u64;
        }
        let mut count = 0;
        self.visit(&plan(self, filter, &SortOrder::default()), filter, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
    }

    /// Returns the plan that [`Self::find`] would use.
    pub fn explain(&self, filter: &Filter, sort: &SortOrder) -> Plan {
        plan(self, filter, sort)
    }

    /// Returns the rows of the documents that match, in the order of the plan, at most `max`.
    pub(crate) fn matching(&self, filter: &Filter, max: usize) -> Result<Vec<RowIndex>> {
        let options = FindOptions { limit: u64::try_from(max).ok(), ..FindOptions::default() };
        self.find_slots(filter, &options)
    }

    pub(crate) fn find_slots(&self, filter: &Filter, options: &FindOptions) -> Result<Vec<RowIndex>> {
        let plan = plan(self, filter, &options.sort);
        let skip = usize::try_from(options.skip).unwrap_or(usize::MAX);
        let limit = options.limit.map_or(usize::MAX, |l| usize::try_from(l).unwrap_or(usize::MAX));
        if limit == 0 {
            return Ok(Vec::new());
        }
        if !plan.sorted {
            return self.find_sorted(&plan, filter, &options.sort, skip, limit);
        }
        let (mut passed, mut slots) = (0, Vec::new());
        self.visit(&plan, filter, |slot, _| {
            passed += 1;
            if passed > skip {
                slots.push(slot);
            }
            if slots.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        Ok(slots)
    }

    /// Sorts in memory; with a limit, documents that can no longer be among the first are dropped on the way.
    fn find_sorted(
        &self,
        plan: &Plan,
        filter: &Filter,
        sort: &SortOrder,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<RowIndex>> {
        let wanted = skip.saturating_add(limit);
        let trim_at = wanted.saturating_mul(2).max(64);
        let mut found: Vec<(Key, RowIndex)> = Vec::new();
        let mut bytes = 0;
        let mut error = None;
        self.visit(plan, filter, |slot, doc| {
            let key = sort.key(doc);
            bytes += SORT_ENTRY_BYTES + key.heap_bytes();
            found.push((key, slot));
            if found.len() >= trim_at {
                found.select_nth_unstable(wanted);
                found.truncate(wanted);
                bytes = found.iter().map(|(k, _)| SORT_ENTRY_BYTES + k.heap_bytes()).sum();
            }
            if bytes > self.limits.sort_bytes_max {
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
        });
        if let Some(error) = error {
            return Err(error);
        }
        // documents with equal keys stay in order of insertion
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, slot)| slot).skip(skip).take(limit).collect())
    }

    /// Calls `each` once for every document that matches, until it breaks.
    fn visit(
        &self,
        plan: &Plan,
        filter: &Filter,
        mut each: impl FnMut(RowIndex, &DocBytes) -> ControlFlow<()>,
    ) {
        let mut check_doc = |slot: RowIndex, doc: &DocBytes| {
            if filter.matches_bytes(doc) { each(slot, doc) } else { ControlFlow::Continue(()) }
        };
        if let AccessPath::Scan = plan.access {
            let _ = self.rows.iter().try_for_each(|(slot, row)| check_doc(slot, &row.doc));
            return;
        }
        let mut check =
            |slot: RowIndex| self.doc_at(slot).map_or(ControlFlow::Continue(()), |doc| check_doc(slot, doc));
        let _ = match &plan.access {
            AccessPath::Scan => ControlFlow::Continue(()),
            AccessPath::Ids(keys) => keys.iter().filter_map(|key| self.slot(key)).try_for_each(check),
            AccessPath::Index { index, ranges, reverse } => {
                let index = &self.indexes[*index];
                let mut seen = HashSet::new();
                let mut once = |(_, slot): &(Key, RowIndex)| {
                    if index.multikey() && !seen.insert(*slot) {
                        ControlFlow::Continue(())
                    } else {
                        check(*slot)
                    }
                };
                if *reverse {
                    ranges.iter().rev().try_for_each(|r| r.entries(index).rev().try_for_each(&mut once))
                } else {
                    ranges.iter().try_for_each(|r| r.entries(index).try_for_each(&mut once))
                }
            }
        };
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

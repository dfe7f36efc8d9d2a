//! Documents that a query has found in one partition, and their merge with those of others.

use std::cmp::Ordering;

use crate::DocBytes;
use crate::collection::Collection;
use crate::direction::Direction;
use crate::rows::RowIndex;
use crate::sequence::Sequence;
use crate::sort::SortOrder;
use crate::values::key::Key;
use crate::values::order::cmp_ids;

/// Documents that a query has found, to be read one after the other.
pub struct FoundDocuments<'c> {
    collection: &'c Collection,
    slots: Vec<RowIndex>,
    order: FoundOrder,
}

/// The order in which a query has found documents. Those that it calls equal are in order of insertion.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FoundOrder {
    /// Of insertion, or the reverse of it.
    Natural(Direction),
    /// That of a sort, or of the index that was read.
    By(SortOrder),
}

impl<'c> FoundDocuments<'c> {
    pub(crate) fn new(collection: &'c Collection, slots: Vec<RowIndex>, order: FoundOrder) -> Self {
        Self { collection, slots, order }
    }

    /// Returns the rows of the documents.
    pub(crate) fn slots(&self) -> &[RowIndex] {
        &self.slots
    }

    /// Iterates over the documents.
    pub fn iter(&self) -> impl Iterator<Item = &'c DocBytes> + use<'_, 'c> {
        self.slots.iter().filter_map(|slot| self.collection.doc_at(*slot))
    }

    /// Iterates over the documents with the time at which each was inserted.
    pub fn with_sequences(&self) -> impl Iterator<Item = (Sequence, &'c DocBytes)> + use<'_, 'c> {
        let rows = self.slots.iter().filter_map(|slot| self.collection.rows.get(*slot));
        rows.map(|row| (row.sequence, &row.doc))
    }

    fn ranked<'f>(&'f self, order: &'f FoundOrder) -> impl Iterator<Item = RankedDocument<'c>> + use<'f, 'c> {
        let rows = self.slots.iter().filter_map(|slot| self.collection.rows.get(*slot));
        rows.map(|row| RankedDocument {
            key: match order {
                FoundOrder::Natural(_) => None,
                FoundOrder::By(sort) => Some(sort.key(&row.doc)),
            },
            sequence: row.sequence,
            document: &row.doc,
        })
    }
}

struct RankedDocument<'c> {
    key: Option<Key>,
    sequence: Sequence,
    document: &'c DocBytes,
}

impl RankedDocument<'_> {
    /// Compares documents of different partitions. Those of one moment are in the order of their `_id`.
    fn compare(&self, other: &Self, order: &FoundOrder) -> Ordering {
        let inserted =
            || self.sequence.cmp(&other.sequence).then_with(|| cmp_ids(self.document, other.document));
        match order {
            FoundOrder::Natural(Direction::Descending) => inserted().reverse(),
            _ => self.key.cmp(&other.key).then_with(inserted),
        }
    }
}

/// Merges what the partitions of a collection have found by the same query: in its order, and otherwise in the order of
/// insertion. If the partitions have found their documents in different orders, as one of them has used an index, the one that was inserted first
/// of those that are next goes first.
pub fn merge_found<'f, 'c>(
    parts: &'f [FoundDocuments<'c>],
) -> impl Iterator<Item = &'c DocBytes> + use<'f, 'c> {
    merge_parts(parts).map(|(_, document)| document)
}

/// Returns how many documents of each part precede the first of those at the places `wanted`, including it;
/// `None` if no such place is reached.
pub(crate) fn counts_up_to_first(parts: &[FoundDocuments<'_>], wanted: &[Option<usize>]) -> Option<Vec<u64>> {
    if wanted.iter().all(Option::is_none) {
        return None;
    }
    let mut counts = vec![0; parts.len()];
    for (part, _) in merge_parts(parts) {
        counts[part] += 1;
        if wanted[part].is_some_and(|place| place as u64 + 1 == counts[part]) {
            return Some(counts);
        }
    }
    None
}

/// Merges as [`merge_found`] does. Returns the documents with the number of their part.
fn merge_parts<'f, 'c>(
    parts: &'f [FoundDocuments<'c>],
) -> impl Iterator<Item = (usize, &'c DocBytes)> + use<'f, 'c> {
    const NATURAL: FoundOrder = FoundOrder::Natural(Direction::Ascending);
    let order = match parts {
        [first, others @ ..] if others.iter().all(|other| other.order == first.order) => &first.order,
        _ => &NATURAL,
    };
    let ranked = parts.iter().map(move |part| part.ranked(order)).enumerate();
    let mut next: Vec<_> = ranked.filter_map(|(at, mut part)| Some((part.next()?, part, at))).collect();
    std::iter::from_fn(move || {
        let first = (1..next.len())
            .fold(0, |first, at| if next[at].0.compare(&next[first].0, order).is_lt() { at } else { first });
        let (document, rest, part) = next.get_mut(first)?;
        let part = *part;
        match rest.next() {
            Some(following) => Some((part, std::mem::replace(document, following).document)),
            None => Some((part, next.remove(first).0.document)),
        }
    })
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};
    use tidemill_types::Timestamp;

    use super::*;
    use crate::{CollectionSpec, Filter, FindOptions, Store, StoreLimits};

    /// Returns a store with these documents: `_id` and time of their record.
    fn store(documents: &[(&str, i64)]) -> Store {
        let mut store = Store::new(StoreLimits::default());
        store.create_collection(&CollectionSpec::new("c")).unwrap();
        for (record, (id, time)) in (0..).zip(documents) {
            store.set_record(record, Timestamp(*time));
            let document = bson::serialize_to_vec(&doc! { "_id": id, "n": 1 }).unwrap();
            store.collection_mut("c").unwrap().insert(document.into()).unwrap();
        }
        store
    }

    fn merged(stores: &[Store], options: &FindOptions) -> Vec<String> {
        let parts = stores.iter().map(|store| store.collection("c").unwrap());
        let parts: Vec<_> = parts.map(|part| part.find_places(&Filter::all(), options).unwrap()).collect();
        let id = |document: &DocBytes| {
            let document: bson::Document = bson::deserialize_from_slice(document).unwrap();
            document.get("_id").and_then(Bson::as_str).unwrap().to_owned()
        };
        merge_found(&parts).map(id).collect()
    }

    #[test]
    fn documents_without_a_sequence_come_first_as_they_did() {
        let stores = [
            store(&[("c", 0), ("a", 0), ("z", 7), ("b", 9)]),
            store(&[("d", 0), ("e", 0), ("y", 8)]),
            store(&[("x", 6), ("k", 9)]),
        ];
        // the least `_id` of those that are next, and after them by time
        let expected = ["c", "a", "d", "e", "x", "z", "y", "b", "k"];
        assert_eq!(merged(&stores, &FindOptions::default()), expected);
        let sort = SortOrder::default().then("n", Direction::Ascending);
        assert_eq!(merged(&stores, &FindOptions { sort, ..FindOptions::default() }), expected);
        let natural = Some(Direction::Descending);
        let backward = merged(&stores, &FindOptions { natural, ..FindOptions::default() });
        assert_eq!(backward[..5], ["k", "b", "y", "z", "x"]);
        assert_eq!(backward.len(), 9);
    }

    fn found_all(collection: &Collection) -> FoundDocuments<'_> {
        collection.find_places(&Filter::all(), &FindOptions::default()).unwrap()
    }

    #[test]
    fn an_order_counts_documents_up_to_the_first_that_is_wanted() {
        let stores = [store(&[("a", 1), ("b", 4), ("c", 5)]), store(&[("d", 2), ("e", 3), ("f", 6)])];
        let parts: Vec<_> = stores.iter().map(|store| found_all(store.collection("c").unwrap())).collect();
        assert_eq!(counts_up_to_first(&parts, &[Some(1), Some(2)]), Some(vec![2, 2]));
        assert_eq!(counts_up_to_first(&parts, &[None, Some(0)]), Some(vec![1, 1]));
        assert_eq!(counts_up_to_first(&parts, &[None, None]), None);
    }
}

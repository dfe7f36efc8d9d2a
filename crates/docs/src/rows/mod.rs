//! The rows of a collection: documents in order of insertion, and their index by `_id`.

mod id_index;

use crate::DocBytes;
use crate::page_tree::PageTree;
use crate::sequence::Sequence;
use crate::values::key::Key;
use id_index::IdIndex;

/// Index of a document's row in its collection.
pub(crate) type RowIndex = u32;

/// Rows of one page. Fewer make the copy of a page cheaper, more make a scan cheaper.
const PAGE_ROWS: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct StoredDocument {
    pub key: Key,
    pub doc: DocBytes,
    /// When it was inserted.
    pub sequence: Sequence,
}

/// A row; `None` where the document was deleted.
type Row = Option<StoredDocument>;

/// The documents of a collection. A clone shares all of them and costs a few reference counts.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pages: PageTree<[Row; PAGE_ROWS]>,
    /// Number of rows, with those of deleted documents.
    len: usize,
    /// All rows before this one are empty.
    oldest: usize,
    by_id: IdIndex,
    /// The latest sequence of all rows that there were.
    newest: Sequence,
    /// True if each row was inserted after those before it.
    in_order: bool,
}

impl Rows {
    pub fn new() -> Self {
        Self {
            pages: PageTree::new(),
            len: 0,
            oldest: 0,
            by_id: IdIndex::new(),
            newest: Sequence::default(),
            in_order: true,
        }
    }

    /// Returns no rows, behind those that were there.
    pub fn emptied(&self) -> Self {
        Self { newest: self.newest, ..Self::new() }
    }

    /// Returns the latest sequence that a row has had.
    pub fn newest(&self) -> Sequence {
        self.newest
    }

    /// Says which sequence was the latest, also if its document is gone.
    pub fn raise_newest(&mut self, newest: Sequence) {
        self.newest = newest.max(self.newest);
    }

    /// Returns whether each row was inserted after those before it, which is so unless documents of another partition have come.
    pub fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Returns the number of documents.
    pub fn documents(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the number of rows of deleted documents.
    pub fn empty(&self) -> usize {
        self.len - self.by_id.len()
    }

    /// Returns the row of the first document. Takes constant time on average over the deletes before it.
    pub fn oldest(&mut self) -> Option<RowIndex> {
        while self.oldest < self.len {
            let row = RowIndex::try_from(self.oldest).ok()?;
            if self.get(row).is_some() {
                return Some(row);
            }
            self.oldest += 1;
        }
        None
    }

    /// Returns the row of the next insert; `None` if there can be no more.
    pub fn next(&self) -> Option<RowIndex> {
        RowIndex::try_from(self.len).ok().filter(|row| *row < RowIndex::MAX)
    }

    #[inline]
    pub fn get(&self, row: RowIndex) -> Option<&StoredDocument> {
        let row = row as usize;
        self.pages.get(row / PAGE_ROWS)?[row % PAGE_ROWS].as_ref()
    }

    /// Returns the row of the document whose `_id` has this key.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<RowIndex> {
        self.by_id.find(key, |row| self.get(row).is_some_and(|found| found.key == *key))
    }

    /// Returns the document whose `_id` has this key.
    #[inline]
    pub fn find_document(&self, key: &Key) -> Option<&DocBytes> {
        let mut found = None;
        self.by_id.find(key, |row| {
            found = self.get(row).filter(|found| found.key == *key);
            found.is_some()
        });
        found.map(|found| &found.doc)
    }

    /// Adds a document whose `_id` is not there yet, in the row [`Self::next`].
    pub fn push(&mut self, key: Key, doc: DocBytes, sequence: Sequence) {
        let (page, at) = (self.len / PAGE_ROWS, self.len % PAGE_ROWS);
        if page == self.pages.len() {
            self.pages.push([const { None }; PAGE_ROWS]);
        }
        self.by_id.insert(&key, self.len as RowIndex);
        self.len += 1;
        self.in_order &= sequence >= self.newest;
        self.newest = sequence.max(self.newest);
        if let Some(page) = self.pages.get_mut(page) {
            page[at] = Some(StoredDocument { key, doc, sequence });
        }
    }

    /// Replaces the document of a row; its `_id` must be equal.
    pub fn replace(&mut self, row: RowIndex, doc: DocBytes) {
        if let Some(stored) = self.row_mut(row).and_then(Option::as_mut) {
            stored.doc = doc;
        }
    }

    /// Empties a row; the others keep their index. Returns its document.
    pub fn take(&mut self, row: RowIndex) -> Option<DocBytes> {
        let stored = self.row_mut(row)?.take()?;
        self.by_id.remove(&stored.key, row);
        Some(stored.doc)
    }

    fn row_mut(&mut self, row: RowIndex) -> Option<&mut Row> {
        let row = row as usize;
        self.pages.get_mut(row / PAGE_ROWS).map(|page| &mut page[row % PAGE_ROWS])
    }

    /// Removes the empty rows. Returns by old row the new one; the documents keep their order.
    pub fn compact(&mut self) -> Vec<RowIndex> {
        let (compacted, new) = self.copied(self.iter());
        *self = compacted;
        new
    }

    /// Puts the rows into the order in which their documents were inserted, and removes the empty ones. Returns by old row the new one.
    pub fn put_in_order(&mut self) -> Vec<RowIndex> {
        let mut sorted: Vec<_> = self.iter().collect();
        sorted.sort_by_key(|(_, stored)| stored.sequence);
        let (ordered, new) = self.copied(sorted.into_iter());
        *self = ordered;
        new
    }

    fn copied<'r>(
        &self,
        rows: impl Iterator<Item = (RowIndex, &'r StoredDocument)>,
    ) -> (Self, Vec<RowIndex>) {
        let mut new = vec![RowIndex::MAX; self.len];
        let mut copied = Self { by_id: self.by_id.emptied(), ..Self::new() };
        for (old, stored) in rows {
            new[old as usize] = copied.len as RowIndex;
            copied.push(stored.key.clone(), stored.doc.clone(), stored.sequence);
        }
        copied.newest = self.newest;
        (copied, new)
    }

    /// Iterates over rows and documents in order of insertion.
    pub fn iter(&self) -> RowIter<'_> {
        self.iter_from(0)
    }

    /// Iterates as [`Self::iter`] does, from the last row to the first.
    pub fn iter_backward(&self) -> impl Iterator<Item = (RowIndex, &StoredDocument)> {
        (0..self.len as RowIndex).rev().filter_map(|row| Some((row, self.get(row)?)))
    }

    /// Iterates as [`Self::iter`] does, from a row on.
    pub fn iter_from(&self, row: RowIndex) -> RowIter<'_> {
        let row = row as usize;
        let begun = self.pages.get(row / PAGE_ROWS).filter(|_| !row.is_multiple_of(PAGE_ROWS));
        let page = begun.map_or([].iter(), |page| page[row % PAGE_ROWS..].iter());
        RowIter { rows: self, page, next: row }
    }
}

/// Iterator over the documents of a collection, with their rows.
pub(crate) struct RowIter<'a> {
    rows: &'a Rows,
    page: std::slice::Iter<'a, Row>,
    /// Index of the next row of `page`, or of the first row of the next page.
    next: usize,
}

impl<'a> Iterator for RowIter<'a> {
    type Item = (RowIndex, &'a StoredDocument);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for row in self.page.by_ref() {
                self.next += 1;
                if let Some(stored) = row {
                    return Some((self.next as RowIndex - 1, stored));
                }
            }
            self.page = self.rows.pages.get(self.next / PAGE_ROWS)?.iter();
        }
    }
}

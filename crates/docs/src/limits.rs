//! Size limits of a store.

/// Limits of one store. The defaults are those of MongoDB where MongoDB has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLimits {
    /// Bytes of one document; also of the largest operand of an update.
    pub document_bytes_max: usize,
    /// Nesting depth of documents and arrays; the outermost counts as 1.
    pub depth_max: usize,
    /// Bytes of all documents of the store, with their rows and index entries.
    pub store_bytes_max: u64,
    /// Number of collections of the store.
    pub collections_max: usize,
    /// Number of indexes of one collection besides `_id`.
    pub indexes_max: usize,
    /// Bytes of keys and handles that one sort may hold.
    pub sort_bytes_max: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            // clients send up to 16 MiB, and operators may make a document a bit larger
            document_bytes_max: (16 << 20) + (16 << 10),
            depth_max: 100,
            store_bytes_max: 4 << 30,
            collections_max: 10_000,
            indexes_max: 64,
            sort_bytes_max: 100 << 20,
        }
    }
}

/// Operators, branches and values of one filter, update, sort or projection.
pub(crate) const CLAUSES_MAX: usize = 100_000;
/// Bytes of all values that one expression may make for one document, which takes half a second. A step without a large value
/// counts as 64.
pub(crate) const EXPRESSION_WORK_MAX: usize = 256 << 20;
/// Bytes of one compiled regular expression.
pub(crate) const REGEX_BYTES_MAX: usize = 1 << 20;
/// Bytes of a text that a regular expression looks at that looks around or refers to its groups.
pub(crate) const REGEX_TEXT_BYTES_MAX: usize = (64 << 10) - 1;
/// Nulls that an update may put before an array element that it creates.
pub(crate) const ARRAY_PAD_MAX: usize = 1_500_000;
/// Fields of one compound index.
pub(crate) const INDEX_FIELDS_MAX: usize = 32;
/// Entries of one document in one multikey index.
pub(crate) const INDEX_KEYS_PER_DOCUMENT_MAX: usize = 100_000;
/// Vertices of one geometry.
pub(crate) const GEO_VERTICES_MAX: usize = 100_000;

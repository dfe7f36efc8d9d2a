//! Stacks on which a deep tree can be planned, run and dropped.
//!
//! DataFusion's own protection grows the stack in the functions that it knows to recurse; dropping, comparing,
//! printing and evaluating a deep tree recurse without it. Memory for a stack is reserved, but taken only as it is
//! used: threads that run ordinary queries use a few hundred KiB.

/// The stack of a query thread: enough for a tree of [`crate::tree::LEVELS_MAX`] levels.
pub(crate) const THREAD_BYTES: usize = if cfg!(debug_assertions) { 128 << 20 } else { 32 << 20 };

/// Stack that parsing may take per byte of text. A chain of operators makes the deepest tree per byte, a level for
/// every two; until it is known to be too deep it has to be walked and dropped.
const PARSED_BYTES: usize = if cfg!(debug_assertions) { 1024 } else { 256 };

/// Runs `parse` on a stack that is large enough for any tree that `text` can make.
pub(crate) fn parsing<T>(text: &str, parse: impl FnOnce() -> T) -> T {
    let bytes = (4 << 20) + text.len() * PARSED_BYTES;
    stacker::maybe_grow(bytes, bytes, parse)
}

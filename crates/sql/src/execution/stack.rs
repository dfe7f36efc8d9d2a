//! Stack sizes for planning, running and dropping deep trees.
//!
//! DataFusion grows the stack in the functions that it knows to recurse; dropping, comparing, printing and
//! evaluating a deep tree recurse without that. Stack memory is reserved but committed only as it is used:
//! threads that run ordinary queries use a few hundred KiB.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tidemill_types::{Error, Result};

/// Stack of a query thread, in bytes: enough for a tree of [`crate::tree::LEVELS_MAX`] levels.
pub(crate) const THREAD_BYTES: usize = if cfg!(debug_assertions) { 128 << 20 } else { 32 << 20 };

/// Stack that parsing may take per byte of text. A chain of operators makes the deepest tree per byte: one
/// level for every two bytes. The tree has to be walked and dropped before its depth is known.
const PARSED_BYTES: usize = if cfg!(debug_assertions) { 1024 } else { 256 };

/// Runs `parse` on a stack that is large enough for any tree that `text` can produce.
///
/// Errors: `LimitReached` if the process has no address space for that stack.
pub(crate) fn parsing<T>(text: &str, parse: impl FnOnce() -> T) -> Result<T> {
    let bytes = (4 << 20) + text.len() * PARSED_BYTES;
    // a panic outside of `parse` is that of the growth, which has no other way to fail
    let parse = || catch_unwind(AssertUnwindSafe(parse));
    match catch_unwind(AssertUnwindSafe(|| stacker::maybe_grow(bytes, bytes, parse))) {
        Ok(Ok(parsed)) => Ok(parsed),
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => Err(Error::limit(format!(
            "there are no {bytes} bytes of memory for the stack that a query of {} bytes may need: make it shorter",
            text.len()
        ))),
    }
}

/// Runs a step of a query on a thread of a caller, with enough stack for an ordinary plan.
pub(crate) fn executing<T>(step: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(1 << 20, 8 << 20, step)
}

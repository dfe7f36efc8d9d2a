//! Errors inside of tests that only say whether they hold: the first one of a thread is kept until the filter asks for it.

use std::cell::RefCell;

use crate::error::{DocsError, Result};

thread_local! {
    static FAILURE: RefCell<Option<DocsError>> = const { RefCell::new(None) };
}

/// Returns the result of a test. Errors: the first one that a part of it has [noted](note).
pub(super) fn catch(test: impl FnOnce() -> bool) -> Result<bool> {
    let outer = FAILURE.take();
    let holds = test();
    match FAILURE.replace(outer) {
        None => Ok(holds),
        Some(failure) => Err(failure),
    }
}

/// Returns the result of a part of a test. If it fails, notes the error and returns false. After an error,
/// further parts are skipped.
pub(super) fn note(part: impl FnOnce() -> Result<bool>) -> bool {
    if FAILURE.with_borrow(Option::is_some) {
        return false;
    }
    part().unwrap_or_else(|failure| {
        FAILURE.set(Some(failure));
        false
    })
}

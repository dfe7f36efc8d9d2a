//! The moments of a deploy at which a crash would leave different files behind, for tests that look at each.
//!
//! Code that writes says what it is about to do; a test that watches copies the data directory there and opens the
//! copy later, as a start after a crash at that moment would. Only the thread that called [`watch`] is watched: a deploy
//! writes on the thread that asked for it.

use std::cell::RefCell;

type Watcher = Box<dyn FnMut(&str)>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// A crash may come here, before `step`.
pub(crate) fn before(step: impl FnOnce() -> String) {
    WATCHER.with_borrow_mut(|watcher| {
        if let Some(watcher) = watcher {
            watcher(&step());
        }
    });
}

/// Calls `watcher` before every step that `run` takes on this thread.
#[doc(hidden)]
pub fn watch<T>(watcher: impl FnMut(&str) + 'static, run: impl FnOnce() -> T) -> T {
    WATCHER.set(Some(Box::new(watcher)));
    let done = run();
    WATCHER.set(None);
    done
}

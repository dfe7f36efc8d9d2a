//! Allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

impl Counting {
    fn add(bytes: usize) {
        let used = USED.fetch_add(bytes, Ordering::Relaxed) + bytes;
        MOST.fetch_max(used, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the allocator of the system; the counters do not allocate
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: as above
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above
        unsafe { System.dealloc(at, layout) }
    }
}

/// Returns the bytes that are in use.
pub fn used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// Returns the most bytes that were in use at a time since [`start`].
pub fn most() -> usize {
    MOST.load(Ordering::Relaxed)
}

/// Begins to look for the most bytes in use. Returns those that are in use.
pub fn start() -> usize {
    let used = used();
    MOST.store(used, Ordering::Relaxed);
    used
}

//! The allocator of the `tidemill` binary, with counters.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The allocator of the `tidemill` binary, which counts allocations and bytes.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(true);
static CALLS: AtomicUsize = AtomicUsize::new(0);
static ASKED: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn taken(bytes: usize) {
    if ON.load(Ordering::Relaxed) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        ASKED.fetch_add(bytes, Ordering::Relaxed);
        let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

fn given_back(bytes: usize) {
    if ON.load(Ordering::Relaxed) {
        LIVE.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call is forwarded to mimalloc; only counters are added
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: mimalloc requires what the caller guarantees
        unsafe { mimalloc::MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: as above
        unsafe { mimalloc::MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        given_back(layout.size());
        // SAFETY: as above
        unsafe { mimalloc::MiMalloc.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // both blocks exist while one is copied to the other
        taken(size);
        given_back(layout.size());
        // SAFETY: as above
        unsafe { mimalloc::MiMalloc.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `what` without counting, so that the counters only cost a read of a flag.
///
/// Allocations that outlive the call are missing from the counters: figures of live memory are invalid
/// afterwards.
#[allow(dead_code, reason = "each bench uses what it needs")]
pub fn uncounted<T>(what: impl FnOnce() -> T) -> T {
    ON.store(false, Ordering::Relaxed);
    let value = what();
    ON.store(true, Ordering::Relaxed);
    value
}

/// Returns the allocation calls so far, including reallocations, and the bytes requested.
#[allow(dead_code, reason = "each bench uses what it needs")]
pub fn asked() -> (usize, usize) {
    (CALLS.load(Ordering::Relaxed), ASKED.load(Ordering::Relaxed))
}

/// Returns the live bytes.
#[allow(dead_code, reason = "each bench uses what it needs")]
pub fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// Returns the peak of live bytes while `what` runs, and the result of `what`.
#[allow(dead_code, reason = "each bench uses what it needs")]
pub fn peak<T>(what: impl FnOnce() -> T) -> (usize, T) {
    PEAK.store(live(), Ordering::Relaxed);
    let value = what();
    (PEAK.load(Ordering::Relaxed), value)
}

//! The allocator of the program, with counters.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// As in the program, counted.
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

// SAFETY: everything is handed on to mimalloc; what is added are counters
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller's promises are those that mimalloc asks for
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
        // both are there while one is copied to the other
        taken(size);
        given_back(layout.size());
        // SAFETY: as above
        unsafe { mimalloc::MiMalloc.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts nothing while something runs, so that counting costs it a read of a flag.
///
/// What it takes and does not give back is missed afterwards: figures of what is held are of no use from here on.
#[allow(dead_code, reason = "each bench uses what it needs")]
pub fn uncounted<T>(what: impl FnOnce() -> T) -> T {
    ON.store(false, Ordering::Relaxed);
    let value = what();
    ON.store(true, Ordering::Relaxed);
    value
}

/// Calls for memory so far, a growing vector among them, and the bytes they asked for.
#[allow(dead_code, reason = "each bench uses what it needs")]
pub fn asked() -> (usize, usize) {
    (CALLS.load(Ordering::Relaxed), ASKED.load(Ordering::Relaxed))
}

/// Bytes that are held.
#[allow(dead_code, reason = "each bench uses what it needs")]
pub fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// The most bytes that were held while something ran, and what it gave.
#[allow(dead_code, reason = "each bench uses what it needs")]
pub fn peak<T>(what: impl FnOnce() -> T) -> (usize, T) {
    PEAK.store(live(), Ordering::Relaxed);
    let value = what();
    (PEAK.load(Ordering::Relaxed), value)
}

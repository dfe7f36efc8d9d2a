//! Options of the program's allocator.

use std::ffi::c_int;

/// Milliseconds after which the allocator returns freed memory to the system: the option `purge_delay` of mimalloc 3, which the
/// binding does not name.
const PURGE_DELAY: c_int = 15;

/// Makes the allocator return memory to the system as soon as it is freed. By default it keeps it for a second, in which a
/// program that decodes and drops much holds several times what it uses.
pub fn return_memory_at_once() {
    // SAFETY: the call stores a number, which any thread may do at any time
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a release of the allocator numbers its options anew.
    #[test]
    fn the_option_is_the_delay_of_a_second() {
        let delay = || {
            // SAFETY: the call loads a number
            unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) }
        };
        assert_eq!(delay(), 1_000);
        return_memory_at_once();
        assert_eq!(delay(), 0);
    }
}

//! Memory that grows with the data: counted in small parts, reserved of the thread's budget in larger ones.

use bson::Bson;
use tidemill_types::budget::{self, Reservation, Stop};

use crate::DocBytes;

/// Bytes that are reserved at once.
const PART_BYTES: usize = 64 << 10;
/// Bytes of a document besides its own: the handle, and what the allocator and the reference count need.
const DOCUMENT_BYTES: usize = size_of::<DocBytes>() + 48;

/// Memory of the thread's budget that grows item by item. Dropping it gives all of it back.
///
/// ```
/// use tidemill_docs::HeldMemory;
/// use tidemill_types::budget::Budget;
///
/// let budget = Budget::builder().bytes(1 << 20).build();
/// let _entered = budget.enter();
/// let mut held = HeldMemory::default();
/// assert!((0..1_000).try_for_each(|_| held.add(100)).is_ok());
/// assert!(held.add(1 << 20).is_err());
/// ```
#[derive(Debug, Default)]
pub struct HeldMemory {
    reservation: Option<Reservation>,
    /// Bytes that are reserved and not used yet.
    left: usize,
    /// Bytes that are used.
    used: usize,
}

impl HeldMemory {
    /// Counts bytes that are about to be taken.
    ///
    /// Errors: there is not so much left.
    pub fn add(&mut self, bytes: usize) -> Result<(), Stop> {
        if bytes > self.left {
            let more = (bytes - self.left).max(PART_BYTES);
            match &mut self.reservation {
                Some(reservation) => reservation.grow(more)?,
                None => self.reservation = Some(budget::reserve(more)?),
            }
            self.left += more;
        }
        self.left -= bytes;
        self.used += bytes;
        Ok(())
    }

    /// Counts a document that is about to be kept. One that others hold, too, such as a collection, counts as its handle.
    ///
    /// Errors: there is not so much left.
    pub fn add_document(&mut self, document: &DocBytes) -> Result<(), Stop> {
        self.add(document_bytes(document))
    }

    /// Gives back bytes that were counted.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.used);
        self.used -= bytes;
        self.left += bytes;
        if let Some(reservation) = &mut self.reservation
            && self.left > 2 * PART_BYTES
        {
            reservation.shrink(self.left - PART_BYTES);
            self.left = PART_BYTES;
        }
    }

    /// Returns the bytes that are counted.
    pub fn bytes(&self) -> usize {
        self.used
    }
}

/// Returns the bytes for which a document counts that is kept.
pub fn document_bytes(document: &DocBytes) -> usize {
    DOCUMENT_BYTES + if document.is_unique() { document.len() } else { 0 }
}

/// Returns the bytes of a value in memory.
pub fn value_bytes(value: &Bson) -> usize {
    size_of::<Bson>() + owned_bytes(value)
}

/// Returns the bytes of a value besides those of its own place.
fn owned_bytes(value: &Bson) -> usize {
    match value {
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => text.len(),
        Bson::Binary(binary) => binary.bytes.len(),
        Bson::Array(elements) => elements.iter().map(value_bytes).sum(),
        // a field has its name, its value and a place in the index of names
        Bson::Document(document) => document
            .iter()
            .map(|(name, value)| name.len() + size_of::<(String, usize)>() + value_bytes(value))
            .sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::budget::Budget;

    #[test]
    fn memory_is_given_back_as_it_is_used() {
        let budget = Budget::builder().bytes(1 << 20).build();
        let entered = budget.enter();
        let mut held = HeldMemory::default();
        for _ in 0..100 {
            held.add(900 << 10).unwrap();
            held.give_back(900 << 10);
        }
        assert_eq!(held.bytes(), 0);
        held.add(900 << 10).unwrap();
        assert_eq!(held.add(900 << 10), Err(Stop::Bytes(1 << 20)));
        drop(held);
        drop(entered);
        assert_eq!(budget.bytes_held(), 0);
    }

    #[test]
    fn a_document_that_others_hold_counts_as_its_handle() {
        let own = DocBytes::from(vec![0; 1000]);
        assert!(document_bytes(&own) > 1000);
        let other = own.clone();
        assert!(document_bytes(&other) < 1000);
    }
}

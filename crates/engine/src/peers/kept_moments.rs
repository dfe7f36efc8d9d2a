//! Moments of documents that an owner keeps for readers on other nodes.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tidemill_docs::StoreSnapshot;
use tidemill_types::{Error, Result};
use uuid::Uuid;

/// Time after which a moment that is not used is dropped.
const UNUSED_MAX: Duration = Duration::from_secs(120);
/// Moments that are kept at most. The one that was not used for the longest time goes first.
const MOMENTS_MAX: usize = 10_000;

/// Kept moments by number.
#[derive(Default)]
pub struct KeptMoments(Mutex<HashMap<u64, KeptMoment>>);

struct KeptMoment {
    documents: StoreSnapshot,
    used: Duration,
}

impl KeptMoments {
    /// Keeps a moment, at `now` on the clock of the process. Returns its number, which cannot be guessed.
    pub fn keep(&self, documents: StoreSnapshot, now: Duration) -> u64 {
        let mut moments = self.0.lock();
        moments.retain(|_, moment| now.saturating_sub(moment.used) < UNUSED_MAX);
        if moments.len() >= MOMENTS_MAX
            && let Some(oldest) =
                moments.iter().min_by_key(|(_, moment)| moment.used).map(|(number, _)| *number)
        {
            moments.remove(&oldest);
        }
        let number = Uuid::new_v4().as_u64_pair().0;
        moments.insert(number, KeptMoment { documents, used: now });
        number
    }

    /// Returns the documents of a moment.
    ///
    /// Errors: `Unavailable` if it is not kept any more.
    pub fn get(&self, number: u64, now: Duration) -> Result<StoreSnapshot> {
        let mut moments = self.0.lock();
        let moment = moments.get_mut(&number).ok_or_else(|| {
            Error::unavailable(format!(
                "the documents of this moment are not kept any more, as they were not read for {} s, or their node was started again: read \
                 them again",
                UNUSED_MAX.as_secs()
            ))
        })?;
        moment.used = now;
        Ok(moment.documents.clone())
    }

    /// Drops moments that their readers do not need any more.
    pub fn release(&self, numbers: &[u64]) {
        let mut moments = self.0.lock();
        numbers.iter().for_each(|number| _ = moments.remove(number));
    }
}

#[cfg(test)]
mod tests {
    use tidemill_docs::{Store, StoreLimits};

    use super::*;

    #[test]
    fn a_moment_is_kept_while_it_is_used_and_until_it_is_released() {
        let moments = KeptMoments::default();
        let documents = || Store::new(StoreLimits::default()).snapshot();
        let (a, b) = (moments.keep(documents(), Duration::ZERO), moments.keep(documents(), Duration::ZERO));
        let later = UNUSED_MAX - Duration::from_secs(1);
        assert!(moments.get(a, later).is_ok());
        // another one that is kept lets the unused go
        let c = moments.keep(documents(), UNUSED_MAX);
        assert!(moments.get(a, UNUSED_MAX).is_ok());
        assert!(moments.get(b, UNUSED_MAX).is_err());
        moments.release(&[a, c]);
        assert!(moments.get(a, UNUSED_MAX).is_err());
        assert!(moments.0.lock().is_empty());
    }
}

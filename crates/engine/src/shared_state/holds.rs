//! Holds: while one is there, owners remove nothing that they have published, and do not cut the log below it.
//!
//! ```text
//! s3://bucket/tidemill/state/
//!   holds/65f1a2b3c4d5e6f708192a3b-0000000004        a backup copies the state; the fourth name of its hold
//! ```
//!
//! The holder gives its hold another name from time to time, so one that was interrupted is noticed without clocks of several machines: an
//! owner ignores and removes a name that it has seen for [`EXPIRES_AFTER`]. A hold saves work and decides nothing: its holder finds out when
//! something was removed all the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidemill_types::Result;
use tidemill_zones::ObjectDirectory;

/// Directory of the holds, below the state.
const DIRECTORY: &str = "holds";
/// Time after which a name does not count any more.
pub const EXPIRES_AFTER: Duration = Duration::from_secs(180);

/// Returns the file of a hold.
pub(super) fn hold_file(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

/// The holds as an owner sees them.
#[derive(Default)]
pub(super) struct Holds {
    /// Names, each with the time at which it was first seen.
    seen: Mutex<BTreeMap<String, Duration>>,
    are_there: AtomicBool,
}

impl Holds {
    /// Returns whether there were holds at the last look.
    pub fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Acquire)
    }

    /// Looks for holds, at the time `now` of a clock of this machine. Returns whether there are any.
    ///
    /// Errors: `Unavailable` when the store does not answer; what was seen before counts then.
    pub async fn look(&self, objects: &ObjectDirectory, now: Duration) -> Result<bool> {
        let names = objects.list(DIRECTORY).await?;
        let (live, expired) = self.sort(names, now);
        for name in expired {
            objects.remove(&name).await?;
        }
        self.are_there.store(live, Ordering::Release);
        Ok(live)
    }

    /// Notes the names that are there. Returns whether one of them counts, and those that have expired.
    fn sort(&self, names: Vec<String>, now: Duration) -> (bool, Vec<String>) {
        let mut seen = self.seen.lock();
        seen.retain(|name, _| names.contains(name));
        let is_expired =
            |name: &String| now.saturating_sub(*seen.entry(name.clone()).or_insert(now)) >= EXPIRES_AFTER;
        let (expired, live): (Vec<_>, Vec<_>) = names.into_iter().partition(is_expired);
        (!live.is_empty(), expired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_counts_while_its_name_changes_and_expires_with_one_that_stays() {
        let holds = Holds::default();
        let at = |s: u64| Duration::from_secs(s);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(holds.sort(names(&[]), at(1_000)), (false, names(&[])));
        assert_eq!(holds.sort(names(&["a-1", "b-1"]), at(1_000)), (true, names(&[])));
        assert_eq!(holds.sort(names(&["a-2", "b-1"]), at(1_100)), (true, names(&[])));
        assert_eq!(holds.sort(names(&["a-3", "b-1"]), at(1_180)), (true, names(&["b-1"])));
        assert_eq!(holds.sort(names(&["a-3"]), at(1_359)), (true, names(&[])));
        assert_eq!(holds.sort(names(&["a-3"]), at(1_360)), (false, names(&["a-3"])));
    }
}

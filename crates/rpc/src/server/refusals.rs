//! Log of clients that were refused.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use parking_lot::Mutex;

/// Maximum number of reasons that are remembered.
const REASONS_MAX: usize = 256;

/// Counts of refusals by address and reason. A node that tries again and again should not fill the log, so that a reason is logged at
/// its first, second, fourth, eighth … refusal.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<(IpAddr, String), u64>>);

impl Refusals {
    /// Logs that a client was refused, unless the same was logged before.
    pub fn report(&self, peer: SocketAddr, reason: &str) {
        let refused = self.count(peer.ip(), reason);
        if refused.is_power_of_two() {
            tracing::warn!(%peer, refused, "a client was refused as a node: {reason}");
        }
    }

    fn count(&self, address: IpAddr, reason: &str) -> u64 {
        let mut counts = self.0.lock();
        let key = (address, reason.to_owned());
        if counts.len() >= REASONS_MAX && !counts.contains_key(&key) {
            counts.clear();
        }
        let count = counts.entry(key).or_default();
        *count += 1;
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_their_number_is_bounded() {
        let refusals = Refusals::default();
        let [one, other] = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
        assert_eq!(
            [refusals.count(one, "a"), refusals.count(one, "a"), refusals.count(other, "a")],
            [1, 2, 1]
        );
        for reason in 0..10 * REASONS_MAX {
            refusals.count(one, &reason.to_string());
        }
        assert!(refusals.0.lock().len() <= REASONS_MAX);
    }
}

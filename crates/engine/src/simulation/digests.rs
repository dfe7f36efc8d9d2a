//! Auditor of digests: a record has the same effects each time that an engine applies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_log::Log;
use tidemill_types::{Offset, PartitionId};

use crate::digest::{Digest, DigestObserver, EffectDigests};

/// Digests of all records that the engines of a simulation have applied.
#[derive(Default)]
pub struct DigestAudit(Mutex<SeenDigests>);

#[derive(Default, Clone)]
struct SeenDigests {
    digests: BTreeMap<(PartitionId, Offset), (Digest, &'static str)>,
    /// Records that were applied more than once.
    repeated: u64,
    /// The first difference.
    difference: Option<String>,
}

impl DigestAudit {
    /// Returns what the environment of an engine needs for this auditor to see it.
    pub fn observing(self: &Arc<Self>) -> EffectDigests {
        EffectDigests::Observed(self.clone())
    }

    /// Returns an auditor that knows what this one does, for a copy of its engine.
    pub fn fork(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }

    /// Forgets the records that a log has lost: others take their offsets.
    pub fn forget_lost(&self, log: &dyn Log) {
        let digests = &mut self.0.lock().digests;
        digests.retain(|(partition, offset), _| *offset < log.end(*partition));
    }

    /// Returns how many records were applied more than once.
    ///
    /// Errors: the first record that had other effects the second time.
    pub fn check(&self) -> Result<u64, String> {
        let SeenDigests { repeated, difference, .. } = &*self.0.lock();
        difference.clone().map_or(Ok(*repeated), Err)
    }
}

impl DigestObserver for DigestAudit {
    fn applied(&self, partition: PartitionId, offset: Offset, kind: &'static str, digest: Digest) {
        let SeenDigests { digests, repeated, difference } = &mut *self.0.lock();
        let Some((known, _)) = digests.get(&(partition, offset)) else {
            digests.insert((partition, offset), (digest, kind));
            return;
        };
        *repeated += 1;
        if *known != digest {
            difference.get_or_insert_with(|| {
                format!(
                    "partition {partition}, record {offset} ({kind}): its effects have the digest {digest} (from {}), and had {known} \
                     (from {}) before",
                    digest.since, known.since
                )
            });
        }
    }
}

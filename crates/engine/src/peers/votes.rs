//! Votes of partitions of other nodes on transactions.

use tidemill_types::PartitionId;

use super::message::{CallKind, decode, encode};
use super::{ASK_TIMEOUT, PeerNodes};
use crate::commit::{SharedCommit, VoteElsewhere};
use crate::host::VotesElsewhere;

impl VotesElsewhere for PeerNodes {
    fn ask(&self, commit: &SharedCommit) {
        let (Ok(node), Ok(this)) = (self.node(), self.this()) else { return };
        let missing = node.host.commits.without_vote(commit);
        for partition in missing.into_iter().filter(|id| !node.has_replica(*id)) {
            if !self.asking.lock().insert((commit.id, partition)) {
                continue;
            }
            let (this, commit) = (this.clone(), commit.clone());
            self.runtime.spawn(async move {
                // the partition that waits asks again
                if let Err(error) = this.clone().note_vote(&commit, partition).await {
                    tracing::debug!(partition = partition.0, %error, "no vote on a transaction");
                }
                this.asking.lock().remove(&(commit.id, partition));
            });
        }
    }
}

impl PeerNodes {
    async fn note_vote(
        self: std::sync::Arc<Self>,
        commit: &SharedCommit,
        partition: PartitionId,
    ) -> tidemill_types::Result<()> {
        let question = encode(commit, &[])?;
        let (_, reply) = self.clone().ask_owner(partition, CallKind::Vote, question, ASK_TIMEOUT).await?;
        if let Some(vote) = decode::<Option<VoteElsewhere>>(&reply)?.0 {
            self.node()?.host.commits.note_elsewhere(commit, partition, vote);
        }
        Ok(())
    }
}

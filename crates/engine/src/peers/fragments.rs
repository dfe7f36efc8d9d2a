//! Fragments of statements, which nodes execute for each other. What they are, SQL knows: here they are bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tidemill_rpc::{CallError, CallRequest, Reply};
use tidemill_types::{Error, PartitionId, Result};

use super::PeerNodes;
use super::message::CallKind;

/// Executes a fragment at this node. Dropping the stream of its replies ends the work.
pub type FragmentRunner = Arc<dyn Fn(Bytes) -> BoxStream<'static, Result<Bytes>> + Send + Sync>;

/// Fragments are about no partition.
const NO_PARTITION: PartitionId = PartitionId(0);

impl PeerNodes {
    /// Returns the name of this node.
    pub fn own_name(&self) -> &str {
        self.cluster.name()
    }

    /// Returns the names of the other members that can be called.
    pub fn other_names(&self) -> Vec<String> {
        self.cluster.callable_members().into_iter().map(|(name, _)| name).collect()
    }

    /// Sets what executes the fragments of other nodes.
    pub fn answer_fragments(&self, runner: FragmentRunner) {
        self.answers.set_fragment_runner(runner);
    }

    /// Has another node execute a fragment, and returns the replies as they come. Dropping the stream ends the work there.
    ///
    /// Errors: in the stream: those of the node; `Unavailable` for a node that has left, cannot be reached, does not begin in time, or is lost.
    pub fn run_fragment(
        &self,
        node: &str,
        fragment: Bytes,
        begin_timeout: Duration,
    ) -> BoxStream<'static, Result<Bytes>> {
        let member = self.cluster.callable_members().into_iter().find(|(name, _)| name == node);
        let client = match member {
            Some((_, calls)) => self.peers.client(node, &calls),
            None => Err(Error::unavailable(format!("node {node} has left the cluster"))),
        };
        let replies = async move {
            let request = CallRequest {
                kind: CallKind::Fragment as u16,
                partition: NO_PARTITION,
                epoch: 0,
                timeout: begin_timeout,
                payload: fragment,
            };
            Ok::<_, Error>(client?.stream(request).await.map_err(lost)?.map_err(lost))
        };
        let payload = |reply| match reply {
            Reply::Payload(payload) => Ok(payload),
            Reply::NotOwner { .. } => {
                Err(Error::internal("a node has answered a fragment as one of a partition"))
            }
        };
        stream::once(replies).try_flatten().map(move |reply| reply.and_then(payload)).boxed()
    }
}

/// Returns the error of a call. Whatever the reason, a node that has not answered is unavailable.
fn lost(error: CallError) -> Error {
    match error {
        CallError::Answered(error) => error,
        CallError::NotSent(error) | CallError::Unanswered(error) => Error::unavailable(error.to_string()),
    }
}

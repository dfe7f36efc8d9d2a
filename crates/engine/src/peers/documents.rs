//! Documents of a moment that another node keeps.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::Receiver;
use tidemill_docs::{DocBytes, Filter, Sequence};
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::message::{CallKind, FetchHead, KeptHead, decode, encode, read_documents};
use super::{ATTEMPT_TIMEOUT, Answer, PeerNodes, stopping};
use crate::cluster::OwnerAddress;
use crate::document_parts::part::{
    DocumentsElsewhere, DocumentsPart, KeptDocuments, PlaceOfDocuments, WantedDocuments,
};

/// Asks the owner of a partition to keep the present moment, after the records below `end`.
///
/// Errors: `Unavailable` when this node stops.
pub fn begin_keep(
    peers: &Arc<PeerNodes>,
    partition: PartitionId,
    end: Offset,
) -> Result<Receiver<Result<Answer>>> {
    let owner = peers.cluster.owner_of(partition).map(|owner| owner.node);
    let released = owner.and_then(|node| peers.released.lock().remove(&node)).unwrap_or_default();
    peers.begin_ask(partition, CallKind::Keep, encode(&(end, released), &[])?)
}

/// Returns the moment that was asked for.
///
/// Errors: those of the owner; `Unavailable` if none answers.
pub fn end_keep(
    peers: &Arc<PeerNodes>,
    partition: PartitionId,
    kept: Receiver<Result<Answer>>,
) -> Result<DocumentsPart> {
    let (node, reply) = kept.recv().map_err(|_| stopping())??;
    let (KeptHead { moment, next, shared_commits }, _) = decode(&reply)?;
    let kept = KeptMoment { peers: peers.clone(), node, partition, moment };
    Ok(DocumentsPart {
        next,
        shared_commits,
        place: PlaceOfDocuments::There(DocumentsElsewhere::new(Arc::new(kept))),
    })
}

/// A moment that another node keeps until this is dropped.
struct KeptMoment {
    peers: Arc<PeerNodes>,
    node: OwnerAddress,
    partition: PartitionId,
    moment: u64,
}

impl Drop for KeptMoment {
    fn drop(&mut self) {
        // the next call tells it
        self.peers.released.lock().entry(self.node.node.clone()).or_default().push(self.moment);
    }
}

impl KeptMoment {
    fn question(&self, collection: &str, wanted: &WantedDocuments<'_>) -> Result<Bytes> {
        let filter = wanted.filter.and_then(Filter::source);
        let sort = wanted.sort.and_then(|sort| Some((sort.document()?, sort.collation())));
        // without the conditions, the first ones would be others
        let has_filter = wanted.filter.is_none_or(|given| given.is_all() || filter.is_some());
        let has_sort = wanted.sort.is_none() || sort.is_some();
        let limit = wanted.limit.filter(|_| has_filter && has_sort);
        let mut body = Vec::new();
        let mut put = |document: Option<&[u8]>| {
            let document = document.unwrap_or_default();
            body.extend(document);
            document.len()
        };
        let lengths = [
            put(filter.map(|(document, _)| document.as_bytes())),
            put(filter.and_then(|(_, collation)| collation).map(|collation| collation.document().as_bytes())),
            put(sort.as_ref().map(|(document, _)| document.as_bytes())),
            put(sort.as_ref().and_then(|(_, collation)| *collation).map(|c| c.document().as_bytes())),
        ];
        let head = FetchHead {
            moment: self.moment,
            collection: collection.to_owned(),
            limit,
            for_write: wanted.for_write,
            lengths,
        };
        encode(&head, &body)
    }
}

impl KeptDocuments for KeptMoment {
    fn fetch(&self, collection: &str, wanted: &WantedDocuments<'_>) -> Result<Vec<(Sequence, DocBytes)>> {
        let question = self.question(collection, wanted)?;
        let chunks = self.peers.read(&self.node, self.partition, CallKind::Fetch, question)?;
        let mut documents = Vec::new();
        chunks.into_iter().try_for_each(|chunk| read_documents(chunk, &mut documents))?;
        Ok(documents)
    }

    fn count(&self, collection: &str, filter: &Filter) -> Result<Option<u64>> {
        if !filter.is_all() && filter.source().is_none() {
            return Ok(None);
        }
        let question = self.question(collection, &WantedDocuments::matching(filter))?;
        let (peers, node, partition) = (self.peers.clone(), self.node.clone(), self.partition);
        let reply = self.peers.runtime.run(async move {
            match peers.call(&node, partition, CallKind::Count, question, ATTEMPT_TIMEOUT).await? {
                tidemill_rpc::Reply::Payload(reply) => Ok(reply),
                tidemill_rpc::Reply::NotOwner { .. } => {
                    Err(Error::internal(format!("node {} does not count a kept moment", node.node)))
                }
            }
        })?;
        Ok(Some(decode(&reply)?.0))
    }
}

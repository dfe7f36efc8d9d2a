//! Answers to the calls of other nodes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bson::raw::RawDocument;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tidemill_docs::{Collation, Collection, CollectionSpec, Filter, FindOptions, SortOrder, get_path};
use tidemill_rpc::{CallHandler, IncomingCall, Reply};
use tidemill_types::ipc::BatchEncoder;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};
use tokio::sync::mpsc;

use super::fragments::FragmentRunner;
use super::kept_moments::KeptMoments;
use super::message::{
    self, ArrivedHead, CHUNK_BYTES, CallKind, ExplainEventHead, FetchHead, FoundHead, KeptHead, QueryHead,
    SessionHead, TailHead, decode, encode,
};
use crate::changes::ChangeCursor;
use crate::cluster::ClusterNode;
use crate::commit::{OutcomeKey, SharedCommit, VoteElsewhere};
use crate::document_parts::bad_bson;
use crate::entry::ArrivalKind;
use crate::node::Node;
use crate::partition::{Partition, PartitionClient};

/// Longest time that a call waits for an outcome or a vote before its caller asks again.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Interval at which a wait for a vote looks again.
const VOTE_POLL: Duration = Duration::from_millis(100);
/// Replies of a stream that wait for their reader.
const REPLIES_MAX: usize = 2;

/// Answers calls about partitions that this node owns.
pub struct Answers {
    node: Weak<Node>,
    cluster: OnceLock<Arc<ClusterNode>>,
    moments: KeptMoments,
    /// Executes fragments of statements, once there is SQL.
    fragments: OnceLock<FragmentRunner>,
}

impl Answers {
    /// Creates the answers of a node. [`Self::join`] follows.
    pub fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::downgrade(node),
            cluster: OnceLock::new(),
            moments: KeptMoments::default(),
            fragments: OnceLock::new(),
        }
    }

    /// Sets what executes fragments of statements. The first one stays.
    pub fn set_fragment_runner(&self, runner: FragmentRunner) {
        _ = self.fragments.set(runner);
    }

    /// Executes a fragment.
    ///
    /// Errors: in the stream; `Unavailable` before the node has SQL.
    fn run_fragment(&self, fragment: Bytes) -> BoxStream<'static, Result<Reply>> {
        match self.fragments.get() {
            Some(run) => run(fragment).map(|reply| reply.map(Reply::Payload)).boxed(),
            None => {
                let error = Error::unavailable("the node has just started and executes no statements yet");
                futures::stream::once(std::future::ready(Err(error))).boxed()
            }
        }
    }

    /// Sets the cluster, whose state says what this node owns.
    pub fn join(&self, cluster: Arc<ClusterNode>) {
        let first_time = self.cluster.set(cluster).is_ok();
        debug_assert!(first_time, "a node joins once");
    }

    /// Answers a call with one reply. `timeout` is how long the caller waits.
    ///
    /// Errors: those of the question.
    pub fn answer(
        &self,
        kind: CallKind,
        partition: PartitionId,
        payload: &Bytes,
        timeout: Duration,
    ) -> Result<Reply> {
        let node = self.node()?;
        // this node keeps the moment, also if the partition has another owner by now
        if kind == CallKind::Count {
            return self.count(&node, payload).map(Reply::Payload);
        }
        let Some(owned) = self.owned(&node, partition) else { return Ok(self.not_owner(partition)) };
        self.ask(&node, &owned, kind, payload, timeout.min(WAIT_MAX)).map(Reply::Payload)
    }

    fn node(&self) -> Result<Arc<Node>> {
        self.node.upgrade().ok_or_else(|| Error::unavailable("the node stops"))
    }

    /// Returns a partition if this node answers for it.
    fn owned(&self, node: &Node, id: PartitionId) -> Option<Arc<Partition>> {
        let cluster = node.cluster.get()?;
        cluster.owned_epoch(id, &*node.host.clock).and_then(|_| node.owned.get(id))
    }

    fn not_owner(&self, partition: PartitionId) -> Reply {
        let owner = self.cluster.get().and_then(|cluster| cluster.owner_of(partition));
        Reply::NotOwner {
            epoch: owner.as_ref().map_or(0, |owner| owner.epoch),
            owner: owner.map(|owner| owner.node),
        }
    }

    fn ask(
        &self,
        node: &Arc<Node>,
        partition: &Partition,
        kind: CallKind,
        payload: &Bytes,
        timeout: Duration,
    ) -> Result<Bytes> {
        let nothing = || encode(&(), &[]);
        match kind {
            CallKind::WaitApplied => {
                let (end, _) = decode::<Offset>(payload)?;
                partition.wait_applied(end)?;
                nothing()
            }
            CallKind::CatchUp => {
                partition.catch_up()?;
                nothing()
            }
            CallKind::WaitsForStore => encode(&partition.waits_for_store(), &[]),
            CallKind::Progress => encode(&partition.progress(), &[]),
            CallKind::Definitions => {
                let specs = partition.with_view(|view| {
                    let specs = view.documents.collections().map(Collection::spec);
                    specs.map(bson::serialize_to_vec).collect::<Result<Vec<_>, _>>()
                });
                let specs =
                    specs.map_err(|e| Error::internal("a collection cannot be encoded").with_source(e))?;
                encode(&specs.iter().map(Vec::len).collect::<Vec<_>>(), &specs.concat())
            }
            CallKind::Keep => {
                let (head, _) = decode::<(Offset, Vec<u64>)>(payload)?;
                let (end, released) = head;
                self.moments.release(&released);
                partition.wait_applied(end)?;
                partition.with_view(|view| {
                    let moment = self.moments.keep(view.documents.clone(), node.host.clock.monotonic());
                    let shared_commits = view.shared_commits.clone();
                    encode(&KeptHead { moment, next: view.next, shared_commits }, &[])
                })
            }
            CallKind::FindDocument => {
                let (head, id) = decode::<(String, Offset)>(payload)?;
                let (collection, end) = head;
                let id = RawDocument::from_bytes(&id).map_err(bad_bson)?;
                let found = partition.find_document(&collection, &get_path(id, "_id"), end)?;
                let head = found
                    .as_ref()
                    .map(|(document, place)| FoundHead { found: document.is_some(), place: *place });
                encode(&head, &found.and_then(|(document, _)| document).unwrap_or_default())
            }
            CallKind::Session => {
                let outcome = partition.session_outcome(&SessionHead::decode(payload)?)?;
                encode(&outcome.is_some(), &outcome.map(|outcome| outcome.to_bytes()).unwrap_or_default())
            }
            CallKind::Outcome => {
                let (key, _) = decode::<OutcomeKey>(payload)?;
                let has_passed = || match key {
                    OutcomeKey::Record(offset) => partition.applied() > offset,
                    OutcomeKey::Part(_) => false,
                };
                let clock = &*node.host.clock;
                let outcome = node.host.outcomes.wait(partition.id, key, (clock, timeout), has_passed)?;
                let reply = outcome.map(|outcome| message::encode_reply(&outcome)).transpose()?;
                encode(&reply.is_some(), &reply.unwrap_or_default())
            }
            CallKind::Vote => {
                encode(&vote(node, partition, &decode::<SharedCommit>(payload)?.0, timeout)?, &[])
            }
            CallKind::Arrived => {
                let (from, _) = decode::<Vec<u32>>(payload)?;
                let state = partition.read_state()?;
                let of_kind = |kind: ArrivalKind| {
                    let arrived = state.arrived(kind).iter().filter(|(other, _)| from.contains(other));
                    (kind as u8, arrived.map(|(other, offset)| (*other, *offset)).collect())
                };
                encode(&ArrivalKind::ALL.into_iter().map(of_kind).collect::<ArrivedHead>(), &[])
            }
            CallKind::Counters => encode(&partition.counters.copy(), &[]),
            CallKind::FindInUnit => {
                let (head, _) = decode::<QueryHead>(payload)?;
                message::encode_columns(partition.find_in_unit(&head.unit, &head.query)?)
            }
            CallKind::ExplainEvent => {
                let (head, _) = decode::<ExplainEventHead>(payload)?;
                encode(&partition.explain_event(&head.selector()?, head.rule.as_deref())?, &[])
            }
            CallKind::ExplainQuery => {
                let (head, _) = decode::<QueryHead>(payload)?;
                encode(&partition.explain_query(&head.unit, &head.query, head.key.as_deref())?, &[])
            }
            CallKind::Changes => {
                let (head, _) = decode::<((Offset, u32), Option<ChangeCursor>)>(payload)?;
                let (after, cursor) = head;
                message::encode_changes(&partition.changes(after, cursor)?)
            }
            CallKind::ChangesAt => encode(&partition.changes_at(decode::<Timestamp>(payload)?.0)?, &[]),
            CallKind::ChangePlace => {
                encode(&partition.change_place(decode::<(Offset, u32)>(payload)?.0)?, &[])
            }
            CallKind::Fetch | CallKind::Count | CallKind::TailRows | CallKind::Fragment => {
                Err(Error::invalid(format!("{kind:?} is asked in another way")))
            }
        }
    }

    fn count(&self, node: &Node, payload: &Bytes) -> Result<Bytes> {
        let (head, body) = decode::<FetchHead>(payload)?;
        let documents = self.moments.get(head.moment, node.host.clock.monotonic())?;
        let query = FetchQuery::decode(&head, body)?;
        let collection = documents.collection(&head.collection);
        encode(&collection.map_or(Ok(0), |collection| collection.count(&query.filter))?, &[])
    }

    /// Calls `send` with the replies of a call that has many, until it returns false.
    ///
    /// Errors: those of the question.
    pub fn answer_stream(
        &self,
        kind: CallKind,
        partition: PartitionId,
        payload: &Bytes,
        send: &mut dyn FnMut(Reply) -> bool,
    ) -> Result<()> {
        let node = self.node()?;
        match kind {
            CallKind::Fetch => self.fetch(&node, payload, send),
            CallKind::TailRows => {
                let Some(owned) = self.owned(&node, partition) else {
                    send(self.not_owner(partition));
                    return Ok(());
                };
                let (head, _) = decode::<TailHead>(payload)?;
                let rows = owned.tail_rows(&head.table, head.missing(partition))?;
                if !send(Reply::Payload(encode(&rows.is_some(), &[])?)) {
                    return Ok(());
                }
                let mut encoder = BatchEncoder::default();
                for batch in rows.into_iter().flatten() {
                    if !send(Reply::Payload(message::encode_rows(&mut encoder, &batch)?)) {
                        break;
                    }
                }
                Ok(())
            }
            other => Err(Error::invalid(format!("{other:?} has one reply"))),
        }
    }

    fn fetch(&self, node: &Node, payload: &Bytes, send: &mut dyn FnMut(Reply) -> bool) -> Result<()> {
        let (head, body) = decode::<FetchHead>(payload)?;
        let documents = self.moments.get(head.moment, node.host.clock.monotonic())?;
        let query = FetchQuery::decode(&head, body)?;
        let Some(collection) = documents.collection(&head.collection) else { return Ok(()) };
        let found = match head.for_write {
            true => collection.find_for_write(&query.filter, &query.sort, head.limit)?,
            false => {
                let options = FindOptions { sort: query.sort, limit: head.limit, ..FindOptions::default() };
                collection.find_places(&query.filter, &options)?
            }
        };
        let mut chunk = Vec::new();
        for (sequence, document) in found.with_sequences() {
            message::put_document(&mut chunk, sequence, document);
            if chunk.len() >= CHUNK_BYTES && !send(Reply::Payload(std::mem::take(&mut chunk).into())) {
                return Ok(());
            }
        }
        if !chunk.is_empty() {
            send(Reply::Payload(chunk.into()));
        }
        Ok(())
    }
}

/// The conditions of a call for documents.
struct FetchQuery {
    filter: Filter,
    sort: SortOrder,
}

impl FetchQuery {
    fn decode(head: &FetchHead, mut body: Bytes) -> Result<Self> {
        let mut parts = Vec::with_capacity(head.lengths.len());
        for length in head.lengths {
            parts.push(message::take(&mut body, length)?);
        }
        let [filter, filter_collation, sort, sort_collation] = &parts[..] else {
            return Err(Error::internal("a call for documents has four parts"));
        };
        let document = |bytes: &Bytes| {
            let document =
                (!bytes.is_empty()).then(|| RawDocument::from_bytes(bytes).map(RawDocument::to_owned));
            document.transpose().map_err(bad_bson)
        };
        let collation = |bytes: &Bytes| {
            let document = document(bytes)?;
            Ok::<_, Error>(document.map(|document| Collation::parse(&document)).transpose()?.flatten())
        };
        let filter = match document(filter)? {
            None => Filter::all(),
            Some(document) => Filter::parse_by(&document, collation(filter_collation)?.as_ref())?,
        };
        let sort = match document(sort)? {
            None => SortOrder::default(),
            Some(document) => SortOrder::parse(&document)?.with_collation(collation(sort_collation)?),
        };
        Ok(Self { filter, sort })
    }
}

/// Returns the vote of a partition, or the decision that it has applied; `None` if it has not come to its record in time.
fn vote(
    node: &Node,
    partition: &Partition,
    commit: &SharedCommit,
    timeout: Duration,
) -> Result<Option<VoteElsewhere>> {
    let commits = &node.host.commits;
    let deadline = node.host.clock.monotonic() + timeout;
    loop {
        let seen = commits.changes();
        let decided =
            partition.state.try_read_for(VOTE_POLL).and_then(|s| s.decisions.get(&commit.id).cloned());
        if let Some(decision) = decided {
            return Ok(Some(VoteElsewhere::Decided(decision)));
        }
        if let Some(vote) = commits.vote_of(commit.id, partition.id) {
            return Ok(Some(VoteElsewhere::Voted(vote)));
        }
        if node.host.is_stopping() || node.host.clock.monotonic() >= deadline {
            return Ok(None);
        }
        commits.wait_after(seen, VOTE_POLL);
    }
}

/// Returns the definitions of collections that [`CallKind::Definitions`] encoded.
///
/// Errors: `Invalid` for other bytes.
pub fn decode_definitions(payload: &Bytes) -> Result<Vec<CollectionSpec>> {
    let (lengths, mut body) = decode::<Vec<usize>>(payload)?;
    let spec = |length| {
        let bytes = message::take(&mut body, length)?;
        bson::deserialize_from_slice(&bytes).map_err(bad_bson)
    };
    lengths.into_iter().map(spec).collect()
}

/// The handler of a node's listener. Answers wait for records and stores, so each has a thread.
pub struct AnswerHandler(pub Arc<Answers>);

impl CallHandler for AnswerHandler {
    fn call(&self, call: IncomingCall) -> BoxFuture<'static, Result<Reply>> {
        let answers = self.0.clone();
        async move {
            let kind = kind_of(call.kind)?;
            let left =
                call.deadline.map(|deadline| deadline.saturating_duration_since(tokio::time::Instant::now()));
            let timeout = left.unwrap_or(WAIT_MAX);
            let answer = move || answers.answer(kind, call.partition, &call.payload, timeout);
            tokio::task::spawn_blocking(answer).await.unwrap_or_else(|e| Err(panicked(e)))
        }
        .boxed()
    }

    fn stream(&self, call: IncomingCall) -> BoxStream<'static, Result<Reply>> {
        let answers = self.0.clone();
        if call.kind == CallKind::Fragment as u16 {
            // it has threads of its own, and ends when its stream is dropped
            return answers.run_fragment(call.payload);
        }
        let (sender, receiver) = mpsc::channel(REPLIES_MAX);
        tokio::task::spawn_blocking(move || {
            let sent = catch_unwind(AssertUnwindSafe(|| {
                let mut send = |reply| sender.blocking_send(Ok(reply)).is_ok();
                answers.answer_stream(kind_of(call.kind)?, call.partition, &call.payload, &mut send)
            }));
            // a stream that just ended would look like a whole one
            let sent = sent.unwrap_or_else(|_| Err(Error::internal("the answer to another node panicked")));
            if let Err(e) = sent {
                // a reader that is gone does not need it
                _ = sender.blocking_send(Err(e));
            }
        });
        futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|reply| (reply, receiver))
        })
        .boxed()
    }
}

fn kind_of(number: u16) -> Result<CallKind> {
    CallKind::try_from(number).map_err(|_| {
        Error::invalid(format!(
            "call of kind {number}, which this version does not have: upgrade this node first"
        ))
    })
}

fn panicked(e: tokio::task::JoinError) -> Error {
    Error::internal("the answer to another node panicked").with_source(e)
}

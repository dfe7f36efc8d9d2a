//! Commits of transactions on documents of several partitions.
//!
//! A transaction reads a [`crate::documents::snapshot::DocumentSnapshot`] and collects its writes in
//! [`crate::documents::transaction::Transaction`]. Its commit is one record in the log of each partition that it writes to, all with the
//! same id. The owner of each partition votes when it reaches its record: yes, if none of the documents has been changed since the
//! snapshot. The transaction is committed if all of them vote yes. Which step an owner takes when is decided by its [`Participant`], a pure
//! state machine.
//!
//! An ordered insert whose documents belong to several partitions is decided in the same way: each owner votes which document, by
//! its place in the request, is the first that it refuses. All insert those before the least of them.
//!
//! The logs have the records of two transactions in the same order, so owners never wait for each other in
//! a circle, and an owner that has come to a later transaction has no record of an earlier one any more. A process that is alone appends the records of one transaction
//! after the other ([`CommitBoard::order`]). Nodes of a cluster send a transaction as one record to the first partition
//! ([`crate::entry::Entry::OrderTransaction`]), which emits the parts as it emits events: in its own order, and each once. The RFC
//! `docs/rfcs/0009-transactions.md` says what happens when some of the records are missing after a crash.

mod board;
mod locks;
mod outcomes;
mod part_replies;
mod participant;
mod sessions;
mod shared_commits;

pub use board::{CommitBoard, Decision, Decisions, VoteElsewhere};
pub use locks::WriteLocks;
pub use outcomes::{OutcomeKey, Outcomes};
pub use part_replies::PartReplies;
pub use participant::{Participant, SharedCommit, Step, Vote, Votes};
pub use sessions::SessionWrites;
pub use shared_commits::SharedCommits;

use bson::oid::ObjectId;
use bytes::Bytes;
use tidemill_types::{Offset, PartitionId};

/// Id of a transaction.
pub type TransactionId = ObjectId;

/// Part of a transaction in the log of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionPart {
    /// Id of the transaction.
    pub id: TransactionId,
    /// Its place among the transactions: every log has them in this order.
    pub order: i64,
    /// All partitions that it writes to, in ascending order.
    pub participants: Vec<PartitionId>,
    /// Offset of the snapshot in this partition: the transaction has read what the records below it have made.
    pub since: Offset,
    /// The writes of this partition: `tidemill_docs::TransactionWrites`, encoded.
    pub writes: Bytes,
    /// The client session that commits it.
    pub session: Option<SessionWrite>,
    /// For an ordered insert into several partitions, whose `writes` are its command: the places of the documents of this partition
    /// in the request. `None` for the writes of a transaction.
    pub places: Option<Vec<u32>>,
    /// The partition that has ordered the transaction, and the offset of its record, by which repetitions of the part are recognized. `None` if
    /// the part was appended by a process that is alone.
    pub cause: Option<(PartitionId, Offset)>,
}

/// Number of a write or a transaction within a client session (`lsid` and `txnNumber` of MongoDB's protocol), by which a repetition is
/// recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionWrite {
    /// Id of the session.
    pub session: Bytes,
    /// Number of the write; it increases within a session.
    pub number: i64,
    /// Number of the statement within the write.
    pub statement: i32,
}

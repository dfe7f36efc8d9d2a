//! The document store of one partition: collections of BSON documents in memory, with MongoDB's operators.
//!
//! Documents are BSON bytes from request to reply: stored as they arrived, read without conversion, updated
//! by copying the parts that an update does not name. Everything is a function of state, command and time: no
//! clock, no disk, no async. The owner of the partition writes commands to its log and applies them with
//! [`Store::apply`]; a rule that the owner runs uses a [`Collection`] directly.

mod changes;
mod checkpoint;
mod collation;
mod collection;
mod command;
mod decimal;
pub mod decimal_math;
mod diff;
mod direction;
mod display;
pub mod element;
mod error;
mod expression;
mod filter;
mod find;
mod found;
mod geo;
mod index;
mod key;
mod limits;
mod memory;
mod order;
mod page_tree;
mod path;
mod path_values;
mod plan;
mod prepared;
mod projection;
mod raw;
mod reshape;
mod rows;
mod scripts;
mod sequence;
mod sort;
mod spec;
mod store;
mod text;
mod transaction;
mod update;
mod validate;
mod write_digest;

pub use changes::{ChangeKind, DocumentChange, WriteTimes};
pub use checkpoint::check_checkpoint;
pub use collation::Collation;
pub use collection::{Collection, identified, with_identity};
pub use command::{Command, CommandOutcome, DocumentError, Modification, UpdateTrial, update_limits};
pub use diff::{PathPart, UpdateDescription};
pub use error::{DocsError, DuplicateKey, ErrorCode, ErrorDetails, Result};
pub use expression::{EvalValue, Expression, Variables, check_language, script_source};
pub use filter::Filter;
pub use find::{FindOptions, IndexBounds};
pub use found::{FoundDocuments, merge_found};
pub use geo::{GeoIndexKind, GeoIndexSpec};
pub use key::Key;
pub use limits::Limits;
pub use memory::{HeldMemory, document_bytes, value_bytes};
pub use order::cmp_ids;
pub use path::{Path, get_path};
pub use plan::{ExplainQuery, Explanation, Plan};
pub use prepared::PreparedDocument;
pub use projection::Projection;
pub use reshape::{ComputedFields, ReshapeStage, encoded, set_path};
pub use scripts::{ScriptEngine, ScriptFunction, ScriptKind, Scripts};
pub use sequence::Sequence;
pub use sort::SortOrder;
pub use spec::{
    BsonDocument, CappedSize, CollectionChange, CollectionOptions, CollectionSpec, Direction, IndexChange,
    IndexSpec, ValidationAction, ValidationLevel, ViewSpec,
};
pub use store::{Store, StoreSnapshot};
pub use text::{TextIndexSpec, mentions_meta, score_not_available, text_score, with_text_score};
pub use transaction::{Savepoint, TransactionWrites, write_conflict};
pub use update::{Update, UpdateOutcome};
pub use validate::{repeated_field, validate};

/// One complete BSON document, as received.
pub type DocBytes = bytes::Bytes;

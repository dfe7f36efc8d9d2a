//! The document store of one partition: collections of BSON documents in memory, with MongoDB's operators.
//!
//! Documents are BSON bytes from request to reply: stored as they arrived, read without conversion, updated
//! by copying the parts that an update does not name. Everything is a function of state, command and time: no
//! clock, no disk, no async. The owner of the partition writes commands to its log and applies them with
//! [`Store::apply`]; a rule that the owner runs uses a [`Collection`] directly.

mod checkpoint;
mod collation;
mod collection;
mod command;
mod direction;
mod error;
mod expression;
mod filter;
mod find;
mod found;
mod geo;
mod index;
mod limits;
mod memory;
mod page_tree;
mod plan;
mod projection;
mod reshape;
mod rows;
mod scripts;
mod sequence;
mod sort;
mod spec;
mod store;
mod text;
mod update;
mod values;
mod writing;

pub use checkpoint::check_checkpoint;
pub use collation::Collation;
pub use collection::{Collection, identified, with_identity};
pub use command::{CommandOutcome, DocumentCommand, DocumentError, Modification, UpdateTrial, update_limits};
pub use error::{DocsError, DuplicateKey, ErrorCode, ErrorDetails, Result};
pub use expression::{EvalValue, Expression, Variables, check_language, script_source};
pub use filter::Filter;
pub use find::{FindOptions, IndexBounds};
pub use found::{FoundDocuments, merge_found};
pub use geo::{GeoIndexKind, GeoIndexSpec};
pub use limits::StoreLimits;
pub use memory::{HeldMemory, document_bytes, value_bytes};
pub use plan::{AccessPlan, ExplainQuery, Explanation};
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
pub use update::{Update, UpdateOutcome};
pub use values::decimal_math;
pub use values::element;
pub use values::key::Key;
pub use values::order::cmp_ids;
pub use values::path::{Path, get_path};
pub use values::validate::{repeated_field, validate};
pub use writing::changes::{ChangeKind, DocumentChange, WriteTimes};
pub use writing::diff::{PathPart, UpdateDescription};
pub use writing::prepared::PreparedDocument;
pub use writing::transaction::{Savepoint, TransactionWrites, write_conflict};

/// One complete BSON document, as received.
pub type DocBytes = bytes::Bytes;

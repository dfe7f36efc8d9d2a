//! The event store: one Delta table per stored stream.
//!
//! ```text
//! push ─► tail (Arrow, in memory) ─► flush ─► tablet (sorted Parquet) ─► Delta commit (files, offsets, epoch)
//!           │                                    │
//!           └───────────── snapshot ─────────────┘   every pushed row exactly once
//! ```
//!
//! The log is the only truth: a tail is lost with the process and pushed again from the log. A commit carries
//! the offset up to which its files cover each partition, so a restart knows where pushing must begin: every
//! row is in the table exactly once. `docs/formats/tables.md` describes the files.
//!
//! Tablets have a level. Flushes write level 0, one file per flush. `consolidate` merges tablets of one level into
//! one of the next until it is large, so that a table has few files: commits list them, and every query reads their
//! statistics. Replaced files stay for readers of older versions until `remove_old_files` deletes them.

mod cache;
mod consolidate;
mod delta;
mod error;
mod flush;
mod history;
mod merge;
mod old_files;
mod open;
mod options;
mod owner_epochs;
mod removal;
mod stores;
mod table;
mod table_files;
mod tablets;
mod tail;
mod zones;

pub use cache::{CacheStats, CachedStore};
pub use consolidate::Consolidation;
pub use delta::history::{VersionAt, VersionInfo};
pub use delta::schema::StoredColumn;
pub use flush::FlushResult;
pub use open::{StoredTable, check_stream};
pub use options::{Clock, Compression, ZonesOptions};
pub use removal::{Rewritten, RowRewrite, RowRewriter};
pub use stores::checked::CheckedStore;
pub use stores::durable::DurableLocal;
pub use stores::object_directory::{ObjectDirectory, ReadPiece};
pub use stores::shared_file::SharedFile;
#[cfg(feature = "sim")]
pub use stores::sim_store;
pub use stores::store_options::{check_store_settings, store_options};
pub use table::{MissingFile, MissingTail, PartialSnapshot, Table, TableSnapshot};
pub use table_files::{TableInspection, TableVersion, TabletFile};
pub use tablets::checksum::Checksums;
pub use tablets::encryption::TabletKeys;
pub use tablets::tablet::{ColumnStats, Tablet};
pub use zones::Zones;

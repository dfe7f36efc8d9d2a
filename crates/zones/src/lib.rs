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
mod checked;
mod checksum;
mod consolidate;
mod delta;
mod durable;
mod encode;
mod encodings;
mod encryption;
mod error;
mod flush;
mod history;
mod location;
mod merge;
mod object_directory;
mod old_files;
mod open;
mod options;
mod owner_epochs;
mod removal;
mod retry;
mod row_order;
mod shared_file;
#[cfg(feature = "sim")]
pub mod sim_store;
mod store_options;
mod table;
mod table_files;
mod tablet;
mod tablet_layout;
mod tablet_name;
mod tablet_writer;
mod tail;
mod zones;

pub use cache::{CacheStats, CachedStore};
pub use checked::CheckedStore;
pub use consolidate::Consolidation;
pub use delta::history::{VersionAt, VersionInfo};
pub use delta::schema::StoredColumn;
pub use durable::DurableLocal;
pub use encryption::TabletKeys;
pub use flush::FlushResult;
pub use object_directory::{ObjectDirectory, ReadPiece};
pub use open::{StoredTable, check_stream};
pub use options::{Clock, Compression, ZonesOptions};
pub use removal::{Rewritten, RowRewrite, RowRewriter};
pub use shared_file::SharedFile;
pub use store_options::{check_store_settings, store_options};
pub use table::{MissingFile, MissingTail, PartialSnapshot, Table, TableSnapshot};
pub use table_files::{TableInspection, TableVersion, TabletFile};
pub use tablet::{ColumnStats, Tablet};
pub use zones::Zones;

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
//! Tablets have a level. Flushes write level 0, one file per flush. A table must stay below a few thousand
//! files, because commits list them and every query reads their statistics. Merging tablets into larger ones
//! of the next level is not implemented yet; until then call `flush` by size and time, not per batch.

mod checked;
mod checksum;
mod delta;
mod durable;
mod encode;
mod error;
mod flush;
mod location;
mod open;
mod options;
mod retry;
mod row_order;
#[cfg(feature = "sim")]
pub mod sim_store;
mod table;
mod tablet;
mod tail;
mod zones;

pub use checked::CheckedStore;
pub use delta::schema::StoredColumn;
pub use durable::DurableLocal;
pub use flush::FlushResult;
pub use open::StoredTable;
pub use options::{Clock, Compression, ZonesOptions};
pub use table::{MissingFile, Table, TableSnapshot};
pub use tablet::{ColumnStats, Tablet};
pub use zones::Zones;

//! The event store: a Delta table per kept stream.
//!
//! ```text
//! push ─► tail (Arrow, in memory) ─► flush ─► tablet (sorted Parquet) ─► Delta commit (files, offsets, epoch)
//!           │                                    │
//!           └───────────── snapshot ─────────────┘   every pushed row exactly once
//! ```
//!
//! The log is the only truth: a tail is lost with the process and pushed again from the log. A commit carries
//! the offsets that its files bring each partition to, so a restart knows where pushing must begin: a row is
//! never in the table twice and never missing. `docs/formats/tables.md` describes what lies on the disk.
//!
//! Tablets carry a level. Flushes write level 0, one file per flush: a table must stay at a few thousand
//! files, for commits list them and every query looks at their statistics. Merging tablets into larger ones
//! of the next level is not built yet; until then `flush` is to be called by size and time, not per batch.

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
mod table;
mod tablet;
mod tail;
mod zones;

pub use checked::CheckedStore;
pub use delta::schema::StoredColumn;
pub use durable::DurableLocal;
pub use flush::FlushResult;
pub use open::StoredTable;
pub use options::{Compression, ZonesOptions};
pub use table::{MissingFile, Table, TableSnapshot};
pub use tablet::{ColumnStats, Tablet};
pub use zones::{Clock, Zones};

//! Verification of tables: Delta logs and tablets.

use tidemill_types::Result;
use tidemill_zones::Zones;

use super::report::{Consequence, Verification};
use crate::admin::backup::runtime;

const DELTA_LOG: Consequence = Consequence {
    meaning: "the table does not open, or opens at an older Delta checkpoint",
    remedy: "restore the file from a backup or another copy of the table; `_last_checkpoint` may be deleted",
};
const TABLETS: Consequence = Consequence {
    meaning: "its rows cannot be queried; queries that need it fail, and a tablet that is missing keeps the table from opening",
    remedy: "restore the file from a backup or another copy of the table. Without one, `zones.open_degraded = true` opens the \
             table without the rows of missing files",
};

/// Verifies all tables.
///
/// Errors: `Unavailable`.
pub fn check(zones: &Zones, found: &mut Verification) -> Result<()> {
    let runtime = runtime()?;
    let (mut tables, mut rows) = (0_u64, 0);
    let (mut tablets, mut log) = ((0, 0), (0, 0));
    let (mut damaged_tablets, mut damaged_log) = (Vec::new(), Vec::new());
    for name in runtime.block_on(zones.table_names())? {
        let Some(table) = runtime.block_on(zones.inspect_table(&name))? else { continue };
        tables += 1;
        rows += table.rows;
        tablets = (tablets.0 + table.tablets, tablets.1 + table.tablet_bytes);
        log = (log.0 + table.log_files, log.1 + table.log_bytes);
        damaged_tablets.extend(table.damaged_tablets);
        damaged_log.extend(table.damaged_log);
    }
    found.add("delta logs", log, format!("{tables} tables"), damaged_log, DELTA_LOG);
    found.add("tablets", tablets, format!("{rows} rows"), damaged_tablets, TABLETS);
    Ok(())
}

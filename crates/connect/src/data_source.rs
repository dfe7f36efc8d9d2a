//! Data sources: databases that apps send statements of their own to.

use std::sync::Arc;

use tidemill_types::{FieldType, Result};

use crate::options::OptionError;
use crate::store::{StoreMonitor, WritePosition};
use crate::store_eval::TypedValue;
use crate::store_row::StoredRow;

/// Context in which a data source is created.
#[derive(Debug, Clone)]
pub struct DataSourceContext {
    /// Name of the data source in the settings.
    pub name: String,
    /// Name of the app's file under which the database remembers what was written, together with that of the data source.
    /// Files of other data directories have other names.
    pub writer: String,
    /// Receives problems, and signals when to stop waiting.
    pub monitor: Arc<StoreMonitor>,
}

/// Opens data sources.
pub trait DataSourceType: Send + Sync {
    /// Creates the access to a data source, without connecting.
    ///
    /// Errors: wrong options.
    fn create(
        &self,
        options: &[(String, String)],
        context: &DataSourceContext,
    ) -> Result<Box<dyn DataSource>, OptionError>;
}

/// Database that executes statements with `?` for their parameters. Calls wait as those of a
/// [`TableStore`](crate::TableStore) do.
pub trait DataSource: Send {
    /// Returns the rows of a query, whose columns have these types.
    ///
    /// Errors: `Invalid` if the database refuses the statement; `Unavailable` after a stop.
    fn query(
        &mut self,
        statement: &str,
        parameters: &[TypedValue],
        columns: &[FieldType],
    ) -> Result<Vec<StoredRow>>;

    /// Executes a statement once, and returns the number of rows that it wrote. For a statement that was executed before, the
    /// number is only known of the last one.
    ///
    /// Errors: those of [`Self::query`].
    fn execute(
        &mut self,
        statement: &str,
        parameters: &[TypedValue],
        at: Option<WritePosition>,
    ) -> Result<Option<u64>>;
}

//! Databases of a running app that its queries send statements to.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_connect::{Catalog, DataSource, DataSourceContext, StoreMonitor};
use tidemill_types::{Error, Offset, PartitionId};

use crate::eval_error::EvalError;

/// Data sources of a running app, opened when a query first uses them.
#[derive(Default)]
pub struct StatementCalls(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    /// Connections of the running app; without them every statement fails.
    opened: Option<Opened>,
    sources: BTreeMap<String, Box<dyn DataSource>>,
    /// The record that is being processed, and the number of statements that wrote.
    record: Option<(PartitionId, Offset, u32)>,
}

struct Opened {
    writer: String,
    catalog: Arc<Catalog>,
    monitor: Arc<StoreMonitor>,
}

impl StatementCalls {
    /// Lets statements go to databases; see `DataSourceContext::writer` for `writer`.
    pub(crate) fn open(&mut self, writer: &str, catalog: &Arc<Catalog>, monitor: &Arc<StoreMonitor>) {
        let (writer, catalog, monitor) = (writer.to_owned(), catalog.clone(), monitor.clone());
        self.0.get_mut().opened = Some(Opened { writer, catalog, monitor });
    }

    /// Says which record the next statements belong to.
    pub(crate) fn set_record(&mut self, partition: PartitionId, offset: Offset) {
        self.0.get_mut().record = Some((partition, offset, 0));
    }

    /// Calls `work` with a data source.
    pub(crate) fn with<T>(
        &self,
        target: &DataSourceRef,
        work: impl FnOnce(&mut dyn DataSource, &mut Option<(PartitionId, Offset, u32)>) -> Result<T, Error>,
    ) -> Result<T, EvalError> {
        let Calls { opened, sources, record } = &mut *self.0.lock();
        let name = &target.name;
        if !sources.contains_key(name) {
            let Some(Opened { writer, catalog, monitor }) = opened else { return Err(not_open(name)) };
            let context =
                DataSourceContext { name: name.clone(), writer: writer.clone(), monitor: monitor.clone() };
            let source = catalog.create_data_source(&target.options, &context);
            let source = source.map_err(|e| EvalError::request(e.to_string()))?;
            sources.insert(name.clone(), source);
        }
        let source = sources.get_mut(name).ok_or_else(|| not_open(name))?;
        Ok(work(source.as_mut(), record)?)
    }
}

pub(crate) fn not_open(name: &str) -> EvalError {
    EvalError::request(format!("the data source `{name}` is only asked where the app runs"))
}

/// Data source as the settings describe it.
#[derive(Clone)]
pub(crate) struct DataSourceRef {
    pub name: String,
    pub options: Vec<(String, String)>,
}

impl std::fmt::Debug for DataSourceRef {
    /// Leaves the options out, which have a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

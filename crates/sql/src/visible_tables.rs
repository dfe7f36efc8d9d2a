//! Tables as a caller sees them: those that it may read. The others do not exist for it, in lists, hints and errors as well.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use object_store::ObjectStore;
use tidemill_access::{Action, Principal, Resource};
use tidemill_database::{AppendReceipt, AppendRequest, OpenStream};
use tidemill_types::{Error, ErrorKind, Result};
use tidemill_zones::{Rewritten, RowRewriter, Table, TableSnapshot, TabletKeys};
use url::Url;

use crate::execution::statements::Statements;
use crate::live::LiveRows;
use crate::session_tables::{STATEMENTS, rows};
use crate::tables::{Moment, Nodes, SystemTable, Tables};

/// Tables that a caller may read. `system.statements` is always among them, with the statements that the caller manages.
pub(crate) struct VisibleTables {
    pub tables: Arc<dyn Tables>,
    pub statements: Arc<Statements>,
    pub principal: Principal,
}

impl VisibleTables {
    fn sees(&self, resource: &Resource<'_>) -> bool {
        self.principal.can(Action::Read, resource)
    }

    fn sees_system(&self, name: &str) -> bool {
        name == STATEMENTS || self.sees(&Resource::system(name))
    }
}

impl Tables for VisibleTables {
    fn streams(&self) -> Vec<String> {
        let mut names = self.tables.streams();
        names.retain(|name| self.sees(&Resource::stream(name)));
        names
    }

    fn stream(&self, name: &str) -> Result<Option<TableSnapshot>> {
        // asked first, so that a hidden table that cannot be read now is not there, too
        if self.sees(&Resource::stream(name)) { self.tables.stream(name) } else { Ok(None) }
    }

    fn stored(&self, name: &str) -> Option<Arc<Table>> {
        self.sees(&Resource::stream(name)).then(|| self.tables.stored(name)).flatten()
    }

    fn collections(&self) -> Vec<String> {
        let mut names = self.tables.collections();
        names.retain(|name| self.sees(&Resource::collection(name)));
        names
    }

    fn collection(&self, name: &str) -> Result<Option<Vec<Bytes>>> {
        if self.sees(&Resource::collection(name)) { self.tables.collection(name) } else { Ok(None) }
    }

    fn moment(&self, streams: &[&str], collections: &[&str]) -> Result<Moment> {
        let sees_stream = |name: &&str| self.sees(&Resource::stream(name));
        let sees_collection = |name: &&str| self.sees(&Resource::collection(name));
        let readable: Vec<&str> = streams.iter().copied().filter(sees_stream).collect();
        // where missing collections are empty, a statement may name any
        let readable_collections: Vec<&str> = collections.iter().copied().filter(sees_collection).collect();
        let moment = self.tables.moment(&readable, &readable_collections)?;
        let (mut found, mut found_collections) = (moment.streams.into_iter(), moment.collections.into_iter());
        let streams =
            streams.iter().map(|name| if sees_stream(name) { found.next().flatten() } else { None });
        let collections = collections
            .iter()
            .map(|name| if sees_collection(name) { found_collections.next().flatten() } else { None });
        Ok(Moment { streams: streams.collect(), collections: collections.collect() })
    }

    fn aggregation_schema(&self, name: &str, per: &str) -> Result<SchemaRef> {
        self.principal.may(Action::Read, &Resource::table(name))?;
        self.tables.aggregation_schema(name, per)
    }

    fn aggregation_rows(&self, name: &str, per: &str, within: &Range<i64>) -> Result<RecordBatch> {
        self.principal.may(Action::Read, &Resource::table(name))?;
        self.tables.aggregation_rows(name, per, within)
    }

    fn system_tables(&self) -> Vec<String> {
        let mut names = self.tables.system_tables();
        names.retain(|name| self.sees_system(name));
        names
    }

    fn system(&self, name: &str) -> Result<Option<SystemTable>> {
        match name {
            STATEMENTS => Ok(Some(SystemTable::Rows(rows(&self.statements.list_of(&self.principal))))),
            other if self.sees_system(other) => self.tables.system(other),
            _ => Ok(None),
        }
    }

    fn rewrite(&self, stream: &str, rewriter: RowRewriter) -> Result<Rewritten> {
        self.principal.may(Action::Write, &Resource::stream(stream))?;
        self.tables.rewrite(stream, rewriter)
    }

    fn open_stream(&self, name: &str) -> Result<Option<OpenStream>> {
        self.principal.may(Action::Write, &Resource::stream(name))?;
        self.tables.open_stream(name)
    }

    fn append(&self, request: AppendRequest) -> Result<AppendReceipt> {
        request
            .events
            .streams()
            .try_for_each(|name| self.principal.may(Action::Write, &Resource::stream(name)))?;
        self.tables.append(request)
    }

    fn live(&self, stream: &str) -> Result<Option<LiveRows>> {
        if self.sees(&Resource::stream(stream)) { self.tables.live(stream) } else { Ok(None) }
    }

    fn catch_up(&self) -> Result<()> {
        self.tables.catch_up()
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        self.tables.object_store()
    }

    fn tablet_keys(&self) -> Option<TabletKeys> {
        self.tables.tablet_keys()
    }

    fn nodes(&self) -> Option<Arc<dyn Nodes>> {
        self.tables.nodes()
    }
}

/// Adds to the error for a name that does not exist, or that the caller may not see, how rights are granted. It is the same text
/// in both cases.
pub(crate) fn with_hint(error: Error, principal: &Principal) -> Error {
    if error.kind() != ErrorKind::NotFound || principal.can_everywhere(Action::Read) {
        return error;
    }
    let (name, text) = (principal.name(), error.to_string());
    let end = if text.ends_with('?') { "" } else { "." };
    Error::not_found(format!(
        "{text}{end} User `{name}` sees what is granted: an administrator grants more with \
         `tidemill users grant {name} read PATTERN --data DATA`"
    ))
}

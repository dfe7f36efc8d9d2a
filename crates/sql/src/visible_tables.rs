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
use crate::session_tables::{STATEMENTS, rows};
use crate::tables::{Moment, SystemTable, Tables};

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
        Ok(self.tables.stream(name)?.filter(|_| self.sees(&Resource::stream(name))))
    }

    fn stored(&self, name: &str) -> Option<Arc<Table>> {
        self.tables.stored(name).filter(|_| self.sees(&Resource::stream(name)))
    }

    fn collections(&self) -> Vec<String> {
        let mut names = self.tables.collections();
        names.retain(|name| self.sees(&Resource::collection(name)));
        names
    }

    fn collection(&self, name: &str) -> Result<Option<Vec<Bytes>>> {
        Ok(self.tables.collection(name)?.filter(|_| self.sees(&Resource::collection(name))))
    }

    fn moment(&self, streams: &[&str], collections: &[&str]) -> Result<Moment> {
        let mut moment = self.tables.moment(streams, collections)?;
        for (name, found) in streams.iter().zip(&mut moment.streams) {
            found.take_if(|_| !self.sees(&Resource::stream(name)));
        }
        // where missing collections are empty, a statement may name any
        for (name, found) in collections.iter().zip(&mut moment.collections) {
            found.take_if(|_| !self.sees(&Resource::collection(name)));
        }
        Ok(moment)
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
            other => Ok(self.tables.system(other)?.filter(|_| self.sees_system(other))),
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

    fn catch_up(&self) -> Result<()> {
        self.tables.catch_up()
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        self.tables.object_store()
    }

    fn tablet_keys(&self) -> Option<TabletKeys> {
        self.tables.tablet_keys()
    }
}

/// Adds to the error for a name that does not exist, or that the caller may not see, how rights are granted. It is the same text
/// in both cases.
pub(crate) fn with_hint(error: Error, principal: &Principal) -> Error {
    if error.kind() != ErrorKind::NotFound || principal.can_everywhere(Action::Read) {
        return error;
    }
    let name = principal.name();
    Error::not_found(format!(
        "{error}. User `{name}` sees what is granted: an administrator grants more with \
         `tidemill users grant {name} read PATTERN --data DATA`"
    ))
}

//! Catalog of one query: every table is resolved to one snapshot, once, and all of them are of one moment.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, SchemaProvider, TableFunction, TableProvider,
};
use datafusion::datasource::{MemTable, TableType};
use datafusion::error::{DataFusionError, Result as PlanResult};
use parking_lot::Mutex;
use tidemill_types::{Error, Result, did_you_mean};
use tidemill_zones::{Table, TableSnapshot};

use crate::MissingFields;
use crate::docs::{DocsTable, WHOLE};
use crate::error::to_datafusion;
use crate::events::{EventsTable, OpenFiles, ScanContext, ScanReports};
use crate::hot::{HotAccess, HotSource};
use crate::names::unknown_column;
use crate::pg_catalog::{CatalogSchema, INFORMATION_SCHEMA, Objects, PG_CATALOG};
use crate::schema_name::SchemaName;
use crate::tables::{SystemTable, Tables};

pub(crate) use crate::schema_name::CATALOG;

/// Schema of unqualified names. It has no tables of its own; lookups search the other schemas.
pub(crate) const DEFAULT_SCHEMA: &str = "public";

/// Tables that one query has referenced so far, each with one snapshot.
pub(crate) struct QuerySnapshots {
    tables: Arc<dyn Tables>,
    context: ScanContext,
    missing: MissingFields,
    /// Contents of the tables at the moment of the query, until they are first referenced.
    moment: Mutex<HashMap<(SchemaName, String), MomentOf>>,
    /// Hot data from which this query may be served.
    hot: Option<HotAccess>,
    entries: Mutex<HashMap<(SchemaName, String), SnapshotEntry>>,
    names: Mutex<HashMap<SchemaName, Arc<TableNames>>>,
    /// Fields that the query references and no document has.
    absent: Mutex<Vec<String>>,
    /// Names of tables as the query writes them, and the tables they are.
    resolved: Mutex<Vec<ResolvedName>>,
}

/// Name of a table, as a query writes it and as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedName {
    pub written: (String, String),
    pub found: (SchemaName, String),
}

impl ResolvedName {
    /// Returns whether no other table can ever be meant: a name that is written as it is spelled comes first.
    pub fn is_exact(&self) -> bool {
        self.written.0 == self.found.0.name() && self.written.1 == self.found.1
    }
}

/// Content of a table at the moment of a query.
enum MomentOf {
    Stream(TableSnapshot),
    Collection(Vec<Bytes>),
}

/// Table names of a schema, read when the query first needs them.
#[derive(Default)]
struct TableNames {
    sorted: Vec<String>,
    /// All spellings of a name, by the name in lower case.
    spellings: HashMap<String, Vec<String>>,
}

impl TableNames {
    fn new(mut sorted: Vec<String>) -> Self {
        sorted.sort_unstable();
        let mut spellings: HashMap<String, Vec<String>> = HashMap::new();
        for name in &sorted {
            spellings.entry(name.to_lowercase()).or_default().push(name.clone());
        }
        Self { sorted, spellings }
    }
}

/// Snapshot of a table.
#[derive(Clone)]
enum SnapshotEntry {
    Events(Arc<EventsTable>),
    Documents(Arc<DocsTable>),
    Other(Arc<dyn TableProvider>),
}

impl QuerySnapshots {
    pub fn new(
        tables: Arc<dyn Tables>,
        files: Arc<OpenFiles>,
        missing: MissingFields,
        hot: Option<HotAccess>,
    ) -> Arc<Self> {
        let context = ScanContext { store: tables.object_store().0, files, reports: Arc::default() };
        Arc::new(Self {
            tables,
            context,
            missing,
            hot,
            moment: Mutex::default(),
            resolved: Mutex::default(),
            entries: Mutex::default(),
            names: Mutex::default(),
            absent: Mutex::default(),
        })
    }

    /// Adds the field that planning did not find to the collections, if missing fields read as null.
    ///
    /// Returns whether it was added, in which case planning can be retried. An alias does not identify its
    /// collection, so all collections of the query get the field.
    pub fn add_missing(&self, error: &DataFusionError) -> bool {
        let Some((wanted, known)) = unknown_column(error).filter(|_| self.missing == MissingFields::Null)
        else {
            return false;
        };
        let of_documents = known
            .iter()
            .any(|c| c.name == WHOLE && (wanted.relation.is_none() || c.relation == wanted.relation));
        let mut absent = self.absent.lock();
        if !of_documents || absent.contains(&wanted.name) {
            return false;
        }
        absent.push(wanted.name.clone());
        true
    }

    fn names(&self, schema: SchemaName) -> Arc<TableNames> {
        let names = || {
            Arc::new(TableNames::new(match schema {
                SchemaName::Events => self.tables.streams(),
                SchemaName::Docs => self.tables.collections(),
                SchemaName::System => self.tables.system_tables(),
            }))
        };
        self.names.lock().entry(schema).or_insert_with(names).clone()
    }

    /// Returns the name as the table spells it: an exact match, or the only name that differs in case.
    fn spelling(&self, schema: SchemaName, name: &str) -> Option<String> {
        let names = self.names(schema);
        match names.spellings.get(&name.to_lowercase())?.as_slice() {
            [only] => Some(only.clone()),
            several => several.iter().find(|n| *n == name).cloned(),
        }
    }

    /// Resolves the table `name` of `schema`, or of any schema for [`DEFAULT_SCHEMA`].
    ///
    /// Errors: `NotFound` with the nearest name or the available ones; `Invalid` for an unqualified name that
    /// two schemas have.
    pub fn locate(&self, schema: &str, name: &str) -> Result<(SchemaName, String)> {
        if schema == DEFAULT_SCHEMA {
            return self.locate_bare(name);
        }
        let Some(schema) = SchemaName::parse(schema) else {
            let known = SchemaName::ALL.map(SchemaName::name);
            let known = known.into_iter().chain([INFORMATION_SCHEMA, PG_CATALOG]);
            return Err(Error::not_found(format!(
                "there is no schema `{schema}`{}",
                did_you_mean(schema, known)
            )));
        };
        let found = self.spelling(schema, name);
        let absent = schema == SchemaName::Docs && self.missing == MissingFields::Null;
        let found = found.or_else(|| absent.then(|| name.to_owned()));
        found.map(|n| (schema, n)).ok_or_else(|| {
            let names = self.names(schema);
            let hint = match names.sorted.is_empty() {
                true => format!(". There are no tables in `{}` yet", schema.name()),
                false => did_you_mean(name, names.sorted.iter().map(String::as_str)),
            };
            Error::not_found(format!("there is no {} `{name}`{hint}", schema.noun()))
        })
    }

    fn locate_bare(&self, name: &str) -> Result<(SchemaName, String)> {
        let found = SchemaName::ALL.into_iter().filter_map(|s| Some((s, self.spelling(s, name)?)));
        let found: Vec<(SchemaName, String)> = found.collect();
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => {
                let mut known: Vec<(String, String)> = vec![];
                for schema in SchemaName::ALL {
                    let names = self.names(schema);
                    known.extend(names.sorted.iter().map(|n| (format!("{}.{n}", schema.name()), n.clone())));
                }
                let near = tidemill_types::nearest(name, known.iter().map(|(_, bare)| bare.as_str()));
                let full = known.iter().find(|(_, bare)| Some(bare.as_str()) == near).map(|(full, _)| full);
                let hint = match full {
                    Some(full) => format!(". Did you mean `{full}`?"),
                    None => did_you_mean(name, known.iter().map(|(full, _)| full.as_str())),
                };
                Err(Error::not_found(format!("there is no table `{name}`{hint}")))
            }
            several => {
                let places: Vec<String> = several.iter().map(|(s, n)| format!("{}.{n}", s.name())).collect();
                Err(Error::invalid(format!("`{name}` could be {}: write which", places.join(" or "))))
            }
        }
    }

    /// Returns the snapshot of the table. All calls within a query return one snapshot.
    async fn provider(&self, schema: SchemaName, name: &str) -> Result<Arc<dyn TableProvider>> {
        let key = (schema, name.to_owned());
        let known = self.entries.lock().get(&key).cloned();
        let taken = match known {
            Some(taken) => taken,
            None => {
                let made = self.take_snapshot(schema, name).await?;
                // the first snapshot wins, so that a query sees one snapshot even if two tasks planned
                // concurrently
                self.entries.lock().entry(key).or_insert(made).clone()
            }
        };
        Ok(match taken {
            SnapshotEntry::Other(table) => table,
            SnapshotEntry::Events(table) => table,
            SnapshotEntry::Documents(table) => match self.missing {
                MissingFields::Refused => table,
                MissingFields::Null => Arc::new(table.with_absent(&self.absent.lock())),
            },
        })
    }

    /// Takes the moment of these tables, before the first of them is referenced.
    ///
    /// Errors: those of [`Tables::moment`].
    pub fn take_together(&self, tables: &[(SchemaName, String)]) -> Result<()> {
        let of_schema = |wanted: SchemaName| {
            let names = tables.iter().filter(|(schema, _)| *schema == wanted).map(|(_, name)| name.as_str());
            // a table that a query names twice is still one table
            names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let (streams, collections) = (of_schema(SchemaName::Events), of_schema(SchemaName::Docs));
        if streams.is_empty() && collections.is_empty() {
            return Ok(());
        }
        let taken = self.tables.moment(&streams, &collections)?;
        let mut moment = self.moment.lock();
        for (name, found) in streams.iter().zip(taken.streams) {
            let found =
                found.map(|found| ((SchemaName::Events, (*name).to_owned()), MomentOf::Stream(found)));
            moment.extend(found);
        }
        for (name, found) in collections.iter().zip(taken.collections) {
            let found =
                found.map(|found| ((SchemaName::Docs, (*name).to_owned()), MomentOf::Collection(found)));
            moment.extend(found);
        }
        Ok(())
    }

    /// Returns the snapshot of the table of a stream.
    fn stream_snapshot(&self, name: &str) -> Result<Option<TableSnapshot>> {
        match self.moment.lock().remove(&(SchemaName::Events, name.to_owned())) {
            Some(MomentOf::Stream(snapshot)) => Ok(Some(snapshot)),
            _ => self.tables.stream(name),
        }
    }

    /// Returns the documents of a collection.
    fn collection_documents(&self, name: &str) -> Result<Option<Vec<Bytes>>> {
        match self.moment.lock().remove(&(SchemaName::Docs, name.to_owned())) {
            Some(MomentOf::Collection(documents)) => Ok(Some(documents)),
            _ => self.tables.collection(name),
        }
    }

    /// Takes a snapshot of the table of a stream.
    fn take_events(&self, name: &str) -> Result<Arc<EventsTable>> {
        let gone = || Error::not_found(format!("stream `{name}` was removed just now"));
        let snapshot = self.stream_snapshot(name)?.ok_or_else(gone)?;
        let hot = self.hot.as_ref().and_then(|access| HotSource::new(name, &snapshot, access.clone()));
        Ok(Arc::new(EventsTable::new((SchemaName::Events, name), snapshot, self.context.clone(), hot)?))
    }

    /// Returns the stream whose table a query calls `name`, qualified or not.
    ///
    /// Errors: those of [`Self::locate`]; `Invalid` for a table that is not the table of a stream.
    fn locate_stream(&self, schema: &str, name: &str) -> Result<String> {
        let found = self.locate(schema, name)?;
        self.note(schema, name, &found);
        match found {
            (SchemaName::Events, stream) => Ok(stream),
            (schema, name) => Err(Error::invalid(format!(
                "{}.{name} is not the table of a stream: expected one, for example 'events.readings'",
                schema.name()
            ))),
        }
    }

    /// Returns the table of a stream for reads of its older versions.
    ///
    /// Errors: those of [`Self::locate`]; `Invalid` for a table that is not the table of a stream.
    pub fn stored(&self, schema: &str, name: &str) -> Result<Arc<Table>> {
        let stream = self.locate_stream(schema, name)?;
        let table = self.tables.stored(&stream);
        table.ok_or_else(|| Error::not_found(format!("stream `{stream}` has no table with older versions")))
    }

    /// Returns name and columns of the stream whose table a query calls `name`, qualified or not.
    ///
    /// Errors: those of [`Self::events`].
    pub fn stream_columns(&self, schema: &str, name: &str) -> Result<(String, SchemaRef)> {
        let stream = self.locate_stream(schema, name)?;
        let columns = self.events(SchemaName::Events.name(), &stream)?.schema();
        Ok((stream, columns))
    }

    /// Returns what the tables of the query share.
    pub fn context(&self) -> &ScanContext {
        &self.context
    }

    /// Returns the scans with which the query was planned.
    pub fn reports(&self) -> &Arc<ScanReports> {
        &self.context.reports
    }

    /// Returns the table of the stream `name` as the query writes it, qualified or not.
    ///
    /// Errors: those of [`Self::locate`]; `Invalid` for a table that is not the table of a stream.
    pub fn events(&self, schema: &str, name: &str) -> Result<Arc<EventsTable>> {
        let key = (SchemaName::Events, self.locate_stream(schema, name)?);
        if let Some(SnapshotEntry::Events(table)) = self.entries.lock().get(&key) {
            return Ok(table.clone());
        }
        let table = self.take_events(&key.1)?;
        match self.entries.lock().entry(key).or_insert(SnapshotEntry::Events(table)) {
            SnapshotEntry::Events(table) => Ok(table.clone()),
            _ => Err(Error::internal("the snapshot of a stream is no table of events")),
        }
    }

    fn note(&self, schema: &str, name: &str, found: &(SchemaName, String)) {
        let written = (schema.to_owned(), name.to_owned());
        let resolved = ResolvedName { written, found: found.clone() };
        let mut all = self.resolved.lock();
        if !all.contains(&resolved) {
            all.push(resolved);
        }
    }

    /// Returns whether names mean the tables that they meant before.
    pub fn finds_same(&self, names: &[ResolvedName]) -> bool {
        let is_same = |name: &ResolvedName| {
            self.locate(&name.written.0, &name.written.1).is_ok_and(|found| found == name.found)
        };
        names.iter().all(|name| name.is_exact() || is_same(name))
    }

    /// Returns the names of tables that the query has used.
    pub fn resolved_names(&self) -> Vec<ResolvedName> {
        self.resolved.lock().clone()
    }

    /// Returns the snapshot of the table of a stream that the query has used.
    pub fn event_snapshot(&self, name: &str) -> Option<TableSnapshot> {
        match self.entries.lock().get(&(SchemaName::Events, name.to_owned()))? {
            SnapshotEntry::Events(table) => table.hot_source().map(|hot| hot.snapshot().clone()),
            _ => None,
        }
    }

    /// Returns the documents of a collection that the query has used.
    pub fn documents(&self, name: &str) -> Option<Arc<Vec<Bytes>>> {
        match self.entries.lock().get(&(SchemaName::Docs, name.to_owned()))? {
            SnapshotEntry::Documents(table) => Some(table.documents().clone()),
            _ => None,
        }
    }

    async fn take_snapshot(&self, schema: SchemaName, name: &str) -> Result<SnapshotEntry> {
        let gone = || Error::not_found(format!("{} `{name}` was removed just now", schema.noun()));
        match schema {
            SchemaName::Events => self.take_events(name).map(SnapshotEntry::Events),
            SchemaName::Docs => {
                let documents = match (self.collection_documents(name)?, self.missing) {
                    (Some(documents), _) => documents,
                    (None, MissingFields::Null) => vec![],
                    (None, MissingFields::Refused) => return Err(gone()),
                };
                Ok(SnapshotEntry::Documents(Arc::new(DocsTable::infer(name, documents).await?)))
            }
            SchemaName::System => match self.tables.system(name)?.ok_or_else(gone)? {
                SystemTable::Events(snapshot) => {
                    let table = EventsTable::new((schema, name), snapshot, self.context.clone(), None)?;
                    Ok(SnapshotEntry::Events(Arc::new(table)))
                }
                SystemTable::Rows(batch) => {
                    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]);
                    let table = table.map_err(|e| Error::internal(format!("system.{name}: {e}")))?;
                    Ok(SnapshotEntry::Other(Arc::new(table)))
                }
            },
        }
    }
}

impl fmt::Debug for QuerySnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").finish_non_exhaustive()
    }
}

/// DataFusion's view of [`QuerySnapshots`]: the catalog list and its only catalog.
#[derive(Debug, Clone)]
pub(crate) struct QueryCatalog {
    pub snapshots: Arc<QuerySnapshots>,
    /// Objects of PostgreSQL's catalogs.
    pub objects: Arc<Objects>,
    /// Functions that are tables, which `SHOW FUNCTIONS` lists as well.
    pub table_functions: HashMap<String, Arc<TableFunction>>,
}

impl CatalogProviderList for QueryCatalog {
    fn register_catalog(&self, _: String, _: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(self.clone()) as _)
    }
}

impl CatalogProvider for QueryCatalog {
    fn schema_names(&self) -> Vec<String> {
        SchemaName::ALL.map(|s| s.name().to_owned()).to_vec()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if let Some(catalogs) = self.catalogs(name) {
            return Some(Arc::new(catalogs));
        }
        let known = name == DEFAULT_SCHEMA || SchemaName::parse(name).is_some();
        known.then(|| {
            let catalogs = self.catalogs(PG_CATALOG).filter(|_| name == DEFAULT_SCHEMA);
            Arc::new(QuerySchema { name: name.to_owned(), snapshots: self.snapshots.clone(), catalogs }) as _
        })
    }
}

impl QueryCatalog {
    /// Returns a schema of PostgreSQL's catalogs.
    fn catalogs(&self, name: &str) -> Option<CatalogSchema> {
        let name = [PG_CATALOG, INFORMATION_SCHEMA].into_iter().find(|known| *known == name)?;
        let others = (name == INFORMATION_SCHEMA).then(|| {
            let own = InformationSchemaProvider::new(Arc::new(self.clone()));
            Arc::new(own.with_table_functions(self.table_functions.clone())) as Arc<dyn SchemaProvider>
        });
        Some(CatalogSchema { name, objects: self.objects.clone(), others })
    }
}

#[derive(Debug)]
struct QuerySchema {
    name: String,
    snapshots: Arc<QuerySnapshots>,
    /// PostgreSQL's catalogs, whose names need no schema.
    catalogs: Option<CatalogSchema>,
}

#[async_trait]
impl SchemaProvider for QuerySchema {
    fn table_names(&self) -> Vec<String> {
        SchemaName::parse(&self.name).map_or_else(Vec::new, |s| self.snapshots.names(s).sorted.clone())
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        if let Some(catalog) = self.catalogs.as_ref().and_then(|catalogs| catalogs.catalog(name)) {
            return Ok(Some(catalog));
        }
        // names were checked before planning, so a name not found here is a table function
        let Ok(found) = self.snapshots.locate(&self.name, name) else { return Ok(None) };
        self.snapshots.note(&self.name, name, &found);
        let (schema, name) = found;
        let taken = self.snapshots.provider(schema, &name).await;
        taken.map(Some).map_err(to_datafusion)
    }

    /// Takes no snapshot, so that listing tables is cheap.
    async fn table_type(&self, name: &str) -> PlanResult<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.snapshots.locate(&self.name, name).is_ok()
    }
}

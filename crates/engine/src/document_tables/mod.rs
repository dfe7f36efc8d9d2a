//! Tables of queries whose rows are the documents of a collection: `@store(type='documents')`.
//!
//! The queries of a partition and its documents have the same owner, so a table reads and changes the documents in the
//! turn of the record: they are part of the partition's state, and a replay changes them again in the same way. All rows
//! are in the partition in which queries with tables run; the definition of the collection says so, and every other
//! writer follows it (`docs/rfcs/0012-document-tables.md`).

mod condition;
mod layout;
mod slot;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use tidemill_connect::{Catalog, OptionError, OptionSpec, Options, StoreContext, StoreType, TableStore};
use tidemill_docs::{CollectionSpec, Direction, DocsError, DocumentCommand, ErrorCode, IndexSpec, Store};
use tidemill_flow::table::store_context;
use tidemill_flow::{Registry, catalog};
use tidemill_rules::Program;
use tidemill_types::{Error, PartitionId, Result, partition_of_key};

use layout::Layout;
pub use slot::DocumentSlot;
use table::DocumentTable;

/// Options of the store.
const OPTIONS: &[OptionSpec] = &[OptionSpec::text(
    "collection",
    "Collection whose documents are the rows; default: the name of the table.",
)];

/// The stores that the engine itself is.
static OWN_STORES: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
    let mut stores = Catalog::default();
    stores.add_store(DocumentStoreType);
    Arc::new(stores)
});

/// Lets queries that a registry compiles have tables in the document store.
pub fn register(registry: &mut Registry) {
    registry.set_own_stores(OWN_STORES.clone());
}

/// Type of store with documents of the engine.
#[derive(Debug, Clone, Copy)]
pub struct DocumentStoreType;

impl StoreType for DocumentStoreType {
    fn name(&self) -> &'static str {
        "documents"
    }

    fn summary(&self) -> &'static str {
        "Keeps the rows of a table as documents of this program, which rules, SQL and MongoDB drivers share."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn table_option(&self) -> Option<&'static str> {
        Some("collection")
    }

    fn create(&self, options: &Options, context: &StoreContext) -> Result<Box<dyn TableStore>, OptionError> {
        let layout = layout(options, context)?;
        let spec = CollectionSpec::new(layout.collection.clone());
        Ok(Box::new(DocumentTable::new(layout, spec, DocumentSlot::default())))
    }
}

fn layout(options: &Options, context: &StoreContext) -> Result<Arc<Layout>, OptionError> {
    let collection = options.get("collection").unwrap_or(&context.table).to_owned();
    if let Err(wrong) = (Store::new(tidemill_docs::StoreLimits::default()))
        .create_collection(&CollectionSpec::new(collection.clone()))
    {
        return Err(OptionError::option("collection", wrong.to_string()));
    }
    if let Some(field) = context.schema.fields.iter().find(|field| field.name == "_id") {
        return Err(OptionError::connector(format!(
            "a table of documents has no column `{}`: the primary key is the `_id`; give the column another name",
            field.name
        )));
    }
    Ok(Arc::new(Layout::new(collection, context)))
}

/// The collections of an app that tables have, by name.
#[derive(Debug, Default)]
pub struct DocumentTables {
    collections: BTreeMap<String, TableCollection>,
    /// Number of partitions of the app.
    partitions: u32,
    /// The partition in which queries with tables run.
    home: u32,
}

/// A collection that tables have.
#[derive(Debug, Clone)]
struct TableCollection {
    /// A table with this collection, as people know it.
    table: String,
    primary_key: Vec<String>,
    /// Columns with an index.
    indexes: Vec<String>,
}

impl DocumentTables {
    /// Adds the tables of a file.
    ///
    /// Errors: `Invalid` if a collection has another primary key elsewhere, or cannot be in one partition.
    pub fn add_file<'t>(
        &mut self,
        file: &str,
        tables: impl Iterator<Item = &'t catalog::CatalogTable>,
        program: &Program,
        (partitions, home): (u32, u32),
    ) -> Result<()> {
        (self.partitions, self.home) = (partitions, home);
        for table in tables.filter(|table| is_document_table(table)) {
            let layout = table_layout(table, file)?;
            let name = |column: &usize| table.attributes[*column].0.clone();
            let primary_key: Vec<String> = table.primary_key.iter().map(name).collect();
            let title = format!("table `{}` of {file}", table.name);
            let entity = program.entities().iter().find(|entity| entity.name == layout.collection);
            if let Some(entity) = entity {
                if partitions > 1 {
                    return Err(Error::invalid(format!(
                        "{title}: the rules have `{}` as an entity whose documents are {}, and a query reads those of one \
                         partition: set partitions = 1 under [settings] of a new data directory, or give the table another \
                         collection",
                        entity.name,
                        entity.spec().placement()
                    )));
                }
                if primary_key != [entity.key.clone()] {
                    return Err(Error::invalid(format!(
                        "{title}: the rules have `{}` as an entity with the key `{}`: write @primaryKey('{}')",
                        entity.name, entity.key, entity.key
                    )));
                }
            }
            let known = self.collections.entry(layout.collection.clone()).or_insert_with(|| {
                TableCollection { table: title.clone(), primary_key: primary_key.clone(), indexes: vec![] }
            });
            if known.primary_key != primary_key {
                return Err(Error::invalid(format!(
                    "{title}: {} has the same collection `{}` with another primary key; they must be equal",
                    known.table, layout.collection
                )));
            }
            for column in table.indexes.iter().map(name) {
                if !known.indexes.contains(&column) {
                    known.indexes.push(column);
                }
            }
        }
        Ok(())
    }

    /// Returns whether no collection is a table.
    pub fn is_empty(&self) -> bool {
        self.collections.is_empty()
    }

    /// Returns the definition with which a collection is created that has none yet; `None` if no table has it.
    pub fn new_collection(&self, name: &str) -> Option<CollectionSpec> {
        let table = self.collections.get(name)?;
        let indexes = table.indexes.iter().map(|column| index(column));
        Some(self.placed(CollectionSpec { indexes: indexes.collect(), ..CollectionSpec::new(name) }))
    }

    /// Creates the collections that are missing, and indexes.
    ///
    /// Errors: `Conflict` if there are documents elsewhere.
    pub fn prepare(&self, store: &mut Store) -> Result<()> {
        for (name, table) in &self.collections {
            let Some(old) = store.collection(name) else {
                let spec = self.new_collection(name);
                spec.map_or(Ok(()), |spec| store.create_collection(&spec))?;
                continue;
            };
            let wanted = self.placed(old.spec().clone());
            if old.spec().options.view.is_some() {
                return Err(Error::conflict(format!(
                    "{}: `{name}` is a view: its documents have other collections",
                    table.table
                )));
            }
            if !old.spec().has_same_placement(&wanted) {
                if !old.is_empty() {
                    return Err(Error::conflict(format!(
                        "{}: the collection `{name}` has {} documents in a partition that are {}, and a query reads those of \
                         partition {} only: move them to a new collection, or delete them first",
                        table.table,
                        old.len(),
                        old.spec().placement(),
                        self.home
                    )));
                }
                store.drop_collection(name);
                store.create_collection(&wanted)?;
            }
            let collection = store.require(name)?;
            for column in &table.indexes {
                // a client may have made it already, perhaps with more fields
                let exists = collection.spec().indexes.iter().any(|known| {
                    known.fields.first().is_some_and(|(field, _)| field == column)
                        || known.name == index(column).name
                });
                if !exists {
                    collection.create_index(index(column))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the definition with all documents in the partition of the queries. One partition has all anyway.
    fn placed(&self, spec: CollectionSpec) -> CollectionSpec {
        match self.partitions {
            1 => spec,
            _ => CollectionSpec {
                gathered: true,
                home: Some(self.home),
                replicated: false,
                shard_key: None,
                ..spec
            },
        }
    }

    /// Returns a command as it may change the collections of tables: one that is created has the documents where tables read
    /// them.
    ///
    /// Errors: one of them would get another name.
    pub fn checked(&self, command: DocumentCommand) -> Result<DocumentCommand> {
        match command {
            DocumentCommand::CreateCollection(spec) if self.collections.contains_key(&spec.name) => {
                Ok(DocumentCommand::CreateCollection(self.placed(spec)))
            }
            DocumentCommand::Rename { collection, to, drop_target } => {
                let table = [&collection, &to].into_iter().find_map(|name| self.collections.get(name));
                match table {
                    Some(table) => {
                        let message = format!(
                            "`{collection}` cannot be renamed to `{to}`: {} has its rows under this name",
                            table.table
                        );
                        Err(DocsError::new(ErrorCode::IllegalOperation, message).into())
                    }
                    None => Ok(DocumentCommand::Rename { collection, to, drop_target }),
                }
            }
            other => Ok(other),
        }
    }
}

/// Returns the partition of a collection whose documents are all in one.
pub fn gathering_partition(spec: &CollectionSpec, partitions: u32) -> PartitionId {
    match spec.home.filter(|home| *home < partitions) {
        Some(home) => PartitionId(home),
        None => partition_of_key(spec.name.as_bytes(), partitions),
    }
}

fn index(column: &str) -> IndexSpec {
    IndexSpec {
        name: format!("{column}_1"),
        fields: vec![(column.to_owned(), Direction::Ascending)],
        ..IndexSpec::default()
    }
}

fn is_document_table(table: &catalog::CatalogTable) -> bool {
    table.store.as_ref().is_some_and(|location| location.is_own)
}

/// Opens a table whose store the engine is.
///
/// Errors: wrong options, which the compiler has refused before.
pub fn open(
    table: &catalog::CatalogTable,
    file: &str,
    tables: &DocumentTables,
    slot: &DocumentSlot,
) -> Result<Box<dyn TableStore>> {
    let layout = table_layout(table, file)?;
    let spec = tables.new_collection(&layout.collection);
    let spec = spec.unwrap_or_else(|| CollectionSpec::new(layout.collection.clone()));
    Ok(Box::new(DocumentTable::new(layout, spec, slot.clone())))
}

fn table_layout(table: &catalog::CatalogTable, file: &str) -> Result<Arc<Layout>> {
    let location = table.store.as_ref().ok_or_else(|| Error::internal("a table without a store"))?;
    let wrong = |e: OptionError| Error::invalid(e.to_string());
    let options = Options::check(OPTIONS, &location.store.options, "the store `documents`").map_err(wrong)?;
    layout(&options, &store_context(table, file, Arc::default())).map_err(wrong)
}

//! Objects that the catalogs of a statement have: schemas, relations, their columns and constraints, roles.
//!
//! They are those that the caller may read, at the moment of the statement. Their oids are given among the names of all objects, so
//! that each caller has the same ones. Names are read once for a statement; columns are read where a catalog asks for them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use tidemill_access::Principal;
use tidemill_database::{ClientSession, StatementInfo};
use tidemill_types::{Result, column};
use tidemill_zones::TableSnapshot;

use super::declared::Declared;
use super::definitions::{self, Definition};
use super::oid::Oids;
use super::quoting::quoted;
use super::tables::{FunctionRow, function_rows};
use datafusion::catalog::TableProvider;

use crate::docs::DocsTable;
use crate::execution::statements::Statements;
use crate::schema_name::SchemaName;
use crate::tables::{SystemTable, Tables};

/// Name of the schema of PostgreSQL's catalogs.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// Name of the schema of the standard's catalogs.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// Oid of `pg_catalog`.
pub(super) const PG_CATALOG_OID: u32 = 11;
/// Oid of `information_schema` in PostgreSQL 15.
pub(super) const INFORMATION_SCHEMA_OID: u32 = 13_207;
/// Oid of the administrator, who owns everything.
pub(super) const OWNER_OID: u32 = 10;
/// Name of the administrator.
pub(super) const OWNER: &str = "admin";
/// Oid of the only database, which is that of `template1` in PostgreSQL.
pub(super) const DATABASE_OID: u32 = 1;

/// Column of a collection by which its documents differ.
const ID: &str = "_id";

/// Objects that a statement sees.
pub(crate) struct Objects {
    /// Tables that the caller may read.
    tables: Arc<dyn Tables>,
    /// All tables, for their names only.
    all: Arc<dyn Tables>,
    pub principal: Principal,
    pub session: Option<Arc<ClientSession>>,
    statements: Arc<Statements>,
    /// Names and kinds of the functions of SQL.
    pub functions: Arc<[(String, FunctionKind)]>,
    read: OnceLock<Read>,
    function_rows: OnceLock<FunctionRows>,
}

/// Functions as the catalogs list them.
pub(super) struct FunctionRows {
    pub all: Vec<FunctionRow>,
    by_oid: HashMap<u32, usize>,
}

/// Kind of a function of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FunctionKind {
    Scalar,
    Aggregate,
    Window,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

/// Objects that are read once for a statement.
struct Read {
    schemas: Vec<SchemaObject>,
    relations: Vec<Relation>,
    by_oid: HashMap<u32, Place>,
    by_name: HashMap<String, Vec<usize>>,
    caller: u32,
}

/// Place of an object with an oid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Relation(usize),
    /// Constraint of a relation, by the numbers of both.
    Constraint(usize, usize),
    /// Index of a constraint.
    Index(usize, usize),
}

/// A schema.
#[derive(Debug)]
pub(super) struct SchemaObject {
    pub oid: u32,
    pub name: &'static str,
    pub comment: &'static str,
}

/// A table, or a view of the catalogs.
#[derive(Debug)]
pub(super) struct Relation {
    pub oid: u32,
    pub schema: &'static str,
    pub schema_oid: u32,
    pub name: String,
    /// `r` or `v`.
    pub kind: &'static str,
    /// True if its name alone finds it.
    pub is_visible: bool,
    pub source: Source,
    pub constraints: Vec<Constraint>,
    pub comment: Option<String>,
    /// Comments of columns, by name.
    pub column_comments: Vec<(String, &'static str)>,
}

/// Origin of the columns of a relation.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// Columns of a stream, which its declaration tells.
    Stream(SchemaRef),
    Collection,
    System,
    Catalog(&'static Definition),
}

/// Primary key or columns that are unique, with the index of the same name.
#[derive(Debug)]
pub(super) struct Constraint {
    pub oid: u32,
    pub index: u32,
    pub name: String,
    pub is_primary: bool,
    pub columns: Vec<String>,
}

impl Objects {
    pub fn new(
        tables: Arc<dyn Tables>,
        all: Arc<dyn Tables>,
        principal: Principal,
        session: Option<Arc<ClientSession>>,
        statements: Arc<Statements>,
        functions: Arc<[(String, FunctionKind)]>,
    ) -> Arc<Self> {
        let (read, function_rows) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { tables, all, principal, session, statements, functions, read, function_rows })
    }

    /// Returns the objects of a data directory without any table.
    #[cfg(test)]
    pub fn of_nothing() -> Arc<Self> {
        struct Nothing;
        impl Tables for Nothing {
            fn streams(&self) -> Vec<String> {
                vec![]
            }

            fn stream(&self, _: &str) -> Result<Option<TableSnapshot>> {
                Ok(None)
            }

            fn collections(&self) -> Vec<String> {
                vec![]
            }

            fn collection(&self, _: &str) -> Result<Option<Vec<bytes::Bytes>>> {
                Ok(None)
            }

            fn system_tables(&self) -> Vec<String> {
                vec![]
            }

            fn system(&self, _: &str) -> Result<Option<SystemTable>> {
                Ok(None)
            }

            fn object_store(&self) -> (url::Url, Arc<dyn object_store::ObjectStore>) {
                unreachable!("nothing is scanned")
            }
        }
        let tables: Arc<dyn Tables> = Arc::new(Nothing);
        Self::new(tables.clone(), tables, Principal::admin(), None, Arc::default(), Arc::from([]))
    }

    fn read(&self) -> &Read {
        self.read.get_or_init(|| {
            // one who sees all tables needs no second list of them
            let all = (!Arc::ptr_eq(&self.tables, &self.all)).then_some(self.all.as_ref());
            Read::new(self.tables.as_ref(), all, &self.principal)
        })
    }

    pub(super) fn schemas(&self) -> &[SchemaObject] {
        &self.read().schemas
    }

    /// Returns the relations, those of the catalogs last.
    pub(super) fn relations(&self) -> &[Relation] {
        &self.read().relations
    }

    /// Returns the object with this oid, with its relation.
    pub(super) fn by_oid(&self, oid: i64) -> Option<(Place, &Relation)> {
        let read = self.read();
        let place = *read.by_oid.get(&u32::try_from(oid).ok()?)?;
        let (Place::Relation(at) | Place::Constraint(at, _) | Place::Index(at, _)) = place;
        Some((place, &read.relations[at]))
    }

    /// Returns the relation with this oid.
    pub(super) fn relation(&self, oid: i64) -> Option<&Relation> {
        self.by_oid(oid).and_then(|(place, relation)| matches!(place, Place::Relation(_)).then_some(relation))
    }

    /// Returns the constraint with this oid, or whose index has it.
    pub(super) fn constraint(&self, oid: i64) -> Option<(&Relation, &Constraint)> {
        let (place, relation) = self.by_oid(oid)?;
        match place {
            Place::Relation(_) => None,
            Place::Constraint(_, at) | Place::Index(_, at) => Some((relation, &relation.constraints[at])),
        }
    }

    /// Returns the functions.
    pub(super) fn function_rows(&self) -> &FunctionRows {
        self.function_rows.get_or_init(|| {
            let all = function_rows(&self.functions);
            let by_oid = all.iter().enumerate().map(|(at, function)| (function.oid, at)).collect();
            FunctionRows { all, by_oid }
        })
    }

    /// Returns the name of the function with this oid.
    pub(super) fn function(&self, oid: i64) -> Option<&str> {
        let rows = self.function_rows();
        let at = *rows.by_oid.get(&u32::try_from(oid).ok()?)?;
        Some(&rows.all[at].name)
    }

    /// Returns the relation with exactly this name, in a schema or among those that are found without one.
    pub(super) fn by_name(&self, schema: Option<&str>, name: &str) -> Option<&Relation> {
        let read = self.read();
        let places = read.by_name.get(name)?;
        let fits = |relation: &&Relation| match schema {
            Some(schema) => relation.schema == schema,
            None => relation.is_visible,
        };
        places.iter().map(|at| &read.relations[*at]).find(fits)
    }

    /// Returns the number of the caller's role.
    pub(super) fn caller(&self) -> u32 {
        self.read().caller
    }

    /// Returns the roles that the caller knows: the administrator, and itself.
    pub(super) fn roles(&self) -> Vec<(u32, &str, bool)> {
        let caller = (self.caller(), self.principal.name(), self.is_administrator());
        let owner = (OWNER_OID, OWNER, true);
        if caller.0 == owner.0 { vec![owner] } else { vec![owner, caller] }
    }

    /// Returns whether the caller may do everything.
    pub(super) fn is_administrator(&self) -> bool {
        self.principal.can_everywhere(tidemill_access::Action::Administer)
    }

    /// Returns the statements that the caller manages.
    pub(super) fn statements(&self) -> Vec<StatementInfo> {
        match self.is_administrator() {
            true => self.statements.list(),
            false => self.statements.list_of(&self.principal),
        }
    }

    /// Returns the bytes of a table: those of its files and its tail, or of its documents.
    ///
    /// Errors: `Unavailable`.
    pub(super) fn bytes(&self, relation: &Relation) -> Result<i64> {
        let bytes = match &relation.source {
            Source::Stream(_) => self.tables.stored(&relation.name).map_or(0, |table| {
                table.tablets().iter().map(|tablet| tablet.size).sum::<u64>() + table.pending_bytes()
            }),
            Source::Collection => {
                let documents = self.tables.collection(&relation.name)?;
                documents.iter().flatten().map(|document| document.len() as u64).sum()
            }
            Source::System | Source::Catalog(_) => 0,
        };
        Ok(i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    /// Returns the number of rows of a table.
    ///
    /// Errors: `Unavailable`.
    pub(super) fn row_count(&self, relation: &Relation) -> Result<i64> {
        let of_table = |table: TableSnapshot| {
            let stored = table.tablets.iter().map(|tablet| tablet.rows).sum::<u64>();
            stored + table.tail.iter().map(|batch| batch.num_rows() as u64).sum::<u64>()
        };
        let rows = match &relation.source {
            Source::Stream(_) => self.tables.stream(&relation.name)?.map_or(0, of_table),
            Source::Collection => {
                self.tables.collection(&relation.name)?.map_or(0, |found| found.len() as u64)
            }
            Source::System => match self.tables.system(&relation.name)? {
                Some(SystemTable::Rows(rows)) => rows.num_rows() as u64,
                Some(SystemTable::Events(table)) => of_table(table),
                None => 0,
            },
            Source::Catalog(_) => 0,
        };
        Ok(i64::try_from(rows).unwrap_or(i64::MAX))
    }

    /// Returns the columns of a relation. Those of a collection are found in its documents.
    ///
    /// Errors: `Unavailable`.
    pub(super) async fn columns(&self, relation: &Relation) -> Result<SchemaRef> {
        Ok(match &relation.source {
            Source::Stream(columns) => columns.clone(),
            Source::Catalog(definition) => definition.fields.clone(),
            Source::System => match self.tables.system(&relation.name)? {
                Some(SystemTable::Rows(rows)) => rows.schema(),
                Some(SystemTable::Events(snapshot)) => snapshot.schema,
                None => Arc::new(Schema::empty()),
            },
            Source::Collection => match self.tables.collection(&relation.name)? {
                Some(documents) => DocsTable::infer(&relation.name, documents).await?.schema(),
                None => Arc::new(Schema::empty()),
            },
        })
    }
}

/// Returns the schemas, names and oids of all tables, those of the catalogs as well.
pub(crate) fn relation_oids(all: &dyn Tables) -> impl Iterator<Item = (&'static str, String, u32)> {
    let read = Read::new(all, None, &Principal::admin());
    read.relations.into_iter().map(|relation| (relation.schema, relation.name, relation.oid))
}

impl Read {
    /// Reads the objects that `tables` has; `all` are the tables of everybody, if those are others.
    fn new(tables: &dyn Tables, all: Option<&dyn Tables>, principal: &Principal) -> Self {
        let mut oids = Oids::default();
        let schemas: Vec<SchemaObject> = [
            (SchemaName::Events, "streams: their events, from the moment they are acknowledged"),
            (SchemaName::Docs, "collections: their documents"),
            (SchemaName::System, "state of the system"),
        ]
        .into_iter()
        .map(|(schema, comment)| SchemaObject {
            oid: oids.give("schema", "", schema.name()),
            name: schema.name(),
            comment,
        })
        .chain([
            SchemaObject { oid: PG_CATALOG_OID, name: PG_CATALOG, comment: "catalogs of PostgreSQL" },
            SchemaObject {
                oid: INFORMATION_SCHEMA_OID,
                name: INFORMATION_SCHEMA,
                comment: "catalogs of the SQL standard",
            },
        ])
        .collect();
        let mut relations = Vec::new();
        for (at, schema) in SchemaName::ALL.into_iter().enumerate() {
            let names_of = |tables: &dyn Tables| match schema {
                SchemaName::Events => tables.streams(),
                SchemaName::Docs => tables.collections(),
                SchemaName::System => tables.system_tables(),
            };
            let mut names = names_of(all.unwrap_or(tables));
            names.sort_unstable();
            names.dedup();
            let visible: Option<HashSet<String>> = all.map(|_| names_of(tables).into_iter().collect());
            for name in names {
                let own = oids.give("relation", schema.name(), &name);
                let is_hidden = visible.as_ref().is_some_and(|visible| !visible.contains(&name));
                let relation =
                    Relation::new(tables, (schema, schemas[at].oid), own, name, &mut oids, is_hidden);
                relations.extend(relation);
            }
        }
        let mut uses: HashMap<String, usize> = HashMap::new();
        for relation in &relations {
            *uses.entry(relation.name.to_lowercase()).or_default() += 1;
        }
        for relation in &mut relations {
            relation.is_visible = uses.get(&relation.name.to_lowercase()) == Some(&1)
                && definitions::find(PG_CATALOG, &relation.name).is_none();
        }
        relations.extend(definitions::all().iter().map(Relation::of_catalog));
        // after the others, whose numbers are those of all callers
        let caller = match principal.name() {
            OWNER => OWNER_OID,
            name => oids.give("role", "", name),
        };
        let mut by_oid = HashMap::new();
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, relation) in relations.iter().enumerate() {
            by_name.entry(relation.name.clone()).or_default().push(at);
            by_oid.insert(relation.oid, Place::Relation(at));
            for (number, constraint) in relation.constraints.iter().enumerate() {
                by_oid.insert(constraint.oid, Place::Constraint(at, number));
                by_oid.insert(constraint.index, Place::Index(at, number));
            }
        }
        Self { schemas, relations, by_oid, by_name, caller }
    }
}

impl Relation {
    /// Creates the relation of a table; `None` for one that is hidden, whose constraints keep their numbers.
    fn new(
        tables: &dyn Tables,
        (schema, schema_oid): (SchemaName, u32),
        oid: u32,
        name: String,
        oids: &mut Oids,
        is_hidden: bool,
    ) -> Option<Self> {
        let mut constraint = |suffix: &str, is_primary: bool, columns: Vec<String>| {
            let name = format!("{name}_{suffix}");
            let oid = oids.give("constraint", schema.name(), &name);
            let index = oids.give("index", schema.name(), &name);
            Constraint { oid, index, name, is_primary, columns }
        };
        let mut constraints = match schema {
            SchemaName::Events => {
                let address = [column::PARTITION, column::OFFSET, column::ROW].map(str::to_owned).into();
                vec![constraint("pkey", true, address), constraint("id_key", false, vec![])]
            }
            SchemaName::Docs => vec![constraint("pkey", true, vec![ID.to_owned()])],
            SchemaName::System => vec![],
        };
        if is_hidden {
            return None;
        }
        let mut column_comments = Vec::new();
        let mut comment = None;
        let source = match schema {
            SchemaName::Docs => Source::Collection,
            SchemaName::System => Source::System,
            SchemaName::Events => {
                let declared = Declared::of(tables, &name)?;
                if let [_, unique] = constraints.as_mut_slice() {
                    unique.columns.clone_from(&declared.id);
                }
                column_comments = declared.column_comments();
                comment = Some(declared.comment());
                Source::Stream(declared.columns)
            }
        };
        constraints.retain(|constraint| !constraint.columns.is_empty());
        Some(Self {
            oid,
            schema: schema.name(),
            schema_oid,
            name,
            kind: "r",
            is_visible: false,
            source,
            constraints,
            comment,
            column_comments,
        })
    }

    fn of_catalog(definition: &'static Definition) -> Self {
        let is_own = definition.schema == PG_CATALOG;
        Self {
            oid: definition.oid,
            schema: definition.schema,
            schema_oid: if is_own { PG_CATALOG_OID } else { INFORMATION_SCHEMA_OID },
            name: definition.name.to_owned(),
            kind: definition.kind,
            is_visible: is_own,
            source: Source::Catalog(definition),
            constraints: vec![],
            comment: None,
            column_comments: vec![],
        }
    }

    /// Returns whether it is one of the catalogs.
    pub fn is_catalog(&self) -> bool {
        matches!(self.source, Source::Catalog(_))
    }

    /// Returns the name of the column with a number, of a relation whose declaration tells it.
    pub fn declared_column(&self, number: i64) -> Option<&str> {
        let columns = match &self.source {
            Source::Stream(columns) => columns,
            Source::Catalog(definition) => &definition.fields,
            Source::Collection | Source::System => return None,
        };
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        columns.fields().get(at).map(|field| field.name().as_str())
    }

    /// Returns the name as a statement has to write it.
    pub fn written(&self) -> String {
        let name = quoted(&self.name);
        if self.is_visible { name } else { format!("{}.{name}", quoted(self.schema)) }
    }
}

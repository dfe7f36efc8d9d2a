//! Objects that the catalogs of a statement have: schemas, relations, their columns and constraints, roles.
//!
//! They are those that the caller may read, at the moment of the statement. Their oids are given among the names of all objects, so
//! that each caller has the same ones. Names are read once for a statement; columns are read where a catalog asks for them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_access::Principal;
use tidemill_database::{ClientSession, StatementInfo};
use tidemill_types::{Result, column};

use super::definitions::{self, Definition};
use super::oid::Oids;
use datafusion::catalog::TableProvider;

use crate::docs::DocsTable;
use crate::schema_name::SchemaName;
use crate::statements::Statements;
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

/// What is read once.
struct Read {
    schemas: Vec<SchemaObject>,
    relations: Vec<Relation>,
    by_oid: HashMap<u32, Place>,
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
        let read = OnceLock::new();
        Arc::new(Self { tables, all, principal, session, statements, functions, read })
    }

    /// Returns the objects of a data directory without any table.
    #[cfg(test)]
    pub fn of_nothing() -> Arc<Self> {
        struct Nothing;
        impl Tables for Nothing {
            fn streams(&self) -> Vec<String> {
                vec![]
            }

            fn stream(&self, _: &str) -> Result<Option<tidemill_zones::TableSnapshot>> {
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

    /// Returns the constraint of which an oid, or that of whose index, is this one.
    pub(super) fn constraint(&self, oid: i64) -> Option<(&Relation, &Constraint)> {
        let (place, relation) = self.by_oid(oid)?;
        match place {
            Place::Relation(_) => None,
            Place::Constraint(_, at) | Place::Index(_, at) => Some((relation, &relation.constraints[at])),
        }
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
        for (at, relation) in relations.iter().enumerate() {
            by_oid.insert(relation.oid, Place::Relation(at));
            for (number, constraint) in relation.constraints.iter().enumerate() {
                by_oid.insert(constraint.oid, Place::Constraint(at, number));
                by_oid.insert(constraint.index, Place::Index(at, number));
            }
        }
        Self { schemas, relations, by_oid, caller }
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

/// Column of a collection by which its documents differ.
const ID: &str = "_id";

/// Declaration of a stream.
struct Declared {
    columns: SchemaRef,
    key: Option<String>,
    id: Vec<String>,
    time: Option<String>,
}

impl Declared {
    fn of(tables: &dyn Tables, name: &str) -> Option<Self> {
        if let Some(table) = tables.stored(name) {
            let stream = table.stream();
            let field = |at: &usize| stream.fields.get(*at).map(|field| field.name.clone());
            return Some(Self {
                columns: table.schema().clone(),
                key: stream.key.as_ref().and_then(field),
                id: stream.id.iter().filter_map(field).collect(),
                time: stream.time.as_ref().and_then(field),
            });
        }
        let snapshot = tables.stream(name).ok().flatten()?;
        let field = |at: &usize| snapshot.schema.fields().get(*at).map(|field| field.name().clone());
        Some(Self {
            key: snapshot.key.as_ref().and_then(field),
            id: snapshot.id.iter().filter_map(field).collect(),
            time: snapshot.time_field.as_ref().and_then(field),
            columns: snapshot.schema.clone(),
        })
    }

    fn comment(&self) -> String {
        let mut parts = vec!["stream".to_owned()];
        parts.extend((!self.id.is_empty()).then(|| format!("id {}", self.id.join(", "))));
        parts.extend(self.key.as_ref().map(|key| format!("key {key}")));
        parts.extend(self.time.as_ref().map(|time| format!("time {time}")));
        parts.join("; ")
    }

    fn column_comments(&self) -> Vec<(String, &'static str)> {
        let mut comments: Vec<(String, &'static str)> = vec![
            (column::TIME.to_owned(), "event time"),
            (column::EXTRA.to_owned(), "fields that the stream does not declare, as a JSON object"),
            (column::RECEIVED.to_owned(), "time at which the record was appended to the log"),
            (column::PARTITION.to_owned(), "partition of the log"),
            (column::OFFSET.to_owned(), "offset of the record in its partition"),
            (column::ROW.to_owned(), "row in the record"),
        ];
        for name in &self.id {
            let is_key = self.key.as_ref() == Some(name);
            let both = if is_key { "id of the event, and key of its partition" } else { "id of the event" };
            comments.push((name.clone(), both));
        }
        if let Some(key) = self.key.as_ref().filter(|key| !self.id.contains(key)) {
            comments.push((key.clone(), "key: its values select the partition"));
        }
        if let Some(time) =
            self.time.as_ref().filter(|time| !self.id.contains(time) && self.key.as_ref() != Some(time))
        {
            comments.push((time.clone(), "event time as it was sent"));
        }
        comments
    }
}

/// Returns a name as SQL writes it: in double quotes unless it is a word in lower case.
pub(super) fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&name);
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Words that PostgreSQL keeps for itself.
const RESERVED: [&str; 76] = [
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
];

/// Returns the number and the modifier of PostgreSQL's type for a column, as the wire describes it.
pub(super) fn type_of(field: &Field) -> (u32, i64) {
    if let Some(name) = field.metadata().get(tidemill_database::PG_TYPE) {
        let ty = definitions::type_of_name(&name.replace("char[]", "\"char\"[]"));
        let ty = if name == "char" { definitions::type_of_name("\"char\"") } else { ty };
        return (ty.map_or(25, |ty| ty.oid), -1);
    }
    (type_oid(field.data_type()), modifier(field.data_type()))
}

/// Returns precision and scale of a decimal as PostgreSQL packs them.
fn modifier(ty: &DataType) -> i64 {
    match ty {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if *scale >= 0 =>
        {
            (i64::from(*precision) << 16) + i64::from(*scale) + 4
        }
        _ => -1,
    }
}

fn type_oid(ty: &DataType) -> u32 {
    match ty {
        DataType::Boolean => 16,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => 21,
        DataType::UInt16 | DataType::Int32 => 23,
        DataType::UInt32 | DataType::Int64 => 20,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => 1700,
        DataType::Float16 | DataType::Float32 => 700,
        DataType::Float64 => 701,
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 25,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => 17,
        DataType::Date32 | DataType::Date64 => 1082,
        DataType::Time32(_) | DataType::Time64(_) => 1083,
        DataType::Timestamp(_, None) => 1114,
        DataType::Timestamp(_, Some(_)) => 1184,
        DataType::Duration(_) | DataType::Interval(_) => 1186,
        DataType::Dictionary(_, values) => type_oid(values),
        DataType::RunEndEncoded(_, values) => type_oid(values.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => {
            let list = definitions::type_of_oid(type_oid(item.data_type())).map_or(0, |ty| ty.list);
            if list == 0 || list == 199 { 114 } else { list }
        }
        _ => 114,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_have_to_be() {
        for (name, written) in [
            ("a_1", "a_1"),
            ("_id", "_id"),
            ("TakeOff", "\"TakeOff\""),
            ("order", "\"order\""),
            ("1a", "\"1a\""),
            ("a\"b", "\"a\"\"b\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(name), written);
        }
    }
}

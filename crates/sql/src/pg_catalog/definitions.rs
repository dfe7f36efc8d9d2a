//! Names and columns of PostgreSQL's catalogs, and its own types, from two tables in text.
//!
//! ```text
//! pg_catalog.pg_am 2601 r: oid oid!, amname name!, …     a table with rows; `!` marks columns that are never null
//! -pg_catalog.pg_policy 3256 r: …                         a table that has no rows, because there are no such objects
//! ```
//!
//! A catalog that is in neither form is not there: an empty one would say that there are no such objects.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use tidemill_database::PG_TYPE;

/// A table or view of `pg_catalog` or `information_schema`.
#[derive(Debug)]
pub(super) struct Definition {
    pub schema: &'static str,
    pub name: &'static str,
    pub oid: u32,
    /// `r` for a table, `v` for a view.
    pub kind: &'static str,
    /// True if there are never rows.
    pub is_empty: bool,
    pub columns: Vec<ColumnDefinition>,
    /// Columns as Arrow's fields; metadata names PostgreSQL's type where Arrow's does not tell it.
    pub fields: SchemaRef,
}

/// A column of a catalog.
#[derive(Debug)]
pub(super) struct ColumnDefinition {
    pub name: &'static str,
    /// Name of the type, `text[]` for a list.
    pub ty: &'static str,
    pub is_nullable: bool,
}

/// A type of PostgreSQL.
#[derive(Debug)]
pub(super) struct TypeDefinition {
    pub oid: u32,
    pub name: &'static str,
    pub length: i64,
    pub is_by_value: bool,
    pub kind: &'static str,
    pub category: &'static str,
    pub is_preferred: bool,
    pub delimiter: &'static str,
    /// Type of the elements of a list, 0 for others.
    pub element: u32,
    /// Type of lists of this type, 0 for none.
    pub list: u32,
    pub alignment: &'static str,
    pub storage: &'static str,
    pub collation: u32,
    /// Functions for input, output, and both in the binary format: names and oids.
    pub functions: [(&'static str, u32); 4],
    /// Name as `format_type` writes it.
    pub sql_name: &'static str,
}

static DEFINITIONS: LazyLock<Vec<Definition>> =
    LazyLock::new(|| include_str!("tables.txt").lines().filter_map(definition).collect());

static BY_NAME: LazyLock<HashMap<(&str, &str), usize>> =
    LazyLock::new(|| DEFINITIONS.iter().enumerate().map(|(at, d)| ((d.schema, d.name), at)).collect());

static TYPES: LazyLock<Vec<TypeDefinition>> =
    LazyLock::new(|| include_str!("types.txt").lines().filter_map(type_definition).collect());

static TYPES_BY_OID: LazyLock<HashMap<u32, usize>> =
    LazyLock::new(|| TYPES.iter().enumerate().map(|(at, ty)| (ty.oid, at)).collect());

/// Returns all catalogs, by schema and name.
pub(super) fn all() -> &'static [Definition] {
    &DEFINITIONS
}

/// Returns the catalog with this name.
pub(super) fn find(schema: &str, name: &str) -> Option<&'static Definition> {
    BY_NAME.get(&(schema, name)).map(|at| &DEFINITIONS[*at])
}

/// Returns all types.
pub(super) fn types() -> &'static [TypeDefinition] {
    &TYPES
}

/// Returns the type with this number.
pub(super) fn type_of_oid(oid: u32) -> Option<&'static TypeDefinition> {
    TYPES_BY_OID.get(&oid).map(|at| &TYPES[*at])
}

/// Returns the type with this name, as catalogs or as SQL write it.
pub(super) fn type_of_name(name: &str) -> Option<&'static TypeDefinition> {
    let name = name.trim().to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let name = match name {
        "int" => "integer",
        "float" => "double precision",
        "decimal" => "numeric",
        "\"char\"" => "char",
        "char" | "character" => "bpchar",
        other => other.split('(').next().unwrap_or(other).trim_end(),
    };
    TYPES.iter().find(|ty| ty.name == name || ty.sql_name == name)
}

fn definition(line: &'static str) -> Option<Definition> {
    let (is_empty, line) = match line.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (head, columns) = line.split_once(": ")?;
    let mut head = head.split(' ');
    let (schema, name) = head.next()?.split_once('.')?;
    let (oid, kind) = (head.next()?.parse().ok()?, head.next()?);
    let columns = columns.split(", ").filter_map(|column| {
        let (name, ty) = column.split_once(' ')?;
        let (ty, is_nullable) = match ty.strip_suffix('!') {
            Some(ty) => (ty, false),
            None => (ty, true),
        };
        Some(ColumnDefinition { name, ty, is_nullable })
    });
    let columns: Vec<ColumnDefinition> = columns.collect();
    let fields: Vec<Field> = columns.iter().map(ColumnDefinition::field).collect();
    Some(Definition { schema, name, oid, kind, is_empty, columns, fields: Arc::new(Schema::new(fields)) })
}

impl ColumnDefinition {
    pub fn field(&self) -> Field {
        let field = Field::new(self.name, data_type(self.ty), self.is_nullable);
        match is_plain(self.ty) {
            true => field,
            false => field.with_metadata(HashMap::from([(PG_TYPE.to_owned(), self.ty.to_owned())])),
        }
    }
}

/// Returns whether Arrow's type alone tells PostgreSQL's.
fn is_plain(ty: &str) -> bool {
    matches!(
        ty,
        "bool"
            | "int2"
            | "int4"
            | "int8"
            | "float4"
            | "float8"
            | "text"
            | "timestamptz"
            | "text[]"
            | "int2[]"
    )
}

/// Returns Arrow's type of a column of a catalog. Numbers of objects are 64 bits wide, so that they are compared with numbers of
/// any width without conversion.
pub(super) fn data_type(ty: &str) -> DataType {
    let list = |item: DataType| DataType::List(Arc::new(Field::new_list_field(item, true)));
    match ty {
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" | "oid" | "regclass" | "regproc" | "regtype" | "xid" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "int2vector" => list(DataType::Int16),
        "oidvector" => list(DataType::Int64),
        other => match other.strip_suffix("[]") {
            Some(item) => list(data_type(item)),
            None => DataType::Utf8,
        },
    }
}

fn type_definition(line: &'static str) -> Option<TypeDefinition> {
    let mut words = line.splitn(18, ' ');
    let mut word = || words.next();
    let (oid, name, length, is_by_value) =
        (word()?.parse().ok()?, word()?, word()?.parse().ok()?, word()? == "t");
    let (kind, category, is_preferred, delimiter) = (word()?, word()?, word()? == "t", word()?);
    let (element, list) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let (alignment, storage, collation) = (word()?, word()?, word()?.parse().ok()?);
    let mut function = || {
        let text = word()?;
        match text.split_once('=') {
            Some((name, oid)) => Some((name, oid.parse().ok()?)),
            None => Some((text, 0)),
        }
    };
    let functions = [function()?, function()?, function()?, function()?];
    let sql_name = word()?;
    Some(TypeDefinition {
        oid,
        name,
        length,
        is_by_value,
        kind,
        category,
        is_preferred,
        delimiter,
        element,
        list,
        alignment,
        storage,
        collation,
        functions,
        sql_name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_definition() {
        assert_eq!(all().len(), include_str!("tables.txt").lines().count());
        assert_eq!(types().len(), include_str!("types.txt").lines().count());
        let class = find("pg_catalog", "pg_class").unwrap();
        assert_eq!((class.oid, class.kind, class.is_empty, class.columns.len()), (1259, "r", false, 33));
        assert!(find("pg_catalog", "pg_policy").unwrap().is_empty);
        assert!(all().iter().all(|definition| definition.oid < 16_384));
    }

    #[test]
    fn types_are_found_by_all_of_their_names() {
        for (name, oid) in [
            ("int4", 23),
            ("integer", 23),
            ("pg_catalog.int8", 20),
            ("timestamp with time zone", 1184),
            ("text[]", 1009),
            ("_text", 1009),
            ("\"char\"", 18),
            ("character varying(3)", 1043),
        ] {
            assert_eq!(type_of_name(name).map(|ty| ty.oid), Some(oid), "{name}");
        }
        assert!(type_of_name("hstore").is_none());
        for ty in types() {
            assert!(ty.element == 0 || type_of_oid(ty.element).is_some(), "{}", ty.name);
            assert!(ty.list == 0 || type_of_oid(ty.list).is_some(), "{}", ty.name);
        }
    }
}

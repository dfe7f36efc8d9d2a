//! Conversion of a stream's table schema to Delta's, and schema evolution.

use std::collections::BTreeMap;

use arrow_schema::{DataType, Field as ArrowField};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidemill_types::{Error, FieldType, Result, StreamSchema};

use super::action::{Metadata, Protocol};
use crate::error::internal;

/// Key of the field metadata that holds the declared type where Delta's type is ambiguous (`object` is stored
/// as a string).
const TYPE_KEY: &str = "tidemill.type";

/// Delta's schema: always a struct.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeltaSchema {
    #[serde(rename = "type")]
    kind: String,
    fields: Vec<DeltaField>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct DeltaField {
    name: String,
    /// Type name of a primitive type, an object for nested types.
    #[serde(rename = "type")]
    ty: Json,
    nullable: bool,
    #[serde(default)]
    metadata: BTreeMap<String, Json>,
}

/// Schema change required to open a table with a declaration.
#[derive(Debug, PartialEq)]
pub(crate) struct SchemaEvolution {
    /// The schema to commit; `None` when the stored one suffices.
    pub commit: Option<String>,
    /// Columns that files contain and that are no longer declared, in stored order.
    pub removed: Vec<ArrowField>,
}

/// A column of a stored table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredColumn {
    /// Column name.
    pub name: String,
    /// Type name, as in the declaration if known, else as in Delta.
    pub type_name: String,
    /// Type of the field stored in the column; `None` for a type that no field has.
    pub ty: Option<FieldType>,
    /// True if a live file may contain values of the column. Otherwise it can be redeclared with any type.
    pub in_files: bool,
}

impl StoredColumn {
    /// Returns whether a field of type `ty` can be stored in the column.
    pub fn accepts(&self, ty: FieldType) -> bool {
        !self.in_files || self.ty == Some(ty)
    }
}

impl DeltaSchema {
    /// Returns the schema of the table of `stream`, in the order of [`StreamSchema::table_schema`].
    ///
    /// Errors: `Invalid` for field names that Delta or its readers do not support.
    pub fn of(stream: &StreamSchema) -> Result<Self> {
        check_names(stream)?;
        let table = stream.table_schema();
        let fields = table.fields().iter().map(|f| {
            let object = stream.fields.iter().any(|d| d.name == *f.name() && d.ty == FieldType::Object);
            let metadata = if object {
                BTreeMap::from([(TYPE_KEY.to_owned(), Json::from(FieldType::Object.name()))])
            } else {
                BTreeMap::new()
            };
            Ok(DeltaField {
                name: f.name().clone(),
                ty: Json::from(type_name(f.data_type())?),
                nullable: f.is_nullable(),
                metadata,
            })
        });
        Ok(Self { kind: "struct".to_owned(), fields: fields.collect::<Result<_>>()? })
    }

    /// Encodes the schema as Delta stores it.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| internal("a Delta schema cannot be written as JSON", e))
    }
}

fn type_name(ty: &DataType) -> Result<&'static str> {
    Ok(match ty {
        DataType::Boolean => "boolean",
        DataType::Int32 => "integer",
        DataType::Int64 => "long",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 => "string",
        DataType::Timestamp(_, _) => "timestamp",
        other => return Err(Error::internal(format!("no Delta type for the Arrow type {other}"))),
    })
}

/// Characters that Parquet readers of Delta tables reject in a column name without column mapping.
const FORBIDDEN: [char; 11] = [' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '=', '.'];

/// Field of fault streams with the reason of the failure.
const FAULT_REASON: &str = "_error";

/// Checks that the fields of a stream can be columns of its table.
///
/// Errors: `Invalid` for field names that Delta or its readers do not support.
pub(crate) fn check_names(stream: &StreamSchema) -> Result<()> {
    let mut seen = BTreeMap::new();
    for field in &stream.fields {
        let is_reserved = field.name.starts_with('_') && field.name != FAULT_REASON;
        if field.name.is_empty() || is_reserved || field.name.contains(FORBIDDEN) {
            return Err(Error::invalid(format!(
                "stream `{}`: field `{}` cannot be a table column: expected a name without a leading `_` and without \
                 spaces or any of , ; {{ }} ( ) = .",
                stream.name, field.name
            )));
        }
        if let Some(other) = seen.insert(field.name.to_lowercase(), &field.name) {
            return Err(Error::invalid(format!(
                "stream `{}`: fields `{other}` and `{}` differ in case only, which readers of the table do not \
                 distinguish: rename one of them",
                stream.name, field.name
            )));
        }
    }
    Ok(())
}

/// Rejects tables that require features which Tidemill does not support.
///
/// Errors: `Invalid` naming these features.
pub(crate) fn check_protocol(table: &str, protocol: &Protocol, metadata: &Metadata) -> Result<()> {
    let readers = protocol.reader_features.iter().flatten();
    let writers = protocol.writer_features.iter().flatten();
    let unknown: Vec<&str> = readers
        .chain(writers)
        .map(String::as_str)
        .filter(|f| !matches!(*f, "appendOnly" | "invariants"))
        .collect();
    let versions =
        matches!(protocol.min_reader_version, 1 | 3) && matches!(protocol.min_writer_version, 1 | 2 | 7);
    let mut reasons = Vec::new();
    if !versions {
        reasons.push(format!("protocol {}/{}", protocol.min_reader_version, protocol.min_writer_version));
    }
    if !unknown.is_empty() {
        reasons.push(format!("the features {}", unknown.join(", ")));
    }
    if !metadata.partition_columns.is_empty() {
        reasons.push(format!("the partition columns {}", metadata.partition_columns.join(", ")));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "table `{table}` uses {}, which Tidemill does not write: another program has created or upgraded it; restore \
         its Delta log from before, or give the stream another name",
        reasons.join(" and ")
    )))
}

/// Returns the columns of a stored table; `in_files` returns whether a live file may contain a column.
///
/// Errors: `Corrupt` when the stored schema cannot be parsed.
pub(crate) fn columns(
    table: &str,
    stored: &str,
    in_files: &dyn Fn(&str) -> bool,
) -> Result<Vec<StoredColumn>> {
    let stored = parse(table, stored)?;
    let column = |field: &DeltaField| StoredColumn {
        name: field.name.clone(),
        type_name: field.display_type(),
        ty: field.field_type(),
        in_files: in_files(&field.name),
    };
    Ok(stored.fields.iter().map(column).collect())
}

fn parse(table: &str, stored: &str) -> Result<DeltaSchema> {
    serde_json::from_str(stored).map_err(|e| {
        Error::corrupt(format!("table `{table}`: its Delta schema cannot be read")).with_source(e)
    })
}

/// Compares the stored schema with the declaration of `stream`; `in_files` returns whether a live file may
/// contain a column.
///
/// Fields may be added and removed; the columns of removed fields stay. A column that files contain keeps its
/// type, because stored values could not be read as another type. The order of the fields is irrelevant,
/// columns are matched by name.
///
/// Errors: `Invalid` naming every conflicting field and a remedy; `Corrupt` when the stored schema cannot be
/// parsed.
pub(crate) fn evolve(
    stream: &StreamSchema,
    stored: &str,
    in_files: &dyn Fn(&str) -> bool,
) -> Result<SchemaEvolution> {
    let stored = parse(&stream.name, stored)?;
    let wanted = DeltaSchema::of(stream)?;
    let mut faults = Vec::new();
    let mut merged = wanted.fields.clone();
    let mut removed = Vec::new();
    for old in &stored.fields {
        let held = in_files(&old.name);
        match wanted.fields.iter().find(|f| f.name.eq_ignore_ascii_case(&old.name)) {
            Some(new) if new.name != old.name && held => faults.push(format!(
                "field `{}` differs from the stored column `{}` in case only, which readers of the table do not distinguish",
                new.name, old.name
            )),
            Some(new) if new.name == old.name && held && new.display_type() != old.display_type() => {
                faults.push(format!(
                    "field `{}` is stored as {} but declared as {}",
                    old.name,
                    old.display_type(),
                    new.display_type()
                ));
            }
            Some(_) => {}
            None if held => {
                merged.push(old.clone());
                removed.extend(old.field_type().map(|ty| ArrowField::new(&old.name, ty.arrow(), true)));
            }
            None => {}
        }
    }
    let added = wanted.fields.iter().filter(|new| !stored.fields.iter().any(|old| old.name == new.name));
    faults.extend(added.filter(|f| !f.nullable).map(|f| format!("column `{}` is not in the table", f.name)));
    if !faults.is_empty() {
        return Err(Error::invalid(format!(
            "stream `{}` does not fit its table: {}. Declare the stored fields with their types, give the field another \
             name, or give the changed stream another name",
            stream.name,
            faults.join("; ")
        )));
    }
    let serves = merged.iter().all(|new| {
        stored.fields.iter().any(|old| old.name == new.name && old.display_type() == new.display_type())
    });
    let commit =
        if serves { None } else { Some(DeltaSchema { kind: stored.kind, fields: merged }.to_json()?) };
    Ok(SchemaEvolution { commit, removed })
}

impl DeltaField {
    /// Returns the type name for messages.
    fn display_type(&self) -> String {
        match self.metadata.get(TYPE_KEY).unwrap_or(&self.ty) {
            Json::String(name) => name.clone(),
            nested => nested.to_string(),
        }
    }

    /// Returns the type of the stored field; `None` if no field has that type.
    fn field_type(&self) -> Option<FieldType> {
        Some(match self.display_type().as_str() {
            "boolean" => FieldType::Bool,
            "integer" => FieldType::Int,
            "long" => FieldType::Long,
            "float" => FieldType::Float,
            "double" => FieldType::Double,
            "string" => FieldType::String,
            "timestamp" => FieldType::Time,
            "object" => FieldType::Object,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::Field;

    fn stream(fields: &[(&str, FieldType)]) -> StreamSchema {
        let fields = fields.iter().map(|(n, ty)| Field::new(*n, *ty)).collect();
        StreamSchema { name: "S".to_owned(), fields, key: None, id: vec![], time: None }
    }

    /// Computes the schema evolution when files contain all columns.
    fn against(stream: &StreamSchema, stored: &str) -> Result<SchemaEvolution> {
        evolve(stream, stored, &|_| true)
    }

    fn serves(removed: &[&str]) -> SchemaEvolution {
        let removed = removed.iter().map(|name| ArrowField::new(*name, DataType::Utf8, true));
        SchemaEvolution { commit: None, removed: removed.collect() }
    }

    #[test]
    fn fields_come_and_go_and_keep_their_types() {
        let old = stream(&[("a", FieldType::Int), ("o", FieldType::Object)]);
        let text = DeltaSchema::of(&old).unwrap().to_json().unwrap();
        assert_eq!(against(&old, &text).unwrap(), serves(&[]));
        let reordered = stream(&[("o", FieldType::Object), ("a", FieldType::Int)]);
        assert_eq!(against(&reordered, &text).unwrap(), serves(&[]));
        let wider = stream(&[("a", FieldType::Int), ("o", FieldType::Object), ("b", FieldType::Time)]);
        let new = against(&wider, &text).unwrap().commit.unwrap();
        assert_eq!(against(&wider, &new).unwrap(), serves(&[]));

        let narrow = stream(&[("a", FieldType::Int)]);
        assert_eq!(against(&narrow, &text).unwrap(), serves(&["o"]));
        let other = stream(&[("a", FieldType::Int), ("c", FieldType::Bool)]);
        let replaced = against(&other, &text).unwrap();
        assert_eq!(replaced.removed, serves(&["o"]).removed);
        assert_eq!(against(&old, &replaced.commit.unwrap()).unwrap().removed.len(), 1, "`o` is there again");

        let refused = against(&stream(&[("a", FieldType::Long), ("o", FieldType::String)]), &text)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("`a` is stored as integer but declared as long"), "{refused}");
        assert!(refused.contains("`o` is stored as object but declared as string"), "{refused}");
        let refused = against(&stream(&[("A", FieldType::Int)]), &text).unwrap_err().to_string();
        assert!(refused.contains("`A` differs from the stored column `a` in case only"), "{refused}");
    }

    #[test]
    fn columns_that_no_file_holds_bind_nobody() {
        let old = stream(&[("a", FieldType::Int), ("b", FieldType::Int)]);
        let text = DeltaSchema::of(&old).unwrap().to_json().unwrap();
        let new = stream(&[("a", FieldType::Int), ("B", FieldType::String)]);
        let evolution = evolve(&new, &text, &|name| name == "a" || name.starts_with('_')).unwrap();
        assert_eq!(evolution.removed, []);
        let commit = evolution.commit.unwrap();
        let names: Vec<_> = columns("S", &commit, &|_| true).unwrap().into_iter().map(|c| c.name).collect();
        assert_eq!(names[..2], ["a", "B"]);
        assert!(!names.contains(&"b".to_owned()));
    }

    #[test]
    fn names_that_readers_refuse() {
        for name in ["", "_x", "a b", "a.b"] {
            assert!(DeltaSchema::of(&stream(&[(name, FieldType::Int)])).is_err(), "{name:?}");
        }
        let twins = DeltaSchema::of(&stream(&[("id", FieldType::Int), ("ID", FieldType::Int)])).unwrap_err();
        assert!(twins.to_string().contains("differ in case only"));
    }
}

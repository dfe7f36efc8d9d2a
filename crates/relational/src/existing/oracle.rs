//! The catalog of Oracle.

use tidemill_types::{FieldType, Value};

use super::{ExistingTable, existing_columns, grouped, string, text};
use crate::database::DatabaseConnection;
use crate::dialect::Dialect;
use crate::error::DbError;
use crate::param::Param;
use crate::schema::TableName;

const FIND: &str = "SELECT owner, object_name FROM all_objects \
    WHERE object_type IN ('TABLE', 'VIEW') AND object_name IN (:1, :2) \
    AND owner IN (coalesce(:3, sys_context('USERENV', 'CURRENT_SCHEMA')), coalesce(:4, sys_context('USERENV', 'CURRENT_SCHEMA'))) \
    ORDER BY CASE WHEN object_name = :5 THEN 0 ELSE 1 END FETCH FIRST 1 ROWS ONLY";

/// `data_default` itself cannot be compared.
const COLUMNS: &str = "SELECT c.column_name, c.data_type || CASE \
    WHEN c.data_type IN ('VARCHAR2', 'CHAR') THEN '(' || c.char_length || CASE c.char_used WHEN 'C' THEN ' CHAR)' ELSE ' BYTE)' END \
    WHEN c.data_type IN ('NVARCHAR2', 'NCHAR') THEN '(' || c.char_length || ')' \
    WHEN c.data_type = 'NUMBER' AND c.data_precision IS NOT NULL \
    THEN '(' || c.data_precision || CASE WHEN c.data_scale > 0 THEN ',' || c.data_scale END || ')' END, \
    lower(regexp_replace(c.data_type, '\\([0-9]+\\)', '')), \
    CASE WHEN c.nullable = 'N' AND c.default_length IS NULL AND c.virtual_column = 'NO' THEN 1 ELSE 0 END, \
    CASE WHEN c.virtual_column = 'YES' OR EXISTS (SELECT 1 FROM all_tab_identity_cols i WHERE i.owner = c.owner \
    AND i.table_name = c.table_name AND i.column_name = c.column_name AND i.generation_type = 'ALWAYS') THEN 1 ELSE 0 END \
    FROM all_tab_cols c WHERE c.owner = :1 AND c.table_name = :2 AND c.hidden_column = 'NO' ORDER BY c.column_id";

/// Constraints may be checked by indexes that are not unique, and unique indexes need no constraint.
const KEYS: &str = "SELECT name, column_name FROM (SELECT 'c ' || k.constraint_name AS name, c.column_name, c.position \
    FROM all_constraints k JOIN all_cons_columns c ON c.owner = k.owner AND c.constraint_name = k.constraint_name \
    WHERE k.owner = :1 AND k.table_name = :2 AND k.constraint_type IN ('P', 'U') AND k.status = 'ENABLED' \
    UNION ALL SELECT 'i ' || i.index_name, c.column_name, c.column_position FROM all_indexes i \
    JOIN all_ind_columns c ON c.index_owner = i.owner AND c.index_name = i.index_name \
    WHERE i.table_owner = :3 AND i.table_name = :4 AND i.uniqueness = 'UNIQUE' AND i.index_type = 'NORMAL') \
    ORDER BY name, position";

pub(super) async fn find(
    db: &mut DatabaseConnection,
    name: &TableName,
) -> Result<Option<ExistingTable>, DbError> {
    let folded = name.folded(Dialect::Oracle);
    let schema = |schema: &Option<String>| Param {
        ty: FieldType::String,
        value: schema.as_ref().map_or(Value::Missing, |schema| Value::Str(schema.clone().into())),
    };
    let params = [
        string(&name.name),
        string(&folded.name),
        schema(&name.schema),
        schema(&folded.schema),
        string(&name.name),
    ];
    let found = db.query(FIND, &params, &[FieldType::String; 2]).await?;
    let Some([owner, table]) = found.first().map(Vec::as_slice) else { return Ok(None) };
    let (owner, table) = (text(owner), text(table));
    let types = [FieldType::String, FieldType::String, FieldType::String, FieldType::Bool, FieldType::Bool];
    let columns = db.query(COLUMNS, &[string(&owner), string(&table)], &types).await?;
    let params = [string(&owner), string(&table), string(&owner), string(&table)];
    let keys = db.query(KEYS, &params, &[FieldType::String; 2]).await?;
    Ok(Some(ExistingTable {
        name: TableName { schema: Some(owner), name: table },
        columns: existing_columns(&columns),
        unique_keys: grouped(&keys),
    }))
}

/// Returns whether columns of the type `base` take values of type `ty`.
pub(super) fn takes(base: &str, ty: FieldType) -> bool {
    let is = |names: &[&str]| names.contains(&base);
    let is_text = is(&["varchar2", "nvarchar2", "char", "nchar", "clob", "nclob"]);
    let is_time = is(&["date", "timestamp", "timestamp with time zone"]);
    match ty {
        FieldType::Bool | FieldType::Int | FieldType::Long => is(&["number"]),
        FieldType::Float | FieldType::Double => is(&["number", "float", "binary_float", "binary_double"]),
        FieldType::String => is_text || is_time,
        FieldType::Time => is_time,
        FieldType::Object => is_text,
    }
}

//! The catalog of SQL Server.

use tidemill_types::{FieldType, Value};

use super::{ExistingTable, existing_columns, grouped, string, text};
use crate::database::DatabaseConnection;
use crate::dialect::Dialect;
use crate::error::DbError;
use crate::param::Param;
use crate::schema::TableName;

/// Returns the schema, the name and the number of an object. Without a schema the server searches that of the user, then
/// `dbo`.
const FIND: &str = "SELECT CAST(o.object_id AS bigint), SCHEMA_NAME(o.schema_id), o.name FROM sys.objects AS o \
    WHERE o.object_id = OBJECT_ID(@P1) AND o.type IN ('U', 'V')";

const COLUMNS: &str = "SELECT c.name, TYPE_NAME(c.system_type_id) + CASE \
    WHEN c.max_length = -1 AND TYPE_NAME(c.system_type_id) IN ('varchar', 'nvarchar', 'varbinary') THEN '(max)' \
    WHEN TYPE_NAME(c.system_type_id) IN ('nchar', 'nvarchar') THEN '(' + CAST(c.max_length / 2 AS varchar(9)) + ')' \
    WHEN TYPE_NAME(c.system_type_id) IN ('char', 'varchar', 'binary', 'varbinary') THEN '(' + CAST(c.max_length AS varchar(9)) + ')' \
    WHEN TYPE_NAME(c.system_type_id) IN ('decimal', 'numeric') \
    THEN '(' + CAST(c.precision AS varchar(9)) + ',' + CAST(c.scale AS varchar(9)) + ')' \
    WHEN TYPE_NAME(c.system_type_id) IN ('datetime2', 'datetimeoffset', 'time') THEN '(' + CAST(c.scale AS varchar(9)) + ')' \
    ELSE '' END, TYPE_NAME(c.system_type_id), \
    CAST(CASE WHEN c.is_nullable = 0 AND c.default_object_id = 0 AND g.is_generated = 0 THEN 1 ELSE 0 END AS bit), \
    CAST(g.is_generated AS bit) \
    FROM sys.columns AS c CROSS APPLY (SELECT CASE WHEN c.is_computed = 1 OR c.is_identity = 1 \
    OR TYPE_NAME(c.system_type_id) = 'timestamp' \
    OR COALESCE(COLUMNPROPERTY(c.object_id, c.name, 'GeneratedAlwaysType'), 0) <> 0 THEN 1 ELSE 0 END AS is_generated) AS g \
    WHERE c.object_id = @P1 ORDER BY c.column_id";

const KEYS: &str = "SELECT CAST(i.index_id AS bigint), c.name FROM sys.indexes AS i \
    JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.key_ordinal > 0 \
    JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id \
    WHERE i.object_id = @P1 AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 \
    ORDER BY i.index_id, k.key_ordinal";

pub(super) async fn find(
    db: &mut DatabaseConnection,
    name: &TableName,
) -> Result<Option<ExistingTable>, DbError> {
    let quoted = name.quoted(Dialect::SqlServer);
    let types = [FieldType::Long, FieldType::String, FieldType::String];
    let found = db.query(FIND, &[string(&quoted)], &types).await?;
    let Some([Value::Int(id), schema, table]) = found.first().map(Vec::as_slice) else { return Ok(None) };
    let id = [Param { ty: FieldType::Long, value: Value::Int(*id) }];
    let types = [FieldType::String, FieldType::String, FieldType::String, FieldType::Bool, FieldType::Bool];
    let columns = db.query(COLUMNS, &id, &types).await?;
    let keys = db.query(KEYS, &id, &[FieldType::Long, FieldType::String]).await?;
    Ok(Some(ExistingTable {
        name: TableName { schema: Some(text(schema)), name: text(table) },
        columns: existing_columns(&columns),
        unique_keys: grouped(&keys),
    }))
}

/// Returns whether columns of the type `base` take values of type `ty`.
pub(super) fn takes(base: &str, ty: FieldType) -> bool {
    let is = |names: &[&str]| names.contains(&base);
    let is_text = is(&["char", "varchar", "text", "nchar", "nvarchar", "ntext"]);
    let is_integer = is(&["tinyint", "smallint", "int", "bigint"]);
    let is_exact = is(&["decimal", "numeric", "money", "smallmoney"]);
    match ty {
        FieldType::Bool => is_integer || is(&["bit"]),
        FieldType::Int | FieldType::Long => is_integer || is(&["decimal", "numeric"]),
        FieldType::Float | FieldType::Double => is_exact || is(&["real", "float"]),
        FieldType::String => {
            is_text
                || is(&["uniqueidentifier", "xml", "json", "date", "time"])
                || is(&["datetime", "smalldatetime", "datetime2", "datetimeoffset"])
        }
        FieldType::Time => is(&["datetime", "smalldatetime", "datetime2", "datetimeoffset"]),
        FieldType::Object => is_text || is(&["xml", "json"]),
    }
}

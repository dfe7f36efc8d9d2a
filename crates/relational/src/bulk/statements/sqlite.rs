//! SQLite: a prepared statement for each row of the table, or of a temporary one.

use super::{Operation, Statements, Write, join};

pub fn statements(write: &Write<'_>) -> Statements {
    let (table, columns, on) = (&write.table, write.columns(), write.on());
    let staging = write.dialect.quote(write.staging);
    let apply = match write.operation {
        Operation::Insert => None,
        Operation::Update => {
            let set = join(write.others(), ", ", |t| format!("{0} = s.{0}", t.quoted));
            Some(format!("UPDATE {table} AS t SET {set} FROM {staging} AS s WHERE {on}"))
        }
        Operation::Upsert => {
            let conflict = write.on_conflict();
            // without WHERE SQLite takes ON for that of a join
            Some(format!(
                "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging} WHERE true {conflict}"
            ))
        }
        Operation::Delete => {
            let names = join(write.keys(), ", ", |t| t.quoted.clone());
            Some(format!("DELETE FROM {table} WHERE ({names}) IN (SELECT {names} FROM {staging})"))
        }
    };
    let create_staging = apply.as_ref().map(|_| {
        format!("CREATE TEMPORARY TABLE IF NOT EXISTS {staging} AS SELECT {columns} FROM {table} LIMIT 0")
    });
    let (row, row_params) = write.row(&write.on_conflict());
    let delete_staging = format!("DELETE FROM {staging}");
    Statements {
        table: table.clone(),
        columns,
        row,
        row_params,
        create_staging,
        truncate_staging: apply.as_ref().map(|_| delete_staging.clone()),
        delete_staging,
        staging,
        use_index: None,
        apply,
    }
}

//! MariaDB and MySQL: LOAD DATA into the table, or into a temporary one with the same key.

use super::{Operation, Statements, Write, join};

pub fn statements(write: &Write<'_>) -> Statements {
    let (table, columns, on) = (&write.table, write.columns(), write.on());
    let staging = write.dialect.quote(write.staging);
    // the temporary table has few rows, and the other one is found by its key
    let join_by_key = if write.is_unique { "STRAIGHT_JOIN" } else { "JOIN" };
    let conflict = on_duplicate(write);
    let apply = match write.operation {
        Operation::Insert => None,
        Operation::Update => {
            let set = join(write.others(), ", ", |t| format!("t.{0} = s.{0}", t.quoted));
            Some(format!("UPDATE {staging} AS s {join_by_key} {table} AS t ON {on} SET {set}"))
        }
        // without WHERE MariaDB takes ON for that of a join
        Operation::Upsert => Some(format!(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging} WHERE true {conflict}"
        )),
        Operation::Delete => Some(format!("DELETE t FROM {staging} AS s {join_by_key} {table} AS t ON {on}")),
    };
    let create_staging = apply.as_ref().map(|_| {
        // keys that are equal for the server, such as texts of other case, are one: the last row wins
        let unique = match write.keys().all(|key| key.is_indexable) {
            true => format!(" (UNIQUE KEY ({}))", join(write.keys(), ", ", |t| t.quoted.clone())),
            false => String::new(),
        };
        format!(
            "CREATE TEMPORARY TABLE IF NOT EXISTS {staging}{unique} ENGINE=InnoDB AS \
             SELECT {columns} FROM {table} LIMIT 0"
        )
    });
    let (row, row_params) = write.row(&conflict);
    Statements {
        table: table.clone(),
        columns,
        row,
        row_params,
        create_staging,
        truncate_staging: apply.as_ref().map(|_| format!("TRUNCATE TABLE {staging}")),
        delete_staging: format!("DELETE FROM {staging}"),
        staging,
        use_index: None,
        apply,
    }
}

fn on_duplicate(write: &Write<'_>) -> String {
    let assign = |t: &super::Target| format!("{0} = VALUES({0})", t.quoted);
    let set = join(write.others(), ", ", assign);
    let set = if set.is_empty() { join(write.keys(), ", ", assign) } else { set };
    format!("ON DUPLICATE KEY UPDATE {set}")
}

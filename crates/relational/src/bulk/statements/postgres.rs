//! PostgreSQL: COPY into the table, or into a temporary one that empties itself at the end of each transaction.

use super::{Operation, Statements, Write, join};

/// PostgreSQL has no statistics of a temporary table. It takes its rows for wider than they are, and a batch for so large a
/// part of the other table that it reads all of it. Ends with the transaction.
const USE_INDEX: &str = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

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
            Some(format!(
                "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging} WHERE true {conflict}"
            ))
        }
        Operation::Delete => Some(format!("DELETE FROM {table} AS t USING {staging} AS s WHERE {on}")),
    };
    let create_staging = apply.as_ref().map(|_| {
        format!(
            "CREATE TEMPORARY TABLE IF NOT EXISTS {staging} ON COMMIT DELETE ROWS AS \
             SELECT {columns} FROM {table} WITH NO DATA"
        )
    });
    let (row, row_params) = write.row(&write.on_conflict());
    Statements {
        table: table.clone(),
        columns,
        row,
        row_params,
        create_staging,
        truncate_staging: None,
        delete_staging: format!("DELETE FROM {staging}"),
        staging,
        use_index: (apply.is_some() && write.operation != Operation::Upsert && write.is_unique)
            .then_some(USE_INDEX),
        apply,
    }
}

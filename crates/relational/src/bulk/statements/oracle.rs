//! Oracle: the statement for one row, to which the driver binds the values of many rows at once.

use super::{Operation, Statements, Write, join};

pub fn statements(write: &Write<'_>) -> Statements {
    let (row, row_params) = match write.operation {
        Operation::Upsert => merge(write),
        _ => write.row(""),
    };
    Statements {
        table: write.table.clone(),
        columns: write.columns(),
        row,
        row_params,
        staging: String::new(),
        create_staging: None,
        truncate_staging: None,
        delete_staging: String::new(),
        use_index: None,
        apply: None,
    }
}

/// Each mark is a parameter of its own, so those of the values are the last ones.
fn merge(write: &Write<'_>) -> (String, Vec<usize>) {
    let mut params = vec![];
    let mut parameter = |index: usize| {
        params.push(index);
        write.targets[index].parameter(write.dialect, params.len() - 1)
    };
    let keys = write.keys().count();
    let mut equation = |index: usize| format!("{} = {}", write.targets[index].quoted, parameter(index));
    let on = (0..keys).map(|index| format!("t.{}", equation(index))).collect::<Vec<_>>().join(" AND ");
    let set = (keys..write.targets.len()).map(&mut equation).collect::<Vec<_>>().join(", ");
    let values = (0..write.targets.len()).map(&mut parameter).collect::<Vec<_>>().join(", ");
    let update = if set.is_empty() { String::new() } else { format!("WHEN MATCHED THEN UPDATE SET {set} ") };
    let (table, columns) = (&write.table, join(write.targets, ", ", |t| t.quoted.clone()));
    let sql = format!(
        "MERGE INTO {table} t USING dual ON ({on}) {update}\
         WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
    );
    (sql, params)
}

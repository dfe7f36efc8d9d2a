//! SQL Server: a bulk load into a temporary table, from which MERGE and such write the rows.
//!
//! The columns of the temporary table are `c1`, `c2` and so on. They have the types of the values, so that the server
//! checks and converts them when they reach the table, and the order of texts of the table's columns. MERGE fails if
//! two of its rows have the same key for the server, such as `a` and `a` with a blank: then they are written one
//! after the other.

use super::{Operation, Statements, Write, join};

pub fn statements(write: &Write<'_>) -> Statements {
    let (table, columns) = (&write.table, write.columns());
    let staging = write.dialect.quote(&format!("#{}", write.staging));
    let mut numbered = write.targets.iter().enumerate().map(|(index, t)| (index + 1, t)).collect::<Vec<_>>();
    let sources = list(&numbered, ", ", |number, _| format!("s.c{number}"));
    let typed = list(&numbered, ", ", |number, t| {
        format!("CAST({} AS {}) AS c{number}", t.quoted, write.dialect.scalar_type(t.ty))
    });
    let others = numbered.split_off(write.keys().count());
    let on = list(&numbered, " AND ", |number, t| format!("t.{} = s.c{number}", t.quoted));
    let set = list(&others, ", ", |number, t| format!("{} = s.c{number}", t.quoted));
    let apply = match write.operation {
        Operation::Insert => format!("INSERT INTO {table} ({columns}) SELECT {sources} FROM {staging} AS s"),
        Operation::Update => {
            format!(
                "MERGE INTO {table} AS t USING {staging} AS s ON {on} WHEN MATCHED THEN UPDATE SET {set};"
            )
        }
        Operation::Upsert => merge(write, &format!("{staging} AS s"), &on, &set, &sources),
        Operation::Delete => format!("DELETE t FROM {table} AS t JOIN {staging} AS s ON {on}"),
    };
    let name = format!("tempdb..{staging}").replace('\'', "''");
    let create =
        format!("IF OBJECT_ID(N'{name}') IS NULL SELECT TOP (0) {typed} INTO {staging} FROM {table}");
    let (row, row_params) = match write.operation {
        Operation::Upsert => upsert_row(write),
        _ => write.row(""),
    };
    Statements {
        table: table.clone(),
        columns,
        row,
        row_params,
        create_staging: Some(create),
        truncate_staging: Some(format!("TRUNCATE TABLE {staging}")),
        delete_staging: format!("DELETE FROM {staging}"),
        staging,
        use_index: None,
        apply: Some(apply),
    }
}

/// Writes one row by its parameters. A parameter may occur several times.
fn upsert_row(write: &Write<'_>) -> (String, Vec<usize>) {
    let params: Vec<usize> = (0..write.targets.len()).collect();
    let parameter = |index: usize| write.dialect.parameter(index, write.targets[index].ty);
    let equation = |index: &usize| format!("{} = {}", write.targets[*index].quoted, parameter(*index));
    let (keys, others) = params.split_at(write.keys().count());
    let on = keys.iter().map(|index| format!("t.{}", equation(index))).collect::<Vec<_>>().join(" AND ");
    let set = others.iter().map(equation).collect::<Vec<_>>().join(", ");
    let values = params.iter().map(|index| parameter(*index)).collect::<Vec<_>>().join(", ");
    (merge(write, "(VALUES (1)) AS s (n)", &on, &set, &values), params)
}

/// Returns a `MERGE` whose lock prevents others from inserting the key between the search for it and the
/// insert.
fn merge(write: &Write<'_>, source: &str, on: &str, set: &str, values: &str) -> String {
    let (table, columns) = (&write.table, join(write.targets, ", ", |t| t.quoted.clone()));
    let update = if set.is_empty() { String::new() } else { format!("WHEN MATCHED THEN UPDATE SET {set} ") };
    format!(
        "MERGE INTO {table} WITH (HOLDLOCK) AS t USING {source} ON {on} {update}\
         WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values});"
    )
}

fn list(
    targets: &[(usize, &super::Target)],
    separator: &str,
    part: impl Fn(usize, &super::Target) -> String,
) -> String {
    targets.iter().map(|(number, t)| part(*number, t)).collect::<Vec<_>>().join(separator)
}

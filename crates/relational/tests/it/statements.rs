//! Statements that search and write rows: `tests/cases/statements.txt`.
//!
//! A case is `OPERATION TABLE: column type[length], …; key columns`, `find CONDITION` as in [`super::expressions`], or
//! `position`, then `----`, and the statements for each dialect. `UPDATE_CASES=1 cargo test -p tidemill-relational`
//! rewrites them; review the difference.

use tidemill_relational::{
    BulkWriter, Dialect, ExistingColumn, ExistingTable, Mapping, Operation, PositionTable, SqlStatement,
    TableSchema,
};

use super::{check_cases, expressions, tables};

#[test]
fn statements() {
    check_cases("statements.txt", |head| {
        let mut found = String::new();
        for dialect in Dialect::ALL {
            found += &format!("{dialect}\n");
            for line in render(dialect, head) {
                found += &format!("  {line}\n");
            }
        }
        found
    });
}

fn render(dialect: Dialect, text: &str) -> Vec<String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let operation = match word {
        "position" => return PositionTable::new(dialect, "app/sink").unwrap().describe(),
        "find" => {
            let columns = expressions::columns(dialect);
            let selected: Vec<&str> = columns[..3].iter().map(|column| column.selected.as_str()).collect();
            let condition = expressions::parse(&expressions::tokens(rest), &mut 0);
            let table = dialect.quote("stocks");
            let found = SqlStatement::search(dialect, &columns, &table, &selected.join(", "), &condition, 10);
            return vec![found.map_or_else(|e| e, |statement| statement.sql)];
        }
        "insert" => Operation::Insert,
        "update" => Operation::Update,
        "upsert" => Operation::Upsert,
        _ => Operation::Delete,
    };
    let schema = tables::parse(rest);
    let table = existing(dialect, &schema);
    let mapping = |(source, column): (usize, &tidemill_relational::Column)| Mapping {
        source,
        column: column.name.clone(),
        ty: column.ty,
    };
    let mappings: Vec<Mapping> = schema.columns.iter().enumerate().map(mapping).collect();
    let keys: Vec<String> = schema.primary_key.iter().map(|c| schema.columns[*c].name.clone()).collect();
    let writer = BulkWriter::new(dialect, &table, &mappings, operation, &keys, "tidemill_batch");
    writer.map_or_else(|e| vec![e], |writer| writer.describe())
}

/// Returns the table as it is after it was created.
fn existing(dialect: Dialect, schema: &TableSchema) -> ExistingTable {
    let column = |column: &tidemill_relational::Column| {
        let sql_type = dialect.column_type(column);
        ExistingColumn {
            name: dialect.fold(&column.name),
            base_type: sql_type.split('(').next().unwrap_or_default().to_owned(),
            sql_type,
            must_have_value: false,
            is_generated: false,
        }
    };
    let key = schema.primary_key.iter().map(|c| dialect.fold(&schema.columns[*c].name)).collect();
    ExistingTable {
        name: schema.name.folded(dialect),
        columns: schema.columns.iter().map(column).collect(),
        unique_keys: vec![key],
    }
}

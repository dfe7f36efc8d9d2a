//! Statements that create tables: `tests/cases/tables.txt`.
//!
//! A case is `TABLE: column type[length], …; key columns; index columns`, `----`, and the statements for each dialect.
//! `UPDATE_CASES=1 cargo test -p tidemill-relational` rewrites them; review the difference.

use tidemill_relational::{Column, Dialect, TableName, TableSchema};
use tidemill_types::FieldType;

use super::check_cases;

#[test]
fn tables() {
    check_cases("tables.txt", |head| {
        let schema = parse(head);
        let statements = |dialect| format!("{}\n", schema.create_statements(dialect).join("; "));
        Dialect::ALL.into_iter().map(statements).collect()
    });
}

pub fn parse(text: &str) -> TableSchema {
    let (name, rest) = text.split_once(": ").unwrap();
    let mut parts = rest.split("; ");
    let column = |text: &str| {
        let (name, ty) = text.trim().split_once(' ').unwrap();
        let (ty, length) = match ty.split_once('[') {
            Some((ty, length)) => (ty, length.trim_end_matches(']').parse().ok()),
            None => (ty, None),
        };
        Column { name: name.into(), ty: FieldType::parse(ty).unwrap(), length }
    };
    let columns: Vec<Column> = parts.next().unwrap().split(',').map(column).collect();
    let position = |name: &str| columns.iter().position(|column| column.name == name.trim()).unwrap();
    let (mut primary_key, mut indexes) = (vec![], vec![]);
    for part in parts {
        let (word, names) = part.split_once(' ').unwrap();
        let list = names.split(',').map(position).collect();
        match word {
            "key" => primary_key = list,
            _ => indexes.push(list),
        }
    }
    TableSchema { name: TableName::parse(name).unwrap(), columns, primary_key, indexes }
}

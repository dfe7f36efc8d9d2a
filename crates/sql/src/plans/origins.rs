//! Tables from which the columns of a result come, as PostgreSQL tells clients.
//!
//! ```text
//! SELECT r.device AS d, speed * 2 FROM readings r     d: column 1 of events.readings; the other one has no table
//! ```
//!
//! A column keeps its table through joins, subqueries, groups and `WITH`, and loses it in an expression, a cast and a union.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{Column, DFSchema, JoinType};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, TableScan};
use parking_lot::Mutex;
use tidemill_database::ColumnOrigin;

use crate::catalog::{DEFAULT_SCHEMA, QuerySnapshots};
use crate::pg_catalog::{self, INFORMATION_SCHEMA, PG_CATALOG, relation_oids};
use crate::tables::Tables;

/// Schema and name of a table, and the number of a column from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableColumn {
    schema: &'static str,
    table: String,
    number: u16,
}

/// Columns of a result; `None` for those that are no column of a table.
pub(crate) type Origins = Arc<[Option<TableColumn>]>;

/// Returns the origins of the columns of a plan that has not been optimized.
pub(crate) fn of_plan(plan: &LogicalPlan, snapshots: &QuerySnapshots) -> Origins {
    (0..plan.schema().fields().len()).map(|column| of_column(plan, column, snapshots)).collect()
}

fn of_column(mut plan: &LogicalPlan, mut column: usize, snapshots: &QuerySnapshots) -> Option<TableColumn> {
    loop {
        (plan, column) = match plan {
            LogicalPlan::TableScan(scan) => return of_scan(scan, column, snapshots),
            LogicalPlan::Projection(projection) => {
                (projection.input.as_ref(), named(projection.expr.get(column)?, projection.input.schema())?)
            }
            LogicalPlan::Aggregate(aggregate) => {
                // grouping sets have one expression for all of their columns
                let is_plain = !aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
                let group = aggregate.group_expr.get(column).filter(|_| is_plain)?;
                (aggregate.input.as_ref(), named(group, aggregate.input.schema())?)
            }
            LogicalPlan::Distinct(Distinct::On(on)) => {
                (on.input.as_ref(), named(on.select_expr.get(column)?, on.input.schema())?)
            }
            LogicalPlan::Distinct(Distinct::All(input)) => (input.as_ref(), column),
            LogicalPlan::Filter(filter) => (filter.input.as_ref(), column),
            LogicalPlan::Sort(sort) => (sort.input.as_ref(), column),
            LogicalPlan::Limit(limit) => (limit.input.as_ref(), column),
            LogicalPlan::SubqueryAlias(alias) => (alias.input.as_ref(), column),
            LogicalPlan::Window(window) if column < window.input.schema().fields().len() => {
                (window.input.as_ref(), column)
            }
            LogicalPlan::Join(join) => {
                let left = join.left.schema().fields().len();
                match join.join_type {
                    JoinType::RightSemi | JoinType::RightAnti => (join.right.as_ref(), column),
                    _ if column < left => (join.left.as_ref(), column),
                    JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                        (join.right.as_ref(), column - left)
                    }
                    _ => return None,
                }
            }
            _ => return None,
        };
    }
}

/// Returns the place of the column that an expression is.
fn named(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Column(column) => schema.index_of_column(column).ok(),
        Expr::Alias(alias) => named(&alias.expr, schema),
        _ => None,
    }
}

fn of_scan(scan: &TableScan, column: usize, snapshots: &QuerySnapshots) -> Option<TableColumn> {
    let column: Column = scan.projected_schema.columns().into_iter().nth(column)?;
    let number = scan.source.schema().index_of(&column.name).ok()? + 1;
    let number = u16::try_from(number).ok()?;
    let name = scan.table_name.table();
    let schema = scan.table_name.schema().unwrap_or(DEFAULT_SCHEMA);
    let catalogs = [PG_CATALOG, INFORMATION_SCHEMA];
    let catalog = match catalogs.into_iter().find(|catalog| *catalog == schema) {
        None if schema == DEFAULT_SCHEMA && pg_catalog::is_catalog(name) => Some(PG_CATALOG),
        other => other,
    };
    if let Some(schema) = catalog {
        return Some(TableColumn { schema, table: name.to_owned(), number });
    }
    // a function that makes rows has no table of its name
    let (schema, table) = snapshots.locate(schema, name).ok()?;
    Some(TableColumn { schema: schema.name(), table, number })
}

/// Numbers of tables, as long as there are the same ones.
#[derive(Default)]
pub(crate) struct KnownOids(Mutex<Option<Arc<OidsOfTables>>>);

struct OidsOfTables {
    names: [Vec<String>; 3],
    by_schema: HashMap<&'static str, HashMap<String, u32>>,
}

impl KnownOids {
    fn of(&self, tables: &Arc<dyn Tables>) -> Arc<OidsOfTables> {
        let names = [tables.streams(), tables.collections(), tables.system_tables()];
        let known = self.0.lock().clone();
        if let Some(known) = known.filter(|known| known.names == names) {
            return known;
        }
        let mut by_schema: HashMap<&'static str, HashMap<String, u32>> = HashMap::new();
        for (schema, name, oid) in relation_oids(tables.as_ref()) {
            by_schema.entry(schema).or_default().insert(name, oid);
        }
        let oids = Arc::new(OidsOfTables { names, by_schema });
        *self.0.lock() = Some(oids.clone());
        oids
    }
}

impl KnownOids {
    /// Returns the numbers of the tables and columns of a result, which the catalogs have as well.
    pub fn numbered(
        &self,
        origins: &[Option<TableColumn>],
        tables: &Arc<dyn Tables>,
    ) -> Vec<Option<ColumnOrigin>> {
        if origins.iter().all(Option::is_none) {
            return vec![None; origins.len()];
        }
        let oids = self.of(tables);
        let numbered = origins.iter().map(|origin| {
            let TableColumn { schema, table, number } = origin.as_ref()?;
            let table = *oids.by_schema.get(schema)?.get(table)?;
            Some(ColumnOrigin { table, column: *number })
        });
        numbered.collect()
    }
}

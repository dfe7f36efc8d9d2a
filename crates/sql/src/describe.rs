//! `DESCRIBE`, `SHOW COLUMNS` and `information_schema.columns` with the names of types that the documentation uses.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF, TableScan, Volatility, create_udf, lit,
};

use crate::error::in_words;
use crate::pg_catalog::INFORMATION_SCHEMA;

/// Column of types in the tables of `information_schema`.
const DATA_TYPE: &str = "data_type";

/// Replaces Arrow's names of types in descriptions of tables.
pub(crate) fn types_in_words(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::DescribeTable(describe) if !describe.schema.fields().is_empty() => {
            let rows = describe.schema.fields().iter().map(|field| {
                let ty = in_words(&field.data_type().to_string());
                let null = if field.is_nullable() { "YES" } else { "NO" };
                vec![lit(field.name().clone()), lit(ty), lit(null)]
            });
            let names = ["column_name", DATA_TYPE, "is_nullable"];
            let values = LogicalPlanBuilder::values(rows.collect())?.build()?;
            let columns = values.schema().columns().into_iter().zip(names);
            let columns: Vec<Expr> = columns.map(|(column, name)| Expr::Column(column).alias(name)).collect();
            Ok(Transformed::yes(LogicalPlanBuilder::from(values).project(columns)?.build()?))
        }
        LogicalPlan::TableScan(scan) if has_types(&scan) => {
            let columns: Vec<Expr> = scan.projected_schema.columns().into_iter().map(in_words_of).collect();
            let plan = LogicalPlanBuilder::from(LogicalPlan::TableScan(scan)).project(columns)?.build()?;
            // not down again into the scan
            Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump))
        }
        node => Ok(Transformed::no(node)),
    })
    .data()
}

fn has_types(scan: &TableScan) -> bool {
    let field = scan.projected_schema.field_with_unqualified_name(DATA_TYPE);
    scan.table_name.schema() == Some(INFORMATION_SCHEMA)
        && field.is_ok_and(|f| *f.data_type() == DataType::Utf8)
}

fn in_words_of(column: Column) -> Expr {
    if column.name != DATA_TYPE {
        return Expr::Column(column);
    }
    let (relation, name) = (column.relation.clone(), column.name.clone());
    words().call(vec![Expr::Column(column)]).alias_qualified(relation, name)
}

/// Returns a function that replaces the names of types in a text.
fn words() -> ScalarUDF {
    let replace = |args: &[ColumnarValue]| match args {
        [ColumnarValue::Array(names)] => {
            let names = names.as_string::<i32>().iter().map(|name| name.map(in_words));
            Ok(ColumnarValue::Array(Arc::new(names.collect::<StringArray>()) as ArrayRef))
        }
        [ColumnarValue::Scalar(ScalarValue::Utf8(name))] => {
            Ok(ColumnarValue::Scalar(ScalarValue::Utf8(name.as_deref().map(in_words))))
        }
        _ => plan_err!("the name of a type is a text"),
    };
    create_udf("type_name", vec![DataType::Utf8], DataType::Utf8, Volatility::Immutable, Arc::new(replace))
}

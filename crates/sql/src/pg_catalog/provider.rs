//! A catalog as a table of DataFusion. Its rows are made when it is scanned.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::datasource::{MemTable, TableType};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

use super::definitions::Definition;
use super::objects::Objects;
use super::tables::{self, Wanted};

/// A catalog over the objects that a statement sees.
#[derive(Debug)]
pub(super) struct CatalogTable {
    pub definition: &'static Definition,
    pub objects: Arc<Objects>,
}

#[async_trait]
impl TableProvider for CatalogTable {
    fn schema(&self) -> SchemaRef {
        self.definition.fields.clone()
    }

    fn table_type(&self) -> TableType {
        if self.definition.kind == "v" { TableType::View } else { TableType::Base }
    }

    /// Conditions on the relation save the columns of others; they are checked again.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let column = tables::relation_column(self.definition);
        let support =
            filters.iter().map(|filter| match column.and_then(|column| relations(filter, column)) {
                Some(_) => TableProviderFilterPushDown::Inexact,
                None => TableProviderFilterPushDown::Unsupported,
            });
        Ok(support.collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let names = |at: &usize| self.definition.columns.get(*at).map(|column| column.name.to_owned());
        let column = tables::relation_column(self.definition);
        let wanted = Wanted {
            columns: projection.map(|projection| projection.iter().filter_map(names).collect()),
            relations: column.and_then(|column| filters.iter().find_map(|filter| relations(filter, column))),
        };
        let rows = tables::rows(&self.objects, self.definition, &wanted).await?;
        MemTable::try_new(self.schema(), vec![vec![rows]])?.scan(state, projection, &[], limit).await
    }
}

/// Returns the numbers that a condition allows for `column`; `None` for another condition.
fn relations(filter: &Expr, column: &str) -> Option<Vec<i64>> {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(Column { name, .. }) if name == column);
    let number = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some(*value),
        _ => None,
    };
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if is_column(left) => {
            number(right).map(|value| vec![value])
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if is_column(right) => {
            number(left).map(|value| vec![value])
        }
        Expr::InList(InList { expr, list, negated: false }) if is_column(expr) => {
            list.iter().map(number).collect()
        }
        _ => None,
    }
}

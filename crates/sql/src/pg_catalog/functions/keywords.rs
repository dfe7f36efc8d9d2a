//! `pg_get_keywords()`: the words of SQL.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_COLUMN_ALIAS,
};

/// The table function.
#[derive(Debug)]
pub(in crate::pg_catalog) struct Keywords;

impl TableFunctionImpl for Keywords {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        if !args.exprs().is_empty() {
            return plan_err!(
                "there is no function pg_get_keywords of arguments: expected pg_get_keywords()"
            );
        }
        let words = ALL_KEYWORDS.iter().map(|word| word.to_lowercase());
        let is_reserved =
            || ALL_KEYWORDS_INDEX.iter().map(|keyword| RESERVED_FOR_COLUMN_ALIAS.contains(keyword));
        let codes = is_reserved().map(|is_reserved| if is_reserved { "R" } else { "U" });
        let descriptions =
            is_reserved().map(|is_reserved| if is_reserved { "reserved" } else { "unreserved" });
        let schema = Arc::new(Schema::new(vec![
            Field::new("word", DataType::Utf8, false),
            Field::new("catcode", DataType::Utf8, false),
            Field::new("catdesc", DataType::Utf8, false),
        ]));
        let rows = RecordBatch::try_new(
            schema.clone(),
            vec![
                Arc::new(StringArray::from_iter_values(words)),
                Arc::new(StringArray::from_iter_values(codes)),
                Arc::new(StringArray::from_iter_values(descriptions)),
            ],
        )?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![rows]])?))
    }
}

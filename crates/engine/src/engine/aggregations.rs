//! Aggregations of SiddhiQL as tables of SQL.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use tidemill_flow::arrow;
use tidemill_types::{Error, FieldType, Result};

use super::Engine;
use super::on_demand::find_store_unit;

/// Start of the first bucket that an aggregation can have, as SiddhiQL writes it.
const FIRST: &str = "'0001-01-01 00:00:00'";
/// End of the last one, in milliseconds since 1970: the beginning of the year 9999.
const LAST_MS: i64 = 253_370_764_800_000;

impl Engine {
    /// Returns the columns of the buckets of an aggregation: those that an on-demand query selects with `*`, with
    /// `AGG_TIMESTAMP` as a time. `per` is the granularity, as in SiddhiQL's `per`.
    ///
    /// Errors: `NotFound` for an unknown aggregation, `Invalid` if several files have it, and for a granularity that it
    /// does not keep.
    pub fn aggregation_schema(&self, name: &str, per: &str) -> Result<SchemaRef> {
        let (_, columns) = self.find_aggregation(name, per)?;
        let field = |(name, ty): (String, FieldType)| Field::new(name, ty.arrow(), true);
        Ok(Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>())))
    }

    /// Returns the buckets of an aggregation that begin in `within`, milliseconds since 1970, as an on-demand query finds
    /// them: one row per bucket and group. A bucket that lies only partly within is there for that part.
    ///
    /// Errors: those of [`Self::aggregation_schema`], and of the store in which the aggregation keeps its buckets.
    pub fn aggregation_rows(&self, name: &str, per: &str, within: &Range<i64>) -> Result<RecordBatch> {
        let (unit, columns) = self.find_aggregation(name, per)?;
        let (from, to) = (instant(within.start.min(LAST_MS - 1)), instant(within.end.max(1)));
        let text = format!("from {name} within {from}, {to} per '{per}' select *");
        let queries = &self.node.app.deployment.queries;
        let found = self.node.client(queries.home(unit))?.find_in_unit(&queries.unit_name(unit), &text)?;
        let fields = columns.iter().map(|(name, ty)| Field::new(name, ty.arrow(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = found.into_iter().zip(&columns).map(|(column, (_, ty))| arrow::array(column, *ty));
        RecordBatch::try_new(schema, arrays.collect::<Result<_>>()?).map_err(|e| {
            Error::internal(format!("the rows of `{name}` do not fit its columns")).with_source(e)
        })
    }

    /// Returns the unit of an aggregation, and its columns.
    fn find_aggregation(&self, name: &str, per: &str) -> Result<(usize, Vec<(String, FieldType)>)> {
        let queries = &self.node.app.deployment.queries;
        let unit = find_store_unit(queries, name)?;
        let catalog = &queries.units[unit].plan.catalog;
        let aggregations = catalog.aggregations();
        let found = aggregations.iter().find(|aggregation| aggregation.name == name).ok_or_else(|| {
            Error::invalid(format!("`{name}` is no aggregation: expected the name of a `define aggregation`"))
        })?;
        found.check_granularity(per).map_err(Error::invalid)?;
        let mut columns = found.attributes();
        if let Some((_, ty)) = columns.first_mut() {
            // the start of the bucket
            *ty = FieldType::Time;
        }
        Ok((unit, columns))
    }
}

/// Returns a time as SiddhiQL writes it. Those before 1970 become the first of all.
fn instant(ms: i64) -> String {
    match ms < 0 {
        true => FIRST.to_owned(),
        false => format!("{}L", ms.min(LAST_MS)),
    }
}

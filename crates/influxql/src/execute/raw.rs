//! Statements without functions over points: a row for each point.

use super::columns::ResultColumns;
use super::groups::Wanted;
use super::inputs::Input;
use super::{Executor, Grouped};
use crate::error::Outcome;
use crate::plan::SelectFrame;
use crate::series::SeriesRow;
use crate::syntax::Select;
use crate::value::Kind;

impl Executor<'_> {
    pub(super) async fn raw_rows(
        &self,
        input: &Input<'_>,
        columns: &ResultColumns,
        frame: &SelectFrame,
        select: &Select,
    ) -> Outcome<Grouped<Vec<SeriesRow>>> {
        let is_field = |name: &&String| input.columns.get(*name).is_some_and(|kind| *kind != Kind::Tag);
        // tags alone select no points
        let any_of: Vec<String> = columns.fields.names().iter().filter(is_field).cloned().collect();
        if any_of.is_empty() {
            return Ok(Grouped::new());
        }
        let is_one_series = columns.dimensions.is_empty() && input.tables.len() == 1;
        let limit = select.limit.checked_add(select.offset).filter(|_| is_one_series && select.limit > 0);
        let wanted = Wanted {
            names: columns.fields.names(),
            any_of: &any_of,
            dimensions: &columns.dimensions,
            condition: frame.condition.as_ref(),
            range: frame.range,
            is_descending: frame.is_descending,
            limit,
        };
        let mut groups = Grouped::new();
        for (key, rows) in self.groups(input, &wanted).await? {
            let mut shown = Vec::with_capacity(rows.len());
            for row in &rows {
                let field = |name: &str| row.values[columns.fields.place(name)?].clone();
                shown.push(SeriesRow { time: Some(row.time), values: columns.values(&[], &field) });
            }
            self.memory.take(shown.len() * (size_of::<SeriesRow>() + 32 * columns.expressions.len()))?;
            groups.insert(key, shown);
        }
        Ok(groups)
    }
}

//! Rows of a measurement by groups.

use std::collections::HashMap;

use super::inputs::{Input, InputTable, ResultTable, sort_rows};
use super::{Executor, Grouped};
use crate::catalog::Measurement;
use crate::error::Outcome;
use crate::rows::{Row, RowScan};
use crate::syntax::Expr;
use crate::time::TimeBounds;
use crate::value::{Evaluator, InfluxValue, Kind};

/// Rows that a statement needs.
pub(super) struct Wanted<'a> {
    /// Names of the values of each row.
    pub names: &'a [String],
    /// Names; at least one of them has a value in each row.
    pub any_of: &'a [String],
    pub dimensions: &'a [String],
    pub condition: Option<&'a Expr>,
    pub range: TimeBounds,
    pub is_descending: bool,
    pub limit: Option<u64>,
}

impl Executor<'_> {
    /// Returns the rows of each group, in the order of the statement.
    pub(super) async fn groups(&self, input: &Input<'_>, wanted: &Wanted<'_>) -> Outcome<Grouped<Vec<Row>>> {
        let mut groups: Grouped<Vec<Row>> = Grouped::new();
        for table in &input.tables {
            match table {
                InputTable::Stored(measurement) => self.add_stored(measurement, wanted, &mut groups).await?,
                InputTable::Result(table) => self.add_result_rows(table, input, wanted, &mut groups)?,
            }
        }
        if input.tables.len() > 1 {
            groups.values_mut().for_each(|rows| sort_rows(rows, wanted.is_descending));
        }
        Ok(groups)
    }

    async fn add_stored(
        &self,
        measurement: &Measurement,
        wanted: &Wanted<'_>,
        groups: &mut Grouped<Vec<Row>>,
    ) -> Outcome<()> {
        let any_of: Vec<usize> = wanted.any_of.iter().filter_map(|name| measurement.column(name)).collect();
        if any_of.is_empty() && !wanted.any_of.is_empty() {
            return Ok(());
        }
        let mut columns: Vec<usize> = vec![];
        let mut place_of = |name: &String| {
            let column = measurement.column(name)?;
            Some(columns.iter().position(|known| *known == column).unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            }))
        };
        let places: Vec<Option<usize>> = wanted.names.iter().map(&mut place_of).collect();
        let keys: Vec<Option<usize>> = wanted.dimensions.iter().map(&mut place_of).collect();
        let is_tag: Vec<bool> =
            columns.iter().map(|column| measurement.columns[*column].kind == Kind::Tag).collect();
        let scan = RowScan {
            measurement,
            columns,
            condition: wanted.condition,
            range: wanted.range,
            any_of,
            is_descending: wanted.is_descending,
            limit: wanted.limit,
        };
        for row in self.source.scan(scan, self.memory).await? {
            let text = |place: usize| match &row.values[place] {
                Some(value) if is_tag[place] => Some(InfluxValue::Text(as_text(value).into())),
                value => value.clone(),
            };
            let key = keys
                .iter()
                .map(|place| place.and_then(&text).map_or_else(String::new, |value| as_text(&value)));
            let values = places.iter().map(|place| place.and_then(&text));
            let moved = Row { time: row.time, values: values.collect() };
            groups.entry(key.collect()).or_default().push(moved);
        }
        Ok(())
    }

    fn add_result_rows(
        &self,
        table: &ResultTable,
        input: &Input<'_>,
        wanted: &Wanted<'_>,
        groups: &mut Grouped<Vec<Row>>,
    ) -> Outcome<()> {
        let places: HashMap<&str, usize> =
            table.columns.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
        let evaluator = Evaluator::new(wanted.condition);
        for row in &table.rows {
            let at = |name: &str| places.get(name).and_then(|place| row.values[*place].clone());
            let has_any = wanted.any_of.is_empty() || wanted.any_of.iter().any(|name| at(name).is_some());
            let is_met = wanted.condition.is_none_or(|condition| {
                evaluator.meets(condition, &|name, cast| {
                    // a name that does not exist is a tag without a value
                    let is_field = input.columns.get(name).is_some_and(|kind| *kind != Kind::Tag);
                    let value = at(name).or_else(|| (!is_field).then(|| InfluxValue::Text("".into())))?;
                    cast.map_or_else(|| Some(value.clone()), |cast| value.clone().cast(cast))
                })
            });
            if !has_any || !is_met {
                continue;
            }
            let key = wanted
                .dimensions
                .iter()
                .map(|name| at(name).map_or_else(String::new, |value| as_text(&value)));
            let values = wanted.names.iter().map(|name| at(name));
            let moved = Row { time: row.time, values: values.collect() };
            self.memory.take(moved.bytes())?;
            groups.entry(key.collect()).or_default().push(moved);
        }
        Ok(())
    }
}

fn as_text(value: &InfluxValue) -> String {
    match value {
        InfluxValue::Text(text) => text.to_string(),
        InfluxValue::Integer(value) => value.to_string(),
        InfluxValue::Float(value) => value.to_string(),
        InfluxValue::Boolean(value) => value.to_string(),
    }
}

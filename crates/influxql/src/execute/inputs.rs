//! Inputs of a statement: streams, and the results of its subqueries.

use std::collections::{BTreeMap, BTreeSet};

use super::Executor;
use crate::catalog::Measurement;
use crate::error::Outcome;
use crate::plan::SelectFrame;
use crate::rows::Row;
use crate::series::ResultSeries;
use crate::syntax::{Expr, MeasurementName, Select, SelectSource};
use crate::value::{InfluxValue, Kind};

/// Measurement that a statement reads.
pub(super) struct Input<'a> {
    pub name: String,
    /// Kinds of its columns.
    pub columns: BTreeMap<String, Kind>,
    pub tables: Vec<InputTable<'a>>,
}

/// Rows of a measurement.
pub(super) enum InputTable<'a> {
    Stored(&'a Measurement),
    Result(ResultTable),
}

/// Rows of a subquery's result.
pub(super) struct ResultTable {
    pub columns: Vec<String>,
    /// In the order of the statement.
    pub rows: Vec<Row>,
}

impl<'a> Input<'a> {
    fn empty(name: &str) -> Self {
        Self { name: name.to_owned(), columns: BTreeMap::new(), tables: vec![] }
    }

    fn add_column(&mut self, name: &str, kind: Kind) {
        let known = self.columns.entry(name.to_owned()).or_insert(kind);
        *known = (*known).max(kind);
    }

    fn add_stored(&mut self, measurement: &'a Measurement) {
        let is_known = |table: &InputTable<'_>| matches!(table, InputTable::Stored(known) if known.name == measurement.name);
        if self.tables.iter().any(is_known) {
            return;
        }
        for column in &measurement.columns {
            self.add_column(&column.name, column.kind);
        }
        self.tables.push(InputTable::Stored(measurement));
    }
}

/// Returns the measurements that a name or a pattern stands for.
pub(crate) fn named<'a>(catalog: &'a [Measurement], name: &MeasurementName) -> Vec<&'a Measurement> {
    let matching = |pattern: &str, wanted: bool| {
        // the parser has refused what does not compile
        let pattern = crate::pattern::compile(pattern).ok();
        let matches =
            move |name: &str| pattern.as_ref().is_some_and(|pattern| pattern.is_match(name) == wanted);
        catalog.iter().filter(|measurement| matches(&measurement.name)).collect()
    };
    match name {
        MeasurementName::Name(name) => {
            catalog.iter().filter(|measurement| measurement.name == *name).collect()
        }
        MeasurementName::Not(name) => {
            catalog.iter().filter(|measurement| measurement.name != *name).collect()
        }
        MeasurementName::Regex(pattern) => matching(pattern, true),
        MeasurementName::NotRegex(pattern) => matching(pattern, false),
    }
}

impl Executor<'_> {
    /// Returns the inputs of a statement by name. Subqueries are executed.
    pub(super) async fn inputs(
        &self,
        select: &Select,
        frame: &SelectFrame,
    ) -> Outcome<BTreeMap<String, Input<'_>>> {
        let mut inputs: BTreeMap<String, Input<'_>> = BTreeMap::new();
        for source in &select.sources {
            match source {
                SelectSource::Measurement { name, .. } => {
                    for measurement in named(self.catalog, name) {
                        let input = inputs.entry(measurement.name.clone());
                        input.or_insert_with(|| Input::empty(&measurement.name)).add_stored(measurement);
                    }
                }
                SelectSource::Subquery(query) => {
                    let series = self.select(query, Some(frame.inherited())).await?;
                    let mut by_name: BTreeMap<String, Vec<ResultSeries>> = BTreeMap::new();
                    for one in series {
                        by_name.entry(one.name.clone()).or_default().push(one);
                    }
                    for (name, series) in by_name {
                        let input = inputs.entry(name.clone()).or_insert_with(|| Input::empty(&name));
                        self.add_result(input, series, frame.is_descending)?;
                    }
                }
            }
        }
        Ok(inputs)
    }

    fn add_result(
        &self,
        input: &mut Input<'_>,
        series: Vec<ResultSeries>,
        is_descending: bool,
    ) -> Outcome<()> {
        let mut columns: BTreeSet<String> = BTreeSet::new();
        for one in &series {
            columns.extend(one.columns.iter().skip(1).cloned());
            for (tag, _) in &one.tags {
                if !one.columns.contains(tag) {
                    columns.insert(tag.clone());
                    input.add_column(tag, Kind::Tag);
                }
            }
        }
        let columns: Vec<String> = columns.into_iter().collect();
        let place = |name: &str| columns.binary_search_by(|column| column.as_str().cmp(name)).ok();
        let mut rows = Vec::new();
        for one in &series {
            let places: Vec<Option<usize>> = one.columns.iter().skip(1).map(|column| place(column)).collect();
            for row in &one.rows {
                let mut values: Vec<Option<InfluxValue>> = vec![None; columns.len()];
                for (tag, value) in &one.tags {
                    if let Some(place) = place(tag) {
                        values[place] = Some(InfluxValue::Text(value.as_str().into()));
                    }
                }
                for (place, value) in places.iter().zip(&row.values) {
                    if let (Some(place), Some(value)) = (place, value) {
                        values[*place] = Some(value.clone());
                        input.add_column(&columns[*place], kind(value));
                    }
                }
                let row = Row { time: row.time.unwrap_or_default(), values: values.into() };
                self.memory.take(row.bytes())?;
                rows.push(row);
            }
        }
        sort_rows(&mut rows, is_descending);
        input.tables.push(InputTable::Result(ResultTable { columns, rows }));
        Ok(())
    }
}

/// Sorts rows by time; rows of one time keep their order.
pub(super) fn sort_rows(rows: &mut [Row], is_descending: bool) {
    match is_descending {
        true => rows.sort_by_key(|row| std::cmp::Reverse(row.time)),
        false => rows.sort_by_key(|row| row.time),
    }
}

fn kind(value: &InfluxValue) -> Kind {
    match value {
        InfluxValue::Float(_) => Kind::Float,
        InfluxValue::Integer(_) => Kind::Integer,
        InfluxValue::Text(_) => Kind::Text,
        InfluxValue::Boolean(_) => Kind::Boolean,
    }
}

/// Returns the names of the columns that `*` or a pattern stands for.
pub(super) fn matching<'n>(
    pattern: &Expr,
    names: impl Iterator<Item = (&'n String, &'n Kind)>,
) -> Outcome<Vec<(&'n String, Kind)>> {
    use crate::syntax::Cast;
    let compiled = match pattern {
        Expr::Regex(pattern) => crate::pattern::compile(pattern).ok(),
        _ => None,
    };
    let fits = |name: &str, kind: Kind| match pattern {
        Expr::Wildcard(Some(Cast::Tag)) => kind == Kind::Tag,
        Expr::Wildcard(Some(Cast::Field)) => kind != Kind::Tag,
        Expr::Wildcard(_) => true,
        _ => compiled.as_ref().is_some_and(|compiled| compiled.is_match(name)),
    };
    Ok(names.filter(|(name, kind)| fits(name, **kind)).map(|(name, kind)| (name, *kind)).collect())
}

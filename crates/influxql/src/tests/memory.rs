//! Rows in memory, read from line protocol.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use influxdb_line_protocol::{FieldValue, parse_lines};
use tidemill_types::FieldType;

use crate::catalog::{Column, Measurement};
use crate::error::Outcome;
use crate::rows::{AggregateScan, AggregatedRow, Reservation, Row, RowScan, RowSource};
use crate::value::{Evaluator, InfluxValue, Kind};

/// Time of a point in nanoseconds, and its values by column.
type Point = (i64, BTreeMap<String, InfluxValue>);

/// Points of a file of line protocol.
pub struct Points {
    pub catalog: Vec<Measurement>,
    rows: BTreeMap<String, Vec<Point>>,
}

impl Points {
    pub fn read(text: &str) -> Self {
        let mut columns: BTreeMap<String, BTreeMap<String, Column>> = BTreeMap::new();
        let mut rows: BTreeMap<String, Vec<Point>> = BTreeMap::new();
        for line in parse_lines(text) {
            let line = line.unwrap();
            let name = line.series.measurement.to_string();
            let mut values = BTreeMap::new();
            let mut add = |column: String, kind: Kind, stored: FieldType, value: InfluxValue| {
                let known = columns.entry(name.clone()).or_default();
                known.insert(column.clone(), Column { name: column.clone(), kind, stored });
                values.insert(column, value);
            };
            for (tag, value) in line.series.tag_set.iter().flatten() {
                add(
                    tag.to_string(),
                    Kind::Tag,
                    FieldType::String,
                    InfluxValue::Text(value.to_string().into()),
                );
            }
            for (field, value) in &line.field_set {
                let field = field.to_string();
                match value {
                    FieldValue::I64(value) => {
                        add(field, Kind::Integer, FieldType::Long, InfluxValue::Integer(*value))
                    }
                    FieldValue::F64(value) => {
                        add(field, Kind::Float, FieldType::Double, InfluxValue::Float(*value))
                    }
                    FieldValue::Boolean(value) => {
                        add(field, Kind::Boolean, FieldType::Bool, InfluxValue::Boolean(*value))
                    }
                    FieldValue::String(value) => {
                        add(
                            field,
                            Kind::Text,
                            FieldType::String,
                            InfluxValue::Text(value.to_string().into()),
                        );
                    }
                    FieldValue::U64(_) => panic!("no field is unsigned"),
                }
            }
            rows.entry(name).or_default().push((line.timestamp.unwrap(), values));
        }
        let catalog = columns
            .into_iter()
            .map(|(name, columns)| Measurement { name, columns: columns.into_values().collect() })
            .collect();
        Self { catalog, rows }
    }

    fn matching(&self, scan: &RowScan<'_>) -> Vec<Row> {
        let measurement = scan.measurement;
        let evaluator = Evaluator::new(scan.condition);
        let name_of = |column: usize| measurement.columns[column].name.as_str();
        let mut rows: Vec<&(i64, BTreeMap<String, InfluxValue>)> = self.rows[&measurement.name]
            .iter()
            .filter(|(time, values)| {
                let has_any = scan.any_of.is_empty()
                    || scan.any_of.iter().any(|column| values.contains_key(name_of(*column)));
                let is_met = scan.condition.is_none_or(|condition| {
                    evaluator.meets(condition, &|name, cast| {
                        let kind = measurement.column(name).map(|column| measurement.columns[column].kind);
                        let is_field = kind.is_some_and(|kind| kind != Kind::Tag);
                        let value = values.get(name).cloned();
                        let value = value.or_else(|| (!is_field).then(|| InfluxValue::Text("".into())))?;
                        cast.map_or_else(|| Some(value.clone()), |cast| value.clone().cast(cast))
                    })
                });
                scan.range.contains(*time) && has_any && is_met
            })
            .collect();
        let tags = |values: &BTreeMap<String, InfluxValue>| -> Vec<String> {
            measurement.tags().map(|tag| format!("{:?}", values.get(name_of(tag)))).collect()
        };
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(tags(&a.1).cmp(&tags(&b.1))));
        if scan.is_descending {
            rows.reverse();
        }
        let values = |values: &BTreeMap<String, InfluxValue>| {
            scan.columns.iter().map(|c| values.get(name_of(*c)).cloned()).collect()
        };
        let limit = scan.limit.map_or(usize::MAX, |limit| limit as usize);
        rows.into_iter().take(limit).map(|(time, row)| Row { time: *time, values: values(row) }).collect()
    }
}

impl RowSource for Points {
    fn scan<'a>(&'a self, scan: RowScan<'a>, memory: &'a Reservation) -> BoxFuture<'a, Outcome<Vec<Row>>> {
        Box::pin(async move {
            let rows = self.matching(&scan);
            memory.take(rows.iter().map(Row::bytes).sum())?;
            Ok(rows)
        })
    }

    fn aggregate<'a>(
        &'a self,
        _: AggregateScan<'a>,
        _: &'a Reservation,
    ) -> BoxFuture<'a, Outcome<Option<Vec<AggregatedRow>>>> {
        Box::pin(async { Ok(None) })
    }

    fn distinct<'a>(
        &'a self,
        scan: RowScan<'a>,
        _: &'a Reservation,
    ) -> BoxFuture<'a, Outcome<Vec<Vec<String>>>> {
        Box::pin(async move {
            let text = |value: &Option<InfluxValue>| match value {
                Some(InfluxValue::Text(text)) => text.to_string(),
                _ => String::new(),
            };
            let rows = self.matching(&scan);
            let mut rows: Vec<Vec<String>> =
                rows.iter().map(|row| row.values.iter().map(text).collect()).collect();
            rows.sort();
            rows.dedup();
            Ok(rows)
        })
    }
}

//! `SHOW`.

use std::collections::BTreeSet;

use crate::catalog::Measurement;
use crate::error::{Outcome, refuse};
use crate::execute::named;
use crate::pattern;
use crate::rows::{Reservation, RowScan, RowSource};
use crate::series::ResultSeries;
use crate::syntax::{Expr, KeyFilter, SelectSource, Show, Subject};
use crate::time::{Clock, TimeBounds, split};
use crate::value::{InfluxValue, Kind};

/// Name of the one database.
pub const DATABASE: &str = "tidemill";
/// Name of the one retention policy.
const POLICY: &str = "autogen";
/// Maximum number of series of a measurement that are listed.
const SERIES_MAX: u64 = 1_000_000;

/// Executor of `SHOW` at one time.
pub(crate) struct Shower<'a> {
    pub catalog: &'a [Measurement],
    pub source: &'a dyn RowSource,
    pub memory: &'a Reservation,
    pub now: i64,
    pub version: &'a str,
}

type ListingRow = Vec<Option<InfluxValue>>;

fn text(text: &str) -> Option<InfluxValue> {
    Some(InfluxValue::Text(text.into()))
}

impl Shower<'_> {
    /// Returns the series of a statement.
    pub async fn show(&self, show: &Show) -> Outcome<Vec<ResultSeries>> {
        let clock = Clock { now: self.now, zone: jiff::tz::TimeZone::UTC };
        let (condition, range) = split(show.condition.as_ref(), &clock)?;
        let filter = Filter { condition: condition.as_ref(), range };
        match &show.subject {
            Subject::Databases => {
                Ok(vec![ResultSeries::listing("databases", &["name"], [vec![text(DATABASE)]])])
            }
            Subject::RetentionPolicies => Ok(vec![policies()]),
            Subject::Diagnostics => Ok(self.diagnostics()),
            Subject::Measurements => self.measurements(show, &filter).await,
            Subject::FieldKeys => Ok(self.field_keys(show)),
            Subject::TagKeys => self.tag_keys(show, &filter).await,
            Subject::TagValues(keys) => self.tag_values(show, keys, &filter).await,
            Subject::Series => self.series(show, &filter).await,
        }
    }

    /// Returns the measurements of `FROM`, all without it, by name.
    fn measurements_of(&self, show: &Show) -> Vec<&Measurement> {
        let mut found: Vec<&Measurement> = match show.sources.is_empty() {
            true => self.catalog.iter().collect(),
            false => show
                .sources
                .iter()
                .filter_map(|source| match source {
                    SelectSource::Measurement { name, .. } => Some(named(self.catalog, name)),
                    SelectSource::Subquery(_) => None,
                })
                .flatten()
                .collect(),
        };
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| a.name == b.name);
        found
    }

    fn scan<'s>(
        &self,
        measurement: &'s Measurement,
        columns: Vec<usize>,
        filter: &Filter<'s>,
    ) -> RowScan<'s> {
        RowScan {
            measurement,
            columns,
            condition: filter.condition,
            range: filter.range,
            any_of: vec![],
            is_descending: false,
            limit: None,
        }
    }

    async fn measurements(&self, show: &Show, filter: &Filter<'_>) -> Outcome<Vec<ResultSeries>> {
        let mut rows = vec![];
        for measurement in self.measurements_of(show) {
            if filter.is_open() || self.has_rows(measurement, filter).await? {
                rows.push(vec![text(&measurement.name)]);
            }
        }
        Ok(page("measurements", &["name"], rows, show).into_iter().collect())
    }

    async fn has_rows(&self, measurement: &Measurement, filter: &Filter<'_>) -> Outcome<bool> {
        let scan = RowScan { limit: Some(1), ..self.scan(measurement, vec![], filter) };
        Ok(!self.source.scan(scan, self.memory).await?.is_empty())
    }

    fn field_keys(&self, show: &Show) -> Vec<ResultSeries> {
        let series = self.measurements_of(show).into_iter().filter_map(|measurement| {
            let fields = measurement.columns.iter().filter(|column| column.kind != Kind::Tag);
            let rows = fields.map(|column| vec![text(&column.name), text(column.kind.name())]).collect();
            page(&measurement.name, &["fieldKey", "fieldType"], rows, show)
        });
        series.collect()
    }

    async fn tag_keys(&self, show: &Show, filter: &Filter<'_>) -> Outcome<Vec<ResultSeries>> {
        let mut series = vec![];
        for measurement in self.measurements_of(show) {
            let mut rows: Vec<ListingRow> = vec![];
            for tag in measurement.tags() {
                if filter.is_open() || self.has_values(measurement, tag, filter).await? {
                    rows.push(vec![text(&measurement.columns[tag].name)]);
                }
            }
            series.extend(page(&measurement.name, &["tagKey"], rows, show));
        }
        Ok(series)
    }

    async fn has_values(&self, measurement: &Measurement, tag: usize, filter: &Filter<'_>) -> Outcome<bool> {
        let scan = RowScan { any_of: vec![tag], limit: Some(1), ..self.scan(measurement, vec![tag], filter) };
        Ok(!self.source.scan(scan, self.memory).await?.is_empty())
    }

    async fn tag_values(
        &self,
        show: &Show,
        keys: &KeyFilter,
        filter: &Filter<'_>,
    ) -> Outcome<Vec<ResultSeries>> {
        let mut series = vec![];
        for measurement in self.measurements_of(show) {
            let mut rows: Vec<ListingRow> = vec![];
            for tag in measurement.tags() {
                let key = &measurement.columns[tag].name;
                if !keys.fits(key) {
                    continue;
                }
                let scan = RowScan { any_of: vec![tag], ..self.scan(measurement, vec![tag], filter) };
                let values = self.source.distinct(scan, self.memory).await?;
                let values = values.iter().flatten().filter(|value| !value.is_empty());
                rows.extend(values.map(|value| vec![text(key), text(value)]));
            }
            series.extend(page(&measurement.name, &["key", "value"], rows, show));
        }
        Ok(series)
    }

    async fn series(&self, show: &Show, filter: &Filter<'_>) -> Outcome<Vec<ResultSeries>> {
        let mut keys: BTreeSet<String> = BTreeSet::new();
        for measurement in self.measurements_of(show) {
            let tags: Vec<usize> = measurement.tags().collect();
            if tags.is_empty() {
                if self.has_rows(measurement, filter).await? {
                    keys.insert(escaped(&measurement.name, &[',', ' ']));
                }
                continue;
            }
            let scan =
                RowScan { limit: Some(SERIES_MAX + 1), ..self.scan(measurement, tags.clone(), filter) };
            let combinations = self.source.distinct(scan, self.memory).await?;
            if combinations.len() as u64 > SERIES_MAX {
                return refuse(format!(
                    "`{}` has more than {SERIES_MAX} series: choose some with WHERE",
                    measurement.name
                ));
            }
            for values in combinations {
                let mut key = escaped(&measurement.name, &[',', ' ']);
                for (tag, value) in tags.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
                    key.push(',');
                    key.push_str(&escaped(&measurement.columns[*tag].name, &[',', '=', ' ']));
                    key.push('=');
                    key.push_str(&escaped(&value, &[',', '=', ' ']));
                }
                keys.insert(key);
            }
        }
        let rows = keys.iter().map(|key| vec![text(key)]).collect();
        Ok(page("", &["key"], rows, show).into_iter().collect())
    }

    fn diagnostics(&self) -> Vec<ResultSeries> {
        let now = crate::time::format(self.now, &jiff::tz::TimeZone::UTC);
        vec![
            ResultSeries::listing(
                "build",
                &["Branch", "Build Time", "Commit", "Version"],
                [vec![text("tidemill"), text(""), text(""), text(self.version)]],
            ),
            ResultSeries::listing("system", &["currentTime"], [vec![text(&now)]]),
        ]
    }
}

/// Condition of the rows that are looked at.
struct Filter<'a> {
    condition: Option<&'a Expr>,
    range: TimeBounds,
}

impl Filter<'_> {
    /// Returns whether all rows meet it.
    fn is_open(&self) -> bool {
        self.condition.is_none() && self.range == TimeBounds::ALL
    }
}

impl KeyFilter {
    fn fits(&self, key: &str) -> bool {
        match self {
            Self::Key(wanted, is_not) => (key == wanted) != *is_not,
            Self::In(keys) => keys.iter().any(|wanted| wanted == key),
            // the parser has refused what does not compile
            Self::Regex(wanted, is_not) => {
                pattern::compile(wanted).is_ok_and(|pattern| pattern.is_match(key) != *is_not)
            }
        }
    }
}

/// Returns a series of the rows within the limits of a statement, if there are any.
fn page(name: &str, columns: &[&str], rows: Vec<ListingRow>, show: &Show) -> Option<ResultSeries> {
    let count = if show.limit == 0 { usize::MAX } else { usize::try_from(show.limit).unwrap_or(usize::MAX) };
    let offset = usize::try_from(show.offset).unwrap_or(usize::MAX);
    let rows: Vec<ListingRow> = rows.into_iter().skip(offset).take(count).collect();
    (!rows.is_empty()).then(|| ResultSeries::listing(name, columns, rows))
}

fn policies() -> ResultSeries {
    let row = vec![
        text(POLICY),
        text("0s"),
        text("168h0m0s"),
        Some(InfluxValue::Integer(1)),
        Some(InfluxValue::Boolean(true)),
    ];
    ResultSeries::listing("", &["name", "duration", "shardGroupDuration", "replicaN", "default"], [row])
}

/// Returns a name with a backslash before some characters, as line protocol writes it.
fn escaped(name: &str, special: &[char]) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if special.contains(&c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

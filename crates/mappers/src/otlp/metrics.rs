//! Points of metrics as rows: a stream for each kind.

use tidemill_types::Result;

use super::messages::common::KeyValue;
use super::messages::metrics::{
    Buckets, Exemplar, ExponentialHistogramDataPoint, HistogramDataPoint, Metric, MetricsRequest,
    NumberDataPoint, SummaryDataPoint,
};
use super::streams::{EXPONENTIAL_HISTOGRAM, GAUGE, HISTOGRAM, SUM, SUMMARY};
use super::value::{Instant, attributes, hex, name_of, write_instant, write_object};
use super::{push_flags, shared};
use crate::telemetry::{DeclaredStream, JsonText, Row, RowCell, RowTarget, SharedCells};

const TEMPORALITIES: [&str; 3] = ["Unspecified", "Delta", "Cumulative"];
/// Bit of a point's flags that says that it has no value: the series has ended, or there is a gap.
const NO_RECORDED_VALUE: u32 = 1;

pub(super) fn add(request: &MetricsRequest, rows: &mut dyn RowTarget) -> Result<()> {
    for resource in &request.resource_metrics {
        for scope in &resource.scope_metrics {
            let shared = shared(
                resource.resource.as_ref(),
                &resource.schema_url,
                scope.scope.as_ref(),
                &scope.schema_url,
            );
            for metric in &scope.metrics {
                Points { metric, metadata: attributes(&metric.metadata), shared: &shared, rows }.add()?;
            }
        }
    }
    Ok(())
}

/// Points of a metric on their way into rows.
struct Points<'p, 'a> {
    metric: &'a Metric,
    metadata: Option<String>,
    shared: &'p SharedCells<'a>,
    rows: &'p mut dyn RowTarget,
}

/// Values that points of all kinds have.
struct Common<'a> {
    start: u64,
    time: u64,
    attributes: &'a [KeyValue],
    exemplars: &'a [Exemplar],
    flags: u32,
}

impl<'a> Points<'_, 'a> {
    fn add(mut self) -> Result<()> {
        let metric = self.metric;
        let kinds = [
            metric.gauge.is_some(),
            metric.sum.is_some(),
            metric.histogram.is_some(),
            metric.exponential_histogram.is_some(),
            metric.summary.is_some(),
        ];
        if kinds.iter().filter(|is_set| **is_set).count() > 1 {
            let reason = "a metric has points of two kinds".to_owned();
            return match self.rows.takes(&GAUGE) {
                true => self.rows.reject(&GAUGE, reason, self.metric.name.clone()),
                false => {
                    self.rows.skip(&GAUGE);
                    Ok(())
                }
            };
        }
        for point in metric.gauge.iter().flat_map(|gauge| &gauge.data_points) {
            self.push(&GAUGE, &number(point), |row| push_number(row, point))?;
        }
        if let Some(sum) = &metric.sum {
            for point in &sum.data_points {
                self.push(&SUM, &number(point), |row| {
                    row.text("aggregation_temporality", name_of(&TEMPORALITIES, sum.aggregation_temporality));
                    row.push("is_monotonic", RowCell::Bool(sum.is_monotonic));
                    push_number(row, point)
                })?;
            }
        }
        if let Some(histogram) = &metric.histogram {
            for point in &histogram.data_points {
                let common = Common {
                    start: point.start_time_unix_nano,
                    time: point.time_unix_nano,
                    attributes: &point.attributes,
                    exemplars: &point.exemplars,
                    flags: point.flags,
                };
                self.push(&HISTOGRAM, &common, |row| {
                    let name = name_of(&TEMPORALITIES, histogram.aggregation_temporality);
                    row.text("aggregation_temporality", name);
                    push_histogram(row, point)
                })?;
            }
        }
        if let Some(histogram) = &metric.exponential_histogram {
            for point in &histogram.data_points {
                let common = Common {
                    start: point.start_time_unix_nano,
                    time: point.time_unix_nano,
                    attributes: &point.attributes,
                    exemplars: &point.exemplars,
                    flags: point.flags,
                };
                self.push(&EXPONENTIAL_HISTOGRAM, &common, |row| {
                    let name = name_of(&TEMPORALITIES, histogram.aggregation_temporality);
                    row.text("aggregation_temporality", name);
                    push_exponential(row, point);
                    Ok(())
                })?;
            }
        }
        for point in metric.summary.iter().flat_map(|summary| &summary.data_points) {
            let common = Common {
                start: point.start_time_unix_nano,
                time: point.time_unix_nano,
                attributes: &point.attributes,
                exemplars: &[],
                flags: point.flags,
            };
            self.push(&SUMMARY, &common, |row| {
                push_summary(row, point);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        stream: &'static DeclaredStream,
        common: &Common<'a>,
        values: impl FnOnce(&mut Row<'a, '_>) -> Result<(), String>,
    ) -> Result<()> {
        if !self.rows.takes(stream) {
            self.rows.skip(stream);
            return Ok(());
        }
        let mut row = Row::sharing(self.shared);
        row.text("metric_name", self.metric.name.as_str());
        row.text("metric_description", self.metric.description.as_str());
        row.text("metric_unit", self.metric.unit.as_str());
        row.json("metric_metadata", self.metadata.clone());
        row.json("attributes", attributes(common.attributes));
        match add_times(common, &mut row).and_then(|()| values(&mut row)) {
            Ok(()) => {}
            Err(reason) => return self.rows.reject(stream, reason, row.to_json()),
        }
        push_flags(&mut row, common.flags);
        row.json("exemplars", exemplars(common.exemplars));
        self.rows.push(stream, row).map(drop)
    }
}

/// Adds the times of a point.
///
/// Errors: it has no time, which tells it from other points of its series; one is out of range.
fn add_times(common: &Common<'_>, row: &mut Row<'_, '_>) -> Result<(), String> {
    let time = Instant::of("timeUnixNano", common.time)?;
    let start = Instant::of("startTimeUnixNano", common.start)?;
    row.time("time", Some(time.ok_or("the point has no timeUnixNano")?.time));
    row.time("start_time", start.map(|start| start.time));
    Ok(())
}

fn number(point: &NumberDataPoint) -> Common<'_> {
    Common {
        start: point.start_time_unix_nano,
        time: point.time_unix_nano,
        attributes: &point.attributes,
        exemplars: &point.exemplars,
        flags: point.flags,
    }
}

/// Adds the number of a point: as a float, and as it is if it is an integer.
///
/// Errors: it has none although it should, or two.
fn push_number(row: &mut Row<'_, '_>, point: &NumberDataPoint) -> Result<(), String> {
    match (point.as_double, point.as_int) {
        (Some(_), Some(_)) => return Err("the point has both asDouble and asInt".to_owned()),
        (Some(x), None) => row.push("value", RowCell::Float(x)),
        (None, Some(n)) => {
            row.push("value", RowCell::Float(n as f64));
            row.push("int_value", RowCell::Int(n));
        }
        (None, None) if point.flags & NO_RECORDED_VALUE == 0 => {
            return Err("the point has neither asDouble nor asInt".to_owned());
        }
        (None, None) => {}
    }
    Ok(())
}

/// Adds the values of a histogram.
///
/// Errors: the numbers of buckets and of bounds do not fit together.
fn push_histogram(row: &mut Row<'_, '_>, point: &HistogramDataPoint) -> Result<(), String> {
    let (counts, bounds) = (&point.bucket_counts, &point.explicit_bounds);
    let fits = counts.len() == bounds.len() + 1 || (counts.is_empty() && bounds.is_empty());
    push_count(row, "count", point.count);
    row.float("sum", point.sum);
    row.float("min", point.min);
    row.float("max", point.max);
    if !counts.is_empty() {
        row.json("bucket_counts", Some(integers(counts)));
        let mut text = JsonText::new();
        text.array(bounds, |text, x| text.float(*x));
        row.json("explicit_bounds", Some(text.finish()));
    }
    match fits {
        true => Ok(()),
        false => Err(format!(
            "bucketCounts: expected one more than explicitBounds, which are {}, found {}",
            bounds.len(),
            counts.len()
        )),
    }
}

fn push_exponential(row: &mut Row<'_, '_>, point: &ExponentialHistogramDataPoint) {
    push_count(row, "count", point.count);
    row.float("sum", point.sum);
    row.float("min", point.min);
    row.float("max", point.max);
    row.push("scale", RowCell::Int(point.scale.into()));
    push_count(row, "zero_count", point.zero_count);
    row.float("zero_threshold", Some(point.zero_threshold));
    for (buckets, offset, counts) in [
        (&point.positive, "positive_offset", "positive_bucket_counts"),
        (&point.negative, "negative_offset", "negative_bucket_counts"),
    ] {
        if let Some(Buckets { offset: from, bucket_counts }) = buckets {
            row.push(offset, RowCell::Int((*from).into()));
            row.json(counts, Some(integers(bucket_counts)));
        }
    }
}

fn push_summary(row: &mut Row<'_, '_>, point: &SummaryDataPoint) {
    push_count(row, "count", point.count);
    row.float("sum", Some(point.sum));
    let mut text = JsonText::new();
    text.array(&point.quantile_values, |text, found| {
        text.raw("{\"quantile\":");
        text.float(found.quantile);
        text.raw(",\"value\":");
        text.float(found.value);
        text.raw("}");
    });
    row.json("quantile_values", Some(text.finish()));
}

/// Adds a count, which is unsigned in messages.
fn push_count<'a>(row: &mut Row<'a, '_>, name: &'a str, count: u64) {
    row.push(name, RowCell::Unsigned(count));
}

fn integers(numbers: &[u64]) -> String {
    let mut text = JsonText::new();
    text.array(numbers, |text, n| text.integer(n));
    text.finish()
}

fn exemplars(exemplars: &[Exemplar]) -> Option<String> {
    if exemplars.is_empty() {
        return None;
    }
    let mut text = JsonText::new();
    text.array(exemplars, |text, exemplar| {
        text.raw("{\"time\":");
        write_instant(exemplar.time_unix_nano, text);
        text.raw(",\"value\":");
        match (exemplar.as_double, exemplar.as_int) {
            (Some(x), _) => text.float(x),
            (None, Some(n)) => text.integer(n),
            (None, None) => text.raw("null"),
        }
        for (name, id) in [("trace_id", &exemplar.trace_id), ("span_id", &exemplar.span_id)] {
            if !id.is_empty() {
                text.raw(&format!(",\"{name}\":"));
                text.text(&hex(id));
            }
        }
        text.raw(",\"attributes\":");
        write_object(&exemplar.filtered_attributes, text);
        text.raw("}");
    });
    Some(text.finish())
}
